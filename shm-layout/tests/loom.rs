//! Loom tries every interleaving of the protocols, compiled here from their own sources with loom's atomics.
//!
//! What it cannot model is time: the deadlines and periodic looks of the real lock are belt and braces, and every
//! model below has to end without them.

#![expect(
    unsafe_code,
    reason = "loom's cell checks the exclusion that the lock claims"
)]

mod primitive {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    pub(crate) const READ_ATTEMPTS: u32 = 2;

    pub(crate) fn pause() {
        loom::thread::yield_now();
    }
}

mod crash {
    macro_rules! crash_point {
        ($name:literal) => {};
    }
    pub(crate) use crash_point;
}

#[allow(dead_code, reason = "the models use what they need")]
#[path = "../src/protocol"]
mod protocol {
    pub mod account;
    pub mod bell;
    pub mod claim;
    pub mod seqlock;
    pub mod turn;
}

use loom::{
    cell::UnsafeCell,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    thread,
};
use protocol::{
    account::{self, Account, Refusal, SharedLimit},
    bell, claim, seqlock,
    turn::{BITMAP, Entry, Passed, Turn, who},
};

fn explore(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

fn words<const N: usize>() -> [AtomicU64; N] {
    std::array::from_fn(|_| AtomicU64::new(0))
}

#[test]
fn a_record_is_read_whole_or_not_at_all() {
    explore(None, || {
        let record = Arc::new((AtomicU64::new(0), words::<2>()));
        let writer = {
            let record = Arc::clone(&record);
            thread::spawn(move || {
                seqlock::write(&record.0, &record.1, &[1, 1]);
                seqlock::write(&record.0, &record.1, &[2, 2]);
            })
        };
        let mut seen = [0; 2];
        if seqlock::read(&record.0, &record.1, &mut seen).is_some() {
            assert_eq!(seen[0], seen[1], "torn");
        }
        writer.join().expect("no panic");
        assert_eq!(seqlock::read(&record.0, &record.1, &mut seen), Some(()));
        assert_eq!(seen, [2, 2]);
    });
}

#[test]
fn a_writer_that_died_halfway_leaves_no_half_record() {
    explore(None, || {
        let record = Arc::new((AtomicU64::new(1), words::<2>()));
        record.1[0].store(7, Relaxed);
        let mut seen = [0; 2];
        assert_eq!(seqlock::read(&record.0, &record.1, &mut seen), None);
        let writer = {
            let record = Arc::clone(&record);
            thread::spawn(move || seqlock::write(&record.0, &record.1, &[2, 2]))
        };
        if seqlock::read(&record.0, &record.1, &mut seen).is_some() {
            assert_eq!(seen, [2, 2]);
        }
        writer.join().expect("no panic");
    });
}

#[test]
fn a_slot_is_claimed_once_and_published_whole() {
    explore(None, || {
        let slot = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let claimants: Vec<_> = [1, 2]
            .map(|who| {
                let slot = Arc::clone(&slot);
                thread::spawn(move || {
                    let epoch = claim::claim(&slot.0)?;
                    slot.1.store(who, Relaxed);
                    claim::publish(&slot.0, epoch);
                    Some(who)
                })
            })
            .into();
        if claim::live(&slot.0).is_some() {
            assert_ne!(slot.1.load(Relaxed), 0, "published before it was filled");
        }
        let winners: Vec<u64> = claimants
            .into_iter()
            .filter_map(|one| one.join().expect("no panic"))
            .collect();
        assert_eq!(winners, [slot.1.load(Relaxed)], "exactly one");
    });
}

#[test]
fn a_reaped_slot_is_clean_when_it_is_claimed_again() {
    explore(None, || {
        let slot = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let epoch = claim::claim(&slot.0).expect("free");
        slot.1.store(9, Relaxed);
        claim::publish(&slot.0, epoch);
        let reaper = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || {
                let epoch = claim::begin_reaping(&slot.0).expect("taken");
                slot.1.store(0, Relaxed);
                claim::free(&slot.0, epoch);
            })
        };
        if let Some(next) = claim::claim(&slot.0) {
            assert_eq!(
                (next, slot.1.load(Relaxed)),
                (2, 0),
                "the dead one's words showed through"
            );
        }
        reaper.join().expect("no panic");
    });
}

/// Two words for each of two processes, and the bytes that were really granted.
struct Bank {
    used: [AtomicU64; 2],
    trying: [AtomicU64; 2],
    granted: AtomicU64,
}

impl Bank {
    fn new() -> Arc<Bank> {
        Arc::new(Bank {
            used: words(),
            trying: words(),
            granted: AtomicU64::new(0),
        })
    }

