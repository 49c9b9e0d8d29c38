//! `examples/notify-*` against the real other side, on loopback: it is killed and comes back in the middle of hundreds
//! of results, and nothing is lost and nothing doubled, in both forms: `sweep | notify | sweep --ack`, and
//! `sweep -- notify`.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tests::{Folder, Kid, NOBODY, Ran, is_root, json, run, skip, status_of, text, until, until_within};

/// The two forms, with `NOTIFY` for the notifier and its words.
const PIPE: &str = "sweep | NOTIFY | sweep --ack";
const HANDLER: &str = "sweep -- NOTIFY";

/// A line of sh in the folder, with the notifiers, the tools and `bin` of the folder on PATH.
fn sh(folder: &Folder, line: &str) -> Command {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut command = folder.command("sh");
    let line = format!("PATH=$PWD/bin:{}:$PATH; {line}", examples.display());
    // Nobody here is under test for power cuts.
    command.args(["-c", &line]).current_dir(folder.path("")).env("JOBDIR_SYNC", "0").env("LC_ALL", "C");
    command
}

fn has(programs: &[&str]) -> bool {
    let folder = Folder::new();
    let missing = programs.iter().find(|one| run(&mut sh(&folder, &format!("command -v {one}"))).status != 0);
    missing.inspect(|one| skip(&format!("{one} is not here"))).is_none()
}

/// A program of the folder's own, written by another process, so that nobody inherits it while it is open for writing.
fn program(folder: &Folder, name: &str, lines: &str) {
    let line = r#"mkdir -p bin && printf '#!/bin/sh\n%s\n' "$1" >"bin/$2" && chmod +x "bin/$2""#;
    let mut command = folder.command("sh");
    assert_eq!(run(command.args(["-c", line, "sh", lines, name]).current_dir(folder.path(""))).err, "");
}

/// A port that is free just now.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn listens(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// So many results wait: one whose log no shell and no database likes, and cancelled ones with names like that. The
/// lines of a sweep by their ids.
fn results(folder: &Folder, count: usize) -> BTreeMap<String, String> {
    let first = folder.claim(&["--id", "r0", "--name", "näme, \"quoted\"; it's \\u0000"]);
    let words = "printf 'b\\303\\266om\\0\\001\\002 \\\\u0000 %%s \"$HOME\" \\\\\\0\\n'; exit 3";
    assert_eq!(run(&mut folder.watchdog(&first, &[], words)).status, 3);
    let claims = format!(
        "i=0; while [ $((i += 1)) -lt {count} ]; do
            jobdir claim --id \"r$i\" --name digest --meta text=\"it's \\\"\\\\ \\$HOME %s ü \\\"job\\\":\\\"no\" || exit
        done >claimed; xargs jobdir cancel <claimed"
    );
    assert_eq!(run(&mut sh(folder, &claims)), Ran { status: 0, out: String::new(), err: String::new() });
    let out = folder.run("sweep", [""; 0]).out;
    let lines: BTreeMap<_, _> = out.lines().map(|line| (id(&json(line)), line.to_owned())).collect();
    assert_eq!(lines.len(), count);
    lines
}

fn id(record: &Value) -> String {
    record["job"].as_str().expect("an id").to_owned()
}

/// What a directory of the root holds.
fn ids(folder: &Folder, name: &str) -> BTreeSet<String> {
    fs::read_dir(folder.root().join(name)).unwrap().map(|one| one.unwrap().file_name().into_string().unwrap()).collect()
}

/// Starts a delivery; what it says goes to `said`.
fn deliver(folder: &Folder, form: &str, notify: &str) -> Kid {
    let line = format!("exec 2>said; {}", form.replace("NOTIFY", notify));
    Kid::quiet(sh(folder, &line).process_group(0))
}

fn ended(mut delivery: Kid) -> i32 {
    until_within(Duration::from_secs(100), "it has ended", || delivery.0.try_wait().unwrap().is_some());
    status_of(delivery.0.wait().unwrap())
}

/// A delivery from its beginning to its end: its status, and what it said.
fn delivered(folder: &Folder, form: &str, notify: &str) -> (i32, String) {
    (ended(deliver(folder, form, notify)), text(folder, "said"))
}

