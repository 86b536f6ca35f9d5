//! `gpushare undo`: undoes edits.

use std::io::Write;
use std::time::Duration;

use jiff::Timestamp;

use super::edits;
use crate::{Done, note, segments};
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::plain::plain;
use gpushare_control::Applied;
use gpushare_control::audit::{Entry, Place};
use gpushare_sample::Sample;

/// Undo the newest edit, or the edit with a number
///
/// An undo is a new edit that restores the earlier value. It is refused if a later edit changed the same setting, or if the
/// settings were changed outside the audit log. Of the newest edits, a timed one (--for) that has already reverted, one of a
/// process that has ended, and a trace, which gpushare trace stop ends, are reported and skipped; the next older edit is undone.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The number of the edit, as gpushare audit shows it [default: the newest that can be undone]
    #[arg(value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    number: Option<u64>,
    /// Undo the newest N edits instead
    #[arg(long, value_name = "N", conflicts_with = "number", value_parser = clap::value_parser!(u16).range(1..))]
    last: Option<u16>,
    /// Reason for the edit, for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Add the edit's generation, and how many processes have applied it
    #[arg(long, short)]
    verbose: bool,
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let dir = segments::dir()?;
    let sample = segments::sample_to_edit(&dir)?;
    let editor = segments::editor(&dir);
    let reason = args.reason.as_deref();
    if let Some(number) = args.number {
        let (entry, applied) = editor.undo_number(number, Place::Ctl, reason)?;
        report(&entry, &applied, &sample, args.verbose, out)?;
        return Ok(Exit::Done);
    }
    for entry in editor.reverted()? {
        note(&format!(
            "edit {} on {} has already reverted by itself",
            entry.number,
            plain(&entry.record.target)
        ));
    }
    let ended = editor.ended()?;
    if ended.len() > MOST_NAMED {
        note(&format!(
            "{} edits of processes that have ended are passed over; gpushare audit lists them",
            ended.len()
        ));
    } else {
        for entry in ended {
            note(&format!(
                "edit {} on {} is passed over, because the process has ended",
                entry.number,
                plain(&entry.record.target)
            ));
        }
    }
    for sentence in editor.traces()?.into_iter().chain(editor.unreadable()?) {
        note(&sentence);
    }
    let mut newest = None;
    for done in 0..args.last.unwrap_or(1) {
        match editor.undo_newest(1, Place::Ctl, reason) {
            Ok(undone) => {
                for (entry, applied) in undone {
                    report(&entry, &applied, &sample, args.verbose, out)?;
                    newest = Some(entry);
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
    // A command may make several edits, as for each of several jobs.
    if let Some(undone) = newest {
        let left = editor.undoable()?;
        let moments = std::iter::once(&undone).chain(&left).zip(&left);
        let of_it = moments.take_while(|(later, earlier)| are_of_one_moment(later, earlier));
        match (of_it.count(), left.first()) {
            (0, _) | (_, None) => {}
            (1, Some(next)) => note(&format!(
                "edit {} on {} was made at the same moment and stays; gpushare undo takes it back too",
                next.number,
                plain(&next.record.target)
            )),
            (count, _) => note(&format!(
                "{count} more edits were made at the same moment and stay; gpushare undo --last {count} takes them back too"
            )),
        }
    }
    Ok(Exit::Done)
}

/// Edits of ended processes that are named one by one.
const MOST_NAMED: usize = 3;

/// Edits of one command are not further apart.
const MOMENT: Duration = Duration::from_millis(50);

fn are_of_one_moment(one: &Entry, other: &Entry) -> bool {
    let time = |entry: &Entry| entry.record.time.parse::<Timestamp>().ok();
    let apart = time(one).zip(time(other));
    one.record.uid == other.record.uid
        && apart.is_some_and(|(one, other)| one.duration_since(other).unsigned_abs() < MOMENT)
}

fn report(
    entry: &Entry,
    applied: &Applied,
    sample: &Sample,
    verbose: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let target = format!("undid edit {} on {}", entry.number, entry.record.target);
    let restored = entry.record.old.as_deref().unwrap_or("as before");
    let told = edits::undone(&applied.new, &applied.old, &applied.before, restored);
    edits::report(&target, &told, applied, sample, verbose, out)
}
