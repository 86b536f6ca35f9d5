//! Bytes under a limit that several processes share.

use super::*;

/// Words for each of two processes, and the bytes that were granted.
struct Bank {
    used: [AtomicU64; 2],
    trying: [AtomicU64; 2],
    reserves: [AtomicU64; 2],
    /// The accounts that count where a broker serves the machine.
    kept: Option<[Kept; 2]>,
    /// Bits of the accounts that the broker has published; a process waits for its bit.
    begun: AtomicU64,
    granted: AtomicU64,
}

impl Bank {
    fn new() -> Arc<Bank> {
        Self::of(None)
    }

    fn brokered() -> Arc<Bank> {
        Self::of(Some([Kept::default(), Kept::default()]))
    }

    fn of(kept: Option<[Kept; 2]>) -> Arc<Bank> {
        Arc::new(Bank {
            used: words(),
            trying: words(),
            reserves: words(),
            kept,
            begun: AtomicU64::new(3),
            granted: AtomicU64::new(0),
        })
    }

    fn own(&self, who: usize) -> Own<'_> {
        Own {
            shown: self.account(who),
            kept: self.kept.as_ref().map(|kept| &kept[who]),
        }
    }

    fn account(&self, who: usize) -> Account<'_> {
        Account {
            used: &self.used[who],
            trying: &self.trying[who],
            reserve: self.reserves[who].load(Acquire),
            covered: 0,
        }
    }

    /// Changes the reserve of a process under the common limit.
    fn guarantee(&self, who: usize, bytes: u64, limit: u64) -> Result<(), Refusal> {
        let walk =
            |visit: &mut dyn FnMut(Account<'_>)| (0..2).for_each(|who| visit(self.account(who)));
        let limit = SharedLimit {
            bytes: limit,
            walk: &walk,
            groups: &[],
        };
        account::change_reserve(&self.reserves[who], self.own(who), bytes, &[limit])
    }

    fn reserve(&self, who: usize, bytes: u64, quota: u64, limit: u64) -> Result<(), Refusal> {
        let walk = |visit: &mut dyn FnMut(Account<'_>)| {
            let begun = self.begun.load(Acquire);
            let seen = (0..2).filter(|one| *one == who || begun & 1 << one != 0);
            seen.for_each(|one| {
                let kept = self.kept.as_ref().map(|kept| kept[one].account());
                visit(kept.unwrap_or(self.account(one)));
            });
        };
        account::reserve_shared(
            self.own(who),
            bytes,
            quota,
            &[SharedLimit {
                bytes: limit,
                walk: &walk,
                groups: &[],
            }],
        )?;
        let sum = self.granted.fetch_add(bytes, Relaxed) + bytes;
        assert!(sum <= limit, "{sum} bytes granted of {limit}");
        Ok(())
    }

    /// Reserves for the first process, whose group has `group` bytes reserved, or for the second, which is in no group.
    fn reserve_beside(
        &self,
        who: usize,
        bytes: u64,
        limit: u64,
        group: u64,
    ) -> Result<(), Refusal> {
        let is_member = who == 0;
        let walk = |visit: &mut dyn FnMut(Account<'_>)| {
            (0..2).for_each(|one| {
                visit(Account {
                    covered: usize::from(one == 0 && !is_member),
                    ..self.account(one)
                });
            });
        };
        let groups = [group];
        let limit = SharedLimit {
            bytes: limit,
            walk: &walk,
            groups: if is_member { &[] } else { &groups },
        };
        account::reserve_shared(self.own(who), bytes, u64::MAX, &[limit]).map(|_| ())
    }

    fn release(&self, who: usize, bytes: u64) {
        self.granted.fetch_sub(bytes, Relaxed);
        assert_eq!(self.own(who).release(bytes), 0);
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
            thread::spawn(move || account::reserve_own(bank.own(0), 2, 3).is_ok())
        };
        let mine = bank.reserve(0, 2, 3, 100).is_ok();
        assert!(!(mine && rival.join().expect("no panic")));
        assert_eq!(bank.used[0].load(Relaxed), 2);
    });
}

