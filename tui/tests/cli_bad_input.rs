//! Segments that are damaged, foreign or full: the tools print a clear sentence, exit with a code, and lose nothing.

mod cli_support;

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};

use cli_support::{Run as _, World};
use gpushare_testbed::as_ordinary_user;

/// Makes a world with valid segments.
fn made() -> World {
    let world = World::new();
    world.gpushare(&["init"]).done();
    world
}

/// Every verb that reads the segments.
const LOOKING: [&[&str]; 5] = [
    &["ps"],
    &["ps", "--json"],
    &["quota", "show"],
    &["quota", "set", "all", "1G"],
    &["policy", "set", "all", "off"],
];

fn all_refuse(world: &World, words: &[&str]) {
    for verb in LOOKING {
        let said = world.gpushare(verb).refused(1, words);
        assert_eq!(said.out, "", "{verb:?}");
        assert_eq!(said.err.lines().count(), 1, "one sentence: {said:?}");
    }
}

#[test]
fn a_segment_cut_short_is_named_and_left_as_it_is() {
    let world = made();
    let state = world.dir().join("state");
    fs::File::options()
        .write(true)
        .open(&state)
        .expect("ours")
        .set_len(4096)
        .expect("shorter");
    all_refuse(&world, &["state", "cut short", "4096"]);
    assert_eq!(fs::metadata(&state).expect("still there").len(), 4096);
}

#[test]
fn a_path_with_a_line_feed_does_not_break_a_message() {
    let world = made();
    for verb in [
        &["apply", "a\nb.toml"][..],
        &["run", "--", "./a\nb"],
        &["wrap", "./a\nb"],
        &["trace", "stats", "./a\nb"],
        &["experiment", "a\nb.toml"],
        &["quota", "set", "name:a\nb", "1G"],
        &["policy", "set", "a\nb", "off"],
        &["quota", "set", "all", "a\nb"],
    ] {
        let said = world.gpushare(verb);
        assert_ne!(said.code, 0, "{verb:?}");
        assert!(said.err.contains(r"a\nb"), "{verb:?}: {said:?}");
        let lines = said.err.lines().filter(|line| line.starts_with('b'));
        assert_eq!(lines.count(), 0, "{verb:?}: {said:?}");
    }
}

#[test]
fn a_file_of_somebody_else_is_not_touched() {
    let world = made();
    let state = world.dir().join("state");
    let text = "not a segment\n".repeat(1000);
    fs::write(&state, &text).expect("ours");
    for verb in [&["ps"][..], &["quota", "show"]] {
        world
            .gpushare(verb)
            .refused(1, &["state", "not a gpushare segment"]);
    }
    world.gpushare(&["run", "--", "true"]);
    assert_eq!(fs::read_to_string(&state).expect("still there"), text);
}

#[test]
fn another_version_says_both_numbers() {
    let world = made();
    let state = world.dir().join("state");
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(&state)
        .expect("ours");
    // The header: the magic, then the version as a 32-bit word.
    let mut version = [0; 4];
    file.read_exact_at(&mut version, 8).expect("a header");
    assert_eq!(
        u32::from_ne_bytes(version),
        shm_layout::ABI_VERSION,
        "the header moved"
    );
    file.write_all_at(&99_u32.to_ne_bytes(), 8).expect("ours");
    all_refuse(
        &world,
        &[
            "version 99",
            &format!("version {}", shm_layout::ABI_VERSION),
        ],
    );
}

#[test]
fn an_empty_file_is_no_segment() {
    let world = made();
    fs::write(world.dir().join("control"), "").expect("ours");
    all_refuse(&world, &["control"]);
}

