//! The encoding of a process's report on its context on a device.

use crate::value::Loss;

/// The contexts belong to MPS, and the client has normal priority.
pub(crate) const MPS: u32 = 2;
/// The contexts belong to MPS, and the client has a priority below normal: MPS runs the kernels of other clients first.
pub(crate) const MPS_BELOW: u32 = 3;

/// Encodes the state of MPS: a client or not, and whether MPS was given a priority below normal.
pub(crate) fn mps_word(mps: bool, below_normal: bool) -> u32 {
    match (mps, below_normal) {
        (false, _) => 1,
        (true, false) => MPS,
        (true, true) => MPS_BELOW,
    }
}

/// Returns true if the contexts belong to MPS; `None` is unknown.
pub(crate) fn mps_of(word: u32) -> Option<bool> {
    match word {
        1 => Some(false),
        MPS | MPS_BELOW => Some(true),
        _ => None,
    }
}

/// The longest idle time that a word holds.
const IDLE: u32 = u32::MAX >> 1;

/// Encodes a loss; never zero, because bit 63 is set.
pub(crate) fn loss_word(loss: &Loss) -> u64 {
    u64::from(loss.code)
        | u64::from(loss.call.unwrap_or(u16::MAX)) << 16
        | u64::from(loss.idle_ms.min(IDLE)) << 32
        | 1 << 63
}

pub(crate) fn loss_of(word: u64, time_ns: u64) -> Option<Loss> {
    let call = (word >> 16) as u16;
    (word != 0).then_some(Loss {
        code: word as u16,
        call: (call != u16::MAX).then_some(call),
        time_ns,
        idle_ms: (word >> 32) as u32 & IDLE,
    })
}
