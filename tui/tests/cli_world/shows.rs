//! The demo.

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

#[test]
fn the_demo_of_models_has_more_servers_than_fit_and_all_of_them_answer() {
    let bed = Testbed::new();
    let words = [
        "demo",
        "--scenario",
        "models",
        "--sim",
        "--seconds",
        "10",
        "--json",
    ];
    let report = gpushare(&bed, &words).done().json();
    let processes = report["processes"].as_array().expect("a list");
    assert_eq!(processes.len(), 4);
    let number = |process: &serde_json::Value, key: &str| process[key].as_u64().unwrap_or(0);
    let used: u64 = processes.iter().map(|one| number(one, "used_bytes")).sum();
    assert!(used <= 640 * MIB, "{report}");
    assert!(
        processes.iter().all(|one| number(one, "launches") > 0),
        "{report}"
    );
    let waited = processes
        .iter()
        .filter(|one| number(one, "wake_p99_ns") > 0);
    assert!(waited.count() >= 2, "{report}");
}

/// Starts a long demo and waits for its four programs.
fn demo_of_four(bed: &Testbed) -> Watched {
    let mut command = bed.sim_only(env!("CARGO_BIN_EXE_gpushare"));
    command
        .args(["demo", "--headless", "--seconds", "600", "--here"])
        .env("GPUSHARE_LIB", artifact("libgpushare.so"));
    let demo = Watched::spawn(&mut command);
    eventually("the four are there", LIMIT, || running(bed) == 4);
    demo
}

/// Returns the number of processes that `ps` shows.
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
fn a_script_without_a_name_has_that_of_its_file_and_its_command_line_is_shown() {
    if !needs(Need::Tool("python3")) {
        return;
    }
    let bed = Testbed::new();
    let folder = tempfile::tempdir().expect("there is room");
    let script = folder.path().join("train.py");
    let text = "import ctypes\ndriver = ctypes.CDLL('libcuda.so.1')\nassert driver.cuInit(0) == 0\nprint('ready', flush=True)\ninput()\n";
    std::fs::write(&script, text).expect("written");
    let script = script.display().to_string();
    let mut job = Watched::spawn(
        bed.sim_only(env!("CARGO_BIN_EXE_gpushare"))
            .env("GPUSHARE_LIB", artifact("libgpushare.so"))
            .args(["run", "--", "python3", "-u", &script, "--lr", "0.1"]),
    );
    assert_eq!(job.line(), "ready");
    let ps = gpushare(&bed, &["ps", "--json"]).done().json();
    assert_eq!(ps["processes"][0]["name"], "train.py");
    let wide = gpushare(&bed, &["ps", "-w"]).done().out;
    let command = format!("python3 -u {script} --lr 0.1");
    assert!(
        wide.contains("COMMAND") && wide.contains(&command),
        "{wide}"
    );
    let said = gpushare(&bed, &["pause", "name:train.py"]).done();
    assert_eq!(said.out, format!("train.py (pid {}): paused\n", job.pid()));
}
