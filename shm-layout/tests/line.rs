//! The memory queue: which process gets memory, when, and which does not.

mod common;

use std::{sync::mpsc, thread, time::Duration};

use common::*;
use proptest::prelude::*;
use shm_layout::*;

const S: u64 = 1_000_000_000;

/// A device and processes on it.
struct Stage<const N: usize> {
    dir: Dir,
    segments: Segments,
    processes: [(Registration, Entry); N],
}

impl<const N: usize> Stage<N> {
    /// Makes a stage on which each process holds so many bytes, under a limit on all of them if there is one.
    fn of(limit: Option<u64>, held: [u64; N]) -> Self {
        let dir = Dir::new();
        if let Some(bytes) = limit {
            dir.limit(bytes);
        }
        let segments = dir.open();
        let processes = std::array::from_fn(|at| process(&segments, &at.to_string()));
        let stage = Self {
            dir,
            segments,
            processes,
        };
        for (ledger, bytes) in stage.ledgers().iter().zip(held) {
            ledger.reserve(bytes).expect("room").commit();
        }
        stage
    }

    /// Makes a stage under a limit of 100 bytes.
    fn of_a_hundred(held: [u64; N]) -> Self {
        Self::of(Some(100), held)
    }

    fn ledgers(&self) -> [Ledger<'_>; N] {
        self.processes
            .each_ref()
            .map(|(process, entry)| process.ledger(*entry))
    }
}

fn pause(dir: &Dir, process: &Registration, paused: bool) {
    let change = Change::ProcessShare {
        slot: process.slot(),
        share: ShareEdit {
            paused: Set::To(paused),
            ..ShareEdit::default()
        },
    };
    dir.edit(&change);
}

/// Asks for memory, is denied, and joins the queue.
fn enqueue<'r>(ledger: &Ledger<'r>, bytes: u64, now: u64) -> QueueTicket<'r> {
    let kind = WantKind::Allocation;
    let want = Want { bytes, kind };
    if let Some(denial) = ledger.blocked_by(bytes, now) {
        return ledger.enqueue_behind(want, denial, now);
    }
    let denial = ledger.reserve(bytes).err().expect("it has to wait");
    ledger.enqueue(want, denial, now)
}

fn granted(place: &QueueTicket<'_>, now: u64) -> bool {
    match place.poll(now) {
        Poll::Granted(reservation) => {
            reservation.commit();
            place.complete();
            true
        }
        Poll::Wait => false,
        Poll::Refused(denial) => panic!("refused: {denial:?}"),
    }
}

fn refused(place: &QueueTicket<'_>, now: u64) -> bool {
    matches!(place.poll(now), Poll::Refused(_))
}

#[test]
fn who_waits_sleeps_until_another_process_frees() {
    let dir = Dir::new();
    dir.limit(100);
    let segments = dir.open();
    let (holder, entry) = process(&segments, "holder");
    let (waiter, _) = process(&segments, "waiter");
    holder.ledger(entry).reserve(80).expect("room").commit();
    let (send, heard) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let ledger = waiter.ledger(entry);
            let place = enqueue(&ledger, 50, clock::now());
            let reservation = place.wait(&|| false).expect("granted in the end");
            place.complete();
            send.send(reservation.commit()).expect("heard");
        });
        eventually("it waits", PATIENCE, || {
            look(&segments).devices[0].memory_line == [waiter.slot()]
        });
        let wait = look(&segments).processes[1].devices[0].memory_wait;
        let wait = wait.expect("it says what it waits for");
        assert_eq!(
            (wait.bytes, wait.limit, wait.until_ns),
            (50, Blocked::Limit, None)
        );
        holder.ledger(entry).release(20);
        assert!(
            heard.recv_timeout(Duration::from_millis(300)).is_err(),
            "40 are free"
        );
        holder.ledger(entry).release(20);
        assert_eq!(heard.recv_timeout(Duration::from_secs(30)), Ok(50));
    });
    let view = look(&segments);
    assert!(view.devices[0].memory_line.is_empty());
    let counters = view.processes[1].devices[0].counters;
    assert_eq!((counters.memory_waits, counters.memory_gave_up), (1, 0));
    assert!(counters.memory_waited_ns >= 300_000_000);
    let told = told(&segments);
    let asked = What::MemoryWait {
        asked_bytes: 50,
        limit: Blocked::Limit,
    };
    assert!(told.contains(&asked), "{told:?}");
    let done = |what: &What| matches!(what, What::MemoryDone { granted: true, .. });
    assert!(told.iter().any(done), "{told:?}");
}

