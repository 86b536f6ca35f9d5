//! Requests for memory on an overcommitted device: which processes are asked, how long their answer is waited for, who lacks room,
//! and who is first.

mod common;

use common::*;
use shm_layout::{
    memory::queue::{QueueTicket, Room},
    *,
};

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;

fn overcommit(dir: &Dir) {
    dir.edit(&Change::DeviceMemory {
        device: None,
        settings: DeviceEdit {
            overcommit: Set::To(true),
            ..DeviceEdit::default()
        },
    });
}

fn moves(process: &Registration, phase: Phase) {
    process.publish_move(&Moved {
        phase,
        ..Moved::default()
    });
}

/// An overcommitted device of 1024 MiB on which the first process holds 600 MiB and the second 300 MiB. Returns the directory,
/// the processes, and a time at which all are idle.
fn held() -> (Dir, [(Registration, Entry); 3], u64) {
    let dir = Dir::new();
    overcommit(&dir);
    let segments = dir.open();
    let all = ["first", "second", "asks"].map(|name| process(&segments, name));
    let hold = |at: usize, mib: u64| {
        let (process, entry) = &all[at];
        let ledger = process.ledger(*entry);
        ledger.reserve(mib * MIB).expect("room").commit();
    };
    hold(0, 600);
    hold(1, 300);
    (dir, all, clock::now() + S)
}

/// Enqueues an allocation that the device has no room for.
fn allocates<'r>(ledger: &Ledger<'r>, bytes: u64, now: u64) -> QueueTicket<'r> {
    let denial = Denial {
        limit: Limit::Device,
        used: ledger.used(),
        quota: 1024 * MIB,
        asked: bytes,
    };
    let kind = WantKind::Allocation;
    ledger.enqueue(Want { bytes, kind }, denial, now)
}

/// The accounts have room for an allocation, and the driver has none. The others wait meanwhile.
fn is_refused_after_two_seconds(one: &QueueTicket<'_>, others: &[QueueTicket<'_>], now: u64) {
    for later in [0, S, 2 * S - MS] {
        one.refused_by_device(now + later);
        assert!(matches!(one.poll(now + later), Poll::Wait), "{later}");
        for other in others {
            assert!(matches!(other.poll(now + later), Poll::Wait), "{later}");
        }
    }
    assert!(matches!(one.poll(now + 2 * S), Poll::Refused(_)));
}

#[test]
fn the_idle_process_is_asked_that_has_enough_and_no_other() {
    let (_dir, [(first, entry), (second, _), (asks, _)], now) = held();
    let ledger = asks.ledger(entry);
    let place = ledger.enqueue_return(500 * MIB, 0, now);
    assert_eq!(place.make_room(now), Room::Coming);
    assert!(first.take_request() && !second.take_request());
    assert_eq!(place.make_room(now + 10 * MS), Room::Coming);
    assert!(!first.take_request(), "it was asked a moment ago");
}

/// The device itself has room.
#[test]
fn at_the_limit_of_the_device_a_process_is_asked_at_the_first_look() {
    let (dir, [(first, entry), (second, _), (asks, _)], now) = held();
    dir.limit(950 * MIB);
    let ledger = asks.ledger(entry);
    let place = ledger.enqueue_return(100 * MIB, 0, now);
    assert_eq!(place.make_room(now), Room::Coming);
    assert!(second.take_request() && !first.take_request());
}

#[test]
fn for_nothing_no_process_is_asked() {
    let (_dir, [(first, entry), (second, _), (asks, _)], now) = held();
    let ledger = asks.ledger(entry);
    let has_room = ledger.enqueue_return(100 * MIB, 0, now);
    assert_eq!(has_room.make_room(now), Room::Coming);
    drop(has_room);
    first.publish_reason(Some(Why::Managed), 0);
    let place = ledger.enqueue_return(500 * MIB, 0, now);
    assert_eq!(place.make_room(now), Room::Nobody);
    assert!(!first.take_request() && !second.take_request());
}

