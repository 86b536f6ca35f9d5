//! The hashes of device memory, computed on the device by a kernel of the shim's own.
//!
//! The module is loaded once in a context and ends with it. A context that cannot take it (the driver does not compile
//! PTX, no memory) returns an error, and the process continues.
#![allow(unsafe_code, reason = "loads a module and launches its kernel")]

use std::ffi::c_void;

use gpushare_abi::{
    Out,
    chunk_hash::{Hash, Keys, NAME, PTX, THREADS, reduced},
    errors::CUerror,
    types::{CUfunction, CUmodule},
};

use crate::{
    driver::call,
    driver_query::transfer::{Lane, within},
};

/// Loads the kernel in a context. Returns its function.
pub fn load(context: usize) -> Result<usize, CUerror> {
    let mut module: CUmodule = std::ptr::null_mut();
    let mut function: CUfunction = std::ptr::null_mut();
    within(context, || {
        let (none, text) = (std::ptr::null_mut(), PTX.as_ptr().cast());
        // SAFETY: the text ends with a NUL; there are no options; the result is a local variable.
        unsafe { call::cuModuleLoadDataEx(Out::to(&mut module), text, 0, none, none.cast()) }?;
        // SAFETY: the module was just loaded; the result is a local variable.
        unsafe { call::cuModuleGetFunction(Out::to(&mut function), module, NAME.as_ptr()) }
    })?;
    Ok(function as usize)
}

/// Returns the hash of each chunk. No work may be under way that writes to them.
pub fn of(lane: &Lane, function: usize, keys: &Keys, chunks: &[u64]) -> Result<Vec<Hash>, CUerror> {
    let page = Page::take(lane.context(), chunks.len())?;
    page.put(chunks);
    let (mut addresses, mut hashes) = (page.addresses() as u64, page.start as u64);
    let mut parameters = [
        (&raw mut addresses).cast::<c_void>(),
        (&raw mut hashes).cast(),
        (&raw const *keys).cast_mut().cast(),
    ];
    lane.launch(function, (chunks.len() as u32, THREADS), &mut parameters)?;
    lane.wait()?;
    Ok(page.get())
}

/// Pinned host memory with the hashes of chunks, which have the larger alignment, and behind them the chunks' addresses.
struct Page {
    context: usize,
    start: *mut Hash,
    count: usize,
}

impl Page {
    fn take(context: usize, count: usize) -> Result<Self, CUerror> {
        const MAPPED: u32 = 2;
        let bytes = count * size_of::<(u64, Hash)>();
        let mut start: *mut c_void = std::ptr::null_mut();
        // SAFETY: the result is a local variable.
        within(context, || unsafe {
            call::cuMemHostAlloc(Out::to(&mut start), bytes, MAPPED)
        })?;
        let start = start.cast();
        Ok(Self {
            context,
            start,
            count,
        })
    }

    fn addresses(&self) -> *mut u64 {
        self.start.wrapping_add(self.count).cast()
    }

    fn put(&self, chunks: &[u64]) {
        // SAFETY: the page has room for `count` addresses, and nothing else uses it yet.
        unsafe { std::ptr::copy_nonoverlapping(chunks.as_ptr(), self.addresses(), self.count) };
    }

    fn get(&self) -> Vec<Hash> {
        // SAFETY: the kernel has written `count` hashes there and has ended.
        let hashes = unsafe { std::slice::from_raw_parts(self.start, self.count) };
        hashes.iter().map(|hash| reduced(*hash)).collect()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the memory is the shim's own and is freed only here.
        let _ = within(self.context, || unsafe {
            call::cuMemFreeHost(self.start.cast())
        });
    }
}