/// The status of a delivery whose other side is gone: a handler says that the next result would fare no better, and a
/// pipeline has the status of the acknowledgement.
fn gone(form: &str) -> i32 {
    if form == HANDLER { 75 } else { 0 }
}

/// The other side of a notifier.
struct Side<'a> {
    notify: String,
    /// Starts it, and waits until it is there.
    start: Box<dyn Fn() -> Kid + 'a>,
    /// The records that it holds, each as often as it does.
    holds: Box<dyn Fn() -> Vec<Value> + 'a>,
}

/// The server is killed after three fifths of the results, and comes back; the next sweep delivers the others.
fn survives(folder: &Folder, side: &Side, form: &str, count: usize) -> BTreeMap<String, Value> {
    let tool = side.notify.split(' ').next().unwrap();
    let lines = results(folder, count);
    let server = (side.start)();
    let first = deliver(folder, form, &side.notify);
    fs::create_dir_all(folder.root().join("delivered")).unwrap();
    until_within(Duration::from_secs(60), "it is in the middle", || ids(folder, "delivered").len() >= count * 3 / 5);
    let pid = server.pid().to_string();
    assert_eq!(folder.run("reap", ["--signal", "KILL", "--grace", "0", &pid]).status, 0);
    drop(server);
    let status = ended(first);
    let said = text(folder, "said");
    assert!(said.starts_with(&format!("{tool}: cannot ")), "{said}");
    assert_eq!(status, gone(form), "{said}");
    let (told, left) = (ids(folder, "delivered"), ids(folder, "jobs").len());
    assert!(left > 0 && told.len() + left == count, "killed in the middle: {} and {left}", told.len());

    let _server = (side.start)();
    let held: BTreeSet<String> = (side.holds)().iter().map(id).collect();
    assert_eq!(told.difference(&held).collect::<Vec<_>>(), [""; 0], "acknowledged, and lost");
    assert_eq!(delivered(folder, form, &side.notify), (0, String::new()));
    assert_eq!((ids(folder, "jobs").len(), ids(folder, "delivered").len()), (0, count));
    let everything = || (side.holds)().len() >= count;
    until("whoever reads has got everything", everything);
    let all = (side.holds)();
    let held: BTreeMap<String, Value> = all.iter().map(|record| (id(record), record.clone())).collect();
    assert_eq!((all.len(), held.len()), (count, count), "nothing lost, nothing doubled");
    for (id, line) in &lines {
        let mut record = held[id].clone();
        if let Some(fields) = record.as_object_mut() {
            fields.remove("attempt");
        }
        assert_eq!(record, json(line));
    }
    // All over again, as if no acknowledgement had come through.
    assert_eq!(run(&mut sh(folder, "mv root/delivered/r1 root/jobs/")).status, 0);
    assert_eq!(delivered(folder, form, &side.notify), (0, String::new()));
    assert_eq!((side.holds)().len(), count, "sent again, and not doubled");
    held
}

// A webhook.

/// Keeps what it has not got yet by its key. At times it answers 503 before it has kept it, at times 500 after that.
const HOOK: &str = r#"
import http.server, sys, time
port, path, refused = int(sys.argv[1]), sys.argv[2], dict(word.split("=") for word in sys.argv[3:])
store = open(path, "ab", 0)
seen = {line.split(b" ", 1)[0] for line in open(path, "rb")}
class Hook(http.server.BaseHTTPRequestHandler):
    count = 0
    def do_POST(self):
        Hook.count += 1
        key = self.headers["Idempotency-Key"]
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = 503 if Hook.count % 200 == 50 else 200
        status = int(refused.get(key.split(".")[0], status))
        if status == 0:
            return time.sleep(2)
        if status == 200 and key.encode() not in seen:
            store.write(key.encode() + b" " + body + b"\n")
            seen.add(key.encode())
            if Hook.count % 200 == 99:
                status = 500
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *words):
        pass
http.server.HTTPServer(("127.0.0.1", port), Hook).serve_forever()
"#;

