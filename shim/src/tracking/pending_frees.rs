//! Pending frees of stream-ordered memory.
//!
//! A pending free is memory that the application has freed in stream order, while the stream has not reached the free
//! yet. Such memory is not charged any more, but the device still lacks it. If it is of a pool, only an allocation from
//! the same pool in the same stream may use it; that [claims](PendingFrees::claim) the bytes before the driver is called, so that no
//! other allocation counts on them.
//!
//! Frees are tracked on devices with a limit, in batches of one pool and stream. An event behind the last free of a batch shows that
//! the stream has reached all of them. It is recorded directly after the free, so later work of the stream is not waited for. Where
//! the driver records none, the batch is marked later: when the frees exceed what the limits leave
//! ([`poll`](PendingFrees::poll)), and before the stream can no longer be used ([`seal`](PendingFrees::seal)). Frees are removed only
//! then, so their sum may be too large before.

use std::{
    mem,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use gpushare_abi::types::CUmemoryPool;

use crate::{
    driver_query::context,
    thread::Used,
    tracking::pool::Source,
    turn::{
        context_end::{ContextEnd, Ends},
        drain::{Event, shared},
    },
};

/// Frees of one pool, or of none, in one stream, which end together.
struct Batch {
    number: u64,
    source: Source,
    /// The stream, with its context and device.
    used: Used,
    /// The ordinal of the memory's device.
    ordinal: u8,
    /// The bytes that no allocation has claimed.
    bytes: u64,
    /// The largest free, which limits the allocations that can use the memory.
    largest: u64,
    /// Number of allocations that have claimed memory and are under way.
    claims: u32,
    end: End,
    /// The ends of the stream's context.
    ends: Ends,
}

/// The end of a batch.
enum End {
    /// The last free is under way in the driver.
    UnderWay,
    /// No event could be recorded yet.
    Unmarked,
    /// An event behind the frees.
    Marked(Event),
}

impl From<Option<Event>> for End {
    fn from(event: Option<Event>) -> Self {
        event.map_or(Self::Unmarked, Self::Marked)
    }
}

impl End {
    fn take_event(&mut self, then: End) -> Option<Event> {
        match mem::replace(self, then) {
            Self::Marked(event) => Some(event),
            Self::UnderWay | Self::Unmarked => None,
        }
    }
}

impl Batch {
    fn serves(&self, source: &Source, bytes: u64) -> bool {
        self.source == *source && self.largest >= bytes
    }

    /// Has the event know of the ends too, because it does not outlive its context.
    fn mark_ends(&mut self) {
        if let End::Marked(event) = &mut self.end {
            event.ends.add_all(&self.ends);
        }
    }

    fn is_under_way(&self) -> bool {
        matches!(self.end, End::UnderWay)
    }

    fn is_unmarked(&self) -> bool {
        matches!(self.end, End::Unmarked)
    }

    /// Returns true if the stream may not have reached the frees. With `marks`, records the event if there is none.
    fn poll(&mut self, marks: bool) -> bool {
        if let Some(known) = self.ends.is_pending() {
            return known;
        }
        if self.is_under_way() || self.is_unmarked() && !marks {
            return true;
        }
        let stream = shared(self.used.stream);
        let event = self.end.take_event(End::Unmarked);
        // A context that cannot be made current is destroyed, so no work of it can run.
        let mut is_pending = false;
        context::with_current(self.used.context, || {
            let event = event.or_else(|| Event::record(None, stream));
            is_pending = event.as_ref().is_none_or(Event::is_pending);
            self.end = event.into();
        });
        is_pending
    }
}

/// The pending frees of a process.
#[derive(Default)]
pub struct PendingFrees {
    any: AtomicBool,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    batches: Vec<Batch>,
    /// Events for later frees in their contexts, which have no stream.
    spare: Vec<(Used, Event)>,
    last_number: u64,
}

impl Table {
    fn batch(&mut self, number: u64) -> Option<&mut Batch> {
        self.batches.iter_mut().find(|one| one.number == number)
    }

    /// Removes batches, and keeps their events.
    fn remove(&mut self, which: impl FnMut(&mut Batch) -> bool) {
        for mut one in self.batches.extract_if(.., which) {
            let event = one.end.take_event(End::Unmarked);
            let of_context = Used {
                stream: 0,
                ..one.used
            };
            self.spare.extend(event.map(|event| (of_context, event)));
        }
    }

    fn remove_empty(&mut self) {
        self.remove(|one| one.bytes == 0 && one.claims == 0 && !one.is_under_way());
    }
}

/// A free that the driver is about to get. Dropping it removes the free, because the driver has refused.
pub struct FreeUnderWay<'f> {
    frees: &'f PendingFrees,
    /// The number of the batch.
    number: u64,
    used: Used,
    bytes: u64,
    is_done: bool,
    /// The event of the batch's earlier frees, or a spare one.
    event: Option<Event>,
}