#[test]
fn an_account_that_is_kept_apart_is_shown_in_time_for_rivals() {
    explore(Some(2), || {
        let bank = Bank::brokered();
        let threads = [(0, 1), (1, 2)].map(|(who, bytes)| {
            let bank = Arc::clone(&bank);
            thread::spawn(move || bank.reserve(who, bytes, u64::MAX, 3))
        });
        let _ = bank.reserve(0, 1, u64::MAX, 3);
        for thread in threads {
            let _ = thread.join().expect("no panic");
        }
        for who in 0..2 {
            let shown = bank.used[who].load(Relaxed);
            assert_eq!(shown, bank.own(who).used(), "the last number is shown last");
            assert_eq!(bank.trying[who].load(Relaxed), 0);
        }
    });
}

#[test]
fn who_writes_over_the_shown_account_changes_no_decision() {
    explore(Some(3), || {
        let bank = Bank::brokered();
        let rival = {
            let bank = Arc::clone(&bank);
            thread::spawn(move || account::reserve_own(bank.own(0), 2, 3).is_ok())
        };
        let vandal = {
            let bank = Arc::clone(&bank);
            thread::spawn(move || bank.used[0].store(77, Relaxed))
        };
        let mine = account::reserve_own(bank.own(0), 2, 3).is_ok();
        let theirs = rival.join().expect("no panic");
        assert!(mine ^ theirs, "one of them, and not both");
        vandal.join().expect("no panic");
        bank.own(0).kept.expect("brokered").show(bank.account(0));
        assert_eq!(bank.used[0].load(Relaxed), 2);
    });
}

#[test]
fn a_process_that_others_are_shown_meanwhile_exceeds_no_limit_with_them() {
    explore(Some(2), || {
        let bank = Bank::brokered();
        bank.begun.store(1, Relaxed);
        let broker = {
            let bank = Arc::clone(&bank);
            thread::spawn(move || bank.begun.store(3, Release))
        };
        let newcomer = {
            let bank = Arc::clone(&bank);
            thread::spawn(move || {
                // The process waits for the broker. The interleavings without a wait cover all outcomes.
                if bank.begun.load(Acquire) == 3 {
                    let _ = bank.reserve(1, 2, u64::MAX, 3);
                }
            })
        };
        let _ = bank.reserve(0, 2, u64::MAX, 3);
        newcomer.join().expect("no panic");
        broker.join().expect("no panic");
    });
}

#[test]
fn who_writes_over_all_that_is_shown_gives_members_of_a_limit_no_byte_more() {
    explore(Some(2), || {
        let bank = Bank::brokered();
        let rival = {
            let bank = Arc::clone(&bank);
            thread::spawn(move || bank.reserve(1, 2, u64::MAX, 3).is_ok())
        };
        let vandal = {
            let bank = Arc::clone(&bank);
            thread::spawn(move || {
                for words in [&bank.used, &bank.trying] {
                    words.iter().for_each(|word| word.store(0, Relaxed));
                }
            })
        };
        let mine = bank.reserve(0, 2, u64::MAX, 3).is_ok();
        assert!(!(mine && rival.join().expect("no panic")));
        vandal.join().expect("no panic");
    });
}

/// Models a signal handler that interrupts the thread which changes the account.
#[test]
fn a_thread_that_waits_no_longer_for_another_loses_no_change_of_either() {
    crate::protocol::primitive::IMPATIENT.set(true);
    explore(Some(3), || {
        let bank = Bank::brokered();
        let rival = {
            let bank = Arc::clone(&bank);
            thread::spawn(move || {
                bank.own(0).charge(2);
                bank.own(0).release(1);
            })
        };
        bank.reserve(0, 4, u64::MAX, 100).expect("there is room");
        rival.join().expect("no panic");
        let kept = &bank.kept.as_ref().expect("it is brokered")[0];
        assert_eq!(kept.used(), 5);
        assert_eq!(kept.account().used.load(Relaxed), 5, "no mark is left");
        assert_eq!(kept.account().trying.load(Relaxed), 0);
    });
    crate::protocol::primitive::IMPATIENT.set(false);
}