fn hook(folder: &Folder, port: u16, refused: &[&str]) -> Kid {
    let mut command = folder.command("python3");
    command.args(["-c", HOOK, &port.to_string()]).arg(folder.path("store")).args(refused);
    let kid = Kid::quiet(&mut command);
    until("the webhook listens", || listens(port));
    kid
}

/// What it has kept: key and body.
fn kept(folder: &Folder) -> Vec<(String, String)> {
    let store = text(folder, "store");
    store.lines().map(|line| line.split_once(' ').unwrap()).map(|(key, body)| (key.into(), body.into())).collect()
}

fn webhook(form: &str, count: usize) {
    if !has(&["python3", "curl"]) {
        return;
    }
    let (folder, port) = (Folder::new(), port());
    let side = Side {
        notify: format!("notify-webhook http://127.0.0.1:{port}/results"),
        start: Box::new(|| hook(&folder, port, &[])),
        holds: Box::new(|| kept(&folder).iter().map(|(_, body)| json(body)).collect()),
    };
    let lines = survives(&folder, &side, form, count);
    for (key, body) in kept(&folder) {
        let record = &lines[&id(&json(&body))];
        assert_eq!(key, format!("{}.{}", id(record), record["claim"].as_str().unwrap()));
    }
}

#[test]
fn a_webhook_that_is_killed_gets_each_result_once_by_a_pipe() {
    webhook(PIPE, 500);
}

#[test]
fn a_webhook_that_is_killed_gets_each_result_once_by_a_handler() {
    webhook(HANDLER, 500);
}

#[test]
fn a_webhook_that_refuses_one_result_gets_the_others() {
    if !has(&["python3", "curl"]) {
        return;
    }
    let (folder, port) = (Folder::new(), port());
    results(&folder, 4);
    let notify = format!("notify-webhook http://127.0.0.1:{port}/results");
    let server = hook(&folder, port, &["r1=422", "r2=503"]);
    let refusal = "notify-webhook: cannot post job r1: the answer was 422\n";
    let sick = "notify-webhook: cannot post job r2: the answer was 503\n";
    let notify = format!("env WEBHOOK_RETRIES=1 {notify}");
    assert_eq!(delivered(&folder, PIPE, &notify), (0, format!("{refusal}{sick}")));
    assert_eq!((ids(&folder, "jobs").len(), kept(&folder).len()), (2, 2));
    let (status, said) = delivered(&folder, HANDLER, &notify);
    assert!(status == 1 && said.starts_with(refusal), "{said}");
    drop(server);
    // Whoever hangs at one result, takes the others.
    let _ = fs::remove_dir_all(folder.root());
    results(&folder, 3);
    let server = hook(&folder, port, &["r0=0"]);
    let (status, said) = delivered(&folder, HANDLER, &format!("{notify} --max-time 1 --retry 0"));
    assert_eq!((status, said.lines().count(), ids(&folder, "jobs").len()), (1, 2, 1), "{said}");
    assert!(said.starts_with("notify-webhook: cannot post job r0: Operation timed out"), "{said}");
    drop(server);
    // Where nobody answers, one line says so, whatever waits.
    let _ = fs::remove_dir_all(folder.root());
    results(&folder, 4);
    let (status, said) = delivered(&folder, PIPE, &notify);
    assert_eq!((status, said.lines().count(), ids(&folder, "jobs").len()), (0, 1, 4), "{said}");
    assert!(said.starts_with("notify-webhook: cannot post job r0: Failed to connect to 127.0.0.1 "), "{said}");
}

// Redis.

fn redis(folder: &Folder, port: u16) -> Kid {
    let line = format!("exec redis-server --port {port} --bind 127.0.0.1 --dir . --appendonly yes --save '' >>log");
    let kid = Kid::quiet(&mut sh(folder, &line));
    until("Redis answers", || run(&mut sh(folder, &format!("redis-cli -p {port} PING"))).out == "PONG\n");
    kid
}

/// The entries of the stream; each is an id and three fields.
fn entries(folder: &Folder, port: u16) -> Vec<String> {
    let out = run(&mut sh(folder, &format!("redis-cli -p {port} XRANGE results - +"))).out;
    let lines: Vec<&str> = out.lines().collect();
    let record = |entry: &[&str]| {
        let record = json(entry[6]);
        let (job, claim) = (record["job"].as_str().unwrap(), record["claim"].as_str().unwrap());
        assert_eq!(entry[1..6], ["job", job, "claim", claim, "record"]);
        entry[6].to_owned()
    };
    lines.chunks(7).map(record).collect()
}