impl FreeUnderWay<'_> {
    /// Marks the end of the free, which the driver has accepted. The event is recorded without the lock, because the application
    /// destroys no stream that a call of it uses.
    pub fn done(mut self) {
        let event = self.event.take();
        context::relaxed(|| {
            context::with_current(self.used.context, || {
                self.event = Event::record(event, self.used.stream);
            });
        });
        self.is_done = true;
    }
}

impl Drop for FreeUnderWay<'_> {
    fn drop(&mut self) {
        let event = self.event.take();
        self.frees.change(|table| {
            let Some(one) = table.batch(self.number) else {
                // The event's context is about to end, or has ended.
                return mem::forget(event);
            };
            one.end = event.into();
            one.mark_ends();
            if !self.is_done {
                one.bytes = one.bytes.saturating_sub(self.bytes);
                one.largest = one.largest.min(one.bytes);
            }
            table.remove_empty();
        });
    }
}

/// Bytes of a pending free that an allocation is about to use. Dropping it returns them, because the driver has refused.
pub struct Claim<'f> {
    frees: &'f PendingFrees,
    /// The number of the batch.
    number: u64,
    pool: usize,
    bytes: u64,
    /// The largest free of the batch before.
    largest: u64,
}

impl Claim<'_> {
    /// Returns the pool's handle.
    pub fn pool(&self) -> CUmemoryPool {
        self.pool as CUmemoryPool
    }

    /// Records that the allocation has used the memory.
    pub fn used(mut self) {
        (self.bytes, self.largest) = (0, 0);
    }

    /// Returns the bytes after the pool has grown for the allocation: the driver cannot use the memory. The batch serves no more.
    pub fn missed(mut self) {
        self.largest = 0;
        self.frees.change(|table| {
            if let Some(one) = table.batch(self.number) {
                one.largest = 0;
            }
        });
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.frees.change(|table| {
            // Without the batch, the stream has reached the free.
            if let Some(one) = table.batch(self.number) {
                one.claims -= 1;
                one.bytes = one.bytes.saturating_add(self.bytes);
                one.largest = one.largest.max(self.largest).min(one.bytes);
            }
            table.remove_empty();
        });
    }
}

