//! The card's own time slices (`hw-timeslice`), on a simulated card that obeys. The simulated driver asks for its channels by
//! `ioctl`; its kernel module answers where it is preloaded behind the library.

#[allow(dead_code, reason = "not all of its helpers are used here")]
#[path = "../memory/client.rs"]
mod client;

use std::{path::Path, time::Duration};

use gpushare_sim::{World, mps, usage};
use gpushare_testbed::{Testbed, Watched, artifact, cc, eventually};
use shm_layout::{
    CardSlice, Change, LockPolicy, Operator, PolicyKind, ProcessView, Segments, Set, ShareEdit,
    SlotId, Unsliced, Uuid, clock, snapshot,
};

const PATIENCE: Duration = Duration::from_secs(30);
const MS: u64 = 1_000_000;

/// Returns the libraries that a command preloads.
fn preload(kernel_module: bool) -> String {
    let libraries = ["libgpushare.so", "libcuda.so"].map(artifact);
    let libraries = libraries.iter().take(1 + usize::from(kernel_module));
    let paths: Vec<_> = libraries.map(|path| path.display().to_string()).collect();
    paths.join(":")
}

/// Starts a program that keeps the first device busy.
fn busy(bed: &Testbed, variables: &[(&str, &str)]) -> Watched {
    start(bed, &["--kernel-us", "2000", "--burst", "5000"], variables)
}

fn start(bed: &Testbed, args: &[&str], variables: &[(&str, &str)]) -> Watched {
    let mut command = bed.workload(args);
    command
        .env("LD_PRELOAD", preload(true))
        .envs(variables.iter().copied());
    Watched::spawn(&mut command)
}

/// Starts a program of `apps` with its slices.
fn app(bed: &Testbed, name: &str) -> Watched {
    app_with(bed, name, SLICES)
}

fn app_with(bed: &Testbed, name: &str, variables: &[(&str, &str)]) -> Watched {
    let source = client::app(&format!("{name}.c"));
    let mut command = bed.preloaded(cc(&source, name, &["-w"]));
    command
        .env("LD_PRELOAD", preload(true))
        .envs(variables.iter().copied());
    let mut program = Watched::spawn(&mut command);
    assert_eq!(program.line(), "ready 0");
    program
}

fn processes(bed: &Testbed) -> Vec<ProcessView> {
    let segments = Segments::open_viewer(bed.dir());
    segments.map_or_else(
        |_| Vec::new(),
        |open| snapshot(&open, clock::now()).processes,
    )
}

/// Returns what the process published about its slice on a device; `None` before it has registered.
fn published(bed: &Testbed, program: &Watched, device: usize) -> Option<CardSlice> {
    let mut processes = processes(bed).into_iter();
    let process = processes.find(|process| process.identity.pid == program.pid())?;
    process.devices.get(device).map(|device| device.card_slice)
}

fn publishes(bed: &Testbed, program: &Watched, wanted: CardSlice) {
    eventually(&format!("{wanted:?} is published"), PATIENCE, || {
        published(bed, program, 0) == Some(wanted)
    });
}

/// Returns the length of the turns that the card gives to a process on the first device, in microseconds; 0 for its default.
fn on_the_card(world: &World, program: &Watched) -> u64 {
    let of = usage::of(world, 0, usage::LONGEST_WINDOW);
    let mut processes = of.processes.iter();
    let ours = processes.find(|process| process.pid == program.pid());
    ours.map_or(0, |process| process.slice / 1_000)
}

fn world(bed: &Testbed) -> World {
    World::open_named(bed.world(), None).expect("the programs opened it")
}

fn edit(bed: &Testbed, change: &Change) {
    let operator = Operator::open(bed.dir()).expect("our own segment");
    operator
        .edit(None, change, clock::now())
        .expect("a valid edit");
}

