//! The queue for a device's memory: which processes wait, which are woken when bytes are given back, and whose turn it is.
//!
//! ```text
//!   who waits                            who gives back
//!   its bit in the line                  used -= bytes
//!   listen: bell |= LISTENING            look at the bell
//!   fence                                marked? strike it, wake
//!   look: is there room, is it mine?
//!   sleep while the bell is the same
//! ```
//!
//! * The listener marks the bell and then adds up; the giver subtracts and then looks at the bell. One of them sees the other,
//!   so a waiting process notices bytes that are given back.
//! * Nothing is handed over: a process that finds its turn and room takes the bytes as any allocation does
//!   ([`account`](super::account)). So a waiter that dies holds nothing. If a giver dies before it strikes, the sleepers still
//!   look again by themselves.
//! * Bytes that are *promised* are in an account before the driver has given them. An allocating process adds to its account
//!   and then looks whether any bytes are promised. A promising process sets its bit and then adds up. One of them sees the
//!   other.

use super::bell;
use crate::protocol::primitive::{AtomicU32, AtomicU64, Ordering, fence, in_one_order};

/// Sets a slot's bit. From then on allocating processes check the queue.
pub fn join(bits: &[AtomicU64], slot: usize) {
    if let Some(word) = bits.get(slot / 64) {
        // ORDER: SeqCst, before our sums; see the fence.
        word.fetch_or(1 << (slot % 64), Ordering::SeqCst);
    }
    // ORDER: SeqCst, between our bit and our sums; pairs with an allocation's step from its account to the bits.
    fence(Ordering::SeqCst);
}

/// Takes it out.
pub fn leave(bits: &[AtomicU64], slot: usize) {
    if let Some(word) = bits.get(slot / 64) {
        word.fetch_and(!(1 << (slot % 64)), Ordering::Relaxed);
    }
}

/// Returns true if any bit is set. The caller has already added to its account.
#[inline(always)]
pub fn is_busy(bits: &[AtomicU64; 4]) -> bool {
    in_one_order();
    // ORDER: SeqCst, behind the addition to the account in the one order of both; pairs with join.
    bits.iter()
        .fold(0, |all, word| all | word.load(Ordering::SeqCst))
        != 0
}

/// Starts to listen: from here on bytes that are given back wake this process. Returns the value to sleep on; look at the
/// accounts *after* this call and before the sleep.
pub fn listen(word: &AtomicU32) -> u32 {
    let seen = bell::listen(word);
    // ORDER: SeqCst, between our mark and our sums; pairs with a giver's step from its account to the bell.
    fence(Ordering::SeqCst);
    seen
}

/// Bytes have left an account. True if sleepers on the bell have to be woken.
#[inline(always)]
#[must_use = "a sleeper that is not woken sleeps on"]
pub fn came_back(word: &AtomicU32) -> bool {
    in_one_order();
    // ORDER: SeqCst, behind the subtraction from the account in the one order of both; pairs with listen.
    bell::has_listener_now(word) && bell::strike(word)
}

/// The limit that a process waits for. It decides which later processes have to wait behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// For its own quota: it keeps no other process from anything.
    Own,
    /// For the quota of this group (index + 1).
    Group(u32),
    /// For the device.
    Device,
}

/// One waiting process's position in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Higher first.
    pub priority: i32,
    /// What the process has lacked: its bytes times its wait. Higher first. Equal for all where the order is by ticket alone.
    pub lack: u64,
    /// Lower first.
    pub ticket: u64,
    /// The limit that the process waits for.
    pub scope: Scope,
}

impl Position {
    /// Returns true if this process comes before `other`: by priority, then by what it has lacked, then by ticket.
    pub fn precedes(&self, other: &Position) -> bool {
        (self.priority, self.lack, other.ticket) > (other.priority, other.lack, self.ticket)
    }

    /// Returns true if a later process of this group (index + 1, 0 for none) has to let this one go first.
    pub fn blocks(&self, group: u32) -> bool {
        match self.scope {
            Scope::Own => false,
            Scope::Group(waited_for) => waited_for == group,
            Scope::Device => true,
        }
    }
}

/// Returns true if `me`, of this group, may take the free bytes: no earlier process waits for the same limit.
pub fn is_next(me: &Position, group: u32, others: impl IntoIterator<Item = Position>) -> bool {
    !others
        .into_iter()
        .any(|other| other.precedes(me) && other.blocks(group))
}