fn told(segments: &Segments) -> Vec<What> {
    let mut reader = EventReader::from_start(segments.state());
    let mut told = Vec::new();
    while let Some(event) = reader.next(segments.state()) {
        told.extend(event.ok().map(|event| event.what()));
    }
    told
}

#[test]
fn a_wait_is_told_with_its_device() {
    let dir = Dir::new();
    let segments = dir.open();
    let (waiter, _) = process(&segments, "waiter");
    let second = waiter
        .add_device([8; 16], 1, "Test GPU", 1024 * MIB, DEVICE_SIM)
        .expect("an entry");
    let (uuid, value) = ([8; 16], QuotaValue::Bytes(100));
    let change = Change::DeviceLimit { uuid, value };
    dir.edit(&change);
    let ledger = waiter.ledger(second);
    ledger.reserve(80).expect("room").commit();
    let _ticket = enqueue(&ledger, 50, clock::now());
    let mut reader = EventReader::from_start(segments.state());
    let mut devices = Vec::new();
    while let Some(event) = reader.next(segments.state()) {
        let waits = |event: &Event| matches!(event.what(), What::MemoryWait { .. });
        devices.extend(event.ok().filter(waits).map(|event| event.device));
    }
    assert_eq!(devices, [second.device()]);
}

#[test]
fn memory_that_comes_back_to_a_card_with_room_has_waited_for_nothing() {
    let dir = Dir::new();
    let segments = dir.open();
    let (away, entry) = process(&segments, "away");
    let ledger = away.ledger(entry);
    let now = clock::now();
    let place = ledger.enqueue_return(50, 0, now);
    assert!(granted(&place, now));
    drop(place);
    let counters = look(&segments).processes[0].devices[0].counters;
    assert_eq!((counters.memory_waits, counters.memory_gave_up), (0, 0));
    let waits = |what: &What| matches!(what, What::MemoryWait { .. } | What::MemoryDone { .. });
    assert!(!told(&segments).iter().any(waits));
}

#[test]
fn memory_that_comes_back_to_a_full_card_waits_for_the_card_and_for_no_limit() {
    let dir = Dir::new();
    let segments = dir.open();
    let [(here, entry), (away, _)] = ["here", "away"].map(|name| process(&segments, name));
    let total = look(&segments).devices[0].total_bytes;
    here.ledger(entry).reserve(total).expect("room").commit();
    let ledger = away.ledger(entry);
    let now = clock::now();
    let place = ledger.enqueue_return(50, 0, now);
    assert!(!granted(&place, now));
    let wait = look(&segments).processes[1].devices[0].memory_wait;
    assert_eq!(wait.map(|wait| wait.limit), Some(Blocked::Device));
    let asked = What::MemoryWait {
        asked_bytes: 50,
        limit: Blocked::Device,
    };
    assert!(told(&segments).contains(&asked), "{:?}", told(&segments));
    // With a limit below the card's size, the limit is the reported reason.
    dir.limit(total / 2);
    assert!(!granted(&place, now));
    let wait = look(&segments).processes[1].devices[0].memory_wait;
    assert_eq!(wait.map(|wait| wait.limit), Some(Blocked::Limit));
}

