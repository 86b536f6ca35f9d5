//! Memory of another process: an exporter's allocation, mapped here.
//!
//! All device memory of a process lies in one unnamed file ([`heap::region`]). A handle says which process,
//! which of its descriptors and which bytes; the importer opens that file through `/proc` and maps the
//! bytes, so both see the same. Imported memory is charged to its exporter only. An event is
//! found in the same way. It works between processes of one user and one pid namespace.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    os::fd::AsRawFd,
    sync::Mutex,
};

use gpushare_abi::{
    errors::{
        CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE,
        CUDA_ERROR_MAP_FAILED, CUerror, CUresult,
    },
    types::{
        CU_EVENT_DISABLE_TIMING, CU_EVENT_INTERPROCESS, CUdeviceptr, CUevent, CUipcEventHandle,
        CUipcMemHandle,
    },
};

use crate::{
    c::Out,
    capture,
    context::{self, current},
    driver::driver,
    event::{self, Event, shared::Shared},
    faces::faces,
    handles::lock,
    memory::heap::{self, Kind},
    stream::Mark,
};

/// The first bytes of a handle of memory, and of one of an event.
const MEMORY: u64 = u64::from_le_bytes(*b"GPUSIM\0I");
const EVENT: u64 = u64::from_le_bytes(*b"GPUSIM\0E");
const PAGE: u64 = 4096;

/// The contents of a handle's 64 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Told {
    pid: u64,
    descriptor: u64,
    /// Offset in the file: in bytes, for an event in pages.
    offset: u64,
    bytes: u64,
    /// The exporter's number of the allocation.
    id: u64,
    /// The device's index in the world.
    device: u64,
}

