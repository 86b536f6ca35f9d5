//! Bytes under a limit that several share.

use super::*;

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