#[test]
fn a_return_that_lets_others_go_first_has_its_place_again() {
    let stage = Stage::of_a_hundred([80, 0]);
    let [holder, away] = stage.ledgers();
    let (other, entry) = process(&stage.segments, "other");
    let other = other.ledger(entry);
    let now = clock::now();
    let before = away.enqueue_return(30, 0, now).place();
    let large = other.enqueue_return(90, 0, now);
    assert!(!granted(&large, now), "it does not fit yet");
    holder.release(50);
    let again = away.enqueue_return_at(before, 30, 0, now + 1);
    assert!(granted(&again, now + 1), "it was there first");
    drop(again);
    away.release(30);
    holder.release(30);
    assert!(granted(&large, now + 2));
}

#[test]
fn a_wait_that_is_interrupted_counts_once_and_is_not_given_up() {
    let stage = Stage::of_a_hundred([80, 0]);
    let ([holder, waiter], segments) = (stage.ledgers(), &stage.segments);
    let began = clock::now();
    let mut place = enqueue(&waiter, 50, began);
    for _ in 0..3 {
        assert!(!granted(&place, clock::now()));
        let wait = place.interrupt();
        assert!(look(segments).devices[0].memory_line.is_empty());
        place = waiter.enqueue_again(wait, clock::now());
        assert_eq!(place.began_ns(), began, "the time it may take goes on");
        let wait = look(segments).processes[1].devices[0].memory_wait;
        assert_eq!(
            wait.map(|wait| wait.since_ns),
            Some(began),
            "as what it has lacked"
        );
    }
    holder.release(80);
    assert!(granted(&place, clock::now()));
    drop(place);
    let counters = look(segments).processes[1].devices[0].counters;
    assert_eq!((counters.memory_waits, counters.memory_gave_up), (1, 0));
    let told = told(segments);
    let waits = |what: &&What| matches!(what, What::MemoryWait { .. });
    let ends = |what: &&What| matches!(what, What::MemoryDone { .. });
    assert_eq!(told.iter().filter(waits).count(), 1);
    assert_eq!(told.iter().filter(ends).count(), 1);
}

#[test]
fn a_wait_that_ends_outside_of_the_queue_counts_once() {
    let stage = Stage::of_a_hundred([80, 0]);
    let ([_holder, waiter], segments) = (stage.ledgers(), &stage.segments);
    for (granted, gave_up) in [(true, 0), (false, 1)] {
        let began = clock::now();
        let wait = enqueue(&waiter, 50, began).interrupt();
        waiter.end_interrupted(&wait, granted, began + 7);
        let counters = look(segments).processes[1].devices[0].counters;
        assert_eq!(counters.memory_waits, 1 + gave_up);
        assert_eq!(counters.memory_gave_up, gave_up);
        assert_eq!(counters.memory_waited_ns, 7 * (1 + gave_up));
    }
}

#[test]
fn first_come_is_first_served_though_a_later_one_would_fit() {
    let stage = Stage::of_a_hundred([90, 0, 0]);
    let ([holder, big, small], now) = (stage.ledgers(), clock::now());
    let first = enqueue(&big, 60, now);
    assert!(
        small.blocked_by(5, now).is_some(),
        "there would be room for 5"
    );
    let second = enqueue(&small, 5, now);
    assert!(!granted(&first, now) && !granted(&second, now));
    holder.release(50);
    assert!(!granted(&second, now + 1), "it is not its turn");
    let waits_for = |who: usize| look(&stage.segments).processes[who].devices[0].memory_wait;
    let said = |who| waits_for(who).map(|wait| wait.limit);
    assert_eq!(said(1), Some(Blocked::Limit));
    assert_eq!(said(2), Some(Blocked::Behind));
    assert!(granted(&first, now + 2));
    drop(first);
    assert!(!granted(&second, now + 3), "now there is no room");
    holder.release(5);
    assert!(granted(&second, now + 4));
}

