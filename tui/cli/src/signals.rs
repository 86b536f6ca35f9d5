//! The signals that ask a verb to end: SIGINT, as from Ctrl-C, SIGTERM and SIGHUP.

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use gpushare_base::text::exit::Failure;

/// A watch of these signals, with which none of them ends the program by itself.
pub(super) struct Ends([(&'static str, Signal); 3]);

impl Ends {
    /// Starts the watch, and makes the runtime that waits for the signals.
    pub(super) fn watch() -> Result<(Runtime, Self), Failure> {
        let cannot = |error| Failure::failed(format!("cannot watch for signals: {error}"));
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(cannot)?;
        let entered = runtime.enter();
        let on = |kind| signal(kind).map_err(cannot);
        let signals = [
            ("SIGINT", on(SignalKind::interrupt())?),
            ("SIGTERM", on(SignalKind::terminate())?),
            ("SIGHUP", on(SignalKind::hangup())?),
        ];
        drop(entered);
        Ok((runtime, Self(signals)))
    }

    /// Waits for the first signal and returns its name.
    pub(super) async fn come(&mut self) -> &'static str {
        let [(int, interrupt), (term, terminate), (hup, hangup)] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => int,
            _ = terminate.recv() => term,
            _ = hangup.recv() => hup,
        }
    }
}