#[test]
fn a_full_slot_table_shows_everybody_and_counts_who_found_no_slot() {
    let world = World::new();
    let actors: Vec<_> = (0..shm_layout::MAX_PROCESSES)
        .map(|number| world.actor(&format!("actor-{number}")))
        .collect();
    let segments = shm_layout::Segments::open_workload(world.dir()).expect("ours");
    let one_more = shm_layout::register(
        &segments,
        &shm_layout::Identity::of_self("late"),
        &Default::default(),
    );
    assert!(matches!(
        one_more,
        Err(shm_layout::RegisterError::Full { .. })
    ));
    let said = world.gpushare(&["ps", "--json"]).done();
    assert_eq!(
        said.json()["processes"].as_array().map(Vec::len),
        Some(shm_layout::MAX_PROCESSES)
    );
    assert_eq!(said.json()["refused"], 1);
    assert!(said.json()["refused_last_unix_ms"].is_i64(), "{said:?}");
    let said = world.gpushare(&["ps"]).done();
    assert!(
        said.err.contains("1 program found no free slot"),
        "{}",
        said.err
    );
    let run = |options: &[&str]| {
        let mut command = world.command(&[&["run"], options, &["--", "echo", "started"]].concat());
        // Any library works: it must only be found, and `echo` does not use it.
        let library = gpushare_base::host::elf::libc().expect("a machine with glibc");
        command.env("GPUSHARE_LIB", library).said()
    };
    run(&["--memory", "1G"]).refused(1, &["--memory", "256 slots", "--best-effort"]);
    let said = run(&["--memory", "1G", "--best-effort"]).done();
    assert!(
        said.out == "started\n" && said.err.contains("256 slots"),
        "{said:?}"
    );
    drop(actors);
    let left = world.gpushare(&["ps", "--json"]).done().json();
    assert_eq!(
        left["processes"],
        serde_json::json!([]),
        "all slots came back"
    );
}

#[test]
fn a_directory_that_cannot_be_made_is_a_sentence() {
    let world = World::new();
    let file = world.dir().join("file");
    fs::write(&file, "").expect("ours");
    world
        .command(&["init"])
        .env("GPUSHARE_DIR", file.join("below"))
        .said()
        .refused(1, &["below"]);
}

#[test]
fn who_may_not_write_is_told_so_with_code_four() {
    as_ordinary_user(|| {
        let world = made();
        for file in ["control", "state"] {
            fs::set_permissions(world.dir().join(file), fs::Permissions::from_mode(0o400))
                .expect("ours");
        }
        world
            .gpushare(&["policy", "set", "all", "off"])
            .refused(4, &["may read", "not edit"]);
    });
}

#[test]
fn an_installation_for_all_is_made_by_root_only() {
    as_ordinary_user(|| {
        World::new()
            .gpushare(&["init", "--group", "users"])
            .refused(4, &["root"]);
    });
}

#[test]
fn making_the_segments_twice_changes_nothing() {
    let world = made();
    let actor = world.actor("train");
    actor.enter(0);
    let said = world.gpushare(&["init"]).done();
    assert!(said.out.contains("ready"), "{said:?}");
    let ps = world.gpushare(&["ps", "--json"]).done().json();
    assert_eq!(ps["processes"][0]["name"], "train");
}

#[test]
fn a_limited_program_is_not_started_where_no_segments_can_be_made() {
    as_ordinary_user(|| {
        let world = World::new();
        let locked = world.dir().join("locked");
        fs::create_dir(&locked).expect("ours");
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).expect("ours");
        let ask = |words: &[&str]| {
            let mut command = world.command(words);
            command.env("GPUSHARE_DIR", &locked).said()
        };
        ask(&["run", "--memory", "1G", "--", "true"]).refused(4, &["locked", "cannot be enforced"]);
        let doctor = ask(&["doctor"]);
        assert!(
            doctor.out.contains("you may not create files there"),
            "{doctor:?}"
        );
    });
}

#[test]
fn an_endless_name_is_not_repeated_to_its_end() {
    let name = "n".repeat(5000);
    let said = World::new()
        .gpushare(&["run", "--name", &name, "--", "true"])
        .refused(2, &["--name", "5000 bytes", "at most 63"]);
    assert!(said.err.len() < 300, "{said:?}");
}

