//! What a thread did on one device: plain counters with one writer.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a thread did on one device. Only that thread writes; the keeper adds up all threads' tallies.
#[derive(Default)]
#[repr(align(64))]
pub struct Tally {
    /// Kernel launches.
    pub launches: AtomicU64,
    /// Graph launches.
    pub graphs: AtomicU64,
    /// Copies.
    pub copies: AtomicU64,
    /// Bytes copied.
    pub copy_bytes: AtomicU64,
    /// Memsets.
    pub memsets: AtomicU64,
    /// Explicit synchronisations.
    pub syncs: AtomicU64,
    /// Launches recorded into a capture.
    pub captured: AtomicU64,
    /// Calls that found the gate closed.
    pub gate_misses: AtomicU64,
    /// Allocations granted.
    pub allocations: AtomicU64,
    /// Frees.
    pub frees: AtomicU64,
}

/// Adds without a locked instruction: the word has one writer.
#[inline(always)]
pub fn add(word: &AtomicU64, n: u64) {
    word.store(word.load(Relaxed).wrapping_add(n), Relaxed);
}

/// What is submitted, for the counters.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// A kernel.
    Kernel,
    /// A graph.
    Graph,
    /// An asynchronous copy of so many bytes.
    Copy(usize),
    /// Several copies at once, and the bytes of all.
    Copies(usize, usize),
    /// A memset.
    Memset,
}

impl Work {
    /// The same in plain numbers, which a caller keeps in registers: its kind, copies and bytes.
    #[inline(always)]
    pub fn to_parts(self) -> (u8, usize, usize) {
        match self {
            Self::Kernel => (0, 0, 0),
            Self::Graph => (1, 0, 0),
            Self::Memset => (2, 0, 0),
            Self::Copy(bytes) => (3, 1, bytes),
            Self::Copies(count, bytes) => (4, count, bytes),
        }
    }

    /// What [`to_parts`](Self::to_parts) was made from.
    pub fn from_parts((kind, copies, bytes): (u8, usize, usize)) -> Self {
        match kind {
            0 => Self::Kernel,
            1 => Self::Graph,
            2 => Self::Memset,
            3 => Self::Copy(bytes),
            _ => Self::Copies(copies, bytes),
        }
    }

    /// The bytes it moves.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Copy(bytes) | Self::Copies(_, bytes) => bytes as u64,
            Self::Kernel | Self::Graph | Self::Memset => 0,
        }
    }

    /// Counts it.
    #[inline(always)]
    pub fn count(self, tally: &Tally) {
        match self {
            Self::Kernel => add(&tally.launches, 1),
            Self::Graph => add(&tally.graphs, 1),
            Self::Copy(bytes) => {
                add(&tally.copies, 1);
                add(&tally.copy_bytes, bytes as u64);
            }
            Self::Copies(count, bytes) => {
                add(&tally.copies, count as u64);
                add(&tally.copy_bytes, bytes as u64);
            }
            Self::Memset => add(&tally.memsets, 1),
        }
    }
}
