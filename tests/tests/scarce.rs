//! Scarce resources: no room, no inodes, no writing, no larger files, no more descriptors. The end of a job still gets
//! out, or a tool says what failed, with the words of the error and a status that is not 0; nothing is half written;
//! and once the scarcity is over, the next sweep delivers.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs)]

use std::fs;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tests::{Folder, Ran, run, until};

/// A small file system: the options of a tmpfs, and how to use up what it has.
type Small = (&'static str, &'static str);

const FULL_DISK: Small = ("size=256k", "dd if=/dev/zero of=$ROOM/fill bs=4096 2>/dev/null");
const FULL_INODES: Small = ("nr_inodes=64", "n=0; while touch $ROOM/fill$n 2>/dev/null; do n=$((n + 1)); done");
const NO_SPACE: &str = "no space left on device";

/// A job whose command kills its own watchdog.
const DEAD: &str = "jobdir claim --id dead --grace 0 >/dev/null
    (watchdog --job dead -- sh -c 'kill -9 $PPID; exec sleep 60'; :) 2>/dev/null
    until flock -n $JOBDIR_ROOT/jobs/dead/pid true; do sleep .01; done";

/// Runs lines of sh in a mount namespace of their own, where the job root is on the file system that `mount` makes at
/// `$ROOM`. `None`: it cannot be made here.
fn in_room(folder: &Folder, unshare: &str, mount: &str, lines: &str) -> Option<Ran> {
    let room = folder.path("room");
    fs::create_dir(&room).unwrap();
    let mut command = folder.command("timeout");
    command.env("ROOM", &room).env("JOBDIR_ROOT", room.join("root")).current_dir(folder.path(""));
    let ran = run(command.args(["60", "unshare", unshare, "sh", "-c", &format!("{{ {mount}; }} || exit 77\n{lines}")]));
    if ran.status == 77 || ran.err.starts_with("unshare: ") {
        println!("skipped: no such file system can be mounted here: {}", ran.err.trim_end());
        return None;
    }
    Some(ran)
}

/// The same on a tmpfs that is small. `fill` uses up what it has, and `free` gives it back.
fn on_small(folder: &Folder, (options, fill): Small, lines: &str) -> Option<Ran> {
    let mount = format!("mount -t tmpfs -o mode=700,{options} none $ROOM");
    let lines = format!("export FILL='{fill}'; fill() {{ eval \"$FILL\"; }}; free() {{ rm -f $ROOM/fill*; }}\n{lines}");
    in_room(folder, "-Urm", &mount, &lines)
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))
}

/// How the lines of a sweep say that jobs have ended.
fn ends(lines: &[&str]) -> Vec<String> {
    let field = |record: &Value, name: &str| record[name].as_str().unwrap().to_owned();
    let records = lines.iter().map(|line| json(line));
    records.map(|it| ["job", "status", "reason"].map(|name| field(&it, name)).join(" ")).collect()
}

fn message(text: &str, folder: &Folder) -> String {
    text.replace("ROOT", &folder.path("room/root").display().to_string())
}

#[test]
fn a_claim_without_room_says_so_and_leaves_nothing() {
    let lines = "jobdir claim --id first; fill; jobdir claim --id job; echo $?; ls -A $JOBDIR_ROOT/jobs
        free; jobdir claim --id job; echo $?";
    for small in [FULL_DISK, FULL_INODES] {
        let folder = Folder::new();
        let Some(ran) = on_small(&folder, small, lines) else { return };
        assert_eq!(ran.out, "first\n125\nfirst\njob\n0\n", "{}", ran.err);
        assert_eq!(ran.err, message(&format!("jobdir: cannot claim a job in ROOT: {NO_SPACE}\n"), &folder));
    }
}

#[test]
fn an_input_without_room_is_no_claim() {
    let folder = Folder::new();
    let lines = "jobdir claim --id first; head -c 300000 /dev/zero >input; jobdir claim --id job --input input; echo $?
        ls -A $JOBDIR_ROOT/jobs";
    let Some(ran) = on_small(&folder, FULL_DISK, lines) else { return };
    assert_eq!(
        (ran.out.as_str(), ran.err),
        ("first\n125\nfirst\n", format!("jobdir: cannot store input input: {NO_SPACE}\n"))
    );
}

