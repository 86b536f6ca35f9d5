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
use gpushare_launch::demo::{self, POLICY};
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
    let mut stage = Stage::new(here, simulated)?;
    let seconds = args.seconds.unwrap_or(if headless { 10 } else { LONGEST });
    let time = Duration::from_secs(seconds.into());
    let (runtime, mut ends) = Ends::watch()?;
    // Runs to the end or to the first signal. Dropping the stage removes everything in both cases.
    runtime.block_on(async {
        tokio::select! {
            done = perform(&mut stage, headless, args.json, time, out) => done,
            signal = ends.come() => Err(Failure::failed(format!("ended by {signal}; the demo's programs are stopped"))),
        }
    })
}

async fn perform(
    stage: &mut Stage,
    headless: bool,
    json: bool,
    time: Duration,
    out: &mut dyn Write,
) -> Done {
    demo::start(stage, time)?;
    let segments = all_started(stage).await?;
    stage.announce()?;
    let editor = Editor::open(&stage.dir);
    let mut policy = Policy::set(&editor)?;
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
        &demo::names(),
        stage.simulated,
        (POLICY.to_owned(), policy.acknowledged),
    );
    policy.end();
    stage.end();
    if json {
        report.write_json(out)?;
    } else {
        report.write_table(out)?;
    }
    Ok(Exit::Done)
}

/// Waits until each of the four programs has entered a device.
async fn all_started(stage: &mut Stage) -> Result<Segments, Failure> {
    let since = Instant::now();
    loop {
        if let Some(segments) = stage.all_started(since, &demo::names())? {
            return Ok(segments);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The demo's policy, which is in force until this is dropped. With `--here` it also applies to other programs.
struct Policy<'e> {
    editor: &'e Editor,
    old: Option<Change>,
    acknowledged: bool,
}

impl<'e> Policy<'e> {
    fn set(editor: &'e Editor) -> Result<Self, Failure> {
        let wrong = |error| Failure::failed(format!("the demo's policy: {error}"));
        let policy = POLICY.parse().map_err(wrong)?;
        let change = Change::Policy {
            device: None,
            policy: Some(policy),
            until: None,
        };
        let applied = editor.apply(request(change))?;
        Ok(Self {
            editor,
            old: Some(applied.old),
            acknowledged: applied.missing.is_empty(),
        })
    }

    fn end(&mut self) {
        if let Some(old) = self.old.take() {
            let _ = self.editor.submit(request(old));
        }
    }
}

impl Drop for Policy<'_> {
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
    let child = Command::new(&top)
        .args(["--tied", "--no-ring"])
        .envs(stage.environment()?)
        .spawn()
        .map_err(|error| {
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
