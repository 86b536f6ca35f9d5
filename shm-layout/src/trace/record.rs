//! The encoding of a record.

use crate::value::{ALL_REASONS, Reason};

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A driver call; `argument` is the bytes it moved, allocated or was asked for.
    Call,
    /// A wait for the device's lock, within the call that the thread is in.
    Wait,
    /// A hold of the device's lock; the reason names its end.
    Hold,
    /// An allocation refused: `argument` bytes. It lasts no time of its own.
    Denial,
}

/// One record of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'r> {
    /// Kind of the record.
    pub kind: Kind,
    /// Start time.
    pub start_ns: u64,
    /// Duration.
    pub duration_ns: u64,
    /// Bytes, of a call or a denial; 0 where there are none.
    pub bytes: u64,
    /// The thread, in the process's own namespace; 0 if it belongs to no thread.
    pub tid: u32,
    /// The call's code in this file.
    pub call: u16,
    /// The call's exported name; `None` for what belongs to no call.
    pub name: Option<&'r str>,
    /// The process's own ordinal of the device; see [`Header::devices`](super::Header::devices).
    pub device: Option<u8>,
    /// The reason that a hold ended; `None` for a hold that lasted when the trace stopped.
    pub reason: Option<Reason>,
}

/// A record's words behind its times, in Rust's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct What {
    pub(super) kind: Kind,
    pub(super) tid: u32,
    pub(super) call: u16,
    pub(super) device: u8,
}

/// The call code of what belongs to no call.
pub(super) const NO_CALL: u16 = u16::MAX;
/// The ordinal of a device that is not known.
pub(super) const NO_DEVICE: u8 = u8::MAX;

impl What {
    /// Never zero.
    pub(super) fn to_word(self) -> u64 {
        let kind: u64 = match self.kind {
            Kind::Call => 1,
            Kind::Wait => 2,
            Kind::Hold => 3,
            Kind::Denial => 4,
        };
        u64::from(self.tid) | u64::from(self.call) << 32 | u64::from(self.device) << 48 | kind << 56
    }

    /// `None` for zero and for values that are never written.
    pub(super) fn from_word(word: u64) -> Option<What> {
        let kind = match word >> 56 {
            1 => Kind::Call,
            2 => Kind::Wait,
            3 => Kind::Hold,
            4 => Kind::Denial,
            _ => return None,
        };
        Some(What {
            kind,
            tid: word as u32,
            call: (word >> 32) as u16,
            device: (word >> 48) as u8,
        })
    }
}

/// The argument of a hold: how it ended.
pub(super) fn reason_word(reason: Option<Reason>) -> u64 {
    reason.map_or(0, |reason| reason as u64 + 1)
}

impl<'r> Record<'r> {
    /// From a line's words; `None` for words that are never written. `name` knows the calls.
    pub(super) fn decode(
        [start_ns, duration_ns, argument, what]: [u64; 4],
        name: impl Fn(u16) -> Option<&'r str>,
    ) -> Option<Record<'r>> {
        let What {
            kind,
            tid,
            call,
            device,
        } = What::from_word(what)?;
        start_ns.checked_add(duration_ns)?;
        let reason = match (kind, argument) {
            (Kind::Hold, 1..) => Some(*ALL_REASONS.get(usize::try_from(argument).ok()? - 1)?),
            _ => None,
        };
        let name = match call {
            NO_CALL => None,
            call => Some(name(call)?),
        };
        Some(Record {
            kind,
            start_ns,
            duration_ns,
            bytes: if kind == Kind::Hold { 0 } else { argument },
            tid,
            call,
            name,
            device: Some(device).filter(|device| *device != NO_DEVICE),
            reason,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_words_decode_to_nothing_or_to_a_record_with_an_end(words: [u64; 4]) {
            if let Some(record) = Record::decode(words, |_| Some("cuInit")) {
                prop_assert!(record.start_ns.checked_add(record.duration_ns).is_some());
            }
        }

        #[test]
        fn what_a_record_is_comes_back_from_its_word(tid: u32, call: u16, device: u8) {
            for kind in [Kind::Call, Kind::Wait, Kind::Hold, Kind::Denial] {
                let what = What { kind, tid, call, device };
                prop_assert_eq!(What::from_word(what.to_word()), Some(what));
            }
        }
    }

    #[test]
    fn a_line_that_was_never_finished_is_no_record() {
        assert_eq!(Record::decode([5, 6, 7, 0], |_| Some("cuInit")), None);
    }
}
