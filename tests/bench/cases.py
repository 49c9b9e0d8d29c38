"""The cases, and what each must reach. A case is a function that yields rows; its name is how it is called for."""

import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

from measure import Row, calls, in_turns, private_kib, switches, waits
from scenes import Jobs, flat, until


@dataclass
class Goal:
    """In rows whose name starts with `case`: the subject is at most `bound` times `against`, or, where that is `None`,
    at most `bound` in the row's own unit. `least`: and not below this."""

    case: str
    subject: str
    against: str | None
    bound: float
    least: float = 0


# The one place for goals; everything else is measured. "glibc" and "musl" are our two builds.
GOALS = [
    Goal("detach", "glibc", "daemonize", 1.2),
    Goal("detach", "glibc", "setsid -f", 0.65),
    Goal("detach", "glibc", "perl", 0.08),
    Goal("detach", "glibc", "limit glibc", 1.3),
    Goal("detach", "musl", "daemonize", 0.7),
    Goal("detach", "musl", "setsid -f", 0.35),
    Goal("detach", "musl", "limit musl", 1.3),
    Goal("start, not synced", "glibc", "shell and perl", 0.25),
    Goal("start, not synced", "glibc", "limit glibc", 4),
    Goal("start, not synced", "musl", "limit musl", 4),
    # Three for the claim (meta.json, its directory, jobs/), two for the end (the record, its directory).
    Goal("start to end, its fsyncs", "glibc", None, 5),
    Goal("poll", "glibc", "cat", 0.8),
    Goal("poll", "musl", "cat", 0.45),
    Goal("poll", "glibc", "limit glibc", 1.5),
    Goal("poll", "musl", "limit musl", 1.5),
    Goal("sweep", "glibc", "limit glibc", 1.3),
    Goal("sweep", "musl", "limit musl", 1.3),
    Goal("sweep of 300 B", "glibc", "python, flat", 0.5),
    Goal("sweep of 5000 B", "glibc", "python, flat", 0.55),
    Goal("sweep", "glibc", "python, jobs", 0.25),
    Goal("peak memory of a sweep", "glibc", None, 12 << 10),
    Goal("peak memory of a sweep", "musl", None, 12 << 10),
    Goal("delivered", "glibc", "glibc, none delivered", 1.1),
    Goal("delivered", "musl", "musl, none delivered", 1.1),
    Goal("running", "glibc", None, 25),
    Goal("running", "musl", None, 25),
    Goal("ack", "glibc", "rename", 3),
    Goal("ack", "musl", "rename", 3),
    Goal("log of", "glibc", "redirect", 1.1, 0.9),
    Goal("log of", "musl", "redirect", 1.1, 0.9),
    Goal("turns of the watchdog while its log grows", "glibc", None, 0),
    Goal("turns of the watchdog while its log grows", "musl", None, 0),
    Goal("idle, turns in a second", "glibc", None, 0),
    Goal("idle, turns in a second", "musl", None, 0),
    Goal("idle, memory of one", "glibc", None, 1.3 * 1024),
    Goal("idle, memory of one", "musl", None, 400),
    Goal("idle, memory of each of 200", "glibc", None, 150),
    Goal("idle, memory of each of 200", "musl", None, 60),
    Goal("after a hard limit", "glibc", "timeout", 1.0),
    Goal("after a hard limit", "musl", "timeout", 1.0),
    Goal("after a natural end", "glibc", "timeout", 1.0),
    Goal("after a natural end", "musl", "timeout", 1.0),
    Goal("wait, after the owner's end", "glibc", None, 2),
    Goal("wait, after the owner's end", "musl", None, 2),
    Goal("wait, turns before the end", "glibc", None, 0),
    Goal("wait, turns before the end", "musl", None, 0),
    Goal("reap a chain of 200", "glibc", "psutil", 0.2),
    Goal("reap 1000 wide", "glibc", "psutil", 0.4),
    Goal("reap 5220 in three levels", "glibc", "psutil", 0.5),
    Goal("reap", "glibc", "kill", 3),
    Goal("reap", "musl", "kill", 3),
    Goal("burst of 200", "glibc", "glibc, one by one", 1.5),
    Goal("burst of 200", "musl", "musl, one by one", 1.5),
    Goal("size", "glibc", None, 1.4 * 1024),
    Goal("size", "musl", None, 600),
]

