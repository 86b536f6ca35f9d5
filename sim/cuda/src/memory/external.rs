//! Memory of other interfaces, imported by descriptor.
//!
//! Any file that can be mapped serves as the other interface's memory. Imported memory is charged to
//! no process here: its maker is charged for it. Semaphores of other interfaces are not simulated.
#![allow(unsafe_code)]

use std::{fs::File, os::fd::FromRawFd, sync::Arc};

use gpushare_abi::{
    errors::{
        CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUerror,
        CUresult,
    },
    types::{
        CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUdeviceptr,
        CUexternalMemory,
    },
};

use crate::{
    c::{In, Out},
    capture,
    context::current,
    faces::faces,
    handles::{Table, fresh},
    memory::ipc,
};

/// The kind of handle that is a file descriptor.
const OPAQUE_DESCRIPTOR: u32 = 1;

/// Imported memory. Its buffers live on when it is destroyed.
#[derive(Debug)]
struct External {
    file: File,
    bytes: u64,
}

static EXTERNALS: Table<External> = Table::new();

/// Buffers of external memory, by address; each is freed as other memory is.
static BUFFERS: Table<()> = Table::new();

fn external(handle: CUexternalMemory) -> Result<Arc<External>, CUerror> {
    current()?;
    EXTERNALS
        .get(handle as u64)
        .ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// Returns true if an address is in a buffer of external memory.
pub fn is_buffer(address: CUdeviceptr) -> bool {
    BUFFERS.get(address).is_some()
}

/// Unmaps such a buffer.
pub fn close(address: CUdeviceptr) -> CUresult {
    BUFFERS.remove(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    ipc::hide(address)
}

/// Returns the file of the application's descriptor, if it has the stated size.
fn file_of(descriptor: u64, bytes: u64) -> Result<File, CUerror> {
    let path = format!("/proc/self/fd/{}", descriptor as i32);
    let large = std::fs::metadata(path).is_ok_and(|file| file.len() >= bytes);
    if !large || bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the descriptor is open, and importing it makes it the driver's.
    Ok(unsafe { File::from_raw_fd(descriptor as i32) })
}

faces! {
    "cuImportExternalMemory" 10000 cuImportExternalMemory (out: Out<CUexternalMemory>, description: In<CUDA_EXTERNAL_MEMORY_HANDLE_DESC>) {
        current()?;
        out.check()?;
        let description = description.get()?;
        if description.type_ == 0 || description.flags > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if description.type_ != OPAQUE_DESCRIPTOR {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let file = file_of(description.handle[0], description.size)?;
        let handle = fresh();
        EXTERNALS.insert(handle, Arc::new(External { file, bytes: description.size }));
        out.set(handle as CUexternalMemory)
    }
    "cuExternalMemoryGetMappedBuffer" 10000 cuExternalMemoryGetMappedBuffer (out: Out<CUdeviceptr>, handle: CUexternalMemory, description: In<CUDA_EXTERNAL_MEMORY_BUFFER_DESC>) {
        let external = external(handle)?;
        out.check()?;
        capture::forbid_unsafe()?;
        let part = description.get()?;
        let end = part.offset.checked_add(part.size).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if part.size == 0 || part.flags != 0 || end > external.bytes {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let context = current()?;
        let address = ipc::show(&external.file, part.offset, part.size, context.device, context.owner)?;
        BUFFERS.insert(address, Arc::new(()));
        out.set(address)
    }
    "cuDestroyExternalMemory" 10000 cuDestroyExternalMemory (handle: CUexternalMemory) {
        external(handle)?;
        EXTERNALS.remove(handle as u64);
        Ok(())
    }
}
