//! `nvmlInit` and `nvmlShutdown`: the world is open while anyone needs it, and looked at only.
//!
//! Opening makes the world if it is not there yet, so NVML alone shows idle devices; it takes part
//! in nothing and occupies no device.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::answer::{Fault, NvmlReturn, UNINITIALIZED};
use crate::view::View;

struct Session {
    view: Arc<View>,
    /// How many `nvmlInit`s await their `nvmlShutdown`.
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

/// `nvmlInitWithFlags`: the flags ask for nothing the simulator does.
pub(crate) fn init_with_flags(_flags: u32) -> NvmlReturn {
    init()
}

/// Closes the world with its last user.
pub(crate) fn shutdown() -> NvmlReturn {
    let mut session = session();
    let users = session.as_mut().ok_or(UNINITIALIZED)?;
    users.users -= 1;
    if users.users == 0 {
        *session = None;
    }
    Ok(())
}

/// The open world.
pub(crate) fn view() -> Result<Arc<View>, Fault> {
    let session = session();
    Ok(Arc::clone(&session.as_ref().ok_or(UNINITIALIZED)?.view))
}
