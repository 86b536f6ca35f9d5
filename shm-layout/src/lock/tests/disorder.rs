//! Any order of events on the real words, beside a model that knows only the rules.
//!
//! The events are the steps of [`DeviceLock::acquire`] one by one, so that they mix as the threads of several processes
//! would mix them: a try, joining the queue, one look of a waiter, giving up; releases, forced releases and edits.

use proptest::prelude::*;

use super::super::{DeviceLock, choose, order::AGE_NS, wait::Fault, who};
use crate::{
    Change, Entry, Identity, LaunchLimits, LockPolicy, Operator, Order, PolicyKind, Reason,
    Registration, Set, Share, ShareEdit,
    os::clock,
    protocol::{
        primitive::Ordering::Relaxed,
        turn::{BITMAP, Passed},
    },
    register, snapshot,
};

#[derive(Clone, Copy, Debug)]
enum Event {
    Try(usize),
    Queue(usize),
    Look(usize),
    GiveUp(usize),
    Release(usize),
    /// A waiter puts the owner out.
    Force(usize),
    Pause(usize, bool),
    Share(usize, u32, i32),
    Order(Order),
}

fn event(processes: usize) -> impl Strategy<Value = Event> {
    let one = 0..processes;
    prop_oneof![
        3 => one.clone().prop_map(Event::Try),
        4 => one.clone().prop_map(Event::Queue),
        6 => one.clone().prop_map(Event::Look),
        2 => one.clone().prop_map(Event::GiveUp),
        4 => one.clone().prop_map(Event::Release),
        1 => one.clone().prop_map(Event::Force),
        1 => (one.clone(), any::<bool>()).prop_map(|(who, paused)| Event::Pause(who, paused)),
        1 => (one, 1u32..1000, -20i32..20).prop_map(|(who, weight, priority)| Event::Share(who, weight, priority)),
        1 => (0..Order::ALL.len()).prop_map(|order| Event::Order(Order::ALL[order])),
    ]
}

/// The state of one process by the rules.
#[derive(Clone, Default)]
struct Model {
    /// Time since it is queued; also while the lock is its own and not taken up yet.
    queued: Option<u64>,
    /// Holds since.
    holds: Option<u64>,
    paused: bool,
    priority: i32,
    acquisitions: u64,
    releases: u64,
    forced: u64,
    waits: u32,
    held_ns: u64,
    waited_ns: u64,
}

struct World {
    _dir: tempfile::TempDir,
    operator: Operator,
    processes: Vec<(Registration, Entry)>,
    model: Vec<Model>,
    order: Order,
    owner: Option<usize>,
    now: u64,
}

impl World {
    fn new(count: usize) -> World {
        let dir = tempfile::tempdir().expect("a directory");
        let operator = Operator::open(dir.path()).expect("operator");
        let enter = |_| {
            let (id, limits) = (Identity::default(), LaunchLimits::default());
            let process = register(operator.segments(), &id, &limits).expect("a slot");
            let entry = process.add_device([1; 16], 0, "", 1, 0).expect("an entry");
            (process, entry)
        };
        let processes = (0..count).map(enter).collect();
        let mut world = World {
            _dir: dir,
            operator,
            processes,
            model: vec![Model::default(); count],
            order: Order::Fifo,
            owner: None,
            now: clock::now(),
        };
        world.set_order(Order::Fifo);
        world
    }

