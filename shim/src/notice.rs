//! The few things we say: one line on stderr, once per cause, and a count in the segment.
#![allow(unsafe_code, reason = "writes to stderr past the guest's own buffers")]

use std::{
    fmt::{self, Write},
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};

/// What there is to be said, once each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Cause {
    /// The segments could not be opened.
    Segment,
    /// Another process wrote over the segment.
    Overwritten,
    /// Every slot is taken.
    SlotsFull,
    /// More devices than a slot has room for.
    DevicesFull,
    /// The keeper thread did not start.
    Keeper,
    /// A hook panicked.
    Fault,
    /// A variable has an invalid value.
    Environment,
    /// The files of `PFLOG` cannot be written.
    Trace,
    /// `GPUSHARE_LOG=info`: we are there.
    Arrival,
}

static SAID: AtomicU32 = AtomicU32::new(0);

/// From here on nothing is said (`GPUSHARE_LOG=off`).
pub fn silence() {
    SAID.store(u32::MAX, Relaxed);
}

/// Says it on stderr unless this cause was spoken of before.
pub fn once(cause: Cause, what: fmt::Arguments<'_>) {
    let bit = 1 << cause as u32;
    if SAID.fetch_or(bit, Relaxed) & bit == 0 {
        say(what);
    }
}

/// A fault of ours is one line on the guest's terminal, not a backtrace. Called at arrival; a forked child has its
/// parent's hook, and must not wait for the lock it is behind.
pub fn print_faults_briefly() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Relaxed) {
        return;
    }
    std::panic::set_hook(Box::new(|fault| match fault.location() {
        Some(place) => once(
            Cause::Fault,
            format_args!("internal fault at {place}; the call went to the driver unmanaged"),
        ),
        None => once(
            Cause::Fault,
            format_args!("internal fault; the call went to the driver unmanaged"),
        ),
    }));
}

/// One line, in one write, truncated rather than allocated.
fn say(what: fmt::Arguments<'_>) {
    let mut line = Line {
        bytes: [0; 512],
        len: 0,
    };
    let _ = writeln!(line, "gpushare: {what}");
    line.bytes[line.len.saturating_sub(1)] = b'\n';
    // SAFETY: the line is ours, and a closed stderr is an error we do not mind.
    let _ = unsafe { libc::write(2, line.bytes.as_ptr().cast(), line.len) };
}

struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - self.len;
        let take = text.len().min(room);
        self.bytes[self.len..self.len + take].copy_from_slice(&text.as_bytes()[..take]);
        self.len += take;
        Ok(())
    }
}