fn redis_stream(form: &str, count: usize) {
    if !has(&["redis-server", "redis-cli"]) {
        return;
    }
    let (folder, port) = (Folder::new(), port());
    let side = Side {
        notify: format!("notify-redis results -p {port}"),
        start: Box::new(|| redis(&folder, port)),
        holds: Box::new(|| entries(&folder, port).iter().map(|line| json(line)).collect()),
    };
    survives(&folder, &side, form, count);
}

#[test]
fn a_redis_that_is_killed_gets_each_result_once_by_a_pipe() {
    redis_stream(PIPE, 500);
}

#[test]
fn a_redis_that_is_killed_gets_each_result_once_by_a_handler() {
    redis_stream(HANDLER, 500);
}

#[test]
fn what_redis_refuses_is_not_taken_for_delivered() {
    if !has(&["redis-server", "redis-cli"]) {
        return;
    }
    let (folder, port) = (Folder::new(), port());
    results(&folder, 3);
    let _server = redis(&folder, port);
    let notify = format!("notify-redis results -p {port}");
    // The name is somebody else's: no entry, and nothing is remembered as if there were one.
    assert_eq!(run(&mut sh(&folder, &format!("redis-cli -p {port} SET results x"))).out, "OK\n");
    for form in [PIPE, HANDLER] {
        let (status, said) = delivered(&folder, form, &notify);
        assert!(said.starts_with("notify-redis: cannot add job r0: WRONGTYPE "), "{said}");
        assert_eq!((status, ids(&folder, "jobs").len()), (gone(form), 3));
    }
    assert_eq!(run(&mut sh(&folder, &format!("redis-cli -p {port} DEL results"))).out, "1\n");
    assert_eq!(delivered(&folder, PIPE, &notify), (0, String::new()));
    assert_eq!(entries(&folder, port).len(), 3);
    // An id that is claimed anew is another result.
    assert_eq!(folder.run("jobdir", ["prune", "--older-than", "0"]).status, 0);
    results(&folder, 3);
    assert_eq!(delivered(&folder, PIPE, &notify), (0, String::new()));
    assert_eq!(entries(&folder, port).len(), 6);
}

// MQTT.

fn mosquitto(folder: &Folder, port: u16, more: &str) -> Kid {
    let user = if is_root() { "user root" } else { "" };
    let conf = format!(
        "listener {port} 127.0.0.1\nallow_anonymous true\npersistence true\npersistence_location {}/\n\
         autosave_on_changes true\nautosave_interval 1\nmax_inflight_messages 0\nmax_queued_messages 0\n\
         log_dest stderr\nlog_type all\n{user}\n{more}\n",
        folder.path("").display()
    );
    fs::write(folder.path("conf"), conf).unwrap();
    let kid = Kid::quiet(&mut sh(folder, "exec mosquitto -c conf 2>log"));
    until("the broker listens", || listens(port));
    kid
}

/// Whoever reads: a session that outlives its connections.
fn reader(folder: &Folder, port: u16) -> Kid {
    let line = format!("exec mosquitto_sub -p {port} -q 1 -c -i reader -t results >>got");
    let kid = Kid::quiet(&mut sh(folder, &line));
    until("it has subscribed", || text(folder, "log").contains("Sending SUBACK to reader"));
    kid
}

fn mqtt(form: &str, count: usize) {
    if !has(&["mosquitto", "mosquitto_pub", "mosquitto_sub"]) {
        return;
    }
    let (folder, port) = (Folder::new(), port());
    let reads = std::cell::RefCell::new(None);
    let side = Side {
        notify: format!("notify-mqtt results -p {port}"),
        start: Box::new(|| {
            let kid = mosquitto(&folder, port, "");
            let mut reads = reads.borrow_mut();
            match *reads {
                None => *reads = Some(reader(&folder, port)),
                Some(_) => until("the reader is back", || text(&folder, "log").contains(" as reader ")),
            }
            kid
        }),
        // QoS 1 is at least once: the reader tells what comes again by job and claim.
        holds: Box::new(|| {
            let got = text(&folder, "got");
            let whole = got.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(json);
            whole.map(|record| (id(&record), record)).collect::<BTreeMap<_, _>>().into_values().collect()
        }),
    };
    survives(&folder, &side, form, count);
    let again = text(&folder, "got").lines().count() - count;
    assert!(again <= 3, "{again} were published again: the one in the middle, and the one that we sent again");
}

