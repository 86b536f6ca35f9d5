//! Input from the terminal: keys, the mouse, pastes, new sizes.
//!
//! crossterm's stream takes a lock for each poll, and crossterm's own thread holds that lock while it waits for the
//! next event, so a poll without an event yields the processor several times. A task of its own polls only when input
//! has arrived.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;

use crossterm::event::{Event, EventStream};
use futures_core::Stream as _;
use tokio::sync::mpsc::{self, Receiver};
use tokio::task::JoinHandle;

/// Maximum number of events that are read ahead; the rest waits in the terminal.
const WAITING: usize = 64;

/// The reader of the terminal. Dropping it ends the reading.
#[derive(Debug)]
pub struct Input {
    events: Receiver<io::Result<Event>>,
    task: JoinHandle<()>,
}

impl Input {
    /// Starts to read. It must be called in a runtime of tokio.
    pub(super) fn start() -> Self {
        let (to, events) = mpsc::channel(WAITING);
        let task = tokio::spawn(async move {
            let mut stream = EventStream::new();
            while let Some(event) = poll_fn(|task| Pin::new(&mut stream).poll_next(task)).await {
                if to.send(event).await.is_err() {
                    return;
                }
            }
        });
        Self { events, task }
    }

    /// Returns the next event; `None` when the terminal has gone.
    pub async fn next(&mut self) -> Option<io::Result<Event>> {
        self.events.recv().await
    }

    /// Stops reading; later input is for another program.
    pub async fn end(mut self) {
        self.task.abort();
        // The task was aborted: that is the error.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.task.abort();
    }
}
