//! `gpushare-top` for pipes and scripts: `--once`, `-b`, recordings, exit codes, and unusable segments.

mod cli_support;

use std::process::Command;

use cli_support::{Actor, Run as _, Said, World};
use serde_json::Value;

const GIB: u64 = 1 << 30;

fn top(world: &World, arguments: &[&str]) -> Said {
    Command::new(env!("CARGO_BIN_EXE_gpushare-top"))
        .args(arguments)
        .env("GPUSHARE_DIR", world.dir())
        .env("LC_ALL", "C.UTF-8")
        .env_remove("NO_COLOR")
        .said()
}

/// Makes two processes on one device.
fn stage() -> (World, Vec<Actor>) {
    let world = World::new();
    let actors: Vec<Actor> = ["trainer", "server"].map(|name| world.actor(name)).into();
    for (actor, size) in actors.iter().zip([2, 1]) {
        let entry = actor.enter(0);
        assert!(actor.takes(entry, size * GIB));
    }
    (world, actors)
}

/// Adds the keys of a document with their values' types, one per line.
fn shape(value: &Value, path: &str, lines: &mut Vec<String>) {
    match value {
        Value::Object(map) => map
            .iter()
            .for_each(|(key, value)| shape(value, &format!("{path}.{key}"), lines)),
        Value::Array(items) => match items.first() {
            Some(first) => shape(first, &format!("{path}[]"), lines),
            None => lines.push(format!("{path} []")),
        },
        Value::Null => lines.push(format!("{path} null")),
        Value::Bool(_) => lines.push(format!("{path} bool")),
        Value::Number(_) => lines.push(format!("{path} number")),
        Value::String(_) => lines.push(format!("{path} string")),
    }
}

#[test]
fn the_json_document_keeps_its_shape() {
    let (world, _actors) = stage();
    let document = top(&world, &["--once", "--format", "json", "--no-nvml"])
        .done()
        .json();
    assert_eq!(document["schema_version"], 1);
    assert_eq!(
        document["processes"][0]["devices"][0]["used_bytes"],
        2 * GIB
    );
    assert_eq!(document["devices"][0]["ledger_bytes"], 3 * GIB);
    let mut lines = Vec::new();
    shape(&document, "", &mut lines);
    insta::assert_snapshot!("once-json-shape", lines.join("\n"));
}

#[test]
fn csv_has_a_row_for_each_process_and_device() {
    let (world, _actors) = stage();
    let csv = top(&world, &["--once", "--format", "csv", "--no-nvml"])
        .done()
        .out;
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines[0].starts_with("unix_ms,pid,user,name,"), "{csv}");
    assert_eq!(lines.len(), 3, "{csv}");
    assert!(
        csv.contains("trainer") && csv.contains(&(2 * GIB).to_string()),
        "{csv}"
    );
}

#[test]
fn a_table_reads_without_a_terminal() {
    let (world, _actors) = stage();
    let table = top(&world, &["--once", "--no-nvml"]).done().out;
    assert!(
        table.contains("trainer") && table.contains("2.0G"),
        "{table}"
    );
    assert!(!table.contains('\x1b'), "no escapes in a pipe");
}

