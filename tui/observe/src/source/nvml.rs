//! NVML in a thread of its own, because a driver call may take seconds.
//!
//! [`Watch::latest`] never waits: before the first answer it says [`Nvml::Starting`]. A sleeping GPU is left asleep:
//! as long as the kernel reports the device suspended it is not asked.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

mod library;
mod read;
mod sleep;

pub use library::Grounds;

use super::locked;
use gpushare_sample::Nvml;
pub use gpushare_sample::nvml::{Device, Figures, Process};

/// What NVML said in one round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Look {
    /// Whether it answers at all.
    pub state: Nvml,
    /// Its devices in its own order; instances stand in place of a device split by MIG.
    pub devices: Vec<Device>,
}

/// The thread that asks NVML, and its latest answer.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    /// Dropping it ends the thread; it is not joined, because a driver call may hang.
    _stop: Option<mpsc::Sender<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    look: Mutex<Look>,
    answered: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Look> {
        // A panic in the thread cannot leave half a look: it is stored in one assignment.
        locked(&self.look)
    }

    fn store(&self, look: Look) {
        *self.lock() = look;
        self.answered.notify_all();
    }
}

impl Watch {
    /// No NVML at all.
    pub fn off() -> Self {
        Self {
            shared: Arc::default(),
            _stop: None,
        }
    }

    /// What was said before, and nothing newer.
    pub fn told(look: Look) -> Self {
        let watch = Self::off();
        watch.shared.store(look);
        watch
    }

    /// Asks every `pace` from now on, using the library that the segment directory is for.
    pub fn start(segment: &Path, pace: Duration) -> Self {
        let shared = Arc::new(Shared::default());
        shared.lock().state = Nvml::Starting;
        let (stop, stopped) = mpsc::channel();
        let (segment, theirs) = (segment.to_owned(), Arc::clone(&shared));
        let spawned = thread::Builder::new()
            .name("nvml".into())
            .spawn(move || watch(&segment, pace, &theirs, &stopped));
        if let Err(error) = spawned {
            shared.store(missing(format!("cannot start the NVML thread: {error}")));
        }
        Self {
            shared,
            _stop: Some(stop),
        }
    }

    /// The latest answer.
    pub fn latest(&self) -> Look {
        self.shared.lock().clone()
    }

    /// Waits until NVML has answered once, at most `limit`. For programs that print once.
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

fn watch(segment: &Path, pace: Duration, shared: &Shared, stopped: &mpsc::Receiver<()>) {
    let rest = || stopped.recv_timeout(pace) == Err(RecvTimeoutError::Timeout);
    while sleep::all_asleep(&PathBuf::from(sleep::PCI)) {
        shared.store(missing(
            "the GPUs are suspended; gpushare does not wake them to read them".into(),
        ));
        if !rest() {
            return;
        }
    }
    let nvml = loop {
        // Chosen anew each time: a simulated world may have been made since the last.
        match library::open(Grounds::of(segment).choose().as_deref()) {
            Ok(nvml) => break nvml,
            Err(why) => shared.store(missing(why)),
        }
        if !rest() {
            return;
        }
    };
    let mut reader = read::Reader::new(&nvml);
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
        devices: Vec::new(),
    }
}
