//! `gpushare undo`: takes edits back.

use std::io::Write;

use super::{Done, edits, note, segments};
use crate::edit::audit::Place;
use crate::text::exit::{Exit, Failure};
use crate::text::plain::plain;

/// Undo the newest edits
///
/// An undo is a new edit that restores the earlier value. It is refused if the settings were changed outside the audit
/// log. A timed edit (--for) that has already reverted is reported and skipped; the next older edit is undone.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of edits to undo
    #[arg(value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    count: u16,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let dir = segments::dir()?;
    let sample = segments::sample_to_edit(&dir)?;
    let editor = segments::editor(&dir);
    for entry in editor.reverted()? {
        note(&format!(
            "edit {} on {} has already reverted by itself",
            entry.number,
            plain(&entry.record.target)
        ));
    }
    for sentence in editor.unreadable()? {
        note(&sentence);
    }
    for done in 0..args.count {
        match editor.undo_newest(1, Place::Ctl, args.reason.as_deref()) {
            Ok(undone) => {
                for (entry, applied) in undone {
                    let target = format!("undid edit {} on {}", entry.number, entry.record.target);
                    edits::report(&target, &applied, &sample, out)?;
                }
            }
            Err(failure) if done == 0 => return Err(failure.into()),
            Err(failure) => {
                return Err(Failure {
                    sentence: format!("{failure} ({done} edits were undone before it)"),
                    ..Failure::from(failure)
                });
            }
        }
    }
    Ok(Exit::Done)
}
