use super::*;
use crate::rhythm::tests::of_one_second;
use gpushare_sample::{DeviceSample, Holding, ProcessSample, SlotId};
use shm_layout::CardSlice;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// An urgent server and a flat-out batch on one device. What they do follows the policy in force.
struct World {
    sample: Sample,
}

impl World {
    fn new() -> Self {
        let mut sample = Sample::default();
        sample.snapshot.time_ns = 1_000 * S;
        sample.snapshot.generation = 7;
        sample.snapshot.devices.push(DeviceSample::default());
        let mut world = Self { sample };
        world.start("serve", 5);
        world.start("batch", 0);
        world
    }

    fn start(&mut self, name: &str, priority: i32) {
        let mut process = ProcessSample::default();
        process.view.slot = SlotId {
            index: self.sample.processes.len() as u16,
            epoch: 1,
        };
        process.view.identity.label = name.into();
        process.view.share.priority = priority;
        process.view.share.weight = 100;
        let mut holding = Holding::default();
        holding.counters.launches = 1;
        holding.counters.last_submit_ns = self.sample.time_ns;
        process.devices.push(holding);
        self.sample.snapshot.processes.push(process);
    }

    fn plan(&self) -> Plan {
        Plan::of(&self.sample, 0, |jobs| Ok(Aim::usual(jobs)), 3, 2 * S).expect("a plan")
    }

    fn policy(&self) -> String {
        crate::evidence::policy_words(&self.sample.devices[0].policy.0)
    }

    /// Makes an edit.
    fn set(&mut self, policy: LockPolicy) -> u64 {
        self.sample.snapshot.devices[0].view.policy.0 = policy;
        self.sample.snapshot.generation += 1;
        self.sample.generation
    }

    /// Lets the jobs work for 100 ms.
    fn pass(&mut self) {
        let (serve, wait, batch) = match self.policy().as_str() {
            "off" => (10, 50 * MS, 80),
            "overlap order=priority" => (30, 3 * MS, 60),
            "overlap=2ms order=priority" => (30, 3 * MS, 70),
            _ => (20, 20 * MS, 40),
        };
        self.sample.snapshot.time_ns += 100 * MS;
        for (at, launches) in [serve, batch].into_iter().enumerate() {
            let process = &mut self.sample.snapshot.processes[at];
            process.view.heartbeat_ns = self.sample.snapshot.time_ns - 30 * MS;
            process.devices[0].counters.launches += u64::from(launches);
            process.devices[0].view.lock.steps.add(wait, launches);
        }
    }

    /// Runs a search until `stop` or its end. Returns the search, the words tried, and the end.
    fn run(&mut self, mut stop: impl FnMut(&mut Self, usize)) -> (Tune, Vec<String>, End) {
        let mut tune = Tune::new(self.plan(), &self.sample);
        let mut tried = Vec::new();
        for step in 0..10_000 {
            match tune.next(&self.sample) {
                Next::Try(at) => {
                    let setting = tune.plan().settings[at].clone();
                    tried.push(setting.words);
                    let generation = self.set(setting.policy);
                    tune.began(generation, self.sample.time_ns);
                }
                Next::Wait => self.pass(),
                Next::End(end) => return (tune, tried, end),
            }
            stop(self, step);
        }
        panic!("a search has an end");
    }
}

#[test]
fn every_setting_that_makes_sense_is_tried_in_each_round_and_the_one_that_serves_the_aim_is_chosen()
{
    let mut world = World::new();
    let began = world.sample.time_ns;
    let (tune, tried, end) = world.run(|_, _| {});
    assert_eq!(end, End::Measured);
    let settings: Vec<&str> = tune
        .plan()
        .settings
        .iter()
        .map(|setting| setting.words.as_str())
        .collect();
    assert_eq!(
        settings,
        [
            "off",
            "overlap order=priority",
            "overlap=2ms order=priority",
            "timeslice=2ms order=priority",
            "overlap order=fair",
            "timeslice=2ms order=fair",
            "timeslice=5ms order=fair",
        ]
    );
    let backwards: Vec<&str> = settings.iter().rev().copied().collect();
    assert_eq!(tried, [settings.clone(), backwards, settings].concat());
    let took = world.sample.time_ns - began;
    assert!(
        (tune.plan().takes_ns()..tune.plan().takes_ns() + 5 * S).contains(&took),
        "{took}"
    );

    let chosen = choose(tune.plan(), tune.measured());
    assert_eq!(
        tune.plan().settings[chosen].words,
        "overlap=2ms order=priority",
        "of two with one p99, the one that costs the others less"
    );
    let found = tune.figures(chosen, 0);
    assert_eq!(found.rate.value, Some(300.0));
    assert!(
        (found.rate.relative.expect("both") - 3.0).abs() < 1e-9,
        "{found:?}"
    );
    let p99 = found.p99.value.expect("steps ended");
    assert!((2.5e6..=3e6).contains(&p99), "right to a bucket: {p99}");
    assert_eq!(found.rate.spread, Some(0.0));
}