    fn lock(&self, who: usize) -> DeviceLock<'_> {
        self.processes[who].0.lock(self.processes[who].1)
    }

    fn edit(&self, change: &Change) {
        self.operator.edit(None, change, self.now).expect("edited");
    }

    fn set_order(&mut self, order: Order) {
        self.order = order;
        let policy = Some(LockPolicy {
            kind: PolicyKind::Always,
            order,
            ..LockPolicy::default()
        });
        let device = None;
        self.edit(&Change::Policy {
            device,
            policy,
            until: None,
        });
    }

    fn share(&self, who: usize, weight: Set<u32>, priority: Set<i32>, paused: Set<bool>) {
        self.edit(&Change::ProcessShare {
            slot: self.processes[who].0.slot(),
            share: ShareEdit {
                weight,
                priority,
                paused,
                ..ShareEdit::default()
            },
        });
    }

    /// Returns the next process by the rules, if `but` may not be next.
    fn next(&self, but: Option<usize>) -> Option<usize> {
        (0..self.model.len())
            .filter(|who| Some(*who) != but && !self.model[*who].paused)
            .filter_map(|who| Some((self.rank(who, self.model[who].queued?), who)))
            .min()
            .map(|(_, who)| who)
    }

    fn rank(&self, who: usize, since: u64) -> (i128, u64) {
        let rank = match self.order {
            Order::Fifo => i128::from(since),
            Order::Priority => {
                let steps = i128::from(self.model[who].priority) * i128::from(AGE_NS);
                -(steps + i128::from(self.now - since))
            }
            // These go by the time held, which is in an account that the model compares with its own.
            held => choose::rank(
                held,
                self.lock(who).words,
                &Share::default(),
                since,
                self.now,
            ),
        };
        (rank, since)
    }

    fn take_up(&mut self, who: usize) {
        let one = &mut self.model[who];
        one.acquisitions += 1;
        one.holds = Some(self.now);
    }

    fn end_wait(&mut self, who: usize) {
        let one = &mut self.model[who];
        if let Some(since) = one.queued.take() {
            one.waits += 1;
            one.waited_ns += self.now - since;
        }
    }

    /// Applies one event to the words and to the model.
    fn happen(&mut self, event: Event) {
        self.now += 1000;
        let now = self.now;
        for (who, one) in self.model.iter().enumerate() {
            if one.queued.is_some() {
                self.lock(who).words.pulse_ns.store(now, Relaxed);
            }
        }
        let idle = |one: &Model| one.queued.is_none() && one.holds.is_none();
        match event {
            Event::Try(who) if idle(&self.model[who]) => {
                let free = self.owner.is_none() && self.next(None).is_none();
                let wanted = free && !self.model[who].paused;
                assert_eq!(self.lock(who).try_acquire(now), wanted);
                if wanted {
                    self.owner = Some(who);
                    self.take_up(who);
                }
            }
            Event::Queue(who) if idle(&self.model[who]) => {
                self.lock(who).enqueue(now);
                self.model[who].queued = Some(now);
            }
            Event::Look(who) if self.model[who].queued.is_some() => self.look(who),
            Event::GiveUp(who) if self.model[who].queued.is_some() => self.give_up(who),
            Event::Release(who) if self.model[who].holds.is_some() => self.release(who),
            Event::Force(who) if self.model[who].queued.is_some() => self.force(who),
            Event::Pause(who, paused) => {
                self.share(who, Set::Keep, Set::Keep, Set::To(paused));
                self.model[who].paused = paused;
            }
            Event::Share(who, weight, priority) => {
                self.share(who, Set::To(weight), Set::To(priority), Set::Keep);
                self.model[who].priority = priority;
            }
            Event::Order(order) => self.set_order(order),
            _ => {}
        }
        self.check();
    }

    /// Polls as a waiter does when it wakes.
    fn look(&mut self, who: usize) {
        let now = self.now;
        let lock = self.lock(who);
        let turn = lock.device.turn();
        let owner = turn.owner();
        if self.owner == Some(who) {
            let waited = now - self.model[who].queued.unwrap_or(now);
            assert!(lock.begin(owner, now, Some(waited)));
            turn.leave(who);
            self.end_wait(who);
            self.take_up(who);
        } else if self.owner.is_none() {
            let next = self.next(None);
            let passed = lock.pass(owner, now);
            assert_eq!(
                passed,
                next.map_or(Passed::Free, |who| Passed::To(self.lock(who).me))
            );
            self.owner = next;
        }
    }

    fn give_up(&mut self, who: usize) {
        let since = self.model[who].queued.unwrap_or(self.now);
        let lock = self.lock(who);
        lock.cancel(who, self.now);
        lock.words.count_wait(self.now - since);
        self.end_wait(who);
        if self.owner == Some(who) {
            // Too late to refuse: taken up, and passed on at once.
            self.model[who].acquisitions += 1;
            self.model[who].releases += 1;
            self.owner = self.next(Some(who));
        }
    }

    fn release(&mut self, who: usize) {
        let since = self.model[who].holds.take().unwrap_or(self.now);
        let next = self.lock(who).release(Reason::Count, self.now);
        if self.owner != Some(who) {
            assert_eq!(next, None, "a late release takes nothing away");
            return;
        }
        // The next process is chosen before this hold is counted, and the releaser does not wait.
        self.owner = self.next(None);
        assert_eq!(next, self.owner.map(|who| self.processes[who].0.slot()));
        self.model[who].releases += 1;
        self.model[who].held_ns += self.now - since;
    }

    fn force(&mut self, waiter: usize) {
        let Some(victim) = self.owner else { return };
        let next = self.next(Some(victim));
        if next.is_none() || waiter == victim {
            return;
        }
        let lock = self.lock(waiter);
        let since = lock.device.owner_since.load(Relaxed);
        assert!(lock.force_release(lock.device.turn().owner(), Fault::Overdue, since, self.now));
        self.owner = next;
        let one = &mut self.model[victim];
        one.forced += 1;
        one.releases += 1;
        one.held_ns += self.now - since;
    }

    /// Checks that the words agree with the model.
    fn check(&self) {
        let device = self.lock(0).device;
        assert_eq!(device.violations.load(Relaxed), 0, "two holders");
        let owner = self.owner.map_or(0, |who| self.lock(who).me);
        assert_eq!(who(device.turn().owner()), owner, "the owner word");
        let mut bits = [0; BITMAP];
        for (who, one) in self.model.iter().enumerate() {
            bits[0] |= u64::from(one.queued.is_some()) << who;
            let holds = one.holds.is_some() && self.owner == Some(who);
            assert_eq!(self.lock(who).held(), holds, "process {who}");
            if holds && self.order == Order::Fifo {
                let waited_for = self.next(None).is_some();
                assert_eq!(self.lock(who).contended_at(self.now), waited_for);
            }
        }
        assert_eq!(device.turn().waiting(), bits, "the queue");
    }

    /// Every process is resumed, served, and ends; then all is counted.
    fn finish(mut self) {
        for who in 0..self.model.len() {
            self.happen(Event::Pause(who, false));
        }
        for _ in 0..2 * self.model.len() {
            for who in 0..self.model.len() {
                self.happen(Event::Release(who));
                self.happen(Event::Look(who));
            }
        }
        let view = snapshot(self.operator.segments(), self.now);
        assert_eq!((view.devices[0].owner, view.violations), (None, 0));
        assert!(view.devices[0].waiters.is_empty(), "a waiter was forgotten");
        for (one, process) in self.model.iter().zip(&view.processes) {
            let lock = &process.devices[0].lock;
            assert!(one.queued.is_none() && one.holds.is_none());
            assert_eq!(
                (lock.acquisitions, lock.forced),
                (one.acquisitions, one.forced)
            );
            assert_eq!((lock.held_ns, lock.waited_ns), (one.held_ns, one.waited_ns));
            assert_eq!(lock.releases.iter().sum::<u64>(), one.releases);
            assert_eq!(lock.holds.count(), one.releases);
            assert_eq!(lock.waits.count(), u64::from(one.waits));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_order_of_events_takes_the_words_from_the_rules(events in prop::collection::vec(event(4), 1..200)) {
        let mut world = World::new(4);
        for event in events {
            world.happen(event);
        }
        world.finish();
    }
}