#[test]
fn a_process_at_work_is_asked_again_and_an_allocation_waits_three_seconds_for_it() {
    let (_dir, [(first, entry), (second, _), (asks, _)], now) = held();
    second.publish_reason(Some(Why::Managed), 0);
    let ledger = asks.ledger(entry);
    let place = ledger.enqueue_return(500 * MIB, 0, now);
    for ms in (0..3000).step_by(100) {
        let at = now + ms * MS;
        first.publish_last_use(at);
        first.publish_reason(Some(Why::Wanted), 0);
        assert_eq!(place.make_room(at), Room::Coming, "after {ms} ms");
        assert_eq!(first.take_request(), ms % 300 == 0, "after {ms} ms");
    }
    assert_eq!(place.make_room(now + 3 * S), Room::Nobody);
}

#[test]
fn a_process_that_does_not_answer_is_waited_for_three_seconds() {
    let (_dir, [(first, entry), _, (asks, _)], now) = held();
    let ledger = asks.ledger(entry);
    let place = ledger.enqueue_return(500 * MIB, 0, now);
    assert_eq!(place.make_room(now), Room::Coming);
    assert_eq!(place.make_room(now + 2 * S), Room::Coming);
    assert_eq!(place.make_room(now + 4 * S), Room::Nobody);
    assert!(first.take_request());
    // Its keeper may have been slow.
    assert_eq!(place.make_room(now + 7 * S), Room::Coming);
    assert!(first.take_request());
}

#[test]
fn one_that_pretends_to_evict_is_not_waited_for_for_ever() {
    let (_dir, [(first, entry), (second, _), (asks, _)], now) = held();
    moves(&first, Phase::Evicting);
    let ledger = asks.ledger(entry);
    let place = ledger.enqueue_return(200 * MIB, 0, now);
    assert_eq!(place.make_room(now), Room::Coming);
    assert!(!second.take_request());
    assert_eq!(place.make_room(now + 61 * S), Room::Coming);
    assert!(second.take_request(), "the other one is asked");
}

#[test]
fn memory_is_lacking_while_a_process_waits_that_may_have_it_and_no_other_makes_room() {
    let (_dir, [(first, entry), (second, _), (asks, _)], now) = held();
    let lacks = |process: &Registration, ignores: bool| {
        let ledger = process.ledger(entry);
        ledger.is_room_lacking(ignores, now)
    };
    assert!(!lacks(&first, false), "no process waits");
    let ledger = asks.ledger(entry);
    let place = ledger.enqueue_return(500 * MIB, 0, now);
    assert!(lacks(&first, false) && lacks(&second, false));
    moves(&first, Phase::Evicting);
    assert!(!lacks(&second, false), "the other one makes enough");
    assert!(lacks(&second, true));
    drop(place);
    assert!(!lacks(&second, true));
}

#[test]
fn on_a_large_device_no_second_process_leaves_if_what_one_leaves_is_enough() {
    const GIB: u64 = 1024 * MIB;
    let dir = Dir::new();
    overcommit(&dir);
    let segments = dir.open();
    let [first, second, third, asks] = ["first", "second", "third", "asks"].map(|name| {
        let process = register(
            &segments,
            &Identity::of_self(name),
            &LaunchLimits::default(),
        );
        let process = process.expect("a slot");
        let entry = process.add_device([1; 16], 0, "", 160 * GIB, 0);
        (process, entry.expect("an entry"))
    });
    for (process, entry) in [&first, &second, &third] {
        let reservation = process.ledger(*entry).reserve(52 * GIB);
        reservation.expect("room").commit();
    }
    let (ledger, now) = (asks.0.ledger(asks.1), clock::now() + S);
    let _place = ledger.enqueue_return(52 * GIB, 0, now);
    let lacks = |(process, entry): &(Registration, Entry)| {
        process.ledger(*entry).is_room_lacking(false, now)
    };
    assert!(lacks(&first) && lacks(&second));
    moves(&first.0, Phase::Evicting);
    assert!(!lacks(&second), "4 GiB stay free beside it");
}

#[test]
fn of_two_processes_that_wait_the_one_behind_makes_room() {
    let (_dir, [(first, entry), (second, _), _], now) = held();
    let (one, two) = (first.ledger(entry), second.ledger(entry));
    let ahead = one.enqueue_return(400 * MIB, 0, now);
    let _behind = two.enqueue_return(200 * MIB, 0, now);
    let later = now + S;
    assert!(matches!(ahead.poll(later), Poll::Wait));
    assert!(!one.is_room_lacking(false, later), "it is first");
    assert!(two.is_room_lacking(false, later));
    assert_eq!(ahead.make_room(later), Room::Coming);
    assert!(second.take_request() && !first.take_request());
}

