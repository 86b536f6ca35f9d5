//! The common part of all verbs that edit: options, edits, dry run, and the report in the words of a user: `train (pid 28700):
//! resumed`.
//!
//! A dry run makes the same checks as the edit, gives the same refusals and shows the present value.

use std::io::Write;

use shm_layout::policy::POLICY_ROWS;
use shm_layout::text::INHERIT;
use shm_layout::{Change, LockPolicy, Set, ShareEdit, clock};

use crate::note;
use gpushare_base::text::edits::A_WHILE;
use gpushare_base::text::exit::Failure;
use gpushare_base::text::plain::plain;
use gpushare_base::text::policy::{is_order, settings};
use gpushare_base::text::units::short_time;
use gpushare_control::change::{ends_ns, summary};
use gpushare_control::preview::{Tense, concerned, effects};
use gpushare_control::{ACKNOWLEDGEMENT, Applied, EditRequest, Editor, targets};
use gpushare_sample::{ProcessSample, Sample};

// The options of every edit.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct EditOptions {
    /// Reason for the edit, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Show what would change, for how many processes, and which would be over quota; change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Add the edit's generation, and how many processes have applied it
    #[arg(long, short)]
    pub verbose: bool,
}

impl EditOptions {
    /// Makes the edits, or with `--dry-run` reports their effects.
    pub fn submit(
        &self,
        editor: &Editor,
        requests: Vec<EditRequest>,
        sample: &Sample,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        if self.dry_run {
            preview(editor, &requests, sample, out)
        } else {
            apply_all(editor, requests, sample, self.verbose, out)
        }
    }
}

impl EditOptions {
    /// Makes the edits, or reports their effects, unless the list is empty.
    pub fn submit_some(
        &self,
        editor: &Editor,
        requests: Vec<EditRequest>,
        sample: &Sample,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        if requests.is_empty() {
            return Ok(());
        }
        self.submit(editor, requests, sample, out)
    }
}

/// Writes one line for each edit, then its consequences.
pub fn preview(
    editor: &Editor,
    requests: &[EditRequest],
    sample: &Sample,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    for request in requests {
        let old = editor.check(request)?;
        writeln!(
            out,
            "{}: {} (now: {}); {}",
            plain(&request.target),
            summary(&request.change),
            editor.before(&old),
            reach(&request.change, sample)
        )?;
        let effects = effects(&request.change, &request.target, sample);
        for warning in effects
            .iter()
            .filter_map(|effect| effect.warning(Tense::Would))
        {
            note(&warning);
        }
    }
    let edits = match requests.len() {
        1 => "1 edit".to_owned(),
        count => format!("{count} edits"),
    };
    writeln!(out, "dry run: {edits} would be made, nothing was changed")?;
    Ok(())
}

/// Returns the number of processes that an edit affects, in words.
fn reach(change: &Change, sample: &Sample) -> String {
    match concerned(change, sample).count() {
        0 => NO_PROCESS.to_owned(),
        1 => "for 1 process".to_owned(),
        count => format!("for {count} processes"),
    }
}

/// The unit in which the time of an edit is told.
const TENTH_NS: u64 = 100_000_000;
/// Text for an edit that affects no running process.
const NO_PROCESS: &str = "no running process affected";

/// Makes the edits one by one, waits for all of them together, and reports each. Stops at the first refusal.
pub fn apply_all(
    editor: &Editor,
    requests: Vec<EditRequest>,
    sample: &Sample,
    verbose: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let (many, now_ns) = (requests.len(), clock::now());
    let (mut targets, mut made) = (Vec::new(), Vec::new());
    let mut ended = Ok(());
    for request in requests {
        let target = request.target.clone();
        match editor.submit(request) {
            Ok(applied) => {
                targets.push(target);
                made.push(applied);
            }
            Err(failure) => {
                ended = Err(Failure::from(failure));
                break;
            }
        }
    }
    editor.wait_for_all(&mut made, ACKNOWLEDGEMENT);
    if !made.is_empty() && !sample.processes.iter().any(ProcessSample::is_managed) {
        write!(out, "nothing runs yet; ")?;
    }
    for (target, applied) in targets.iter().zip(&made) {
        let told = result(&applied.new, &applied.old, &applied.before, now_ns);
        report(target, &told, applied, sample, verbose, out)?;
    }
    ended.map_err(|failure| match many {
        1 => failure,
        _ => Failure {
            sentence: format!(
                "{} ({} of {many} edits were made before it)",
                failure.sentence,
                made.len()
            ),
            ..failure
        },
    })
}

