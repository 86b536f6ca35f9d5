//! The processes of a world.
//!
//! A process claims a slot at its first `cuInit` and keeps it through a [`Life`]. Slots are claimed and freed under the world's
//! lock file, so a second claimant never sees a half-claimed slot.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::sync::{Arc, Mutex};

use crate::clock;
use crate::layout::{MAX_DEVICES, Process};
use crate::locks::{Exclusive, Life};
use crate::mps::{self, Client};
use crate::slots::{FREE, LIVE, clear, own_pid_namespace, start_time};
use crate::sweep::sweep;
use crate::world::World;

/// A process's membership in a world; it ends on drop, or when the process is killed.
#[derive(Debug)]
pub struct Member {
    world: Arc<World>,
    slot: usize,
    pid: u32,
    life: Option<Life>,
    /// The MPS options, for an MPS client.
    mps: Option<Client>,
    /// The current turn on each device; locked while a kernel runs in it.
    pub(crate) turns: [Mutex<Option<u64>>; MAX_DEVICES],
    /// Time of the last search for dead processes.
    looked: AtomicU64,
}

impl Member {
    /// Joins the world. Fails if it is full.
    pub fn join(world: &Arc<World>) -> io::Result<Self> {
        Self::join_as(world, None)
    }

    /// Joins the world as a client of an MPS server.
    pub fn join_as(world: &Arc<World>, mps: Option<Client>) -> io::Result<Self> {
        let layout = world.layout();
        let path = world.lock_path();
        let _exclusive = Exclusive::lock(path)?;
        let free = || {
            let state = |process: &Process| process.state.load(Relaxed) & 0xff;
            layout
                .processes
                .iter()
                .position(|process| state(process) == FREE)
        };
        // A sweep takes time, so it runs only if no slot is free.
        let slot = free().or_else(|| {
            sweep(layout, path);
            free()
        });
        let slot = slot.ok_or_else(|| {
            io::Error::other("the simulated world has no room for another process")
        })?;
        let life = Life::begin(path, slot)?;
        let process = &layout.processes[slot];
        clear(process);
        process.pid.store(u64::from(std::process::id()), Relaxed);
        process.mps.store(mps.map_or(0, Client::word), Relaxed);
        process.pid_namespace.store(own_pid_namespace(), Relaxed);
        process
            .start_time
            .store(start_time("self").unwrap_or(0), Relaxed);
        // Before the slot is taken, so that `sweep` finds a process that is killed in between.
        // ORDER: SeqCst, so that a sum of memory that misses this process comes before its announcements.
        layout.processes_high.fetch_max(slot as u32 + 1, SeqCst);
        let epoch = (process.state.load(Relaxed) >> 8) + 1;
        // ORDER: pairs with the Acquire in `Process::taken`; publishes the identity of the process.
        process.state.store(epoch << 8 | LIVE, Release);
        Ok(Self {
            world: Arc::clone(world),
            slot,
            pid: std::process::id(),
            life: Some(life),
            mps,
            turns: Default::default(),
            looked: AtomicU64::new(0),
        })
    }

    /// The world.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The number of its slot.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// The MPS options, for an MPS client.
    pub fn mps(&self) -> Option<Client> {
        self.mps
    }

    /// Returns the error that ended its contexts on a device; 0 while they work.
    pub fn fault(&self, device: usize) -> u32 {
        self.process().devices[device].fault.load(Relaxed) as u32
    }

    /// Returns the length of its turns on a device in nanoseconds; 0 for the length that the device gives every process.
    pub fn slice(&self, device: usize) -> u64 {
        self.process().devices[device].slice.load(Relaxed)
    }

    /// Sets the length of its turns on a device, from the next one on.
    pub fn set_slice(&self, device: usize, ns: u64) {
        self.process().devices[device].slice.store(ns, Relaxed);
    }

    /// Records that one of its kernels failed.
    pub fn fail(&self, device: usize, code: u32) {
        mps::fail(self.world().layout(), self.slot, device, code);
    }

    /// Frees the slots of dead processes, at most once every 2 ms.
    pub(crate) fn look_after_the_dead(&self) {
        const OFTEN: u64 = 2_000_000;
        let now = clock::now();
        if now.saturating_sub(self.looked.load(Relaxed)) >= OFTEN {
            self.looked.store(now, Relaxed);
            try_reap(&self.world);
        }
    }

    pub(crate) fn process(&self) -> &'static Process {
        &self.world.layout().processes[self.slot]
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if std::process::id() != self.pid {
            // A forked child is no member, and the mapping was not inherited.
            std::mem::forget(self.life.take());
            return;
        }
        drop(self.life.take());
        reap(&self.world);
    }
}

/// Frees the slots of dead processes, with their memory and work. Gives up if another process holds the lock.
pub fn reap(world: &World) {
    const TRIES: u32 = 20;
    for _ in 0..TRIES {
        if try_reap(world) {
            return;
        }
        clock::sleep(std::time::Duration::from_micros(200));
    }
}

/// Frees the slots of dead processes. Returns false if another process holds the lock.
fn try_reap(world: &World) -> bool {
    let Ok(Some(_exclusive)) = Exclusive::try_lock(world.lock_path()) else {
        return false;
    };
    sweep(world.layout(), world.lock_path());
    true
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A world for one test, removed afterwards.
    pub(crate) struct Private {
        pub name: String,
    }

    impl Private {
        pub fn new(test: &str) -> Self {
            let name = format!("unit-{test}-{}", std::process::id());
            crate::world::remove(&name);
            Self { name }
        }

        pub fn open(&self, scenario: Option<&str>) -> Arc<World> {
            Arc::new(World::open_named(&self.name, scenario).expect("a private world opens"))
        }
    }

    impl Drop for Private {
        fn drop(&mut self) {
            crate::world::remove(&self.name);
        }
    }

    #[test]
    fn members_have_slots_of_their_own_and_give_them_back() {
        let private = Private::new("slots");
        let world = private.open(None);
        let one = Member::join(&world).expect("room");
        let two = Member::join(&world).expect("room");
        assert_ne!(one.slot(), two.slot());
        let slot = one.slot();
        drop(one);
        assert_eq!(Member::join(&world).expect("room").slot(), slot);
        drop(two);
    }
}