#[test]
fn parts_are_taken_while_as_much_as_is_missing_leaves_and_are_given_back_otherwise() {
    let (_dir, [(first, entry), (second, _), (asks, _)], now) = held();
    let (ledger, leaves) = (asks.ledger(entry), first.ledger(entry));
    let place = ledger.enqueue_return(500 * MIB, 0, now);
    assert!(!place.is_room_leaving(now), "nothing leaves");
    moves(&first, Phase::Evicting);
    assert!(place.is_room_leaving(now));
    moves(&asks, Phase::Restoring);
    let one = place.take_part(100 * MIB, now).expect("124 MiB are free");
    assert!(place.take_part(100 * MIB, now).is_none());
    assert_eq!(leaves.evict(200 * MIB, 0), 200 * MIB);
    let two = place.take_part(200 * MIB, now).expect("they have left");
    assert_eq!(
        (one.bytes() + two.bytes(), ledger.used()),
        (300 * MIB, 300 * MIB)
    );
    assert!(place.is_room_leaving(now));
    // The driver has no room for the second part yet.
    place.put_back(two, 200 * MIB);
    assert_eq!(ledger.used(), 100 * MIB);
    assert!(place.is_room_leaving(now));
    let two = place.take_part(200 * MIB, now).expect("it was given back");
    // Only what is still to come is wanted, by this process and before others.
    let behind = second.ledger(entry);
    let behind = behind.enqueue_return(MIB, 0, now + 1);
    assert!(
        behind.take_part(MIB, now + 1).is_none(),
        "it is not its turn"
    );
    assert!(!behind.is_room_leaving(now + 1));
    drop(behind);
    // The rest does not leave.
    moves(&first, Phase::Resident);
    assert!(!place.is_room_leaving(now));
    drop((one, two));
    place.give_back();
    assert_eq!(ledger.used(), 0);
    assert!(
        matches!(place.poll(now), Poll::Wait),
        "500 MiB are wanted, and 324 free"
    );
    leaves.evict(200 * MIB, 0);
    assert!(matches!(place.poll(now), Poll::Granted(whole) if whole.bytes() == 500 * MIB));
}

#[test]
fn memory_that_returns_leaves_less_room_for_contexts_than_a_program_that_allocates() {
    let (_dir, [(first, entry), (second, _), (asks, _)], now) = held();
    let (leaves, ledger) = (first.ledger(entry), asks.ledger(entry));
    // No process is still starting.
    let now = now + 20 * S;
    let has_room = |free: u64| {
        let filled = 124 * MIB - free;
        second.ledger(entry).charge_unchecked(filled);
        let has_room = leaves.has_room_for_all(now);
        assert_eq!(leaves.is_room_lacking(true, now), !has_room);
        second.ledger(entry).release(filled);
        has_room
    };
    let place = ledger.enqueue_return(20 * MIB, 0, now);
    assert!(!has_room(27 * MIB) && has_room(28 * MIB), "8 MiB are left");
    drop(place);
    let _place = allocates(&ledger, 20 * MIB, now);
    assert!(!has_room(51 * MIB) && has_room(52 * MIB), "32 MiB are left");
}

#[test]
fn no_parts_are_taken_if_what_leaves_is_not_enough() {
    let (_dir, [(first, entry), (second, _), (asks, _)], now) = held();
    moves(&second, Phase::Evicting);
    let ledger = asks.ledger(entry);
    let place = ledger.enqueue_return(500 * MIB, 0, now);
    assert!(!place.is_room_leaving(now), "124 MiB are free, 300 leave");
    moves(&first, Phase::Evicting);
    assert!(place.is_room_leaving(now));
    assert!(!place.is_room_leaving(now + 61 * S), "they only pretend to");
}

