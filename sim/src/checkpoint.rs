//! Checkpoints: a process is locked, its memory leaves the devices, comes back, and it goes on.
//!
//! ```text
//!   running ──lock──▶ locked ──checkpoint──▶ checkpointed
//!      ▲                │  ▲                      │
//!      └────unlock──────┘  └───────restore────────┘
//! ```
//!
//! Anyone in the world may take each step for any process, itself included. A process says in its slot how many of
//! its threads are inside a call and how much it has queued; the one who locks waits until both are none, and a call
//! that comes later waits until the process runs again. The bytes that leave are noted beside those that stay; the
//! content is the process's own memory anyway and does not move, so neither do its addresses.
//!
//! What fails for good is as the driver has it: a checkpoint that fails leaves the process in a state that no call ends, and
//! so does a restore without room, or of a process that had another one's memory mapped; it stays checkpointed.
//!
//! Who dies while locking leaves the process locked, as who dies later does.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Duration;

use crate::layout::Process;
use crate::process::Member;
use crate::scenario::{Bytes, Step};
use crate::slots::taken_slots;
use crate::world::World;
use crate::{capacity, clock};

const RUNNING: u32 = 0;
const LOCKING: u32 = 1;
const LOCKED: u32 = 2;
const CHECKPOINTED: u32 = 3;
/// A checkpoint failed.
const FAILED: u32 = 4;
/// A restore failed: it says that it is checkpointed.
const LOST: u32 = 5;
/// A step under way, seen as the state it begins in.
const LEAVING: u32 = 6;
const RETURNING: u32 = 7;

/// Bytes that stay on a device, as measured.
const STAYS: u64 = 4 << 20;
/// How long who waits for another process sleeps between two looks.
const NAP: Duration = Duration::from_micros(200);

/// What a process is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs.
    Running,
    /// Its calls wait.
    Locked,
    /// And its memory is away.
    Checkpointed,
    /// Its checkpoint failed; nothing helps it.
    Failed,
}

/// Why a step was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No process of the world has this pid.
    Unknown,
    /// The process is not in the state that this step begins in.
    State,
    /// It did not come to rest in time, and runs on.
    TimedOut,
    /// It has managed memory, or is a client of MPS.
    NotSupported,
    /// The step failed, for good.
    Failed,
    /// There is no room for its memory, which is away for good.
    NoRoom,
    /// Its restore failed before; nothing brings it back.
    Lost,
}

fn find(world: &World, pid: u32) -> Result<&'static Process, Refused> {
    let mut slots = taken_slots(world.layout()).map(|(_, process)| process);
    let own = |process: &&Process| process.pid.load(Relaxed) == u64::from(pid);
    slots.find(own).ok_or(Refused::Unknown)
}

fn step(process: &Process, from: u32, to: u32) -> Result<(), Refused> {
    // ORDER: SeqCst pairs the state with `inside`: who comes in sees the lock, or is seen by who locks.
    let stepped = process
        .checkpoint
        .compare_exchange(from, to, SeqCst, SeqCst);
    stepped.map(|_| ()).map_err(|_| Refused::State)
}

/// What a process is in.
pub fn state(world: &World, pid: u32) -> Result<State, Refused> {
    Ok(match find(world, pid)?.checkpoint.load(SeqCst) {
        RUNNING | LOCKING => State::Running,
        LOCKED | LEAVING => State::Locked,
        FAILED => State::Failed,
        _ => State::Checkpointed,
    })
}

fn fails(world: &World, step: Step) -> bool {
    world.scenario().mishaps.checkpoint == Some(step)
}

/// What moving so many bytes takes.
fn take_time(bytes: u64, rate: Bytes) {
    if rate.0 > 0 {
        clock::sleep(Duration::from_secs_f64(bytes as f64 / rate.0 as f64));
    }
}

/// Locks a process, once it is at rest; waits for that without end if no time is given.
pub fn lock(world: &World, pid: u32, timeout: Option<Duration>) -> Result<(), Refused> {
    let process = find(world, pid)?;
    if process.mps.load(Relaxed) != 0 {
        return Err(Refused::NotSupported);
    }
    step(process, RUNNING, LOCKING)?;
    let began = clock::now();
    let limit = timeout.map(|timeout| timeout.as_nanos() as u64);
    let is_busy = || {
        // ORDER: SeqCst, see `step`.
        process.inside.load(SeqCst) != 0
            || process.queued.load(SeqCst) != 0
            || fails(world, Step::Lock)
    };
    while is_busy() {
        if limit.is_some_and(|limit| clock::now().saturating_sub(began) >= limit) {
            step(process, LOCKING, RUNNING)?;
            return Err(Refused::TimedOut);
        }
        std::thread::sleep(NAP);
    }
    step(process, LOCKING, LOCKED)
}

