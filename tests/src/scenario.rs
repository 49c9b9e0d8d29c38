//! The command lines that are walked: what is there before each, what it is, and how one sees that its work was done.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::trace::{self, Whom};
use crate::{Folder, Ran, run, until};

/// The variable that every process of a [`Folder`] carries.
const MARK: &str = "OUTLIVE_TEST";

/// The variable that names a folder of other binaries: of an older version, or of one that was broken on purpose.
pub const BINARIES: &str = "OUTLIVE_BIN";

/// The folder of the five tools: `$OUTLIVE_BIN`, else beside this program, else what the tests build.
pub fn tools() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let given = std::env::var_os(BINARIES).map(PathBuf::from);
        given.unwrap_or_else(|| crate::bin_dir().to_owned()).canonicalize().unwrap()
    })
}

/// A fresh folder for one point, with the tools in its PATH.
pub struct Stage {
    folder: Folder,
    /// The entry in the environment of all that is started here.
    pub mark: String,
}

impl Stage {
    /// A fresh one, in `$TMPDIR`.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Stage {
        let folder = Folder::new();
        let mark = format!("{MARK}={}", folder.path("").file_name().unwrap().display());
        Stage { folder, mark }
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path(name)
    }

    /// Its job root.
    pub fn root(&self) -> PathBuf {
        self.folder.root()
    }

    /// A file of a job, wherever the job is.
    pub fn file(&self, id: &str, name: &str) -> PathBuf {
        self.folder.file(id, name)
    }

    /// What such a file holds; empty where there is none.
    pub fn text(&self, id: &str, name: &str) -> String {
        fs::read_to_string(self.file(id, name)).unwrap_or_default()
    }

    /// The word in a job's status.
    pub fn word(&self, id: &str) -> String {
        self.text(id, "status").trim_end().to_owned()
    }

    /// A command of this folder. Its environment is the same wherever the walk is started from.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let (name, value) = self.mark.split_once('=').unwrap();
        command
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", tools().display()))
            .env("JOBDIR_ROOT", self.root())
            .env(name, value)
            .current_dir(self.path(""))
            .stdin(std::process::Stdio::null());
        command
    }

    /// Runs a line of sh to its end.
    pub fn sh(&self, line: &str) -> Ran {
        run(self.command("sh").args(["-c", line]))
    }

    /// Runs a line that must succeed without a word on standard error; what it said.
    pub fn must(&self, line: &str) -> String {
        let ran = self.sh(line);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{line}");
        ran.out
    }

    /// The jobs that are here, by id and directory, delivered ones too.
    pub fn jobs(&self) -> Vec<(String, PathBuf)> {
        let places = ["jobs", "delivered"].map(|place| self.root().join(place));
        let entries = places.iter().flat_map(|place| fs::read_dir(place).into_iter().flatten().flatten());
        entries
            .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
            .filter(|(id, _)| !id.starts_with('.'))
            .collect()
    }

    /// The living processes that belong to a claim.
    pub fn members(&self, claim: &str) -> Vec<i32> {
        trace::carriers(&format!("JOB_CLAIM={claim}"))
    }

    /// The pid of a job's watchdog, while it lives.
    pub fn watchdog(&self, id: &str) -> Option<i32> {
        let pid: i32 = self.text(id, "pid").trim().parse().ok()?;
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        // The number alone proves nothing: it may be another folder's by now.
        let ours = program == tools().join("watchdog") && trace::carriers(&self.mark).contains(&pid);
        (ours && crate::is_alive(pid)).then_some(pid)
    }
}

/// What a scenario has made ready.
#[derive(Default)]
pub struct Scene {
    /// The ids that claims have printed.
    pub printed: Vec<String>,
    /// The lines that were emitted.
    pub emitted: Vec<Value>,
}

/// One command line.
pub struct Scenario {
    /// What it is called.
    pub name: &'static str,
    /// Makes ready what it needs.
    pub set: fn(&Stage) -> Scene,
    /// The line of sh. Its tools are what is broken.
    pub line: &'static str,
    /// Whom a kill may hit.
    pub kills: &'static [Whom],
    /// Whether the work was done, by what the command has said and left.
    pub done: fn(&Stage, &Ran) -> bool,
    /// The ends that the job may come to, as `status/reason`: whatever fails, nothing else would be true.
    pub ends: &'static [&'static str],
    /// Each point takes seconds: only walked when it is asked for by its name.
    pub slow: bool,
}

