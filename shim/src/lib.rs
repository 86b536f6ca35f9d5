//! libgpushare.so: the preload that interposes the CUDA driver API.
//!
//! What an application may rely on: our trouble is never its trouble. Nothing happens when the library is
//! loaded; every call reaches the driver exactly once unless a quota refuses it; where we cannot manage a
//! process it runs on as if we were not there, and one line on stderr says why. `shim/GUESTS.md` tells a user all
//! that we do there, system call by system call.
//!
//! # Where things are
//!
//! ```text
//! resolve   dlsym, dlvsym, dlopen      ┐ how an application      the table (gpushare_abi::driver_table!)
//! lookup    cuGetProcAddress           ├ reaches us              one row a function; exports, addresses,
//! entry     the exported functions     ┘                         names and call codes come from it
//! launch, transfer, memset, fast       the launch path           submit rows
//! copy, sync, stream, context, life    everything else           call rows
//! memory    allocations, quota, views  call rows, table/memory.rs and table/nvml.rs
//! thread → gate → admission → turn → drain, keeper               who may submit, and when
//! trace     what is called, written down on demand; the files of PFLOG
//! guest     the registration, the devices, the memory books
//! driver    the driver's own functions, typed
//! floor     what an older libc has not, or elsewhere
//! ```
//!
//! # How to hook a function
//!
//! Add a row to `shim/abi/src/table.rs` (memory: `table/memory.rs`):
//! `"cuMemAlloc" 3020 call memory::linear::alloc fn cuMemAlloc_v2(dptr: Out<CUdeviceptr>, bytes: usize);` and write
//!
//! ```text
//! pub fn alloc(real: Real<'_, impl FnOnce() -> CUresult>, dptr: Out<CUdeviceptr>, bytes: usize) -> CUresult {
//!     let Some(guest) = guest() else { return real.call() };          // unmanaged: as if we were not there
//!     let Some(entry) = guest.current_entry() else { return real.call() };
//!     …
//! }
//! ```
//!
//! A hook that needs few of the arguments names them in its row, `transfer::bytes(stream, bytes)`, and serves every
//! function whose row can name them. What it does there is one line in `documented.rs`, from which `DRIVER.md` comes.
//!
//! A hook runs behind the re-entrancy guard (what the driver calls meanwhile passes through) and the panic
//! boundary (a panic counts as a fault; the driver's answer stands, and a call not yet forwarded is). It
//! needs no `unsafe`: [`real::Real::call`] forwards the caller's own call once, `gpushare_abi::Out` and `In`
//! read and write through the caller's pointers, and `driver::call` has every function of the table for
//! calls of our own. `guest.memory` is what the memory side keeps; `memory::context_gone` is called when a
//! context is destroyed (NULL: the device's primary context) or reset.

#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "only the exports use it, and a test program has none"
    )
)]

pub mod admission;
mod ask;
pub mod books;
pub mod bypass;
pub mod departure;
#[cfg(test)]
mod documented;
pub mod driver;
pub mod entry;
pub mod environment;
pub mod fast;
mod floor;
pub mod gate;
pub mod guest;
pub mod hooks;
pub mod keeper;
pub mod life;
pub mod lookup;
pub mod notice;
pub mod place;
mod primitive;
pub mod protocol;
pub mod real;
pub mod resolve;
pub mod symbols;
pub mod sys;
pub mod thread;
pub mod trace;
pub mod tracer;
pub mod turn;
pub mod unwind;