/// Writes one line for an edit: the change in words, and the processes that have not applied it yet. A verbose line has the edit's
/// generation, and how many processes have applied it.
pub fn report(
    target: &str,
    told: &str,
    applied: &Applied,
    sample: &Sample,
    verbose: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let detail = match verbose {
        true => format!("; generation {}, {}", applied.generation, reached(applied)),
        false => String::new(),
    };
    writeln!(
        out,
        "{}: {told}{detail}{}",
        title(target, &applied.new, sample),
        pending(applied, sample)
    )?;
    if let Some(unlogged) = &applied.unlogged {
        note(unlogged);
    }
    Ok(())
}

/// Returns the number of processes that have applied an edit, in words.
fn reached(applied: &Applied) -> String {
    match (applied.acknowledged_by.len(), applied.missing.as_slice()) {
        (0, []) => NO_PROCESS.to_owned(),
        (1, []) => "applied by 1 process".to_owned(),
        (count, []) => format!("applied by all {count} processes"),
        (count, missing) => format!("applied by {count} of {} processes", count + missing.len()),
    }
}

/// Names the processes that have not applied an edit yet.
fn pending(applied: &Applied, sample: &Sample) -> String {
    let who = applied.missing.iter().map(|slot| {
        let title = targets::title_of(sample, *slot);
        match applied.stopped.contains(slot) {
            true => format!("{title} (stopped)"),
            false => title,
        }
    });
    let who: Vec<String> = who.collect();
    match who.is_empty() {
        true => String::new(),
        false => format!("; not applied yet by {}", who.join(", ")),
    }
}

/// Returns the target of an edit with the process's name first: `undid edit 3 on train (pid 28700)`.
fn title(target: &str, change: &Change, sample: &Sample) -> String {
    let process = change.slot().and_then(|slot| sample.process(slot));
    let name_first = |process: &ProcessSample| {
        let name = Some(&process.identity.label).filter(|label| !label.is_empty())?;
        let titled = format!("{name} (pid {})", process.pid?);
        Some(target.replacen(&process.pid_and_name(), &titled, 1))
    };
    let named = process.and_then(name_first);
    plain(named.as_deref().unwrap_or(target)).into_owned()
}

/// Returns the new values, and the old ones where they differ: `weight=200 for 10m00s (was: weight=100)`.
fn result(new: &Change, old: &Change, before: &str, now_ns: u64) -> String {
    match switched(new) {
        Some(word) => timed(&word, new, now_ns),
        None => compared(timed(&words(new, old), new, now_ns), new, old, before),
    }
}

/// Returns the words for an edit with the time for which it holds.
fn timed(words: &str, change: &Change, now_ns: u64) -> String {
    let Some(end_ns) = ends_ns(change) else {
        return words.to_owned();
    };
    // The time as it was given, of which some milliseconds are over.
    let left_ns = end_ns.saturating_sub(now_ns);
    let left_ns = left_ns.checked_next_multiple_of(TENTH_NS);
    let time = short_time(left_ns.unwrap_or(u64::MAX));
    words.replace(A_WHILE, &format!(" for {time}"))
}