impl PendingFrees {
    /// Returns true if any free may be pending.
    #[inline(always)]
    pub fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// The lock is held over the driver's calls, so that no stream is destroyed while an event is recorded in it.
    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table: MutexGuard<'_, _> =
            self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut table);
        self.any.store(!table.batches.is_empty(), Relaxed);
        result
    }

    /// Adds a free that the driver is about to get, to a batch with less than `small` bytes if there is one.
    pub fn begin(
        &self,
        source: Source,
        used: Used,
        ordinal: u8,
        bytes: u64,
        small: u64,
    ) -> FreeUnderWay<'_> {
        let (number, event) = self.change(|table| {
            let takes_more = |one: &&mut Batch| {
                let is_of_it = one.source == source && one.used == used;
                let is_open = !one.is_under_way() && one.ends.is_pending().is_none();
                is_of_it && one.bytes < small && one.largest != 0 && is_open
            };
            if let Some(one) = table.batches.iter_mut().find(takes_more) {
                one.bytes = one.bytes.saturating_add(bytes);
                one.largest = one.largest.max(bytes);
                return (one.number, one.end.take_event(End::UnderWay));
            }
            table.last_number += 1;
            table.batches.push(Batch {
                number: table.last_number,
                source,
                used,
                ordinal,
                bytes,
                largest: bytes,
                claims: 0,
                end: End::UnderWay,
                ends: Ends::default(),
            });
            let mut spare = table.spare.iter();
            let spare = spare.position(|(of, event)| {
                of.context == used.context && event.ends.is_pending().is_none()
            });
            let event = spare.map(|at| table.spare.swap_remove(at).1);
            (table.last_number, event)
        });
        FreeUnderWay {
            frees: self,
            number,
            used,
            bytes,
            is_done: false,
            event,
        }
    }

    /// Returns the pending bytes on a device that no allocation has claimed.
    pub fn bytes_on(&self, ordinal: u8) -> u64 {
        self.change(|table| {
            let here = table.batches.iter().filter(|one| one.ordinal == ordinal);
            here.fold(0, |sum: u64, one| sum.saturating_add(one.bytes))
        })
    }

    /// Returns true if frees of memory of no pool, or of a destroyed one, are pending on a device. No pool's size contains them.
    pub fn any_without_pool(&self, ordinal: u8) -> bool {
        self.change(|table| {
            let mut batches = table.batches.iter();
            batches.any(|one| one.ordinal == ordinal && one.source.pool == 0)
        })
    }

    /// Claims memory of a pending free for an allocation from this source, if there is a free that is large enough.
    pub fn claim(&self, source: &Source, bytes: u64) -> Option<Claim<'_>> {
        self.change(|table| {
            let batches = table.batches.iter_mut();
            let fits = batches.filter(|one| one.serves(source, bytes));
            let one = fits.min_by_key(|one| one.largest)?;
            let largest = one.largest;
            one.bytes = one.bytes.saturating_sub(bytes);
            one.largest = largest.min(one.bytes);
            one.claims += 1;
            Some(Claim {
                frees: self,
                number: one.number,
                pool: source.pool,
                bytes,
                largest,
            })
        })
    }

    /// Removes the frees on a device that their streams have reached.
    pub fn poll(&self, ordinal: u8) {
        self.change(|table| {
            context::relaxed(|| table.remove(|one| one.ordinal == ordinal && !one.poll(true)));
        });
    }

    /// Marks the end of a stream's frees, because the stream is about to be captured or destroyed. Frees that cannot be
    /// marked are forgotten, as are those that are done: a program may use a new stream for each of its requests.
    pub fn seal(&self, stream: usize, is_destroyed: bool) {
        self.change(|table| {
            context::relaxed(|| {
                table.remove(|one| {
                    let ends = one.used.stream == stream;
                    let is_over = !one.poll(ends) || ends && one.is_unmarked();
                    if is_destroyed && ends && !one.is_under_way() {
                        // The event is all that it needs. The handle may soon be that of another stream.
                        (one.used.stream, one.largest) = (0, 0);
                    }
                    is_over
                });
            });
        });
    }

    /// Keeps the frees in streams whose context is about to end, without a query, until the driver has decided.
    pub fn seal_for(&self, end: &ContextEnd, which: impl Fn(&Used) -> bool) {
        self.change(|table| {
            for one in table.batches.iter_mut().filter(|one| which(&one.used)) {
                one.ends.add(end);
                one.mark_ends();
            }
            let spare = table.spare.iter_mut().filter(|(of, _)| which(of));
            spare.for_each(|(_, event)| event.ends.add(end));
        });
    }

    /// Removes the frees in streams whose context has ended.
    pub fn forget_gone(&self) {
        self.change(|table| {
            table.batches.retain(|one| !one.ends.is_gone());
            table.spare.retain(|(_, event)| !event.ends.is_gone());
        });
    }

    /// Records that a pool is about to be destroyed. Its frees stay pending, and its handle may be used again.
    pub fn pool_gone(&self, pool: CUmemoryPool) {
        self.change(|table| {
            let of_it = |one: &&mut Batch| one.source.pool == pool as usize;
            let batches = table.batches.iter_mut().filter(of_it);
            batches.for_each(|one| one.source.pool = 0);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USED: Used = Used {
        stream: 0x10,
        context: 5,
        ordinal: 1,
    };

    fn source(pool: usize, stream: usize) -> Source {
        Source::new(pool as CUmemoryPool, stream, 7)
    }

    /// Returns a table with one batch of these frees, which are under way, of pool 1 in stream 0x10.
    fn with_frees(all: &[u64]) -> PendingFrees {
        let table = PendingFrees::default();
        for bytes in all {
            let mut free = table.begin(source(1, 0x10), USED, 0, *bytes, u64::MAX);
            free.is_done = true;
        }
        table
    }

    #[test]
    fn what_is_freed_serves_its_own_pool_and_stream_alone() {
        let table = with_frees(&[]);
        assert!(!table.any());
        let table = with_frees(&[100, 50]);
        assert_eq!((table.bytes_on(0), table.bytes_on(1)), (150, 0));
        assert!(table.claim(&source(1, 0x10), 100).is_some());
        let none = table.claim(&source(1, 0x10), 101);
        assert!(none.is_none(), "no free is as large");
        assert!(table.claim(&source(2, 0x10), 1).is_none());
        assert!(table.claim(&source(1, 0x20), 1).is_none());
        table.claim(&source(1, 0x10), 100).expect("again").used();
        assert_eq!(table.bytes_on(0), 50);
        table.pool_gone(1 as CUmemoryPool);
        assert!(table.claim(&source(1, 0x10), 1).is_none());
        assert_eq!(table.bytes_on(0), 50, "still there");
        assert!(table.any_without_pool(0) && !table.any_without_pool(1));
        let ends = |which: fn(&Used) -> bool, is_gone| {
            let end = ContextEnd::under_way();
            table.seal_for(&end, which);
            assert_eq!(table.bytes_on(0), 50, "the driver has not decided");
            end.decide(is_gone);
            table.forget_gone();
        };
        ends(|used| used.ordinal == 0, true);
        assert!(table.any(), "the stream's device counts");
        let is_of_it: fn(&Used) -> bool = |used| used.context == 5 && used.ordinal == 1;
        ends(is_of_it, false);
        assert!(table.any(), "the context stays");
        ends(is_of_it, true);
        assert!(!table.any());
    }

    #[test]
    fn two_allocations_do_not_count_on_the_same_pending_free() {
        let table = with_frees(&[100]);
        let first = table.claim(&source(1, 0x10), 60).expect("it fits");
        assert_eq!(table.bytes_on(0), 40);
        assert!(table.claim(&source(1, 0x10), 60).is_none());
        drop(first);
        assert_eq!(table.bytes_on(0), 100, "the driver has refused");
        let whole = table.claim(&source(1, 0x10), 100).expect("it fits again");
        assert!(table.any(), "it may be put back");
        whole.used();
        assert!(!table.any());
    }

    #[test]
    fn a_pool_that_has_grown_all_the_same_serves_no_more() {
        let table = with_frees(&[100]);
        let claim = table.claim(&source(1, 0x10), 60).expect("it fits");
        claim.missed();
        assert_eq!(table.bytes_on(0), 100);
        assert!(table.claim(&source(1, 0x10), 1).is_none());
    }

    #[test]
    fn a_large_free_ends_by_itself_and_a_refused_one_is_forgotten() {
        let table = PendingFrees::default();
        let begin = |bytes| table.begin(source(1, 0x10), USED, 0, bytes, 10);
        let (mut first, mut second) = (begin(100), begin(5));
        (first.is_done, second.is_done) = (true, true);
        assert_ne!(first.number, second.number);
        let number = second.number;
        drop((first, second));
        let third = begin(7);
        assert_eq!(third.number, number, "few bytes are no batch of their own");
        drop(third);
        assert_eq!(table.bytes_on(0), 105);
    }
}