#[test]
fn who_has_a_higher_priority_goes_first() {
    let dir = Dir::new();
    dir.limit(100);
    let segments = dir.open();
    let (holder, entry) = process(&segments, "holder");
    let (low, _) = process(&segments, "low");
    let urgent = LaunchLimits {
        settings: SettingValues {
            priority: Some(5),
            ..SettingValues::default()
        },
        ..LaunchLimits::default()
    };
    let (high, _) = with_limits(&segments, "high", &urgent);
    let now = clock::now();
    holder.ledger(entry).reserve(100).expect("room").commit();
    let ledgers = [low.ledger(entry), high.ledger(entry)];
    let late = enqueue(&ledgers[0], 50, now);
    let urgent = enqueue(&ledgers[1], 50, now);
    holder.ledger(entry).release(50);
    assert!(!granted(&late, now + 1));
    assert!(granted(&urgent, now + 2));
}

#[test]
fn who_holds_as_much_as_it_asks_for_may_pass_so_that_it_can_end() {
    let stage = Stage::of_a_hundred([50, 0]);
    let ([works, comes], now) = (stage.ledgers(), clock::now());
    let _place = enqueue(&comes, 80, now);
    assert_eq!(works.blocked_by(50, now), None);
    assert!(works.blocked_by(51, now).is_some());
    works.reserve(50).expect("room").commit();
}

#[test]
fn who_waits_for_its_own_quota_keeps_nobody_waiting() {
    let stage = Stage::of(None, [90, 0]);
    let quota = |bytes| {
        stage
            .dir
            .quota(&stage.processes[0].0, QuotaValue::Bytes(bytes))
    };
    quota(100);
    let ([full, other], now) = (stage.ledgers(), clock::now());
    let place = enqueue(&full, 20, now);
    assert_eq!(other.blocked_by(20, now), None);
    // The wait has no end, because an operator may raise the limit.
    assert!(!granted(&place, now + 60 * S));
    quota(110);
    assert!(granted(&place, now + 61 * S));
}

#[test]
fn a_raised_quota_wakes_who_waits_for_it() {
    let dir = Dir::new();
    let segments = dir.open();
    let (full, entry) = process(&segments, "full");
    dir.quota(&full, QuotaValue::Bytes(100));
    full.ledger(entry).reserve(90).expect("room").commit();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let ledger = full.ledger(entry);
            let place = enqueue(&ledger, 20, clock::now());
            place.wait(&|| false).map(Reservation::commit)
        });
        eventually("it waits", PATIENCE, || {
            !look(&segments).devices[0].memory_line.is_empty()
        });
        dir.quota(&full, QuotaValue::Unlimited);
        assert_eq!(waits.join().expect("no panic"), Ok(20));
    });
}

#[test]
fn time_that_is_up_refuses_but_takes_what_there_is() {
    let stage = Stage::of_a_hundred([90, 0, 0]);
    let ([_, big, small], now) = (stage.ledgers(), clock::now());
    let first = enqueue(&big, 60, now);
    let second = enqueue(&small, 5, now);
    for place in [&first, &second] {
        place.allow_until(Some(now + S));
    }
    assert!(!granted(&second, now + S - 1));
    assert!(
        granted(&second, now + S),
        "as it would have been without a line"
    );
    let Poll::Refused(denial) = first.poll(now + S) else {
        panic!("its time is up")
    };
    let said = (denial.limit, denial.quota, denial.asked);
    assert_eq!(said, (Limit::Device, 100, 60));
}

#[test]
fn what_could_never_be_is_refused_at_once() {
    let dir = Dir::new();
    let segments = dir.open();
    let (process, entry) = process(&segments, "greedy");
    let ledger = process.ledger(entry);
    assert_eq!(ledger.could_ever(1024 * MIB), Ok(()));
    let never = ledger
        .could_ever(1024 * MIB + 1)
        .expect_err("the device is smaller");
    assert_eq!((never.limit, never.quota), (Limit::Device, 1024 * MIB));
    dir.quota(&process, QuotaValue::Bytes(100));
    ledger.reserve(50).expect("room").commit();
    let place = enqueue(&ledger, 60, clock::now());
    assert!(!granted(&place, clock::now()));
    dir.quota(&process, QuotaValue::Bytes(59));
    assert!(
        refused(&place, clock::now()),
        "the quota is lower now than what it wants"
    );
}

