//! The control program against real workloads on the simulated GPU, end to end.

mod cli_support;

use std::time::Duration;

use cli_support::Said;
use gpushare_testbed::{Testbed, Watched, artifact, eventually};
use gpushare_tui::host::pids;
use rustix::process::Signal;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

fn gpushare(bed: &Testbed, args: &[&str]) -> Said {
    let mut command = bed.sim_only(env!("CARGO_BIN_EXE_gpushare"));
    command
        .args(args)
        .env("GPUSHARE_LIB", artifact("libgpushare.so"))
        .env("GPUSHARE_ALLOWED_GPUS", "/nonexistent");
    command.output().expect("the program is built").into()
}

/// A workload on a string, started through `gpushare run`.
fn start(bed: &Testbed, options: &[&str]) -> Watched {
    let mut command = bed.sim_only(env!("CARGO_BIN_EXE_gpushare"));
    command
        .arg("run")
        .args(options)
        .arg("--")
        .arg(artifact("gpushare-workload"))
        .arg("--script");
    command.env("GPUSHARE_LIB", artifact("libgpushare.so"));
    let mut watched = Watched::spawn(&mut command);
    assert!(watched.line().starts_with("ready"));
    watched
}

fn on_first_device(bed: &Testbed, name: &str) -> Value {
    let ps = gpushare(bed, &["ps", "--json"]).done().json();
    let processes = ps["processes"].as_array().expect("a list").clone();
    let own = processes
        .into_iter()
        .find(|process| process["name"] == name);
    own.map_or(Value::Null, |process| process["devices"][0].clone())
}

#[test]
fn a_live_workload_is_counted_limited_and_let_go_without_a_restart() {
    let bed = Testbed::new();
    let mut workload = start(&bed, &["--name", "w", "--memory", "64M"]);
    assert_eq!(workload.ask("alloc 48M"), "ok");
    let pid = workload.pid();
    let ps = gpushare(&bed, &["ps", "--json"]).done().json();
    assert_eq!(ps["processes"][0]["pid"], pid, "run becomes the program");
    let device = on_first_device(&bed, "w");
    assert_eq!(device["used_bytes"], 48 * MIB);
    assert_eq!(device["quota_bytes"], 64 * MIB);
    assert!(
        workload.ask("alloc 32M").starts_with("error 2 "),
        "over the quota it was started with"
    );

    gpushare(&bed, &["quota", "set", &pid.to_string(), "128M"]).done();
    assert_eq!(workload.ask("alloc 32M"), "ok");
    let said = gpushare(&bed, &["quota", "set", "name:w", "16M"]).done();
    assert!(said.out.contains("applied by 1 process"), "{said:?}");
    assert!(
        workload.ask("alloc 1M").starts_with("error 2 "),
        "over the lowered quota"
    );
    assert_eq!(
        workload.ask("info"),
        format!("ok 0 {}", 16 * MIB),
        "what it is told agrees"
    );
    assert_eq!(on_first_device(&bed, "w")["denials"], 2);
    gpushare(&bed, &["undo", "2"]).done();
    assert_eq!(on_first_device(&bed, "w")["quota_bytes"], 64 * MIB);

    workload.close_input();
    eventually("the slot is free again", LIMIT, || {
        gpushare(&bed, &["ps", "--json"]).done().json()["processes"] == serde_json::json!([])
    });
}

#[test]
fn who_does_not_obey_in_time_is_named() {
    let bed = Testbed::new();
    let workload = start(&bed, &["--name", "sleepy"]);
    workload.signal(Signal::STOP);
    let said = gpushare(&bed, &["quota", "set", "name:sleepy", "64M"]).done();
    let who = format!("not applied yet by {} sleepy", workload.pid());
    assert!(said.out.contains(&who), "{said:?}");
    workload.signal(Signal::CONT);
    eventually("it obeys when it runs again", LIMIT, || {
        on_first_device(&bed, "sleepy")["quota_bytes"] == 64 * MIB
    });
}