#[test]
fn a_watchdog_without_room_starts_nothing_and_can_start_later() {
    let lines = "jobdir claim --id job; fill; watchdog --job job -- sh -c 'echo ran >>ran'; echo $?
        cat $JOBDIR_ROOT/jobs/job/status; ls -A $JOBDIR_ROOT/jobs/job; ls ran 2>/dev/null
        free; watchdog --job job -- sh -c 'echo ran >>ran'; echo $?; cat ran; sweep";
    for small in [FULL_DISK, FULL_INODES] {
        let folder = Folder::new();
        let Some(ran) = on_small(&folder, small, lines) else { return };
        let (told, line) = ran.out.trim_end().rsplit_once('\n').unwrap();
        assert_eq!(told, "job\n125\nclaimed\nmeta.json\nout.log\npid\nstatus\n0\nran", "{}", ran.err);
        assert_eq!(ran.err, format!("watchdog: cannot reserve room for the record of job job: {NO_SPACE}\n"));
        assert_eq!(ends(&[line]), ["job done exited"]);
    }
}

#[test]
fn an_output_without_room_leaves_the_one_before_it_whole() {
    // Room for a page of it: what is written short must not take the place of what was whole.
    let folder = Folder::new();
    let lines = "jobdir claim --id job; echo '{\"n\":1}' | jobdir put job; printf '[\"%020000d\"]' 7 >large
        fill; truncate -s -4096 $ROOM/fill; jobdir put job large; echo $?; ls -A $JOBDIR_ROOT/jobs/job; cat $JOBDIR_ROOT/jobs/job/output.json
        free; jobdir put job large; echo $?; wc -c <$JOBDIR_ROOT/jobs/job/output.json; jobdir finish job failed; jobdir result job | wc -c";
    let Some(ran) = on_small(&folder, FULL_DISK, lines) else { return };
    let told: Vec<&str> = ran.out.lines().map(str::trim).collect();
    let files = ["meta.json", "out.log", "output.json", "pid", "status"];
    assert_eq!((&told[..2], &told[2..7], told[7]), (&["job", "125"][..], &files[..], "{\"n\":1}"), "{ran:?}");
    assert_eq!(told[8..10], ["0", "20005"]);
    assert!(told[10].parse::<usize>().unwrap() > 20_000, "{ran:?}");
    assert_eq!(ran.err, format!("jobdir: cannot publish the output of job job: {NO_SPACE}\n"));
}

/// A job uses up everything and ends with 7: that is told, recorded, emitted and acknowledged, without any room.
fn gets_out(small: Small) {
    let folder = Folder::new();
    let lines = "jobdir claim --id job; watchdog --job job -- sh -c 'eval \"$FILL\"
            (echo x >$ROOM/more) 2>/dev/null || echo full >>said; exit 7'; echo $? >>said; cat said
        cat $JOBDIR_ROOT/jobs/job/status; ls -A $JOBDIR_ROOT/jobs/job
        sweep >lines; echo $?; sweep --ack <lines; echo $?; ls $JOBDIR_ROOT/jobs $JOBDIR_ROOT/delivered/job/status; cat lines";
    let Some(ran) = on_small(&folder, small, lines) else { return };
    let (told, line) = ran.out.trim_end().rsplit_once('\n').unwrap();
    let files = "meta.json\nout.log\nowner.json\npid\nresult.json\nstatus";
    let delivered = format!("{}\n\n{}:", message("ROOT/delivered/job/status", &folder), message("ROOT/jobs", &folder));
    assert_eq!((told, ran.err.as_str()), (&*format!("job\nfull\n7\nfailed\n{files}\n0\n0\n{delivered}"), ""));
    assert_eq!((ends(&[line]), &json(line)["exit_code"]), (vec!["job failed exited".into()], &7.into()));
}

#[test]
fn an_end_gets_out_of_a_disk_that_has_filled_up() {
    gets_out(FULL_DISK);
}

#[test]
fn an_end_gets_out_of_a_disk_whose_inodes_have_run_out() {
    if tests::is_portable("a rename refuses to replace, where there is no inode for a link") {
        return;
    }
    // tmpfs counts a second name as an inode: the record that was reserved could not get its own.
    gets_out(FULL_INODES);
}

