//! Which thread began to capture which stream, and has not ended it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gpushare_abi::types::CU_STREAM_PER_THREAD;

use crate::ask::stream::set_open_captures;

/// Streams by their keys, with the number of the thread that began.
#[derive(Default)]
pub struct Book(Mutex<Vec<(usize, usize)>>);

impl Book {
    fn lock(&self) -> MutexGuard<'_, Vec<(usize, usize)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the list, and sets how many captures are open.
    fn change(&self, change: impl FnOnce(&mut Vec<(usize, usize)>)) {
        let mut all = self.lock();
        change(&mut all);
        set_open_captures(all.len());
    }

    /// A thread is about to capture a stream.
    pub fn begin(&self, stream: usize, thread: usize) {
        self.change(|all| {
            all.retain(|of| !is_of(*of, stream, thread));
            all.push((stream, thread));
        });
    }

    /// The capture has ended, or did not begin.
    pub fn end(&self, stream: usize, thread: usize) {
        self.change(|all| all.retain(|of| !is_of(*of, stream, thread)));
    }

    /// Whether any stream is being captured.
    pub fn is_any(&self) -> bool {
        !self.lock().is_empty()
    }

    /// The stream is about to vanish.
    pub fn forget(&self, stream: usize) {
        self.change(|all| all.retain(|(other, _)| *other != stream));
    }

    /// The streams that a thread began to capture.
    pub fn of(&self, thread: usize) -> Vec<usize> {
        let all = self.lock();
        let mine = all.iter().filter(|(_, by)| *by == thread);
        mine.map(|(stream, _)| *stream).collect()
    }
}

/// Whether a capture is of this stream; each thread has a default stream of its own.
fn is_of((other, by): (usize, usize), stream: usize, thread: usize) -> bool {
    let each_has_one = stream == CU_STREAM_PER_THREAD as usize;
    other == stream && (!each_has_one || by == thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_of_the_thread_that_began_last() {
        let book = Book::default();
        book.begin(1, 7);
        book.begin(2, 7);
        book.begin(1, 8);
        assert_eq!((book.of(7), book.of(8)), (vec![2], vec![1]));
        book.begin(2, 8);
        book.end(2, 7);
        assert!(
            book.of(7).is_empty(),
            "each thread has a default stream of its own"
        );
        book.forget(2);
        assert!(book.is_any());
        book.end(1, 7);
        assert!(!book.is_any());
    }
}