/// Takes the memory of a locked process off the devices.
pub fn checkpoint(world: &World, pid: u32) -> Result<(), Refused> {
    let process = find(world, pid)?;
    if process.checkpoint.load(SeqCst) != LOCKED {
        return Err(Refused::State);
    }
    if process.managed.load(SeqCst) != 0 {
        return Err(Refused::NotSupported);
    }
    step(process, LOCKED, LEAVING)?;
    if fails(world, Step::Checkpoint) {
        step(process, LEAVING, FAILED)?;
        return Err(Refused::Failed);
    }
    let mut all = 0u64;
    for device in &process.devices {
        let gone = device.used.load(SeqCst).saturating_sub(STAYS);
        device.away.store(gone, SeqCst);
        all = all.saturating_add(gone);
    }
    take_time(all, world.scenario().checkpoint.out);
    for device in &process.devices {
        device.used.fetch_sub(device.away.load(SeqCst), SeqCst);
    }
    step(process, LEAVING, CHECKPOINTED)
}

/// Brings it back: all of it or none, and then never.
pub fn restore(world: &World, pid: u32) -> Result<(), Refused> {
    let process = find(world, pid)?;
    if process.checkpoint.load(SeqCst) == LOST {
        return Err(Refused::Lost);
    }
    step(process, CHECKPOINTED, RETURNING)?;
    if fails(world, Step::Restore) || process.imported.load(SeqCst) != 0 {
        step(process, RETURNING, LOST)?;
        return Err(Refused::Failed);
    }
    let mut all = 0u64;
    for (index, device) in process.devices.iter().enumerate() {
        let bytes = device.away.load(SeqCst);
        if bytes > 0 && capacity::take(world, process, index, bytes).is_err() {
            for device in &process.devices[..index] {
                device.used.fetch_sub(device.away.load(SeqCst), SeqCst);
            }
            step(process, RETURNING, LOST)?;
            return Err(Refused::NoRoom);
        }
        all = all.saturating_add(bytes);
    }
    take_time(all, world.scenario().checkpoint.back);
    for device in &process.devices {
        device.away.store(0, SeqCst);
    }
    step(process, RETURNING, LOCKED)
}

/// Lets a locked process run.
pub fn unlock(world: &World, pid: u32) -> Result<(), Refused> {
    step(find(world, pid)?, LOCKED, RUNNING)
}

impl Member {
    /// A thread comes into a call; waits as long as the process is locked.
    pub fn enter(&self) {
        let process = self.process();
        loop {
            // ORDER: SeqCst, see `step`.
            process.inside.fetch_add(1, SeqCst);
            if process.checkpoint.load(SeqCst) == RUNNING {
                return;
            }
            process.inside.fetch_sub(1, SeqCst);
            while process.checkpoint.load(SeqCst) != RUNNING {
                std::thread::sleep(NAP);
            }
        }
    }

    /// It leaves.
    pub fn leave(&self) {
        self.process().inside.fetch_sub(1, SeqCst);
    }

    /// Something was queued, or is done.
    pub fn queued(&self, more: bool) {
        count(&self.process().queued, more);
    }

    /// Managed memory was made, or is gone.
    pub fn managed(&self, more: bool) {
        count(&self.process().managed, more);
    }

    /// Memory of another process was mapped, or is not any more.
    pub fn imported(&self, more: bool) {
        count(&self.process().imported, more);
    }
}

