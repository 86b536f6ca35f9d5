//! `gpushare demo`: the demonstration with the dashboard.

use std::io::{IsTerminal, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use shm_layout::text::PathText as _;
use shm_layout::{Change, Segments, Snapshot, clock, snapshot};

use crate::signals::Ends;
use crate::{Done, note, segments};
use gpushare_base::host::artifacts;
use gpushare_base::host::probe;
use gpushare_base::host::processes::Children;
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_control::audit::Place;
use gpushare_control::{EditRequest, Editor};
use gpushare_launch::demo::report::Report;
use gpushare_launch::demo::{SCENARIOS, Scenario};
use gpushare_launch::stage::Stage;

/// Start four workloads on one GPU, real or simulated, and open the dashboard on them
///
/// They use segments of their own, so they do not affect other programs under gpushare, and they end
/// with the demo.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// End after this many seconds [default: one hour with the dashboard]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: Option<u32>,
    /// No dashboard: print a report (after 10 seconds unless --seconds is given)
    #[arg(long)]
    headless: bool,
    /// Print the report as JSON; implies --headless
    #[arg(long)]
    json: bool,
    /// Use the simulated GPU, even if there is a real one
    #[arg(long, conflicts_with = "gpu")]
    sim: bool,
    /// Use the real GPU; fail if there is none
    #[arg(long)]
    gpu: bool,
    /// Use the segments that other programs use
    #[arg(long)]
    here: bool,
    /// jobs: trainings and servers that share the time; models: servers that do not fit together and take turns on the memory
    /// (key M in the dashboard)
    #[arg(long, value_name = "NAME", default_value = SCENARIOS[0].name,
        value_parser = clap::builder::PossibleValuesParser::new(SCENARIOS.iter().map(|scenario| scenario.name)))]
    scenario: String,
}

/// Maximum time in seconds that the dashboard stays open. If it is killed, the programs end soon after.
const LONGEST: u32 = 3_600;

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let headless = args.headless || args.json || !std::io::stdout().is_terminal();
    if headless && !args.headless && !args.json {
        note(
            "standard output is not a terminal, so there is no dashboard; a report follows at the end",
        );
    }
    let simulated = args.sim || (!args.gpu && !probe::real_gpu());
    if simulated && !args.sim {
        note("found no NVIDIA driver with a device: the demo runs on the simulated GPU");
    }
    let here = if args.here {
        Some(segments::dir_or_new()?)
    } else {
        None
    };
    let scenario = Scenario::named(&args.scenario).unwrap_or(&SCENARIOS[0]);
    let mut stage = Stage::new(here, simulated)?;
    let seconds = args.seconds.unwrap_or(if headless { 10 } else { LONGEST });
    let time = Duration::from_secs(seconds.into());
    let (runtime, mut ends) = Ends::watch()?;
    // Runs to the end or to the first signal. Dropping the stage removes everything in both cases.
    runtime.block_on(async {
        tokio::select! {
            done = perform(&mut stage, scenario, headless, args.json, time, out) => done,
            signal = ends.come() => Err(Failure::failed(format!("ended by {signal}; the demo's programs are stopped"))),
        }
    })
}

async fn perform(
    stage: &mut Stage,
    scenario: &Scenario,
    headless: bool,
    json: bool,
    time: Duration,
    out: &mut dyn Write,
) -> Done {
    let names = scenario.names();
    scenario.start(stage, true, time)?;
    let segments = all_started(stage, &names[..1]).await?;
    let editor = Editor::open(&stage.dir);
    let mut edits = Edits::make(&editor, scenario.changes(&look(&segments))?)?;
    scenario.start(stage, false, time)?;
    let segments = all_started(stage, &names).await?;
    stage.announce()?;
    let start = look(&segments);
    if headless {
        tokio::time::sleep(time).await;
    } else {
        dashboard(stage, time).await?;
    }
    let end = look(&segments);
    stage.check_alive()?;
    let report = Report::new(
        &start,
        &end,
        &names,
        stage.simulated,
        (scenario.policy.to_owned(), edits.acknowledged),
    );
    edits.end();
    stage.end();
    if json {
        report.write_json(out)?;
    } else {
        report.write_table(out)?;
    }
    Ok(Exit::Done)
}

/// Waits until each of these programs has entered a device.
async fn all_started(stage: &mut Stage, names: &[&str]) -> Result<Segments, Failure> {
    let since = Instant::now();
    loop {
        if let Some(segments) = stage.all_started(since, names)? {
            return Ok(segments);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The demo's edits, which are in force until this is dropped. With `--here` they also apply to other programs.
struct Edits<'e> {
    editor: &'e Editor,
    /// The edits that undo them, the first one's first.
    old: Vec<Change>,
    acknowledged: bool,
}

impl<'e> Edits<'e> {
    fn make(editor: &'e Editor, changes: Vec<Change>) -> Result<Self, Failure> {
        let mut edits = Self {
            editor,
            old: Vec::new(),
            acknowledged: true,
        };
        for change in changes {
            let applied = editor.apply(request(change))?;
            edits.acknowledged &= applied.missing.is_empty();
            edits.old.push(applied.old);
        }
        Ok(edits)
    }

    fn end(&mut self) {
        while let Some(old) = self.old.pop() {
            let _ = self.editor.submit(request(old));
        }
    }
}

impl Drop for Edits<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

fn request(change: Change) -> EditRequest {
    EditRequest::new(change, "all GPUs", Place::Ctl).because(Some("gpushare demo".into()))
}

fn look(segments: &Segments) -> Snapshot {
    snapshot(segments, clock::now())
}

/// Opens the dashboard on this terminal and waits for its end.
async fn dashboard(stage: &Stage, time: Duration) -> Result<(), Failure> {
    let top = artifacts::find("gpushare-top")?;
    let mut command = Command::new(&top);
    command.arg("--tied").envs(stage.environment()?);
    if stage.is_private() {
        // The recording of the last hour ends with the demo.
        command.env("XDG_STATE_HOME", stage.dir.path.join("past"));
    }
    let child = command.spawn().map_err(|error| {
        Failure::failed(format!(
            "the dashboard {} cannot be started: {error}",
            top.shown()
        ))
    })?;
    // The dashboard restores the terminal when it gets SIGTERM.
    let mut dashboard = Children::default();
    dashboard.adopt(child);
    let start = Instant::now();
    while start.elapsed() < time {
        match dashboard.ended().first() {
            None => tokio::time::sleep(Duration::from_millis(50)).await,
            Some((_, Some(0))) => return Ok(()),
            Some((_, code)) => {
                let code =
                    code.map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
                return Err(Failure::failed(format!("the dashboard ended with {code}")));
            }
        }
    }
    Ok(())
}
