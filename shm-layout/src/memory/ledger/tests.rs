//! Tests of measured bytes outside the accounts, of the room under shared limits, and of waiting for a competing reservation.

use std::time::Duration;

use super::{outside::SAMPLES, shared::BackOff, *};
use crate::{
    Change, Identity, LaunchLimits, Limit, MemoryLimit, Operator, QuotaValue, Registration, Set,
    clock, register,
};

const MIB: u64 = 1 << 20;
const TOTAL: u64 = 1024 * MIB;
const HOUR: u64 = 3_600_000_000_000;

struct Fixture {
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Self { dir }
    }

    fn operator(&self) -> Operator {
        Operator::open(self.dir.path()).expect("operator")
    }

    fn edit(&self, change: &Change) {
        self.operator().edit(None, change, 0).expect("edited");
    }

    fn process(&self, limits: &LaunchLimits) -> (Registration, Entry) {
        let operator = self.operator();
        let process = register(operator.segments(), &Identity::default(), limits);
        let process = process.expect("a slot");
        let entry = process.add_device([1; 16], 0, "", TOTAL, 0);
        (process, entry.expect("an entry"))
    }
}

#[test]
fn what_is_outside_may_turn_out_more_at_once_and_less_when_the_accounts_have_stood_still() {
    let place = Fixture::new();
    let (process, entry) = place.process(&LaunchLimits::default());
    let ledger = process.ledger(entry);
    let mut seen = (0, 0);
    let outside = |ledger: &Ledger<'_>| {
        (
            ledger.outside() / MIB,
            ledger.measured().map(|own| own / MIB),
        )
    };
    // Nothing was measured before, so the first figure counts.
    ledger.publish_free_late(1000 * MIB, HOUR, &mut seen);
    assert_eq!(outside(&ledger), (24, Some(24)));
    ledger.reserve(100 * MIB).expect("room").commit();
    let before = clock::now();
    ledger.publish_free_late(910 * MIB, HOUR, &mut seen);
    assert_eq!(
        outside(&ledger),
        (24, Some(24)),
        "less, but the account has changed just now"
    );
    assert_eq!(seen.0, 100 * MIB);
    assert!(seen.1 >= before);
    let changed = seen;
    ledger.publish_free_late(890 * MIB, HOUR, &mut seen);
    assert_eq!(outside(&ledger), (34, Some(34)), "more");
    assert_eq!(seen, changed, "the account stands as it did");
    ledger.publish_free_late(920 * MIB, HOUR, &mut seen);
    assert_eq!(outside(&ledger), (34, Some(34)));
    // It has been unchanged for longer than the figure is late.
    seen.1 -= 2 * HOUR.min(seen.1 / 4);
    let late = (clock::now() - seen.1) / 2;
    ledger.publish_free_late(920 * MIB, late, &mut seen);
    assert_eq!(outside(&ledger), (4, Some(4)));
    // Changed a moment ago, and known at once.
    ledger.reserve(MIB).expect("room").commit();
    ledger.publish_free_late(923 * MIB, 0, &mut seen);
    assert_eq!(outside(&ledger), (0, Some(0)));
}

#[test]
fn a_figure_of_ones_own_and_one_that_others_see_are_kept_apart() {
    let place = Fixture::new();
    let (process, entry) = place.process(&LaunchLimits::default());
    let ledger = process.ledger(entry);
    let mut seen = (0, clock::now());
    ledger.measure(50 * MIB);
    ledger.publish_outside(10 * MIB, 1);
    ledger.publish_free_late(TOTAL - 30 * MIB, HOUR, &mut seen);
    assert_eq!(ledger.measured(), Some(50 * MIB), "less than was measured");
    assert_eq!(ledger.outside(), 30 * MIB, "more than others have seen");
    ledger.publish_free_late(TOTAL - 50 * MIB, HOUR, &mut seen);
    assert_eq!(ledger.measured(), Some(50 * MIB));
    assert_eq!(ledger.outside(), 50 * MIB);
    // Neither more nor known for certain: the time of the figure stays.
    ledger.device.outside_ns.store(1, Ordering::Relaxed);
    ledger.publish_free_late(TOTAL - 50 * MIB, HOUR, &mut seen);
    assert_eq!(ledger.device.outside_ns.load(Ordering::Relaxed), 1);
}

/// Publishes four measurements. Before each, `step` changes the account and returns what the driver reports as free. Returns what
/// is outside then, in MiB.
fn measured_surely(ledger: &Ledger<'_>, mut step: impl FnMut(u32) -> u64) -> u64 {
    let mut number = 0;
    ledger.publish_free_surely(|| {
        number += 1;
        Some(step(number) * MIB)
    });
    assert_eq!(number, SAMPLES);
    ledger.outside() / MIB
}

#[test]
fn a_measurement_counts_only_if_the_accounts_stand_still_and_the_most_outside_is_published() {
    let place = Fixture::new();
    let (process, entry) = place.process(&LaunchLimits::default());
    let ledger = process.ledger(entry);
    let give = || ledger.reserve(100 * MIB).expect("room").commit();
    let take = || ledger.release(100 * MIB);
    assert_eq!(measured_surely(&ledger, |_| 1000), 24);
    let given_in_the_first = |number| {
        if number == 1 {
            give();
        }
        900
    };
    assert_eq!(measured_surely(&ledger, given_in_the_first), 24);
    let taken_behind_the_first = |number| match number {
        1 => {
            take();
            900
        }
        _ => 1000,
    };
    assert_eq!(measured_surely(&ledger, taken_behind_the_first), 24);
    // Charged for the first measurement, and then refused by the driver, which has never given it.
    give();
    let refused_in_the_second = |number| {
        if number == 2 {
            take();
        }
        1000
    };
    assert_eq!(measured_surely(&ledger, refused_in_the_second), 24);
}