    fn account(&self, who: usize) -> Account<'_> {
        Account {
            used: &self.used[who],
            trying: &self.trying[who],
        }
    }

    fn reserve(&self, who: usize, bytes: u64, quota: u64, limit: u64) -> Result<(), Refusal> {
        let walk =
            |visit: &mut dyn FnMut(Account<'_>)| (0..2).for_each(|who| visit(self.account(who)));
        account::reserve_shared(
            self.account(who),
            bytes,
            quota,
            &[SharedLimit {
                bytes: limit,
                walk: &walk,
            }],
        )?;
        let sum = self.granted.fetch_add(bytes, Relaxed) + bytes;
        assert!(sum <= limit, "{sum} bytes granted of {limit}");
        Ok(())
    }

    fn release(&self, who: usize, bytes: u64) {
        self.granted.fetch_sub(bytes, Relaxed);
        assert_eq!(account::release(&self.used[who], bytes), 0);
    }
}

#[test]
fn two_processes_never_exceed_their_common_limit() {
    explore(None, || {
        let bank = Bank::new();
        let rival = {
            let bank = Arc::clone(&bank);
            thread::spawn(move || bank.reserve(1, 2, u64::MAX, 3).is_ok())
        };
        let mine = bank.reserve(0, 2, u64::MAX, 3).is_ok();
        let theirs = rival.join().expect("no panic");
        assert!(!(mine && theirs));
        assert_eq!(
            bank.trying
                .iter()
                .map(|word| word.load(Relaxed))
                .sum::<u64>(),
            0
        );
    });
}

#[test]
fn what_fits_is_refused_only_as_crowded() {
    explore(None, || {
        let bank = Bank::new();
        let rival = {
            let bank = Arc::clone(&bank);
            thread::spawn(move || bank.reserve(1, 2, u64::MAX, 4))
        };
        for verdict in [
            bank.reserve(0, 2, u64::MAX, 4),
            rival.join().expect("no panic"),
        ] {
            assert!(
                matches!(verdict, Ok(()) | Err(Refusal::Crowded(..))),
                "{verdict:?}"
            );
        }
    });
}

#[test]
fn bytes_given_back_may_be_had_by_another_and_never_twice() {
    explore(Some(3), || {
        let bank = Bank::new();
        let rival = {
            let bank = Arc::clone(&bank);
            thread::spawn(move || {
                if bank.reserve(1, 2, u64::MAX, 3).is_ok() {
                    bank.release(1, 2);
                }
                let _ = bank.reserve(1, 1, u64::MAX, 3);
            })
        };
        let _ = bank.reserve(0, 2, u64::MAX, 3);
        rival.join().expect("no panic");
    });
}

#[test]
fn two_threads_of_one_process_never_exceed_its_own_quota() {
    explore(None, || {
        let bank = Bank::new();
        let rival = {
            let bank = Arc::clone(&bank);
            thread::spawn(move || account::reserve_own(bank.account(0), 2, 3).is_ok())
        };
        let mine = bank.reserve(0, 2, 3, 100).is_ok();
        assert!(!(mine && rival.join().expect("no panic")));
        assert_eq!(bank.used[0].load(Relaxed), 2);
    });
}

/// A device's words, a grant for each waiter, and something only the owner may touch.
struct Gpu {
    owner: AtomicU64,
    waiters: [AtomicU64; BITMAP],
    inside: AtomicU64,
    evicted: AtomicU64,
    grants: [AtomicU64; 3],
    /// A futex: looking at the word and falling asleep are one step.
    futex: (Mutex<()>, Condvar),
    work: UnsafeCell<u32>,
}

// SAFETY: `work` is touched by the owner alone, and loom fails the model if it is not so.
unsafe impl Sync for Gpu {}

impl Gpu {
    fn new(owner: u64) -> Arc<Gpu> {
        Arc::new(Gpu {
            owner: AtomicU64::new(owner),
            waiters: words(),
            inside: AtomicU64::new(owner),
            evicted: AtomicU64::new(0),
            grants: words(),
            futex: (Mutex::new(()), Condvar::new()),
            work: UnsafeCell::new(0),
        })
    }