#[test]
fn who_is_paused_keeps_its_place_and_keeps_nobody_waiting() {
    let stage = Stage::of_a_hundred([100, 0, 0]);
    let ([holder, first, second], now) = (stage.ledgers(), clock::now());
    let paused = enqueue(&first, 50, now);
    let next = enqueue(&second, 10, now);
    pause(&stage.dir, &stage.processes[1].0, true);
    holder.release(60);
    assert!(!granted(&paused, now + 1));
    assert!(granted(&next, now + 2));
    drop(next);
    pause(&stage.dir, &stage.processes[1].0, false);
    assert!(granted(&paused, now + 3));
}

#[test]
fn who_has_not_looked_for_long_is_passed_over_until_it_looks_again() {
    let stage = Stage::of_a_hundred([100, 0, 0]);
    let ([holder, stopped, next], now) = (stage.ledgers(), clock::now());
    let first = enqueue(&stopped, 50, now);
    let second = enqueue(&next, 10, now);
    holder.release(20);
    assert!(!granted(&second, now + S - 1));
    assert!(granted(&second, now + S));
    holder.release(80);
    assert!(granted(&first, now + 5 * S));
}

#[test]
fn who_would_wait_for_each_other_for_ever_do_not() {
    let stage = Stage::of_a_hundred([50, 50]);
    let ([one, two], now) = (stage.ledgers(), clock::now());
    let first = enqueue(&one, 40, now);
    let second = enqueue(&two, 40, now);
    for later in [0, S, 2 * S - 1] {
        assert!(!granted(&first, now + later) && !granted(&second, now + later));
    }
    // Only the last one fails: the first may use the memory that the last one then frees.
    assert!(!granted(&first, now + 2 * S));
    assert!(refused(&second, now + 2 * S));
    drop(second);
    assert!(
        !granted(&first, now + 9 * S),
        "the other one runs on, and may free"
    );
    two.release(50);
    assert!(granted(&first, now + 9 * S));
}

/// Makes a stage with a process that holds 60 bytes of its quota of 100.
fn greedy() -> Stage<1> {
    let stage = Stage::of(None, [60]);
    stage
        .dir
        .quota(&stage.processes[0].0, QuotaValue::Bytes(100));
    stage
}

#[test]
fn who_alone_could_free_what_its_quota_lacks_is_refused_after_two_seconds() {
    let (stage, now) = (greedy(), clock::now());
    let [ledger] = stage.ledgers();
    let place = enqueue(&ledger, 50, now);
    assert!(
        !granted(&place, now + 60 * S),
        "a thread of its own may free"
    );
    place.own_threads_wait(true);
    assert!(!granted(&place, now + 61 * S) && !granted(&place, now + 62 * S));
    place.own_threads_wait(false);
    assert!(!granted(&place, now + 63 * S), "one of them went on");
    place.own_threads_wait(true);
    assert!(!granted(&place, now + 64 * S) && !granted(&place, now + 66 * S - 1));
    let Poll::Refused(denial) = place.poll(now + 66 * S) else {
        panic!("it would wait for ever")
    };
    assert_eq!((denial.limit, denial.quota), (Limit::Process, 100));
}

#[test]
fn the_time_in_which_a_process_is_paused_counts_for_no_refusal() {
    let (stage, now) = (greedy(), clock::now());
    let [ledger] = stage.ledgers();
    let place = enqueue(&ledger, 50, now);
    place.own_threads_wait(true);
    assert!(!granted(&place, now));
    pause(&stage.dir, &stage.processes[0].0, true);
    assert!(!granted(&place, now + 9 * S));
    pause(&stage.dir, &stage.processes[0].0, false);
    assert!(!granted(&place, now + 9 * S));
    assert!(refused(&place, now + 11 * S));
}

