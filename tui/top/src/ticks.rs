//! Ticks: the times at which the next sample is due, from a kernel timer.
//!
//! tokio's own timers wake a program twice for each tick, once to move the timer from a coarse wheel to a finer one.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// Ticks at one pace. Missed ticks are skipped.
pub(super) struct Ticks {
    timer: AsyncFd<OwnedFd>,
    pace: Duration,
}

impl Ticks {
    /// Starts the ticks; the first is due after `pace`. It must be called in a runtime of tokio.
    pub(super) fn new(pace: Duration) -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe, for types that may change their descriptor; an OwnedFd does not"
        )]
        let timer = AsyncFd::new(timer)?;
        let ticks = Self { timer, pace };
        ticks.reset_after(pace)?;
        Ok(ticks)
    }

    /// Moves the next tick to this time from now.
    pub(super) fn reset_after(&self, first: Duration) -> io::Result<()> {
        let spec = |time: Duration| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        // A time of zero would stop the timer.
        let [first, pace] = [first, self.pace].map(|time| spec(time.max(Duration::from_nanos(1))));
        let times = Itimerspec {
            it_interval: pace,
            it_value: first,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &times)?;
        Ok(())
    }

    /// Waits for the next tick. Dropping the future loses no tick.
    pub(super) async fn tick(&self) -> io::Result<()> {
        loop {
            let mut ready = self.timer.readable().await?;
            let came = rustix::io::read(self.timer.get_ref(), &mut [0; 8]);
            ready.clear_ready();
            match came {
                // The timer was set again during the read.
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                came => return came.map(|_| ()).map_err(Into::into),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn ticks_come_no_sooner_than_they_are_due_and_go_on() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(async {
            let pace = Duration::from_millis(20);
            let start = Instant::now();
            let ticks = Ticks::new(pace).unwrap();
            for _ in 0..3 {
                ticks.tick().await.unwrap();
            }
            assert!(start.elapsed() >= 3 * pace);
            let start = Instant::now();
            ticks.reset_after(3 * pace).unwrap();
            ticks.tick().await.unwrap();
            assert!(start.elapsed() >= 3 * pace);
            ticks.reset_after(Duration::ZERO).unwrap();
            ticks.tick().await.unwrap();
        });
    }
}