impl Told {
    fn write(self, magic: u64) -> [u8; 64] {
        let words = [
            magic,
            self.pid,
            self.descriptor,
            self.offset,
            self.bytes,
            self.id,
            self.device,
            0,
        ];
        let mut bytes = [0; 64];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn read(bytes: &[u8; 64], wanted: u64) -> Result<Self, CUerror> {
        let mut words = [0; 8];
        for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            let mut eight = [0; 8];
            eight.copy_from_slice(place);
            *word = u64::from_le_bytes(eight);
        }
        let [magic, pid, descriptor, offset, bytes, id, device, _] = words;
        let sane = offset.checked_add(bytes).is_some_and(|end| end < 1 << 48);
        if magic != wanted || !sane || (bytes == 0 && wanted == MEMORY) {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        Ok(Self {
            pid,
            descriptor,
            offset,
            bytes,
            id,
            device,
        })
    }
}

/// An allocation of another process, mapped here.
#[derive(Clone, Copy, Debug)]
struct Import {
    address: u64,
    references: u32,
}

static IMPORTS: Mutex<BTreeMap<Told, Import>> = Mutex::new(BTreeMap::new());

fn export(address: u64) -> Result<Told, CUerror> {
    let block = heap::find(address).filter(|block| block.kind == Kind::Device);
    let block = block.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let region = heap::region()?;
    Ok(Told {
        pid: std::process::id().into(),
        descriptor: region.file.as_raw_fd() as u64,
        offset: block.base - region.base,
        bytes: block.bytes,
        id: block.id,
        device: driver()?.device(block.device)?.index as u64,
    })
}

/// Maps the memory that a handle describes, or adds a user of an existing mapping.
fn open(told: Told) -> Result<u64, CUerror> {
    let context = current()?;
    if told.pid == u64::from(std::process::id()) {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    let mut imports = lock(&IMPORTS);
    if let Some(import) = imports.get_mut(&told) {
        import.references += 1;
        return Ok(import.address);
    }
    let path = format!("/proc/{}/fd/{}", told.pid, told.descriptor);
    let file = region_of(&path).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    let (device, handle) = (context.device, context.owner);
    let address = show(&file, told.offset, told.bytes, device, handle)?;
    imports.insert(
        told,
        Import {
            address,
            references: 1,
        },
    );
    Ok(address)
}

fn close(address: u64) -> CUresult {
    let context = current()?;
    let mut imports = lock(&IMPORTS);
    let found = imports.iter().find(|(_, import)| import.address == address);
    let told = *found.ok_or(CUDA_ERROR_INVALID_VALUE)?.0;
    let Some(import) = imports
        .get_mut(&told)
        .filter(|import| import.references > 1)
    else {
        context.synchronize();
        imports.remove(&told);
        return hide(address);
    };
    import.references -= 1;
    Ok(())
}

/// Opens the file with another process's device memory, if a descriptor's path leads to one.
pub fn region_of(path: &str) -> Option<File> {
    let link = std::fs::read_link(path).ok()?;
    if !link.to_string_lossy().contains("gpushare-sim-device") {
        return None;
    }
    OpenOptions::new().read(true).write(true).open(path).ok()
}

/// Maps bytes of such a file, for a device and a context.
pub fn show(
    file: &File,
    offset: u64,
    bytes: u64,
    device: i32,
    context: u64,
) -> Result<u64, CUerror> {
    let (first, within) = (offset / PAGE * PAGE, offset % PAGE);
    let mapped = heap::map(file.as_raw_fd(), first, within + bytes);
    let address = mapped.ok_or(CUDA_ERROR_MAP_FAILED)? + within;
    heap::note(address, bytes, device, context, Kind::Imported)?;
    Ok(address)
}

/// A mapping that is no allocation any more.
#[derive(Debug)]
struct Leaving {
    first: u64,
    bytes: u64,
    /// The work that was queued when the allocation was freed.
    after: Vec<Mark>,
}

static LEAVING: Mutex<Vec<Leaving>> = Mutex::new(Vec::new());

/// Frees them. A free does not wait for the work in other streams, which would crash the process if the bytes were unmapped
/// under it: a later call unmaps them.
pub fn hide(address: u64) -> CUresult {
    let block = heap::forget(address, |block| block.kind == Kind::Imported)?;
    let within = address % PAGE;
    let mut leaving = lock(&LEAVING);
    leaving.push(Leaving {
        first: address - within,
        bytes: within + block.bytes,
        after: context::tails(),
    });
    leaving.retain(|mapping| {
        let in_use = !mapping.after.iter().all(Mark::is_done);
        if !in_use {
            heap::unmap_host(mapping.first, mapping.bytes);
        }
        in_use
    });
    Ok(())
}

fn open_checked(out: Out<CUdeviceptr>, handle: CUipcMemHandle, flags: u32) -> CUresult {
    current()?;
    out.check()?;
    if flags > 1 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    capture::forbid_unsafe()?;
    out.set(open(Told::read(&handle.reserved, MEMORY)?)?)
}

faces! {
    "cuIpcGetMemHandle" 4010 cuIpcGetMemHandle (out: Out<CUipcMemHandle>, address: CUdeviceptr) {
        driver()?;
        out.check()?;
        out.set(CUipcMemHandle { reserved: export(address)?.write(MEMORY) })
    }
    "cuIpcOpenMemHandle" 4010 cuIpcOpenMemHandle (out: Out<CUdeviceptr>, handle: CUipcMemHandle, flags: u32) {
        open_checked(out, handle, flags)
    }
    "cuIpcOpenMemHandle" 11000 cuIpcOpenMemHandle_v2 (out: Out<CUdeviceptr>, handle: CUipcMemHandle, flags: u32) {
        open_checked(out, handle, flags)
    }
    "cuIpcCloseMemHandle" 4010 cuIpcCloseMemHandle (address: CUdeviceptr) {
        driver()?;
        capture::forbid_unsafe()?;
        close(address)
    }
    "cuIpcGetEventHandle" 4010 cuIpcGetEventHandle (out: Out<CUipcEventHandle>, event: CUevent) {
        let event = event::by_handle(event)?;
        out.check()?;
        let shared = event.shared.as_ref().ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let (descriptor, page) = shared.export().ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let told = Told {
            pid: std::process::id().into(),
            descriptor,
            offset: page,
            ..Told::default()
        };
        out.set(CUipcEventHandle { reserved: told.write(EVENT) })
    }
    "cuIpcOpenEventHandle" 4010 cuIpcOpenEventHandle (out: Out<CUevent>, handle: CUipcEventHandle) {
        let context = current()?;
        out.check()?;
        let told = Told::read(&handle.reserved, EVENT).map_err(|_| CUDA_ERROR_MAP_FAILED)?;
        if told.pid == u64::from(std::process::id()) {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        let shared = Shared::open(told.pid, told.descriptor, told.offset)
            .ok_or(CUDA_ERROR_MAP_FAILED)?;
        let flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
        out.set(Event::create(context.owner, flags, Some(shared)) as CUevent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_says_what_was_told_and_a_foreign_one_is_refused() {
        let told = Told {
            pid: 7,
            descriptor: 3,
            offset: 512,
            bytes: 100,
            id: 9,
            device: 1,
        };
        assert_eq!(Told::read(&told.write(MEMORY), MEMORY), Ok(told));
        assert_eq!(Told::read(&[0; 64], MEMORY), Err(CUDA_ERROR_INVALID_HANDLE));
        assert_eq!(
            Told::read(&[0xff; 64], MEMORY),
            Err(CUDA_ERROR_INVALID_HANDLE)
        );
        let huge = Told {
            offset: u64::MAX,
            ..told
        };
        assert_eq!(
            Told::read(&huge.write(MEMORY), MEMORY),
            Err(CUDA_ERROR_INVALID_HANDLE)
        );
    }
}