fn set_policy(bed: &Testbed, device: Option<Uuid>, kind: PolicyKind) {
    let policy = Some(LockPolicy {
        kind,
        ..LockPolicy::default()
    });
    edit(
        bed,
        &Change::Policy {
            device,
            policy,
            until: None,
        },
    );
}

fn slot(bed: &Testbed, program: &Watched) -> SlotId {
    let mut processes = processes(bed).into_iter();
    let process = processes.find(|process| process.identity.pid == program.pid());
    process.expect("it is registered").slot
}

const SLICES: &[(&str, &str)] = &[("GPUSHARE_POLICY", "hw-timeslice=4ms")];
const BY_PRIORITY: (&str, &str) = ("GPUSHARE_POLICY", "overlap order=priority");

#[test]
fn three_busy_programs_have_the_shares_of_their_weights() {
    let bed = Testbed::with_scenario("time-slices");
    let programs = ["100", "200", "400"].map(|weight| {
        let weight = ("GPUSHARE_WEIGHT", weight);
        busy(&bed, &[("GPUSHARE_POLICY", "hw-timeslice=8ms"), weight])
    });
    for (program, us) in programs.iter().zip([8_000, 16_000, 32_000]) {
        publishes(&bed, program, CardSlice::Set(us));
    }
    let world = world(&bed);
    let busy = || {
        let of = usage::of(&world, 0, usage::LONGEST_WINDOW);
        programs.each_ref().map(|program| {
            let mut processes = of.processes.iter();
            let ours = processes.find(|process| process.pid == program.pid());
            ours.expect("it has a context").busy_total
        })
    };
    eventually("all have had turns", PATIENCE, || {
        busy().iter().all(|ns| *ns > 0)
    });
    let before = busy();
    let all = |now: &[u64; 3]| now.iter().sum::<u64>() - before.iter().sum::<u64>();
    let mut after = before;
    eventually("three seconds of the card", PATIENCE, || {
        after = busy();
        all(&after) > 3_000 * MS
    });
    for (at, weight) in [1.0, 2.0, 4.0].into_iter().enumerate() {
        let share = (after[at] - before[at]) as f64 / all(&after) as f64;
        assert!(
            (share - weight / 7.0).abs() < 0.02,
            "{at}: {share:.3}; {before:?} {after:?}"
        );
    }
    // None of them ever waited for another: the policy gates nothing.
    for process in processes(&bed) {
        assert_eq!(process.devices[0].lock.waited_ns, 0);
        assert_eq!(process.devices[0].lock.acquisitions, 0);
    }
}

#[test]
fn an_edit_is_obeyed_at_once_and_the_slice_is_given_back_at_the_end() {
    let bed = Testbed::new();
    let program = busy(&bed, SLICES);
    publishes(&bed, &program, CardSlice::Set(4_000));
    let world = world(&bed);
    assert_eq!(on_the_card(&world, &program), 4_000);

    let slot = slot(&bed, &program);
    let share = ShareEdit {
        weight: Set::To(250),
        ..ShareEdit::default()
    };
    let steps: [(&dyn Fn(), u64); 3] = [
        (
            &|| edit(&bed, &Change::ProcessShare { slot, share }),
            10_000,
        ),
        (
            &|| set_policy(&bed, None, PolicyKind::HwTimeslice(2 * MS)),
            5_000,
        ),
        (&|| set_policy(&bed, None, PolicyKind::Off), 0),
    ];
    for (change, us) in steps {
        let began = clock::now();
        change();
        eventually("the card has the new slice", PATIENCE, || {
            on_the_card(&world, &program) == us
        });
        // Measured to be well below a millisecond; the rest is for a busy machine.
        let took = clock::now() - began;
        assert!(took < 10_000 * MS, "{us} us: {took} ns");
    }
    publishes(&bed, &program, CardSlice::Available);
}

