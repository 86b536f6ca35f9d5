//! `gpushare audit`: lists the edits with user, time and reason, refused ones too.

use std::io::{self, Write};

use crate::table::{LONGEST_NAME, Side, Table, clip, shorten};
use crate::{Done, json, note, segments};
use shm_layout::text::PathText as _;

use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::units::some;
use gpushare_control::audit::{AuditLog, Entry, Outcome, Record, unreadable};
use gpushare_sample::SCHEMA_VERSION;
use gpushare_sample::keys::object;

/// Columns with names and sentences, and the width to which each is cut where the terminal has no room: REASON, CHANGE (a process's new
/// name), WHO and TARGET.
const LONG_COLUMNS: [(usize, usize); 4] = [(8, 60), (5, 60), (2, 16), (4, 24)];

/// Show who changed what, when and why, newest last
///
/// gpushare undo NUMBER takes the edit of that number back.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Show only the newest N
    #[arg(short = 'n', value_name = "N", default_value_t = 20)]
    newest: usize,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

object! {
    /// The document that `--json` writes.
    pub(crate) Document<'a>(log: &AuditLog, entries: &'a [Entry]) {
        schema_version: u32 = SCHEMA_VERSION, "Increases when a key changes its meaning or is removed.";
        log: String = log.path().display().to_string(), "The log's file: a line for each edit, with these keys; number is there only where a broker writes it.";
        edits: Vec<Line<'a>> = entries.iter().map(Line::of).collect(), "The edits, the newest last.";
    }
}

object! {
    pub(crate) Line<'a>(entry: &'a Entry) {
        number: u64 = entry.number, "Its number, from 1, as gpushare undo takes it; it stays when a broker's log has lost its oldest lines.";
        ..record: &'a Record = &entry.record;
    }
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let dir = segments::dir()?;
    let log = AuditLog::of(&dir);
    let history = log.read().map_err(|error| Failure {
        exit: match error.kind() {
            io::ErrorKind::PermissionDenied => Exit::NotPermitted,
            _ => Exit::Failed,
        },
        sentence: unreadable(&dir, &error),
    })?;
    let newest = &history.entries[history.entries.len().saturating_sub(args.newest)..];
    if !history.damaged.is_empty() {
        note(&format!(
            "{} of {} could not be read and left out",
            some(history.damaged.len(), "line"),
            log.path().shown()
        ));
    }
    if args.json {
        return json(out, &Document::of(&log, newest));
    }
    if history.entries.is_empty() {
        note(&format!("{} contains no edits yet", log.path().shown()));
        return Ok(Exit::Done);
    }
    let mut table = table(newest);
    table.fit_terminal(&LONG_COLUMNS);
    table.write(out)?;
    Ok(Exit::Done)
}

fn table(entries: &[Entry]) -> Table {
    let mut table = Table::new(&[
        ("#", Side::Right),
        ("TIME", Side::Left),
        ("WHO", Side::Left),
        ("WHERE", Side::Left),
        ("TARGET", Side::Left),
        ("CHANGE", Side::Left),
        ("GEN", Side::Right),
        ("RESULT", Side::Left),
        ("REASON", Side::Left),
    ]);
    for Entry { number, record } in entries {
        let change = match &record.old {
            Some(old) => difference(old, &record.new),
            None => record.new.clone(),
        };
        let (result, why) = match record.result {
            Outcome::Applied => ("applied", &record.reason),
            Outcome::Refused => ("REFUSED", &record.refusal),
        };
        table.row([
            number.to_string(),
            local_time(&record.time),
            shorten(&record.who, LONGEST_NAME),
            record.r#where.word().to_owned(),
            shorten(&record.target, LONGEST_NAME),
            shorten(&change, LONGEST_NAME),
            record
                .generation
                .map_or_else(|| "-".into(), |generation| generation.to_string()),
            result.to_owned(),
            shorten(why.as_deref().unwrap_or("-"), LONGEST_NAME),
        ]);
    }
    table
}

/// Returns what was changed to what: of two lists of the same settings only those that differ.
fn difference(old: &str, new: &str) -> String {
    let beside = |words: &str, other: &str| -> String {
        let differ = |word: &&str| !other.split(' ').any(|one| one == *word);
        let words: Vec<&str> = words.split(' ').filter(differ).collect();
        words.join(" ")
    };
    let (was, is) = (beside(old, new), beside(new, old));
    let subject = new
        .split(' ')
        .next()
        .filter(|word| old.starts_with(word) && !word.contains('='));
    let values = match (was.is_empty(), is.is_empty()) {
        (true, true) => return format!("{old} -> {new}"),
        (true, false) => format!("{is} added"),
        (false, true) => format!("{was} removed"),
        (false, false) => format!("{was} -> {is}"),
    };
    match subject {
        Some(subject) => format!("{subject} {values}"),
        None => values,
    }
}

/// Returns the local time of day, with the date if it is not today.
fn local_time(time: &str) -> String {
    let zone = jiff::tz::TimeZone::system();
    let Ok(then) = time.parse::<jiff::Timestamp>() else {
        return clip(time, 20);
    };
    let (then, now) = (
        then.to_zoned(zone.clone()),
        jiff::Timestamp::now().to_zoned(zone),
    );
    let format = if then.date() == now.date() {
        "%H:%M:%S"
    } else {
        "%Y-%m-%d %H:%M:%S"
    };
    then.strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use shm_layout::Change;

    use super::*;
    use gpushare_control::audit::Place;
    use gpushare_sample::testing::explains;

    #[test]
    fn of_two_policies_only_what_differs_is_shown() {
        let (old, new) = (
            "policy timeslice=5ms overlap=200us order=fair",
            "policy timeslice=20ms overlap=200us order=fair",
        );
        assert_eq!(
            super::difference(old, new),
            "policy timeslice=5ms -> timeslice=20ms"
        );
        assert_eq!(
            super::difference("quota 1GiB", "quota 2GiB"),
            "quota 1GiB -> 2GiB"
        );
        assert_eq!(
            super::difference("weight=100", "weight=200"),
            "weight=100 -> weight=200"
        );
        let more = ("policy off order=fair", "policy off order=fair grace=1s");
        assert_eq!(super::difference(more.0, more.1), "policy grace=1s added");
        assert_eq!(super::difference(more.1, more.0), "policy grace=1s removed");
        assert_eq!(
            super::difference("quota 1GiB", "quota 1GiB"),
            "quota 1GiB -> quota 1GiB"
        );
        assert_eq!(
            super::difference("no group", "memory=4GiB"),
            "no group -> memory=4GiB"
        );
    }

    #[test]
    fn every_key_of_the_json_is_explained() {
        let change = Change::Policy {
            device: None,
            policy: None,
            until: None,
        };
        let record = Record {
            schema_version: 1,
            time: String::new(),
            uid: 0,
            who: String::new(),
            r#where: Place::Ctl,
            target: String::new(),
            target_start_time: None,
            old: None,
            new: String::new(),
            generation: None,
            reason: None,
            result: Outcome::Applied,
            refusal: None,
            undoes: None,
            restore: Some(change.clone()),
            change: Some(change),
        };
        let entries = [Entry { number: 1, record }];
        let log = AuditLog::of_the_machine(std::path::Path::new("/run/gpushare"));
        explains(&Document::of(&log, &entries));
    }
}
