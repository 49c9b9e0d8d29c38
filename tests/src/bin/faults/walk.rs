//! The walk over all points, by worker processes, and its table.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::point::disk::{self, Disk};
use tests::point::visit;
use tests::scenario::{BINARIES, SCENARIOS, Scenario, named};
use tests::trace::{ERRNOS, Fault, KILLS};

/// Where roots lie.
const PLACES: [(&str, Place); 4] =
    [("tmpfs", Place::Folder("/dev/shm")), ("disk", Place::Temporary), ("ext4", Place::Image), ("xfs", Place::Image)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A folder that is there.
    Folder(&'static str),
    /// Wherever temporary files go.
    Temporary,
    /// A file system of the worker's own, whose power can be cut. It is there for that alone.
    Image,
}

/// Whether a fault is tried in a place.
fn visits(place: usize, fault: Fault) -> bool {
    (PLACES[place].1 == Place::Image) == matches!(fault, Fault::Power { .. })
}

/// Why nothing can be walked in a place; `None` where it can.
fn missing((name, place): (&str, Place)) -> Option<String> {
    match place {
        Place::Folder(dir) => (!Path::new(dir).is_dir()).then(|| format!("there is no {dir}")),
        Place::Temporary => None,
        Place::Image => disk::probe(name).err(),
    }
}

/// How the walk was asked for.
struct Args {
    scenarios: Vec<&'static Scenario>,
    faults: Vec<Fault>,
    places: Vec<usize>,
    stride: usize,
    offset: usize,
    workers: usize,
    verbose: bool,
}

/// What is to be visited: one point, or all from this one on until the command ends untouched.
#[derive(Clone, Copy)]
struct Stretch {
    scenario: &'static Scenario,
    fault: Fault,
    place: usize,
    n: usize,
    onward: bool,
}

/// A visited point.
struct Seen {
    stretch: Stretch,
    struck: String,
    violations: Vec<(String, String)>,
}

pub fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("--worker") {
        return worker();
    }
    let outcome = args().and_then(|args| args.map_or(Ok(true), |args| walk(&args)));
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            let _ = writeln!(io::stderr(), "faults: {why}");
            ExitCode::from(2)
        }
    }
}

fn args() -> Result<Option<Args>, String> {
    let mut args =
        Args { scenarios: vec![], faults: vec![], places: vec![], stride: 1, offset: 0, workers: 0, verbose: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} takes a value"));
        let number = |text: String| text.parse().map_err(|_| format!("'{text}' is no number"));
        match word.as_str() {
            "--fault" => args.faults.push(value()?.parse()?),
            "--on" => {
                let name = value()?;
                let place = PLACES.iter().position(|place| place.0 == name);
                args.places.push(place.ok_or_else(|| format!("no such place: {name}"))?);
            }
            "--stride" => args.stride = number(value()?)?,
            "--offset" => args.offset = number(value()?)?,
            "--workers" => args.workers = number(value()?)?,
            "-v" | "--verbose" => args.verbose = true,
            "--list" => {
                for scenario in SCENARIOS {
                    say(&format!(
                        "{:18}{}{}",
                        scenario.name,
                        scenario.line,
                        if scenario.slow { "  (slow)" } else { "" }
                    ));
                }
                return Ok(None);
            }
            name => args.scenarios.push(named(name).ok_or_else(|| format!("no such scenario: {name}"))?),
        }
    }
    if args.scenarios.is_empty() {
        args.scenarios = SCENARIOS.iter().filter(|scenario| !scenario.slow).collect();
    }
    if args.faults.is_empty() {
        args.faults = Fault::all().collect();
    }
    if args.places.is_empty() {
        args.places = (0..PLACES.len()).collect();
    }
    args.places.retain(|&place| args.faults.iter().any(|&fault| visits(place, fault)));
    args.places.retain(|&place| {
        let why = missing(PLACES[place]);
        why.iter().for_each(|why| say(&format!("{}: skipped: {why}", PLACES[place].0)));
        why.is_none()
    });
    if args.workers == 0 {
        args.workers = thread::available_parallelism().map_or(2, usize::from);
    }
    if args.stride == 0 {
        return Err("a stride is at least 1".into());
    }
    Ok(Some(args))
}

fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// The folder of the tools: given, or this program's own, once they are built.
fn build() -> Result<std::path::PathBuf, String> {
    if let Some(given) = std::env::var_os(BINARIES) {
        return Ok(given.into());
    }
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let dir = me.parent().ok_or("this program is in no folder")?.to_owned();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--workspace", "--bins"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    if dir.ends_with("release") {
        cargo.arg("--release");
    }
    let built = cargo.status().map_err(|e| e.to_string())?;
    if built.success() { Ok(dir) } else { Err("the tools cannot be built".into()) }
}