#[test]
fn under_overlap_the_urgent_one_of_two_has_long_slices_and_the_other_short_ones() {
    let bed = Testbed::new();
    let kernels = ["--kernel-us", "5000", "--burst", "2000"];
    let start = |priority| {
        start(
            &bed,
            &kernels,
            &[BY_PRIORITY, ("GPUSHARE_PRIORITY", priority)],
        )
    };
    let (urgent, other) = (start("5"), start("0"));
    publishes(&bed, &urgent, CardSlice::Set(20_000));
    publishes(&bed, &other, CardSlice::Set(200));
    let world = world(&bed);
    assert_eq!(on_the_card(&world, &urgent), 20_000);
    assert_eq!(on_the_card(&world, &other), 200);

    // A switch between two processes with long kernels costs little.
    let third = start("0");
    publishes(&bed, &other, CardSlice::Available);
    assert_eq!(on_the_card(&world, &other), 0);
    publishes(&bed, &urgent, CardSlice::Set(20_000));
    drop(third);
    publishes(&bed, &other, CardSlice::Set(200));
    drop(urgent);
    publishes(&bed, &other, CardSlice::Available);
}

#[test]
fn several_behind_an_urgent_one_have_longer_slices() {
    let bed = Testbed::new();
    let requests = ["--kernel-us", "2000", "--burst", "5", "--gap-us", "30000"];
    let urgent = [BY_PRIORITY, ("GPUSHARE_PRIORITY", "5")];
    let urgent = start(&bed, &requests, &urgent);
    let kernels = ["--kernel-us", "300", "--burst", "5000"];
    let others = [(); 2].map(|()| start(&bed, &kernels, &[BY_PRIORITY]));
    for other in &others {
        publishes(&bed, other, CardSlice::Set(4_000));
        assert_eq!(on_the_card(&world(&bed), other), 4_000);
    }
    publishes(&bed, &urgent, CardSlice::Set(20_000));
    drop(urgent);
    publishes(&bed, &others[0], CardSlice::Available);
}

#[test]
fn a_program_that_waits_in_its_copies_alone_is_one_that_waits_for_the_device() {
    let bed = Testbed::with_scenario("one-gpu");
    let other = busy(&bed, &[BY_PRIORITY]);
    let urgent = [BY_PRIORITY, ("GPUSHARE_PRIORITY", "5")];
    let urgent = app_with(&bed, "takes_results", &urgent);
    eventually("it has answered a while", PATIENCE, || {
        let mut all = processes(&bed).into_iter();
        let process = all.find(|one| one.identity.pid == urgent.pid());
        process.is_some_and(|process| process.devices[0].counters.copies > 100)
    });
    for _ in 0..20 {
        publishes(&bed, &urgent, CardSlice::Set(20_000));
        publishes(&bed, &other, CardSlice::Set(200));
    }
}

#[test]
fn a_new_context_has_the_slice_as_soon_as_it_is_there() {
    let bed = Testbed::new();
    let mut program = start(&bed, &["--script"], SLICES);
    assert!(program.line().starts_with("ready"));
    assert_eq!(program.ask("launch 10"), "ok");
    publishes(&bed, &program, CardSlice::Set(4_000));
    assert_eq!(on_the_card(&world(&bed), &program), 4_000);
}

/// Runs a program in a scenario of its own and checks why it keeps the card's default.
fn is_refused(scenario: &str, why: Unsliced) {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), scenario).expect("our own file");
    let path: &Path = file.path();
    let bed = Testbed::with_scenario(path.to_str().expect("a path in UTF-8"));
    let program = busy(&bed, SLICES);
    publishes(&bed, &program, CardSlice::Refused(why, 0));
    assert_eq!(on_the_card(&world(&bed), &program), 0);
}

#[test]
fn a_driver_that_was_not_measured_is_left_alone() {
    is_refused(
        "[driver]\nversion = \"610.12\"\n[[device]]",
        Unsliced::Driver,
    );
}

#[test]
fn a_card_that_was_not_measured_is_left_alone() {
    is_refused("[[device]]\ncompute = \"8.0\"", Unsliced::Card);
}

