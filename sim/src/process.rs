//! Who takes part in a world.
//!
//! A process claims a slot at its first `cuInit` and holds it by a [`Life`]. Slots are claimed and freed
//! under the world's lock file, so neither is ever seen half-done by another claimant. A process that
//! is being killed counts as gone as soon as all its threads are exiting, even while the kernel is still
//! tearing down a large address space.

#![allow(unsafe_code)]

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::layout::{Layout, Process};
use crate::locks::{self, Exclusive, Life};
use crate::world::World;
use crate::{MAX_PROCESSES, clock, timeline};

const FREE: u64 = 0;
const LIVE: u64 = 1;
const LEAVING: u64 = 2;

/// A process's part in a world; it leaves on drop, or when it is killed.
#[derive(Debug)]
pub struct Member {
    world: Arc<World>,
    slot: usize,
    pid: u32,
    life: Option<Life>,
    /// When it last looked for the dead.
    looked: AtomicU64,
}

impl Member {
    /// Takes part in the world. Fails when [`MAX_PROCESSES`] already do.
    pub fn join(world: &Arc<World>) -> io::Result<Self> {
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
        // Looking after the dead takes time; those who join do it only when they have to.
        let slot = free().or_else(|| {
            sweep(layout, path);
            free()
        });
        let slot = slot.ok_or_else(|| io::Error::other("the simulated world is full"))?;
        let life = Life::begin(path, slot)?;
        let process = &layout.processes[slot];
        clear(process);
        process.pid.store(u64::from(std::process::id()), Relaxed);
        process.pid_namespace.store(own_pid_namespace(), Relaxed);
        process
            .start_time
            .store(start_time("self").unwrap_or(0), Relaxed);
        // First, so that whoever is killed in between is still found by `sweep`.
        // ORDER: SeqCst, so that a sum of memory that misses this process comes before its announcements.
        layout.processes_high.fetch_max(slot as u32 + 1, SeqCst);
        let epoch = (process.state.load(Relaxed) >> 8) + 1;
        // ORDER: pairs with the Acquire in `Process::taken`; publishes who it is.
        process.state.store(epoch << 8 | LIVE, Release);
        Ok(Self {
            world: Arc::clone(world),
            slot,
            pid: std::process::id(),
            life: Some(life),
            looked: AtomicU64::new(0),
        })
    }

    /// The world.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Its slot.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// Frees the slots of the dead, if that was not done just now.
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
            // A forked child has no part in the world; the mapping was not inherited either.
            std::mem::forget(self.life.take());
            return;
        }
        drop(self.life.take());
        reap(&self.world);
    }
}

impl Process {
    /// Someone has this slot, dead or alive.
    pub(crate) fn taken(&self) -> bool {
        // ORDER: pairs with the Release in `join`; who it is can be read.
        self.state.load(Acquire) & 0xff == LIVE
    }
}

/// Frees the slots of the dead, with their memory and work. Gives up when another process stays at it.
pub fn reap(world: &World) {
    const TRIES: u32 = 20;
    for _ in 0..TRIES {
        if try_reap(world) {
            return;
        }
        clock::sleep(std::time::Duration::from_micros(200));
    }
}

/// The same, unless another process is at it.
fn try_reap(world: &World) -> bool {
    let Ok(Some(_exclusive)) = Exclusive::try_lock(world.lock_path()) else {
        return false;
    };
    sweep(world.layout(), world.lock_path());
    true
}

/// Under the lock: frees the slots of the dead, and finishes what a killed sweeper left.
fn sweep(layout: &'static Layout, path: &Path) {
    for (slot, process) in taken_slots(layout) {
        let state = process.state.load(Relaxed);
        let gone = state & 0xff == LEAVING || is_gone(process, path, slot);
        if !gone {
            continue;
        }
        // ORDER: from here on nobody counts this process; readers of `state` pair by Acquire.
        process.state.store(state & !0xff | LEAVING, Release);
        timeline::cancel(layout, slot);
        if locks::alive(path, slot) {
            // Its address space is still being torn down; nothing of it counts any more, but the slot
            // stays taken until its byte is free.
            forget_memory(process);
            continue;
        }
        clear(process);
        // ORDER: publishes the cleared words to the next claimant.
        process.state.store(state & !0xff | FREE, Release);
    }
}

