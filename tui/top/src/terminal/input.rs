//! What the terminal sends: keys, the mouse, pastes, new sizes.
//!
//! crossterm's stream takes a lock each time it is asked, and its own thread holds that lock while it waits for the next
//! event; so whoever asks in vain yields the processor several times. A task of its own asks only when something came.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;

use crossterm::event::{Event, EventStream};
use futures_core::Stream as _;
use tokio::sync::mpsc::{self, Receiver};
use tokio::task::JoinHandle;

/// More than this that is not yet taken in waits in the terminal.
const WAITING: usize = 64;

/// Reads the terminal until it is dropped.
#[derive(Debug)]
pub struct Input {
    events: Receiver<io::Result<Event>>,
    task: JoinHandle<()>,
}

impl Input {
    /// Begins to read. Only a runtime of tokio can do it.
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

    /// The next event; `None` when the terminal has gone.
    pub async fn next(&mut self) -> Option<io::Result<Event>> {
        self.events.recv().await
    }

    /// Stops reading; what is typed from now on is for another program.
    pub async fn end(mut self) {
        self.task.abort();
        // It was aborted: that is the error.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.task.abort();
    }
}
