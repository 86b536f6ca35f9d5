//! `gpushare experiment`: programs under several conditions, and what remains after them.

mod cli_support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cli_support::{Run as _, Said, executable};
use gpushare_testbed::{Testbed, Watched, artifact, eventually};
use rustix::process::Signal;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);

fn command(bed: &Testbed, args: &[&str]) -> Command {
    let mut command = bed.sim_only(env!("CARGO_BIN_EXE_gpushare"));
    command
        .arg("experiment")
        .args(args)
        .env("GPUSHARE_LIB", artifact("libgpushare.so"))
        // The plan's scenario sets the simulated devices.
        .env_remove("GPUSHARE_SIM")
        .env_remove("HAMI_CORE");
    command
}

fn experiment(bed: &Testbed, args: &[&str]) -> Said {
    command(bed, args).said()
}

fn plan(bed: &Testbed, text: &str) -> String {
    let path = bed.dir().join("plan.toml");
    std::fs::write(&path, text).expect("ours");
    path.display().to_string()
}

fn file(bed: &Testbed, name: &str) -> (PathBuf, String) {
    let path = bed.dir().join(name);
    let text = path.display().to_string();
    (path, text)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("it was written")
}

/// Returns the row of a figure for a condition.
fn row<'d>(document: &'d Value, figure: usize, condition: &str) -> &'d Value {
    let rows = document["figures"][figure]["conditions"].as_array();
    let mut rows = rows.expect("a list").iter();
    rows.find(|row| row["condition"] == condition)
        .unwrap_or_else(|| panic!("no {condition} in {document}"))
}

/// Counts processes whose command line contains a word of this test.
fn running(word: &str) -> usize {
    let all = std::fs::read_dir("/proc").expect("there is one").flatten();
    all.filter(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(word)
    })
    .count()
}

/// Counts stages in shared memory that a process with this pid made.
fn stages(pid: u32) -> usize {
    let prefix = format!("gpushare-stage-{pid}-");
    let all = std::fs::read_dir("/dev/shm")
        .expect("there is one")
        .flatten();
    all.filter(|entry| entry.file_name().to_string_lossy().contains(&prefix))
        .count()
}

#[test]
fn the_help_names_every_installed_plan_and_an_unknown_name_says_where_plans_are() {
    let bed = Testbed::new();
    let help = experiment(&bed, &["--help"]).done().out;
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets/experiments");
    let plans = std::fs::read_dir(plans).expect("the plans").flatten();
    let names = plans.filter_map(|entry| {
        Some(
            entry
                .file_name()
                .to_str()?
                .strip_suffix(".toml")?
                .to_owned(),
        )
    });
    for name in names {
        assert!(help.contains(&name), "{name} is missing: {help}");
    }
    experiment(&bed, &["priorty"]).refused(2, &["no installed plan priorty", "assets/experiments"]);
}

#[test]
fn the_shipped_plan_runs_on_the_simulator_and_gives_a_table_json_and_csv() {
    let bed = Testbed::new();
    artifact("gpushare-sim-mps");
    let (json, csv) = (file(&bed, "r.json"), file(&bed, "r.csv"));
    let said = experiment(
        &bed,
        &[
            "priority",
            "--sim",
            "--seconds",
            "0.4",
            "--repeats",
            "1",
            "--json",
            &json.1,
            "--csv",
            &csv.1,
        ],
    )
    .done();
    for words in [
        "urgent round p50 (ms, lower is better)",
        "bulk (2 together) kernels",
        "× bare",
        "hand-offs",
    ] {
        assert!(said.out.contains(words), "{words}: {}", said.out);
    }
    let document: Value = serde_json::from_str(&read(&json.0)).expect("JSON");
    assert_eq!(document["machine"]["simulated"], true);
    let conditions = document["figures"][0]["conditions"]
        .as_array()
        .expect("a list");
    assert_eq!(conditions.len(), 12);
    for figure in 0..3 {
        for row in document["figures"][figure]["conditions"]
            .as_array()
            .expect("a list")
        {
            assert!(
                row["median"].as_f64().is_some_and(|median| median > 0.0),
                "{row}"
            );
        }
    }
    let alone = row(&document, 0, "alone")["median"].as_f64();
    let bare = row(&document, 0, "bare")["of_alone"].as_f64();
    assert!(
        alone.is_some_and(|ms| ms >= 8.0),
        "four kernels of 2 ms: {alone:?}"
    );
    assert!(bare.is_some_and(|ratio| ratio > 1.0), "{bare:?}");
    let acquisitions = |condition: &str| {
        let runs = document["runs"].as_array().expect("a list");
        let run = runs.iter().find(|run| run["condition"] == condition);
        run.expect("it ran")["lock"]["acquisitions"].as_u64()
    };
    assert_eq!(acquisitions("bare"), None, "gpushare is not in it");
    assert!(acquisitions("timeslice=5ms order=fair").is_some_and(|count| count > 0));
    assert!(
        acquisitions("ALWAYS_LOCK").is_some_and(|count| count > 0),
        "variables of the plan reach the library"
    );
    // A line for each figure of each run, and the headings.
    assert_eq!(read(&csv.0).lines().count(), 37);
}

