//! `gpushare run --trace FILE`: traced from the program's start, written at its end.

use std::fs;
use std::path::Path;

use gpushare_testbed::{Testbed, Watched, artifact, eventually};

use crate::cli_support::Run as _;
use crate::support::{LIMIT, check, gpushare, of_call};

/// Starts `gpushare run --trace FILE -- …` with a scripted workload.
fn start_traced(bed: &Testbed, file: &Path, program: &[&str]) -> Watched {
    let path = file.display().to_string();
    let mut command = bed.gpushare(&["run", "--name", "w", "--trace", &path, "--"]);
    command.args(program);
    let mut watched = Watched::spawn(&mut command);
    assert!(watched.line().starts_with("ready"));
    watched
}

fn is_traced(bed: &Testbed) -> bool {
    let shown = gpushare(bed, &["trace", "show", "--json"]).done().json();
    shown["traces"][0]["state"] == "on"
}

#[test]
fn a_program_run_with_trace_leaves_the_file_and_nothing_else() {
    let bed = Testbed::with_scenario("one-gpu");
    let file = bed.dir().join("run.json");
    let program = artifact("gpushare-workload").display().to_string();
    // Child processes are traced as well; here the workload is a child of a shell.
    let script = "\"$0\" --script; exit 42";
    let mut workload = start_traced(&bed, &file, &["sh", "-c", script, &program]);
    eventually("it is seen and traced", LIMIT, || is_traced(&bed));
    for command in ["alloc 4M", "launch 10 7", "sync"] {
        assert!(workload.ask(command).starts_with("ok"), "{command}");
    }
    gpushare(&bed, &["trace", "rm", "all"]).refused(1, &["being traced"]);
    workload.close_input();
    let output = workload.wait_output();
    assert_eq!(output.status.code(), Some(42), "{output:?}");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.contains("ui.perfetto.dev"), "{words}");
    let text = fs::read_to_string(&file).expect("written");
    let document = serde_json::from_str(&text).expect("JSON");
    check(&document);
    assert_eq!(of_call(&document, "cuLaunchKernel").len(), 7);
    assert_eq!(
        of_call(&document, "cuInit").len(),
        1,
        "from its first call on"
    );
    let shown = gpushare(&bed, &["trace", "show", "--json"]).done().json();
    assert_eq!(shown["traces"], serde_json::json!([]), "the buffer is gone");
}

#[test]
fn an_operator_may_end_a_trace_that_the_launch_asked_for() {
    let bed = Testbed::with_scenario("one-gpu");
    let file = bed.dir().join("run.json");
    let program = artifact("gpushare-workload").display().to_string();
    let mut workload = start_traced(&bed, &file, &[&program, "--script"]);
    eventually("it is seen and traced", LIMIT, || is_traced(&bed));
    assert!(workload.ask("launch 10 3").starts_with("ok"));
    // A second trace would take the first one's buffer.
    gpushare(&bed, &["trace", "start", "name:w"]).refused(1, &["being traced already"]);
    gpushare(&bed, &["trace", "stop", "name:w"]).done();
    let shown = gpushare(&bed, &["trace", "show", "--json"]).done().json();
    assert_eq!(shown["traces"][0]["state"], "stopped");
    assert!(workload.ask("launch 10 5").starts_with("ok"));
    workload.close_input();
    workload.wait_output();
    let text = fs::read_to_string(&file).expect("written");
    let document = serde_json::from_str(&text).expect("JSON");
    let launches = of_call(&document, "cuLaunchKernel");
    assert_eq!(launches.len(), 3, "nothing after the stop");
}

#[test]
fn signals_reach_a_program_run_with_trace_and_its_end_is_ours() {
    let bed = Testbed::with_scenario("one-gpu");
    let file = bed.dir().join("killed.json");
    let program = artifact("gpushare-workload").display().to_string();
    let mut workload = start_traced(&bed, &file, &[&program, "--script"]);
    eventually("it is seen and traced", LIMIT, || is_traced(&bed));
    assert!(workload.ask("launch 10 3").starts_with("ok"));
    workload.signal(rustix::process::Signal::TERM);
    // Its input stays open until then, so it ends by the signal and not by the end of input.
    eventually("the program has ended", LIMIT, || file.exists());
    let output = workload.wait_output();
    assert_eq!(output.status.code(), Some(128 + 15), "{output:?}");
    let document = serde_json::from_str(&fs::read_to_string(&file).expect("written"));
    check(&document.expect("JSON"));
}

#[test]
fn a_trace_that_cannot_be_written_keeps_the_program_from_starting() {
    let bed = Testbed::new();
    let mark = bed.dir().join("started").display().to_string();
    let run = |file: &str| gpushare(&bed, &["run", "--trace", file, "--", "touch", &mark]);
    run("/nonexistent/trace.json").refused(1, &["/nonexistent/trace.json"]);
    run(&bed.dir().display().to_string()).refused(2, &["directory"]);
    assert!(!Path::new(&mark).exists());
    let file = bed.dir().join("none.json").display().to_string();
    let mut command = bed.gpushare(&["run", "--trace", &file, "--", "touch", &mark]);
    command
        .env("GPUSHARE_TRACE", "many")
        .said()
        .refused(2, &["GPUSHARE_TRACE", "many"]);
    assert!(!Path::new(&mark).exists());
    let said = run(&file);
    assert_eq!(said.code, 0, "how the program ended counts: {said:?}");
    assert!(said.err.contains("no trace was written"), "{said:?}");
    assert!(Path::new(&mark).exists() && !Path::new(&file).exists());
}
