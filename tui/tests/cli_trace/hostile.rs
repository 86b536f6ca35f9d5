//! A trace with malicious names: exact in JSON, plain text in CSV, one line in Alnair's logs, escaped in a table.

use std::fs;
use std::path::{Path, PathBuf};

use gpushare_base::text::plain::cell;
use serde_json::Value;
use shm_layout::text::is_hidden;
use shm_layout::trace::{Buffer, Call, Guest, create};
use shm_layout::{Identity, clock};

use crate::cli_support::{Actor, World, uuid};

/// A label that acts as a formula, clears the screen, reverses the text, hides a character and forges a line.
const LABEL: &str = "=1+1\u{1b}[2J\u{202e}\u{200b}\ngpushare: x";
const EXE: &str = "/tmp/@x\u{1b}]0;x\u{7}\u{202e}\n/run";
const CALLS: [&str; 4] = [
    "+SUM(A1)\u{1b}[31m",
    "-x\n\u{202e}y",
    "@x\u{9b}2J",
    "cuInit",
];

/// Makes a world with such a trace. Returns the trace's file too.
fn world() -> (World, Actor, PathBuf) {
    let world = World::new();
    let actor = world.actor(LABEL);
    let identity = Identity {
        exe: EXE.to_owned(),
        ..Identity::of_self(LABEL)
    };
    let slot = actor.registration.slot();
    let path = create(world.dir(), slot, &identity, 4096).expect("room for a buffer");
    let guest = Guest {
        calls: &CALLS,
        devices: &[uuid(0)],
    };
    let buffer = Buffer::adopt(world.dir(), slot, guest).expect("our own");
    let start = clock::now();
    for code in 0..CALLS.len() as u16 {
        buffer.call(&Call {
            code,
            start_ns: start + u64::from(code) * 1000,
            duration_ns: 40,
            waited_ns: 0,
            bytes: 7,
            tid: 99,
            device: Some(0),
        });
    }
    (world, actor, path)
}

fn shows(text: &str) -> bool {
    !text.contains(|c| is_hidden(c) && c != '\n')
}

#[test]
fn a_chrome_export_of_hostile_names_is_json_with_the_true_names() {
    let (world, _actor, path) = world();
    // The output file has such a name too.
    let file = world.dir().join("to\u{202e}\u{1b}[2J.json");
    for subject in ["all", &path.display().to_string()] {
        let to_file = file.display().to_string();
        let said = world
            .gpushare(&["trace", "export", subject, "-o", &to_file])
            .done();
        assert!(
            shows(&said.err) && said.err.lines().count() == 1,
            "{said:?}"
        );
        let piped = world
            .gpushare(&["trace", "export", subject, "-o", "-"])
            .done()
            .out;
        for text in [fs::read_to_string(&file).expect("written"), piped] {
            assert!(shows(&text), "{subject}");
            let document: Value = serde_json::from_str(&text).expect("JSON");
            let process = &document["otherData"]["processes"][0];
            assert_eq!(process["name"], LABEL, "{subject}");
            assert_eq!(process["exe"], EXE, "{subject}");
            let events = document["traceEvents"].as_array().expect("a list");
            let named = |name: &str| events.iter().any(|event| event["name"] == name);
            for call in CALLS {
                assert!(named(call), "{subject}: {call:?} is not in {text}");
            }
            let title = format!("{} {LABEL}", std::process::id());
            let titled = |event: &Value| event["args"]["name"] == title.as_str();
            assert!(events.iter().any(titled), "{subject}: {text}");
        }
    }
}

#[test]
fn a_csv_export_of_hostile_names_has_no_formula_and_acts_on_no_terminal() {
    let (world, _actor, _) = world();
    let export = ["trace", "export", "all", "--format", "csv", "-o", "-"];
    let text = world.gpushare(&export).done().out;
    let mut table = csv::Reader::from_reader(text.as_bytes());
    let column = |heading: &str| {
        let headings = text.lines().next().expect("headings").split(',');
        headings.into_iter().position(|name| name == heading)
    };
    let (name, call) = (
        column("name").expect("there"),
        column("call").expect("there"),
    );
    let mut calls = Vec::new();
    for row in table.records() {
        let row = row.expect("a row");
        assert_eq!(&row[name], cell(LABEL));
        for cell in &row {
            let formula = cell.starts_with(['=', '+', '-', '@']);
            assert!(!formula || cell.parse::<f64>().is_ok(), "{cell:?}");
            assert!(!cell.contains(is_hidden), "{cell:?}");
        }
        calls.push(row[call].to_owned());
    }
    assert_eq!(calls, CALLS.map(cell));
}

#[test]
fn an_alnair_export_of_hostile_names_keeps_a_line_for_each_figure() {
    let (world, _actor, _) = world();
    for layout in ["new", "old"] {
        let dir = world.dir().join(layout);
        let to = dir.display().to_string();
        let export = ["trace", "export", "all", "--format", "alnair", "-o", &to];
        let form = ["--alnair-layout", layout];
        world.gpushare(&[&export[..], &form].concat()).done();
        let is_ours = |line: &str| {
            let keys = "name: start: count: burst: pid: kernel-cnt: mem-used: burst-tm:";
            keys.split(' ').any(|key| line.starts_with(key))
        };
        for file in fs::read_dir(&dir).expect("written") {
            let text = read(&file.expect("ours").path());
            assert!(shows(&text) && text.lines().all(is_ours), "{text:?}");
        }
        let timeline = if layout == "new" {
            "timeline.log"
        } else {
            "pf.log"
        };
        let text = read(&dir.join(timeline));
        assert_eq!(text.matches("name:").count(), CALLS.len(), "{text:?}");
        assert!(text.contains("name:-x\\n\\u{202e}y"), "{text:?}");
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("text")
}

#[test]
fn tables_and_messages_about_a_hostile_trace_are_escaped_and_json_is_true() {
    let (world, _actor, _) = world();
    let shown = LABEL.replace('\n', "\\n");
    let shown = &shown[..4];
    for (words, lines) in [
        (&["ps"][..], 2),
        (&["trace", "show"], 2),
        (&["trace", "stats", "all"], CALLS.len() + 1),
        (&["quota", "set", "all", "1GiB"], 1),
        (&["quota", "set", "all", "2GiB", "--dry-run"], 2),
        (&["pause", "all"], 1),
        (&["undo"], 1),
        (&["audit"], 4),
    ] {
        let said = world.gpushare(words).done();
        assert!(shows(&said.out) && shows(&said.err), "{words:?}: {said:?}");
        assert_eq!(said.out.lines().count(), lines, "{words:?}: {said:?}");
        let forged = |line: &str| line.starts_with("gpushare: x");
        assert!(!said.err.lines().any(forged), "{words:?}: {said:?}");
        let names = words[0] == "ps" || words[0] == "quota";
        assert!(!names || said.out.contains(shown), "{words:?}: {said:?}");
    }
    let named = |words: &[&str], at: &str| {
        let document = world.gpushare(words).done().json();
        let name = document.pointer(at).and_then(Value::as_str);
        name.unwrap_or_else(|| panic!("{at} in {document}"))
            .to_owned()
    };
    assert_eq!(named(&["ps", "--json"], "/processes/0/name"), LABEL);
    assert_eq!(named(&["trace", "show", "--json"], "/traces/0/name"), LABEL);
    let target = named(&["audit", "--json"], "/edits/0/target");
    assert!(target.ends_with(LABEL), "{target:?}");
}
