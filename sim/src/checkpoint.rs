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
//! Who dies while locking leaves the process locked, as who dies later does.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use crate::layout::Process;
use crate::process::Member;
use crate::slots::taken_slots;
use crate::world::World;
use crate::{capacity, clock};

const RUNNING: u32 = 0;
const LOCKING: u32 = 1;
const LOCKED: u32 = 2;
const CHECKPOINTED: u32 = 3;

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
    /// It has managed memory.
    Managed,
    /// There is no room for its memory; it is away still.
    NoRoom,
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
        LOCKED => State::Locked,
        _ => State::Checkpointed,
    })
}

/// Locks a process, once it is at rest; waits for that without end if no time is given.
pub fn lock(world: &World, pid: u32, timeout: Option<Duration>) -> Result<(), Refused> {
    let process = find(world, pid)?;
    step(process, RUNNING, LOCKING)?;
    let began = clock::now();
    let limit = timeout.map(|timeout| timeout.as_nanos() as u64);
    // ORDER: SeqCst, see `step`.
    while process.inside.load(SeqCst) != 0 || process.queued.load(SeqCst) != 0 {
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
        return Err(Refused::Managed);
    }
    step(process, LOCKED, CHECKPOINTED)?;
    for device in &process.devices {
        let gone = device.used.load(SeqCst).saturating_sub(STAYS);
        device.away.store(gone, SeqCst);
        device.used.fetch_sub(gone, SeqCst);
    }
    Ok(())
}

/// Brings it back: all of it or none.
pub fn restore(world: &World, pid: u32) -> Result<(), Refused> {
    let process = find(world, pid)?;
    if process.checkpoint.load(SeqCst) != CHECKPOINTED {
        return Err(Refused::State);
    }
    for (index, device) in process.devices.iter().enumerate() {
        let bytes = device.away.load(SeqCst);
        if bytes > 0 && capacity::take(world, process, index, bytes).is_err() {
            for device in &process.devices[..index] {
                device.used.fetch_sub(device.away.load(SeqCst), SeqCst);
            }
            return Err(Refused::NoRoom);
        }
    }
    for device in &process.devices {
        device.away.store(0, SeqCst);
    }
    step(process, CHECKPOINTED, LOCKED)
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
        let queued = &self.process().queued;
        if more {
            queued.fetch_add(1, SeqCst);
        } else {
            queued.fetch_sub(1, SeqCst);
        }
    }

    /// Managed memory was made, or is gone.
    pub fn managed(&self, more: bool) {
        let managed = &self.process().managed;
        if more {
            managed.fetch_add(1, SeqCst);
        } else {
            managed.fetch_sub(1, SeqCst);
        }
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

        member.take_memory(0, 32 << 20).expect("another member's");
        assert_eq!(restore(&world, pid), Err(Refused::NoRoom));
        assert_eq!(state(&world, pid), Ok(State::Checkpointed));
        member.give_memory(0, 32 << 20);
        assert_eq!(restore(&world, pid), Ok(()));
        assert_eq!(member.free_memory(0), 4 << 20);
        assert_eq!(unlock(&world, pid), Ok(()));
        assert_eq!(state(&world, pid), Ok(State::Running));
        assert_eq!(state(&world, 1), Err(Refused::Unknown));
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
        assert_eq!(checkpoint(&world, pid), Err(Refused::Managed));
        assert_eq!(unlock(&world, pid), Ok(()));
    }
}
