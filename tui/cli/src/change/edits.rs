//! The common part of all verbs that edit: options, edits, dry run and report.
//!
//! A dry run makes the same checks as the edit, gives the same refusals and shows the present value.

use std::io::Write;

use shm_layout::Change;

use super::words;
use crate::note;
use gpushare_base::text::exit::Failure;
use gpushare_base::text::plain::plain;
use gpushare_control::change::summary;
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
    let many = requests.len();
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
        let told = words::result(&applied.new, &applied.old, &applied.before);
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
        words::title(target, &applied.new, sample),
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
