//! libgpushare.so: the preload that interposes the CUDA driver API.
//!
//! The library does not disturb the application. Nothing happens when it is loaded, and every call reaches the driver
//! exactly once unless a quota refuses it. A process that cannot be managed runs unmanaged, and one line on stderr
//! states the reason. `shim/GUESTS.md` describes for users, system call by system call, what the library does in a
//! process.
//!
//! # Layers
//!
//! ```text
//! face        face                  exports, fast: the functions an application calls; dlsym, proc_address: how it finds them
//! hooks       hooks                 the hook of each driver function; loss: detection of a lost context
//! admission   admission             the slow path of a submission
//! attach      managed_process::attach    the start of a managed process
//! keeper      managed_process::keeper    the thread that does the timed work
//! detach      managed_process::detach    the end of a managed process
//! eviction    eviction              eviction and restore of the process's memory
//! control     trace::control        start and end of a trace
//! turn        turn                  the lock of each device, and the threads that may submit
//! slices      card_slices           the time slices that the card gives to the process
//! subjects    trace                 the record of calls
//! process     managed_process       the registration, the devices and their state, the device of a thread; the page that a fork wipes
//! state       tracking, turn::state, trace::state, eviction::state    the state of the process, as plain data
//! depth       turn::queue_depth, turn::rounds    the amount of queued work, and the times between submissions
//! alone       turn::alone           what submissions take alone, measured over MPS
//! drain       turn::drain           the wait until submitted work is done
//! query       driver_query          queries of the driver by the shim
//! thread      thread                the record of a thread
//! driver      driver                the driver's functions: the table, addresses, typed calls
//! words       notice                the lines on stderr
//! groups      channel_groups        the channel groups that the driver made for the process
//! sys         sys                   the kernel, libc and the dynamic linker
//! protocol    gate, trace::quiescence, turn::context_end    the protocols between threads (loom)
//! plain       primitive, turn::phase
//! ```
//!
//! A file uses only layers below it; `cargo test -p gpushare-testbed --test layers` names a line that breaks this. `shim/ARCHITECTURE.md`
//! follows a call through the layers. The driver's functions are declared once, a row each, in
//! `gpushare_abi::driver_table!`: exports, addresses, names and call codes are generated from it.
//!
//! # How to hook a function
//!
//! Add a row to `shim/abi/src/table.rs` (memory: `table/memory.rs`):
//! `"cuMemAlloc" 3020 call memory::linear::alloc fn cuMemAlloc_v2(dptr: Out<CUdeviceptr>, bytes: usize);` and write
//!
//! ```text
//! pub fn alloc(real: Real<'_, impl FnOnce() -> CUresult>, dptr: Out<CUdeviceptr>, bytes: usize) -> CUresult {
//!     let Some(process) = managed_process::current() else { return real.call() };          // unmanaged: as if we were not there
//!     let Some(device) = process.current_device() else { return real.call() };
//!     …
//! }
//! ```
//!
//! A hook that needs few of the arguments names them in its row, `transfer::bytes(stream, bytes)`, and serves every
//! function whose row can name them. The line above its first row states what it does; `DRIVER.md` is made from it.
//!
//! A hook runs behind the re-entrancy guard (calls that the driver makes in it pass through) and the panic boundary
//! (a panic counts as a fault; the driver's result is returned, and a call not yet forwarded is forwarded). It needs
//! no `unsafe`: [`hooks::Real::call`] forwards the caller's own call once, `gpushare_abi::Out` and `In` read and
//! write through the caller's pointers, and `driver::call` has every function of the table for the shim's own calls.
//! `process.memory` is the tracking of memory; `memory::Held` contains the records of a context that is about to be
//! destroyed or reset.
#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "only the exports use it, and a test program has none"
    )
)]

pub mod admission;
mod card_slices;
pub mod channel_groups;
pub mod driver;
mod driver_query;
pub mod eviction;
mod face;
pub mod gate;
pub mod hooks;
pub mod managed_process;
pub mod notice;
mod primitive;
mod sys;
pub mod thread;
pub mod trace;
pub mod tracking;
pub mod turn;
