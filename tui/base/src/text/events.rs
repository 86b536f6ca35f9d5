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
    /// Kind of the event, at most eight letters.
    pub word: &'static str,
    /// Colour of the event.
    pub tone: Tone,
    /// Rest of the sentence; the process is its subject.
    pub text: String,
}

/// Describes an event.
pub fn say(what: &What) -> Said {
    let (word, tone, text) = match *what {
        What::Register => ("start", Tone::Good, "began to use the GPU".into()),
        What::Exit { reaped: false } => ("exit", Tone::Dim, "left".into()),
        What::Exit { reaped: true } => (
            "exit",
            Tone::Warn,
            "died; its memory and lock were released".into(),
        ),
        What::Wait => ("wait", Tone::Dim, "waits for the lock".into()),
        What::Active { waited_ns: 0 } => ("active", Tone::Dim, "submits beside others".into()),
        What::Active { waited_ns } => (
            "active",
            Tone::Title,
            format!("held back for {}", short_time(waited_ns)),
        ),
        What::Rest { active_ns } => (
            "rest",
            Tone::Dim,
            format!("no work left after {}", short_time(active_ns)),
        ),
        What::Back { active_ns } => (
            "back",
            Tone::Dim,
            format!("held back after {}", short_time(active_ns)),
        ),
        What::Hold { waited_ns } => (
            "hold",
            Tone::Title,
            format!("after {}", short_time(waited_ns)),
        ),
        What::Release { reason, held_ns } => (
            "release",
            Tone::Dim,
            format!("after {} ({})", short_time(held_ns), reason.word()),
        ),
        What::Denial {
            asked_bytes,
            quota_bytes,
            call,
        } => (
            "DENIED",
            Tone::Bad,
            format!(
                "{} over its quota of {}{}",
                short_size(asked_bytes),
                short_size(quota_bytes),
                call.and_then(calls::name)
                    .map(|name| format!(" by {name}"))
                    .unwrap_or_default()
            ),
        ),
        What::Forced { held_ns } => (
            "FORCED",
            Tone::Bad,
            format!("lost the lock after {}", short_time(held_ns)),
        ),
        What::Takeover => (
            "takeover",
            Tone::Warn,
            "its lock was taken over: it died holding it".into(),
        ),
        What::Lost { code, call, .. } => (
            "CRASH",
            Tone::Bad,
            format!(
                "lost its context: {}{}",
                losses::cause(code),
                call.and_then(calls::name)
                    .map(|name| format!(", told by {name}"))
                    .unwrap_or_default()
            ),
        ),
        What::MemoryWait { asked_bytes, limit } => (
            "memwait",
            Tone::Title,
            format!(
                "waits for {}: {}",
                short_size(asked_bytes),
                memory::full(limit)
            ),
        ),
        What::MemoryDone {
            waited_ns,
            granted: true,
        } => (
            "memory",
            Tone::Good,
            format!("has its memory after {}", short_time(waited_ns)),
        ),
        What::MemoryDone {
            waited_ns,
            granted: false,
        } => (
            "memory",
            Tone::Warn,
            format!("gave up waiting for memory after {}", short_time(waited_ns)),
        ),
        What::Residence {
            phase,
            why,
            code,
            took_ms,
            bytes,
        } => {
            let (word, text) = eviction::event(phase, why, code, took_ms, bytes);
            let tone = match (phase, why) {
                (Phase::Lost, _) => Tone::Bad,
                (Phase::Resident, Some(_)) => Tone::Warn,
                (Phase::Resident, None) => Tone::Good,
                _ => Tone::Title,
            };
            (word, tone, text)
        }
        What::OverQuota {
            used_bytes,
            quota_bytes,
        } => (
            "OVER",
            Tone::Warn,
            format!(
                "holds {} of {}",
                short_size(used_bytes),
                short_size(quota_bytes)
            ),
        ),
        What::Edit { generation } => (
            "edit",
            Tone::Key,
            format!("generation {generation}; the audit log says what"),
        ),
        What::Refused => ("FULL", Tone::Bad, "a process found no free slot".into()),
        What::Pick => ("pick", Tone::Dim, "claimed by gpushare pick".into()),
        What::Trouble => (
            "trouble",
            Tone::Warn,
            "the library met a case it does not know".into(),
        ),
        What::Other => (
            "other",
            Tone::Dim,
            "an event unknown to this program".into(),
        ),
    };
    Said { word, tone, text }
}