/// Returns the result of an undo. `restored` are the values from before the edit, which are told where the undo makes them
/// inherited again.
pub fn undone(new: &Change, old: &Change, before: &str, restored: &str) -> String {
    if let Some(word) = switched(new) {
        return word;
    }
    let told = words(new, old);
    let told = match told.contains(INHERIT) {
        true => restored.to_owned(),
        false => told,
    };
    compared(told, new, old, before)
}

fn compared(told: String, new: &Change, old: &Change, before: &str) -> String {
    let was = match old {
        Change::Policy { .. } => words(old, new),
        _ => before.to_owned(),
    };
    match told == was {
        true => format!("{told}, as before"),
        false => format!("{told} (was: {})", without_subject(&was, &told)),
    }
}

/// Returns the word for an edit that only pauses, resumes, pins or unpins.
fn switched(change: &Change) -> Option<String> {
    let Change::ProcessShare { share, .. } = change else {
        return None;
    };
    let only = |part: ShareEdit| part == *share;
    let pins = only(ShareEdit {
        pinned: share.pinned,
        ..ShareEdit::default()
    });
    let pauses = only(ShareEdit {
        paused: share.paused,
        evict: share.evict,
        ..ShareEdit::default()
    });
    if pins {
        return switch(&share.pinned, "pinned", "unpinned");
    }
    let evicted = match &share.evict {
        Set::To(true) | Set::For(Some(true), _) => ", its memory moves to the host",
        _ => "",
    };
    let word = match &share.paused {
        // No launch starts a process paused.
        Set::Inherit => Some("resumed".to_owned()),
        paused => switch(paused, "paused", "resumed"),
    };
    let word = word.filter(|_| pauses)?;
    Some(word + evicted)
}

fn switch(set: &Set<bool>, on: &str, off: &str) -> Option<String> {
    Some(match set {
        Set::To(true) => on.to_owned(),
        Set::To(false) => off.to_owned(),
        Set::For(Some(true), _) => format!("{on}{A_WHILE}"),
        Set::For(Some(false), _) => format!("{off}{A_WHILE}"),
        _ => return None,
    })
}

/// Returns the words for an edit beside another one, which it replaces or which replaces it.
fn words(change: &Change, other: &Change) -> String {
    match change {
        Change::Policy {
            policy: Some(policy),
            until,
            ..
        } => {
            let policy = of_policy(policy, other);
            format!("{policy}{}", until.map_or("", |_| A_WHILE))
        }
        Change::Policy {
            policy: None,
            device: None,
            ..
        } => "no policy".into(),
        Change::Policy { policy: None, .. } => "the policy of all GPUs".into(),
        other => summary(other),
    }
}

/// Returns a policy with the order in words, and the other fields that differ from their defaults. Of one without turns the fields of
/// turns that it shares with another that has turns are left out: they were carried over.
fn of_policy(policy: &LockPolicy, other: &Change) -> String {
    let kind = policy.kind.to_string();
    let has_turns = policy.kind.is_gated();
    let carried = match other {
        Change::Policy {
            policy: Some(other),
            ..
        } if !has_turns && other.kind.is_gated() => settings(other),
        _ => Vec::new(),
    };
    // A setting without a column is about memory, and has an effect without turns too.
    let is_of_turns = |word: &str| {
        let rows = POLICY_ROWS.iter().filter(|row| !row.title.is_empty());
        let mut words = rows.map(|row| row.word);
        words.any(|key| word.split('=').next() == Some(key))
    };
    let order = has_turns.then(|| policy.order.in_words());
    let settings = settings(policy);
    let others = settings
        .iter()
        .filter(|word| !(is_order(word) || carried.contains(word) && is_of_turns(word)));
    let parts = std::iter::once(kind.as_str())
        .chain(order)
        .chain(others.map(String::as_str));
    parts.collect::<Vec<_>>().join(", ")
}

/// Leaves out the first word of the old values if the new ones begin with it: the setting's name.
fn without_subject<'w>(was: &'w str, told: &str) -> &'w str {
    match (was.split_once(' '), told.split_once(' ')) {
        (Some((name, value)), Some((same, _))) if name == same && !name.contains(['=', ',']) => {
            value
        }
        _ => was,
    }
}