#[test]
fn rounds_are_interleaved_and_what_cannot_run_here_is_skipped_with_a_sentence() {
    let bed = Testbed::new();
    let plan = plan(
        &bed,
        r#"
seconds = 7
repeats = 2
warm-up = 1
[[program]]
name = "p"
command = ["sh", "-c", "echo $* $A > said; echo '{\"n\": {\"x\": '$1'}}'", "sh", "{seconds}"]
count = 3
env = { A = "of the program" }
figures = [{ name = "x", json = "n.x", better = "higher" }]
[[condition]]
[[condition]]
name = "two"
env = { A = "of the condition" }
[[condition]]
mps = true
[[condition]]
preload = "$HAMI_CORE"
"#,
    );
    let (json, path) = file(&bed, "r.json");
    let said = experiment(&bed, &[&plan, "--json", &path, "--only", "two"]).done();
    assert!(
        !said.out.contains("\n  bare"),
        "only one was asked for: {}",
        said.out
    );
    let said = experiment(&bed, &[&plan, "--json", &path]).done();
    let document: Value = serde_json::from_str(&read(&json)).expect("JSON");
    let runs = document["runs"].as_array().expect("a list");
    let of = |condition: &str| {
        runs.iter()
            .filter(|run| run["condition"] == condition)
            .count()
    };
    assert_eq!((of("bare"), of("two"), runs.len()), (3, 3, 6));
    let rounds: Vec<u64> = runs
        .iter()
        .filter_map(|run| run["round"].as_u64())
        .collect();
    assert_eq!(rounds, [0, 0, 1, 1, 2, 2]);
    let row = row(&document, 0, "bare");
    assert_eq!(
        row["samples"],
        serde_json::json!([21.0, 21.0]),
        "without the warm-up"
    );
    assert_eq!(
        runs[0]["figures"][0]["each"],
        serde_json::json!([7.0, 7.0, 7.0])
    );
    for why in [
        "MPS: skipped: nvidia-cuda-mps-control",
        "HAMI_CORE is not set",
    ] {
        assert!(said.out.contains(why), "{why}: {}", said.out);
    }
    let last = read(&bed.dir().join("said"));
    assert!(
        ["7 of the condition\n", "7 of the program\n"].contains(&last.as_str()),
        "{last}"
    );
}

#[test]
fn programs_wait_for_each_other_and_a_load_without_figures_is_ended() {
    let bed = Testbed::new();
    let plan = plan(
        &bed,
        r#"
seconds = 1
repeats = 1
[[program]]
name = "late"
command = ["sh", "-c", "sleep 0.3; touch late; echo ready; until [ -e $START_FILE ]; do sleep 0.01; done; echo x=1"]
ready = "^ready"
figures = [{ name = "x", pattern = 'x=(\d)', better = "lower" }]
[[program]]
name = "early"
command = ["setsid", "--wait", "sh", "-c", "echo ready; until [ -e $START_FILE ]; do sleep 0.01; done; test -e late && echo x=2"]
ready = "^ready"
figures = [{ name = "x", pattern = 'x=(\d)', better = "lower" }]
[[program]]
name = "load"
command = ["sh", "-c", "setsid sleep 86411 & sleep 86411"]
[[condition]]
"#,
    );
    experiment(&bed, &[&plan]).done();
    assert_eq!(
        running("86411"),
        0,
        "the load is gone, and what it left too"
    );
}