#[test]
fn those_behind_that_could_not_help_keep_none_from_its_refusal() {
    let dir = Dir::new();
    dir.limit(100);
    for name in ["team", "others"] {
        dir.group(name, 50);
    }
    let segments = dir.open();
    let member = |label, group: &str| {
        let limits = LaunchLimits {
            group: Some(group.into()),
            ..LaunchLimits::default()
        };
        with_limits(&segments, label, &limits)
    };
    let [(alone, entry), (other, _)] =
        [("alone", "team"), ("other", "others")].map(|(label, group)| member(label, group));
    let now = clock::now();
    let ledgers = [alone.ledger(entry), other.ledger(entry)];
    ledgers[0].reserve(40).expect("room").commit();
    ledgers[1].reserve(40).expect("room").commit();
    let first = enqueue(&ledgers[0], 20, now);
    let behind = enqueue(&ledgers[1], 20, now);
    assert!(!granted(&first, now) && !granted(&behind, now + 2 * S - 1));
    assert!(refused(&first, now + 2 * S), "no member of its group waits");
}

#[test]
fn those_behind_that_hold_nothing_keep_none_from_its_refusal() {
    let stage = Stage::of_a_hundred([90, 0]);
    let ([alone, empty], now) = (stage.ledgers(), clock::now());
    let first = enqueue(&alone, 20, now);
    let behind = enqueue(&empty, 20, now);
    assert!(!granted(&first, now) && !granted(&behind, now + 2 * S - 1));
    assert!(refused(&first, now + 2 * S), "it alone fills the limit");
}

#[test]
fn a_process_that_holds_nothing_is_not_refused_for_those_that_wait_for_each_other() {
    let stage = Stage::of_a_hundred([90, 0]);
    let ([holder, newcomer], now) = (stage.ledgers(), clock::now());
    let first = enqueue(&holder, 20, now);
    let last = enqueue(&newcomer, 20, now);
    assert!(!granted(&first, now) && !granted(&last, now));
    assert!(!granted(&last, now + 60 * S), "its refusal frees nothing");
    assert!(refused(&first, now + 60 * S));
    drop(first);
    holder.release(90);
    assert!(granted(&last, now + 61 * S));
}

#[test]
fn a_stopped_process_at_the_end_of_the_line_keeps_none_from_its_refusal() {
    let stage = Stage::of_a_hundred([50, 50]);
    let ([one, stopped], now) = (stage.ledgers(), clock::now());
    let first = enqueue(&one, 40, now);
    let _never_looks = enqueue(&stopped, 40, now);
    assert!(!granted(&first, now) && !granted(&first, now + S));
    assert!(refused(&first, now + 2 * S));
}

#[test]
fn an_order_that_keeps_everyone_waiting_does_not_hold() {
    let stage = Stage::of_a_hundred([60, 5]);
    let ([one, two], now) = (stage.ledgers(), clock::now());
    let first = enqueue(&one, 90, now);
    let second = enqueue(&two, 30, now);
    assert!(!granted(&first, now) && !granted(&second, now));
    // There are 35 bytes free; the first waiter cannot use them, and the second must not wait for it.
    assert!(!granted(&first, now + S) && granted(&second, now + S));
}

#[test]
fn room_is_lacking_until_what_comes_back_has_its_margin_too() {
    let dir = Dir::new();
    let segments = dir.open();
    let [(away, entry), (here, _)] = ["away", "here"].map(|label| process(&segments, label));
    let (away, here) = (away.ledger(entry), here.ledger(entry));
    here.reserve(900 * MIB).expect("room").commit();
    let now = clock::now();
    let place = away.enqueue_return(500 * MIB, 100 * MIB, now);
    assert!(!granted(&place, now));
    here.release(400 * MIB);
    assert!(!granted(&place, now), "the margin is short");
    assert!(here.is_room_lacking(true, now) && !here.has_room_for_all(now));
    here.release(76 * MIB);
    assert!(!here.is_room_lacking(true, now) && here.has_room_for_all(now));
    assert!(granted(&place, now));
}