#[test]
fn a_virtual_gpu_is_left_alone() {
    is_refused(
        "[[device]]\nname = \"Simulated A100-40C\"",
        Unsliced::Virtual,
    );
}

#[test]
fn a_mig_instance_is_left_alone() {
    is_refused(
        "[[device]]\nmig = [{ profile = \"1g.5gb\", memory = \"2GiB\" }]",
        Unsliced::Mig,
    );
}

#[test]
fn a_client_of_mps_is_left_alone() {
    let pipe = tempfile::tempdir().expect("a temporary directory");
    for file in [mps::DAEMON, mps::SERVER] {
        let pid = std::process::id().to_string();
        std::fs::write(pipe.path().join(file), pid).expect("our own file");
    }
    let bed = Testbed::new();
    let pipe = pipe.path().to_str().expect("a path in UTF-8");
    let program = busy(&bed, &[SLICES[0], (mps::PIPE_DIRECTORY, pipe)]);
    publishes(&bed, &program, CardSlice::Refused(Unsliced::Mps, 0));
}

#[test]
fn a_descriptor_that_is_another_file_by_now_is_left_alone() {
    let bed = Testbed::with_scenario("one-gpu");
    let mut program = app(&bed, "reused_descriptors");
    publishes(&bed, &program, CardSlice::Set(4_000));
    assert_eq!(program.ask("go"), "reused");
    set_policy(&bed, None, PolicyKind::HwTimeslice(2 * MS));
    publishes(&bed, &program, CardSlice::Default);
    assert_eq!(on_the_card(&world(&bed), &program), 4_000);
}

#[test]
fn a_slice_that_the_driver_sets_itself_later_is_set_again() {
    let bed = Testbed::with_scenario("one-gpu");
    let mut program = app(&bed, "resets_slice");
    publishes(&bed, &program, CardSlice::Set(4_000));
    assert_eq!(program.ask("go"), "set 0 0");
    eventually("it is set again", PATIENCE, || {
        on_the_card(&world(&bed), &program) == 4_000
    });
    set_policy(&bed, None, PolicyKind::Off);
    publishes(&bed, &program, CardSlice::Default);
    assert_eq!(on_the_card(&world(&bed), &program), 0);
}

#[test]
fn channels_that_the_library_did_not_see_are_reported() {
    let bed = Testbed::new();
    let mut command = bed.workload(&["--kernel-us", "2000", "--burst", "50"]);
    command
        .env("LD_PRELOAD", preload(false))
        .envs(SLICES.iter().copied());
    let program = Watched::spawn(&mut command);
    publishes(&bed, &program, CardSlice::Refused(Unsliced::NotSeen, 0));
}

#[test]
fn a_program_on_two_gpus_follows_a_policy_that_both_have() {
    let bed = Testbed::with_scenario("two-gpus");
    let mut program = client::Client::start(&bed, &[("LD_PRELOAD", &preload(true))]);
    program.ok("alloc a 4096");
    let first = program.process().devices[0].uuid;
    set_policy(&bed, Some(first), PolicyKind::HwTimeslice(4 * MS));
    // It does not use the other one yet.
    publishes(&bed, &program.watched, CardSlice::Set(4_000));
    assert_eq!(
        published(&bed, &program.watched, 1),
        Some(CardSlice::Default)
    );
    program.ok("device 1");
    program.ok("alloc b 4096");
    let several = CardSlice::Refused(Unsliced::Several, 0);
    publishes(&bed, &program.watched, several);
    set_policy(&bed, None, PolicyKind::HwTimeslice(8 * MS));
    publishes(&bed, &program.watched, several);
    edit(
        &bed,
        &Change::Policy {
            device: Some(first),
            policy: None,
            until: None,
        },
    );
    publishes(&bed, &program.watched, CardSlice::Set(8_000));
    assert_eq!(
        published(&bed, &program.watched, 1),
        Some(CardSlice::Set(8_000))
    );
}