#[test]
fn the_runs_of_an_experiment_share_a_folder_that_is_gone_after_it() {
    let bed = Testbed::new();
    let plan = plan(
        &bed,
        r#"
seconds = 1
repeats = 3
[[program]]
name = "counts"
command = ["sh", "-c", "echo $EXPERIMENT_DIR > where; echo run >> $EXPERIMENT_DIR/runs; echo x=$(wc -l < $EXPERIMENT_DIR/runs)"]
figures = [{ name = "x", pattern = 'x=(\d)', better = "lower" }]
[[condition]]
"#,
    );
    let said = experiment(&bed, &[&plan, "--json", "-"]).done().json();
    let samples = &said["figures"][0]["conditions"][0]["samples"];
    assert_eq!(*samples, serde_json::json!([1.0, 2.0, 3.0]), "{said}");
    let folder = read(&bed.dir().join("where"));
    assert!(!std::path::Path::new(folder.trim()).exists(), "{folder}");
}

/// Makes an MPS control program that records its input and keeps a daemon with the right process name. Returns its directory
/// and a PATH that begins with it.
fn control(bed: &Testbed) -> (PathBuf, std::ffi::OsString) {
    let control = r#"#!/bin/sh
pid=$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid
[ "$1" = -d ] && asked=-d || read -r asked
echo "$asked" >> "$(dirname "$0")/record"
case $asked in
-d) (i=0; while [ $i -lt 6000 ]; do i=$((i + 1)); sleep 0.02; done) & echo $! > "$pid" ;;
quit*) kill "$(cat "$pid")"; rm -f "$pid" ;;
esac
exit 0
"#;
    let bin = bed.dir().join("bin");
    std::fs::create_dir(&bin).expect("ours");
    executable(&bin.join("nvidia-cuda-mps-control"), control, "755");
    let mut path = bin.clone().into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").expect("a PATH"));
    (bin, path)
}

#[test]
fn mps_is_started_for_the_run_and_stopped_after_it() {
    let bed = Testbed::new();
    let (bin, path_variable) = control(&bed);
    let text = r#"
seconds = 1
repeats = 1
[[program]]
name = "p"
command = ["sh", "-c", "echo in=$(test -d \"$CUDA_MPS_PIPE_DIRECTORY\" && echo 1 || echo 0) p=${CUDA_MPS_CLIENT_PRIORITY-9}"]
priority = 5
figures = [{ name = "in", pattern = 'in=(\d)', better = "higher" }, { name = "p", pattern = 'p=(\d)', better = "lower" }]
[[condition]]
mps = true
[[condition]]
mps = true
policy = "off"
[[condition]]
name = "without"
mps = true
program.p.mps = false
"#;
    let plan = plan(&bed, text);
    let (json, path) = file(&bed, "r.json");
    command(&bed, &[&plan, "--json", &path])
        .env("PATH", path_variable)
        .said()
        .done();
    let document: Value = serde_json::from_str(&read(&json)).expect("JSON");
    assert_eq!(
        row(&document, 1, "MPS")["median"],
        9.0,
        "MPS alone has no priorities"
    );
    assert_eq!(
        row(&document, 1, "MPS, off")["median"],
        0.0,
        "run maps ours to MPS's"
    );
    let under_mps =
        ["MPS", "MPS, off", "without"].map(|name| row(&document, 0, name)["median"].as_f64());
    assert_eq!(under_mps, [Some(1.0), Some(1.0), Some(0.0)]);
    let record = read(&bin.join("record"));
    let asked = |what: &str| record.lines().filter(|line| line.starts_with(what)).count();
    assert_eq!(asked("-d"), 3, "{record}");
    assert!(asked("quit") >= 3, "{record}");
}