#[test]
fn a_limit_that_was_lowered_below_what_is_to_come_back_lets_it_come_once_nothing_else_is_there() {
    let dir = Dir::new();
    let segments = dir.open();
    let [(away, entry), (here, _)] = ["away", "here"].map(|label| process(&segments, label));
    let (away, here) = (away.ledger(entry), here.ledger(entry));
    here.reserve(MIB).expect("room").commit();
    dir.limit(100 * MIB);
    let now = clock::now();
    let place = away.enqueue_return(500 * MIB, 0, now);
    assert!(!granted(&place, now), "the limit counts beside others");
    here.release(MIB);
    assert!(granted(&place, now));
    drop(place);
    assert!(away.reserve(1).is_err(), "and for what is new");
}

#[test]
fn who_waits_for_its_own_quota_waits_for_no_other() {
    let dir = Dir::new();
    let segments = dir.open();
    let (waiter, entry) = process(&segments, "waiter");
    dir.quota(&waiter, QuotaValue::Bytes(10));
    let ledger = waiter.ledger(entry);
    let now = clock::now();
    let place = enqueue(&ledger, 11, now);
    assert!(ledger.is_queued() && !ledger.is_queued_for_others());
    drop(place);
    dir.quota(&waiter, QuotaValue::Inherit);
    dir.limit(10);
    let _place = enqueue(&ledger, 11, now);
    assert!(ledger.is_queued_for_others());
}

#[test]
fn what_comes_back_gets_its_room_whole_and_no_allocation_takes_it_meanwhile() {
    let dir = Dir::new();
    let segments = dir.open();
    let total = 1024 * MIB;
    let [(away, entry), (here, _), (rival, _)] =
        ["away", "here", "rival"].map(|label| process(&segments, label));
    // No limit is set; only the device is full.
    dir.quota(&away, QuotaValue::Bytes(1));
    let (away, here, rival) = (away.ledger(entry), here.ledger(entry), rival.ledger(entry));
    here.reserve(600 * MIB).expect("room").commit();
    here.publish_free(total - 600 * MIB - 24 * MIB);
    assert_eq!(here.outside(), 24 * MIB);
    let bytes = 500 * MIB;
    let now = clock::now();
    let place = away.enqueue_return(bytes, 100 * MIB, now);
    assert!(!granted(&place, now + 60 * S), "and it is never refused");
    here.release(199 * MIB);
    assert!(
        !granted(&place, now + 61 * S),
        "the margin is short by a MiB"
    );
    here.release(MIB);
    let Poll::Granted(back) = place.poll(now + 62 * S) else {
        panic!("there is room")
    };
    assert_eq!(away.used(), bytes);
    assert!(look(&segments).devices[0].memory_line.is_empty());
    // 1024 - 400 - 500 - 24 bytes are left for others, promised or not.
    assert!(rival.reserve(101 * MIB).is_err());
    rival
        .reserve(100 * MIB)
        .expect("beside the promise")
        .commit();
    back.commit();
    place.complete();
    drop(place);
    // From here on the driver accounts for the memory and refuses by itself.
    rival.reserve(101 * MIB).expect("no limit").commit();
}

