//! Notices: one line on stderr, once per cause.

use std::{
    fmt::{self, Write},
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};

use shm_layout::text::{error_number, is_hidden};

use crate::sys::stderr;

/// The causes of notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Cause {
    /// The segments could not be opened.
    Segment,
    /// Another process has overwritten the segment.
    Overwritten,
    /// Every slot is taken.
    SlotsFull,
    /// The driver shows more devices than a slot has room for.
    DevicesFull,
    /// The keeper thread did not start.
    Keeper,
    /// A hook panicked.
    Fault,
    /// A variable has an invalid value.
    Environment,
    /// The files of `PFLOG` cannot be written.
    Trace,
    /// The process was attached (`GPUSHARE_LOG=info`).
    Arrival,
    /// Memory was lost by an eviction.
    Evicted,
    /// Memory cannot be made swappable.
    Swappable,
    /// A process was to be swappable, and most of its memory is not.
    Fixed,
    /// Swappable memory was to be shared with other processes.
    Shown,
    /// The launch asked for a larger share of the turns than it may have.
    Curbed,
    /// The driver had no room for a restore.
    Full,
    /// The memory that the program wants reserved is taken.
    Reserve,
    /// The card's own time slices cannot be set.
    Slices,
}

static SAID: AtomicU32 = AtomicU32::new(0);

/// Suppresses all notices (`GPUSHARE_LOG=off`).
pub fn silence() {
    SAID.store(u32::MAX, Relaxed);
}

/// Prints a notice on stderr unless this cause was reported before.
pub fn once(cause: Cause, what: fmt::Arguments<'_>) {
    let bit = 1 << cause as u32;
    if SAID.fetch_or(bit, Relaxed) & bit == 0 {
        say(what);
    }
}

/// Makes a panic in the shim print one line instead of a backtrace. Called at attachment. A forked child has its
/// parent's hook, and must not wait for the lock that protects it.
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

fn say(what: fmt::Arguments<'_>) {
    let line = Line::of(what);
    stderr::write(&line.bytes[..line.len]);
}

/// A line in a fixed buffer, truncated instead of allocated.
struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Line {
    fn of(what: fmt::Arguments<'_>) -> Self {
        let mut line = Self {
            bytes: [0; 512],
            len: 0,
        };
        let _ = write!(line, "gpushare: {what}");
        line.drop_error_numbers();
        line.bytes[line.len] = b'\n';
        line.len += 1;
        line
    }

    fn drop_error_numbers(&mut self) {
        let number = |line: &Self| error_number(str::from_utf8(&line.bytes[..line.len]).ok()?);
        while let Some(number) = number(self) {
            self.bytes.copy_within(number.end..self.len, number.start);
            self.len -= number.len();
        }
    }

    fn put(&mut self, c: char) -> fmt::Result {
        let mut bytes = [0; 4];
        let bytes = c.encode_utf8(&mut bytes).as_bytes();
        let end = self.len + bytes.len();
        // The last byte is the line feed.
        let most = self.bytes.len() - 1;
        let room = self.bytes[..most].get_mut(self.len..end);
        room.ok_or(fmt::Error)?.copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }
}

impl Write for Line {
    /// Escapes control characters, so that paths and values of variables stay on the line and have no effect on a
    /// terminal.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| match is_hidden(c) {
            true => c.escape_default().try_for_each(|c| self.put(c)),
            false => self.put(c),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(what: &str) -> String {
        let line = Line::of(format_args!("{what}"));
        String::from_utf8(line.bytes[..line.len].to_vec()).expect("whole characters")
    }

    #[test]
    fn a_path_with_a_line_feed_stays_on_one_line() {
        assert_eq!(line("/tmp/a\nb\u{1b}"), "gpushare: /tmp/a\\nb\\u{1b}\n");
    }

    #[test]
    fn an_error_of_the_system_is_said_in_words() {
        let error = std::io::Error::from_raw_os_error(libc::ENOSPC);
        assert_eq!(
            line(&format!("cannot write: {error}; no trace: {error}")),
            "gpushare: cannot write: No space left on device; no trace: No space left on device\n"
        );
    }

    #[test]
    fn a_long_line_is_cut_between_characters_and_ends() {
        for lead in 0..4 {
            let long = line(&format!("{}{}", "x".repeat(lead), "ä€𝄞".repeat(200)));
            assert!(long.ends_with('\n') && long.len() <= 512, "{}", long.len());
            assert_eq!(long.matches('\n').count(), 1);
        }
    }
}