# The double fork of the job-lifecycle seed, word for word.
PERL = (
    'use POSIX qw(setsid); exit if fork; setsid(); exit if fork; open(STDIN,"<","/dev/null"); '
    'open(STDOUT,">","/dev/null"); open(STDERR,">>","/dev/null"); exec "/bin/bash","-c",$ARGV[0];'
)
POPEN = "import subprocess as s, sys; s.Popen(sys.argv[1:], start_new_session=True, stdout=s.DEVNULL, stderr=s.DEVNULL)"
# What a user writes.
START = 'id=$("$0/jobdir" claim) && "$0/detach" --ready "$0/watchdog" --job "$id" -- "$@" && echo "$id"'


def each(bench, make, limit=None):
    """The subjects of our builds and, where `limit` makes one, of the limits that are linked like them."""
    subjects = {name: make(tools) for name, tools in bench.builds.items()}
    for name in bench.builds:
        if limit and (program := bench.limit(name, limit[0])):
            subjects[f"limit {name}"] = [program, *limit[1:]]
    return subjects


def compare(bench, case, subjects, rounds, unit="µs", before=lambda: None, per=1, less=0.0, until_gone=False):
    """A row of command lines, in turns. A subject is a list of words or a function that gives one; `before` runs before
    each, and is not measured. Values are in `unit`, `less` seconds subtracted, `per` things a run."""
    row = Row(case, unit)
    scale = {"µs": 1e6, "ms": 1e3}[unit] / per
    wanted = {name: words for name, words in subjects.items() if words and (callable(words) or bench.has(words[0]))}

    def sample(name, words):
        before()
        took = bench.pace.run(words() if callable(words) else words)
        if took.status not in (0, 124):
            raise RuntimeError(f"{case}: {name} ended with {took.status}")
        row.kib[name] = max(took.kib, row.kib.get(name, 0))
        return ((took.gone if until_gone else took.seconds) - less) * scale

    runs = {name: (lambda name=name, words=words: sample(name, words)) for name, words in wanted.items()}
    in_turns(runs, 1)
    row.samples = in_turns(runs, bench.rounds(rounds))
    return row


def count(bench, row, subjects, before=lambda: None):
    """Adds how many system calls the command lines of a row make."""
    for name, words in subjects.items():
        if name in row.samples:
            before()
            row.calls[name] = calls(words() if callable(words) else words, bench.env)


def detach(bench):
    """`detach true`, until it has returned."""
    queue = bench.folder("nq")
    bench.env["NQDIR"], bench.env["TS_SOCKET"] = str(queue), str(queue / "socket")
    if bench.has("tsp"):
        # Its server would be the pace's child, and outlive every run.
        subprocess.run(["tsp", "true"], env=bench.env, stdout=subprocess.DEVNULL, check=True)
    bench.restart()
    subjects = each(bench, lambda tools: [tools / "detach", "true"], ("detach", "true")) | {
        "daemonize": ["daemonize", "/bin/true"],
        "setsid -f": ["setsid", "-f", "true"],
        "task-spooler": ["tsp", "true"],
        "nohup &": ["sh", "-c", "nohup true >/dev/null 2>&1 &"],
        "nq": ["nq", "true"],
        "perl": ["perl", "-e", PERL, "true"],
        "python": [sys.executable, "-c", POPEN, "true"],
    }

    def before():
        # nq looks at the logs of all earlier runs.
        for log in queue.glob(",*"):
            log.unlink()

    row = compare(bench, "detach true", subjects, 200, before=before)
    count(bench, row, subjects, before)
    if bench.has("tsp"):
        subprocess.run(["tsp", "-K"], env=bench.env, check=False)
    yield row


