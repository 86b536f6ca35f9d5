//! Picking devices, and the doctor's report of the machine.

use super::*;
use shm_layout::{Identity, LaunchLimits, Segments, register};

#[test]
fn a_device_picked_by_number_is_the_only_one_seen() {
    let bed = Testbed::with_scenario("mig");
    let devices = gpushare(&bed, &["pick", "--json"]).done().json()["devices"].clone();
    let devices = devices.as_array().expect("a list");
    assert_eq!(
        devices.len(),
        4,
        "three instances and a whole GPU: {devices:?}"
    );
    assert!(
        devices[0]["uuid"]
            .as_str()
            .is_some_and(|uuid| uuid.starts_with("MIG-")),
        "{devices:?}"
    );
    let mut workload = start(&bed, &["--gpu", "1", "--name", "w"]);
    let told = workload.ask("info");
    let total: u64 = told
        .split_whitespace()
        .next_back()
        .and_then(|text| text.parse().ok())
        .expect("bytes");
    assert_eq!(devices[1]["total_bytes"], total);
}

#[test]
fn picks_at_once_choose_different_devices() {
    let bed = Testbed::new();
    let first = gpushare(&bed, &["pick"]).done().out;
    let second = gpushare(&bed, &["pick"]).done().out;
    assert_ne!(first, second);
}

#[test]
fn without_nvml_the_devices_are_those_the_workloads_report() {
    let bed = Testbed::with_scenario("no-nvml");
    let mut workload = start(&bed, &["--name", "w"]);
    assert_eq!(workload.ask("alloc 8M"), "ok");
    assert_eq!(on_first_device(&bed, "w")["used_bytes"], 8 * MIB);
    let doctor = gpushare(&bed, &["doctor", "--json"]).json();
    let nvml = doctor["findings"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|finding| finding["check"] == "nvml");
    assert_eq!(nvml.expect("a finding")["level"], "warn", "{nvml:?}");
}

#[test]
fn the_doctor_finds_the_library_at_work() {
    let bed = Testbed::new();
    let said = gpushare(&bed, &["doctor", "--json"]).done().json();
    let level = |check: &str| {
        let finding = said["findings"]
            .as_array()
            .expect("a list")
            .iter()
            .find(|finding| finding["check"] == check);
        finding.unwrap_or_else(|| panic!("{check} is not in {said}"))["level"].clone()
    };
    for check in [
        "library",
        "driver",
        "nvml",
        "interposition",
        "quota",
        "segments",
    ] {
        assert_eq!(level(check), "ok", "{check}: {said}");
    }
}

#[test]
fn the_doctor_says_what_is_wrong_and_ends_with_one() {
    let bed = Testbed::new();
    let run = |name: &str, value: &str| {
        let mut command = bed.sim_only(env!("CARGO_BIN_EXE_gpushare"));
        command
            .arg("doctor")
            .env("GPUSHARE_LIB", artifact("libgpushare.so"))
            .env(name, value);
        command.said()
    };
    let said = run("GPUSHARE_LIB", "/nonexistent/libgpushare.so");
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.contains("FAIL library"), "{said:?}");
    assert!(!said.out.contains("os error"), "{said:?}");
    let said = run("GPUSHARE_MEMORY", "8Q");
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.out.contains("8Q") && said.out.contains("->"),
        "{said:?}"
    );
    // A machine without a driver is no failure, because the simulator can be used.
    let said = run("LD_LIBRARY_PATH", "");
    assert!(
        said.out.contains("--sim") || said.out.contains("driver answers"),
        "{said:?}"
    );
}

/// A thread queries NVML and is still running when the verb ends; NVML's library has work of its own at exit.
#[test]
fn a_verb_that_is_done_at_once_ends_well_though_nvml_is_still_asked() {
    let bed = Testbed::new();
    // The world of the directory: each of its processes checks at its end whether the world can be removed.
    let here = |program: &str, args: &[&str]| {
        let mut command = bed.sim_only(program);
        command
            .args(args)
            .env_remove("GPUSHARE_SIM_WORLD")
            .env("GPUSHARE_LIB", artifact("libgpushare.so"));
        command
    };
    let script = artifact("gpushare-workload");
    let mut workload = here(&script.display().to_string(), &["--script"]);
    let mut workload = Watched::spawn(workload.env("LD_PRELOAD", artifact("libgpushare.so")));
    assert!(workload.line().starts_with("ready"));
    for _ in 0..20 {
        let mut verb = here(env!("CARGO_BIN_EXE_gpushare"), &["events", "--last", "1"]);
        verb.said().done();
    }
}

#[test]
fn the_simulator_of_an_earlier_run_stays_out_of_segments_with_a_real_gpu() {
    let bed = Testbed::new();
    let segments = Segments::open_workload(bed.dir()).expect("our own directory");
    let none = LaunchLimits::default();
    let real = register(&segments, &Identity::of_self("real"), &none).expect("a free slot");
    real.add_device([7; 16], 0, "Real GPU", 16 << 30, 0)
        .expect("room for a device");
    let mut pick = bed.sim_only(env!("CARGO_BIN_EXE_gpushare"));
    pick.args(["pick", "--explain"])
        .env("GPUSHARE_SIM", "0")
        .env_remove("LD_LIBRARY_PATH");
    let said = pick.said().done();
    assert!(said.err.contains("Real GPU"), "{said:?}");
    assert!(!said.err.contains("Simulated GPU"), "{said:?}");
}
