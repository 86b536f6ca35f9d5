//! The open stream captures, with the threads that began them.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use gpushare_abi::types::CU_STREAM_PER_THREAD;

use crate::{
    driver_query::context::{any_capturing, is_capturing, set_open_captures},
    sys::futex,
};

/// Polling period of a capture that is held off, and the number of polls until it begins all the same: the wait that holds it off may
/// be for what its thread does next.
const NAP: Duration = Duration::from_micros(50);
const MOST_NAPS: usize = 20_000;

/// A capture that was begun and not ended.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Open {
    /// The stream's key.
    stream: usize,
    /// The number of the thread that began the capture.
    thread: usize,
    /// The stream's context, with which the capture ends; 0 if unknown.
    context: usize,
    /// The graph that the capture has created and that is lost without a proper end; 0 if unknown.
    graph: usize,
}

impl Open {
    /// Returns true if the capture is of this stream. A per-thread default stream is a different one in each thread.
    fn is_of(&self, stream: usize, thread: usize) -> bool {
        let each_has_one = stream == CU_STREAM_PER_THREAD as usize;
        self.stream == stream && (!each_has_one || self.thread == thread)
    }
}

/// A capture that a thread is about to begin.
pub struct Begun {
    open: Open,
    /// A capture of the same stream that was open before.
    earlier: Option<Open>,
}

/// The open captures of the process.
#[derive(Default)]
pub struct Captures {
    open: Mutex<Vec<Open>>,
    /// The number of waits that would break a capture. Grows only while none is open.
    waits: AtomicUsize,
}

/// Holds captures off until it is dropped.
pub struct HeldOff<'c>(&'c Captures);

impl Drop for HeldOff<'_> {
    fn drop(&mut self) {
        self.0.waits.fetch_sub(1, Relaxed);
    }
}

