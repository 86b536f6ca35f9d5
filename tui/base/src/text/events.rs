//! Events in words: one word for the kind and a sentence for the details.

use shm_layout::{Phase, What};

use super::units::{short_size, short_time};
use super::{calls, eviction, losses, memory};

/// Colour of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// A common event.
    Dim,
    /// A notable event.
    Title,
    /// An operator's edit.
    Key,
    /// A good result.
    Good,
    /// A warning.
    Warn,
    /// An error.
    Bad,
}

/// The description of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Kind of the event, at most nine letters.
    pub word: &'static str,
    /// Colour of the event.
    pub tone: Tone,
    /// Rest of the sentence; the process is its subject.
    pub text: String,
}

/// Describes an event.
pub fn say(what: &What) -> Said {
    let (word, tone) = kind(what);
    Said {
        word,
        tone,
        text: details(what),
    }
}

/// Returns the word and the colour of an event.
fn kind(what: &What) -> (&'static str, Tone) {
    match *what {
        What::Register => ("start", Tone::Good),
        What::Exit { reaped: false } => ("exit", Tone::Dim),
        What::Exit { reaped: true } => ("exit", Tone::Warn),
        What::Wait => ("wait", Tone::Dim),
        What::Active { waited_ns: 0 } => ("active", Tone::Dim),
        What::Active { .. } => ("active", Tone::Title),
        What::Rest { .. } => ("rest", Tone::Dim),
        What::Back { .. } => ("back", Tone::Dim),
        What::Hold { .. } => ("hold", Tone::Title),
        What::Release { .. } => ("release", Tone::Dim),
        What::Denial { .. } => ("DENIED", Tone::Bad),
        What::Forced { .. } => ("FORCED", Tone::Bad),
        What::Takeover => ("takeover", Tone::Warn),
        What::Lost { .. } => ("CRASH", Tone::Bad),
        What::MemoryWait { .. } => ("memwait", Tone::Title),
        What::MemoryDone { granted: true, .. } => ("memory", Tone::Good),
        What::MemoryDone { granted: false, .. } => ("memory", Tone::Warn),
        What::Residence { phase, why, .. } => residence(phase, why.is_some()),
        What::OverQuota { .. } => ("OVER", Tone::Warn),
        What::Edit { .. } => ("edit", Tone::Key),
        What::Refused => ("FULL", Tone::Bad),
        What::Pick => ("pick", Tone::Dim),
        What::Trouble => ("trouble", Tone::Warn),
        What::Other => ("other", Tone::Dim),
    }
}

fn residence(phase: Phase, is_refused: bool) -> (&'static str, Tone) {
    match phase {
        Phase::Resident if is_refused => ("resident", Tone::Warn),
        Phase::Resident => ("resident", Tone::Good),
        Phase::Lost => ("LOST", Tone::Bad),
        moving => (moving.word().unwrap_or_default(), Tone::Title),
    }
}

/// Returns the details of an event.
fn details(what: &What) -> String {
    match *what {
        What::Register => "began to use the GPU".into(),
        What::Exit { reaped: false } => "left".into(),
        What::Exit { reaped: true } => "died; its memory and lock were released".into(),
        What::Wait => "waits for the lock".into(),
        What::Active { waited_ns: 0 } => "submits beside others".into(),
        What::Active { waited_ns } => format!("held back for {}", short_time(waited_ns)),
        What::Rest { active_ns } => format!("no work left after {}", short_time(active_ns)),
        What::Back { active_ns } => format!("held back after {}", short_time(active_ns)),
        What::Hold { waited_ns } => format!("after {}", short_time(waited_ns)),
        What::Release { reason, held_ns } => {
            format!("after {} ({})", short_time(held_ns), reason.word())
        }
        What::Denial {
            asked_bytes,
            quota_bytes,
            call,
        } => {
            let (asked, quota) = (short_size(asked_bytes), short_size(quota_bytes));
            format!("{asked} over its quota of {quota}{}", by(" by ", call))
        }
        What::Forced { held_ns } => format!("lost the lock after {}", short_time(held_ns)),
        What::Takeover => "its lock was taken over: it died holding it".into(),
        What::Lost { code, call, .. } => {
            let cause = losses::cause(code);
            format!("lost its context: {cause}{}", by(", told by ", call))
        }
        What::MemoryWait { asked_bytes, limit } => {
            let (asked, full) = (short_size(asked_bytes), memory::full(limit));
            format!("waits for {asked}: {full}")
        }
        What::MemoryDone { waited_ns, granted } => {
            let done = match granted {
                true => "has its memory",
                false => "gave up waiting for memory",
            };
            format!("{done} after {}", short_time(waited_ns))
        }
        What::Residence {
            phase,
            why,
            code,
            took_ms,
            bytes,
        } => eviction::event(phase, why, code, took_ms, bytes),
        What::OverQuota {
            used_bytes,
            quota_bytes,
        } => format!(
            "holds {} of {}",
            short_size(used_bytes),
            short_size(quota_bytes)
        ),
        What::Edit { generation } => format!("generation {generation}; the audit log says what"),
        What::Refused => "a process found no free slot".into(),
        What::Pick => "claimed by gpushare pick".into(),
        What::Trouble => "the library met a case it does not know".into(),
        What::Other => "an event unknown to this program".into(),
    }
}

/// Names a call behind these words; empty for no known call.
fn by(words: &str, call: Option<u16>) -> String {
    let name = call.and_then(calls::name);
    name.map_or_else(String::new, |name| format!("{words}{name}"))
}
