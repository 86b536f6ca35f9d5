//! The parts of the kernel, libc and the dynamic linker that std does not provide.

pub mod barrier;
pub mod caller_state;
pub mod elf;
pub mod futex;
pub mod host_memory;
pub mod large_pages;
pub mod libc_dl;
pub mod next_ioctl;
mod old_libc;
pub mod own_thread;
pub mod resource_manager;
pub mod signals;
pub mod stderr;
pub mod tasks;
pub mod thread_start;
