//! `gpushare trace` on the simulated GPU: begun and ended while a workload runs, and read in every form.

mod cli_support;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use cli_support::Said;
use gpushare_testbed::{Testbed, Watched, artifact, eventually};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

fn gpushare(bed: &Testbed, args: &[&str]) -> Said {
    bed.gpushare(args).output().expect("it is built").into()
}

/// A workload on a string, under this name.
fn start(bed: &Testbed, name: &str) -> Watched {
    let mut command = bed.gpushare(&["run", "--name", name, "--"]);
    command.arg(artifact("gpushare-workload")).arg("--script");
    let mut watched = Watched::spawn(&mut command);
    assert!(watched.line().starts_with("ready"));
    watched
}

/// A workload that works by itself.
fn spin(bed: &Testbed, name: &str) -> Watched {
    let mut command = bed.gpushare(&["run", "--name", name, "--"]);
    command
        .arg(artifact("gpushare-workload"))
        .args(["--kernel-us=500", "--seconds=60"]);
    Watched::spawn(&mut command)
}

fn launches(bed: &Testbed, name: &str) -> u64 {
    let ps = gpushare(bed, &["ps", "--json"]).done().json();
    let processes = ps["processes"].as_array().expect("a list").clone();
    let own = processes.iter().find(|process| process["name"] == name);
    own.and_then(|process| process["devices"][0]["launches"].as_u64())
        .unwrap_or(0)
}

fn export(bed: &Testbed, subject: &str, file: &Path) -> (Value, Said) {
    let path = file.display().to_string();
    let said = gpushare(bed, &["trace", "export", subject, "-o", &path]).done();
    let text = fs::read_to_string(file).expect("written");
    (serde_json::from_str(&text).expect("JSON"), said)
}

fn events(document: &Value) -> &Vec<Value> {
    document["traceEvents"].as_array().expect("a list")
}

fn number(event: &Value, key: &str) -> f64 {
    event[key]
        .as_f64()
        .unwrap_or_else(|| panic!("{key} in {event}"))
}

/// What Perfetto insists on: known phases, no time below zero, and on each lane spans that are apart or
/// one within the other, the outer one first.
fn check(document: &Value) {
    let mut lanes: HashMap<(u64, u64), Vec<(f64, f64)>> = HashMap::new();
    let mut named = HashSet::new();
    let mut met = HashSet::new();
    for event in events(document) {
        let lane = (
            event["pid"].as_u64().expect("a pid"),
            event["tid"].as_u64().expect("a tid"),
        );
        match event["ph"].as_str().expect("a phase") {
            "M" if event["name"] == "thread_name" => {
                assert!(named.insert(lane), "named twice: {event}");
            }
            "M" | "i" => {}
            "X" => {
                assert!(
                    number(event, "ts") >= 0.0 && number(event, "dur") >= 0.0,
                    "{event}"
                );
                let span = (
                    number(event, "ts"),
                    number(event, "ts") + number(event, "dur"),
                );
                lanes.entry(lane).or_default().push(span);
                met.insert(lane);
            }
            other => panic!("{other} is no phase of ours: {event}"),
        }
    }
    assert!(met.is_subset(&named), "lanes without a name");
    // Times are given to the nanosecond; sums of them are not exact.
    const EXACT: f64 = 0.01;
    for (lane, mut spans) in lanes {
        // Stable: of two that begin together the one that was written first stays first.
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut open: Vec<(f64, f64)> = Vec::new();
        for span in spans {
            while open.last().is_some_and(|outer| outer.1 <= span.0 + EXACT) {
                open.pop();
            }
            if let Some(outer) = open.last() {
                assert!(
                    span.1 <= outer.1 + EXACT,
                    "{lane:?}: {span:?} reaches out of {outer:?}"
                );
            }
            open.push(span);
        }
    }
}

fn of_call<'d>(document: &'d Value, call: &str) -> Vec<&'d Value> {
    events(document)
        .iter()
        .filter(|event| {
            event["cat"] == "call"
                && event["name"]
                    .as_str()
                    .is_some_and(|name| name.starts_with(call))
        })
        .collect()
}