#[test]
fn ownership_alternates_under_a_policy_and_stops_without_one() {
    let bed = Testbed::with_scenario("one-gpu");
    let spin = |name: &str| {
        let mut command = bed.sim_only(env!("CARGO_BIN_EXE_gpushare"));
        command
            .args(["run", "--name", name, "--"])
            .arg(artifact("gpushare-workload"));
        command
            .args(["--kernel-us=1000", "--seconds=60"])
            .env("GPUSHARE_LIB", artifact("libgpushare.so"));
        Watched::spawn(&mut command)
    };
    let _two = [spin("a"), spin("b")];
    let launched = |name: &str| {
        on_first_device(&bed, name)["launches"]
            .as_u64()
            .unwrap_or(0)
            > 0
    };
    eventually("both are at work", LIMIT, || launched("a") && launched("b"));

    let said = gpushare(&bed, &["policy", "set", "all", "timeslice=2ms"]).done();
    assert!(said.out.contains("applied by all 2 processes"), "{said:?}");
    let acquisitions = |name: &str| {
        on_first_device(&bed, name)["lock"]["acquisitions"]
            .as_u64()
            .unwrap_or(0)
    };
    eventually("both hold in turn", LIMIT, || {
        acquisitions("a") > 10 && acquisitions("b") > 10
    });
    assert!(
        on_first_device(&bed, "a")["lock"]["waited_ns"]
            .as_u64()
            .is_some_and(|ns| ns > 0)
    );

    gpushare(&bed, &["policy", "set", "all", "off"]).done();
    eventually("nobody holds", LIMIT, || {
        on_first_device(&bed, "a")["lock"]["state"] == "idle"
    });
    let (before, launches) = (
        acquisitions("a"),
        on_first_device(&bed, "a")["launches"].as_u64(),
    );
    eventually("work goes on", LIMIT, || {
        on_first_device(&bed, "a")["launches"].as_u64() > launches
    });
    assert_eq!(
        acquisitions("a"),
        before,
        "without a policy the lock is not taken"
    );
}

#[test]
fn a_stopped_holder_and_a_stopped_waiter_show_as_stopped() {
    let bed = Testbed::with_scenario("one-gpu");
    // Nobody is put out of the lock while the test looks.
    let policy = "timeslice=100ms max-hold=60s grace=60s";
    gpushare(&bed, &["policy", "set", "all", policy]).done();
    let spin = |name: &str| {
        let mut command = bed.sim_only(env!("CARGO_BIN_EXE_gpushare"));
        command
            .args(["run", "--name", name, "--"])
            .arg(artifact("gpushare-workload"))
            .args(["--kernel-us=1000", "--seconds=60"])
            .env("GPUSHARE_LIB", artifact("libgpushare.so"));
        Watched::spawn(&mut command)
    };
    let (stopped, _other) = (spin("a"), spin("b"));
    let shown = || {
        let ps = gpushare(&bed, &["ps", "--json"]).done().json();
        let all = ps["processes"].as_array().expect("a list").clone();
        all.into_iter().find(|process| process["name"] == "a")
    };
    for wanted in ["hold", "wait"] {
        // Whose turn it is changes under the test: who is stopped in another state runs on.
        eventually("it is stopped in that state", LIMIT, || {
            stopped.signal(Signal::STOP);
            eventually("the kernel has stopped it", LIMIT, || {
                pids::is_stopped(stopped.pid())
            });
            // The first `ps` from here on is right.
            let shown = shown();
            let found = shown.as_ref().is_some_and(|process| {
                assert_eq!(process["state"], "stopped", "{process}");
                process["devices"][0]["lock"]["state"] == wanted
            });
            if !found {
                stopped.signal(Signal::CONT);
            }
            found
        });
        let table = gpushare(&bed, &["ps"]).done().out;
        let pid = stopped.pid().to_string();
        let row = table.lines().find(|line| line.contains(&pid));
        assert!(row.is_some_and(|row| row.contains("stopped")), "{table}");
        stopped.signal(Signal::CONT);
        eventually("it runs on", LIMIT, || {
            shown().is_some_and(|process| process["state"] != "stopped")
        });
    }
}

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
fn a_process_in_a_namespace_of_its_own_is_shown_by_its_pid_here() {
    let bed = Testbed::new();
    let inside = [
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount-proc",
    ];
    let able = bed
        .sim_only("unshare")
        .args(inside)
        .arg("true")
        .output()
        .is_ok_and(|output| output.status.success());
    if !able {
        // Namespaces are not allowed to everybody everywhere.
        return;
    }
    let mut command = bed.preloaded("unshare");
    command.env_remove("LD_PRELOAD").args(inside).arg("env");
    command.arg(format!(
        "LD_PRELOAD={}",
        artifact("libgpushare.so").display()
    ));
    command
        .arg("GPUSHARE_NAME=inner")
        .arg(artifact("gpushare-workload"))
        .arg("--script");
    let mut inner = Watched::spawn(&mut command);
    assert_eq!(inner.line(), "ready 1", "it is the first of its namespace");
    assert_eq!(inner.ask("alloc 1M"), "ok");
    let ps = gpushare(&bed, &["ps", "--json"]).done().json();
    let process = &ps["processes"][0];
    assert_eq!(process["ns_pid"], 1);
    let pid = process["pid"].as_u64().expect("it is found from here");
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).expect("it runs");
    assert!(String::from_utf8_lossy(&command).contains("gpushare-workload"));
    gpushare(&bed, &["quota", "set", &pid.to_string(), "2M"]).done();
    assert!(inner.ask("alloc 2M").starts_with("error 2 "));
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
        Said::from(command.output().expect("built"))
    };
    let said = run("GPUSHARE_LIB", "/nonexistent/libgpushare.so");
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.contains("FAIL library"), "{said:?}");
    let said = run("GPUSHARE_MEMORY", "8Q");
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.out.contains("8Q") && said.out.contains("->"),
        "{said:?}"
    );
    // Whatever the machine, a machine without a driver is no failure: there is the simulator.
    let said = run("LD_LIBRARY_PATH", "");
    assert!(
        said.out.contains("--sim") || said.out.contains("driver answers"),
        "{said:?}"
    );
}

