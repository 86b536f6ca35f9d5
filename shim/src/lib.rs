//! libgpushare.so: the preload that interposes the CUDA driver API.
//!
//! What an application may rely on: our trouble is never its trouble. Nothing happens when the library is
//! loaded; every call reaches the driver exactly once unless a quota refuses it; where we cannot manage a
//! process it runs on as if we were not there, and one line on stderr says why. `shim/GUESTS.md` tells a user all
//! that we do there, system call by system call.
//!
//! # Floors
//!
//! ```text
//! face        face                  exports, fast: the functions an application calls; dlsym, proc_address: how it finds them
//! hooks       hooks                 what we do at each of the driver's functions
//! admission   admission             a submission that the fast path does not settle
//! life        life                  how a process becomes a guest
//! keeper      keeper                the thread that watches the clock
//! departure   departure             the end of a guest
//! residence   residence             where the process's memory is: evicted, and brought back
//! tracer      tracer                a trace is switched on and off
//! turn        turn                  who may submit, and when: the lock of each device
//! loss        loss                  the application's context is lost
//! subjects    trace, place, real    calls are written down; which device a thread is on; the caller's own call
//! guest       guest                 the registration, the devices, what is kept for them; the page that a fork wipes
//! state       books, turn::state, tracer::state, residence::state    what a guest keeps, as plain data
//! drain       turn::drain, turn::ahead, turn::gap    waiting until submitted work is done, and how much is queued
//! event       turn::event           an event that we record on our own account
//! ask         ask                   what we ask the driver on our own account
//! thread      thread                one thread's record
//! gate        gate, door            the words that a submission and any other call look at
//! driver      driver                the driver's functions: the table, addresses, typed calls
//! words       notice                the few lines that we say on stderr
//! sys         sys                   the kernel, libc and the dynamic linker
//! protocol    protocol              how threads agree by words (loom)
//! plain       bypass, primitive, turn::phase
//! ```
//!
//! A file uses what stands below it; `tests/floors.rs` names a line that climbs. `shim/ARCHITECTURE.md` follows a call through
//! the floors. The driver's functions are declared once, a row each, in `gpushare_abi::driver_table!`: exports, addresses,
//! names and call codes come from it.
//!
//! # How to hook a function
//!
//! Add a row to `shim/abi/src/table.rs` (memory: `table/memory.rs`):
//! `"cuMemAlloc" 3020 call memory::linear::alloc fn cuMemAlloc_v2(dptr: Out<CUdeviceptr>, bytes: usize);` and write
//!
//! ```text
//! pub fn alloc(real: Real<'_, impl FnOnce() -> CUresult>, dptr: Out<CUdeviceptr>, bytes: usize) -> CUresult {
//!     let Some(guest) = guest() else { return real.call() };          // unmanaged: as if we were not there
//!     let Some(device) = place::current_device(guest) else { return real.call() };
//!     …
//! }
//! ```
//!
//! A hook that needs few of the arguments names them in its row, `transfer::bytes(stream, bytes)`, and serves every
//! function whose row can name them. What it does there is the line above its first row; `DRIVER.md` is made from it.
//!
//! A hook runs behind the re-entrancy guard (what the driver calls meanwhile passes through) and the panic
//! boundary (a panic counts as a fault; the driver's answer stands, and a call not yet forwarded is). It
//! needs no `unsafe`: [`real::Real::call`] forwards the caller's own call once, `gpushare_abi::Out` and `In`
//! read and write through the caller's pointers, and `driver::call` has every function of the table for
//! calls of our own. `guest.memory` is what the memory side keeps; `memory::Held` is what a context holds that is about to be
//! destroyed or reset.

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
mod door;
pub mod driver;
mod face;
pub mod gate;
pub mod guest;
pub mod hooks;
pub mod keeper;
pub mod life;
mod loss;
pub mod notice;
pub mod place;
mod primitive;
pub mod protocol;
pub mod real;
pub mod residence;
mod sys;
pub mod thread;
pub mod trace;
pub mod tracer;
pub mod turn;