pub(crate) fn taken_slots(
    layout: &'static Layout,
) -> impl Iterator<Item = (usize, &'static Process)> {
    // ORDER: pairs with the SeqCst in `join`; slots below it have been claimed once.
    let high = (layout.processes_high.load(Acquire) as usize).min(MAX_PROCESSES);
    let slots = layout.processes[..high].iter().enumerate();
    // ORDER: pairs with the Release in `join`; who it is can be read.
    slots.filter(|(_, process)| process.state.load(Acquire) & 0xff != FREE)
}

/// Under the lock: does anyone live in this world?
pub(crate) fn anyone_alive(layout: &'static Layout, path: &Path) -> bool {
    sweep(layout, path);
    taken_slots(layout).next().is_some()
}

fn forget_memory(process: &Process) {
    for device in &process.devices {
        device.used.store(0, Relaxed);
        device.trying.store(0, Relaxed);
        device.away.store(0, Relaxed);
        device.contexts.store(0, Relaxed);
    }
}

fn clear(process: &Process) {
    forget_memory(process);
    process.checkpoint.store(0, Relaxed);
    process.inside.store(0, Relaxed);
    process.queued.store(0, Relaxed);
    process.managed.store(0, Relaxed);
    for device in &process.devices {
        device.busy.store(0, Relaxed);
        for bucket in &device.buckets {
            bucket.store(0, Relaxed);
        }
    }
}

/// Has this slot's process gone, or is it on its way out?
pub(crate) fn is_gone(process: &Process, path: &Path, slot: usize) -> bool {
    if !locks::alive(path, slot) {
        return true;
    }
    if process.pid_namespace.load(Relaxed) != own_pid_namespace() {
        return false; // The byte is all we can ask.
    }
    exiting(process.pid.load(Relaxed), process.start_time.load(Relaxed))
}

/// Is every thread of this process exiting? False also when another process has the pid by now.
fn exiting(pid: u64, started: u64) -> bool {
    let Some(leader) = Stat::read(format!("/proc/{pid}/stat")) else {
        return false;
    };
    if leader.start_time != started || !leader.exiting {
        return false;
    }
    // The first thread may leave before the others; they all have to.
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    threads
        .flatten()
        .all(|thread| Stat::read(thread.path().join("stat")).is_none_or(|stat| stat.exiting))
}

fn own_pid_namespace() -> u64 {
    static INODE: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *INODE.get_or_init(|| std::fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino()))
}

fn start_time(pid: &str) -> Option<u64> {
    Some(Stat::read(format!("/proc/{pid}/stat"))?.start_time)
}

/// What we need of a `stat` file in `/proc`.
struct Stat {
    exiting: bool,
    start_time: u64,
}

impl Stat {
    fn read(path: impl AsRef<Path>) -> Option<Self> {
        Self::parse(&String::from_utf8_lossy(&std::fs::read(path).ok()?))
    }

    /// The command, field 2, is in parentheses and may hold anything.
    fn parse(text: &str) -> Option<Self> {
        const PF_EXITING: u64 = 4;
        let fields: Vec<_> = text
            .get(text.rfind(')')? + 1..)?
            .split_ascii_whitespace()
            .collect();
        let flags: u64 = fields.get(6)?.parse().ok()?;
        let start_time = fields.get(19)?.parse().ok()?;
        let dead = matches!(*fields.first()?, "Z" | "X" | "x");
        Some(Self {
            exiting: dead || flags & PF_EXITING != 0,
            start_time,
        })
    }
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

    #[test]
    fn a_stat_line_with_a_strange_command_is_understood() {
        let line = "12 (a) Z (b) R 1 1 1 0 -1 4194308 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0";
        let stat = Stat::parse(line).expect("well-formed");
        assert!(stat.exiting);
        assert_eq!(stat.start_time, 777);
        assert!(Stat::parse("garbage").is_none());
    }

    #[test]
    fn this_process_is_not_exiting() {
        let own = start_time("self").expect("proc is mounted");
        assert!(!exiting(u64::from(std::process::id()), own));
    }
}