#[test]
fn the_demo_plays_headless_and_reports_who_held_waited_and_was_refused() {
    let bed = Testbed::new();
    let report = gpushare(&bed, &["demo", "--seconds", "6", "--headless", "--json"])
        .done()
        .json();
    assert_eq!(report["simulated"], true);
    assert_eq!(report["policy_acknowledged"], true);
    assert_eq!(report["device"]["violations"], 0);
    let processes = report["processes"].as_array().expect("a list");
    assert_eq!(processes.len(), 4);
    for process in processes {
        assert!(
            process["held_ns"].as_u64().is_some_and(|ns| ns > 0),
            "{process}"
        );
        assert!(
            process["launches"].as_u64().is_some_and(|count| count > 0),
            "{process}"
        );
        let quota = process["quota_bytes"].as_u64().unwrap_or(u64::MAX);
        assert!(
            process["used_bytes"]
                .as_u64()
                .is_some_and(|used| used <= quota),
            "{process}"
        );
    }
    let notebook = processes
        .iter()
        .find(|process| process["name"] == "notebook")
        .expect("the greedy one");
    assert!(
        notebook["denials"].as_u64().is_some_and(|count| count > 0),
        "{notebook}"
    );
}

/// A long demo, once its four programs are there.
fn demo_of_four(bed: &Testbed) -> Watched {
    let mut command = bed.sim_only(env!("CARGO_BIN_EXE_gpushare"));
    command
        .args(["demo", "--headless", "--seconds", "600", "--here"])
        .env("GPUSHARE_LIB", artifact("libgpushare.so"));
    let demo = Watched::spawn(&mut command);
    eventually("the four are there", LIMIT, || running(bed) == 4);
    demo
}

/// How many processes `ps` shows.
fn running(bed: &Testbed) -> usize {
    gpushare(bed, &["ps", "--json"]).done().json()["processes"]
        .as_array()
        .map_or(0, Vec::len)
}

#[test]
fn a_demo_told_to_end_leaves_nothing_running_and_nothing_behind() {
    let bed = Testbed::new();
    let demo = demo_of_four(&bed);
    demo.signal(Signal::TERM);
    let output = demo.wait_output();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("SIGTERM"),
        "{output:?}"
    );
    eventually("the four are gone", LIMIT, || running(&bed) == 0);
    let policy = gpushare(&bed, &["policy", "show", "--json"]).done().json();
    assert_eq!(
        policy["policies"][0]["policy"], "off",
        "the demo's policy went with it"
    );
    let logs = std::fs::read_dir(bed.dir()).expect("the bed's").flatten();
    assert!(
        !logs
            .into_iter()
            .any(|file| file.file_name().to_string_lossy().contains("stage"))
    );
}