#[test]
fn without_an_undisturbed_measurement_none_is_published() {
    let place = Fixture::new();
    let (process, entry) = place.process(&LaunchLimits::default());
    let ledger = process.ledger(entry);
    ledger.publish_free(1000 * MIB);
    let always_given = |number| {
        ledger.reserve(MIB).expect("room").commit();
        500 - u64::from(number)
    };
    assert_eq!(measured_surely(&ledger, always_given), 24);
    ledger.publish_free_surely(|| None);
    assert_eq!(ledger.outside() / MIB, 24, "the driver did not answer");
}

#[test]
fn what_is_left_is_the_least_of_the_own_quota_the_groups_and_the_devices() {
    let place = Fixture::new();
    let group = |bytes| Change::Group {
        name: "g".to_owned(),
        settings: crate::value::GroupEdit {
            memory: Set::To(QuotaValue::Bytes(bytes)),
            ..crate::value::GroupEdit::default()
        },
        remove: false,
    };
    let device = |value| Change::DeviceLimit {
        uuid: [1; 16],
        value,
    };
    let quota = |bytes| {
        let mut limits = LaunchLimits {
            group: Some("g".to_owned()),
            ..LaunchLimits::default()
        };
        limits.memory[0] = bytes;
        limits
    };
    let (process, entry) = place.process(&quota(MemoryLimit::Bytes(100 * MIB)));
    let (member, members) = place.process(&quota(MemoryLimit::None));
    let (stranger, strangers) = place.process(&LaunchLimits::default());
    let ledger = process.ledger(entry);
    ledger.reserve(10 * MIB).expect("room").commit();
    let held = |process: &Registration, entry, bytes| {
        let reservation = process.ledger(entry).reserve(bytes);
        reservation.expect("room").commit();
    };
    held(&member, members, 20 * MIB);
    held(&stranger, strangers, 40 * MIB);
    let left = |ledger: &Ledger<'_>| {
        let outlook = ledger.outlook().expect("limited");
        (outlook.room / MIB, outlook.whole / MIB)
    };
    assert_eq!(left(&ledger), (90, 100), "the own quota alone");
    place.edit(&group(200 * MIB));
    assert_eq!(left(&ledger), (90, 100), "the own quota is the least");
    place.edit(&group(80 * MIB));
    assert_eq!(left(&ledger), (50, 100), "the group's");
    place.edit(&device(QuotaValue::Bytes(100 * MIB)));
    assert_eq!(left(&ledger), (30, 100), "the device's");
    place.edit(&group(35 * MIB));
    assert_eq!(left(&ledger), (5, 100), "the group's once more");
    let others = member.ledger(members);
    assert_eq!(
        left(&others),
        (5, 25),
        "a member without a quota of its own"
    );
    place.edit(&group(1000 * MIB));
    assert_eq!(left(&others), (30, 50));
    assert_eq!(
        left(&stranger.ledger(strangers)),
        (30, 70),
        "no member feels the group's"
    );
    place.edit(&device(QuotaValue::Bytes(60 * MIB)));
    assert_eq!(
        left(&ledger),
        (0, 100),
        "more is held than the limit allows"
    );
}

#[test]
fn a_reservation_beside_one_that_never_ends_is_refused_in_the_end() {
    let place = Fixture::new();
    let (process, entry) = place.process(&LaunchLimits::default());
    let (stopped, theirs) = place.process(&LaunchLimits::default());
    place.edit(&Change::DeviceLimit {
        uuid: [1; 16],
        value: QuotaValue::Bytes(1000 * MIB),
    });
    let ledger = process.ledger(entry);
    let attempt = &stopped.ledger(theirs).words.trying;
    attempt.store(900 * MIB, Ordering::Relaxed);
    let denial = ledger
        .reserve(200 * MIB)
        .err()
        .expect("it does not fit beside the attempt");
    assert_eq!((denial.limit, denial.used), (Limit::Device, 0));
    assert_eq!(ledger.reserve(100 * MIB).expect("room").commit(), 100 * MIB);
    attempt.store(0, Ordering::Relaxed);
    assert_eq!(ledger.reserve(200 * MIB).expect("room").commit(), 200 * MIB);
}

#[test]
fn who_is_hindered_waits_longer_each_time_and_not_as_its_rival_does() {
    let after = BackOff::after;
    let sleep = |micros| BackOff::Sleep(Duration::from_micros(micros));
    assert_eq!(
        (after(0, 0), after(0, 5), after(0, 9)),
        (BackOff::Spin(1), BackOff::Spin(6), BackOff::Spin(3))
    );
    assert_eq!(
        (after(7, 0), after(7, 9)),
        (BackOff::Spin(8), BackOff::Spin(10))
    );
    assert_eq!(
        (after(8, 3), after(23, 3)),
        (BackOff::Yield, BackOff::Yield)
    );
    assert_eq!(
        (after(24, 0), after(63, 5), after(63, 18)),
        (sleep(50), sleep(135), sleep(135))
    );
    let began = std::time::Instant::now();
    after(24, 12).wait();
    assert!(began.elapsed() >= Duration::from_micros(254));
}
