//! The demo and experiments.

use super::*;

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
