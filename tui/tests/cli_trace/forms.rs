//! Traces of running, stopped, ended and killed workloads, in each form.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use gpushare_testbed::{Testbed, Watched, eventually};
use serde_json::Value;

use crate::cli_support::Run as _;
use crate::support::{
    LIMIT, check, events, export, gpushare, launches, of_call, operators, spin, start,
};

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

    // While the workload runs.
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
    gpushare(&bed, &["trace", "rm", "all"]).refused(1, &["still being traced", "trace stop"]);

    // After the trace was stopped: nothing more is written, and the file stays.
    let said = gpushare(&bed, &["trace", "stop", &workload.pid().to_string()]).done();
    assert!(said.out.contains("records"), "{said:?}");
    assert!(workload.ask("launch 10 5").starts_with("ok"));
    let (document, _) = export(&bed, "name:w", &file);
    assert_eq!(of_call(&document, "cuLaunchKernel").len(), 7);
    eventually("all launches are counted", LIMIT, || {
        launches(&bed, "w") == 13
    });
    gpushare(&bed, &["trace", "stop", "all"]).refused(5, &["no process of", "trace show"]);

    // After the end of the process: found by name, by pid, and by the file itself.
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
    let file = bed.dir().join("both.json");
    let (document, _) = export(&bed, "all", &file);
    check(&document);
    assert!(
        operators(&document).any(|name| name.contains("trace off")),
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
    assert!(launched > 0);
    // The counts are published a moment later.
    eventually("ps counts them too", LIMIT, || {
        launches(&bed, "a") >= before + launched
    });

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
fn an_edit_after_the_last_call_is_in_the_document_for_the_trace_went_on() {
    let bed = Testbed::with_scenario("one-gpu");
    let mut workload = start(&bed, "w");
    gpushare(&bed, &["trace", "start", "all"]).done();
    assert!(workload.ask("launch 10 3").starts_with("ok"));
    assert!(workload.ask("sync").starts_with("ok"));
    gpushare(&bed, &["quota", "set", "name:w", "7GiB"]).done();
    gpushare(&bed, &["trace", "stop", "all"]).done();
    gpushare(&bed, &["quota", "set", "name:w", "6GiB"]).done();
    let (document, _) = export(&bed, "all", &bed.dir().join("t.json"));
    check(&document);
    let told: Vec<&str> = operators(&document).collect();
    assert!(
        told.iter().any(|name| name.ends_with("quota 7GiB")),
        "{told:?}"
    );
    assert!(
        !told.iter().any(|name| name.ends_with("quota 6GiB")),
        "{told:?}"
    );
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
    command.env("PFLOG", &dir).said().done();
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
        said.out.contains("1000 records, ") && said.out.contains("did not fit"),
        "{said:?}"
    );
    let (document, said) = export(&bed, "all", &bed.dir().join("full.json"));
    assert!(
        said.err.contains("did not fit in its buffer of 1000"),
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
fn trace_show_has_whole_names_in_a_pipe() {
    let bed = Testbed::with_scenario("one-gpu");
    let name = "serve-llama-3-70b-instruct-of-team-blue-0";
    let _workload = start(&bed, name);
    gpushare(&bed, &["trace", "start", "all"]).done();
    let shown = gpushare(&bed, &["trace", "show"]).done();
    assert!(shown.out.contains(name), "{shown:?}");
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
fn a_trace_for_a_while_is_ended_early_by_the_key_that_ends_programs() {
    let bed = Testbed::with_scenario("one-gpu");
    let mut workload = start(&bed, "w");
    let mut command = bed.gpushare(&["trace", "start", "all", "--for", "10m"]);
    let mut tracing = Watched::spawn(&mut command);
    assert!(tracing.line().contains("traced"));
    assert!(workload.ask("launch 10 3").starts_with("ok"));
    tracing.signal(rustix::process::Signal::INT);
    let output = tracing.wait_output();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let shown = gpushare(&bed, &["trace", "show", "--json"]).done().json();
    assert_eq!(shown["traces"][0]["state"], "stopped");
}
