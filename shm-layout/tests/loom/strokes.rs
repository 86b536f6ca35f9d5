//! The bell, which wakes the keepers.

use super::*;

/// A futex: a change of the word wakes its sleepers, and a thread does not sleep if the word has changed already.
struct Bell {
    word: AtomicU32,
    news: AtomicU64,
    asleep: (Mutex<()>, Condvar),
}

impl Bell {
    fn new() -> Arc<Bell> {
        Arc::new(Bell {
            word: AtomicU32::new(0),
            news: AtomicU64::new(0),
            asleep: (Mutex::new(()), Condvar::new()),
        })
    }

    fn tell(&self) {
        self.news.fetch_add(1, Relaxed);
        if bell::strike(&self.word) {
            drop(self.asleep.0.lock());
            self.asleep.1.notify_all();
        }
    }

    /// Waits for this number of changes, as a keeper does.
    fn hear(&self, news: u64) {
        loop {
            let seen = bell::listen(&self.word);
            if self.news.load(Relaxed) >= news {
                return;
            }
            let guard = self.asleep.0.lock().expect("no panic");
            if self.word.load(Relaxed) == seen {
                drop(self.asleep.1.wait(guard).expect("no panic"));
            }
        }
    }
}

#[test]
fn a_listener_misses_no_stroke_of_the_bell() {
    explore(Some(2), || {
        let bell = Bell::new();
        let strikers: Vec<_> = (0..2)
            .map(|_| {
                let bell = Arc::clone(&bell);
                thread::spawn(move || bell.tell())
            })
            .collect();
        bell.hear(2);
        for striker in strikers {
            striker.join().expect("no panic");
        }
    });
}

#[test]
fn two_listeners_both_hear_one_stroke() {
    explore(Some(2), || {
        let bell = Bell::new();
        let other = {
            let bell = Arc::clone(&bell);
            thread::spawn(move || bell.hear(1))
        };
        let striker = {
            let bell = Arc::clone(&bell);
            thread::spawn(move || bell.tell())
        };
        bell.hear(1);
        striker.join().expect("no panic");
        other.join().expect("no panic");
    });
}