#[test]
fn a_broker_that_is_killed_passes_each_result_on_by_a_pipe() {
    mqtt(PIPE, 500);
}

#[test]
fn a_broker_that_is_killed_passes_each_result_on_by_a_handler() {
    mqtt(HANDLER, 500);
}

#[test]
fn what_a_broker_confirms_and_throws_away_is_not_delivered() {
    if !has(&["mosquitto", "mosquitto_pub", "mosquitto_sub"]) {
        return;
    }
    let (folder, port) = (Folder::new(), port());
    results(&folder, 3);
    fs::write(folder.path("acl"), "topic results\n").unwrap();
    let broker = mosquitto(&folder, port, &format!("acl_file {}", folder.path("acl").display()));
    let refused = |topic: &str, why: &str| {
        for form in [PIPE, HANDLER] {
            let (status, said) = delivered(&folder, form, &format!("notify-mqtt {topic} -p {port}"));
            assert!(said.starts_with(&format!("notify-mqtt: cannot publish job r0: {why}\n")), "{said}");
            assert_eq!((status, ids(&folder, "jobs").len()), (gone(form), 3));
        }
    };
    refused("results", "nobody has subscribed to results");
    refused("secret", "Warning: Publish 1 failed: Not authorized.");
    let _reads = reader(&folder, port);
    assert_eq!(delivered(&folder, PIPE, &format!("notify-mqtt results -p {port}")), (0, String::new()));
    until("it was read", || text(&folder, "got").lines().count() == 3);
    drop(broker);
}

// PostgreSQL.

/// Where Debian keeps the server.
fn postgres_bin() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten().map(|one| one.path().join("bin"));
    versions.filter(|bin| bin.join("initdb").exists()).max()
}

/// It refuses to be root's.
fn as_nobody(command: &mut Command) -> &mut Command {
    if is_root() { command.uid(NOBODY).gid(NOBODY) } else { command }
}

struct Postgres {
    folder: Folder,
    bin: PathBuf,
    port: u16,
}