/// Visits everything; says whether no promise was broken.
fn walk(args: &Args) -> Result<bool, String> {
    let tools = build()?;
    let start = Instant::now();
    let todo = Mutex::new(Vec::<Stretch>::new().into_iter());
    let seen = Mutex::new(Vec::<Seen>::new());
    // First what there is to visit, then the visits.
    let counted: Vec<(usize, &'static Scenario)> =
        args.places.iter().flat_map(|&place| args.scenarios.iter().map(move |&scenario| (place, scenario))).collect();
    let counts = Mutex::new(vec![BTreeMap::<String, usize>::new(); counted.len()]);
    let next = Mutex::new(0..counted.len());
    let each = |work: &(dyn Fn(&mut Team<'_>) -> Result<(), String> + Sync)| -> Result<(), String> {
        thread::scope(|scope| {
            let threads: Vec<_> = (0..args.workers).map(|_| scope.spawn(|| work(&mut Team::new(&tools)))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
        })
    };
    each(&|team| {
        while let Some(at) = lock(&next).next() {
            let (place, scenario) = counted[at];
            let reply = team.ask(place, &json!({"scenario": scenario.name}))?;
            let number = |count: &Value| usize::try_from(count.as_u64().unwrap_or(0)).unwrap_or(0);
            let all = reply["counts"].as_object().into_iter().flatten();
            lock(&counts)[at] = all.map(|(fault, count)| (fault.clone(), number(count))).collect();
            note(&seen, Stretch { scenario, fault: args.faults[0], place, n: 0, onward: false }, &reply);
        }
        Ok(())
    })?;
    let mut points = Vec::new();
    for (&(place, scenario), counts) in counted.iter().zip(lock(&counts).iter()) {
        for &fault in &args.faults {
            let possible =
                visits(place, fault) && !matches!(fault, Fault::Kill(whom) if !scenario.kills.contains(&whom));
            let count = counts.get(&fault.to_string()).copied().unwrap_or(0) * usize::from(possible);
            points.extend((1..=count).map(|n| Stretch { scenario, fault, place, n, onward: n == count }));
        }
    }
    let total = points.len();
    let chosen: Vec<Stretch> = points
        .into_iter()
        .skip(args.offset)
        .step_by(args.stride)
        .map(|stretch| Stretch { onward: stretch.onward && args.stride == 1, ..stretch })
        .collect();
    *lock(&todo) = chosen.into_iter();
    each(&|team| {
        while let Some(mut stretch) = next_of(&todo) {
            loop {
                let fault = stretch.fault.to_string();
                let request = json!({"scenario": stretch.scenario.name, "fault": fault, "n": stretch.n});
                let reply = team.ask(stretch.place, &request)?;
                note(&seen, stretch, &reply);
                if args.verbose {
                    say(&format!("{}: {}", shown(&stretch), reply["struck"].as_str().unwrap_or("untouched")));
                }
                if !stretch.onward || reply["struck"].is_null() {
                    break;
                }
                stretch.n += 1;
            }
        }
        Ok(())
    })?;
    let seen = std::mem::take(&mut *lock(&seen));
    Ok(report(args, &seen, total, start))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn next_of(todo: &Mutex<std::vec::IntoIter<Stretch>>) -> Option<Stretch> {
    lock(todo).next()
}

fn note(seen: &Mutex<Vec<Seen>>, stretch: Stretch, reply: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pairs = reply["violations"].as_array().into_iter().flatten();
    let violations: Vec<(String, String)> = pairs.map(|pair| (text(&pair[0]), text(&pair[1]))).collect();
    for (invariant, what) in &violations {
        let call = reply["struck"].as_str().unwrap_or("untouched");
        say(&format!(
            "VIOLATION {}: {call}\n    {invariant}: {}",
            shown(&stretch),
            what.trim_end().replace('\n', "\n        ")
        ));
    }
    lock(seen).push(Seen { stretch, struck: text(&reply["struck"]), violations });
}

/// As it can be asked for again.
fn shown(stretch: &Stretch) -> String {
    let Stretch { scenario, fault, place, n, .. } = stretch;
    format!("{} --on {} --fault {fault} n={n}", scenario.name, PLACES[*place].0)
}

/// Prints the table and the totals; says whether nothing was broken.
fn report(args: &Args, seen: &[Seen], total: usize, start: Instant) -> bool {
    let columns: Vec<String> = KILLS
        .iter()
        .map(|whom| format!("{whom:?}").to_lowercase())
        .chain(["power".into()])
        .chain(ERRNOS.iter().map(|errno| format!("{errno:?}")))
        .collect();
    let column = |fault: Fault| match fault {
        Fault::Kill(whom) => format!("{whom:?}").to_lowercase(),
        Fault::Power { .. } => "power".into(),
        Fault::Fail { errno, .. } => format!("{errno:?}"),
    };
    let cell = |of: &dyn Fn(&Seen) -> bool| {
        let struck = seen.iter().filter(|seen| of(seen) && !seen.struck.is_empty()).count();
        let broken = seen.iter().filter(|seen| of(seen) && !seen.violations.is_empty()).count();
        match (struck, broken) {
            (0, 0) => "-".to_owned(),
            (points, 0) => points.to_string(),
            (points, broken) => format!("{points}!{broken}"),
        }
    };
    let line = |name: &str, of: &dyn Fn(&Seen) -> bool| {
        let mut cells: Vec<String> =
            columns.iter().map(|name| cell(&|seen| of(seen) && column(seen.stretch.fault) == *name)).collect();
        let violations: usize = seen.iter().filter(|seen| of(seen)).map(|seen| seen.violations.len()).sum();
        cells.push(seen.iter().filter(|seen| of(seen) && !seen.struck.is_empty()).count().to_string());
        cells.push(violations.to_string());
        row(name, &cells)
    };
    let heads: Vec<String> = columns.iter().cloned().chain(["points".into(), "violations".into()]).collect();
    say(&row("points (!broken)", &heads));
    for &place in &args.places {
        for scenario in &args.scenarios {
            let name = format!("{} {}", scenario.name, PLACES[place].0);
            say(&line(&name, &|seen| seen.stretch.place == place && seen.stretch.scenario.name == scenario.name));
        }
    }
    say(&line("all", &|_| true));
    let points = seen.iter().filter(|seen| !seen.struck.is_empty()).count();
    let untouched = seen.len() - points;
    let violations: usize = seen.iter().map(|seen| seen.violations.len()).sum();
    let part = if args.stride == 1 { String::new() } else { format!(" (every {}th of {total})", args.stride) };
    say(&format!(
        "{points} points visited{part}, {untouched} runs untouched, {violations} violations, {} s",
        start.elapsed().as_secs()
    ));
    violations == 0
}

fn row(name: &str, cells: &[String]) -> String {
    let cells: String = cells.iter().map(|cell| format!("{cell:>width$}", width = cell.len().max(7) + 1)).collect();
    format!("{name:24}{cells}")
}

/// A process that visits points in one place.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The folder of its image.
    _image: Option<TempDir>,
}

impl Worker {
    fn start((name, place): (&str, Place), tools: &Path) -> Result<Worker, String> {
        let me = std::env::current_exe().map_err(|e| e.to_string())?;
        let image = if place == Place::Image { Some(disk::make(name)?) } else { None };
        let mut command = Command::new(if image.is_some() { Path::new("unshare") } else { &me });
        match (&image, place) {
            (Some(folder), _) => {
                command.args(["--mount", "--"]).args([me.as_path(), Path::new("--worker"), folder.path()]);
                command.env("TMPDIR", folder.path().join("mnt"))
            }
            (None, Place::Folder(dir)) => command.arg("--worker").env("TMPDIR", dir),
            (None, _) => command.arg("--worker"),
        };
        command.env(BINARIES, tools).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("a worker cannot be started: {e}"))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or("a worker has no pipes")?;
        Ok(Worker { child, input, output: BufReader::new(output), _image: image })
    }
}

/// One worker for each place, started when it is first needed.
struct Team<'a> {
    tools: &'a Path,
    workers: [Option<Worker>; PLACES.len()],
}

impl Team<'_> {
    fn new(tools: &Path) -> Team<'_> {
        Team { tools, workers: [const { None }; PLACES.len()] }
    }

    fn ask(&mut self, place: usize, request: &Value) -> Result<Value, String> {
        let worker = match &mut self.workers[place] {
            Some(worker) => worker,
            none => none.insert(Worker::start(PLACES[place], self.tools)?),
        };
        let mut line = String::new();
        let told = writeln!(worker.input, "{request}").and_then(|()| worker.output.read_line(&mut line));
        let reply = told.ok().and_then(|_| serde_json::from_str(&line).ok());
        reply.ok_or_else(|| format!("a worker ended at {request}"))
    }
}