const ALONE: &[Whom] = &[Whom::Caller];
const TREE: &[Whom] = &trace::KILLS;
const HANDLED: &[Whom] = &[Whom::Caller, Whom::Delegate];

/// The id of the job that most scenarios are about.
pub const JOB: &str = "job";

fn claimed(stage: &Stage, options: &str) -> Scene {
    stage.must(&format!("jobdir claim --id job {options}"));
    Scene { printed: vec![JOB.into()], ..Scene::default() }
}

/// A job with a watchdog that lives as long as nobody ends it.
fn live(stage: &Stage) -> Scene {
    let scene = claimed(stage, "--grace 50ms");
    stage.must("detach --ready watchdog --job job -- sleep 60");
    scene
}

/// A job whose watchdog was killed, with a process that outlives it and ignores TERM.
fn died(stage: &Stage) -> Scene {
    let scene = claimed(stage, "--grace 50ms");
    stage.must("detach --ready watchdog --job job -- sh -c 'trap \"\" TERM; echo up; sleep 60; sleep 60; sleep 60'");
    until("the delegate is up", || stage.text(JOB, "out.log") == "up\n");
    let pid = stage.watchdog(JOB).expect("a watchdog");
    crate::kill(pid, libc::SIGKILL);
    until("the watchdog is gone", || !crate::is_alive(pid));
    scene
}

/// A job that was done, with a record.
fn done(stage: &Stage, id: &str, command: &str) {
    stage.must(&format!("jobdir claim --id {id} && detach --ready watchdog --job {id} -- {command}"));
    until("the job has ended", || !["claimed", "running"].contains(&stage.word(id).as_str()));
    // It leaves its lock behind a moment later, and prune would spare it till then.
    until("its watchdog has ended", || stage.watchdog(id).is_none());
}

/// A job whose view was lost: it was killed between the record and the word.
fn half_told(stage: &Stage) -> Scene {
    done(stage, JOB, "true");
    fs::write(stage.file(JOB, "status"), "running\n").unwrap();
    Scene { printed: vec![JOB.into()], ..Scene::default() }
}

/// Two that have ended, and one that waits to be started.
fn three(stage: &Stage) -> Scene {
    done(stage, "good", "true");
    done(stage, "bad", "sh -c 'echo oops; exit 4'");
    stage.must("jobdir claim --id later");
    Scene { printed: ["good", "bad", "later"].map(str::to_owned).into(), ..Scene::default() }
}

