//! A thread that gives slots back.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::{EventfdFlags, eventfd};
use shm_layout::SlotId;
use shm_layout::broker::Reaper;

/// The thread, and the channel with its results.
pub struct Reaping {
    orders: Sender<SlotId>,
    done: Receiver<SlotId>,
    bell: Arc<OwnedFd>,
}

impl Reaping {
    /// Starts the thread.
    pub fn start(reaper: Reaper) -> io::Result<Self> {
        let (orders, inbox) = channel::<SlotId>();
        let (outbox, done) = channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let theirs = Arc::clone(&bell);
        std::thread::Builder::new()
            .name("reaper".into())
            .stack_size(256 << 10)
            .spawn(move || {
                for slot in inbox {
                    reaper.give_back(slot);
                    if outbox.send(slot).is_err() {
                        return;
                    }
                    let _ = rustix::io::write(&*theirs, &1_u64.to_ne_bytes());
                }
            })?;
        Ok(Self { orders, done, bell })
    }

    /// Orders the thread to give a slot back.
    pub fn order(&self, slot: SlotId) {
        // The thread lives as long as this value, so sending cannot fail.
        let _ = self.orders.send(slot);
    }

    /// Returns a descriptor that is readable when there is a result.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Returns the slots that were given back since the last call.
    pub fn done(&self) -> Vec<SlotId> {
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        self.done.try_iter().collect()
    }
}