impl Drop for Team<'_> {
    fn drop(&mut self) {
        for Worker { mut child, input, output, _image } in self.workers.iter_mut().filter_map(Option::take) {
            drop((input, output));
            let _ = child.wait();
        }
    }
}

/// Visits what it is asked for, one line of JSON at a time, on the disk whose image is in a folder that may be given.
fn worker() -> ExitCode {
    let disk = match std::env::args_os().nth(2).map(|folder| Disk::mount(folder.into())).transpose() {
        Ok(disk) => disk,
        Err(why) => {
            let _ = writeln!(io::stderr(), "faults: {why}");
            return ExitCode::FAILURE;
        }
    };
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let request: Value = serde_json::from_str(&line).unwrap_or_default();
        let Some(scenario) = named(request["scenario"].as_str().unwrap_or_default()) else {
            return ExitCode::FAILURE;
        };
        let fault = request["fault"].as_str().and_then(|fault| fault.parse().ok());
        let n = usize::try_from(request["n"].as_u64().unwrap_or(0)).unwrap_or(0);
        let visit = visit(scenario, fault.map(|fault| (fault, n)), disk.as_ref());
        let violations: Vec<Value> =
            visit.violations.iter().map(|violation| json!([violation.invariant, violation.what])).collect();
        let reply = json!({"struck": visit.struck, "counts": visit.counts, "violations": violations});
        if writeln!(io::stdout(), "{reply}").is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
