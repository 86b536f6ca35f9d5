//! `gpushare experiment`: runs real programs under several ways to share the GPU.

use std::collections::BTreeSet;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::signals::Ends;
use crate::{Done, note};
use gpushare_base::host::output;
use gpushare_base::host::probe;
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::plain::plain;
use gpushare_launch::experiment::plan::{Condition, Plan};
use gpushare_launch::experiment::play::{Player, Trouble};
use gpushare_launch::experiment::results::{Machine, Results};
use gpushare_launch::experiment::{document, order, table};
use gpushare_launch::leftovers::Private;
use gpushare_launch::picking;
use gpushare_observe::source::live::Live;
use gpushare_sample::Nvml;
use shm_layout::text::PathText as _;

/// Measure your programs under several ways to share a GPU, one after another
///
/// PLAN is a TOML file, or the name of a plan that is installed with gpushare. It names programs (any command that prints a figure) and conditions: each program alone, all of them
/// bare, under NVIDIA's MPS, under gpushare with a policy, under another library that is preloaded. Each condition
/// runs once a round, in an order that differs from round to round; a condition that this machine does not have is
/// skipped, and the table says why. Each run has segments of its own, so nothing else under gpushare is affected, and
/// when it ends, or when this program is ended by any signal, the programs of the plan end too.
///
/// The table shows the median, the spread (min to max), and the ratio to the conditions alone and bare.
#[derive(Debug, clap::Args)]
#[command(after_help = FILE)]
pub struct Args {
    /// The plan: a TOML file, or the name of an installed plan
    plan: PathBuf,
    /// Seconds of a run, instead of those in the plan
    #[arg(long, value_name = "N")]
    seconds: Option<f64>,
    /// Number of rounds, instead of the repeats in the plan
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: Option<u32>,
    /// Start the programs of all conditions, stop them, and let those of one condition after the other go on for so many
    /// seconds: for a machine whose other work changes from minute to minute. All must fit the GPU's memory. A program prints
    /// a line of figures for each of $ROUNDS equal parts of its time, without what it did while it was stopped
    #[arg(long, value_name = "N")]
    switch: Option<f64>,
    /// With --switch, start each condition so many times and count the rounds of all: of two equal programs one may be faster than
    /// the other for as long as they run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    copies: Option<u32>,
    /// Run only the condition with this name, or those whose name contains this text; may be repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Write all samples and what they come to as JSON; - is standard output, in place of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a line for each sample
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Use the simulated GPU, even if there is a real one
    #[arg(long)]
    sim: bool,
}