#[test]
fn nothing_that_was_typed_acts_on_the_terminal() {
    let world = made();
    let nasty = "a\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\r\u{202e}b";
    let plan = world.dir().join("nasty.toml");
    fs::write(&plan, format!("[[process]]\ntarget = \"{nasty}\n")).expect("ours");
    let plan = plan.display().to_string();
    let (name, gpu) = (format!("name:{nasty}"), format!("GPU-{nasty}"));
    for words in [
        &["quota", "set", &name, "1G"][..],
        &["quota", "set", nasty, "1G"],
        &["quota", "set", "all", nasty],
        &["quota", "set", "all", "1G", "--for", nasty],
        &["policy", "set", &gpu, "off"],
        &["policy", "set", "all", nasty],
        &["group", "show", nasty],
        &["group", "set", nasty, "memory=1G"],
        &["set", "all", nasty],
        &["undo", nasty],
        &["run", "--name", nasty, "--", "true"],
        &["run", "--", nasty],
        &["apply", nasty],
        &["apply", &plan],
        &["experiment", nasty],
        &["wrap", nasty],
        &[nasty],
    ] {
        let said = world.gpushare(words);
        assert_ne!(said.code, 0, "{words:?}");
        let acts = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!said.err.is_empty(), "{words:?}");
        assert!(!said.err.contains(acts), "{words:?}: {said:?}");
        assert!(!said.out.contains(acts), "{words:?}: {said:?}");
    }
}

#[test]
fn json_stays_json_with_the_true_characters_of_a_hostile_label() {
    let world = World::new();
    let label = "=a\u{202e}b\u{200b}\u{e0041}";
    let train = world.actor(label);
    train.enter(0);
    world.gpushare(&["quota", "set", "all", "4GiB"]).done();
    for (words, at) in [
        (&["ps", "--json"][..], "/processes/0/name"),
        (&["quota", "show", "--json"], ""),
        (&["policy", "show", "--json"], ""),
        (&["group", "show", "--json"], ""),
        (&["trace", "show", "--json"], ""),
        (&["audit", "--json"], "/edits/0/target"),
        (&["doctor", "--json"], ""),
    ] {
        let output = world.command(words).output().expect("the program is built");
        let text = String::from_utf8(output.stdout).expect("text");
        let document: serde_json::Value = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{words:?}: {error}: {text}"));
        assert!(
            !text.contains(|c| shm_layout::text::is_hidden(c) && c != '\n'),
            "{words:?}"
        );
        if !at.is_empty() {
            let shown = document
                .pointer(at)
                .and_then(|value| value.as_str())
                .unwrap_or_default();
            assert!(shown.contains(label), "{words:?}: {text}");
        }
    }
    world
        .gpushare(&["quota", "set", "all", "1GiB", "--reason", "a\u{202e}b"])
        .refused(2, &["U+202E"]);
    world
        .gpushare(&["group", "create", "a\u{2066}b"])
        .refused(2, &["U+2066"]);
}

#[test]
fn a_reason_that_does_not_show_is_refused_by_a_dry_run_too() {
    let world = World::new();
    let actor = world.actor("train");
    actor.enter(0);
    world.gpushare(&["group", "create", "team"]).done();
    let before = world.gpushare(&["audit", "--json"]).done().json();
    for words in [
        &["quota", "set", "all", "1GiB"][..],
        &["policy", "set", "all", "off"],
        &["policy", "set", "0", "always"],
        &["group", "set", "team", "weight=7"],
        &["group", "rm", "team"],
        &["set", "all", "weight=7"],
        &["pause", "all"],
        &["resume", "all"],
    ] {
        let hidden = ["--reason", "a\u{202e}b", "--dry-run"];
        let said = world.gpushare(&[words, &hidden].concat());
        assert_eq!(said.out, "", "{words:?}");
        said.refused(2, &["reason", "U+202E"]);
    }
    let after = world.gpushare(&["audit", "--json"]).done().json();
    assert_eq!(before, after, "a dry run is no edit");
}

#[test]
fn a_file_is_applied_whatever_characters_its_path_has() {
    let world = World::new();
    let actor = world.actor("train");
    actor.enter(0);
    let plan = world.dir().join("plan\u{202e}\u{1b}[2J\n.toml");
    fs::write(&plan, "[policy]\nall = \"always\"\n").expect("ours");
    let plan = plan.display().to_string();
    for options in [&["--dry-run"][..], &[]] {
        let said = world
            .gpushare(&[&["apply", &plan], options].concat())
            .done();
        assert!(said.out.contains("always"), "{said:?}");
    }
    let audit = world.gpushare(&["audit", "--json"]).done().json();
    let reason = audit["edits"][0]["reason"].as_str().unwrap_or_default();
    assert!(
        reason.contains("plan\\u{202e}\\u{1b}[2J\\n.toml"),
        "{audit}"
    );
    // The file's contents are checked in this case too.
    fs::write(&plan, "[group.\"a\u{202e}b\"]\nweight = 7\n").expect("ours");
    world.gpushare(&["apply", &plan]).refused(2, &["U+202E"]);
}