#[test]
fn a_running_workload_is_traced_exported_and_let_go() {
    let bed = Testbed::with_scenario("one-gpu");
    let mut workload = start(&bed, "w");
    assert!(workload.ask("launch 10").starts_with("ok"));
    let said = gpushare(&bed, &["trace", "start", "name:w", "--records", "5000"]).done();
    assert!(
        said.out.contains("traced, room for 5000 records"),
        "{said:?}"
    );
    gpushare(&bed, &["trace", "start", "name:w"]).refused(1, &["traced already"]);
    for command in ["alloc 4M", "launch 10 7", "sync"] {
        assert!(workload.ask(command).starts_with("ok"), "{command}");
    }

    // While it goes on.
    let file = bed.dir().join("t.json");
    let (document, said) = export(&bed, "name:w", &file);
    check(&document);
    assert!(said.err.contains(&file.display().to_string()), "{said:?}");
    assert_eq!(
        of_call(&document, "cuLaunchKernel").len(),
        7,
        "those of the trace, not the one before"
    );
    let alloc = of_call(&document, "cuMemAlloc");
    assert_eq!(alloc[0]["args"]["bytes"], 4 << 20);
    assert_eq!(alloc[0]["pid"], workload.pid());
    let shown = gpushare(&bed, &["trace", "show", "--json"]).done().json();
    assert_eq!(shown["traces"][0]["state"], "on");
    assert_eq!(shown["traces"][0]["capacity"], 5000);
    gpushare(&bed, &["trace", "rm", "all"]).refused(1, &["is being traced", "trace stop"]);

    // After it was stopped: nothing more is written, and what was stays.
    let said = gpushare(&bed, &["trace", "stop", &workload.pid().to_string()]).done();
    assert!(said.out.contains("records"), "{said:?}");
    assert!(workload.ask("launch 10 5").starts_with("ok"));
    let (document, _) = export(&bed, "name:w", &file);
    assert_eq!(of_call(&document, "cuLaunchKernel").len(), 7);
    eventually("all launches are counted", LIMIT, || {
        launches(&bed, "w") == 13
    });
    gpushare(&bed, &["trace", "stop", "all"]).refused(5, &["nobody", "trace show"]);

    // After the process has ended: by its name, its pid, and the file itself.
    let pid = workload.pid().to_string();
    let kept =
        gpushare(&bed, &["trace", "show", "--json"]).done().json()["traces"][0]["file"].clone();
    workload.close_input();
    workload.wait_output();
    let kept = kept.as_str().expect("a path");
    for subject in ["name:w", &pid, kept] {
        let (document, _) = export(&bed, subject, &file);
        check(&document);
        assert_eq!(of_call(&document, "cuLaunchKernel").len(), 7, "{subject}");
    }
    eventually("it is known to have ended", LIMIT, || {
        gpushare(&bed, &["trace", "show", "--json"]).done().json()["traces"][0]["state"] == "ended"
    });
    gpushare(&bed, &["trace", "rm", "name:w"]).done();
    assert!(!Path::new(kept).exists());
    gpushare(&bed, &["trace", "export"]).refused(5, &["no trace here"]);
}