#[cfg(test)]
mod tests {
    use shm_layout::{QuotaValue, SlotId, Until};

    use super::*;

    #[test]
    fn an_edit_is_told_as_a_person_would_tell_it() {
        let slot = SlotId { index: 3, epoch: 9 };
        let share = |share| Change::ProcessShare { slot, share };
        let pause = |paused| {
            share(ShareEdit {
                paused: Set::To(paused),
                evict: Set::Inherit,
                ..ShareEdit::default()
            })
        };
        let pin = |pinned| {
            share(ShareEdit {
                pinned: Set::To(pinned),
                ..ShareEdit::default()
            })
        };
        let weight = |weight| {
            share(ShareEdit {
                weight: Set::To(weight),
                ..ShareEdit::default()
            })
        };
        let quota = |bytes| Change::ProcessQuota {
            slot,
            device: None,
            value: QuotaValue::Bytes(bytes),
            until: None,
        };
        let policy = |text: &str| Change::Policy {
            device: None,
            policy: Some(text.parse().expect("a policy")),
            until: None,
        };
        for (new, old, told) in [
            (pause(true), pause(false), "paused"),
            (pause(false), pause(true), "resumed"),
            (pin(true), pin(false), "pinned"),
            (weight(200), weight(100), "weight=200 (was: weight=100)"),
            (quota(2 << 30), quota(1 << 30), "quota 2GiB (was: 1GiB)"),
            (quota(1 << 30), quota(1 << 30), "quota 1GiB, as before"),
            (
                policy("overlap order=priority"),
                policy("off"),
                "overlap, urgent first (was: off)",
            ),
            (
                policy("off stay=5s evict-idle=2s"),
                policy("off stay=5s"),
                "off, evict-idle=2s, stay=5s (was: off, stay=5s)",
            ),
            (
                policy("off grace=1s"),
                policy("timeslice=5ms grace=1s"),
                "off (was: timeslice=5ms, shares by weight, grace=1s)",
            ),
            (
                policy("off stay=5s"),
                policy("overlap"),
                "off, stay=5s (was: overlap, shares by weight)",
            ),
            (
                policy("hw-timeslice=5ms stay=5s grace=1s"),
                policy("timeslice=5ms stay=5s grace=1s"),
                "hw-timeslice=5ms, stay=5s (was: timeslice=5ms, shares by weight, grace=1s, stay=5s)",
            ),
            (
                policy("timeslice=5ms grace=1s"),
                policy("overlap"),
                "timeslice=5ms, shares by weight, grace=1s (was: overlap, shares by weight)",
            ),
        ] {
            assert_eq!(result(&new, &old, &summary(&old), 0), told);
        }
        let policy = Change::Policy {
            device: None,
            policy: Some("off".parse().expect("a policy")),
            until: Some(Until::lasting(600_000_000_000)),
        };
        let told = result(&policy, &quota(1 << 30), "quota 1GiB", 3_000_000);
        assert_eq!(told, "off for 10m00s (was: quota 1GiB)");
        let resumed = share(ShareEdit {
            paused: Set::Inherit,
            ..ShareEdit::default()
        });
        assert_eq!(
            undone(&resumed, &pause(true), "paused=yes", "paused=no"),
            "resumed"
        );
        let before = |value| Change::ProcessQuota {
            slot,
            device: None,
            value,
            until: None,
        };
        let (none, set) = (before(QuotaValue::Inherit), quota(2 << 30));
        let told = |restored| undone(&none, &set, "quota 2GiB", restored);
        assert_eq!(
            told("quota 1GiB (launch)"),
            "quota 1GiB (launch) (was: 2GiB)"
        );
        let told = undone(&quota(4 << 30), &set, "quota 2GiB", "of no meaning");
        assert_eq!(told, "quota 4GiB (was: 2GiB)");
    }
}
