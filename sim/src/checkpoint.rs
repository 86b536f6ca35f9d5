//! Checkpoints: the driver locks a process, moves its memory off the devices and back, and lets the process continue.
//!
//! ```text
//!   running ──lock──▶ locked ──checkpoint──▶ checkpointed
//!      ▲                │  ▲                      │
//!      └────unlock──────┘  └───────restore────────┘
//! ```
//!
//! Any process of the world may take each step for any process, itself included. The slot of a process counts its threads
//! inside a call and its queued work. The process that locks it waits until both are zero, and later calls of the locked
//! process wait until it is unlocked. `away` holds the bytes that left, beside `used`. Device memory is host memory here, so
//! neither contents nor addresses move.
//!
//! Permanent failures follow the driver. A failed checkpoint leaves the process in a state that no call ends. A restore without
//! room fails for good, unless the scenario says otherwise, and so does the restore of a process that had memory of another process mapped: it stays checkpointed.
//!
//! A process that is killed while it locks another leaves it locked.

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
/// State after a failed checkpoint.
const FAILED: u32 = 4;
/// State after a failed restore; it is reported as checkpointed.
const LOST: u32 = 5;
/// States during a step; they are reported as the state in which the step begins.
const LEAVING: u32 = 6;
const RETURNING: u32 = 7;

/// Bytes that stay on a device after a checkpoint, as measured.
const STAYS: u64 = 4 << 20;
/// Interval at which a process checks whether another one is idle.
const NAP: Duration = Duration::from_micros(200);

/// The checkpoint state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The process runs.
    Running,
    /// The process is locked: its calls wait.
    Locked,
    /// The process is locked and its memory is off the devices.
    Checkpointed,
    /// The checkpoint failed. No call ends this state.
    Failed,
}

/// The reason why a step was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No process of the world has this pid.
    Unknown,
    /// The process is not in the state that this step begins in.
    State,
    /// The process was still busy at the end of the timeout. It runs on.
    TimedOut,
    /// The process has managed memory or is a client of MPS.
    NotSupported,
    /// The step failed permanently.
    Failed,
    /// The memory does not fit on the device. The restore failed permanently.
    NoRoom,
    /// An earlier restore failed. No call restores the process.
    Lost,
}

fn find(world: &World, pid: u32) -> Result<&'static Process, Refused> {
    let mut slots = taken_slots(world.layout()).map(|(_, process)| process);
    let own = |process: &&Process| process.pid.load(Relaxed) == u64::from(pid);
    slots.find(own).ok_or(Refused::Unknown)
}

fn step(process: &Process, from: u32, to: u32) -> Result<(), Refused> {
    // ORDER: SeqCst pairs the state with `inside`: either a thread that enters sees the lock, or the locking process sees the
    // thread.
    let stepped = process
        .checkpoint
        .compare_exchange(from, to, SeqCst, SeqCst);
    stepped.map(|_| ()).map_err(|_| Refused::State)
}

/// Returns the checkpoint state of a process.
pub fn state(world: &World, pid: u32) -> Result<State, Refused> {
    Ok(state_of(find(world, pid)?))
}

fn state_of(process: &Process) -> State {
    match process.checkpoint.load(SeqCst) {
        RUNNING | LOCKING => State::Running,
        LOCKED | LEAVING => State::Locked,
        FAILED => State::Failed,
        _ => State::Checkpointed,
    }
}

/// The thread that restores a process; its first one where it could not have another.
pub fn restorer(world: &World, pid: u32) -> Result<u32, Refused> {
    let thread = find(world, pid)?.restorer.load(Relaxed);
    Ok(u32::try_from(thread)
        .ok()
        .filter(|thread| *thread != 0)
        .unwrap_or(pid))
}

fn fails(world: &World, step: Step) -> bool {
    world.scenario().mishaps.checkpoint == Some(step)
}

/// Sleeps for the time that moving `bytes` takes.
fn take_time(bytes: u64, rate: Bytes) {
    if rate.0 > 0 {
        clock::sleep(Duration::from_secs_f64(bytes as f64 / rate.0 as f64));
    }
}

/// Locks a process as soon as it is idle. Without a timeout it waits for that indefinitely.
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