#[test]
fn two_that_contend_are_in_one_document_with_their_holds_and_waits() {
    let bed = Testbed::with_scenario("one-gpu");
    let _two = [spin(&bed, "a"), spin(&bed, "b")];
    eventually("both work", LIMIT, || {
        launches(&bed, "a") > 0 && launches(&bed, "b") > 0
    });
    gpushare(
        &bed,
        &["policy", "set", "all", "timeslice=5ms", "order=fair"],
    )
    .done();
    let before = launches(&bed, "a");
    let said = gpushare(&bed, &["trace", "start", "all", "--for", "1s"]).done();
    assert_eq!(
        said.out.lines().count(),
        4,
        "two begun, two ended: {said:?}"
    );
    let after = launches(&bed, "a");
    let file = bed.dir().join("both.json");
    let (document, _) = export(&bed, "all", &file);
    check(&document);
    let edits = events(&document)
        .iter()
        .filter(|event| event["cat"] == "operator");
    let told = |event: &Value| {
        event["name"]
            .as_str()
            .is_some_and(|name| name.contains("trace off"))
    };
    assert!(
        edits.into_iter().any(told),
        "the edit that ended the first is within the second"
    );
    let pids: HashSet<u64> = of_call(&document, "cuLaunchKernel")
        .iter()
        .filter_map(|event| event["pid"].as_u64())
        .collect();
    assert_eq!(pids.len(), 2);
    let of = |cat: &str, beyond: bool| {
        let is = |event: &&Value| {
            event["cat"] == cat && (event["pid"].as_u64() > Some(1 << 22)) == beyond
        };
        events(&document).iter().filter(is).count()
    };
    for (cat, beyond) in [
        ("hold", false),
        ("wait", false),
        ("hold", true),
        ("wait", true),
    ] {
        assert!(of(cat, beyond) >= 2, "{cat} {beyond}");
    }
    let traced = &document["otherData"]["processes"];
    let own = traced
        .as_array()
        .expect("a list")
        .iter()
        .find(|process| process["name"] == "a");
    let pid = own.expect("it was traced")["pid"].as_u64();
    let launched = of_call(&document, "cuLaunchKernel")
        .iter()
        .filter(|event| event["pid"].as_u64() == pid)
        .count() as u64;
    assert!(
        launched > 0 && launched <= after - before,
        "{launched} of {}",
        after - before
    );

    let stats = gpushare(&bed, &["trace", "stats", "name:a", "--json"])
        .done()
        .json();
    let calls = stats["calls"].as_array().expect("a list");
    let launch = calls
        .iter()
        .find(|call| call["call"] == "cuLaunchKernel")
        .expect("made");
    assert_eq!(launch["calls"], launched, "the table and the records agree");
    assert!(launch["waited_ns"].as_u64() > Some(0), "{launch}");
    assert!(launch["longest_ns"].as_u64() <= launch["total_ns"].as_u64());
    let table = gpushare(&bed, &["trace", "stats", "all", "--sort", "calls"])
        .done()
        .out;
    assert!(table.contains("cuLaunchKernel"), "{table}");
}

#[test]
fn alnairs_logs_are_written_in_both_forms() {
    let bed = Testbed::with_scenario("one-gpu");
    let mut workload = start(&bed, "w");
    gpushare(&bed, &["trace", "start", "all"]).done();
    for command in ["alloc 4M", "launch 10 3", "sync"] {
        assert!(workload.ask(command).starts_with("ok"), "{command}");
    }
    gpushare(&bed, &["trace", "stop", "all"]).done();
    let dir = bed.dir().join("profile");
    let mut command = bed.gpushare(&["trace", "export", "--format", "alnair"]);
    Said::from(command.env("PFLOG", &dir).output().expect("built")).done();
    let metrics = fs::read_to_string(dir.join("metrics.log")).expect("written");
    let lines: Vec<&str> = metrics.lines().collect();
    assert_eq!(lines.len() % 3, 0, "{metrics}");
    let at = lines
        .iter()
        .position(|line| *line == "name:cuLaunchKernel")
        .expect("always listed");
    assert_eq!(lines[at + 1], "count:3");
    assert!(
        lines[at + 2]
            .strip_prefix("burst:")
            .is_some_and(|us| us.parse::<u64>().is_ok())
    );
    let timeline = fs::read_to_string(dir.join("timeline.log")).expect("written");
    let mut launches = 0;
    for line in timeline.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, start, burst] = words[..] else {
            panic!("{line}")
        };
        launches += u32::from(name == "name:cuLaunchKernel");
        let start: u64 = start
            .strip_prefix("start:")
            .and_then(|ns| ns.parse().ok())
            .expect(line);
        let age = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH + Duration::from_nanos(start))
            .expect("it was before");
        assert!(age < Duration::from_secs(600), "{line}");
        assert!(
            burst
                .strip_prefix("burst:")
                .is_some_and(|us| us.parse::<u64>().is_ok()),
            "{line}"
        );
    }
    assert_eq!(launches, 3);

    let old = bed.dir().join("old").display().to_string();
    let words = [
        "trace",
        "export",
        "name:w",
        "--format",
        "alnair",
        "--alnair-layout",
        "old",
        "-o",
        &old,
    ];
    gpushare(&bed, &words).done();
    let metrics = fs::read_to_string(Path::new(&old).join("metrics.log")).expect("written");
    assert!(metrics.contains("\nkernel-cnt:3\n"), "{metrics}");
    assert!(
        metrics.contains(&format!("\nmem-used:{}\n", 4 << 20)),
        "{metrics}"
    );
    let log = fs::read_to_string(Path::new(&old).join("pf.log")).expect("written");
    assert_eq!(
        log.matches("name:cuLaunchKernel\nstart:").count(),
        3,
        "{log}"
    );
}

