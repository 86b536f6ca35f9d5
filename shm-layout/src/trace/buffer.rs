//! Writing: the traced process's side.
//!
//! Any number of threads write at once. A thread draws a place, fills it and publishes it by its last word; the rows are
//! plain atomic sums. Nothing waits for anything, and nothing here fails.

use super::{
    Record, Stat,
    layout::Mapped,
    record::{Kind, NO_CALL, NO_DEVICE, What, reason_word},
};
use crate::{
    protocol::{crash::crash_point, primitive::Ordering},
    value::Reason,
};

/// A finished call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Code of the call.
    pub code: u16,
    /// Time when the application made the call.
    pub start_ns: u64,
    /// Time until the application had the result.
    pub duration_ns: u64,
    /// The part of the duration spent waiting for the lock.
    pub waited_ns: u64,
    /// Bytes that the call moved or asked for.
    pub bytes: u64,
    /// The thread.
    pub tid: u32,
    /// The process's own ordinal of the device.
    pub device: Option<u8>,
}

/// A buffer's fill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Length {
    /// Records written.
    pub records: u64,
    /// Records that did not fit.
    pub dropped: u64,
    /// Records there is room for.
    pub capacity: u64,
}

/// A buffer that this process writes.
pub struct Buffer(pub(super) Mapped);

impl Buffer {
    /// Returns the time when this process began to write.
    pub fn started_ns(&self) -> u64 {
        self.0.tables().head.started_ns.load(Ordering::Relaxed)
    }

    /// The wall clock's reading at a time of the segments' clock.
    pub fn realtime_ns(&self, time_ns: u64) -> u64 {
        let head = &self.0.tables().head;
        let [boottime, realtime] =
            [&head.boottime_ns, &head.realtime_ns].map(|word| word.load(Ordering::Relaxed));
        time_ns.wrapping_sub(boottime).wrapping_add(realtime)
    }

    /// The keeper looked.
    pub fn seen(&self, now_ns: u64) {
        self.0
            .tables()
            .head
            .seen_ns
            .store(now_ns, Ordering::Relaxed);
    }

    /// Records that the process writes no more.
    pub fn stopped(&self, now_ns: u64) {
        self.seen(now_ns);
        self.0
            .tables()
            .head
            .stopped_ns
            .store(now_ns, Ordering::Relaxed);
    }

    /// Returns how full the buffer is.
    pub fn length(&self) -> Length {
        let head = &self.0.tables().head;
        let capacity = self.0.lines().len() as u64;
        Length {
            records: head.next.load(Ordering::Relaxed).min(capacity),
            dropped: head.dropped.load(Ordering::Relaxed),
            capacity,
        }
    }

    /// A call has been answered.
    pub fn call(&self, call: &Call) {
        if let Some(row) = self.0.tables().rows.get(usize::from(call.code)) {
            row.count.fetch_add(1, Ordering::Relaxed);
            row.total_ns.fetch_add(call.duration_ns, Ordering::Relaxed);
            if row.longest_ns.load(Ordering::Relaxed) < call.duration_ns {
                row.longest_ns
                    .fetch_max(call.duration_ns, Ordering::Relaxed);
            }
            if call.bytes != 0 {
                row.bytes.fetch_add(call.bytes, Ordering::Relaxed);
            }
            if call.waited_ns != 0 {
                row.waited_ns.fetch_add(call.waited_ns, Ordering::Relaxed);
            }
        }
        let what = what(Kind::Call, call.tid, call.code, call.device);
        self.put(call.start_ns, call.duration_ns, call.bytes, what);
    }

    /// Calls that were over before there was a buffer: only their sums are known.
    pub fn before(&self, code: u16, count: u64, total_ns: u64, longest_ns: u64) {
        if let Some(row) = self.0.tables().rows.get(usize::from(code)) {
            row.count.fetch_add(count, Ordering::Relaxed);
            row.total_ns.fetch_add(total_ns, Ordering::Relaxed);
            row.longest_ns.fetch_max(longest_ns, Ordering::Relaxed);
        }
    }