/// Brings the memory of a checkpointed process back: all of it, or none and then never, unless the scenario allows another try.
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
            let can_be_tried_again = fails(world, Step::Room);
            let left = if can_be_tried_again {
                CHECKPOINTED
            } else {
                LOST
            };
            step(process, RETURNING, left)?;
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

/// Unlocks a process.
pub fn unlock(world: &World, pid: u32) -> Result<(), Refused> {
    if fails(world, Step::Unlock) {
        return Err(Refused::Failed);
    }
    step(find(world, pid)?, LOCKED, RUNNING)
}

impl Member {
    /// Counts a thread that enters a call. Waits while the process is locked, unless `is_answered` in that state.
    pub fn enter(&self, is_answered: impl Fn(State) -> bool) {
        let process = self.process();
        loop {
            // ORDER: SeqCst, see `step`.
            process.inside.fetch_add(1, SeqCst);
            if process.checkpoint.load(SeqCst) == RUNNING || is_answered(state_of(process)) {
                return;
            }
            process.inside.fetch_sub(1, SeqCst);
            while process.checkpoint.load(SeqCst) != RUNNING {
                std::thread::sleep(NAP);
            }
        }
    }

    /// Returns true if the memory is off the devices.
    pub fn is_checkpointed(&self) -> bool {
        state_of(self.process()) == State::Checkpointed
    }

    /// Counts a thread that leaves a call.
    pub fn leave(&self) {
        self.process().inside.fetch_sub(1, SeqCst);
    }

    /// Records the thread that restores the process.
    pub fn restored_by(&self, thread: u32) {
        self.process().restorer.store(thread.into(), Relaxed);
    }

    /// Counts a piece of work that is queued (`more`) or done.
    pub fn queued(&self, more: bool) {
        count(&self.process().queued, more);
    }

    /// Counts a managed allocation that is made (`more`) or freed.
    pub fn managed(&self, more: bool) {
        count(&self.process().managed, more);
    }

    /// Counts a mapping of another process's memory that is made (`more`) or removed.
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

    /// Checkpoints a process and gives another one the room that its restore needs.
    fn checkpointed_without_room(world: &std::sync::Arc<World>, pid: u32) -> (Member, Member) {
        let member = Member::join(world).expect("room");
        let other = Member::join(world).expect("room");
        member.take_memory(0, 60 << 20).expect("fits");
        assert_eq!(lock(world, pid, None), Ok(()));
        assert_eq!(checkpoint(world, pid), Ok(()));
        other.take_memory(0, 32 << 20).expect("fits now");
        assert_eq!(restore(world, pid), Err(Refused::NoRoom));
        (member, other)
    }

    #[test]
    fn a_restore_without_room_is_final() {
        let private = Private::new("no-room");
        let world = private.open(Some(DEVICE));
        let pid = std::process::id();
        let (_member, other) = checkpointed_without_room(&world, pid);
        other.give_memory(0, 32 << 20);
        assert_eq!(restore(&world, pid), Err(Refused::Lost));
        assert_eq!(state(&world, pid), Ok(State::Checkpointed));
        assert_eq!(unlock(&world, pid), Err(Refused::State));
    }

    #[test]
    fn a_restore_without_room_can_be_tried_again_where_the_scenario_says_so() {
        let private = Private::new("room-later");
        let scenario = format!("{DEVICE}\n[mishaps]\ncheckpoint = \"room\"");
        let world = private.open(Some(&scenario));
        let pid = std::process::id();
        let (_member, other) = checkpointed_without_room(&world, pid);
        assert_eq!(state(&world, pid), Ok(State::Checkpointed));
        other.give_memory(0, 32 << 20);
        assert_eq!(restore(&world, pid), Ok(()));
        assert_eq!(unlock(&world, pid), Ok(()));
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
        member.enter(|_| false);
        member.queued(false);
        assert_eq!(lock(&world, pid, limit), Err(Refused::TimedOut));
        member.leave();
        member.managed(true);
        assert_eq!(lock(&world, pid, limit), Ok(()));
        assert_eq!(checkpoint(&world, pid), Err(Refused::NotSupported));
        assert_eq!(unlock(&world, pid), Ok(()));
    }
}
