//! The device lock among living processes.

mod common;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread,
};

use common::*;
use shm_layout::*;

const MS: u64 = 1_000_000;

fn never() -> bool {
    false
}

fn in_order(order: Order) -> LockPolicy {
    LockPolicy {
        kind: PolicyKind::Always,
        order,
        ..LockPolicy::default()
    }
}

fn share(dir: &Dir, process: &Registration, change: impl FnOnce(&mut Wish)) {
    let mut wish = Wish::default();
    change(&mut wish);
    let change = Change::ProcessShare {
        slot: process.slot(),
        share: ShareEdit {
            weight: wish.weight,
            priority: wish.priority,
            cap: wish.cap,
            paused: wish.paused,
            boost: wish.boost,
            ..ShareEdit::default()
        },
    };
    dir.edit(&change);
}

#[derive(Default)]
struct Wish {
    weight: Set<u32>,
    priority: Set<i32>,
    cap: Set<u32>,
    paused: Set<bool>,
    boost: Set<Boost>,
}

fn waiting(segments: &Segments, count: usize) {
    eventually("all of them wait", PATIENCE, || {
        look(segments).devices[0].waiters.len() == count
    });
}

#[test]
fn a_free_lock_is_taken_and_released() {
    let dir = Dir::new();
    let segments = dir.open();
    let (process, entry) = process(&segments, "");
    let lock = process.lock(entry);
    assert!(lock.try_acquire(clock::now()));
    assert!(lock.held() && !lock.contended());
    let view = look(&segments);
    assert_eq!(view.devices[0].owner, Some(process.slot()));
    assert_eq!(view.processes[0].devices[0].lock.state, LockState::Hold);
    assert_eq!(lock.release(Reason::Idle, clock::now()), None);
    assert!(!lock.held());
    let view = look(&segments).processes[0].devices[0].lock.clone();
    assert_eq!((view.state, view.acquisitions), (LockState::Idle, 1));
    assert_eq!(view.releases[Reason::Idle as usize], 1);
    assert_eq!(view.holds.count(), 1);
}

#[test]
fn a_release_hands_the_lock_to_the_waiter_and_nobody_barges_in() {
    let dir = Dir::new();
    let segments = dir.open();
    let (first, entry) = process(&segments, "first");
    let (second, _) = process(&segments, "second");
    assert!(first.lock(entry).try_acquire(clock::now()));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| second.lock(entry).acquire(&never));
        waiting(&segments, 1);
        assert!(first.lock(entry).contended());
        assert_eq!(
            first.lock(entry).release(Reason::Slice, clock::now()),
            Some(second.slot())
        );
        assert!(
            !first.lock(entry).try_acquire(clock::now()),
            "the turn is the waiter's"
        );
        assert!(
            matches!(waiter.join().expect("no panic"), Acquire::Held { waited_ns } if waited_ns > 0)
        );
        assert!(second.lock(entry).held());
    });
    let view = look(&segments);
    let lock = &view.processes[1].devices[0].lock;
    assert_eq!(lock.waits.count(), 1);
    let holders: Vec<_> = lock.waited_for.iter().map(|(holder, _)| *holder).collect();
    assert_eq!(holders, [first.slot()]);
    assert_eq!((view.devices[0].handoffs, view.violations), (1, 0));
    assert_eq!(view.devices[0].handoff_times.count(), 1);
}

#[test]
fn a_lock_that_lay_free_while_its_waiter_was_paused_was_not_handed_off() {
    let dir = Dir::new();
    let segments = dir.open();
    let (process, entry) = process(&segments, "");
    share(&dir, &process, |wish| wish.paused = Set::To(true));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| process.lock(entry).acquire(&never));
        waiting(&segments, 1);
        share(&dir, &process, |wish| wish.paused = Set::To(false));
        waiter.join().expect("no panic");
    });
    let device = &look(&segments).devices[0];
    assert_eq!(device.handoff_times.count(), 0);
    assert_eq!(device.last_handoff_ns, 0);
}