const FILE: &str = "A file:
  title = \"A server beside two trainings\"
  seconds = 10                # {seconds} in a command; also repeats, warm-up (rounds), timeout

  [[program]]
  name = \"train\"
  command = [\"python3\", \"train.py\", \"{seconds}\"]
  count = 2
  priority = -5               # memory, weight, cap: under gpushare; env: always
  ready = \"^ready\"            # a line that says: I wait for the file $START_FILE; the programs
                              # of all runs share the folder $EXPERIMENT_DIR
  figures = [{ name = \"steps\", pattern = 'steps_per_s=([0-9.]+)', unit = \"/s\", better = \"higher\" }]
                              # or json = \"key\" of a line; together = \"sum\", \"mean\" or \"worst\"
  [[condition]]
  alone = true                # each program by itself
  [[condition]]
  name = \"bare\"
  [[condition]]
  mps = true
  policy = \"overlap order=priority\"
  program.train.env = { CUDA_MPS_ACTIVE_THREAD_PERCENTAGE = \"50\" }
  [[condition]]
  preload = \"$HAMI_CORE\"      # the path of a library, or a variable that has it

A program without figures is a load; it is ended when the others have ended. Programs run in
the directory of the file. The installed plans are calls, ddp, dynamo, frameworks, gaps,
inference, llm, long-kernel, long-matmul, memory, models, orion, priority, servers, slices, tally,
ten-models, transformers-serve and xsched; gaps and priority run on the simulated GPU too.";

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let plan = plan(args)?;
    // The output files are checked first, so that an unwritable path does not waste a whole measurement.
    let files = [&args.json, &args.csv].into_iter().flatten();
    files
        .filter(|file| !is_stdout(file))
        .try_for_each(|file| output::check(file))?;
    let simulated = simulated(args, &plan)?;
    let stop = Stop::watch()?;
    let mut results = Results {
        plan: &plan,
        machine: machine(simulated, &plan)?,
        date: jiff::Timestamp::now()
            .round(jiff::Unit::Second)
            .unwrap_or_default()
            .to_string(),
        runs: Vec::new(),
        skipped: Vec::new(),
        interrupted: None,
    };
    let kept = |results: &Results<'_>| keep(args, results);
    play(&plan, simulated, &stop, &mut results, &kept)?;
    report(args, &results, out)?;
    end(&results)
}

/// Reads the plan and applies the options of the command line.
fn plan(args: &Args) -> Result<Plan, Failure> {
    let mut plan = Plan::read(&find(&args.plan)?)?;
    if let Some(seconds) = args.seconds {
        Plan::check_seconds(seconds).map_err(|why| Failure::usage(format!("--seconds: {why}")))?;
        plan.seconds = seconds;
    }
    plan.switch = args.switch;
    if args.copies.is_some() && plan.switch.is_none() {
        let why =
            "--copies: without --switch each round starts the programs anew; give --switch too";
        return Err(Failure::usage(why));
    }
    plan.copies = args.copies.unwrap_or(1);
    plan.repeats = args.repeats.unwrap_or(plan.repeats);
    if let Some(every) = plan.switch {
        check_turns(&plan, every)?;
    }
    if let Some(text) = args.only.iter().find(|text| !has(&plan, text)) {
        return Err(Failure::usage(format!(
            "--only: no condition of the plan has {} in its name",
            plain(text)
        )));
    }
    if !args.only.is_empty() {
        let names: Vec<String> = plan.conditions.iter().map(|one| one.name.clone()).collect();
        let is_wanted = |name: &str| {
            args.only.iter().any(|text| match names.contains(text) {
                true => name == text,
                false => name.contains(text.as_str()),
            })
        };
        plan.conditions.retain(|one| is_wanted(&one.name));
    }
    Ok(plan)
}

/// Checks that the programs of a plan can take turns.
fn check_turns(plan: &Plan, every: f64) -> Result<(), Failure> {
    let wrong = |why: String| Err(Failure::usage(format!("--switch: {why}")));
    let turns = plan.seconds / every;
    if !(0.1..=plan.seconds).contains(&every) || (turns - turns.round()).abs() > 1e-6 {
        return wrong(format!(
            "the {} seconds of a run must be whole turns of {every} s",
            plan.seconds
        ));
    }
    if let Some(one) = plan.measured().find(|one| one.ready.is_none()) {
        let name = plain(&one.name);
        return wrong(format!(
            "{name} has no ready =, so it would be stopped while it starts"
        ));
    }
    // With one round, a program that knows nothing of its stops would look like one that leaves them out.
    if plan.warm_up + plan.repeats < 2 {
        return wrong("one round is too few; set --repeats".into());
    }
    Ok(())
}

/// Returns true if a condition of the plan has this text in its name.
fn has(plan: &Plan, text: &str) -> bool {
    let mut names = plan.conditions.iter().map(|one| &one.name);
    names.any(|name| name.contains(text))
}

/// Returns the path of a plan. A word that names no file is the name of an installed plan.
fn find(plan: &Path) -> Result<PathBuf, Failure> {
    let is_name = plan.components().count() == 1 && plan.extension().is_none();
    if !is_name || plan.exists() {
        return Ok(plan.to_owned());
    }
    let folders = folders();
    let file = plan.with_extension("toml");
    let mut paths = folders.iter().map(|folder| folder.join(&file));
    paths.find(|path| path.is_file()).ok_or_else(|| {
        let looked: Vec<String> = folders.iter().map(|folder| folder.shown()).collect();
        Failure::usage(format!(
            "there is no file {0} and no installed plan {0}; looked in {1}",
            plan.shown(),
            looked.join(", ")
        ))
    })
}

/// Returns the names of the installed plans.
pub fn plans() -> Vec<String> {
    let files = folders()
        .into_iter()
        .filter_map(|folder| folder.read_dir().ok())
        .flatten()
        .flatten();
    let names =
        files.filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(".toml")?.to_owned()));
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the directories with plans: of an installation, of an unpacked archive, and of the sources for a program in
/// `target/PROFILE`.
fn folders() -> Vec<PathBuf> {
    let program = std::env::current_exe().unwrap_or_default();
    let prefix = program.parent().and_then(Path::parent);
    let folders = ["share/gpushare", "assets", "../assets"];
    let folders = prefix
        .iter()
        .flat_map(|prefix| folders.map(|folder| prefix.join(folder)));
    folders
        .map(|folder| folder.join("experiments"))
        .map(|folder| std::fs::canonicalize(&folder).unwrap_or(folder))
        .collect()
}

/// Returns true if the programs run on the simulated GPU: if the plan allows it, and the user asked for it or there is no
/// real GPU.
fn simulated(args: &Args, plan: &Plan) -> Result<bool, Failure> {
    match (&plan.scenario, args.sim) {
        (None, true) => Err(Failure::usage(format!(
            "--sim: {} has no scenario, so its programs need a real GPU; add scenario = \"one-gpu\" if they do not",
            plain(&plan.path.to_string_lossy())
        ))),
        (None, false) => Ok(false),
        (Some(_), sim) => {
            let simulated = sim || !probe::real_gpu();
            if simulated && !sim {
                note("found no NVIDIA driver with a device: the programs run on the simulated GPU");
            }
            Ok(simulated)
        }
    }
}

fn play(
    plan: &Plan,
    simulated: bool,
    stop: &Stop,
    results: &mut Results<'_>,
    keep: &dyn Fn(&Results<'_>),
) -> Result<(), Failure> {
    let stopped = || stop.signal().is_some();
    let folder = Private::new()?;
    let player = Player {
        plan,
        simulated,
        folder: &folder.path,
        stopped: &stopped,
    };
    let rounds = plan.warm_up + plan.repeats;
    let one_by_one = (0..rounds).flat_map(|round| {
        let order = order(round, plan.conditions.len()).into_iter();
        order.map(move |at| (round..round + 1, vec![&plan.conditions[at]]))
    });
    let steps: Vec<(Range<u32>, Vec<&Condition>)> = match plan.switch {
        Some(_) => {
            let copies = |condition| std::iter::repeat_n(condition, plan.copies as usize);
            let all = plan.conditions.iter().flat_map(copies).collect();
            vec![(0..rounds, all)]
        }
        None => one_by_one.collect(),
    };
    for (at, (rounds, mut conditions)) in steps.iter().cloned().enumerate() {
        conditions.retain(|one| results.skipped_for(&one.name).is_none());
        let mut names: Vec<&str> = conditions.iter().map(|one| one.name.as_str()).collect();
        names.dedup();
        if names.is_empty() {
            continue;
        }
        let warm = if rounds.end <= plan.warm_up {
            " (warm-up)"
        } else {
            ""
        };
        note(&format!(
            "{}/{} {}{warm}",
            at + 1,
            steps.len(),
            plain(&names.join("; "))
        ));
        let played = player.run(&conditions, rounds.clone());
        for ((condition, runs), copy) in conditions.iter().zip(played).zip((0..plan.copies).cycle())
        {
            let named = |why: &str| format!("{}{}", plain(&condition.name), plain(why));
            match runs {
                Ok(mut runs) => {
                    let before = copy * rounds.end;
                    runs.iter_mut().for_each(|run| run.round += before);
                    if let Some(why) = runs.iter().find_map(|run| run.failure.as_ref()) {
                        note(&named(&format!(": {why}")));
                    }
                    results.runs.extend(runs);
                }
                // Another copy was skipped already.
                Err(Trouble::Skip(_)) if results.skipped_for(&condition.name).is_some() => {}
                Err(Trouble::Skip(why)) => {
                    note(&named(&format!(" is skipped: {why}")));
                    results.skipped.push((condition.name.clone(), why));
                }
                Err(Trouble::Failed(why)) => return Err(Failure::failed(why)),
                Err(Trouble::Stopped) => {
                    results.interrupted = stop.signal();
                    return Ok(());
                }
            }
        }
        keep(results);
        // If no condition gives a figure in the first round, the next rounds would fail too.
        if at + 1 >= steps.len().min(plan.conditions.len())
            && let Some(why) = nothing(results)
        {
            return Err(Failure::failed(format!(
                "no condition gave a figure in the first round; {why}"
            )));
        }
    }
    Ok(())
}

/// Returns the reason why no figure was measured, if there is none.
fn nothing(results: &Results<'_>) -> Option<String> {
    if results.runs.iter().any(|run| !run.figures.is_empty()) {
        return None;
    }
    let failure = results.runs.iter().find_map(|run| run.failure.clone());
    failure.or_else(|| Some("all were skipped".into()))
}

/// Writes what was measured so far, so that a machine that goes down loses one run of an experiment of hours and no more. Only to files that
/// the complete ones replace. An error is reported at the end, when the file is written again.
fn keep(args: &Args, results: &Results<'_>) {
    let _ = write_files(args, results, |file| {
        !is_stdout(file) && output::is_replaced(file)
    });
}

fn write_files(
    args: &Args,
    results: &Results<'_>,
    is_wanted: impl Fn(&Path) -> bool,
) -> Result<(), Failure> {
    let json = args.json.as_ref().filter(|file| !is_stdout(file));
    if let Some(file) = json.filter(|file| is_wanted(file)) {
        output::whole_file(file, |out| document::json(results, out))?;
    }
    if let Some(file) = args.csv.as_ref().filter(|file| is_wanted(file)) {
        output::whole_file(file, |out| document::csv(results, out))?;
    }
    Ok(())
}

/// Writes the files before the table, so that they are complete even if the table's reader goes away
/// (`| head`).
fn report(args: &Args, results: &Results<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    write_files(args, results, |_| true)?;
    match &args.json {
        Some(file) if is_stdout(file) => document::json(results, out),
        _ => Ok(table::write(results, out)?),
    }
}

fn end(results: &Results<'_>) -> Done {
    if let Some(signal) = results.interrupted {
        return Err(Failure::failed(format!(
            "ended by {signal} after {} runs; the programs are stopped, and the results are those of the runs before",
            results.runs.len()
        )));
    }
    match results.failures() {
        0 => Ok(Exit::Done),
        count => Err(Failure::failed(format!(
            "{count} of {} runs failed",
            results.runs.len()
        ))),
    }
}

fn is_stdout(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// Returns the machine and the devices that the programs see, as NVML reports them.
fn machine(simulated: bool, plan: &Plan) -> Result<Machine, Failure> {
    let empty = Private::new()?;
    let mut live = Live::new(&empty.path, !simulated);
    live.settle(crate::segments::NVML);
    let sample = live.look()?;
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let seen = picking::seen(&sample.devices, |device| &device.uuid, visible.as_deref());
    let devices = match (&plan.scenario, simulated) {
        (Some(scenario), true) => vec![format!("simulated GPU ({scenario})")],
        _ => seen.iter().map(|device| device.name.clone()).collect(),
    };
    let driver = match &sample.nvml {
        Nvml::Ready(version) if !simulated => Some(version.clone()),
        _ => None,
    };
    Ok(Machine {
        host: sample.host.clone(),
        devices,
        driver,
        simulated,
    })
}

/// The first signal that asked this program to end.
struct Stop(Arc<OnceLock<&'static str>>);

impl Stop {
    /// Watches for signals in a thread.
    fn watch() -> Result<Self, Failure> {
        let (runtime, mut ends) = Ends::watch()?;
        let told = Arc::new(OnceLock::new());
        let theirs = Arc::clone(&told);
        std::thread::spawn(move || theirs.set(runtime.block_on(ends.come())));
        Ok(Self(told))
    }

    fn signal(&self) -> Option<&'static str> {
        self.0.get().copied()
    }
}
