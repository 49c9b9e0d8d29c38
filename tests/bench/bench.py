"""Runs the cases, and prints what was measured and which goals are met. Started by `run`, which builds first."""

import argparse
import contextlib
import datetime
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from cases import CASES, GOALS
from measure import Pace, quartiles

HERE = Path(__file__).resolve().parent


class Bench:
    """What a case needs: where everything is, a clean environment, and how much to do."""

    def __init__(self, options, work, disk):
        self.here, self.made = HERE, Path(options.made)
        self.builds = {name: Path(path) for name, path in (build.split("=", 1) for build in options.build)}
        # Where it does not matter which.
        self.tools = next(iter(self.builds.values()))
        self.quick, self.million = options.quick, options.million
        self.work, self.disk, self.made_folders = work, disk, 0
        self.env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(work), "JOBDIR_SYNC": "0"}
        self.pace = None
        self.restart()

    def restart(self):
        """Takes in what has changed in the environment."""
        if self.pace:
            self.pace.close()
        self.pace = Pace(self.made / "pace", self.env)

    def end(self):
        """Ends whatever was started from here and still lives; it is known by its HOME."""
        self.pace.close()
        mark = f"HOME={self.work}".encode()
        while living := [pid for pid in filter(str.isdigit, os.listdir("/proc")) if mark in environment(pid)]:
            for pid in map(int, living):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def folder(self, name, on_disk=False):
        """A fresh folder: in memory where the machine has such a place, or on a real disk."""
        self.made_folders += 1
        folder = (self.disk if on_disk else self.work) / f"{name}{self.made_folders}"
        folder.mkdir()
        return folder

    def has(self, program):
        return str(program)[0] in "</&>" or shutil.which(str(program), path=self.env["PATH"]) is not None

    def limit(self, build, name):
        program = self.made / build / name
        return program if program.exists() else None

    def rounds(self, n):
        return 3 if self.quick else n

    def sizes(self, *sizes):
        return list(sizes[:2] if self.quick else sizes)

    def some(self, little, much):
        return little if self.quick else much


def environment(pid):
    """The variables that a process was started with; none where it is gone or a zombie."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def number(value):
    """Three digits that mean something."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def spread(values):
    low, middle, high = quartiles(values)
    return number(middle), f"{number(low)} – {number(high)}" if len(values) > 1 else ""


def ratios(row, goal):
    """The paired ratios that a goal is about, or the values where it compares with nothing."""
    subject, against = row.samples[goal.subject], row.samples.get(goal.against)
    return subject if against is None else [a / b for a, b in zip(subject, against)]


def judged(row):
    """The lines of the table of goals for one row."""
    for goal in GOALS:
        if not row.case.startswith(goal.case) or goal.subject not in row.samples:
            continue
        against, unit = goal.against or "", f" {row.unit}" if goal.against is None else " ×"
        if goal.against and goal.against not in row.samples:
            yield [row.case, goal.subject, against, "", "", f"≤ {goal.bound:g}", "not measured"]
            continue
        middle, around = spread(ratios(row, goal))
        value = quartiles(ratios(row, goal))[1]
        met = goal.least <= value <= goal.bound
        bound = f"{goal.least:g} – {goal.bound:g}" if goal.least else f"≤ {number(goal.bound)}"
        yield [row.case, goal.subject, against, middle + unit, around, bound, "met" if met else "**missed**"]


def measured(row):
    """The lines of the table of measurements for one row; the ratio is that of our first build to each."""
    ours = next(iter(row.samples))
    for name, values in row.samples.items():
        middle, around = spread(values)
        to = [a / b for a, b in zip(row.samples[ours], values) if b]
        ratio = "" if name == ours or len(to) < len(values) else " ".join(spread(to)).replace(" ", " (", 1) + ")"
        ratio = ratio.replace(" ()", "")
        calls, kib = row.calls.get(name), row.kib.get(name)
        cells = [row.case, name, f"{middle} {row.unit}", around, ratio]
        yield cells + ["" if calls is None else f"{calls:,}", f"{kib:,}" if kib else ""]


MEASURED = ["case", "who", "median", "quartiles", "ours to it", "system calls", "peak KiB"]
JUDGED = ["case", "ours", "against", "median", "quartiles", "goal", ""]


def table(head, lines):
    lines = [head, *lines]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(line, widths)) + " |" for line in lines)


def machine():
    """The day, the code and the machine that the figures are of."""
    git = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    today = datetime.date.today().isoformat()
    return f"{today}, commit {commit}, {platform.system()} {platform.release()}, {platform.machine()}, {os.cpu_count()} cores"


def main():
    names = [case.__name__ for case in CASES]
    parser = argparse.ArgumentParser(prog="tests/bench/run", description=__doc__, epilog="cases: " + ", ".join(names))
    parser.add_argument("case", nargs="*", help="the cases to run; all of them where none is named")
    parser.add_argument("--write", action="store_true", help="write the tables to RESULTS.md, too")
    parser.add_argument("--quick", action="store_true", help="three rounds, small sizes: to see that it works")
    parser.add_argument("--million", action="store_true", help="a million delivered results, too")
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument("--made", help=argparse.SUPPRESS)
    parser.add_argument("--build", action="append", default=[], help=argparse.SUPPRESS)
    options = parser.parse_args()
    # What is built now is what is measured, whatever is edited meanwhile.
    built = machine()
    if options.list:
        for case in CASES:
            print(f"{case.__name__:10} {case.__doc__}")
        return 0
    if unknown := [name for name in options.case if name not in names]:
        parser.error(f"no such case: {unknown[0]} (there are {', '.join(names)})")

    # A Ctrl-C or a TERM ends what was started, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # In memory: what a disk does at the same time is not ours to measure, but for the one case that is about it.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    lines, verdicts, whole = [], [], False
    with contextlib.suppress(KeyboardInterrupt), tempfile.TemporaryDirectory(dir=memory) as work, tempfile.TemporaryDirectory(dir=options.made) as disk:
        for case in CASES:
            if options.case and case.__name__ not in options.case:
                continue
            bench = Bench(options, Path(work), Path(disk))
            try:
                for row in case(bench):
                    lines += (new := list(measured(row)))
                    verdicts += list(judged(row))
                    print("\n".join("  ".join(filter(None, line)) for line in new), file=sys.stderr, flush=True)
            finally:
                bench.end()
        whole = True

    missed = sum(line[-1] != "met" for line in verdicts)
    text = f"""# What was measured

{built}{", a quick look only" if options.quick else ""}. Made by `tests/bench/run --write`; no figure is typed by hand.

Medians of runs taken in turns, with the quartiles; ratios are of paired runs. glibc and musl are our builds, "limit" is a
minimal C program linked the same way ([`limit/`](limit)). Read the ratios, not the times.

## Goals: {len(verdicts) - missed} met, {missed} not

{table(JUDGED, verdicts)}

## Measurements

{table(MEASURED, lines)}
"""
    print(text)
    if not whole:
        print("bench: interrupted, so nothing is written", file=sys.stderr)
    elif options.write:
        (HERE / "RESULTS.md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
