//! `nvmlInit` and `nvmlShutdown`: the world is open, for reading, while it has users.
//!
//! Opening makes the world if it does not exist, so a program with only NVML sees idle devices. It does not join the world and
//! occupies no device.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::answer::{Fault, NvmlReturn, UNINITIALIZED};
use crate::view::View;

struct Session {
    view: Arc<View>,
    /// Number of `nvmlInit` calls without their `nvmlShutdown`.
    users: usize,
}

static SESSION: Mutex<Option<Session>> = Mutex::new(None);

fn session() -> MutexGuard<'static, Option<Session>> {
    SESSION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the world, or counts one more user of it.
pub(crate) fn init() -> NvmlReturn {
    let mut session = session();
    match session.as_mut() {
        Some(session) => session.users += 1,
        None => {
            *session = Some(Session {
                view: View::open()?,
                users: 1,
            });
        }
    }
    Ok(())
}

/// `nvmlInitWithFlags`; no flag has an effect in the simulator.
pub(crate) fn init_with_flags(_flags: u32) -> NvmlReturn {
    init()
}

/// Counts a user less and closes the world after the last one.
pub(crate) fn shutdown() -> NvmlReturn {
    let mut session = session();
    let users = session.as_mut().ok_or(UNINITIALIZED)?;
    users.users -= 1;
    if users.users == 0 {
        *session = None;
    }
    Ok(())
}

/// Returns the open world.
pub(crate) fn view() -> Result<Arc<View>, Fault> {
    let session = session();
    Ok(Arc::clone(&session.as_ref().ok_or(UNINITIALIZED)?.view))
}