#[test]
fn a_device_that_the_user_chose_is_the_one_under_mps_too() {
    artifact("gpushare-sim-mps");
    let bed = Testbed::with_scenario("two-gpus");
    let workload = artifact("gpushare-workload");
    let text = format!(
        r#"
scenario = "two-gpus"
seconds = 1
repeats = 1
[[program]]
name = "p"
command = ["{}", "--seconds=0.2"]
figures = [{{ name = "launches", pattern = '([0-9]+) launches', better = "higher" }}]
[[condition]]
mps = true
"#,
        workload.display()
    );
    let plan = plan(&bed, &text);
    let (json, path) = file(&bed, "r.json");
    command(&bed, &[&plan, "--sim", "--json", &path])
        .env("CUDA_VISIBLE_DEVICES", "1")
        .said()
        .done();
    let document: Value = serde_json::from_str(&read(&json)).expect("JSON");
    assert!(row(&document, 0, "MPS")["median"].as_f64() > Some(0.0));
}

#[test]
fn the_mps_of_an_experiment_that_was_killed_is_stopped_by_the_next_one() {
    let bed = Testbed::new();
    let (bin, path) = control(&bed);
    let text = endless("86451").replace("name = \"long\"", "name = \"long\"\nmps = true");
    let plan = plan(&bed, &text);
    let killed = Watched::spawn(command(&bed, &[&plan, "--only", "long"]).env("PATH", &path));
    eventually("it runs", LIMIT, || running("sleep\x0086451") >= 2);
    let daemon = || running(&bin.display().to_string());
    // After the kill, an experiment of any concurrent test may be the one that stops it.
    assert!(daemon() > 0);
    killed.signal(Signal::KILL);
    killed.wait_output();
    eventually("its programs end", LIMIT, || running("86451") == 0);
    let next = command(&bed, &[&plan, "--only", "short"])
        .env("PATH", &path)
        .output();
    assert!(next.expect("it is built").status.success());
    eventually("its daemon ends", LIMIT, || daemon() == 0);
}

#[test]
fn a_reader_that_goes_away_costs_no_file() {
    let bed = Testbed::new();
    let plan = plan(&bed, &endless("86461").replace("-z $LONG", "1"));
    let (csv, path) = file(&bed, "r.csv");
    let mut child = command(&bed, &[&plan, "--csv", &path])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it is built");
    // Before the table is written.
    drop(child.stdout.take());
    child.wait().expect("it ends");
    assert_eq!(read(&csv).lines().count(), 3, "a head and two conditions");
}

/// Returns a plan with two conditions: the first gives a figure, and the second runs until it is ended and starts a process
/// that leaves its session. The word marks all its processes.
fn endless(word: &str) -> String {
    format!(
        r#"
seconds = 1
repeats = 1
[[program]]
name = "p"
command = ["sh", "-c", "echo x=1; [ -z $LONG ] || {{ setsid sleep {word} & trap '' TERM; sleep {word}; sleep {word}; }}"]
figures = [{{ name = "x", pattern = 'x=(\d)', better = "lower" }}]
[[condition]]
name = "short"
[[condition]]
name = "long"
env = {{ LONG = "1" }}
"#
    )
}

#[test]
fn an_interrupted_experiment_ends_its_programs_and_keeps_what_was_measured() {
    let bed = Testbed::new();
    // Either condition may come first in the first round.
    for (signal, name, word) in [
        (Signal::INT, "SIGINT", "86421"),
        (Signal::HUP, "SIGHUP", "86422"),
    ] {
        let plan = plan(&bed, &endless(word));
        let (json, path) = file(&bed, "r.json");
        let running_one = Watched::spawn(&mut command(&bed, &[&plan, "--json", &path]));
        let pid = running_one.pid();
        // The shell, its orphan and its child run behind a guard process.
        eventually("it runs", LIMIT, || running(&format!("sleep\0{word}")) >= 2);
        running_one.signal(signal);
        let output = running_one.wait_output();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(&format!("ended by {name}")), "{errors}");
        assert_eq!(running(word), 0);
        assert_eq!(stages(pid), 0);
        let document: Value = serde_json::from_str(&read(&json)).expect("JSON");
        assert_eq!(document["interrupted_by"], name);
    }
}