#[test]
fn filters_and_devices_choose_what_is_printed() {
    let (world, _actors) = stage();
    let print = |arguments: &[&str]| {
        top(
            &world,
            &[&["--once", "--format", "json", "--no-nvml"], arguments].concat(),
        )
    };
    let names = |said: Said| -> Vec<String> {
        let document = said.done().json();
        let processes = document["processes"].as_array().unwrap().clone();
        processes
            .iter()
            .map(|p| p["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(print(&["--filter", "used>1G"])), ["trainer"]);
    assert_eq!(names(print(&["--gpu", "0"])).len(), 2);
    assert_eq!(print(&["--gpu", "9"]).code, 5);
    let said = print(&["--filter", "size>1G"]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("no column"), "{said:?}");
}

#[test]
fn check_ends_with_three_when_something_is_wrong() {
    let (world, actors) = stage();
    assert_eq!(top(&world, &["--once", "--check", "--no-nvml"]).code, 0);
    world
        .gpushare(&["quota", "set", "name:trainer", "1GiB"])
        .done();
    let said = top(
        &world,
        &["--once", "--check", "--no-nvml", "--format", "json"],
    );
    assert_eq!(said.code, 3, "{said:?}");
    let alerts = said.json()["alerts"].clone();
    assert_eq!(alerts[0]["kind"], "over_quota", "{alerts}");
    drop(actors);
}

#[test]
fn a_recording_plays_what_was_seen() {
    let (world, actors) = stage();
    let file = world.dir().join("recording.jsonl");
    let file = file.to_str().unwrap();
    let looks = ["-b", "-n", "2", "-d", "0.05", "--format", "csv"];
    let seen = top(
        &world,
        &[&looks[..], &["--no-nvml", "--record", file]].concat(),
    )
    .done()
    .out;
    drop(actors);
    let played = top(&world, &[&looks[..], &["--replay", file]].concat())
        .done()
        .out;
    assert_eq!(seen, played);
    assert_eq!(
        seen.lines().count(),
        5,
        "a header and two snapshots of two processes"
    );
}

#[test]
fn the_number_of_snapshots_has_its_earlier_name_too() {
    let (world, _actors) = stage();
    for option in ["--snapshots", "--looks"] {
        let print = [
            "-b",
            option,
            "2",
            "-d",
            "0.05",
            "--format",
            "csv",
            "--no-nvml",
        ];
        let csv = top(&world, &print).done().out;
        assert_eq!(csv.lines().count(), 1 + 2 * 2, "{option}: {csv}");
    }
}

#[test]
fn a_recording_and_a_film_go_through_no_link_and_wait_for_no_pipe() {
    let world = World::new();
    let _actor = world.actor("trainer");
    let at = |name: &str| world.dir().join(name).to_str().unwrap().to_owned();
    let (victim, link, pipe) = (at("victim"), at("link"), at("pipe"));
    std::fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, &link).unwrap();
    let bits = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, bits, 0).unwrap();
    let look = ["-b", "-n", "1", "--no-nvml", "--record"];
    let refuses = |code: i32, words: &[&str], target: &str, why: &str| {
        let said = top(&world, &[words, &[target]].concat());
        assert_eq!(said.code, code, "{said:?}");
        assert!(
            said.err.contains(target) && said.err.contains(why),
            "{said:?}"
        );
    };
    refuses(4, &look, &link, "symbolic link");
    refuses(4, &look, &pipe, "not a file");
    let recording = at("recording");
    top(&world, &[&look[..], &[&recording]].concat()).done();
    let film = ["--replay", &recording, "--screencast"];
    refuses(1, &film, &pipe, "no program reads");
    top(&world, &[&film[..], &[&link]].concat()).done();
    assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    assert!(std::fs::read_to_string(&link).unwrap().contains("<svg"));
    refuses(1, &["--once", "--replay"], &pipe, "it is a pipe");
}

#[test]
fn a_hostile_label_is_true_in_json_and_harmless_everywhere_also_when_it_is_played_back() {
    let world = World::new();
    let label = "=a\u{202e}b\u{200b}\u{e0041}";
    let actor = world.actor(label);
    actor.takes(actor.enter(0), GIB);
    let file = world.dir().join("recording.jsonl");
    let file = file.to_str().unwrap();
    let record = ["-b", "-n", "1", "--no-nvml", "--record", file];
    top(&world, &record).done();
    for source in [&["--no-nvml"][..], &["--replay", file]] {
        let print = |options: &[&str]| {
            let said = top(&world, &[&["--once"], source, options].concat()).done();
            // JSON has its own escapes.
            let acts = |c| shm_layout::text::is_hidden(c) && c != '\n';
            assert!(!said.out.contains(acts), "{source:?} {options:?}: {said:?}");
            said
        };
        let document = print(&["--format", "json"]).json();
        assert_eq!(document["processes"][0]["name"], label, "{source:?}");
        let csv = print(&["--format", "csv"]).out;
        let shown = "'=a\\u{202e}b\\u{200b}\\u{e0041}";
        assert!(csv.contains(&format!(",{shown},")), "no formula: {csv}");
        let table = print(&[]).out;
        assert!(table.contains("=a"), "{table}");
        // The filter matches it, and its text is shown escaped.
        let document = print(&["--format", "json", "--filter", "name~\u{202e}"]).json();
        assert_eq!(document["processes"].as_array().map(Vec::len), Some(1));
    }
    let said = top(
        &world,
        &["--once", "--no-nvml", "--filter", "a\u{202e}\u{1b}[2J>1"],
    );
    assert_eq!(said.code, 2, "{said:?}");
    assert!(!said.err.contains(['\u{202e}', '\u{1b}']), "{said:?}");
}

#[test]
fn a_settings_file_of_hostile_strings_is_refused_or_used_without_acting_on_the_terminal() {
    let (world, _actors) = stage();
    let config = world.dir().join("top.toml");
    let config = config.to_str().unwrap();
    let nasty = "a\\u001b]0;owned\\u0007\\u202e\\u200b";
    for (text, code) in [
        (format!("sort = \"{nasty}\"\n"), 2),
        (format!("color = \"{nasty}\"\n"), 2),
        (format!("\"{nasty}\" = 1\n"), 2),
        ("sort = \"a\u{202e}\u{1b}[2J\"\n".to_owned(), 2),
        ("filter = \"a\u{202e}b>\"\n".to_owned(), 2),
        (format!("filter = \"{nasty}>1\"\n"), 2),
        (format!("filter = \"name~{nasty}\"\n"), 0),
        ("filter = \"name~\u{202e}\"\n".to_owned(), 0),
    ] {
        std::fs::write(config, &text).unwrap();
        for format in ["table", "json"] {
            let print = ["--once", "--no-nvml", "--config", config];
            let said = top(&world, &[&print[..], &["--format", format]].concat());
            assert_eq!(said.code, code, "{text:?}: {said:?}");
            let acts = |c| shm_layout::text::is_hidden(c) && c != '\n';
            assert!(!said.out.contains(acts), "{text:?}: {said:?}");
            assert!(!said.err.contains(acts), "{text:?}: {said:?}");
            assert_eq!(code == 0, said.err.is_empty(), "{text:?}: {said:?}");
        }
    }
}

#[test]
fn a_segment_that_is_not_there_yet_is_waited_for() {
    let world = World::new();
    let said = top(&world, &["--once", "--no-nvml"]).done();
    assert!(said.out.contains("gpushare run"), "{said:?}");
    let said = top(&world, &["--once", "--no-nvml", "--format", "json"]).done();
    assert!(said.json()["segment"]["waiting"].is_string());
}

#[test]
fn a_segment_that_cannot_be_used_is_one_sentence() {
    for (text, words) in [
        ("hello, world\n".repeat(500), "not a gpushare segment"),
        (String::new(), "control"),
    ] {
        let (world, actors) = stage();
        drop(actors);
        std::fs::write(world.dir().join("control"), text).unwrap();
        let said = top(&world, &["--once", "--no-nvml"]);
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.err.contains(words), "{said:?}");
        assert_eq!(said.err.lines().count(), 1, "{said:?}");
    }
}

#[test]
fn something_else_than_a_recording_is_refused() {
    let world = World::new();
    let file = world.dir().join("notes.txt");
    std::fs::write(&file, "remember the milk\n").unwrap();
    let said = top(&world, &["--once", "--replay", file.to_str().unwrap()]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("not a recording"), "{said:?}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let (world, _actors) = stage();
    for format in ["table", "json", "csv"] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let said = Command::new(env!("CARGO_BIN_EXE_gpushare-top"))
            .args(["--once", "--no-nvml", "--format", format])
            .env("GPUSHARE_DIR", world.dir())
            .stdout(writer)
            .said()
            .done();
        assert_eq!(said.err, "", "{format}");
    }
}