#[test]
fn the_start_is_kept_where_nothing_was_certainly_better() {
    let plan = World::new().plan();
    let rounds = |rates: [[u32; 2]; 3]| -> Vec<Vec<Rhythm>> {
        let round = |[serve, batch]: [u32; 2]| {
            // The time of a step is the time between two launches.
            let each = |rate: u32| of_one_second(rate, S / u64::from(rate));
            vec![each(serve), each(batch)]
        };
        rates.into_iter().map(round).collect()
    };
    let start = rounds([[100, 500]; 3]);
    let mut measured = vec![start; plan.settings.len()];
    measured[2] = rounds([[300, 500], [300, 500], [100, 500]]);
    assert_eq!(choose(&plan, &measured), 0, "once it was no better");
    measured[3] = rounds([[150, 100]; 3]);
    assert_eq!(choose(&plan, &measured), 3);

    let other = |aim: Aim| Plan {
        aim,
        ..plan.clone()
    };
    assert_eq!(
        choose(&other(Aim::Throughput), &measured),
        0,
        "the batch loses more than the server gains"
    );
    measured[4] = rounds([[140, 450]; 3]);
    assert_eq!(choose(&other(Aim::Throughput), &measured), 4);
    assert_eq!(choose(&other(Aim::Fair), &measured), 4);
    let batch = plan.jobs[1].who;
    assert_eq!(choose(&other(Aim::Rate(vec![batch])), &measured), 0);
}

#[test]
fn a_search_ends_when_a_job_starts_ends_or_begins_to_work() {
    let mut world = World::new();
    let (_, _, end) = world.run(|world, step| {
        if step == 40 {
            world.start("late", 0);
        }
    });
    assert_eq!(end, End::JobStarted("late".into()));

    let mut world = World::new();
    let (tune, _, end) = world.run(|world, step| {
        if step == 40 {
            world.sample.snapshot.processes.remove(0);
        }
    });
    assert_eq!(end, End::JobEnded("serve".into()));
    assert_eq!(tune.progress().0, 1, "what was measured before stays");

    let mut world = World::new();
    world.start("notebook", 0);
    world.sample.snapshot.processes[2].devices[0]
        .counters
        .last_submit_ns = 0;
    let plan = world.plan();
    assert_eq!(plan.jobs.len(), 2, "it does nothing");
    let (_, _, end) = world.run(|world, step| {
        if step == 40 {
            world.sample.snapshot.processes[2].devices[0]
                .counters
                .launches += 1;
        }
    });
    assert_eq!(end, End::JobStarted("notebook".into()));
}

#[test]
fn a_search_ends_when_somebody_else_edits_and_when_its_trial_has_reverted() {
    let mut world = World::new();
    let (_, _, end) = world.run(|world, step| {
        if step == 40 {
            world.sample.snapshot.generation += 1;
        }
    });
    assert_eq!(end, End::Edited, "some other setting");

    let mut world = World::new();
    let (_, _, end) = world.run(|world, step| {
        if step == 40 {
            world.sample.snapshot.devices[0].view.policy.0 = LockPolicy::default();
        }
    });
    assert_eq!(end, End::Edited, "without an edit");
}

#[test]
fn settings_that_make_no_sense_for_the_mix_are_left_out() {
    let words = |world: &World, aim: Aim| -> Vec<String> {
        let plan = Plan::of(&world.sample, 0, |_| Ok(aim), 1, S).expect("a plan");
        plan.settings
            .into_iter()
            .map(|setting| setting.words)
            .collect()
    };
    let mut world = World::new();
    world.sample.snapshot.processes[0].view.share.priority = 0;
    let equal = words(&world, Aim::Throughput);
    assert_eq!(
        equal,
        [
            "off",
            "overlap order=fair",
            "timeslice=2ms order=fair",
            "timeslice=5ms order=fair"
        ]
    );

    let slices = |world: &mut World, jobs: usize| {
        for process in &mut world.sample.snapshot.processes[..jobs] {
            process.devices[0].view.card_slice = CardSlice::Available;
        }
    };
    slices(&mut world, 1);
    assert_eq!(words(&world, Aim::Throughput), equal, "the other has none");
    slices(&mut world, 2);
    let with_slices = words(&world, Aim::Throughput);
    assert_eq!(with_slices[4..], ["hw-timeslice=8ms"]);

    world.sample.snapshot.processes[0].view.share.weight = 300;
    let timesliced: LockPolicy = "timeslice=5ms order=fair".parse().expect("a policy");
    world.set(timesliced);
    for process in &mut world.sample.snapshot.processes {
        process.devices[0].view.policy.0 = timesliced;
    }
    let weighted = words(&world, Aim::Fair);
    assert_eq!(
        weighted,
        [
            "timeslice=5ms order=fair",
            "overlap order=fair",
            "timeslice=2ms order=fair",
            "hw-timeslice=2ms",
            "hw-timeslice=8ms",
        ]
    );

    for process in &mut world.sample.snapshot.processes {
        process.devices[0].view.mps = Some(true);
        process.devices[0].view.card_slice = CardSlice::Default;
    }
    assert_eq!(
        words(&world, Aim::Throughput),
        ["timeslice=5ms order=fair", "off", "overlap order=fair"]
    );

    let refused = |world: &World| {
        Plan::of(&world.sample, 0, |jobs| Ok(Aim::usual(jobs)), 1, S).expect_err("no plan")
    };
    world.sample.snapshot.devices[0].view.policy_until_ns = Some(5);
    assert!(refused(&world).contains("for a while"));
    world.sample.snapshot.devices[0].view.policy_until_ns = None;
    world.sample.snapshot.processes.remove(1);
    assert!(refused(&world).contains("alone"));
}
