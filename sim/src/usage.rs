//! Figures for NVML: the processes on a device, with their memory and their work.

use std::sync::atomic::Ordering::Relaxed;

use crate::engine::{self, BUCKET_NS};
use crate::layout::{BUCKETS, MAX_PROCESSES};
use crate::mps::{self, Client};
use crate::world::World;
use crate::{clock, process};

/// Longest window of busy times, in nanoseconds.
pub const LONGEST_WINDOW: u64 = BUCKET_NS * (BUCKETS as u64 - 2);

/// The use of one device by one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessUsage {
    /// Pid in the process's own pid namespace.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub start_time: u64,
    /// Bytes of device memory it holds.
    pub used: u64,
    /// Number of contexts there.
    pub contexts: u64,
    /// Length of its turns in nanoseconds; 0 for the device's.
    pub slice: u64,
    /// Engine time since the process joined, in nanoseconds.
    pub busy_total: u64,
    /// Engine time in the window, in nanoseconds.
    pub busy: u64,
    /// The MPS server of a client.
    pub server: Option<u32>,
}

/// The use of one device by all processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceUsage {
    /// Bytes held by all processes.
    pub used: u64,
    /// Processes with a context or memory there.
    pub processes: Vec<ProcessUsage>,
    /// Window of `busy`, in nanoseconds.
    pub window: u64,
    /// Engine time of all processes in the window, in nanoseconds; at most `window`.
    pub busy: u64,
}

impl DeviceUsage {
    /// Returns the utilisation in percent.
    pub fn percent(&self) -> u32 {
        percent(self.busy, self.window)
    }
}

/// Returns a share of a window in percent, rounded, at most 100.
pub fn percent(busy: u64, window: u64) -> u32 {
    ((busy.saturating_mul(100) + window / 2) / window.max(1)).min(100) as u32
}

/// Returns the processes on a device and its busy time in the last `window` nanoseconds (at most [`LONGEST_WINDOW`]). Frees the
/// slots of dead processes first.
pub fn of(world: &World, device: usize, window: u64) -> DeviceUsage {
    see_off_the_dead(world);
    look(world, device, window)
}

/// Frees the memory of dead processes on all devices. It checks every process, which is the most expensive step here.
pub fn see_off_the_dead(world: &World) {
    process::reap(world);
}

/// Reports an error of a device in the way of the kernel driver, by an Xid.
pub fn report(world: &World, device: usize, xid: u32) {
    mps::add_xid(world.layout(), device, xid);
}

/// Returns the number of faults of a device's kernels, and the Xid of the last.
pub fn xids(world: &World, device: usize) -> (u32, u32) {
    let word = world.layout().devices[device].xids.load(Relaxed);
    ((word >> 32) as u32, word as u32)
}

/// Returns the same as [`of`], but dead processes may still be included.
pub fn look(world: &World, device: usize, window: u64) -> DeviceUsage {
    at(world, device, window.clamp(1, LONGEST_WINDOW), clock::now())
}

fn at(world: &World, device: usize, window: u64, now: u64) -> DeviceUsage {
    let layout = world.layout();
    let running = engine::running(layout, device, now);
    let high = (layout.processes_high.load(Relaxed) as usize).min(MAX_PROCESSES);
    let mut usage = DeviceUsage {
        used: 0,
        processes: Vec::new(),
        window,
        busy: 0,
    };
    for (slot, process) in layout.processes[..high].iter().enumerate() {
        if !process.taken() {
            continue;
        }
        let books = &process.devices[device];
        let mut busy: u64 = books
            .buckets
            .iter()
            .map(|b| in_window(b.load(Relaxed), window, now))
            .sum();
        let mut busy_total = books.busy.load(Relaxed);
        if let Some((_, passed)) = running.filter(|(owner, _)| *owner == slot) {
            busy += passed.min(window);
            busy_total += passed;
        }
        let one = ProcessUsage {
            pid: process.pid.load(Relaxed) as u32,
            start_time: process.start_time.load(Relaxed),
            used: books.used.load(Relaxed),
            contexts: books.contexts.load(Relaxed),
            slice: books.slice.load(Relaxed),
            busy_total,
            busy: busy.min(window),
            server: Client::of(process).map(|client| client.server),
        };
        usage.used += one.used;
        usage.busy += one.busy;
        if one.contexts > 0 || one.used > 0 {
            usage.processes.push(one);
        }
    }
    usage.busy = usage.busy.min(window);
    usage
}

/// Returns the part of a bucket that is in the window; a bucket on the edge counts in proportion.
fn in_window(word: u64, window: u64, now: u64) -> u64 {
    let (index, busy) = (word >> 32, word & 0xffff_ffff);
    let (from, to) = (index * BUCKET_NS, (index + 1) * BUCKET_NS);
    let begin = now.saturating_sub(window);
    if to <= begin || from > now {
        return 0;
    }
    // The newest bucket is incomplete: all its time is in the past.
    let length = BUCKET_NS.min(now - from).max(1);
    let inside = to.min(now).saturating_sub(from.max(begin)).min(length);
    (u128::from(busy) * u128::from(inside) / u128::from(length)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Member;
    use crate::process::tests::Private;

    #[test]
    fn a_busy_process_shows_with_its_memory_and_time() {
        let private = Private::new("usage");
        let world = private.open(None);
        let member = Member::join(&world).unwrap();
        member.add_context(0);
        member.take_memory(0, 4096).expect("fits");
        let mut ready = clock::now() - 400_000_000;
        for _ in 0..40 {
            ready = member.run_kernel(0, 10_000_000, ready);
        }
        let usage = of(&world, 0, 400_000_000);
        assert_eq!(usage.used, 4096);
        assert_eq!(usage.processes.len(), 1);
        assert_eq!(usage.processes[0].pid, std::process::id());
        assert_eq!(usage.processes[0].busy_total, 400_000_000);
        assert!(usage.processes[0].busy > 0);
        assert_eq!(of(&world, 1, 400_000_000).processes, []);
    }

    #[test]
    fn a_bucket_on_the_edge_counts_in_proportion() {
        let word = 10 << 32 | 50_000_000;
        let end = 11 * BUCKET_NS;
        assert_eq!(in_window(word, BUCKET_NS, end), 50_000_000);
        assert_eq!(in_window(word, BUCKET_NS, end + BUCKET_NS / 2), 25_000_000);
        assert_eq!(in_window(word, BUCKET_NS, end + BUCKET_NS), 0);
        assert_eq!(in_window(word, BUCKET_NS, end - BUCKET_NS / 2), 50_000_000);
    }

    #[test]
    fn percentages_never_leave_their_range() {
        assert_eq!(percent(0, 0), 0);
        assert_eq!(percent(5, 10), 50);
        assert_eq!(percent(u64::MAX, 1), 100);
    }
}