#[test]
fn a_death_that_cannot_be_recorded_is_told_and_recorded_later() {
    let lines = format!(
        "{DEAD}; fill; sweep; echo $?; jobdir status dead; echo $?; jobdir cancel dead; echo $?
        cat $JOBDIR_ROOT/jobs/dead/status; ls $JOBDIR_ROOT/jobs/dead
        free; sweep; echo $?; ls -A $JOBDIR_ROOT/jobs/dead | grep -c tmp; sweep --ack <<end; jobdir prune --older-than 0
dead
end
        find $JOBDIR_ROOT -name '.*'"
    );
    for small in [FULL_DISK, FULL_INODES] {
        let folder = Folder::new();
        let Some(ran) = on_small(&folder, small, &lines) else { return };
        let told: Vec<&str> = ran.out.lines().collect();
        assert_eq!(told[..4], ["1", "125", "125", "running"], "{}", ran.err);
        assert_eq!(told[4..9], ["meta.json", "out.log", "owner.json", "pid", "status"]);
        assert_eq!(ends(&told[9..10]), ["dead unknown worker-died"]);
        // What the watchdog had reserved goes with a prune, and nothing hidden stays.
        assert_eq!(told[10..], ["0", "2", "dead"], "{ran:?}");
        let cannot = format!("cannot record its end: {NO_SPACE}");
        let said = format!(
            "sweep: cannot read job dead: {cannot}\njobdir: cannot tell the state of job dead: {cannot}\n\
             jobdir: cannot cancel job dead: {cannot}\n"
        );
        assert_eq!(ran.err, said);
    }
}

#[test]
fn a_handler_is_served_where_its_attempts_cannot_be_counted() {
    let lines = "jobdir claim --id job; watchdog --job job true; fill; sweep -- false; echo $?
        sweep -- sh -c 'cat >got'; echo $?; ls $JOBDIR_ROOT/delivered; cat got";
    for small in [FULL_DISK, FULL_INODES] {
        let folder = Folder::new();
        let Some(ran) = on_small(&folder, small, lines) else { return };
        let (told, line) = ran.out.trim_end().rsplit_once('\n').unwrap();
        assert_eq!((told, ends(&[line])), ("job\n1\n0\njob", vec!["job done exited".into()]));
        let uncounted = format!("sweep: warning: cannot count attempt 1 of job job: {NO_SPACE}\n");
        let refused = "sweep: cannot deliver job job: the handler refused its result, which stays pending\n";
        assert_eq!(ran.err, format!("{uncounted}{refused}{uncounted}"));
    }
}

#[test]
fn a_root_that_has_become_read_only_is_read_and_the_rest_comes_later() {
    if tests::is_portable("the command hears of the watchdog's death, and lets go of the disk") {
        return;
    }
    let folder = Folder::new();
    let lines = format!(
        "jobdir claim --id ended; watchdog --job ended true; {DEAD}; jobdir claim --id waits
        until mount -o remount,ro $ROOM 2>/dev/null; do sleep .01; done
        jobdir claim --id more; echo $?; watchdog --job waits touch ran; echo $?; jobdir cancel waits; echo $?
        jobdir status ended; sweep; echo $?; echo ended | sweep --ack; echo $?
        mount -o remount,rw $ROOM; sweep -- sh -c 'cat >>got'; echo $?
        watchdog --job waits true; echo $?; sweep -- sh -c 'cat >>got'; echo $?; ls $JOBDIR_ROOT/jobs ran 2>/dev/null; cat got"
    );
    let Some(ran) = in_room(&folder, "-Urm", "mount -t tmpfs -o mode=700 none $ROOM", &lines) else { return };
    let told: Vec<&str> = ran.out.lines().collect();
    assert_eq!(told[..6], ["ended", "waits", "125", "125", "125", "done"], "{}", ran.err);
    assert_eq!((ends(&told[6..7]), &told[7..9]), (vec!["ended done exited".into()], &["1", "1"][..]));
    assert_eq!(
        told[9..13],
        ["0", "0", "0", &*message("ROOT/jobs:", &folder)],
        "nothing waits, nothing was started twice"
    );
    assert_eq!(ends(&told[13..]), ["dead unknown worker-died", "ended done exited", "waits done exited"]);
    let said = [
        "jobdir: cannot claim a job in ROOT",
        "watchdog: cannot lock job waits",
        "jobdir: cannot cancel job waits",
        "sweep: cannot read job dead: cannot lock pid",
        "sweep: cannot acknowledge job ended",
    ];
    let said: String = said.map(|said| format!("{said}: read-only file system\n")).concat();
    assert_eq!(ran.err, message(&said, &folder));
}

