//! Trace buffers of a process: a file that is checked from end to end, or memory of its own.

use std::{fs::File, os::unix::fs::MetadataExt as _, path::Path};

use memmap2::{MmapOptions, MmapRaw};
use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
};

use super::{
    Buffer, CALLS, Line, RECORDS, TraceError, VERSION,
    create::moment,
    layout::{MAGIC, Mapped},
    name_of, size,
};
use crate::{
    files::{create::boot_id, locate},
    layout::codec,
    os::clock,
    protocol::{crash::crash_point, primitive::Ordering},
    value::{SlotId, Uuid},
};

/// Facts about a process, which it writes into a buffer that it takes over.
#[derive(Clone, Copy, Debug)]
pub struct Guest<'g> {
    /// The exported names behind the call codes, by code.
    pub calls: &'g [&'g str],
    /// Devices, by the process's own ordinals.
    pub devices: &'g [Uuid],
}

/// Allocates the holes in a file. The maker left none, but a file that another program put here may have some, and there may be
/// no room for them. A file system that cannot allocate (or packs what it stores) is used as it is.
fn fill_holes(path: &Path, file: &File, records: u32) -> Result<(), TraceError> {
    let want = size(records);
    match fallocate(file, FallocateFlags::empty(), 0, want) {
        Err(Errno::NOSPC | Errno::DQUOT) => Err(TraceError::NoSpace {
            path: path.to_path_buf(),
            want,
        }),
        _ => Ok(()),
    }
}

impl Buffer {
    /// Takes over the buffer that was made for this life of a slot. Checks the whole file first, and keeps its records.
    pub fn adopt(dir: &Path, slot: SlotId, guest: Guest<'_>) -> Result<Buffer, TraceError> {
        let dir = locate::open_shared(dir).map_err(TraceError::Dir)?;
        let path = dir.path().join(name_of(slot));
        let foreign = |why| TraceError::Foreign {
            path: path.clone(),
            why,
        };
        let file = dir.existing(&name_of(slot), true)?;
        let meta = file.metadata().map_err(TraceError::io(&path, "look at"))?;
        let least = size(*RECORDS.start());
        if meta.len() < least || meta.len() > size(*RECORDS.end()) {
            return Err(foreign("its size is not that of a buffer"));
        }
        let records = u32::try_from((meta.len() - size(0)) / size_of::<Line>() as u64).unwrap_or(0);
        if !RECORDS.contains(&records) || meta.len() != size(records) {
            return Err(foreign("its size is not that of a buffer"));
        }
        if meta.blocks().saturating_mul(512) < meta.len() {
            fill_holes(&path, &file, records)?;
        }
        let map = MmapOptions::new()
            .len(size(records) as usize)
            .map_raw(&file)
            .map_err(TraceError::io(&path, "map"))?;
        let mapped = Mapped::new(map, records).ok_or_else(|| foreign("it is cut short"))?;
        let head = &mapped.tables().head;
        let version = head.version.load(Ordering::Relaxed);
        if head.magic.load(Ordering::Relaxed) != MAGIC || version == 0 {
            return Err(foreign("it does not begin with a buffer's header"));
        }
        if version != VERSION {
            return Err(TraceError::WrongVersion {
                path,
                theirs: version,
            });
        }
        let says = (
            head.capacity.load(Ordering::Relaxed),
            head.size.load(Ordering::Relaxed),
        );
        if says != (records, size(records)) {
            return Err(foreign("its size is not the one in its header"));
        }
        let boot = [&head.boot[0], &head.boot[1]].map(|word| word.load(Ordering::Relaxed));
        if head.who.load(Ordering::Relaxed) != slot.to_word() || boot != boot_id() {
            return Err(TraceError::NotIts { path });
        }
        Ok(Buffer(mapped).begun(guest))
    }

    /// A buffer in this process's private memory.
    pub fn private(records: u32, guest: Guest<'_>) -> Result<Buffer, TraceError> {
        let records = records.clamp(*RECORDS.start(), *RECORDS.end());
        let here = Path::new("memory");
        let map = MmapOptions::new()
            .len(size(records) as usize)
            .map_anon()
            .map_err(TraceError::io(here, "map"))?;
        let foreign = || TraceError::Foreign {
            path: here.to_path_buf(),
            why: "it is cut short",
        };
        let mapped = Mapped::new(MmapRaw::from(map), records).ok_or_else(foreign)?;
        let (boottime, realtime) = moment();
        let head = &mapped.tables().head;
        head.boottime_ns.store(boottime, Ordering::Relaxed);
        head.realtime_ns.store(realtime, Ordering::Relaxed);
        Ok(Buffer(mapped).begun(guest))
    }

    fn begun(self, guest: Guest<'_>) -> Buffer {
        let tables = self.0.tables();
        let head = &tables.head;
        for (name, text) in tables.names.iter().zip(guest.calls) {
            let mut words = [0; 8];
            codec::text_words(text, &mut words);
            for (word, value) in name.text.iter().zip(words) {
                word.store(value, Ordering::Relaxed);
            }
        }
        crash_point!("trace:named");
        for (words, uuid) in head.devices.iter().zip(guest.devices) {
            let (low, high) = codec::uuid_words(uuid);
            words[0].store(low, Ordering::Relaxed);
            words[1].store(high, Ordering::Relaxed);
        }
        let count = |len: usize, most: usize| len.min(most) as u32;
        head.calls_named
            .store(count(guest.calls.len(), CALLS), Ordering::Relaxed);
        head.devices_named.store(
            count(guest.devices.len(), head.devices.len()),
            Ordering::Relaxed,
        );
        let now = clock::now();
        // A buffer that was stopped and is wanted again continues.
        let _ = head
            .started_ns
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        head.stopped_ns.store(0, Ordering::Relaxed);
        head.seen_ns.store(now, Ordering::Relaxed);
        crash_point!("trace:begun");
        self
    }
}
