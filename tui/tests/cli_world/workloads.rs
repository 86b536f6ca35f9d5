//! Workloads, observed and edited while they run.

use super::*;

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
    let said = gpushare(&bed, &["quota", "set", "name:w", "16M", "-v"]).done();
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
    gpushare(&bed, &["undo", "--last", "2"]).done();
    assert_eq!(on_first_device(&bed, "w")["quota_bytes"], 64 * MIB);

    workload.close_input();
    eventually("the slot is free again", LIMIT, || {
        gpushare(&bed, &["ps", "--json"]).done().json()["processes"] == serde_json::json!([])
    });
}

#[test]
fn a_simulated_machine_that_programs_use_is_not_taken_for_another_one() {
    let bed = Testbed::new();
    let mut workload = start(&bed, &["--name", "w"]);
    assert_eq!(workload.ask("alloc 1M"), "ok");
    let run = |scenario: &str| gpushare(&bed, &["run", "--sim", scenario, "--", "echo", "started"]);
    let said = run("mig").refused(1, &["--sim mig", "is two-gpus", "GPUSHARE_SIM_WORLD"]);
    assert_eq!(said.out, "");
    assert_eq!(run("two-gpus").done().out, "started\n");
    workload.close_input();
    workload.wait_output();
    assert_eq!(run("mig").done().out, "started\n");
}

#[test]
fn who_does_not_obey_in_time_is_named() {
    let bed = Testbed::new();
    let workload = start(&bed, &["--name", "sleepy"]);
    workload.signal(Signal::STOP);
    let said = gpushare(&bed, &["quota", "set", "name:sleepy", "64M"]).done();
    let who = format!("not applied yet by {} sleepy (stopped)", workload.pid());
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
        let mut command = bed.gpushare(&["run", "--name", name, "--"]);
        command
            .arg(artifact("gpushare-workload"))
            .args(["--kernel-us=1000", "--seconds=600"]);
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

    let said = gpushare(&bed, &["policy", "set", "all", "timeslice=2ms", "-v"]).done();
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
    eventually("no process holds", LIMIT, || {
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
    // No process loses the lock during the check: a turn is longer than a check on a busy machine.
    let policy = "timeslice=2s idle=60s max-hold=60s grace=60s sync-skips=1000000";
    gpushare(&bed, &["policy", "set", "all", policy]).done();
    let spin = |name: &str| {
        let mut command = bed.gpushare(&["run", "--name", name, "--"]);
        command
            .arg(artifact("gpushare-workload"))
            .args(["--kernel-us=1000", "--seconds=600"]);
        Watched::spawn(&mut command)
    };
    let (stopped, _other) = (spin("a"), spin("b"));
    let shown = || {
        let ps = gpushare(&bed, &["ps", "--json"]).done().json();
        let all = ps["processes"].as_array().expect("a list").clone();
        all.into_iter().find(|process| process["name"] == "a")
    };
    for wanted in ["hold", "wait"] {
        // The turn may change during the test; a process that was stopped in another state continues.
        eventually("it is stopped in that state", LIMIT, || {
            stopped.signal(Signal::STOP);
            eventually("the kernel has stopped it", LIMIT, || {
                pids::is_stopped(stopped.pid())
            });
            // From here on the first `ps` must be right.
            let shown = shown();
            let found = shown.as_ref().is_some_and(|process| {
                assert_eq!(process["state"], "stopped", "{process}");
                process["devices"][0]["lock"]["state"] == wanted
            });
            if !found {
                stopped.signal(Signal::CONT);
                // Long enough on a busy machine for the process to reach the other state.
                std::thread::sleep(Duration::from_millis(30));
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
        // Not every user may make namespaces on every machine.
        return;
    }
    let mut command = bed.preloaded("unshare");
    command.env_remove("LD_PRELOAD").args(inside).arg("env");
    command.arg(format!(
        "LD_PRELOAD={}",
        artifact("libgpushare.so").display()
    ));
    // Its session, by which the jobs of a group are distinguished, has no id in the namespace.
    command
        .args(["GPUSHARE_NAME=inner", "GPUSHARE_GROUP=team"])
        .arg(artifact("gpushare-workload"))
        .arg("--script");
    let mut inner = Watched::spawn(&mut command);
    assert_eq!(inner.line(), "ready 1", "it is the first of its namespace");
    assert_eq!(inner.ask("alloc 1M"), "ok", "{}", inner.stderr());
    let ps = gpushare(&bed, &["ps", "--json"]).done().json();
    let process = &ps["processes"][0];
    assert_eq!(process["group"], "team");
    assert_eq!(process["ns_pid"], 1);
    let pid = process["pid"].as_u64().expect("it is found from here");
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).expect("it runs");
    assert!(String::from_utf8_lossy(&command).contains("gpushare-workload"));
    gpushare(&bed, &["quota", "set", &pid.to_string(), "2M"]).done();
    assert!(inner.ask("alloc 2M").starts_with("error 2 "));
}
