//! A loom model of threads that insert keys into one bucket of the map of allocations and remove them. It tries every
//! interleaving, compiled from the map's own source with loom's atomics.
//!
//! A record is the same number three times, so that a torn or wrong record is detected.

mod primitive {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
}

#[allow(dead_code, reason = "the models use what they need")]
#[path = "../src/tracking/record.rs"]
mod record;

use loom::{sync::Arc, thread};
use record::{Bucket, Record};

const KEY: u64 = 0x1000;

fn put(bucket: &Bucket, key: u64, value: u64) {
    assert!(bucket.put(key, &[value; 3]), "there are four places");
}

fn take(bucket: &Bucket, key: u64, fits: impl Fn(&Record) -> bool) -> Option<u64> {
    let record = bucket.claim(key, fits)?.empty();
    assert_eq!(record, [record[0]; 3], "a torn record");
    Some(record[0])
}

#[test]
fn of_two_that_take_a_key_exactly_one_gets_it() {
    loom::model(|| {
        let bucket = Arc::new(Bucket::default());
        put(&bucket, KEY, 7);
        let there = bucket.clone();
        let other = thread::spawn(move || take(&there, KEY, |_| true));
        let mine = take(&bucket, KEY, |_| true);
        let theirs = other.join().expect("it ends");
        assert_eq!(mine.xor(theirs), Some(7), "{mine:?} and {theirs:?}");
    });
}

#[test]
fn a_place_that_is_used_again_gives_the_record_of_its_own_key() {
    loom::model(|| {
        let bucket = Arc::new(Bucket::default());
        put(&bucket, KEY, 1);
        let there = bucket.clone();
        let other = thread::spawn(move || {
            // The allocation is freed, and the same address is used again with another record.
            let first = take(&there, KEY, |_| true);
            put(&there, KEY, 2);
            first
        });
        put(&bucket, 2 * KEY, 3);
        let mine = take(&bucket, KEY, |_| true);
        let theirs = other.join().expect("it ends");
        let rest = take(&bucket, KEY, |_| true);
        let mut all = [mine, theirs, rest]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>();
        all.sort_unstable();
        assert_eq!(all, [1, 2], "{mine:?}, {theirs:?}, {rest:?}");
        assert_eq!(take(&bucket, 2 * KEY, |_| true), Some(3));
    });
}

#[test]
fn a_record_that_does_not_fit_stays() {
    loom::model(|| {
        let bucket = Arc::new(Bucket::default());
        put(&bucket, KEY, 1);
        let there = bucket.clone();
        let other = thread::spawn(move || take(&there, KEY, |record| record[0] == 2));
        let mine = take(&bucket, KEY, |_| true);
        assert_eq!(other.join().expect("it ends"), None);
        assert_eq!(mine, Some(1), "a look at a record hides it from no taker");
    });
}