#[test]
fn a_waiter_may_give_up() {
    let dir = Dir::new();
    let segments = dir.open();
    let (first, entry) = process(&segments, "first");
    let (second, _) = process(&segments, "second");
    assert!(first.lock(entry).try_acquire(clock::now()));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| second.lock(entry).acquire(&|| stop.load(Ordering::Relaxed)));
        waiting(&segments, 1);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(waiter.join().expect("no panic"), Acquire::GaveUp);
    });
    assert!(!first.lock(entry).contended());
    assert_eq!(first.lock(entry).release(Reason::Idle, clock::now()), None);
}

/// Starts waiters one after the other, releases the lock, and returns the order in which they got it.
fn order_of(order: Order, prepare: impl Fn(&Dir, &[(Registration, Entry)])) -> Vec<usize> {
    let dir = Dir::new();
    let segments = dir.open();
    dir.policy(in_order(order));
    let (holder, entry) = process(&segments, "holder");
    let others: Vec<_> = (0..3)
        .map(|index| process(&segments, &format!("waiter {index}")))
        .collect();
    prepare(&dir, &others);
    assert!(holder.lock(entry).try_acquire(clock::now()));
    let got = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (index, (process, entry)) in others.iter().enumerate() {
            let got = &got;
            scope.spawn(move || {
                acquire(process, *entry);
                got.lock().expect("no panic").push(index);
                process.lock(*entry).release(Reason::Count, clock::now());
            });
            waiting(&segments, index + 1);
        }
        holder.lock(entry).release(Reason::Count, clock::now());
    });
    assert_eq!(look(&segments).violations, 0);
    got.into_inner().expect("no panic")
}

#[test]
fn fifo_serves_who_came_first() {
    assert_eq!(order_of(Order::Fifo, |_, _| ()), [0, 1, 2]);
}

#[test]
fn priority_serves_the_most_urgent() {
    let order = order_of(Order::Priority, |dir, others| {
        for (process, priority) in others.iter().zip([-20, 0, 19]) {
            share(dir, &process.0, |wish| wish.priority = Set::To(priority));
        }
    });
    assert_eq!(order, [2, 1, 0]);
}

#[test]
fn a_boost_counts_while_it_lasts() {
    let order = order_of(Order::Priority, |dir, others| {
        let until_ns = clock::now() + 3600 * 1000 * MS;
        share(dir, &others[1].0, |wish| {
            wish.boost = Set::To(Boost {
                priority: 19,
                until_ns,
            })
        });
        assert_eq!(others[1].0.share().boost_until_ns, Some(until_ns));
    });
    assert_eq!(order[0], 1);
}

#[test]
fn fair_serves_who_held_least() {
    let order = order_of(Order::Fair, |_, others| {
        for ((process, entry), ms) in others.iter().zip([30, 1, 15]) {
            let lock = process.lock(*entry);
            let begun = clock::now() - 1000 * MS;
            assert!(lock.try_acquire(begun));
            lock.release(Reason::Idle, begun + ms * MS);
        }
    });
    // Each took the lock when it was free, so each began with the account of the previous one and then spent its own time.
    assert_eq!(order, [0, 1, 2]);
}

#[test]
fn a_paused_process_is_passed_over_until_it_is_resumed() {
    let dir = Dir::new();
    let segments = dir.open();
    let (holder, entry) = process(&segments, "holder");
    let (paused, _) = process(&segments, "paused");
    share(&dir, &paused, |wish| wish.paused = Set::To(true));
    assert!(!paused.lock(entry).try_acquire(clock::now()));
    assert!(holder.lock(entry).try_acquire(clock::now()));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| paused.lock(entry).acquire(&never));
        waiting(&segments, 1);
        assert!(!holder.lock(entry).contended());
        assert_eq!(holder.lock(entry).release(Reason::Idle, clock::now()), None);
        assert!(!paused.lock(entry).held());
        assert_eq!(
            look(&segments).processes[1].devices[0].lock.state,
            LockState::Paused
        );
        share(&dir, &paused, |wish| wish.paused = Set::To(false));
        assert!(matches!(
            waiter.join().expect("no panic"),
            Acquire::Held { .. }
        ));
    });
}