def start(bench):
    """Claim, detach --ready, watchdog, exec of the delegate, as a line of sh."""
    for synced in (False, True):
        root = bench.folder("start", on_disk=synced)
        bench.env["JOBDIR_ROOT"], bench.env["JOBDIR_SYNC"] = str(root / "root"), str(int(synced))
        bench.restart()
        (root / "limit").mkdir()
        limit = ["start"] + (["-s"] if synced else []) + [root / "limit", "true"]
        subjects = each(bench, lambda tools: ["sh", "-c", START, tools, "true"], limit)
        if not synced:
            # Its watchdog looks once a second, which is not waited for.
            subjects["shell and perl"] = ["&", bench.here / "peers/start.sh", root / "limit", "true"]
        row = compare(bench, f"start, {'synced' if synced else 'not synced'}", subjects, 40)
        count(bench, row, {name: [w for w in words if w != "&"] for name, words in subjects.items()})
        yield row
        if synced:
            fsyncs = Row("start to end, its fsyncs", "calls")
            for name, words in subjects.items():
                counted = calls(words, bench.env, "fsync,fdatasync")
                if counted is not None:
                    fsyncs.samples[name] = [counted]
            yield fsyncs
    bench.env["JOBDIR_SYNC"] = "0"


def poll(bench):
    """`jobdir status JOB`."""
    jobs = Jobs(bench)
    for word, command in (("running", ["sleep", "1000"]), ("done", ["true"])):
        job = jobs.start(command)
        until(lambda: jobs.word(job) == word)
        file = jobs.path(job, "status")
        subjects = each(bench, lambda tools: [tools / "jobdir", "status", job], ("status", file)) | {
            "cat": ["cat", file],
            "sh read": ["sh", "-c", 'read -r word <"$0" && echo "$word"', file],
            "python": [sys.executable, "-c", "import sys; print(open(sys.argv[1]).read(), end='')", file],
        }
        row = compare(bench, f"poll of a job that is {word}", subjects, 200)
        count(bench, row, subjects)
        yield row
    jobs.end()


def sweep(bench):
    """Undelivered results, to nowhere."""
    for size in (300, 5000):
        for n in bench.sizes(1_000, 10_000, 100_000):
            jobs = Jobs(bench)
            jobs.pending(n, size)
            files = flat(bench, jobs)
            subjects = each(bench, lambda tools: [tools / "sweep"], ("sweep", jobs.root / "jobs")) | {
                "python, flat": [sys.executable, bench.here / "peers/sweep_flat.py", files],
                "python, jobs": [sys.executable, bench.here / "peers/sweep_jobs.py", jobs.root / "jobs"],
                # It takes minutes of the greatest, and grows as the others do.
                "jq": n < 100_000 and bench.has("jq") and [bench.here / "peers/sweep_jq.sh", jobs.root / "jobs"],
            }
            row = compare(bench, f"sweep of {size} B × {n}", subjects, 21 if n < 10_000 else 11 if n < 100_000 else 5, per=n)
            if n == 1_000:
                count(bench, row, subjects)
            yield row
            if n == 100_000:
                ours = {name: [kib] for name, kib in row.kib.items() if name in bench.builds}
                yield Row(f"peak memory of a sweep of {size} B × {n}", "KiB", ours)
            jobs.end()


def delivered(bench):
    """Three undelivered results beside many delivered ones."""
    none = Jobs(bench)
    none.pending(3, 300)
    for n in bench.sizes(1_000, 10_000, 100_000) + ([1_000_000] if bench.million else []):
        many = Jobs(bench)
        many.pending(3, 300)
        many.delivered(n)
        subjects = {}
        for name, tools in bench.builds.items():
            subjects[name] = [tools / "sweep", "-r", many.root]
            subjects[f"{name}, none delivered"] = [tools / "sweep", "-r", none.root]
        row = compare(bench, f"delivered beside 3: {n}", subjects, 100)
        count(bench, row, subjects)
        yield row
        many.end()
    none.end()


