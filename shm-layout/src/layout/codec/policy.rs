//! Lock policies as words.

use crate::{
    layout::state::POLICY_WORDS,
    value::{LockPolicy, Order, PolicyKind},
};

const US: u64 = 1_000;
/// Beside the overlap, which has half a word.
const SWAP: u64 = 1 << 32;

pub(crate) fn policy_words(policy: Option<LockPolicy>) -> [u64; POLICY_WORDS] {
    let Some(policy) = policy else {
        return [0; POLICY_WORDS];
    };
    let (kind, amount) = match policy.kind {
        PolicyKind::Off => (0, 0),
        PolicyKind::Launches(count) => (1, u64::from(count)),
        PolicyKind::Timeslice(ns) => (2, ns),
        PolicyKind::Always => (3, 0),
        PolicyKind::Overlap(ahead) => (4, ahead.unwrap_or(0)),
    };
    let order = u64::from(policy.order.code());
    let first = 1 | kind << 8 | order << 16 | u64::from(policy.sync_skips) << 32;
    [
        first,
        amount,
        policy.idle_ns.unwrap_or(0),
        policy.max_hold_ns,
        policy.grace_ns,
        (policy.overlap_ns / US) & u64::from(u32::MAX) | if policy.swap { SWAP } else { 0 },
    ]
}

pub(crate) fn policy_of(words: &[u64; POLICY_WORDS]) -> Option<LockPolicy> {
    if words[0] & 0xff != 1 {
        return None;
    }
    let kind = match words[0] >> 8 & 0xff {
        0 => PolicyKind::Off,
        1 => PolicyKind::Launches(u32::try_from(words[1]).ok()?),
        2 => PolicyKind::Timeslice(words[1]),
        3 => PolicyKind::Always,
        4 => PolicyKind::Overlap((words[1] != 0).then_some(words[1])),
        _ => return None,
    };
    let order = Order::of_code(words[0] >> 16 & 0xff)?;
    let policy = LockPolicy {
        kind,
        order,
        idle_ns: (words[2] != 0).then_some(words[2]),
        max_hold_ns: words[3],
        grace_ns: words[4],
        sync_skips: (words[0] >> 32) as u32,
        overlap_ns: (words[5] & u64::from(u32::MAX)) * US,
        swap: words[5] & SWAP != 0,
    };
    policy.check().is_ok().then_some(policy)
}
