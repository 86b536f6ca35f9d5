//! Launches whose streams can no longer be asked, because the stream is destroyed or its context ends. Each has a key in place
//! of its stream, and an event that shows when the memory may be used again. A launch without an event, as in a stream that
//! captures, uses its memory until a trim shows that none runs.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    driver_query::context,
    thread::Used,
    turn::{
        context_end::ContextEnd,
        drain::{Event, shared},
    },
};

/// Set in a key. No handle has this bit.
const SEALED: usize = 1 << (usize::BITS - 1);

/// Returns true if a key stands for a stream that can no longer be asked.
pub fn is_sealed(key: usize) -> bool {
    key & SEALED != 0
}

/// The events of such launches. The lock is held over the driver's calls, so that no event is used after its context has ended.
#[derive(Default)]
pub struct SealedStreams(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    last: usize,
    events: HashMap<usize, (Used, Event)>,
}

impl SealedStreams {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a stream with its work so far. Returns its key.
    pub fn add(&self, used: Used, end: Option<&ContextEnd>) -> usize {
        let mut inner = self.lock();
        inner.last += 1;
        let key = SEALED | inner.last;
        let mut event = None;
        context::relaxed(|| {
            context::with_current(used.context, || {
                event = Event::record(None, shared(used.stream))
            });
        });
        if let Some(mut event) = event {
            end.into_iter().for_each(|end| event.ends.add(end));
            // The handle may soon be that of another stream.
            let of_context = Used { stream: 0, ..used };
            inner.events.insert(key, (of_context, event));
        }
        key
    }

    /// Keeps the events of contexts that are about to end, without a query, until the driver has decided.
    pub fn end_with(&self, end: &ContextEnd, which: impl Fn(&Used) -> bool) {
        let mut inner = self.lock();
        let ending = inner.events.values_mut().filter(|(used, _)| which(used));
        ending.for_each(|(_, event)| event.ends.add(end));
    }

    /// Removes the streams whose work is done. Returns their keys.
    pub fn take_done(&self) -> Vec<usize> {
        let mut done = Vec::new();
        let mut inner = self.lock();
        if !inner.events.is_empty() {
            context::relaxed(|| {
                let is_done = |(used, event): &(Used, Event)| !event.is_pending_in(used.context);
                let taken = inner.events.extract_if(|_, entry| is_done(entry));
                done.extend(taken.map(|(key, _)| key));
            });
        }
        done
    }
}
