//! Records that are read consistently, and slots that are claimed once.

use super::*;

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
