//! `gpushare trace`: records the driver calls of a running process, with their times.

use std::io::Write;

use shm_layout::{SegmentDir, Segments, Snapshot, clock, snapshot};

use crate::{Done, segments};
use gpushare_base::text::exit::Failure;
use gpushare_sample::Sample;

mod export;
mod remove;
mod show;
mod start;
mod stats;
mod stop;

pub use show::Document as Traces;
pub use stats::Document as Stats;

/// Record driver calls, and show them in Perfetto, as a table or as Alnair's logs
#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
pub enum Verb {
    Start(start::Args),
    Stop(stop::Args),
    Show(show::Args),
    Stats(stats::Args),
    Export(export::Args),
    Rm(remove::Args),
}

pub fn run(verb: Verb, out: &mut dyn Write) -> Done {
    match verb {
        Verb::Start(args) => start::run(&args, out),
        Verb::Stop(args) => stop::run(&args, out),
        Verb::Show(args) => show::run(&args, out),
        Verb::Stats(args) => stats::run(&args, out),
        Verb::Export(args) => export::run(&args, out),
        Verb::Rm(args) => remove::run(&args, out),
    }
}

/// The segments and the sample that these verbs use.
struct Place {
    dir: SegmentDir,
    sample: Sample,
}

impl Place {
    fn look() -> Result<Self, Failure> {
        let dir = segments::dir()?;
        let sample = segments::sample_with_events(&dir)?;
        Ok(Self { dir, sample })
    }

    /// Opens the segments for a verb that edits.
    fn to_edit() -> Result<Self, Failure> {
        let dir = segments::dir()?;
        let sample = segments::sample_to_edit(&dir)?;
        Ok(Self { dir, sample })
    }

    /// Takes a snapshot of the segments, which is empty if there are none.
    fn snapshot(&self) -> Snapshot {
        Segments::open_viewer(&self.dir.path).map_or_else(
            |_| Snapshot::default(),
            |segments| snapshot(&segments, clock::now()),
        )
    }
}
