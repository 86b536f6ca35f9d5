//! The host swap buffer: host memory to which evicted memory is copied. It is kept for the next eviction.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gpushare_abi::types::CUdeviceptr;

/// A range of host memory.
#[derive(Debug)]
pub struct Piece {
    /// The first address.
    pub start: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// The context in which the piece is pinned; 0 for none.
    pub pinned_in: usize,
}

/// The pieces of the swap buffer, and the allocations in them.
#[derive(Debug, Default)]
pub struct HostSwapBuffer {
    /// The pieces, in the order in which they are filled.
    pub pieces: Vec<Piece>,
    /// The allocations in the pieces, one behind the other, with their bytes.
    pub order: Vec<(CUdeviceptr, u64)>,
}

impl HostSwapBuffer {
    /// Returns the size of the buffer in bytes.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }
}

/// The position of the next bytes in the swap buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    piece: usize,
    offset: u64,
}

impl Cursor {
    /// Returns the index of the next piece, which may not exist yet.
    pub fn piece(self) -> usize {
        self.piece
    }

    /// Returns the address of the next bytes and their number, at most `most`, and moves past them. Returns `None` at
    /// the end.
    pub fn take(&mut self, swap_buffer: &HostSwapBuffer, most: u64) -> Option<(u64, u64)> {
        let piece = swap_buffer.pieces.get(self.piece)?;
        let (at, bytes) = (
            piece.start + self.offset,
            most.min(piece.bytes - self.offset),
        );
        self.offset += bytes;
        if self.offset == piece.bytes {
            (self.piece, self.offset) = (self.piece + 1, 0);
        }
        Some((at, bytes))
    }
}

/// The process's swap buffer. An eviction and a restore hold its lock, also over driver calls, because the
/// application's calls are suspended then.
#[derive(Default)]
pub struct SharedSwapBuffer(Mutex<HostSwapBuffer>);

impl SharedSwapBuffer {
    /// Locks the buffer.
    pub fn lock(&self) -> MutexGuard<'_, HostSwapBuffer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the size of the buffer in bytes.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes()
    }

    /// Records that a context was destroyed, so that its pieces are no longer pinned.
    pub fn context_gone(&self, context: u64) {
        for piece in &mut self.lock().pieces {
            if piece.pinned_in as u64 == context {
                piece.pinned_in = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_in_the_same_order_lies_in_the_same_places() {
        let piece = |start, bytes| Piece {
            start,
            bytes,
            pinned_in: 7,
        };
        let mut swap_buffer = HostSwapBuffer::default();
        swap_buffer.pieces.push(piece(1000, 100));
        let mut cursor = Cursor::default();
        assert_eq!(cursor.take(&swap_buffer, 60), Some((1000, 60)));
        assert_eq!(cursor.take(&swap_buffer, 60), Some((1060, 40)));
        assert_eq!(cursor.take(&swap_buffer, 20), None);
        swap_buffer.pieces.push(piece(5000, 50));
        assert_eq!(
            (cursor.piece(), cursor.take(&swap_buffer, 20)),
            (1, Some((5000, 20)))
        );
        assert_eq!(swap_buffer.bytes(), 150);
        let table = SharedSwapBuffer::default();
        *table.lock() = swap_buffer;
        table.context_gone(7);
        assert!(table.lock().pieces.iter().all(|piece| piece.pinned_in == 0));
    }
}