/// Processes that come first have the others evicted; a refusal is the last resort.
#[test]
fn processes_that_wait_for_each_other_are_refused_late_where_others_can_be_evicted() {
    let (dir, [(first, entry), (second, _), _], now) = held();
    dir.limit(1024 * MIB);
    let [first, second] = [&first, &second].map(|process| process.ledger(entry));
    let (bytes, kind) = (500 * MIB, WantKind::Allocation);
    let denial = first.reserve(bytes).err().expect("it is full");
    let one = first.enqueue(Want { bytes, kind }, denial, now);
    let two = second.enqueue(Want { bytes, kind }, denial, now);
    for later in (0..60).map(|half| half * S / 2) {
        assert!(matches!(one.poll(now + later), Poll::Wait), "{later}");
        assert!(matches!(two.poll(now + later), Poll::Wait), "{later}");
    }
    assert!(matches!(two.poll(now + 30 * S), Poll::Refused(_)));
}

/// Nobody else has it: contexts take the rest of the device. The others go on once this one is refused.
#[test]
fn what_no_eviction_could_give_is_refused_like_on_any_device() {
    let (_dir, [(first, entry), (second, _), (third, _)], now) = held();
    let [first, second, third] = [&first, &second, &third].map(|process| process.ledger(entry));
    second.evict(300 * MIB, 0);
    first.publish_free(100 * MIB);
    let one = allocates(&first, 200 * MIB, now);
    let others = [second, third].map(|other| other.enqueue_return(300 * MIB, 0, now));
    is_refused_after_two_seconds(&one, &others, now);
}

/// Copies leave contexts and small allocations on the device. What a process that has left has there still, no eviction moves.
#[test]
fn for_what_an_evicted_process_has_on_the_device_nobody_waits_for_long() {
    let (_dir, [(first, entry), (second, _), (_third, _)], now) = held();
    let (ledger, evicted) = (first.ledger(entry), second.ledger(entry));
    evicted.evict(280 * MIB, 0);
    moves(&second, Phase::Returning);
    ledger.publish_free(100 * MIB);
    let one = allocates(&ledger, 110 * MIB, now);
    let other = evicted.enqueue_return(280 * MIB, 0, now);
    is_refused_after_two_seconds(&one, &[other], now);
}

#[test]
fn what_the_own_quota_lacks_is_refused_like_on_any_device() {
    let (dir, [(first, entry), _second, _third], now) = held();
    dir.quota(&first, QuotaValue::Bytes(700 * MIB));
    let ledger = first.ledger(entry);
    let (bytes, kind) = (200 * MIB, WantKind::Allocation);
    let denial = ledger.reserve(bytes).err().expect("over the quota");
    let place = ledger.enqueue(Want { bytes, kind }, denial, now);
    for later in [0, S] {
        place.own_threads_wait(true);
        assert!(matches!(place.poll(now + later), Poll::Wait), "{later}");
    }
    assert!(matches!(place.poll(now + 2 * S), Poll::Refused(_)));
}

/// Returns true if a process that has waited for 10 MiB gets them before one that has waited for 500 MiB for a second.
fn small_is_first(overcommits: bool, waited_ns: u64) -> bool {
    let dir = Dir::new();
    if overcommits {
        overcommit(&dir);
    }
    let segments = dir.open();
    let all = ["holder", "small", "large"].map(|name| process(&segments, name));
    let [holder, small, large] = all
        .each_ref()
        .map(|(process, entry)| process.ledger(*entry));
    holder.reserve(1024 * MIB).expect("room").commit();
    let now = clock::now();
    let small = small.enqueue_return(10 * MIB, 0, now);
    let large = large.enqueue_return(500 * MIB, 0, now + waited_ns - S);
    let at = now + waited_ns;
    let is_granted = |place: &QueueTicket<'_>| match place.poll(at) {
        Poll::Granted(reservation) => {
            reservation.commit();
            true
        }
        _ => false,
    };
    assert!(!is_granted(&small) && !is_granted(&large), "it is full");
    holder.release(505 * MIB);
    let small_first = is_granted(&small);
    assert_eq!(is_granted(&large), !small_first, "there is room for one");
    small_first
}

#[test]
fn the_process_is_first_that_has_lacked_most_and_none_starves() {
    assert!(small_is_first(false, 3 * S / 2), "first come, first served");
    assert!(!small_is_first(true, 3 * S / 2));
    assert!(
        small_is_first(true, 4 * S),
        "little memory does not wait for ever"
    );
}
