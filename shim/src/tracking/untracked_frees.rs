//! Frees of memory whose record the end of a context has taken out of the tracking.
//!
//! The records of a context are taken out before the driver ends it. If it does not end after all, they are added again, but not
//! those of memory that another thread has freed in between: it is uncharged. A free that is still in the driver at that time
//! gets the record, and uncharges it or adds it again.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::record::Record;

/// The frees without a record, while records of contexts are out of the tracking.
#[derive(Default)]
pub struct UntrackedFrees(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// Number of ends of contexts that have taken out records.
    ends: usize,
    /// The frees, by the key of the memory.
    frees: HashMap<u64, Free>,
}

enum Free {
    /// The driver frees, with the record once it is known.
    Begun(Option<Record>),
    /// The driver has freed.
    Done,
}

/// A mark that records are out of the tracking, until it is dropped.
#[must_use = "the records are out until it is dropped"]
pub struct RecordsOut<'f>(&'f UntrackedFrees);

/// The result of [`UntrackedFrees::begin`].
pub enum Begun<'f> {
    /// The record has been added again, and was removed now.
    Tracked(Record),
    /// The record may be out.
    Untracked(Untracked<'f>),
    /// No records are out, or the memory is already being freed.
    Unknown,
}

/// A free without a record that the driver is about to get. One that is not [ended](Untracked::end) stays open.
#[must_use = "the free ends"]
pub struct Untracked<'f> {
    frees: &'f UntrackedFrees,
    key: u64,
}

impl UntrackedFrees {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the records of contexts are about to be taken out.
    pub fn take_out(&self) -> RecordsOut<'_> {
        self.lock().ends += 1;
        RecordsOut(self)
    }

    /// Begins a free of memory without a record. `take` looks for the record once more.
    pub fn begin(&self, key: u64, take: impl FnOnce() -> Option<Record>) -> Begun<'_> {
        let mut inner = self.lock();
        // Under the lock, because the record may have been added again since the caller looked.
        if let Some(record) = take() {
            return Begun::Tracked(record);
        }
        if inner.ends == 0 || inner.frees.contains_key(&key) {
            return Begun::Unknown;
        }
        inner.frees.insert(key, Free::Begun(None));
        Begun::Untracked(Untracked { frees: self, key })
    }
}

impl Untracked<'_> {
    /// Ends the free. Returns the record if the context has not ended in between: the caller uncharges it, or adds it again if the
    /// driver has refused.
    pub fn end(self, is_freed: bool) -> Option<Record> {
        let mut inner = self.frees.lock();
        match inner.frees.remove(&self.key) {
            Some(Free::Begun(Some(record))) => Some(record),
            _ => {
                if is_freed && inner.ends != 0 {
                    inner.frees.insert(self.key, Free::Done);
                }
                None
            }
        }
    }
}

impl RecordsOut<'_> {
    /// Adds records again because their context has not ended. Returns those of memory that was freed in between.
    pub fn put_back(self, records: Vec<(u64, Record)>, put: impl Fn(u64, Record)) -> Vec<Record> {
        let mut inner = self.0.lock();
        let mut freed = Vec::new();
        for (key, record) in records {
            match inner.frees.get_mut(&key) {
                Some(Free::Done) => {
                    inner.frees.remove(&key);
                    freed.push(record);
                }
                Some(Free::Begun(known)) => *known = Some(record),
                None => put(key, record),
            }
        }
        freed
    }
}

impl Drop for RecordsOut<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.ends -= 1;
        if inner.ends == 0 {
            inner.frees.retain(|_, free| matches!(free, Free::Begun(_)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const RECORD: Record = [512, 1, 2];

    fn begin(frees: &UntrackedFrees, key: u64) -> Untracked<'_> {
        match frees.begin(key, || None) {
            Begun::Untracked(free) => free,
            _ => panic!("the records are out"),
        }
    }

    #[test]
    fn memory_that_was_freed_in_between_is_not_added_again() {
        let frees = UntrackedFrees::default();
        let added = RefCell::new(Vec::new());
        let out = frees.take_out();
        assert_eq!(begin(&frees, 16).end(true), None);
        assert_eq!(begin(&frees, 32).end(false), None, "the driver refused");
        let records = vec![(16, RECORD), (32, RECORD), (48, RECORD)];
        let freed = out.put_back(records, |key, _| added.borrow_mut().push(key));
        assert_eq!((freed.len(), added.into_inner()), (1, vec![32, 48]));
        assert!(matches!(frees.begin(16, || None), Begun::Unknown));
        let again = frees.begin(16, || Some(RECORD));
        assert!(matches!(again, Begun::Tracked(RECORD)));
    }

    #[test]
    fn a_free_in_the_driver_gets_the_record() {
        let frees = UntrackedFrees::default();
        let out = frees.take_out();
        let free = begin(&frees, 16);
        let put = |_, _| panic!("it may be freed");
        assert!(out.put_back(vec![(16, RECORD)], put).is_empty());
        assert_eq!(free.end(true), Some(RECORD));
    }

    #[test]
    fn what_was_freed_is_forgotten_when_no_records_are_out() {
        let frees = UntrackedFrees::default();
        let (first, second) = (frees.take_out(), frees.take_out());
        assert_eq!(begin(&frees, 16).end(true), None);
        let late = begin(&frees, 32);
        drop((first, second));
        assert_eq!(late.end(true), None);
        assert!(frees.lock().frees.is_empty());
    }
}