fn count(word: &AtomicU64, more: bool) {
    if more {
        word.fetch_add(1, SeqCst);
    } else {
        word.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::Private;

    const DEVICE: &str = "[[device]]\nmemory = \"64MiB\"";

    #[test]
    fn memory_leaves_and_comes_back_when_there_is_room() {
        let private = Private::new("checkpoint");
        let world = private.open(Some(DEVICE));
        let member = Member::join(&world).expect("room");
        let pid = std::process::id();
        member.take_memory(0, 60 << 20).expect("fits");
        assert_eq!(checkpoint(&world, pid), Err(Refused::State));
        assert_eq!(lock(&world, pid, None), Ok(()));
        assert_eq!(lock(&world, pid, None), Err(Refused::State));
        assert_eq!(restore(&world, pid), Err(Refused::State));
        assert_eq!(checkpoint(&world, pid), Ok(()));
        assert_eq!(member.free_memory(0), 60 << 20);
        assert_eq!(unlock(&world, pid), Err(Refused::State));

        assert_eq!(restore(&world, pid), Ok(()));
        assert_eq!(member.free_memory(0), 4 << 20);
        assert_eq!(unlock(&world, pid), Ok(()));
        assert_eq!(state(&world, pid), Ok(State::Running));
        assert_eq!(state(&world, 1), Err(Refused::Unknown));
    }

    #[test]
    fn a_restore_without_room_is_final() {
        let private = Private::new("no-room");
        let world = private.open(Some(DEVICE));
        let (member, other) = (
            Member::join(&world).expect("room"),
            Member::join(&world).expect("room"),
        );
        let pid = std::process::id();
        member.take_memory(0, 60 << 20).expect("fits");
        assert_eq!(lock(&world, pid, None), Ok(()));
        assert_eq!(checkpoint(&world, pid), Ok(()));
        other.take_memory(0, 32 << 20).expect("fits now");
        assert_eq!(restore(&world, pid), Err(Refused::NoRoom));
        other.give_memory(0, 32 << 20);
        assert_eq!(restore(&world, pid), Err(Refused::Lost));
        assert_eq!(state(&world, pid), Ok(State::Checkpointed));
        assert_eq!(unlock(&world, pid), Err(Refused::State));
    }

    #[test]
    fn a_step_fails_where_the_scenario_says_so() {
        let pid = std::process::id();
        let failing = |step: &str| format!("{DEVICE}\n[mishaps]\ncheckpoint = \"{step}\"");

        let private = Private::new("lock-fails");
        let world = private.open(Some(&failing("lock")));
        let member = Member::join(&world).expect("room");
        let limit = Some(Duration::from_millis(5));
        assert_eq!(lock(&world, pid, limit), Err(Refused::TimedOut));
        assert_eq!(state(&world, pid), Ok(State::Running));
        drop(member);

        let private = Private::new("checkpoint-fails");
        let world = private.open(Some(&failing("checkpoint")));
        let member = Member::join(&world).expect("room");
        assert_eq!(lock(&world, pid, limit), Ok(()));
        assert_eq!(checkpoint(&world, pid), Err(Refused::Failed));
        assert_eq!(unlock(&world, pid), Err(Refused::State));
        assert_eq!(state(&world, pid), Ok(State::Failed));
        drop(member);

        let private = Private::new("restore-fails");
        let world = private.open(Some(&failing("restore")));
        let _member = Member::join(&world).expect("room");
        assert_eq!(lock(&world, pid, limit), Ok(()));
        assert_eq!(checkpoint(&world, pid), Ok(()));
        assert_eq!(restore(&world, pid), Err(Refused::Failed));
        assert_eq!(state(&world, pid), Ok(State::Checkpointed));
    }

    #[test]
    fn memory_of_another_process_leaves_and_does_not_come_back() {
        let private = Private::new("imported");
        let world = private.open(Some(DEVICE));
        let member = Member::join(&world).expect("room");
        let pid = std::process::id();
        member.imported(true);
        assert_eq!(lock(&world, pid, None), Ok(()));
        assert_eq!(checkpoint(&world, pid), Ok(()));
        assert_eq!(restore(&world, pid), Err(Refused::Failed));
    }

    #[test]
    fn memory_takes_the_time_that_the_scenario_says() {
        let private = Private::new("rates");
        let scenario = format!("{DEVICE}\n[checkpoint]\nout = \"560MiB\"");
        let world = private.open(Some(&scenario));
        let member = Member::join(&world).expect("room");
        let pid = std::process::id();
        member.take_memory(0, 60 << 20).expect("fits");
        assert_eq!(lock(&world, pid, None), Ok(()));
        let began = clock::now();
        assert_eq!(checkpoint(&world, pid), Ok(()));
        assert!(clock::now() - began >= 95_000_000, "56 of 560 MiB a second");
    }

    #[test]
    fn who_does_not_come_to_rest_in_time_runs_on() {
        let private = Private::new("restless");
        let world = private.open(Some(DEVICE));
        let member = Member::join(&world).expect("room");
        let pid = std::process::id();
        member.queued(true);
        let limit = Some(Duration::from_millis(5));
        assert_eq!(lock(&world, pid, limit), Err(Refused::TimedOut));
        member.enter();
        member.queued(false);
        assert_eq!(lock(&world, pid, limit), Err(Refused::TimedOut));
        member.leave();
        member.managed(true);
        assert_eq!(lock(&world, pid, limit), Ok(()));
        assert_eq!(checkpoint(&world, pid), Err(Refused::NotSupported));
        assert_eq!(unlock(&world, pid), Ok(()));
    }
}
