//! NVML, called in a thread of its own because a driver call may take seconds.
//!
//! [`Watch::latest`] never waits: before the first answer it returns [`Nvml::Starting`]. A suspended GPU stays
//! suspended: NVML is not called while the kernel reports the device as suspended.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub mod kernel_log;
mod library;
mod read;
mod sleep;
mod xids;

pub use library::Grounds;
pub use xids::{Pci, Xid};

use kernel_log::KernelLog;

use super::locked;
use gpushare_base::host::pace::{Pace, thread_time};
use gpushare_sample::Nvml;
pub use gpushare_sample::nvml::{Device, Figures, Process};

/// The pace of a thread whose first round is the only one that its program waits for.
const HOUR: Duration = Duration::from_secs(3600);

/// The answers of one round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Look {
    /// The state of NVML.
    pub state: Nvml,
    /// The devices in NVML's order; a device split by MIG is replaced by its instances.
    pub devices: Vec<Device>,
    /// Sentences about cards of which NVML tells nothing, each with the reason.
    pub warnings: Vec<String>,
}

/// The thread that calls NVML, and its latest answers.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    /// Dropping it ends the thread. The thread is not joined, because a driver call may hang.
    _stop: Option<mpsc::Sender<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    look: Mutex<Look>,
    answered: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Look> {
        // A panic in the thread cannot leave half an answer: it is stored in one assignment.
        locked(&self.look)
    }

    fn store(&self, look: Look) {
        *self.lock() = look;
        self.answered.notify_all();
    }
}

impl Watch {
    /// Returns a watch without NVML.
    pub fn off() -> Self {
        Self {
            shared: Arc::default(),
            _stop: None,
        }
    }

    /// Returns a watch with fixed answers.
    pub fn told(look: Look) -> Self {
        let watch = Self::off();
        watch.shared.store(look);
        watch
    }

    /// Starts a thread that calls NVML at a pace, with the library that belongs to the segment directory.
    pub fn start(segment: &Path, pace: Pace) -> Self {
        Self::spawn(segment, pace, true)
    }

    /// Starts a thread that calls NVML once, for the devices and their processes. It leaves out what takes long and is only to be
    /// shown: the traffic and the errors.
    pub fn once(segment: &Path) -> Self {
        Self::spawn(segment, Pace::fixed(HOUR), false)
    }

    fn spawn(segment: &Path, pace: Pace, with_all: bool) -> Self {
        let shared = Arc::new(Shared::default());
        shared.lock().state = Nvml::Starting;
        let (stop, stopped) = mpsc::channel();
        let (segment, theirs) = (segment.to_owned(), Arc::clone(&shared));
        let spawned = thread::Builder::new()
            .name("nvml".into())
            .spawn(move || watch(&segment, pace, with_all, &theirs, &stopped));
        if let Err(error) = spawned {
            shared.store(missing(format!("cannot start the NVML thread: {error}")));
        }
        Self {
            shared,
            _stop: Some(stop),
        }
    }

    /// Returns the latest answers.
    pub fn latest(&self) -> Look {
        self.shared.lock().clone()
    }

    /// Waits for NVML's first answer, at most `limit`. It is meant for programs that print once.
    pub fn settle(&self, limit: Duration) {
        let look = self.shared.lock();
        let waiting = |look: &mut Look| look.state == Nvml::Starting;
        drop(
            self.shared
                .answered
                .wait_timeout_while(look, limit, waiting),
        );
    }
}

fn watch(
    segment: &Path,
    mut pace: Pace,
    with_all: bool,
    shared: &Shared,
    stopped: &mpsc::Receiver<()>,
) {
    let mut spent = thread_time();
    let mut rest = || {
        let time = pace.after(thread_time() - spent);
        let goes_on = stopped.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
        spent = thread_time();
        goes_on
    };
    while sleep::all_asleep(&PathBuf::from(sleep::PCI)) {
        shared.store(missing(
            "the GPUs are suspended; gpushare does not wake them to read them".into(),
        ));
        if !rest() {
            return;
        }
    }
    let (nvml, log) = loop {
        // Chosen anew for each attempt: a simulated world may have been made since the last.
        let library = Grounds::of(segment).choose();
        match library::open(library.as_deref()) {
            Ok(nvml) => break (nvml, kernel_log::path(library.as_deref())),
            Err(why) => shared.store(missing(why)),
        }
        if !rest() {
            return;
        }
    };
    let mut reader = read::Reader::new(&nvml);
    if with_all {
        reader.tell_all(KernelLog::open(&log).ok());
    }
    loop {
        shared.store(reader.look());
        if !rest() {
            return;
        }
    }
}

fn missing(why: String) -> Look {
    Look {
        state: Nvml::Missing(why),
        ..Look::default()
    }
}