def running(bench):
    """Running, healthy jobs: a sweep has nothing to say."""
    jobs, none = Jobs(bench), Jobs(bench)
    none.pending(1, 300)
    there = 0
    for n in bench.sizes(250, 500, 1_000):
        jobs.start_many(n - there)
        there = n
        for tools in bench.builds.values():
            said = subprocess.run([tools / "sweep", "-r", jobs.root], env=bench.env, capture_output=True, check=True)
            if said.stdout or said.stderr:
                raise RuntimeError(f"a sweep of running jobs said {said}")
        subjects = {}
        for name, tools in bench.builds.items():
            subjects[name] = [tools / "sweep", "-r", jobs.root]
            subjects[f"{name}, start-up"] = [tools / "sweep", "-r", none.root]
        whole = compare(bench, "", subjects, 21)
        row = Row(f"running: {n}, each over start-up", "µs")
        for name in bench.builds:
            pairs = zip(whole.samples[name], whole.samples[f"{name}, start-up"])
            row.samples[name] = [(all_of_it - start_up) / n for all_of_it, start_up in pairs]
        row.kib = {name: whole.kib[name] for name in bench.builds}
        if n <= 250:
            count(bench, row, subjects)
        yield row
    jobs.end()
    none.end()


def ack(bench):
    """Lines that are acknowledged, against as many renames."""
    for n in bench.sizes(1_000, 10_000, 100_000):
        jobs = Jobs(bench)
        ids = jobs.pending(n, 300)
        folder = bench.folder("ack")
        lines, names = folder / "lines", folder / "names"
        names.write_text("".join(f"{name}\n" for name in ids))
        with open(lines, "wb") as file:
            subprocess.run([bench.tools / "sweep", "-r", jobs.root], env=bench.env, stdout=file, check=True)
        places = jobs.root / "jobs", jobs.root / "delivered"
        subjects = each(bench, lambda tools: [f"<{lines}", tools / "sweep", "--ack"])
        subjects["rename"] = [f"<{names}", bench.limit(next(iter(bench.builds)), "rename"), *places]

        def before():
            for name in os.listdir(places[1]):
                os.rename(places[1] / name, places[0] / name)

        row = compare(bench, f"ack of {n}", subjects, 21 if n < 10_000 else 9 if n < 100_000 else 5, before=before, per=n)
        if n == 1_000:
            count(bench, row, subjects, before)
        yield row
        jobs.end()


def log(bench):
    """A watched job that writes much."""
    mib = 1 << 20
    for block, total in ((4096, bench.some(64, 1024) * mib), (100, bench.some(16, 256) * mib)):
        jobs = Jobs(bench)
        plain = bench.folder("log") / "plain"
        writer = [bench.made / "writer", block, total]

        def before():
            # What the last run has written would fill the memory.
            plain.unlink(missing_ok=True)
            for job in jobs.ids():
                log_of = jobs.path(job, "out.log")
                log_of.exists() and log_of.unlink()

        def watched(tools):
            return lambda: [tools / "watchdog", "--job", jobs.claim(), "--", *writer]

        # In a session of its own, as a watched job is: the scheduler shares the processors between sessions.
        redirect = ["setsid", "sh", "-c", 'file=$1; shift; exec "$@" >"$file"', "sh", plain]
        subjects = each(bench, watched) | {
            "redirect": redirect + writer,
            "timeout": redirect + ["timeout", 1000] + writer,
            "tee": ["setsid", "sh", "-c", 'file=$1; shift; "$@" | tee "$file"', "sh", plain] + writer,
        }
        yield compare(bench, f"log of {total // mib} MiB in {block} B", subjects, 15, unit="ms", before=before)

        row = Row(f"turns of the watchdog while its log grows by {block} B", "turns")
        for name, tools in bench.builds.items():
            before()
            job = jobs.start([bench.made / "writer", block, 1024 * mib], tools)
            dog = jobs.owner(job)
            until(lambda: waits(dog))
            first, size = switches(dog), jobs.size(job, "out.log")
            until(lambda: jobs.size(job, "out.log") > size + 16 * mib)
            row.samples[name] = [switches(dog) - first]
            jobs.cancel()
        yield row
        jobs.end()


