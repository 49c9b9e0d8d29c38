"""What the cases look at: job roots with jobs in them, real ones and made ones."""

import json
import os
import shutil
import signal
import subprocess
import time

from measure import state


def until(condition, limit=30):
    """Waits for a condition."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {limit} s")
        time.sleep(0.002)


class Jobs:
    """A fresh job root, in which the tools find themselves from now on."""

    def __init__(self, bench):
        self.bench = bench
        self.root = bench.folder("jobs") / "root"
        bench.env["JOBDIR_ROOT"] = str(self.root)
        bench.restart()
        self.count = 0
        # Made as the tools make it.
        self.claim()
        self.clear()

    def claim(self):
        """A claimed job's id."""
        words = [self.bench.tools / "jobdir", "claim", "-r", self.root]
        ran = subprocess.run(words, env=self.bench.env, capture_output=True, text=True, check=True)
        return ran.stdout.strip()

    def start(self, command, tools=None):
        """Starts a job as a user does; its id."""
        tools = tools or self.bench.tools
        job = self.claim()
        words = [tools / "detach", "--ready", tools / "watchdog", "-r", self.root, "--job", job, "--", *command]
        subprocess.run(list(map(str, words)), env=self.bench.env, check=True)
        return job

    def start_many(self, n):
        for _ in range(n):
            self.start(["sleep", "1000"])

    def path(self, job, name):
        return self.root / "jobs" / job / name

    def ids(self):
        return os.listdir(self.root / "jobs")

    def word(self, job):
        return self.path(job, "status").read_text().strip()

    def size(self, job, name):
        return self.path(job, name).stat().st_size

    def owner(self, job):
        return int(self.path(job, "pid").read_text())

    def all_run(self):
        return all(self.word(job) == "running" for job in self.ids())

    def cancel(self):
        """Ends all that runs, and waits until nothing is left of it."""
        owners = [self.owner(job) for job in self.ids() if self.word(job) == "running"]
        for pid in owners:
            os.kill(pid, signal.SIGTERM)
        until(lambda: all(state(pid) in "ZX" for pid in owners), 120)

    def clear(self):
        for job in self.ids():
            shutil.rmtree(self.root / "jobs" / job)

    def end(self):
        self.cancel()
        shutil.rmtree(self.root.parent)

    def record(self, job, size):
        """The record of a job that is done, padded by its output to `size` bytes with its line end."""
        record = {
            "version": 1, "job": job, "claim": f"{self.count:032x}", "name": "bench", "status": "done",
            "reason": "exited", "exit_code": 0, "ended_at": "2026-11-30T19:27:42.123Z", "output": "", "meta": {},
        }
        room = size - 1 - len(json.dumps(record, separators=(",", ":")))
        # Words and escapes, as text has them.
        text = "said \"so\" in a line\nand "
        while len(json.dumps(text)) - 2 < room:
            text += text
        while len(json.dumps(text)) - 2 > room:
            text = text[: len(text) - (len(json.dumps(text)) - 2 - room + 1) // 2]
        record["output"] = text + "x" * (room - len(json.dumps(text)) + 2)
        return json.dumps(record, separators=(",", ":")) + "\n"

    def meta(self, job):
        """What a claim of it would have written."""
        limits = {
            "idle_s": 600, "hard_s": None, "grace_s": 5, "start_s": 60, "deadline_s": None,
            "supervisor_idle_s": 1805, "supervisor_hard_s": None,
        }
        meta = {
            "version": 1, "job": job, "claim": f"{self.count:032x}", "name": "bench", "limits": limits,
            "host": "bench", "machine_id": "0" * 32, "boot_id": "00000000-0000-4000-8000-000000000000",
            "pid_namespace": 4026531836, "claimed_at": "2026-11-30T19:27:41.123Z", "claimed_monotonic_s": 4711.5, "meta": {},
        }
        return json.dumps(meta, separators=(",", ":")) + "\n"

    def make(self, place, size):
        """A job that has ended, with all the files that such a one has."""
        self.count += 1
        job = f"20261130T192742Z-{self.count:012x}"
        folder = f"{place}/{job}"
        os.mkdir(folder)
        files = {"meta.json": self.meta(job), "status": "done\n", "result.json": self.record(job, size)}
        for name, text in (files | {"pid": "4242\n", "out.log": "", "owner.json": "{}"}).items():
            with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
                file.write(text)
        return job

    def pending(self, n, size):
        """Makes `n` undelivered results; their ids."""
        return [self.make(self.root / "jobs", size) for _ in range(n)]

    def delivered(self, n):
        """Makes `n` delivered ones. Links to one job's files do: nobody is to look at them."""
        place = self.root / "delivered"
        first = self.make(place, 300)
        files = os.listdir(place / first)
        for i in range(1, n):
            # A file system may bound the links of one file.
            if i % 10_000 == 0:
                first = self.make(place, 300)
                continue
            folder = f"{place}/20261130T192743Z-{i:012x}"
            os.mkdir(folder)
            for name in files:
                os.link(f"{place}/{first}/{name}", f"{folder}/{name}")


def flat(bench, jobs):
    """The same records as flat files, as the detached-worker seed keeps them."""
    folder = jobs.root.parent / "flat"
    folder.mkdir()
    for job in jobs.ids():
        shutil.copyfile(jobs.path(job, "result.json"), folder / f"{job}.json")
    return folder