impl Captures {
    fn lock(&self) -> MutexGuard<'_, Vec<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds captures off for a wait that would break one, as that for a whole context does. Returns `None` if one is open.
    pub fn hold_off(&self) -> Option<HeldOff<'_>> {
        let open = self.lock();
        open.is_empty().then(|| {
            self.waits.fetch_add(1, Relaxed);
            HeldOff(self)
        })
    }

    /// Changes the list, and publishes the number of open captures.
    fn change(&self, change: impl FnOnce(&mut Vec<Open>)) {
        let mut all = self.lock();
        change(&mut all);
        set_open_captures(all.len());
    }

    /// Records that a thread is about to capture a stream of a context. Returns when no wait would break the capture.
    pub fn begin(&self, stream: usize, thread: usize, context: usize) -> Begun {
        let open = Open {
            stream,
            thread,
            context,
            graph: 0,
        };
        let mut earlier = None;
        self.change(|all| {
            let at = all.iter().position(|open| open.is_of(stream, thread));
            earlier = at.map(|at| all.swap_remove(at));
            all.push(open);
        });
        for _ in 0..MOST_NAPS {
            if self.waits.load(Relaxed) == 0 {
                break;
            }
            futex::nap(NAP);
        }
        Begun { open, earlier }
    }

    /// Records that the driver has refused to begin a capture. A capture of the stream that was open before stays open.
    pub fn did_not_begin(&self, begun: Begun) {
        self.change(|all| {
            let Some(at) = all.iter().position(|open| *open == begun.open) else {
                return; // The stream or its context is gone.
            };
            match begun.earlier {
                Some(earlier) => all[at] = earlier,
                None => _ = all.swap_remove(at),
            }
        });
    }

    /// Records the graph that the driver has created for a capture which has begun.
    pub fn began(&self, begun: &Begun, graph: usize) {
        self.change(|all| {
            let this = all.iter_mut().find(|open| **open == begun.open);
            this.into_iter().for_each(|open| open.graph = graph);
        });
    }

    /// Records that a capture has ended. Returns its graph.
    pub fn end(&self, stream: usize, thread: usize) -> Vec<usize> {
        self.remove(|open| open.is_of(stream, thread))
    }

    /// Removes captures, and returns the graphs that they have created.
    fn remove(&self, which: impl Fn(&Open) -> bool) -> Vec<usize> {
        let mut graphs = Vec::new();
        self.change(|all| {
            let gone = all.iter().filter(|open| which(open) && open.graph != 0);
            graphs.extend(gone.map(|open| open.graph));
            all.retain(|open| !which(open));
        });
        graphs
    }

    /// Returns true if any stream is being captured.
    pub fn is_any(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Removes the captures of a stream that is about to be destroyed. Returns their graphs.
    pub fn forget(&self, stream: usize) -> Vec<usize> {
        self.remove(|open| open.stream == stream)
    }

    /// Removes the captures of destroyed contexts. Returns their graphs.
    pub fn contexts_gone(&self, contexts: &[u64]) -> Vec<usize> {
        self.remove(|open| contexts.contains(&(open.context as u64)))
    }

    /// Returns the streams that are being captured.
    pub fn streams(&self) -> Vec<usize> {
        self.lock().iter().map(|open| open.stream).collect()
    }

    /// Returns true while a capture that a thread began is open.
    pub fn is_any_of(&self, thread: usize) -> bool {
        any_capturing() && self.of(thread).into_iter().any(is_capturing)
    }

    /// Returns the streams whose capture a thread began.
    fn of(&self, thread: usize) -> Vec<usize> {
        let all = self.lock();
        let mine = all.iter().filter(|open| open.thread == thread);
        mine.map(|open| open.stream).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_of_the_thread_that_began_last() {
        let table = Captures::default();
        table.begin(1, 7, 0);
        table.begin(2, 7, 0);
        table.begin(1, 8, 0);
        assert_eq!((table.of(7), table.of(8)), (vec![2], vec![1]));
        table.begin(2, 8, 0);
        table.end(2, 7);
        assert!(
            table.of(7).is_empty(),
            "each thread has a default stream of its own"
        );
        table.forget(2);
        assert!(table.is_any());
        table.end(1, 7);
        assert!(!table.is_any());
    }

    #[test]
    fn a_capture_names_the_graph_that_it_has_created_when_it_ends() {
        let table = Captures::default();
        for (stream, graph) in [(1, 0x10), (2, 0x20), (3, 0)] {
            let begun = table.begin(stream, 7, 0x100);
            table.began(&begun, graph);
        }
        assert_eq!(table.end(1, 7), [0x10]);
        assert_eq!(table.contexts_gone(&[0x100]), [0x20]);
    }

    #[test]
    fn a_refused_capture_leaves_the_one_that_was_open_before() {
        let table = Captures::default();
        let refused = table.begin(1, 7, 0);
        table.did_not_begin(refused);
        assert!(!table.is_any());
        table.begin(1, 7, 0);
        let refused = table.begin(1, 8, 0);
        table.did_not_begin(refused);
        assert_eq!((table.of(7), table.of(8)), (vec![1], vec![]));
        let refused = table.begin(1, 8, 0);
        table.forget(1);
        table.did_not_begin(refused);
        assert!(!table.is_any(), "the stream was destroyed");
    }

    #[test]
    fn a_capture_begins_after_a_wait_that_would_break_it_and_no_such_wait_begins_then() {
        let table = Captures::default();
        let waits = [table.hold_off(), table.hold_off()];
        let ended = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let began = scope.spawn(|| {
                table.begin(1, 7, 0);
                ended.load(Relaxed)
            });
            while !table.is_any() {
                std::thread::yield_now();
            }
            assert!(table.hold_off().is_none());
            for wait in waits {
                std::thread::sleep(10 * NAP);
                ended.fetch_add(1, Relaxed);
                drop(wait.expect("no capture was open"));
            }
            assert_eq!(began.join().expect("it ends"), 2);
        });
        table.end(1, 7);
        assert!(table.hold_off().is_some());
    }

    #[test]
    fn a_capture_ends_with_its_context() {
        let table = Captures::default();
        let per_thread = CU_STREAM_PER_THREAD as usize;
        table.begin(0x10, 7, 0x100);
        table.begin(per_thread, 7, 0x100);
        table.begin(per_thread, 8, 0x200);
        assert!(table.contexts_gone(&[0x100, 0x300]).is_empty());
        assert!(table.of(7).is_empty());
        assert_eq!(table.of(8), [per_thread]);
    }
}
