//! `gpushare kill`: a signal to the processes of a target, with a line in the audit log.

use std::io::Write;

use shm_layout::SegmentDir;
use shm_layout::text::{self, PathText as _};

use crate::{Done, note, segments};
use gpushare_base::host::pids;
use gpushare_base::host::signal::{NotSent, SIGNALS, Signalled, started};
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::plain::plain;
use gpushare_control::Installation as _;
use gpushare_control::audit::{AuditLog, Place, Record};
use gpushare_control::targets::{Chosen, Target};
use gpushare_sample::Sample;

/// Send a signal to processes: TERM, unless another is named
///
/// It reaches the process that is meant and no other, even if its pid is used again in the meantime. The audit log has who
/// sent it, and why. What the process held is free for others as soon as it has ended.
#[derive(Debug, clap::Args)]
#[command(after_help = signals())]
pub struct Args {
    /// pid, name:LABEL, group:G, user:U or all
    target: String,
    /// The signal
    #[arg(short, long, value_name = "SIGNAL", default_value = "TERM")]
    signal: String,
    /// Reason for the edit, for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Show the processes that would get the signal; send nothing
    #[arg(long)]
    dry_run: bool,
}

/// Lists the signals with their effects, from the table.
fn signals() -> String {
    SIGNALS
        .map(|(word, _, about)| format!("{word:<6}{about}\n"))
        .concat()
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let target: Target = args.target.parse().map_err(Failure::usage)?;
    let wanted = args.signal.to_ascii_uppercase();
    let wanted = wanted.strip_prefix("SIG").unwrap_or(&wanted);
    let known = SIGNALS.iter().find(|(word, ..)| *word == wanted);
    let (word, signal, _) = *known.ok_or_else(|| {
        let words = SIGNALS.map(|(word, ..)| word).join(", ");
        Failure::usage(format!(
            "{:?} is not a signal that gpushare sends; use {words}",
            args.signal
        ))
    })?;
    if let Some(reason) = &args.reason {
        text::visible(reason).map_err(|error| Failure::usage(format!("--reason: {error}")))?;
    }
    let dir = segments::dir()?;
    let sample = segments::sample(&dir)?;
    let mut failed = None;
    for chosen in target.resolve(&sample)? {
        let signalled = match aim(&chosen, &sample) {
            Ok((pid, started)) => Signalled {
                pid,
                started,
                signal,
                word,
                title: plain(&chosen.title).into(),
            },
            Err(failure) => {
                note(&failure.sentence);
                failed = Some(failure.exit);
                continue;
            }
        };
        if args.dry_run {
            writeln!(out, "SIG{word} would be sent to {}", signalled.title)?;
            continue;
        }
        let sent = signalled.send();
        record(&dir, &signalled, args, sent.as_ref().err());
        match sent {
            Ok(sentence) => {
                writeln!(out, "{sentence}")?;
                note_stopped(&signalled);
            }
            Err(refused) => {
                failed = Some(match refused {
                    NotSent::Gone(_) => Exit::NoSuchTarget,
                    NotSent::NotPermitted(_) => Exit::NotPermitted,
                    NotSent::Failed(_) => Exit::Failed,
                });
                note(&refused.why());
            }
        }
    }
    Ok(failed.unwrap_or(Exit::Done))
}

/// Reports that a stopped process handles the signal only after it continues; the kernel keeps the signal until then.
fn note_stopped(signalled: &Signalled) {
    let Signalled {
        pid, word, title, ..
    } = signalled;
    if matches!(*word, "TERM" | "INT" | "USR1") && pids::is_stopped(*pid) {
        note(&format!(
            "{title} is stopped and handles SIG{word} only once it continues: gpushare kill {pid} --signal CONT"
        ));
    }
}

/// Returns the pid of a chosen process on this machine, and its start time in clock ticks.
fn aim(chosen: &Chosen, sample: &Sample) -> Result<(u32, u64), Failure> {
    let title = plain(&chosen.title);
    let process = sample.process(chosen.slot);
    let pid = process.and_then(|process| process.pid).ok_or_else(|| {
        Failure::failed(format!(
            "{title} has no pid that can be seen from here; run this on its host"
        ))
    })?;
    let started = started(pid)
        .ok_or_else(|| Failure::no_such_target(format!("{title} has ended; nothing was sent")))?;
    Ok((pid, started))
}

/// Writes the line.
fn record(dir: &SegmentDir, signalled: &Signalled, args: &Args, refused: Option<&NotSent>) {
    let log = AuditLog::of(dir);
    let record = Record {
        reason: args.reason.clone(),
        ..Record::of_signal(Place::Ctl, signalled)
    };
    let refusal = refused.map(|refused| refused.sentence().to_owned());
    let record = record.refused(refusal);
    if let Err(error) = log.append(&record)
        && (dir.is_log_ours() || args.reason.is_some())
    {
        note(&format!(
            "{} could not be written: {error}",
            log.path().shown()
        ));
    }
}
