//! `gpushare trace rm`: removes the buffers of traces.

use std::io::Write;

use shm_layout::text::PathText as _;
use shm_layout::trace;

use super::Place;
use crate::{Done, note};
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_control::targets::Target;
use gpushare_control::trace::is_written;
use gpushare_launch::traces;

/// Remove traces that have ended; active ones stay
///
/// A trace is also removed when its process is traced again, and, one hour after the process has ended,
/// by the next trace that starts.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// pid, name:LABEL, group:G, user:U or all
    target: String,
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    args.target.parse::<Target>().map_err(Failure::usage)?;
    let place = Place::look()?;
    let snapshot = place.snapshot();
    let found = traces::choose(&args.target, &place.dir.path, &place.sample, note)?;
    let mut left = Vec::new();
    for found in &found {
        let Some(slot) = found.process.slot() else {
            continue;
        };
        let goes_on = snapshot
            .processes
            .iter()
            .any(|process| process.slot == slot && is_written(&process.trace));
        if found.lives() && goes_on {
            left.push(found.title());
            continue;
        }
        trace::remove(&place.dir.path, slot)?;
        writeln!(out, "{}: removed {}", found.title(), found.path.shown())?;
    }
    if left.is_empty() {
        return Ok(Exit::Done);
    }
    Err(Failure::failed(format!(
        "{} is still being traced; gpushare trace stop ends it",
        left.join(", ")
    )))
}