#[test]
fn a_device_whose_memory_is_leaving_is_not_promised_twice() {
    let dir = Dir::new();
    let segments = dir.open();
    let total = 1024 * MIB;
    let [(away, entry), (here, _)] = ["away", "here"].map(|label| process(&segments, label));
    let (leaves, returns) = (away.ledger(entry), here.ledger(entry));
    leaves.reserve(800 * MIB).expect("room").commit();
    returns.publish_free(200 * MIB);
    assert_eq!(returns.outside(), 24 * MIB);
    away.publish_move(&Moved {
        phase: Phase::Evicting,
        ..Moved::default()
    });
    let leaving = leaves.leaving();
    // The driver has taken the memory, and its account still has it.
    returns.publish_free(1000 * MIB);
    assert_eq!(returns.outside(), 24 * MIB, "not nothing");
    leaves.evict(800 * MIB, 0);
    drop(leaving);
    let now = clock::now();
    let place = returns.enqueue_return(total, 0, now);
    assert!(!granted(&place, now), "24 MiB are outside of the accounts");
    drop(place);
    returns.publish_free(1010 * MIB);
    assert_eq!(returns.outside(), 14 * MIB, "measured again");
}

#[derive(Clone, Debug)]
enum Step {
    Ask(usize, u64),
    Poll(usize),
    Free(usize),
    GiveUp(usize),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..4_usize, 1..80_u64).prop_map(|(who, bytes)| Step::Ask(who, bytes)),
        (0..4_usize).prop_map(Step::Poll),
        (0..4_usize).prop_map(Step::Free),
        (0..4_usize).prop_map(Step::GiveUp),
        (1..300_u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Checks that the total never exceeds the limit, that no waiter is overtaken while it polls, and that in the end every
    /// waiter is served.
    #[test]
    fn any_order_of_asking_freeing_and_leaving_serves_all_within_the_limit(steps in steps()) {
        const WHOLE: u64 = 100;
        let dir = Dir::new();
        dir.limit(WHOLE);
        let segments = dir.open();
        let processes: Vec<_> = (0..4).map(|n| process(&segments, &n.to_string())).collect();
        let ledgers: Vec<_> = processes.iter().map(|(process, entry)| process.ledger(*entry)).collect();
        let mut places: Vec<Option<(QueueTicket<'_>, u64)>> = (0..4).map(|_| None).collect();
        let mut now = clock::now();
        let take = |who: usize, places: &mut Vec<Option<(QueueTicket<'_>, u64)>>, now: u64| {
            let Some((place, _)) = &places[who] else { return };
            match place.poll(now) {
                Poll::Granted(reservation) => {
                    reservation.commit();
                    places[who] = None;
                }
                Poll::Refused(_) => places[who] = None,
                Poll::Wait => {}
            }
        };
        for step in steps {
            match step {
                Step::Ask(who, bytes) if places[who].is_none() => {
                    let behind = ledgers[who].blocked_by(bytes, now);
                    let refused = match behind {
                        Some(denial) => Err(denial),
                        None => ledgers[who].reserve(bytes).map(|reservation| _ = reservation.commit()),
                    };
                    if let Err(denial) = refused {
                        let kind = WantKind::Allocation;
                        places[who] = Some((ledgers[who].enqueue(Want { bytes, kind }, denial, now), bytes));
                    }
                }
                Step::Poll(who) => take(who, &mut places, now),
                Step::Free(who) if places[who].is_none() => ledgers[who].release(ledgers[who].used()),
                Step::GiveUp(who) => places[who] = None,
                Step::Pass(ms) => now += ms * 1_000_000,
                Step::Ask(..) | Step::Free(_) => {}
            }
            let held: u64 = ledgers.iter().map(Ledger::used).sum();
            prop_assert!(held <= WHOLE, "{held} of {WHOLE}");
        }
        // A served process ends and frees its memory.
        for _ in 0..200 {
            now += 100_000_000;
            for who in 0..4 {
                take(who, &mut places, now);
                if places[who].is_none() {
                    ledgers[who].release(ledgers[who].used());
                }
            }
        }
        prop_assert!(places.iter().all(Option::is_none), "someone waits for ever");
        prop_assert_eq!(ledgers.iter().map(Ledger::used).sum::<u64>(), 0);
        prop_assert!(look(&segments).devices[0].memory_line.is_empty());
    }
}