#[test]
fn a_full_buffer_is_said_and_the_counts_go_on() {
    let bed = Testbed::with_scenario("one-gpu");
    let mut workload = start(&bed, "w");
    gpushare(&bed, &["trace", "start", "all", "--records", "1000"]).done();
    assert!(workload.ask("launch 1 1500").starts_with("ok"));
    assert!(workload.ask("sync").starts_with("ok"));
    let said = gpushare(&bed, &["trace", "stop", "all"]).done();
    assert!(
        said.out.contains("1000 records, ") && said.out.contains("found no room"),
        "{said:?}"
    );
    let (document, said) = export(&bed, "all", &bed.dir().join("full.json"));
    assert!(
        said.err.contains("found no room in its buffer of 1000"),
        "{said:?}"
    );
    let account = &document["otherData"]["processes"][0];
    assert_eq!(account["records"], 1000);
    assert!(account["dropped"].as_u64() >= Some(500), "{account}");
    let stats = gpushare(&bed, &["trace", "stats", "--json"]).done().json();
    let calls = stats["calls"].as_array().expect("a list");
    let launch = calls
        .iter()
        .find(|call| call["call"] == "cuLaunchKernel")
        .expect("made");
    assert_eq!(launch["calls"], 1500);
}

#[test]
fn csv_has_a_row_for_each_record() {
    let bed = Testbed::with_scenario("one-gpu");
    let mut workload = start(&bed, "w");
    gpushare(&bed, &["trace", "start", "all", "--buffer", "1MiB"]).done();
    gpushare(&bed, &["quota", "set", "all", "1M"]).done();
    assert!(workload.ask("alloc 2M").starts_with("error 2 "));
    assert!(workload.ask("launch 10 2").starts_with("ok"));
    let said = gpushare(&bed, &["trace", "export", "all", "--format", "csv"]).done();
    let mut rows = said.out.lines();
    let heads: Vec<&str> = rows.next().expect("headings").split(',').collect();
    let at = |name: &str| heads.iter().position(|head| *head == name).expect(name);
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split(',').collect()).collect();
    let denials: Vec<_> = rows
        .iter()
        .filter(|row| row[at("kind")] == "denial")
        .collect();
    assert_eq!(denials.len(), 1, "{said:?}");
    assert_eq!(denials[0][at("bytes")], (2 << 20).to_string());
    assert_eq!(denials[0][at("gpu")], "gpu0");
    let launches = rows
        .iter()
        .filter(|row| row[at("call")] == "cuLaunchKernel");
    assert_eq!(launches.filter(|row| row[at("kind")] == "call").count(), 2);
}

#[test]
fn a_trace_of_a_killed_process_is_whole_as_far_as_it_goes() {
    let bed = Testbed::with_scenario("one-gpu");
    let workload = spin(&bed, "w");
    eventually("it works", LIMIT, || launches(&bed, "w") > 0);
    gpushare(&bed, &["trace", "start", "all"]).done();
    let before = launches(&bed, "w");
    eventually("it goes on", LIMIT, || launches(&bed, "w") > before + 10);
    let pid = workload.pid().to_string();
    workload.signal(rustix::process::Signal::KILL);
    workload.wait_output();
    let (document, _) = export(&bed, &pid, &bed.dir().join("killed.json"));
    check(&document);
    assert!(of_call(&document, "cuLaunchKernel").len() > 5);
}

