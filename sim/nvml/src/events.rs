//! Event sets: a program waits for the Xids of devices. The simulator's kernels have them when they fail.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpushare_sim::clock;

use crate::answer::{INVALID_ARGUMENT, NOT_SUPPORTED, NvmlReturn, TIMEOUT};
use crate::board::Board;
use crate::c::{EventData, Handle, Out};
use crate::session;

/// `nvmlEventTypeXidCriticalError`.
const XID: u64 = 8;
/// The instance ids of an event of a whole GPU.
const NO_INSTANCE: u32 = u32::MAX;
/// Time between two looks of a program that waits.
const PAUSE: Duration = Duration::from_millis(5);

/// A unit whose Xids are watched: its device, its number, and the faults that were reported.
struct Watched {
    device: Handle,
    unit: usize,
    reported: u32,
}

/// The sets by their number, which is the caller's handle.
static SETS: Mutex<Option<HashMap<usize, Vec<Watched>>>> = Mutex::new(None);

fn sets() -> MutexGuard<'static, Option<HashMap<usize, Vec<Watched>>>> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn types(device: Handle, types: Out<u64>) -> NvmlReturn {
    Board::of(device)?;
    types.set(XID)
}

pub(crate) fn create(set: Out<usize>) -> NvmlReturn {
    session::view()?;
    let mut sets = sets();
    let sets = sets.get_or_insert_default();
    let number = sets.keys().max().unwrap_or(&0) + 1;
    sets.insert(number, Vec::new());
    set.set(number)
}

/// Adds a device to a set. Only Xids are supported.
pub(crate) fn register(device: Handle, types: u64, set: usize) -> NvmlReturn {
    if types & !XID != 0 {
        return Err(NOT_SUPPORTED);
    }
    let board = Board::of(device)?;
    let units = board.whole_gpu()?.units();
    let watched = units.map(|unit| Watched {
        device,
        unit,
        reported: board.view.xids(unit).0,
    });
    let mut sets = sets();
    let known = sets.as_mut().and_then(|sets| sets.get_mut(&set));
    known.ok_or(INVALID_ARGUMENT)?.extend(watched);
    Ok(())
}

/// Waits for the next event. As in the driver, the events of a device all have the number of its last one.
pub(crate) fn wait(set: usize, event: Out<EventData>, timeout_ms: u32) -> NvmlReturn {
    let end = clock::now() + Duration::from_millis(timeout_ms.into()).as_nanos() as u64;
    loop {
        if let Some(found) = next(set)? {
            return event.set(found);
        }
        if clock::now() >= end {
            return Err(TIMEOUT);
        }
        clock::sleep(PAUSE);
    }
}

fn next(set: usize) -> Result<Option<EventData>, crate::answer::Fault> {
    let view = session::view()?;
    let mut sets = sets();
    let known = sets.as_mut().and_then(|sets| sets.get_mut(&set));
    for watched in known.ok_or(INVALID_ARGUMENT)? {
        let (count, xid) = view.xids(watched.unit);
        if count != watched.reported {
            watched.reported = watched.reported.wrapping_add(1);
            return Ok(Some(EventData {
                device: watched.device,
                kind: XID,
                data: xid.into(),
                gpu_instance: NO_INSTANCE,
                compute_instance: NO_INSTANCE,
            }));
        }
    }
    Ok(None)
}

pub(crate) fn free(set: usize) -> NvmlReturn {
    let removed = sets().as_mut().and_then(|sets| sets.remove(&set));
    removed.map(|_| ()).ok_or(INVALID_ARGUMENT)
}
