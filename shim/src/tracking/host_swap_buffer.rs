//! Host memory that evicted memory is copied to. What it has grown to is kept for the next time.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gpushare_abi::types::CUdeviceptr;

/// Memory of the host at consecutive addresses.
#[derive(Debug)]
pub struct Piece {
    /// Its first address.
    pub start: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The context that it is pinned in; 0 for none.
    pub pinned_in: usize,
}

/// The pieces, and what lies in them.
#[derive(Debug, Default)]
pub struct HostSwapBuffer {
    /// In the order in which they are filled.
    pub pieces: Vec<Piece>,
    /// The allocations that lie in them, one behind the other, with their bytes.
    pub order: Vec<(CUdeviceptr, u64)>,
}

impl HostSwapBuffer {
    /// Bytes of the host that it has.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }
}

/// Where the next bytes lie.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    piece: usize,
    offset: u64,
}

impl Cursor {
    /// The piece that is next, if there is one.
    pub fn piece(self) -> usize {
        self.piece
    }

    /// Where at most so many bytes lie, and how many of them.
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

/// The process's swap buffer. Whoever fills or empties it holds its lock meanwhile, over calls of the driver too: all others wait at
/// the door then.
#[derive(Default)]
pub struct SharedSwapBuffer(Mutex<HostSwapBuffer>);

impl SharedSwapBuffer {
    /// Opens the book.
    pub fn lock(&self) -> MutexGuard<'_, HostSwapBuffer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of the host that it has.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes()
    }

    /// A context has gone, and what was pinned in it is pinned no longer.
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