/// The lines of a sweep's output that are whole.
pub fn lines(out: &str) -> Vec<Value> {
    out.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn emitted(out: &str, ids: &[&str]) -> bool {
    let lines = lines(out);
    ids.iter().all(|id| lines.iter().any(|line| line["job"] == *id))
}

/// The record of a job.
pub fn record(stage: &Stage, id: &str) -> Option<Value> {
    serde_json::from_str(&stage.text(id, "result.json")).ok()
}

/// A job's end as `status/reason`.
pub fn end(stage: &Stage, id: &str) -> String {
    record(stage, id).map_or_else(String::new, |record| {
        format!("{}/{}", record["status"].as_str().unwrap_or(""), record["reason"].as_str().unwrap_or(""))
    })
}

fn is_claimed(stage: &Stage, id: &str) -> bool {
    let meta: Value = serde_json::from_str(&stage.text(id, "meta.json")).unwrap_or_default();
    // The boot is what a later sweep on this machine knows the claim by.
    stage.word(id) == "claimed" && meta["job"] == id && meta["boot_id"].is_string()
}

/// Whether one id was printed, of a job that is there.
fn claims(stage: &Stage, ran: &Ran) -> bool {
    let id = ran.out.strip_suffix('\n').unwrap_or("");
    ran.status == 0 && !id.is_empty() && is_claimed(stage, id)
}

fn starts(stage: &Stage, ran: &Ran) -> bool {
    // On a machine that is busy enough, the limit comes before the exec.
    let late = ran.status == 124 && end(stage, JOB).starts_with("timeout/");
    late || ran.status == 0
        && !["", "claimed"].contains(&stage.word(JOB).as_str())
        && end(stage, JOB) != "failed/spawn-failed"
}

/// Where a job would go on for ever, it is cancelled at the end of the point.
const CANCELLED: &[&str] = &["failed/cancelled"];
const LOST: &[&str] = &["unknown/never-started"];

/// All of them, in the order of a job's life.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "claim",
        set: |_| Scene::default(),
        line: "exec jobdir claim --start-within 50ms --name n --meta k=v",
        kills: ALONE,
        done: claims,
        ends: LOST,
        slow: false,
    },
    Scenario {
        name: "claim-id",
        set: |stage| {
            stage.must("jobdir claim --id other --start-within 50ms");
            Scene { printed: vec!["other".into()], ..Scene::default() }
        },
        line: "exec jobdir claim --id job --start-within 50ms",
        kills: ALONE,
        done: |stage, ran| ran.out == "job\n" && claims(stage, ran),
        ends: LOST,
        slow: false,
    },
    Scenario {
        name: "claim-input",
        set: |stage| {
            fs::write(stage.path("request"), "do it\n".repeat(50)).unwrap();
            Scene::default()
        },
        line: "exec jobdir claim --id job --start-within 50ms --input request",
        kills: ALONE,
        done: |stage, ran| claims(stage, ran) && stage.text(JOB, "input") == "do it\n".repeat(50),
        ends: LOST,
        slow: false,
    },
    Scenario {
        name: "claim-taken",
        set: |stage| claimed(stage, ""),
        line: "exec jobdir claim --id job",
        kills: ALONE,
        done: |_, ran| ran.status == 3 && ran.out == "claimed\n",
        ends: CANCELLED,
        slow: false,
    },
    Scenario {
        name: "put",
        set: |stage| {
            fs::write(stage.path("output"), "{\"n\": 1.50}\n").unwrap();
            live(stage)
        },
        line: "exec jobdir put job output",
        kills: ALONE,
        done: |stage, ran| ran.status == 0 && stage.text(JOB, "output.json") == "{\"n\": 1.50}\n",
        ends: CANCELLED,
        slow: false,
    },
    Scenario {
        name: "touch",
        set: live,
        line: "exec jobdir touch job 'half way'",
        kills: ALONE,
        // A full disk has no room for the text, and the time alone is a stamp too.
        done: |stage, ran| ran.status == 0 && stage.file(JOB, "progress").exists(),
        ends: CANCELLED,
        slow: false,
    },
    Scenario {
        name: "status-live",
        set: live,
        line: "exec jobdir status job",
        kills: ALONE,
        done: |_, ran| ran.status == 0 && ran.out == "running\n",
        ends: CANCELLED,
        slow: false,
    },
    Scenario {
        name: "status-dead",
        set: died,
        line: "exec jobdir status job",
        kills: ALONE,
        done: |stage, ran| {
            // While a lock is held by somebody else nobody can record the end, and then it runs still.
            let told = if end(stage, JOB).is_empty() { "running\n" } else { "unknown\n" };
            ran.status == 0 && ran.out == told
        },
        ends: &["unknown/worker-died"],
        slow: false,
    },
    Scenario {
        name: "status-view",
        set: half_told,
        line: "exec jobdir status job",
        kills: ALONE,
        done: |_, ran| ran.status == 0 && ran.out == "done\n",
        ends: &["done/exited"],
        slow: false,
    },
    Scenario {
        name: "wait-live",
        set: live,
        line: "exec jobdir wait --slice 0 job",
        kills: ALONE,
        done: |_, ran| ran.status == 75 && ran.err.contains("has not ended within"),
        ends: CANCELLED,
        slow: false,
    },
    Scenario {
        name: "wait-dead",
        set: died,
        line: "exec jobdir wait --slice 5s job",
        kills: ALONE,
        done: |stage, ran| ran.status == 1 && end(stage, JOB) == "unknown/worker-died",
        ends: &["unknown/worker-died"],
        slow: false,
    },
    Scenario {
        name: "finish",
        set: |stage| claimed(stage, "--start-within 50ms --grace 50ms"),
        line: "exec jobdir finish job failed --exit-code 7 --error gone",
        kills: ALONE,
        done: |stage, ran| ran.status == 0 && end(stage, JOB) == "failed/finished",
        ends: &["failed/finished", "unknown/never-started"],
        slow: false,
    },
    Scenario {
        name: "cancel",
        set: |stage| claimed(stage, ""),
        line: "exec jobdir cancel job",
        kills: ALONE,
        done: |stage, ran| ran.status == 0 && !end(stage, JOB).is_empty(),
        ends: CANCELLED,
        slow: false,
    },
    Scenario {
        name: "prune",
        set: |stage| {
            done(stage, "old", "true");
            done(stage, "kept", "true");
            let out = stage.must("sweep");
            stage.must("echo old | sweep --ack");
            fs::create_dir(stage.root().join("jobs/.claim-0123456789ab")).unwrap();
            fs::write(stage.root().join("jobs/.claim-0123456789ab/pid"), "").unwrap();
            fs::write(stage.root().join("jobs/kept/.tmp-0123456789ab"), "x").unwrap();
            Scene { printed: vec!["kept".into()], emitted: lines(&out) }
        },
        line: "exec jobdir prune --older-than 0",
        kills: ALONE,
        done: |stage, ran| {
            ran.status == 0
                && ran.out == "old\n"
                && stage.jobs().len() == 1
                && !stage.root().join("jobs/.claim-0123456789ab").exists()
                && !stage.root().join("jobs/kept/.tmp-0123456789ab").exists()
        },
        ends: &["done/exited"],
        slow: false,
    },
    Scenario {
        name: "run",
        set: |stage| claimed(stage, "--start-within 100ms --grace 50ms"),
        line: "exec detach --ready -e dog watchdog --job job -- true",
        kills: TREE,
        done: starts,
        ends: &[
            "done/exited",
            "failed/signaled",
            "failed/spawn-failed",
            "unknown/worker-died",
            "unknown/never-started",
        ],
        slow: false,
    },
    Scenario {
        name: "run-fails",
        set: |stage| claimed(stage, "--start-within 100ms --grace 50ms"),
        line: "exec detach --ready -e dog watchdog --job job -- sh -c 'echo ran >>ran; exit 3'",
        kills: TREE,
        done: starts,
        ends: &[
            "failed/exited",
            "failed/signaled",
            "failed/spawn-failed",
            "unknown/worker-died",
            "unknown/never-started",
        ],
        slow: false,
    },
    Scenario {
        name: "run-idle",
        set: |stage| claimed(stage, "--start-within 100ms --grace 50ms --idle 150ms"),
        line: "exec detach --ready -e dog watchdog --job job -- sleep 60",
        kills: TREE,
        done: starts,
        ends: &[
            "timeout/idle",
            "failed/signaled",
            "failed/spawn-failed",
            "unknown/worker-died",
            "unknown/never-started",
        ],
        slow: false,
    },
    Scenario {
        name: "run-hard",
        set: |stage| claimed(stage, "--start-within 100ms --grace 50ms --hard 150ms"),
        line: "exec detach --ready -e dog watchdog --job job -- sh -c 'trap \"\" TERM; echo up; sleep 60; sleep 60; sleep 60'",
        kills: TREE,
        done: starts,
        ends: &[
            "timeout/hard",
            "failed/signaled",
            "failed/spawn-failed",
            "unknown/worker-died",
            "unknown/never-started",
        ],
        slow: false,
    },
    Scenario {
        name: "run-cancelled",
        set: |stage| claimed(stage, "--start-within 100ms --grace 50ms --hard 1s"),
        line: "detach --ready -e dog watchdog --job job -- sleep 60 && exec jobdir cancel job",
        kills: TREE,
        done: starts,
        ends: &[
            "failed/cancelled",
            "timeout/hard",
            "failed/signaled",
            "failed/spawn-failed",
            "unknown/worker-died",
            "unknown/never-started",
        ],
        slow: false,
    },
    Scenario {
        name: "run-nothing",
        set: |stage| claimed(stage, "--start-within 100ms --grace 50ms"),
        line: "exec detach --ready -e dog watchdog --job job -- /nonexistent/command",
        kills: TREE,
        done: |stage, ran| ran.status != 0 && end(stage, JOB) == "failed/spawn-failed",
        ends: &["failed/spawn-failed", "failed/signaled", "unknown/worker-died", "unknown/never-started"],
        slow: false,
    },
    Scenario {
        // A job that was begun before is settled, never run twice.
        name: "run-again",
        set: |stage| {
            let scene = claimed(stage, "--grace 50ms");
            stage.must("detach --ready watchdog --job job -- sh -c 'echo ran >>ran; sleep 60'");
            until("it runs", || stage.path("ran").exists());
            let pid = stage.watchdog(JOB).expect("a watchdog");
            crate::kill(pid, libc::SIGKILL);
            until("the watchdog is gone", || !crate::is_alive(pid));
            scene
        },
        line: "exec detach --ready -e dog watchdog --job job -- sh -c 'echo ran >>ran'",
        kills: TREE,
        done: |_, ran| ran.status == 3 && ran.err.contains("never run twice"),
        ends: &["unknown/worker-died"],
        slow: false,
    },
    Scenario {
        name: "settle-unstarted",
        set: |stage| {
            let scene = claimed(stage, "--start-within 20ms");
            let since = Instant::now();
            until("the start window is over", || since.elapsed() > Duration::from_millis(25));
            scene
        },
        line: "exec sweep",
        kills: ALONE,
        done: |_, ran| ran.status == 0 && emitted(&ran.out, &[JOB]),
        ends: LOST,
        slow: false,
    },
    Scenario {
        name: "settle-dead",
        set: died,
        line: "exec sweep",
        kills: ALONE,
        done: |_, ran| ran.status == 0 && emitted(&ran.out, &[JOB]),
        ends: &["unknown/worker-died"],
        slow: false,
    },
    Scenario {
        name: "settle-view",
        set: half_told,
        line: "exec sweep",
        kills: ALONE,
        done: |_, ran| ran.status == 0 && emitted(&ran.out, &[JOB]),
        ends: &["done/exited"],
        slow: false,
    },
    Scenario {
        name: "settle-wedged",
        set: |stage| {
            let scene = claimed(stage, "--grace 10ms --idle 200ms");
            stage.must("detach --ready watchdog --job job -- sh -c 'while :; do echo; sleep .01; done'");
            let pid = stage.watchdog(JOB).expect("a watchdog");
            crate::kill(pid, libc::SIGSTOP);
            stage.members(&claim(stage, JOB)).into_iter().for_each(|pid| crate::kill(pid, libc::SIGSTOP));
            let since = Instant::now();
            until("the supervisor window is over", || since.elapsed() > Duration::from_millis(650));
            scene
        },
        line: "exec sweep",
        kills: ALONE,
        done: |_, ran| ran.status == 0 && emitted(&ran.out, &[JOB]),
        ends: &["unknown/wedged"],
        slow: true,
    },
    Scenario {
        name: "sweep",
        set: three,
        line: "exec sweep",
        kills: ALONE,
        done: |_, ran| ran.status == 0 && emitted(&ran.out, &["good", "bad"]),
        ends: &["done/exited", "failed/exited", "failed/cancelled"],
        slow: false,
    },
    Scenario {
        name: "handler",
        set: three,
        line: "exec sweep -- sh -c 'cat >>got'",
        kills: HANDLED,
        done: |stage, ran| {
            let got = fs::read_to_string(stage.path("got")).unwrap_or_default();
            let moved = ["good", "bad"].iter().all(|id| stage.root().join("delivered").join(id).is_dir());
            ran.status == 0 && moved && emitted(&got, &["good", "bad"])
        },
        ends: &["done/exited", "failed/exited", "failed/cancelled"],
        slow: false,
    },
    Scenario {
        name: "ack",
        set: |stage| {
            let scene = three(stage);
            let out = stage.must("sweep | tee lines");
            Scene { emitted: lines(&out), ..scene }
        },
        line: "exec sweep --ack <lines",
        kills: ALONE,
        done: |stage, ran| {
            let moved = |id: &str| stage.root().join("delivered").join(id).is_dir();
            ran.status == 0 && moved("good") && moved("bad")
        },
        ends: &["done/exited", "failed/exited", "failed/cancelled"],
        slow: false,
    },
    Scenario {
        // The line of an earlier claim acknowledges nothing of the one that has its id by now.
        name: "ack-stale",
        set: |stage| {
            done(stage, JOB, "true");
            stage.must("sweep >lines && sweep --ack <lines && jobdir prune --older-than 0");
            done(stage, JOB, "true");
            Scene { printed: vec![JOB.into()], ..Scene::default() }
        },
        line: "exec sweep --ack <lines",
        kills: ALONE,
        done: |stage, ran| ran.status == 1 && stage.root().join("jobs/job").is_dir(),
        ends: &["done/exited"],
        slow: false,
    },
];

/// A job's claim token.
pub fn claim(stage: &Stage, id: &str) -> String {
    let meta: Value = serde_json::from_str(&stage.text(id, "meta.json")).unwrap_or_default();
    meta["claim"].as_str().unwrap_or_default().to_owned()
}

/// The scenario of this name.
pub fn named(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == name)
}
