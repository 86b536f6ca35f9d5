//! `gpushare trace stop`: ends traces; the buffers stay for export.

use std::io::Write;

use shm_layout::trace::{self, Reader};
use shm_layout::{SegmentDir, Segments};

use super::Place;
use crate::{Done, note};
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::plain::plain;
use gpushare_control as edit;
use gpushare_control::targets::{Chosen, Target};

/// Stop recording; the records stay for export until trace rm
#[derive(Debug, clap::Args)]
pub struct Args {
    /// pid, name:LABEL, group:G, user:U or all
    target: String,
    /// Reason for the edit, for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let target: Target = args.target.parse().map_err(Failure::usage)?;
    let place = Place::to_edit()?;
    let chosen = target.resolve(&place.sample)?;
    let segments = Segments::open_viewer(&place.dir.path)?;
    let is_traced = |chosen: &&Chosen| {
        edit::trace::process(&segments, chosen.slot)
            .is_some_and(|process| edit::trace::is_written(&process.trace))
    };
    let traced: Vec<&Chosen> = chosen.iter().filter(is_traced).collect();
    if traced.is_empty() {
        return Err(Failure::no_such_target(format!(
            "no process of {} is being traced; gpushare trace show lists the traces",
            plain(&args.target)
        )));
    }
    for chosen in traced {
        one(&place.dir, chosen, args.reason.clone(), out)?;
    }
    Ok(Exit::Done)
}

/// Ends one trace and reports its content. The trace of an ended process has already ended.
pub(super) fn one(
    dir: &SegmentDir,
    chosen: &Chosen,
    reason: Option<String>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let title = plain(&chosen.title);
    match edit::trace::end(dir, chosen, reason) {
        Ok(true) => {}
        Ok(false) => note(&format!(
            "{title} has not answered yet; its trace ends when it does"
        )),
        Err(failure) if failure.exit == Exit::NoSuchTarget => {}
        Err(failure) => return Err(failure),
    }
    let path = trace::path(&dir.path, chosen.slot);
    match Reader::open(&path) {
        Ok(reader) => {
            let dropped = match reader.dropped() {
                0 => String::new(),
                dropped => format!(", {dropped} did not fit"),
            };
            writeln!(
                out,
                "{title}: {} records{dropped}; gpushare trace export {} writes them",
                reader.records().count(),
                pid(&title)
            )?;
        }
        Err(error) => note(&format!("{title}: {error}")),
    }
    Ok(())
}

/// Returns the pid at the start of a title.
fn pid(title: &str) -> &str {
    title.split_whitespace().next().unwrap_or(title)
}
