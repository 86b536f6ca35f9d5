//! The workload on the simulated driver: the device and its other processes see what the workload does.

use std::time::Duration;

use gpushare_sim::{Scenario, World, timeline};
use gpushare_testbed::{Testbed, Watched, artifact, eventually};
use serde_json::Value;

const MIB: u64 = 1 << 20;

fn start(bed: &Testbed, args: &[&str]) -> Watched {
    let mut command = bed.sim_only(artifact("gpushare-workload"));
    Watched::spawn(command.args(args))
}

/// Starts a workload under a script.
fn puppet(bed: &Testbed) -> Watched {
    let mut puppet = start(bed, &["--script"]);
    assert_eq!(puppet.line(), format!("ready {}", puppet.pid()));
    puppet
}

fn free_bytes(puppet: &mut Watched) -> u64 {
    let answer = puppet.ask("info");
    answer.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn report(workload: Watched) -> Value {
    let output = workload.wait_output();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_script_is_answered_line_by_line() {
    let bed = Testbed::new();
    let mut puppet = puppet(&bed);
    assert_eq!(puppet.ask("alloc 64M"), "ok");
    assert_eq!(puppet.ask("launch 1000 3"), "ok");
    let synced = puppet.ask("sync");
    let waited: u64 = synced.strip_prefix("ok ").unwrap().parse().unwrap();
    assert!(waited > 0);
    assert_eq!(puppet.ask("spin 100 0"), "ok 0");
    assert_eq!(puppet.ask("free"), "ok 0");
    assert!(
        puppet
            .ask("alloc 1024T")
            .starts_with("error 2 cuMemAlloc_v2: out of memory")
    );
    assert!(puppet.ask("dance").starts_with("error 0 no such command"));
    assert!(
        puppet
            .ask("alloc 8Q")
            .starts_with("error 0 `8Q` is not a size")
    );
    puppet.say("quit");
    assert!(puppet.wait_output().status.success());
}

#[test]
fn two_processes_share_a_device_fairly_and_never_overlap() {
    let bed = Testbed::new();
    let args = ["--kernel-us", "5000", "--seconds", "2", "--report-json"];
    let pair = [start(&bed, &args), start(&bed, &args)];
    let [one, other] = pair.map(report);
    let launches = |report: &Value| report["launches"].as_u64().unwrap();
    let elapsed = |report: &Value| report["elapsed_ns"].as_u64().unwrap();
    let longest = elapsed(&one).max(elapsed(&other));
    let both = launches(&one) + launches(&other);
    // One may start a moment after the other, so the total may be a little longer than either time.
    assert!(both * 5_000_000 < longest * 3 / 2, "{one} {other}");
    assert!(
        launches(&one).min(launches(&other)) * 3 > both,
        "{one} {other}"
    );
}

#[test]
fn capacity_holds_over_all_processes_and_a_killed_ones_memory_returns() {
    let bed = Testbed::with_scenario("one-gpu");
    let (mut keeper, mut other) = (puppet(&bed), puppet(&bed));
    let free = free_bytes(&mut keeper);
    let most = format!("alloc {}", free - 100 * MIB);
    assert_eq!(keeper.ask(&most), "ok");
    assert_eq!(free_bytes(&mut other), 100 * MIB);
    assert!(other.ask("alloc 101M").starts_with("error 2 "));
    assert_eq!(other.ask("alloc 100M"), "ok");

    drop(keeper);
    eventually("its memory returns", Duration::from_secs(60), || {
        free_bytes(&mut other) == free - 100 * MIB
    });
    assert_eq!(other.ask("alloc 101M"), "ok");
}

#[test]
fn a_refused_allocation_is_reported_and_the_work_goes_on() {
    let bed = Testbed::with_scenario("small");
    let args = [
        "--until-oom",
        "--piece",
        "8M",
        "--kernel-us",
        "100",
        "--seconds",
        "2",
    ];
    let mut command = bed.sim_only(artifact("gpushare-workload"));
    let output = Watched::spawn(command.args(args).arg("--report-json")).wait_output();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(report["refusals"].as_u64() > Some(0), "{report}");
    assert!(
        report["launches"].as_u64() > report["allocations"].as_u64(),
        "{report}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("8 MiB refused, continuing"), "{said}");
}

#[test]
fn mig_instances_are_devices_with_memory_and_engine_of_their_own() {
    let bed = Testbed::with_scenario("mig");
    let world = World::open_named(bed.world(), Some(&Scenario::text_of("mig").unwrap())).unwrap();
    let mut puppets: Vec<Watched> = world.devices()[..2]
        .iter()
        .map(|instance| {
            let mut command = bed.sim_only(artifact("gpushare-workload"));
            command.env("CUDA_VISIBLE_DEVICES", instance.uuid_text());
            let mut puppet = Watched::spawn(command.arg("--script"));
            puppet.line();
            puppet
        })
        .collect();
    let total = |answer: String| answer.split_whitespace().nth(2).map(str::to_owned);
    assert_eq!(
        total(puppets[0].ask("info")),
        Some((20_u64 << 30).to_string())
    );
    assert_eq!(
        total(puppets[1].ask("info")),
        Some((10_u64 << 30).to_string())
    );
    for puppet in &mut puppets {
        assert_eq!(puppet.ask("launch 1000 3"), "ok");
        assert!(puppet.ask("sync").starts_with("ok"));
    }
    for (device, puppet) in puppets.iter().enumerate() {
        let log = timeline::log(&world, device);
        let pids: Vec<u32> = log.iter().map(|ran| ran.pid).collect();
        assert_eq!(pids, [puppet.pid(); 3]);
    }
}

#[test]
fn hostile_text_from_outside_does_not_act_on_the_terminal() {
    const NASTY: &str = "\u{1b}]0;owned\u{7}\u{202e}\u{200b}";
    let bed = Testbed::new();
    let file = bed.dir().join("scenario.toml");
    std::fs::write(
        &file,
        format!("# {NASTY}\n[[gpu]]\n\"{NASTY}\" = {NASTY}\n"),
    )
    .unwrap();
    let file = file.to_str().unwrap();
    for (scenario, option, words) in [
        (NASTY, "--seconds=0", "neither a readable file"),
        (file, "--seconds=0", "bad scenario"),
        ("one-gpu", NASTY, "unexpected argument"),
    ] {
        let mut command = bed.sim_only(artifact("gpushare-workload"));
        command.arg(option).env("GPUSHARE_SIM_SCENARIO", scenario);
        let output = Watched::spawn(&mut command).wait_output();
        assert!(!output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(words), "{said:?}");
        assert!(said.contains("\\u{202e}"), "{said:?}");
        let acts = |c: char| c != '\n' && (c.is_control() || matches!(c, '\u{200b}' | '\u{202e}'));
        assert!(!said.contains(acts), "{said:?}");
    }
}

#[test]
fn after_a_fault_nothing_works_any_more_in_this_process_and_everything_in_others() {
    let bed = Testbed::new();
    let (mut one, mut other) = (puppet(&bed), puppet(&bed));
    assert_eq!(one.ask("alloc 64M"), "ok");
    assert_eq!(
        one.ask("fault"),
        "ok",
        "a launch does not wait for its kernel"
    );
    let lost = "error 700 cuStreamSynchronize: an illegal memory access";
    assert!(one.ask("sync").starts_with(lost));
    for command in ["alloc 64M", "launch 100", "sync", "info"] {
        assert!(one.ask(command).starts_with("error 700 "), "{command}");
    }
    for command in ["alloc 64M", "launch 100", "sync"] {
        assert!(other.ask(command).starts_with("ok"), "{command}");
    }
    drop(one);
    assert!(puppet(&bed).ask("spin 100 1").starts_with("ok"));
}
