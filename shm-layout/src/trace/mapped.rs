//! A buffer's bytes as its types. The file is mapped whole, or the memory is our own.

#![expect(
    unsafe_code,
    reason = "the two casts from mapped bytes to the buffer's types"
)]

use memmap2::MmapRaw;

use super::{Line, Tables, size};

/// The tables and the lines behind them.
pub(super) struct Mapped {
    map: MmapRaw,
    records: u32,
}

impl Mapped {
    /// Makes the view; `None` where the mapping is too short for `records`.
    pub(super) fn new(map: MmapRaw, records: u32) -> Option<Mapped> {
        (map.len() as u64 >= size(records)).then_some(Mapped { map, records })
    }

    pub(super) fn tables(&self) -> &Tables {
        // SAFETY: `new` checked the length, a mapping is page-aligned and lives as long as `self`, and Tables is
        // Shared: atomics only, any bytes valid.
        unsafe { &*self.map.as_ptr().cast::<Tables>() }
    }

    pub(super) fn lines(&self) -> &[Line] {
        let first = self.map.as_ptr().wrapping_add(size_of::<Tables>()).cast();
        // SAFETY: as for the tables; they end at a multiple of a line's alignment.
        unsafe { std::slice::from_raw_parts(first, self.records as usize) }
    }
}

const _: () = assert!(size_of::<Tables>().is_multiple_of(align_of::<Line>()));
