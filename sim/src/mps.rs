//! MPS: the clients of a simulated server, and the options with which they started.
//!
//! `gpushare-sim-mps` replaces NVIDIA's control program. Its daemon writes two files into the pipe directory: its pid, where
//! NVIDIA's daemon writes it, and the pid of its server. A process whose `CUDA_MPS_PIPE_DIRECTORY` has both files is a client,
//! as with a real driver from the first `cuInit` on.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use crate::layout::{Layout, MAX_DEVICES, Process};
use crate::slots::{self, taken_slots};
use crate::world::World;

/// The variable with the directory in which a program looks for a daemon.
pub const PIPE_DIRECTORY: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// The file to which NVIDIA's daemon writes its pid.
pub const DAEMON: &str = "nvidia-cuda-mps-control.pid";
/// The file to which the simulated daemon writes the pid of its server.
pub const SERVER: &str = "simulated-server.pid";

/// The options that MPS fixes when a client starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// The server that runs its kernels.
    pub server: u32,
    /// Priority: 0 is normal, 1 is below normal.
    pub priority: u8,
    /// The share of the multiprocessors that its kernels may use, 1 to 100.
    pub percent: u8,
}

impl Client {
    /// Returns the client that a process with this environment is, if it is one.
    pub fn of_environment() -> Option<Self> {
        let pipe = PathBuf::from(std::env::var_os(PIPE_DIRECTORY)?);
        running(&pipe.join(DAEMON))?;
        let number = |name: &str| -> Option<f64> { std::env::var(name).ok()?.trim().parse().ok() };
        let percent = number("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE").unwrap_or(100.0);
        Some(Self {
            server: running(&pipe.join(SERVER))?,
            priority: u8::from(number("CUDA_MPS_CLIENT_PRIORITY").is_some_and(|n| n >= 1.0)),
            percent: percent.clamp(1.0, 100.0) as u8,
        })
    }

    /// Returns how many of a device's multiprocessors the client may use; the driver gives them in pairs.
    pub fn multiprocessors(self, all: u32) -> u32 {
        ((all * u32::from(self.percent) / 100) & !1).max(2).min(all)
    }

    pub(crate) fn word(self) -> u64 {
        u64::from(self.server) << 32
            | u64::from(self.percent) << 16
            | u64::from(self.priority) << 8
            | 1
    }

    pub(crate) fn of(process: &Process) -> Option<Self> {
        let word = process.mps.load(Relaxed);
        (word & 1 != 0).then_some(Self {
            server: (word >> 32) as u32,
            priority: (word >> 8) as u8,
            percent: ((word >> 16) as u8).clamp(1, 100),
        })
    }
}

/// Returns the value of `CUDA_VISIBLE_DEVICES` that a server has.
pub fn visible_to(server: u32) -> Option<String> {
    let environment = std::fs::read(format!("/proc/{server}/environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|one| one.strip_prefix(b"CUDA_VISIBLE_DEVICES="))?;
    String::from_utf8(value.to_vec()).ok()
}

/// Returns the pid in a file, if that process runs.
pub fn running(file: &Path) -> Option<u32> {
    let pid = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
    slots::start_time(&format!("{pid}")).map(|_| pid)
}

/// Returns the pids of a server's clients, each in its own pid namespace. Dead clients count until [`crate::process::reap`]
/// frees their slots.
pub fn clients(world: &World, server: u32) -> Vec<u32> {
    of_server(world.layout(), server)
        .map(|(_, process)| process.pid.load(Relaxed) as u32)
        .collect()
}

/// Returns true if a client of the server has a fault: the server takes no new clients until all its clients have ended. Dead
/// clients count as in [`clients`].
pub fn is_faulty(world: &World, server: u32) -> bool {
    of_server(world.layout(), server).any(|(_, process)| {
        let mut devices = process.devices.iter();
        devices.any(|device| device.fault.load(Relaxed) != 0)
    })
}

fn of_server(
    layout: &'static Layout,
    server: u32,
) -> impl Iterator<Item = (usize, &'static Process)> {
    taken_slots(layout)
        .filter(move |(_, process)| Client::of(process).is_some_and(|c| c.server == server))
}

/// Records a fault of the process in `slot`. Its context on the device is lost, and so are the contexts of the other clients of
/// its server there, with the same error, as measured (580.159.04). An earlier fault is kept.
pub(crate) fn fail(layout: &'static Layout, slot: usize, device: usize, code: u32) {
    let process = &layout.processes[slot];
    set(process, device, code);
    report(layout, device, code);
    let Some(client) = Client::of(process) else {
        return;
    };
    for (other, process) in of_server(layout, client.server) {
        if other != slot && process.devices[device].contexts.load(Relaxed) > 0 {
            set(process, device, code);
        }
    }
}

/// Reports a fault in the way of the kernel driver, by an Xid.
fn report(layout: &'static Layout, device: usize, code: u32) {
    const ILLEGAL_ADDRESS: u32 = 700;
    const MEMORY_PAGE_FAULT: u32 = 31;
    const ENGINE_EXCEPTION: u32 = 13;
    let xid = match code {
        ILLEGAL_ADDRESS => MEMORY_PAGE_FAULT,
        _ => ENGINE_EXCEPTION,
    };
    add_xid(layout, device, xid);
}

pub(crate) fn add_xid(layout: &Layout, device: usize, xid: u32) {
    let next = |word: u64| Some(((word >> 32) + 1) << 32 | u64::from(xid));
    let word = &layout.devices[device].xids;
    let _ = word.fetch_update(Relaxed, Relaxed, next);
}

/// Fails the contexts of all clients of a server that has ended.
pub fn end(world: &World, server: u32) {
    const RPC_FAILURE: u32 = 806;
    for (_, process) in of_server(world.layout(), server) {
        for device in 0..MAX_DEVICES {
            if process.devices[device].contexts.load(Relaxed) > 0 {
                set(process, device, RPC_FAILURE);
            }
        }
    }
}

fn set(process: &Process, device: usize, code: u32) {
    let fault = &process.devices[device].fault;
    // The first fault wins; a later one leaves it unchanged.
    let _ = fault.compare_exchange(0, code.into(), Relaxed, Relaxed);
}