impl Postgres {
    /// An empty cluster; `None` where there is no server.
    fn new() -> Option<Postgres> {
        let Some(bin) = postgres_bin().filter(|_| has(&["psql"])) else {
            skip("postgresql is not here");
            return None;
        };
        let folder = Folder::new();
        fs::set_permissions(folder.path(""), fs::Permissions::from_mode(0o711)).unwrap();
        fs::create_dir(folder.path("cluster")).unwrap();
        if is_root() {
            chown(folder.path("cluster"), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mut initdb = folder.command(bin.join("initdb"));
        initdb.args(["--no-sync", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-D"]);
        let ran = run(as_nobody(initdb.arg(folder.path("cluster/data")).current_dir("/")));
        assert_eq!(ran.status, 0, "{}", ran.err);
        Some(Postgres { folder, bin, port: port() })
    }

    fn start(&self) -> Kid {
        let mut command = self.folder.command(self.bin.join("postgres"));
        command.arg("-D").arg(self.folder.path("cluster/data")).arg("-k").arg(self.folder.path("cluster"));
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-c", "fsync=off"]).current_dir("/");
        command.stderr(File::create(self.folder.path("log")).unwrap()).stdout(Stdio::null());
        let kid = Kid::start(as_nobody(&mut command));
        until("PostgreSQL answers", || self.sql("select 1").out == "1\n");
        kid
    }

    fn sql(&self, line: &str) -> Ran {
        let psql = format!("psql -X -A -t -q -h 127.0.0.1 -p {} -U postgres -c \"$SQL\"", self.port);
        run(sh(&self.folder, &psql).env("SQL", line))
    }

    fn table(&self) {
        let table = "create table results (job text, claim text, record jsonb not null, primary key (job, claim))";
        assert_eq!(self.sql(table).err, "");
    }

    /// The rows.
    fn rows(&self) -> Vec<Value> {
        let records = self.sql("select record from results").out;
        records.lines().map(json).collect()
    }

    fn notify(&self) -> String {
        format!("notify-postgres results -h 127.0.0.1 -p {} -U postgres", self.port)
    }

    fn survives(&self, form: &str, count: usize) {
        let made = std::cell::Cell::new(false);
        let start = || {
            let kid = self.start();
            if !made.replace(true) {
                self.table();
            }
            kid
        };
        let side = Side { notify: self.notify(), start: Box::new(start), holds: Box::new(|| self.rows()) };
        survives(&self.folder, &side, form, count);
    }
}

#[test]
fn a_database_that_is_killed_gets_each_result_once_by_a_pipe() {
    if tests::is_portable("reap is faster than a pipe of results") {
        return;
    }
    if let Some(postgres) = Postgres::new() {
        postgres.survives(PIPE, 500);
    }
}

#[test]
fn a_database_that_is_killed_gets_each_result_once_by_a_handler() {
    if let Some(postgres) = Postgres::new() {
        postgres.survives(HANDLER, 100); // a session for each: half a minute for all 500
    }
}

#[test]
fn what_a_table_refuses_stays_pending_and_the_others_do_not() {
    let Some(postgres) = Postgres::new() else { return };
    let folder = &postgres.folder;
    let _server = postgres.start();
    results(folder, 3);
    let missing = "notify-postgres: cannot insert into results: relation \"results\" does not exist\n";
    assert_eq!(delivered(folder, PIPE, &postgres.notify()), (0, missing.to_owned()));
    postgres.table();
    assert_eq!(postgres.sql("alter table results add check (job <> 'r1')").err, "");
    let refusal = "notify-postgres: cannot insert job r1: new row for relation \"results\" violates check constraint \
                   \"results_job_check\"\n";
    assert_eq!(delivered(folder, PIPE, &postgres.notify()), (0, refusal.to_owned()));
    assert_eq!((ids(folder, "jobs").len(), postgres.rows().len()), (1, 2));
    let (status, said) = delivered(folder, HANDLER, &postgres.notify());
    assert!(status == 1 && said.starts_with(refusal), "{said}");
    // A psql that is killed without a word has delivered nothing.
    program(folder, "psql", "kill -s KILL $$");
    let (status, said) = delivered(folder, HANDLER, &postgres.notify());
    assert!(status == 75 && said.contains("notify-postgres: cannot go on: "), "{said}");
    assert_eq!(ids(folder, "jobs").len(), 1);
}

// Mail.

/// A mail system that keeps what it takes. After so many it is killed together with its caller: taken, and not told.
const SENDMAIL: &str = "[ ! -e down ] || { echo 'the queue is full' >&2; exit 75; }
    set -C; cat >box/$$ || exit
    [ -e killed ] || [ \"$(ls box | wc -l)\" -lt \"$(cat limit)\" ] || { : >killed; kill -s KILL 0; }";

/// The mails by their Message-ID, each as often as it was taken.
fn mails(folder: &Folder) -> BTreeMap<String, Vec<String>> {
    let mut mails = BTreeMap::<String, Vec<String>>::new();
    for mail in fs::read_dir(folder.path("box")).unwrap() {
        let mail = fs::read_to_string(mail.unwrap().path()).unwrap();
        let id = mail.lines().find_map(|line| line.strip_prefix("Message-ID: ")).expect("an id");
        mails.entry(id.to_owned()).or_default().push(mail.clone());
    }
    mails
}

fn mail(form: &str, count: usize) {
    if !has(&["jq", "base64"]) {
        return;
    }
    let folder = Folder::new();
    let lines = results(&folder, count);
    program(&folder, "sendmail", SENDMAIL);
    fs::create_dir(folder.path("box")).unwrap();
    fs::write(folder.path("limit"), (count * 3 / 5).to_string()).unwrap();
    let notify = "notify-mail me@example.org";
    assert_eq!(delivered(&folder, form, notify), (137, String::new()));
    assert_eq!(mails(&folder).len(), count * 3 / 5);
    assert_eq!(delivered(&folder, form, notify), (0, String::new()));
    assert_eq!((ids(&folder, "jobs").len(), ids(&folder, "delivered").len()), (0, count));
    let mails = mails(&folder);
    let right = lines
        .values()
        .map(|line| json(line))
        .map(|record| format!("<{}.{}@outlive>", id(&record), record["claim"].as_str().unwrap()));
    assert_eq!(mails.keys().cloned().collect::<BTreeSet<_>>(), right.collect(), "nothing lost");
    let again: usize = mails.values().map(|same| same.len() - 1).sum();
    assert!((1..=5).contains(&again), "{again} were mailed again, with their Message-ID");
    // What people read.
    let first = mails.iter().find(|(id, _)| id.starts_with("<r0.")).unwrap().1[0].clone();
    let (head, body) = first.split_once("\n\n").unwrap();
    let decode = |text: &str| run(sh(&folder, "printf %s \"$TEXT\" | base64 -d").env("TEXT", text)).out;
    let subject = head.lines().find_map(|line| line.strip_prefix("Subject: =?utf-8?B?")?.strip_suffix("?="));
    assert_eq!(decode(subject.unwrap()), "näme, \"quoted\"; it's \\u0000: failed");
    assert!(head.starts_with("To: me@example.org\n"), "{head}");
    let read = decode(body);
    assert!(read.contains("\nböom\u{fffd}\u{1}\u{2} \\u0000 %s \"$HOME\" \\\u{fffd}\n"), "{read}");
    assert!(read.contains("\n  \"exit_code\": 3,\n"), "{read}");
}

#[test]
fn mail_that_is_killed_in_the_middle_loses_nothing_by_a_pipe() {
    mail(PIPE, 500);
}

#[test]
fn mail_that_is_killed_in_the_middle_loses_nothing_by_a_handler() {
    mail(HANDLER, 100); // the other 400 would only be more of the same, at 20 ms each
}

#[test]
fn mail_that_is_refused_stays_pending() {
    if !has(&["jq", "base64"]) {
        return;
    }
    let folder = Folder::new();
    results(&folder, 3);
    program(&folder, "sendmail", SENDMAIL);
    fs::create_dir(folder.path("box")).unwrap();
    fs::write(folder.path("down"), "").unwrap();
    fs::write(folder.path("limit"), "9").unwrap();
    for form in [PIPE, HANDLER] {
        let (status, said) = delivered(&folder, form, "notify-mail me@example.org");
        assert!(said.starts_with("notify-mail: cannot mail job r0: the queue is full\n"), "{said}");
        assert_eq!((status, ids(&folder, "jobs").len()), (i32::from(form == HANDLER), 3));
    }
    fs::remove_file(folder.path("down")).unwrap();
    assert_eq!(delivered(&folder, PIPE, "notify-mail me@example.org"), (0, String::new()));
    assert_eq!(mails(&folder).len(), 3);
}

#[test]
fn a_wrong_call_is_2_and_reads_nothing() {
    let folder = Folder::new();
    for name in ["webhook", "redis", "mqtt", "postgres", "mail"] {
        let ran = run(&mut sh(&folder, &format!("echo line | {{ notify-{name}; echo $?; cat; }}")));
        assert_eq!(ran.out, "2\nline\n");
        assert!(ran.err.starts_with(&format!("usage: notify-{name} ")), "{}", ran.err);
    }
}

#[test]
fn half_a_line_is_not_delivered() {
    let folder = Folder::new();
    for (name, program_name) in
        [("webhook", "curl"), ("redis", "redis-cli"), ("mqtt", "mosquitto_pub"), ("mail", "sendmail")]
    {
        program(&folder, program_name, "echo called >>called; cat >/dev/null");
        let ran = run(&mut sh(&folder, &format!("printf '{{\"job\":\"a\",\"cla' | notify-{name} somewhere")));
        assert_eq!(
            (ran, text(&folder, "called").as_str()),
            (Ran { status: 0, out: String::new(), err: String::new() }, "")
        );
    }
}