#[test]
fn a_capped_process_must_pause_even_alone() {
    let dir = Dir::new();
    let segments = dir.open();
    let (process, entry) = process(&segments, "");
    share(&dir, &process, |wish| wish.cap = Set::To(10));
    let lock = process.lock(entry);
    let begun = clock::now();
    assert!(lock.try_acquire(begun));
    assert!(
        lock.cap_left(lock.held_since())
            .is_some_and(|left| left > 0)
    );
    assert_eq!(lock.cap_left(begun + 1000 * MS), Some(0));
    // A hold of 50 ms costs half a second at 10 per cent.
    lock.release(Reason::Paused, lock.held_since() + 50 * MS);
    assert!(!lock.try_acquire(clock::now()), "its time is spent");
    assert!(lock.try_acquire(clock::now() + 10_000 * MS), "time heals");
    lock.release(Reason::Idle, clock::now());
    share(&dir, &process, |wish| wish.cap = Set::Inherit);
    assert!(lock.try_acquire(clock::now()), "the cap is off");
    assert_eq!(lock.cap_left(clock::now()), None);
}

#[test]
fn contended_acquisitions_change_the_owner_every_time() {
    let dir = Dir::new();
    let segments = dir.open();
    dir.policy(in_order(Order::Fifo));
    let all: Vec<_> = (0..4).map(|_| process(&segments, "")).collect();
    let inside = AtomicU32::new(0);
    let last = AtomicU64::new(0);
    let repeats = AtomicU64::new(0);
    thread::scope(|scope| {
        for (process, entry) in &all {
            let (inside, last, repeats) = (&inside, &last, &repeats);
            scope.spawn(move || {
                for _ in 0..500 {
                    let lock = process.lock(*entry);
                    assert!(matches!(lock.acquire(&never), Acquire::Held { .. }));
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    let me = process.slot().to_word();
                    let contended = lock.contended();
                    if last.swap(me, Ordering::SeqCst) == me && contended {
                        repeats.fetch_add(1, Ordering::Relaxed);
                    }
                    inside.fetch_sub(1, Ordering::SeqCst);
                    let next = lock.release(Reason::Count, clock::now());
                    assert!(
                        next.is_some() || !contended,
                        "it was handed to one of those who waited"
                    );
                }
            });
        }
    });
    let view = look(&segments);
    assert_eq!(view.violations, 0);
    assert_eq!(view.devices[0].owner, None);
    let acquisitions: u64 = view
        .processes
        .iter()
        .map(|one| one.devices[0].lock.acquisitions)
        .sum();
    assert_eq!(acquisitions, 2000);
}

#[test]
fn a_holder_that_overstays_is_forced_out_and_finds_out() {
    let dir = Dir::new();
    let segments = dir.open();
    let kind = PolicyKind::Timeslice(MS);
    let policy = LockPolicy {
        kind,
        max_hold_ns: 20 * MS,
        grace_ns: 10 * MS,
        ..LockPolicy::default()
    };
    dir.edit(&Change::Policy {
        device: Some(GPU),
        policy: Some(policy),
        until: None,
    });
    let (holder, entry) = process(&segments, "holder");
    let (waiter, _) = process(&segments, "waiter");
    let _keeper = holder.attach_keeper().expect("a robust list");
    assert!(holder.lock(entry).try_acquire(clock::now()));
    acquire(&waiter, entry);
    assert!(!holder.lock(entry).held());
    assert_eq!(
        holder.lock(entry).release(Reason::Slice, clock::now()),
        None
    );
    assert!(
        waiter.lock(entry).held(),
        "a late release takes nothing away"
    );
    let view = look(&segments);
    assert_eq!(
        (
            view.devices[0].forced,
            view.processes[0].devices[0].lock.forced
        ),
        (1, 1)
    );
    assert_eq!(view.violations, 0);
}

#[test]
fn everybody_gets_in_with_many_waiters() {
    let dir = Dir::new();
    let segments = Arc::new(dir.open());
    let all: Vec<_> = (0..40).map(|_| process(&segments, "")).collect();
    thread::scope(|scope| {
        for (process, entry) in &all {
            scope.spawn(move || {
                for _ in 0..20 {
                    acquire(process, *entry);
                    process.lock(*entry).release(Reason::Count, clock::now());
                }
            });
        }
    });
    assert_eq!(look(&segments).violations, 0);
}