#[test]
fn bytes_are_either_reserved_for_one_or_taken_by_another() {
    explore(None, || {
        let bank = Bank::new();
        let rival = {
            let bank = Arc::clone(&bank);
            thread::spawn(move || bank.reserve(1, 2, u64::MAX, 5).is_ok())
        };
        let mine = bank.guarantee(0, 4, 5);
        let theirs = rival.join().expect("no panic");
        assert!(!(mine.is_ok() && theirs));
        let left = bank.reserves[0].load(Relaxed);
        assert_eq!(left, if mine.is_ok() { 4 } else { 0 });
        if mine.is_ok() {
            let got = account::reserve_within(bank.own(0), 4, u64::MAX, &bank.reserves[0]);
            assert_eq!(got, Some(4), "what is reserved is there");
        }
    });
}

#[test]
fn two_reserves_are_never_more_together_than_there_is() {
    explore(None, || {
        let bank = Bank::new();
        let rival = {
            let bank = Arc::clone(&bank);
            thread::spawn(move || bank.guarantee(1, 4, 6))
        };
        let mine = bank.guarantee(0, 4, 6);
        let theirs = rival.join().expect("no panic");
        assert!(!(mine.is_ok() && theirs.is_ok()));
        for verdict in [mine, theirs] {
            let is_known = matches!(
                verdict,
                Ok(()) | Err(Refusal::Crowded(..) | Refusal::Shared(..))
            );
            assert!(is_known, "{verdict:?}");
        }
    });
}

#[test]
fn a_reserve_that_ends_while_bytes_are_taken_from_it_is_not_given_twice() {
    explore(Some(3), || {
        let bank = Bank::new();
        bank.guarantee(0, 4, 4).expect("room");
        let owner = {
            let bank = Arc::clone(&bank);
            thread::spawn(move || {
                account::reserve_within(bank.own(0), 4, u64::MAX, &bank.reserves[0]).is_some()
            })
        };
        let keeper = {
            let bank = Arc::clone(&bank);
            thread::spawn(move || bank.guarantee(0, 0, 4).expect("less needs no room"))
        };
        let rival = bank.reserve(1, 4, u64::MAX, 4).is_ok();
        keeper.join().expect("no panic");
        assert!(!(owner.join().expect("no panic") && rival));
    });
}

#[test]
fn what_a_group_has_reserved_is_there_for_its_members_whatever_others_try() {
    explore(None, || {
        let bank = Bank::new();
        let rival = {
            let bank = Arc::clone(&bank);
            thread::spawn(move || {
                assert!(
                    bank.reserve_beside(1, 2, 5, 4).is_err(),
                    "4 of 5 are reserved"
                );
                bank.reserve_beside(1, 1, 5, 4).is_ok()
            })
        };
        let first = bank.reserve_beside(0, 4, 5, 4);
        let theirs = rival.join().expect("no panic");
        match first {
            Ok(()) => {}
            // The attempts of the other are over.
            Err(Refusal::Crowded(..)) => bank.reserve_beside(0, 4, 5, 4).expect("its reserve"),
            Err(refusal) => panic!("{refusal:?}"),
        }
        assert!(
            theirs || bank.reserve_beside(1, 1, 5, 4).is_ok(),
            "beside the reserve"
        );
        assert!(bank.reserve_beside(0, 1, 5, 4).is_err(), "all are held");
    });
}

#[test]
fn a_member_that_gives_back_leaves_its_group_the_reserve() {
    explore(None, || {
        let bank = Bank::new();
        bank.reserve_beside(0, 4, 5, 4).expect("its reserve");
        let rival = {
            let bank = Arc::clone(&bank);
            thread::spawn(move || bank.reserve_beside(1, 2, 5, 4))
        };
        bank.own(0).release(3);
        assert!(rival.join().expect("no panic").is_err());
        bank.reserve_beside(0, 3, 5, 4).expect("its reserve");
    });
}