    fn turn(&self) -> Turn<'_> {
        Turn {
            owner: &self.owner,
            waiters: &self.waiters,
            inside: &self.inside,
            evicted: &self.evicted,
        }
    }

    fn pass(&self, from: u64) -> Passed {
        let passed = self.turn().pass(from, |bits| {
            (bits[0] != 0).then(|| u64::from(bits[0].trailing_zeros()) + 1)
        });
        if let Passed::To(next) = passed {
            self.grants[next as usize - 1].fetch_add(1, Relaxed);
            drop(self.futex.0.lock());
            self.futex.1.notify_all();
        }
        passed
    }

    fn sleep(&self, slot: usize, seen: u64) {
        let guard = self.futex.0.lock().expect("no panic");
        if self.grants[slot].load(Relaxed) == seen {
            drop(self.futex.1.wait(guard).expect("no panic"));
        }
    }

    /// As `lock::wait` does it; `dead` is an owner that may be put out. False if it gave up after one look.
    fn acquire(&self, slot: usize, dead: u64, patient: bool) -> bool {
        let (turn, me) = (self.turn(), slot as u64 + 1);
        if let Some(mine) = turn.take(turn.owner(), me) {
            assert_eq!(turn.enter(mine), Entry::Alone);
            return true;
        }
        turn.join(slot);
        loop {
            let grant = self.grants[slot].load(loom::sync::atomic::Ordering::Acquire);
            let owner = turn.owner();
            if who(owner) == me {
                match turn.enter(owner) {
                    Entry::Alone => {
                        turn.leave(slot);
                        return true;
                    }
                    Entry::NotAlone => panic!("two inside"),
                    Entry::TooLate => {
                        self.pass(owner);
                        continue;
                    }
                }
            }
            if !patient {
                turn.leave(slot);
                let owner = turn.owner();
                if who(owner) == me && turn.enter(owner) == Entry::Alone {
                    self.release(slot);
                }
                return false;
            }
            let moved = match who(owner) {
                0 => self.pass(owner) != Passed::Free,
                gone if gone == dead => {
                    turn.evict(owner);
                    self.pass(owner);
                    true
                }
                _ => false,
            };
            if !moved {
                self.sleep(slot, grant);
            }
        }
    }

    fn work(&self) {
        self.work.with_mut(|work| {
            // SAFETY: we are the owner; loom checks that nobody else touches the cell meanwhile.
            unsafe {
                *work += 1;
            }
        });
    }

    fn release(&self, slot: usize) {
        let owner = self.turn().owner();
        self.turn().exit(owner);
        if who(owner) == slot as u64 + 1 {
            self.pass(owner);
        }
    }
}

fn contend(gpu: &Arc<Gpu>, slot: usize, dead: u64, patient: bool) -> thread::JoinHandle<()> {
    let gpu = Arc::clone(gpu);
    thread::spawn(move || {
        if gpu.acquire(slot, dead, patient) {
            gpu.work();
            gpu.release(slot);
        }
    })
}

fn ends_free(gpu: &Gpu, threads: Vec<thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert_eq!((who(gpu.turn().owner()), gpu.turn().anybody()), (0, false));
}

const NOBODY: u64 = u64::MAX;

#[test]
fn two_contenders_both_get_in_one_at_a_time() {
    explore(Some(4), || {
        let gpu = Gpu::new(0);
        let threads = vec![
            contend(&gpu, 0, NOBODY, true),
            contend(&gpu, 1, NOBODY, true),
        ];
        ends_free(&gpu, threads);
    });
}

#[test]
fn three_contenders_all_get_in_one_at_a_time() {
    explore(Some(2), || {
        let gpu = Gpu::new(0);
        let threads = (0..3)
            .map(|slot| contend(&gpu, slot, NOBODY, true))
            .collect();
        ends_free(&gpu, threads);
    });
}

#[test]
fn of_two_who_take_over_from_the_dead_exactly_one_does() {
    explore(Some(2), || {
        let gpu = Gpu::new(3);
        let threads = vec![contend(&gpu, 0, 3, true), contend(&gpu, 1, 3, true)];
        ends_free(&gpu, threads);
    });
}

#[test]
fn a_turn_given_to_one_who_leaves_is_passed_on() {
    explore(Some(3), || {
        let gpu = Gpu::new(0);
        let threads = vec![
            contend(&gpu, 0, NOBODY, false),
            contend(&gpu, 1, NOBODY, true),
        ];
        ends_free(&gpu, threads);
    });
}

#[test]
fn a_turn_given_to_one_who_leaves_while_a_third_waits_is_passed_on() {
    explore(Some(2), || {
        let gpu = Gpu::new(0);
        let threads = vec![
            contend(&gpu, 0, NOBODY, false),
            contend(&gpu, 1, NOBODY, true),
            contend(&gpu, 2, NOBODY, true),
        ];
        ends_free(&gpu, threads);
    });
}

#[test]
fn one_who_leaves_and_comes_back_at_once_is_not_taken_for_gone() {
    explore(Some(3), || {
        let gpu = Gpu::new(0);
        let fickle = {
            let gpu = Arc::clone(&gpu);
            thread::spawn(move || {
                for patient in [false, true] {
                    if gpu.acquire(0, NOBODY, patient) {
                        gpu.work();
                        gpu.release(0);
                    }
                }
            })
        };
        let threads = vec![fickle, contend(&gpu, 1, NOBODY, true)];
        ends_free(&gpu, threads);
    });
}

/// A futex: who sleeps on the word is woken, and a word that is not what the sleeper saw is no reason to sleep.
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

    /// Until there is so much news, as a keeper does it.
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