#[test]
fn an_unknown_option_of_run_is_a_usage_error_and_no_program() {
    let world = World::new();
    world
        .gpushare(&["run", "--memroy", "8G", "--", "true"])
        .refused(2, &["--memroy", "not an option"]);
}

/// In every grammar `8` means 8 bytes, and no limit of a device is that small.
#[test]
fn a_size_of_a_few_bytes_without_a_unit_is_asked_about_wherever_one_is_typed() {
    let world = made();
    let train = world.actor("train");
    train.enter(0);
    let plan = world.dir().join("plan.toml");
    let path = plan.display().to_string();
    let asked = |said: cli_support::Said, what: &[&str]| {
        let said = said.refused(2, &["8 bytes", "8GiB"]);
        assert_eq!(said.out, "", "{what:?}");
    };
    for words in [
        &["run", "--memory", "8", "--", "echo", "started"][..],
        &["run", "--memory", "0:8,1:2GiB", "--", "echo", "started"],
        &["pick", "--memory", "8"],
        &["quota", "set", "all", "8"],
        &["quota", "set", "name:train", "8", "--gpu", "0"],
        &["group", "create", "team", "memory=8"],
        &["trace", "start", "name:train", "--buffer", "8"],
        &["cdi", "generate", "8"],
        &["wrap", "--memory", "8", "true"],
    ] {
        let mut command = world.command(words);
        command.env("GPUSHARE_LIB", gpushare_testbed::artifact("libgpushare.so"));
        asked(command.said(), words);
    }
    for text in [
        "[group.team]\nmemory = 8",
        "[limit]\n0 = 8",
        "[[rule]]\nall = true\nmemory = '8'",
        "[[process]]\ntarget = 'name:train'\nmemory = 8",
    ] {
        fs::write(&plan, text).expect("ours");
        asked(world.gpushare(&["apply", &path]), &[text]);
    }
    for variable in ["GPUSHARE_MEMORY", "CUDA_DEVICE_MEMORY_LIMIT_0"] {
        let mut command = world.command(&["run", "--", "echo", "started"]);
        command
            .env(variable, "8")
            .env("GPUSHARE_LIB", gpushare_testbed::artifact("libgpushare.so"));
        let said = command.said();
        asked(said.refused(2, &[variable]), &[variable]);
    }
    world.gpushare(&["quota", "set", "all", "1234567"]).done();
    let shown = world.gpushare(&["quota", "show"]).done();
    assert!(shown.out.contains("1234567B"), "{shown:?}");
    world.gpushare(&["quota", "set", "all", "8B"]).done();
}

#[test]
fn a_mistake_on_the_command_line_leads_to_the_right_word() {
    let world = made();
    for (words, told) in [
        (
            &["policy", "set", "all", "overlapp"][..],
            "did you mean overlap?",
        ),
        (&["set", "all", "weigth=3"], "did you mean weight=3?"),
        (
            &["quota", "set", "all", "1G", "--for", "-1s"],
            "is no time from now",
        ),
        (
            &["ps", "--bogus"],
            "--bogus is not an option of gpushare ps; gpushare ps --help lists them",
        ),
        (
            &["quota", "set", "all", "1G", "--resaon", "x"],
            "did you mean --reason?",
        ),
    ] {
        let said = world.gpushare(words).refused(2, &[told]);
        assert_eq!(said.err.lines().count(), 1, "one sentence: {said:?}");
    }
}

#[test]
fn a_port_in_use_is_named_without_a_number_of_an_error() {
    let world = made();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let port = format!(
        "another program listens on port {}",
        taken.local_addr().expect("bound").port()
    );
    let said = world
        .gpushare(&["metrics", "--listen", &address])
        .refused(1, &[&port]);
    assert!(!said.err.contains("os error"), "{said:?}");
    let said = world.gpushare(&["apply", "/nonexistent.toml"]);
    assert!(!said.err.contains("os error"), "{said:?}");
}