#[test]
fn what_was_measured_before_a_kill_is_in_the_files() {
    let bed = Testbed::new();
    let (_, mark) = file(&bed, "mark");
    // The first run gives a figure, and the second does not end.
    let text = format!(
        r#"
seconds = 1
repeats = 1
[[program]]
name = "p"
command = ["sh", "-c", "echo x=1; [ ! -e {mark} ] || sleep 86433; touch {mark}"]
figures = [{{ name = "x", pattern = 'x=(\d)', better = "lower" }}]
[[condition]]
name = "one"
[[condition]]
name = "two"
"#
    );
    let plan = plan(&bed, &text);
    let [(json, json_path), (csv, csv_path)] = ["r.json", "r.csv"].map(|name| file(&bed, name));
    let args = [&plan, "--json", &json_path, "--csv", &csv_path];
    let killed = Watched::spawn(&mut command(&bed, &args));
    eventually("the second runs", LIMIT, || running("sleep\x0086433") >= 1);
    killed.signal(Signal::KILL);
    killed.wait_output();
    let document: Value = serde_json::from_str(&read(&json)).expect("JSON");
    let rows = document["figures"][0]["conditions"].as_array();
    let medians = rows.expect("two rows").iter().map(|row| &row["median"]);
    assert_eq!(medians.filter(|median| median.is_null()).count(), 1);
    assert!(read(&csv).contains(",1"), "{}", read(&csv));
    eventually("its programs end", LIMIT, || running("86433") == 0);
}

#[test]
fn an_experiment_killed_outright_leaves_nothing_running_and_the_next_one_sweeps() {
    let bed = Testbed::new();
    let plan = plan(&bed, &endless("86431"));
    let killed = Watched::spawn(&mut command(&bed, &[&plan]));
    let pid = killed.pid();
    eventually("it runs", LIMIT, || running("sleep\x0086431") >= 2);
    killed.signal(Signal::KILL);
    killed.wait_output();
    eventually("its programs end", LIMIT, || running("86431") == 0);
    let other = self::plan(&bed, &endless("86432").replace("-z $LONG", "1"));
    experiment(&bed, &[&other]).done();
    assert_eq!(stages(pid), 0);
}

#[test]
fn a_program_that_fails_is_named_with_its_last_words_and_the_others_go_on() {
    let bed = Testbed::new();
    let text = r#"
seconds = 1
repeats = 2
timeout = "2s"
[[program]]
name = "p"
command = ["sh", "-c", "echo x=1; [ -z $BAD ] || { echo much; echo no module named torch >&2; exit 3; }; [ -z $LATE ] || sleep 86441"]
figures = [{ name = "x", pattern = 'x=(\d)', better = "lower" }]
[[condition]]
[[condition]]
name = "bad"
env = { BAD = "1" }
[[condition]]
name = "late"
env = { LATE = "1" }
"#;
    let plan = plan(&bed, text);
    let said = experiment(&bed, &[&plan]).refused(
        1,
        &[
            "bad: p ended with exit code 3: no module named torch",
            "late: p had not ended after 2 s",
            "4 of 6 runs failed",
        ],
    );
    assert!(said.out.contains("bad: 2 of 2 runs failed"), "{}", said.out);
    assert_eq!(running("86441"), 0);
    let nothing = self::plan(&bed, &text.replace("echo x=1", "echo y=1"));
    let said = experiment(&bed, &[&nothing])
        .refused(1, &["no condition gave a figure in the first round"]);
    assert_eq!(
        said.err.matches("no line of its output matches").count(),
        2,
        "{}",
        said.err
    );
}

#[test]
fn a_client_that_fails_is_named_with_the_server_that_died_under_it() {
    let bed = Testbed::new();
    let text = r#"
seconds = 1
repeats = 1
[[program]]
name = "client"
command = ["sh", "-c", "echo the connection was reset >&2; exit 1"]
figures = [{ name = "x", pattern = 'x=(\d)', better = "lower" }]
[[program]]
name = "server"
command = ["sh", "-c", "sleep 0.3; echo out of memory >&2; exit 2"]
[[condition]]
"#;
    experiment(&bed, &[&plan(&bed, text)]).refused(
        1,
        &["client ended with exit code 1: the connection was reset; \
             server ended with exit code 2: out of memory"],
    );
}