#[test]
fn a_file_system_that_turns_read_only_under_a_job_tears_nothing() {
    let folder = Folder::new();
    let mount = "truncate -s 32M image && mkfs.ext4 -q image && mount -o loop,errors=remount-ro image $ROOM
        dev=$(findmnt -no SOURCE $ROOM) && error=/sys/fs/ext4/${dev#/dev/}/trigger_fs_error && [ -w $error ]";
    // ext4 lets nobody write again before it is mounted anew, and by then the watchdog has to be gone.
    let lines = "jobdir claim --id job --grace 0
        watchdog --job job -- sh -c \"sync -f $ROOM; echo 1 >$error; touch broken; exit 7\" & dog=$!
        until [ -e broken ] && [ -z \"$(cat /proc/$dog/task/$dog/children)\" ]; do sleep .01; done
        (echo x >$JOBDIR_ROOT/more) 2>/dev/null || echo read-only
        sweep; echo $?; jobdir status job; ls $JOBDIR_ROOT/jobs/job; kill -9 $dog; wait $dog 2>/dev/null; sweep; echo $?
        umount $ROOM && mount -o loop image $ROOM; sweep; echo $?; cat $JOBDIR_ROOT/jobs/job/status";
    let Some(ran) = in_room(&folder, "-m", mount, lines) else { return };
    let told: Vec<&str> = ran.out.lines().collect();
    assert_eq!(told[..4], ["job", "read-only", "0", "running"], "its owner lives, and still tries: {}", ran.err);
    assert_eq!(told[4..10], ["meta.json", "out.log", "owner.json", "pid", "status", "1"]);
    assert_eq!((ends(&told[10..11]), &told[11..]), (vec!["job unknown worker-died".into()], &["0", "unknown"][..]));
    assert_eq!(ran.err, "sweep: cannot read job job: cannot lock pid: read-only file system\n");
}

/// A watchdog of a job, whose command ends with 7 once it may.
struct Dog(Child);

impl Dog {
    fn start(folder: &Folder) -> Dog {
        folder.claim(&["--id", "job"]);
        let line = "echo up; until [ -e go ]; do sleep .01; done; exit 7";
        let mut command = folder.tool("watchdog", ["--job", "job", "--", "sh", "-c", line]);
        let dog = Dog(command.current_dir(folder.path("")).stderr(Stdio::piped()).spawn().unwrap());
        until("it runs", || fs::read_to_string(folder.file("job", "out.log")).unwrap() == "up\n");
        dog
    }

    /// Its soft limit, by prlimit(1).
    fn limit(&self, name: &str, soft: &str) {
        let ran = run(Command::new("prlimit").arg(format!("--pid={}", self.0.id())).arg(format!("--{name}={soft}:")));
        assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    }
}

impl Drop for Dog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_end_that_is_too_large_for_a_limit_on_files_gets_out_once_the_limit_is_lifted() {
    let folder = Folder::new();
    let mut dog = Dog::start(&folder);
    dog.limit("fsize", "0");
    fs::write(folder.path("go"), "").unwrap();
    let owner = i32::try_from(dog.0.id()).unwrap();
    until("its command has ended", || folder.living() == [owner]);
    // The reserved room was tried, and given up, before it waits for better times.
    let made = |dir: fs::ReadDir| {
        dir.filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with(".tmp-"))
    };
    until("it has tried", || made(fs::read_dir(folder.file("job", "")).unwrap()).count() == 1);
    assert_eq!((folder.word("job").as_str(), folder.file("job", "result.json").exists()), ("running", false));
    let swept = folder.run("sweep", [""; 0]);
    assert_eq!(swept, Ran { status: 0, out: String::new(), err: String::new() }, "nobody calls it dead meanwhile");
    dog.limit("fsize", "unlimited");
    until("it has ended", || dog.0.try_wait().unwrap().is_some());
    assert_eq!(dog.0.wait().unwrap().code(), Some(7));
    assert_eq!(made(fs::read_dir(folder.file("job", "")).unwrap()).count(), 0);
    let record = folder.record("job");
    assert_eq!((&record["reason"], &record["exit_code"]), (&"exited".into(), &7.into()));
}

#[test]
fn an_end_gets_out_without_a_descriptor_to_spare() {
    let folder = Folder::new();
    let mut dog = Dog::start(&folder);
    // poll(2) itself fails where there may be fewer descriptors than it waits for.
    dog.limit("nofile", "3");
    fs::write(folder.path("go"), "").unwrap();
    until("it has ended", || dog.0.try_wait().unwrap().is_some());
    assert_eq!(dog.0.wait().unwrap().code(), Some(7));
    let swept = folder.run("sweep", [""; 0]);
    assert_eq!((swept.status, swept.err.as_str()), (0, ""));
    assert_eq!(ends(&swept.out.lines().collect::<Vec<_>>()), ["job failed exited"]);
}

#[test]
fn a_limit_on_file_sizes_stops_neither_the_reading_nor_the_next_sweep() {
    let folder = Folder::new();
    let limited = |line: &str| folder.sh(&format!("ulimit -f 0; exec {line}"));
    folder.claim(&["--id", "good"]);
    folder.claim(&["--id", "later"]);
    folder.claim(&["--id", "lost", "--start-within", "1ms"]);
    assert_eq!(folder.run("watchdog", ["--job", "good", "true"]).status, 0);
    let dog = limited("watchdog --job later true");
    let told = "watchdog: cannot reserve room for the record of job later: file too large\n";
    assert_eq!(dog, Ran { status: 125, out: String::new(), err: told.into() });
    assert_eq!((folder.word("later").as_str(), folder.word("lost").as_str()), ("claimed", "claimed"));
    until("the window of the lost one is over", || {
        fs::metadata(folder.file("lost", "meta.json")).unwrap().modified().unwrap().elapsed().unwrap().as_millis() > 20
    });
    let swept = limited("sweep | cat");
    assert_eq!(ends(&swept.out.lines().collect::<Vec<_>>()), ["good done exited"]);
    assert_eq!(swept.err, "sweep: cannot read job lost: cannot record its end: file too large\n");
    assert_eq!(folder.run("watchdog", ["--job", "later", "true"]).status, 0);
    let swept = folder.run("sweep", [""; 0]);
    let ended = ["good done exited", "later done exited", "lost unknown never-started"];
    assert_eq!(
        (ends(&swept.out.lines().collect::<Vec<_>>()), swept.err.as_str()),
        (ended.map(str::to_owned).into(), "")
    );
}

#[test]
fn whatever_number_of_descriptors_there_is_a_tool_works_or_says_what_it_lacks() {
    const LACKS: &str = "too many open files";
    let folder = Folder::new();
    // What the caller has open by chance is closed first.
    let limited = |most: i32, line: &str| {
        folder.sh(&format!("exec 3<&- 4<&- 5<&- 6<&- 7<&- 8<&- 9<&-; ulimit -n {most}; exec {line}"))
    };
    let mut well = [0; 3];
    // Below 4 the loader cannot open the C library.
    for most in 4..40 {
        let id = format!("c{most}");
        let claim = limited(most, &format!("jobdir claim --id {id}"));
        let lacks = |ran: &Ran| ran.err.ends_with(&format!(": {LACKS}\n")) && ran.err.lines().count() == 1;
        match claim.status {
            0 => assert_eq!((claim.out, claim.err.as_str()), (format!("{id}\n"), "")),
            status => {
                assert!(status == 125 && claim.out.is_empty() && lacks(&claim), "{most}: {claim:?}");
                assert!(!folder.file(&id, "").exists());
                folder.claim(&["--id", &id]);
            }
        }
        well[0] += usize::from(claim.status == 0);
        let dog = limited(most, &format!("watchdog --job {id} -- sh -c 'exit 7'"));
        let word = folder.word(&id);
        match dog.status {
            7 => assert_eq!((word.as_str(), dog.err.as_str()), ("failed", "")),
            status => {
                assert!([125, 126].contains(&status) && lacks(&dog), "{most}: {dog:?}");
                assert!(word == "claimed" || folder.record(&id)["reason"] == "spawn-failed", "{most}: {word}");
            }
        }
        well[1] += usize::from(dog.status == 7);
        let sweep = limited(most, "sweep");
        if sweep.status == 0 {
            assert_eq!(sweep.err, "");
            well[2] += 1;
        } else {
            let every = !sweep.err.is_empty() && sweep.err.lines().all(|line| line.ends_with(&format!(": {LACKS}")));
            assert!([1, 125].contains(&sweep.status) && every, "{most}: {sweep:?}");
        }
    }
    assert!(well.iter().all(|&times| times > 0 && times < 36), "both were seen: {well:?}");
    // Nothing was lost: whatever could not be started is there, and everything else is delivered.
    let swept = folder.run("sweep", [""; 0]);
    assert_eq!((swept.status, swept.err.as_str()), (0, ""));
    let waiting = (4..40).filter(|most| folder.word(&format!("c{most}")) == "claimed").count();
    assert_eq!(swept.out.lines().count() + waiting, 36);
}