#[test]
fn wrong_words_and_wrong_files_change_nothing() {
    let bed = Testbed::with_scenario("one-gpu");
    let _workload = start(&bed, "w");
    let ask = |words: &[&str]| gpushare(&bed, &[&["trace"], words].concat());
    ask(&["start", "name:nobody"]).refused(5, &["nobody"]);
    ask(&["start", "everybody"]).refused(2, &["everybody", "pid"]);
    for (option, value, word) in [
        ("--records", "0", "between 1000 and 4000000"),
        ("--records", "many", "--records"),
        ("--buffer", "1K", "out of range"),
        ("--buffer", "1T", "out of range"),
        ("--buffer", "8Q", "unit"),
        ("--for", "0s", "--for"),
        ("--for", "5", "unit"),
    ] {
        ask(&["start", "all", option, value]).refused(2, &[word]);
    }
    ask(&["stop", "name:w"]).refused(5, &["being traced"]);
    ask(&["export", "name:w", "-o", "-"]).refused(5, &["no trace of", "trace start"]);
    ask(&["stats", "/nonexistent/trace"]).refused(2, &["no file"]);
    ask(&["export", "--format", "alnair"]).refused(2, &["-o", "PFLOG"]);
    let shown = ask(&["show", "--json"]).done().json();
    assert_eq!(shown["traces"], serde_json::json!([]), "nothing was begun");
    let generation = gpushare(&bed, &["policy", "show", "--json"]).done().json();
    assert_eq!(generation["generation"], 0, "nothing was changed");

    ask(&["start", "all"]).done();
    ask(&["stop", "all"]).done();
    let path = ask(&["show", "--json"]).done().json()["traces"][0]["file"].clone();
    let whole = fs::read(path.as_str().expect("a path")).expect("ours");
    let file = bed.dir().join("copy");
    let named = file.display().to_string();
    let out = bed.dir().join("out.json").display().to_string();
    for (content, word) in [
        (&whole[..whole.len() / 2], "size is not what it says"),
        (&whole[..100], "cut short"),
        (
            &b"not a trace\n".repeat(20_000)[..],
            "does not begin like one",
        ),
    ] {
        fs::write(&file, content).expect("ours");
        ask(&["export", &named, "-o", &out]).refused(1, &["copy", word]);
        assert!(!Path::new(&out).exists());
    }
    fs::write(&file, &whole).expect("ours");
    ask(&["export", &named, "-o", &out]).done();
    let written = fs::read(&out).expect("written");
    for (place, code) in [("/proc/trace.json", 1), ("/nonexistent/trace.json", 1)] {
        let said = ask(&["export", &named, "-o", place]);
        assert!(said.code == code || said.code == 4, "{said:?}");
        assert!(said.err.contains(place), "{said:?}");
    }
    fs::write(&file, &whole[..100]).expect("ours");
    ask(&["export", &named, "-o", &out]).refused(1, &["cut short"]);
    assert_eq!(fs::read(&out).expect("as it was"), written);
}

/// `gpushare run --trace FILE -- …` with a workload on a string.
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
    // What the program starts is traced as well: here it is a child of a shell.
    let script = "\"$0\" --script; exit 42";
    let mut workload = start_traced(&bed, &file, &["sh", "-c", script, &program]);
    eventually("it is seen and traced", LIMIT, || is_traced(&bed));
    for command in ["alloc 4M", "launch 10 7", "sync"] {
        assert!(workload.ask(command).starts_with("ok"), "{command}");
    }
    workload.close_input();
    let output = workload.wait_output();
    assert_eq!(output.status.code(), Some(42), "{output:?}");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.contains("ui.perfetto.dev"), "{words}");
    let text = fs::read_to_string(&file).expect("written");
    let document = serde_json::from_str(&text).expect("JSON");
    check(&document);
    assert_eq!(of_call(&document, "cuLaunchKernel").len(), 7);
    let shown = gpushare(&bed, &["trace", "show", "--json"]).done().json();
    assert_eq!(shown["traces"], serde_json::json!([]), "the buffer is gone");
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
    let said = run(&file);
    assert_eq!(said.code, 0, "how the program ended counts: {said:?}");
    assert!(said.err.contains("no trace was written"), "{said:?}");
    assert!(Path::new(&mark).exists() && !Path::new(&file).exists());
}