#[test]
fn the_programs_of_all_conditions_take_turns_if_the_experiment_switches() {
    let bed = Testbed::new();
    let (ticks, path) = file(&bed, "ticks");
    let text = format!(
        r#"
seconds = 1
repeats = 2
[[program]]
name = "p"
command = ["sh", "-c", "echo ready; until [ -e $START_FILE ]; do sleep 0.01; done; end=$(($(date +%s) + $0 + 1)); while [ $(date +%s) -lt $end ]; do echo $NAME >> {path}; sleep 0.01; done; for i in $(seq $ROUNDS); do echo x=$0; done", "{{seconds}}"]
ready = "^ready"
figures = [{{ name = "x", pattern = 'x=(\d)', better = "lower" }}]
[[condition]]
name = "one"
env = {{ NAME = "one" }}
[[condition]]
name = "two"
env = {{ NAME = "two" }}
"#
    );
    let plan = plan(&bed, &text);
    let said = experiment(&bed, &[&plan, "--json", "-", "--switch", "0.5"]).done();
    let document: Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!(document["switch"], 0.5);
    for condition in ["one", "two"] {
        let row = row(&document, 0, condition);
        assert_eq!(
            row["samples"],
            json!([4.0, 4.0]),
            "each runs for the time of both"
        );
    }
    let said = read(&ticks);
    let ticks: Vec<&str> = said.lines().collect();
    let turns: Vec<&[&str]> = ticks.chunk_by(|one, other| one == other).collect();
    let long = turns
        .iter()
        .filter(|turn| turn.len() >= 5)
        .map(|turn| turn[0]);
    let long: Vec<&str> = long.collect();
    for name in ["one", "two"] {
        let count = long.iter().filter(|turn| **turn == name).count();
        assert!(count >= 2, "{name} had {count} turns to itself: {ticks:?}");
    }
    for (switch, repeats, why) in [
        ("3", "2", "must be whole turns of 3 s"),
        ("0.4", "2", "must be whole turns of 0.4 s"),
        ("0.5", "1", "one round is too few"),
    ] {
        let words = [&plan, "--switch", switch, "--repeats", repeats];
        experiment(&bed, &words).refused(2, &["--switch: ", why]);
    }
    let words = [&plan, "--json", "-", "--switch", "0.5", "--copies", "2"];
    let said = experiment(&bed, &words).done();
    let document: Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!(document["copies"], 2);
    let rounds_of = |condition: &str| -> Vec<u64> {
        let runs = document["runs"].as_array().expect("runs").iter();
        let runs = runs.filter(|run| run["condition"] == condition);
        runs.map(|run| run["round"].as_u64().expect("a number"))
            .collect()
    };
    for condition in ["one", "two"] {
        assert_eq!(rounds_of(condition), [0, 1, 2, 3]);
        let samples = &row(&document, 0, condition)["samples"];
        assert_eq!(*samples, json!([8.0, 8.0, 8.0, 8.0]));
    }
    experiment(&bed, &[&plan, "--copies", "2"]).refused(2, &["--switch"]);
    let unready = self::plan(&bed, &text.replace("ready = \"^ready\"", ""));
    experiment(&bed, &[&unready, "--switch", "0.5"]).refused(2, &["p has no ready ="]);
}

#[test]
fn a_wrong_plan_is_refused_with_its_line_before_anything_runs() {
    let bed = Testbed::new();
    let good = "seconds = 1\n[[program]]\nname = 'p'\ncommand = ['touch', 'ran']\n\
                figures = [{ name = 'x', pattern = '(x)', better = 'lower' }]\n[[condition]]\n";
    for (text, words) in [
        (
            good.replace("touch", "no-such-program"),
            "plan.toml:4: cannot run",
        ),
        (
            good.replace("(x)", "x"),
            "plan.toml:5: pattern \"x\" has no group",
        ),
        (
            good.replace("[[condition]]", "[[condition]]\npolicy = 'slice=1'"),
            "plan.toml:7: policy: ",
        ),
        (
            good.replace("seconds = 1", "seconds = 1\nspeed = 1"),
            "plan.toml:2: unknown field `speed`",
        ),
    ] {
        let plan = plan(&bed, &text);
        experiment(&bed, &[&plan]).refused(2, &[words]);
    }
    let plan = plan(&bed, good);
    experiment(&bed, &[&plan, "--sim"]).refused(2, &["has no scenario"]);
    experiment(&bed, &[&plan, "--only", "none"]).refused(2, &["--only"]);
    experiment(&bed, &[&plan, "--json", "/no/such/place"]).refused(1, &["/no/such/place"]);
    assert!(!bed.dir().join("ran").exists());
}