    /// A thread waited for the lock, within the call it is in.
    pub fn wait(&self, start_ns: u64, duration_ns: u64, tid: u32, device: u8) {
        let what = what(Kind::Wait, tid, NO_CALL, Some(device));
        self.put(start_ns, duration_ns, 0, what);
    }

    /// The process held a device's lock; without a reason it still does.
    pub fn hold(&self, start_ns: u64, duration_ns: u64, device: u8, reason: Option<Reason>) {
        let what = what(Kind::Hold, 0, NO_CALL, Some(device));
        self.put(start_ns, duration_ns, reason_word(reason), what);
    }

    /// An allocation was refused.
    pub fn denial(&self, code: u16, time_ns: u64, bytes: u64, tid: u32, device: u8) {
        self.put(
            time_ns,
            0,
            bytes,
            what(Kind::Denial, tid, code, Some(device)),
        );
    }

    fn put(&self, start_ns: u64, duration_ns: u64, argument: u64, what: What) {
        let head = &self.0.tables().head;
        let lines = self.0.lines();
        let full = || {
            head.dropped.fetch_add(1, Ordering::Relaxed);
        };
        // Looked at first, so that the number does not run on for ever.
        if head.next.load(Ordering::Relaxed) >= lines.len() as u64 {
            return full();
        }
        let place = head.next.fetch_add(1, Ordering::Relaxed);
        let Some(line) = usize::try_from(place)
            .ok()
            .and_then(|place| lines.get(place))
        else {
            return full();
        };
        crash_point!("trace:drawn");
        line.start_ns.store(start_ns, Ordering::Relaxed);
        crash_point!("trace:start");
        line.duration_ns.store(duration_ns, Ordering::Relaxed);
        line.argument.store(argument, Ordering::Relaxed);
        crash_point!("trace:filled");
        // ORDER: pairs with the Acquire in `records_from`; publishes the other words.
        line.what.store(what.to_word(), Ordering::Release);
        crash_point!("trace:written");
    }

    /// Returns the records from a place on, and the place behind the last of them. A record that is not published yet ends the
    /// reading, unless writing has ended: then it is left out, because its thread will not finish it.
    pub fn records_from(
        &self,
        place: u64,
        names: &[&'static str],
        nobody_writes: bool,
        mut each: impl FnMut(Record<'static>),
    ) -> u64 {
        let lines = self.0.lines();
        let end = self.length().records;
        let name = |call: u16| names.get(usize::from(call)).copied();
        let mut place = place;
        while place < end {
            let Some(line) = usize::try_from(place)
                .ok()
                .and_then(|place| lines.get(place))
            else {
                break;
            };
            // ORDER: pairs with the Release in `put`; the other words are visible.
            let what = line.what.load(Ordering::Acquire);
            if what == 0 && !nobody_writes {
                break;
            }
            let words = [&line.start_ns, &line.duration_ns, &line.argument]
                .map(|word| word.load(Ordering::Relaxed));
            if let Some(record) = Record::decode([words[0], words[1], words[2], what], name) {
                each(record);
            }
            place += 1;
        }
        place
    }

    /// Returns the number of calls with this code, and their total duration.
    pub fn sum_of(&self, code: u16) -> (u64, u64) {
        let row = self.0.tables().rows.get(usize::from(code));
        row.map_or((0, 0), |row| {
            (
                row.count.load(Ordering::Relaxed),
                row.total_ns.load(Ordering::Relaxed),
            )
        })
    }

    /// Returns the totals of the calls so far.
    pub fn stats<'n>(&self, names: &[&'n str]) -> Vec<Stat<'n>> {
        let rows = self.0.tables().rows.iter().zip(names);
        rows.filter_map(|(row, name)| Stat::of_row(row, name))
            .collect()
    }
}

fn what(kind: Kind, tid: u32, call: u16, device: Option<u8>) -> What {
    What {
        kind,
        tid,
        call,
        device: device.unwrap_or(NO_DEVICE),
    }
}