def idle(bench):
    """What a watched job costs while nothing happens."""
    sleep = ["sleep", "1000"]
    jobs = Jobs(bench)
    others = each(bench, lambda tools: None, ("timeout", "1000", *sleep)) | {"timeout": ["timeout", "1000", *sleep]}

    def begin(name, n):
        if name in bench.builds:
            dogs = [jobs.owner(jobs.start(sleep, bench.builds[name])) for _ in range(n)]
        else:
            dogs = [subprocess.Popen(list(map(str, others[name])), env=bench.env).pid for _ in range(n)]
        until(lambda: all(map(waits, dogs)), 120)
        return dogs

    def finish(name, dogs):
        if name in bench.builds:
            jobs.cancel()
            return jobs.clear()
        for dog in dogs:
            os.kill(dog, signal.SIGTERM)
            os.waitpid(dog, 0)

    turns = Row("idle, turns in a second", "turns")
    one = Row("idle, memory of one", "KiB")
    for name in others:
        dogs = begin(name, 1)
        first = switches(dogs[0])
        # A second in which nothing may happen is what is measured.
        time.sleep(1)
        turns.samples[name] = [switches(dogs[0]) - first]
        one.samples[name] = [private_kib(dogs[0])]
        finish(name, dogs)
    yield turns
    yield one
    for n in bench.sizes(20, 50, 200):
        row = Row(f"idle, memory of each of {n}", "KiB")
        for name in others:
            dogs = begin(name, n)
            row.samples[name] = [private_kib(dog) for dog in dogs]
            finish(name, dogs)
        yield row
    jobs.end()


def limits(bench):
    """How long after a hard limit, and after the command's own end, the watchdog has returned."""
    late = each(bench, lambda tools: [tools / "watchdog", "--hard", "0.1", "--", "sleep", "10"], ("timeout", "0.1", "sleep", "10"))
    late["timeout"] = ["timeout", "0.1", "sleep", "10"]
    yield compare(bench, "after a hard limit", late, 50, less=0.1)
    ended = each(bench, lambda tools: [tools / "watchdog", "--hard", "60", "--", "true"], ("timeout", "60", "true"))
    ended["timeout"] = ["timeout", "60", "true"]
    row = compare(bench, "after a natural end", ended, 200)
    count(bench, row, ended)
    yield row


def wait(bench):
    """`jobdir wait`: how long after the end it has exited, and whether anything wakes it before."""
    jobs = Jobs(bench)
    gate = bench.folder("wait") / "gate"
    os.mkfifo(gate)
    command, owner, turns = {}, {}, {}

    def sample(name, tools):
        job = jobs.start(["cat", str(gate)], tools)
        door = os.open(gate, os.O_WRONLY)
        until(lambda: jobs.word(job) == "running")
        dog = os.pidfd_open(jobs.owner(job))
        waiter = subprocess.Popen([tools / "jobdir", "wait", job], env=bench.env)
        until(lambda: waits(waiter.pid))
        first = switches(waiter.pid)
        ends, poll = {}, select.poll()
        fds = {dog: "owner", os.pidfd_open(waiter.pid): "waiter"}
        for fd in fds:
            poll.register(fd, select.POLLIN)
        before = switches(waiter.pid) - first
        begun = time.monotonic()
        os.close(door)
        while len(ends) < len(fds):
            for fd, _ in poll.poll():
                ends.setdefault(fds[fd], time.monotonic())
                poll.unregister(fd)
        waiter.wait()
        for fd in fds:
            os.close(fd)
        command.setdefault(name, []).append((ends["waiter"] - begun) * 1e3)
        owner.setdefault(name, []).append((ends["waiter"] - ends["owner"]) * 1e3)
        turns.setdefault(name, []).append(before)

    in_turns({name: lambda name=name, tools=tools: sample(name, tools) for name, tools in bench.builds.items()}, bench.rounds(30))
    yield Row("wait, after the owner's end", "ms", owner)
    yield Row("wait, after the command's end", "ms", command)
    yield Row("wait, turns before the end", "turns", turns)
    jobs.end()


