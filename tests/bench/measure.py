"""How things are measured: runs taken in turns, medians of paired ratios, counted calls."""

import os
import random
import re
import statistics
import subprocess
import tempfile
from dataclasses import dataclass, field


@dataclass
class Took:
    """What one command took: its exit status, seconds until it had ended, and until all that it left behind had
    ended too, and its peak memory."""

    status: int
    seconds: float
    gone: float
    kib: int


class Pace:
    """The small process that spawns and times (pace.c): a spawn costs the same for all, and little."""

    def __init__(self, program, env):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([program], env=env, text=True, **pipes)

    def run(self, words):
        self.process.stdin.write("\t".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        status, took, gone, kib = map(int, self.process.stdout.readline().split())
        return Took(status, took / 1e9, gone / 1e9, kib)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


@dataclass
class Row:
    """One case: for each subject the samples in `unit`, what a run calls the kernel, and its peak memory."""

    case: str
    unit: str
    samples: dict = field(default_factory=dict)
    calls: dict = field(default_factory=dict)
    kib: dict = field(default_factory=dict)


def quartiles(values):
    """The lower quartile, the median and the upper quartile."""
    values = sorted(values)
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def in_turns(subjects, rounds):
    """Calls each subject once a round; their values, by name. In any order, but the same one in each run of the bench:
    whoever always followed the greatest would always find cold caches."""
    samples = {name: [] for name in subjects}
    order, shuffle = list(subjects), random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            samples[name].append(subjects[name]())
    return samples


def calls(words, env, only=None):
    """How many system calls a command makes with all its children; `None` without strace."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    words = list(map(str, words))
    if words[0].startswith("<"):
        streams["stdin"] = open(words.pop(0)[1:], "rb")
    with tempfile.NamedTemporaryFile("r") as table:
        trace = ["strace", "-f", "-c", "-o", table.name] + (["-e", f"trace={only}"] if only else [])
        try:
            subprocess.run(trace + words, env=env, timeout=120, **streams)
        except (FileNotFoundError, subprocess.TimeoutExpired):
            return None
        total = re.search(r"^\s*100\.00\s+\S+\s+\S*\s+(\d+).*total$", table.read(), re.MULTILINE)
        return int(total[1]) if total else 0


def switches(pid):
    """How often a process has given up or lost a processor: it can do nothing without that this number grows."""
    with open(f"/proc/{pid}/status") as status:
        return sum(map(int, re.findall(r"ctxt_switches:\s+(\d+)", status.read())))


def private_kib(pid):
    """The memory that goes when this process goes."""
    with open(f"/proc/{pid}/smaps_rollup") as maps:
        return sum(map(int, re.findall(r"^Private_(?:Clean|Dirty):\s+(\d+)", maps.read(), re.MULTILINE)))


def state(pid):
    """The state letter of a process; X where it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def waits(pid):
    """Whether a process sleeps in a wait for events or for a child, and not by the way."""
    try:
        with open(f"/proc/{pid}/syscall") as call:
            number = call.read().split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    if os.uname().machine != "x86_64":
        return state(pid) == "S"
    # poll, wait4, rt_sigsuspend, waitid, ppoll
    return number in ("7", "61", "130", "247", "271")