#[test]
fn a_demo_killed_outright_leaves_nothing_running() {
    let bed = Testbed::new();
    let demo = demo_of_four(&bed);
    demo.signal(Signal::KILL);
    demo.wait_output();
    eventually("the four are gone", LIMIT, || running(&bed) == 0);
}

#[test]
fn an_experiment_measures_each_configuration() {
    let bed = Testbed::new();
    let plan = bed.dir().join("plan.toml");
    let text = "seconds = 0.5\n[[task]]\nname = 'urgent'\nurgent = true\nkernel_us = 500\ngap_us = 2000\n\
                [[task]]\nname = 'bulk'\ncount = 2\nkernel_us = 1000\nburst = 4\n\
                [[config]]\nname = 'off'\npolicy = 'off'\n[[config]]\nname = 'slice'\npolicy = 'timeslice=2ms'\n";
    std::fs::write(&plan, text).expect("ours");
    let (plan, rows) = (
        plan.display().to_string(),
        bed.dir().join("rows.csv").display().to_string(),
    );
    let report = gpushare(
        &bed,
        &["experiment", &plan, "--sim", "--json", "--csv", &rows],
    )
    .done()
    .json();
    let results = report["results"].as_array().expect("a list");
    assert_eq!(results.len(), 2);
    for row in results {
        assert!(
            row["urgent_rounds"]
                .as_u64()
                .is_some_and(|rounds| rounds > 0),
            "{row}"
        );
        assert!(
            row["background_kernels"]
                .as_u64()
                .is_some_and(|kernels| kernels > 0),
            "{row}"
        );
    }
    assert_eq!(results[0]["acquisitions"], 0);
    assert!(
        results[1]["acquisitions"]
            .as_u64()
            .is_some_and(|count| count > 0)
    );
    assert_eq!(
        std::fs::read_to_string(rows)
            .expect("written")
            .lines()
            .count(),
        3
    );
}

#[test]
fn an_experiment_killed_outright_leaves_nothing_that_the_next_one_does_not_sweep() {
    let bed = Testbed::new();
    let plan = bed.dir().join("plan.toml");
    let text = "seconds = 600\n[[task]]\nname = 'urgent'\nurgent = true\nkernel_us = 500\n\
                [[task]]\nname = 'bulk'\nkernel_us = 1000\n[[config]]\nname = 'off'\n";
    std::fs::write(&plan, text).expect("ours");
    let mut command = bed.sim_only(env!("CARGO_BIN_EXE_gpushare"));
    command
        .args(["experiment", &plan.display().to_string(), "--sim"])
        .env("GPUSHARE_LIB", artifact("libgpushare.so"));
    let experiment = Watched::spawn(&mut command);
    let stage = format!("gpushare-stage-{}-", experiment.pid());
    let left = || {
        let files = std::fs::read_dir("/dev/shm")
            .expect("there is one")
            .flatten();
        files
            .filter(|file| file.file_name().to_string_lossy().contains(&stage))
            .map(|file| file.path())
            .collect::<Vec<_>>()
    };
    let segments = || left().into_iter().find(|path| path.join("state").exists());
    let running = || {
        let Some(dir) = segments() else { return 0 };
        let segments = shm_layout::Segments::open_viewer(&dir).expect("its own");
        let look = shm_layout::snapshot(&segments, shm_layout::clock::now());
        let is_alive =
            |process: &&shm_layout::ProcessView| process.alive != shm_layout::Liveness::Dead;
        look.processes.iter().filter(is_alive).count()
    };
    eventually("both tasks are there", LIMIT, || running() == 2);
    experiment.signal(Signal::KILL);
    experiment.wait_output();
    eventually("its tasks end by themselves", LIMIT, || running() == 0);
    eventually("the next stage sweeps what it left", LIMIT, || {
        gpushare(&bed, &["doctor", "--json"]);
        left().is_empty()
    });
}