def reap(bench):
    """Trees of processes, until the last one is gone."""
    shapes = [(f"a chain of {n}", n - 1, 1) for n in bench.sizes(50, 100, 200)]
    shapes += [(f"{n} wide", 1, n - 1) for n in bench.sizes(250, 500, 1_000)]
    shapes += [(f"{1 + n + n * n + n**3} in three levels", 3, n) for n in bench.sizes(9, 12, 17)]
    file = bench.folder("reap") / "root"
    recipe = bench.here / "peers/reap_psutil.py"
    bench.env["PYTHONPATH"], bench.env["NODE_PATH"] = str(bench.made / "psutil"), str(bench.made / "node_modules")
    bench.restart()
    for shape, levels, width in shapes:
        def before():
            bench.pace.run([f">{file}", "&", bench.made / "forest", levels, width])

        def pid():
            return file.read_text().strip()

        subjects = each(bench, lambda tools: lambda: [tools / "reap", pid()])
        subjects["kill"] = lambda: ["kill", "--", f"-{pid()}"]
        if (bench.made / "psutil").is_dir():
            subjects["psutil"] = lambda: [sys.executable, recipe, pid()]
        # It runs a ps for each process: minutes for a large tree.
        if levels < 3 and levels * width < 100 and (bench.made / "node_modules/tree-kill").is_dir() and bench.has("node"):
            subjects["tree-kill"] = lambda: ["node", bench.here / "peers/reap_tree_kill.js", pid()]
        rounds = 15 if levels * width < 500 else 9
        yield compare(bench, f"reap {shape}", subjects, rounds, unit="ms", before=before, until_gone=True)


def burst(bench):
    """Many jobs started at once, against as many one by one."""
    line = f"i=0; while [ $i -lt $N ]; do sh -c '{START}' \"$0\" \"$@\" & i=$((i + 1)); $EACH done; wait"
    for n in bench.sizes(50, 100, 200):
        jobs = Jobs(bench)
        bench.env["N"] = str(n)
        bench.restart()

        def before():
            jobs.cancel()
            jobs.clear()

        subjects = {}
        for name, tools in bench.builds.items():
            subjects[name] = ["&", "sh", "-c", line.replace("$EACH", ""), tools, "sleep", "1000"]
            subjects[f"{name}, one by one"] = ["&", "sh", "-c", line.replace("$EACH", "wait;"), tools, "sleep", "1000"]
        row = compare(bench, f"burst of {n}", subjects, 7, unit="ms", before=before)
        if len(jobs.ids()) != n or not jobs.all_run():
            raise RuntimeError(f"of {n} jobs not all are ready")
        yield row
        jobs.end()


def size(bench):
    """The release binaries."""
    for tool in ("detach", "jobdir", "reap", "sweep", "watchdog"):
        sizes = {name: [(tools / tool).stat().st_size / 1024] for name, tools in bench.builds.items()}
        yield Row(f"size of {tool}", "KiB", sizes)


CASES = [detach, start, poll, sweep, delivered, running, ack, log, idle, limits, wait, reap, burst, size]
