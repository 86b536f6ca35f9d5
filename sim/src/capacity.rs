//! Device memory, shared by all processes of a world.
//!
//! Each process has two words per device: `used`, the bytes that it holds, and `trying`, the bytes that it is about to take.
//! There is no shared total, so a killed process leaves nothing to repair. A process that takes memory adds the amount to
//! `trying` and sums both words of all processes. If the sum fits, it has the memory; otherwise it subtracts the amount again.
//! Two processes that announce at the same time both see both announcements, so together they never exceed the device. A
//! process that failed only because of other announcements tries again.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::layout::{Layout, MAX_PROCESSES, Process};
use crate::process::{self, Member};
use crate::world::World;

/// Number of attempts of a process that only other announcements stopped.
const TRIES: u32 = 1000;

/// The device has too little free memory.
#[derive(Debug, PartialEq, Eq)]
pub struct OutOfMemory;

/// Sums the bytes of all processes on a device: (held, held or announced).
fn total(layout: &Layout, device: usize) -> (u64, u64) {
    // ORDER: SeqCst, as below: a process that joined before an announcement is in its sum.
    let high = (layout.processes_high.load(SeqCst) as usize).min(MAX_PROCESSES);
    let mut sums = (0u64, 0u64);
    for process in layout.processes[..high]
        .iter()
        .filter(|process| process.taken())
    {
        // ORDER: SeqCst pairs announcements with sums: of two processes that announce, at least one sees the other.
        let trying = process.devices[device].trying.load(SeqCst);
        let used = process.devices[device].used.load(SeqCst);
        sums.0 = sums.0.saturating_add(used);
        sums.1 = sums.1.saturating_add(used.saturating_add(trying));
    }
    sums
}

/// Takes `bytes` of a device's memory for a process.
pub(crate) fn take(
    world: &World,
    process: &Process,
    device: usize,
    bytes: u64,
) -> Result<(), OutOfMemory> {
    try_take(world, process, device, bytes).or_else(|_| {
        // Dead processes may still hold memory.
        process::reap(world);
        try_take(world, process, device, bytes)
    })
}

fn try_take(
    world: &World,
    process: &Process,
    device: usize,
    bytes: u64,
) -> Result<(), OutOfMemory> {
    let capacity = world.devices()[device].memory;
    if bytes > capacity {
        return Err(OutOfMemory);
    }
    let own = &process.devices[device];
    for _ in 0..TRIES {
        // ORDER: SeqCst, see `total`.
        own.trying.fetch_add(bytes, SeqCst);
        let (held, announced) = total(world.layout(), device);
        if announced <= capacity {
            // ORDER: `used` grows before `trying` shrinks, so a sum never misses these bytes.
            own.used.fetch_add(bytes, SeqCst);
            own.trying.fetch_sub(bytes, SeqCst);
            return Ok(());
        }
        own.trying.fetch_sub(bytes, SeqCst);
        if held + bytes > capacity {
            return Err(OutOfMemory);
        }
        std::thread::yield_now();
    }
    Err(OutOfMemory)
}

impl Member {
    /// Takes `bytes` of a device's memory.
    pub fn take_memory(&self, device: usize, bytes: u64) -> Result<(), OutOfMemory> {
        take(self.world(), self.process(), device, bytes)
    }

    /// Gives `bytes` of a device's memory back.
    pub fn give_memory(&self, device: usize, bytes: u64) {
        // ORDER: SeqCst, see `total`.
        self.process().devices[device].used.fetch_sub(bytes, SeqCst);
    }

    /// Returns the free bytes of a device's memory. Memory of dead processes is freed first, at most once every 2 ms.
    pub fn free_memory(&self, device: usize) -> u64 {
        self.look_after_the_dead();
        let capacity = self.world().devices()[device].memory;
        capacity.saturating_sub(total(self.world().layout(), device).0)
    }

    /// Counts a new context on a device. Returns true if it is the first one of this process there.
    pub fn add_context(&self, device: usize) -> bool {
        self.process().devices[device]
            .contexts
            .fetch_add(1, Relaxed)
            == 0
    }

    /// Counts a context less on a device. Returns true if it was the last one of this process there.
    pub fn drop_context(&self, device: usize) -> bool {
        self.process().devices[device]
            .contexts
            .fetch_sub(1, Relaxed)
            == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::Private;
    use std::sync::atomic::AtomicU64;

    const ONE_MIB: &str = "[[device]]\nmemory = \"1MiB\"";

    #[test]
    fn memory_is_shared_by_all_members() {
        let private = Private::new("memory");
        let world = private.open(Some(ONE_MIB));
        let (one, two) = (Member::join(&world).unwrap(), Member::join(&world).unwrap());
        one.take_memory(0, 600 << 10).expect("fits");
        assert_eq!(two.take_memory(0, 600 << 10), Err(OutOfMemory));
        assert_eq!(two.free_memory(0), 424 << 10);
        one.give_memory(0, 600 << 10);
        two.take_memory(0, 1 << 20).expect("fits again");
        assert_eq!(two.take_memory(0, 1), Err(OutOfMemory));
        assert_eq!(two.take_memory(0, u64::MAX), Err(OutOfMemory));
    }

    #[test]
    fn a_member_that_leaves_gives_its_memory_back() {
        let private = Private::new("leaves");
        let world = private.open(Some(ONE_MIB));
        let (one, two) = (Member::join(&world).unwrap(), Member::join(&world).unwrap());
        one.take_memory(0, 1 << 20).expect("fits");
        drop(one);
        two.take_memory(0, 1 << 20).expect("the other has left");
    }

    #[test]
    fn racing_members_never_hold_more_than_there_is() {
        let private = Private::new("races");
        let world = private.open(Some(ONE_MIB));
        let most = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let member = Member::join(&world).unwrap();
                    for round in 0..2000u64 {
                        let bytes = 100_000 + round % 7 * 30_000;
                        if member.take_memory(0, bytes).is_ok() {
                            most.fetch_max((1 << 20) - member.free_memory(0), Relaxed);
                            assert!(total(world.layout(), 0).0 <= 1 << 20);
                            member.give_memory(0, bytes);
                        }
                    }
                });
            }
        });
        assert!(most.load(Relaxed) > 0);
    }
}
