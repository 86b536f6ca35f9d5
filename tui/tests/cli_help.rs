//! Help, manual pages and completions of the control program.

mod cli_support;

use std::path::Path;
use std::process::Command;

use cli_support::World;
use gpushare_testbed::{Need, needs};

fn gpushare(args: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_gpushare"))
        .args(args)
        .env_remove("COLUMNS")
        .output()
        .expect("the program is built");
    let text = if output.stdout.is_empty() {
        output.stderr
    } else {
        output.stdout
    };
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
fn the_help_names_every_verb() {
    let (code, help) = gpushare(&["--help"]);
    assert_eq!(code, 0);
    insta::assert_snapshot!("help", help);
}

#[test]
fn each_verb_explains_itself_and_each_of_its_options() {
    for verb in verbs(&[]) {
        let words: Vec<&str> = verb.split(' ').chain(["-h"]).collect();
        let (code, text) = gpushare(&words);
        assert_eq!(code, 0, "{verb}");
        let first = text.lines().next().expect("a line");
        assert!(first.starts_with(char::is_uppercase), "{verb}: {first}");
        assert!(text.contains(&format!("Usage: gpushare {verb}")), "{text}");
        assert!(text.contains("\nExample: "), "{text}");
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        let (_, options) = text.split_once("\nOptions:\n").expect("-h is one");
        // Text that goes on in the next line is further right.
        let is_option = |line: &&str| line.starts_with("  -") || line.starts_with("      -");
        for option in options.lines().filter(is_option) {
            let option = option.trim();
            assert!(option.contains("  "), "{verb}: {option} says nothing");
        }
    }
}

#[test]
fn the_help_of_a_verb_has_usage_options_defaults_and_an_example() {
    insta::assert_snapshot!("verb", gpushare(&["quota", "set", "-h"]).1);
}

#[test]
fn a_frequent_mistake_is_answered_with_the_right_command() {
    for (words, answer) in [
        ("list", "gpushare ps shows"),
        ("status", "gpushare ps shows"),
        ("stop name:train", "gpushare pause TARGET"),
        ("version", "gpushare --version"),
        (
            "quota name:train 12GiB",
            "gpushare quota set name:train 12GiB",
        ),
        ("policy all overlap", "gpushare policy set all overlap"),
        ("pss", "'ps'"),
    ] {
        let (code, text) = gpushare(&words.split(' ').collect::<Vec<_>>());
        assert!(code == 2 && text.contains(answer), "{words}: {text}");
    }
}

#[test]
fn a_tip_never_proposes_a_verb_that_changes_something() {
    for word in ["kil", "undoo", "pausee", "resum", "serv", "aply"] {
        let (code, text) = gpushare(&[word]);
        assert!(code == 2 && !text.contains("similar"), "{word}: {text}");
    }
}

#[test]
fn the_guide_is_in_the_program() {
    let (code, text) = gpushare(&["help", "guide"]);
    assert!(
        code == 0 && text.contains("gpushare help guide memory"),
        "{text}"
    );
    let (code, text) = gpushare(&["help", "limits"]);
    assert!(code == 0 && text.starts_with("# Limits"), "{text}");
    let (code, text) = gpushare(&["help", "guide", "mps"]);
    assert!(code == 0 && text.starts_with("# MPS"), "{text}");
    let (code, text) = gpushare(&["help", "policies"]);
    assert!(
        code == 0 && text.contains("| you have | set |") && !text.contains("<!--"),
        "without the comments that its tables are made of: {text}"
    );
    let (code, text) = gpushare(&["help", "guide", "nothing"]);
    assert!(
        code == 2 && text.contains("gpushare help guide lists them"),
        "{text}"
    );
}

#[test]
fn nothing_to_do_is_a_usage_error_with_the_help() {
    let (code, text) = gpushare(&[]);
    assert_eq!(code, 2);
    assert!(text.contains("Usage: gpushare"));
    assert_eq!(gpushare(&["no-such-verb"]).0, 2);
    assert_eq!(gpushare(&["ps", "--no-such-flag"]).0, 2);
}

/// Returns every verb and sub-verb in the help: `quota set`.
fn verbs(above: &[&str]) -> Vec<String> {
    let (_, help) = gpushare(&[above, &["-h"]].concat());
    let listed = help
        .lines()
        // The verbs of the program stand in groups, those of a verb under one heading.
        .skip_while(|line| !["Every day:", "Commands:"].contains(line))
        .take_while(|line| *line != "Options:");
    let names = listed
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help");
    let mut found = Vec::new();
    for verb in names {
        let words = [above, &[verb]].concat();
        found.push(words.join(" "));
        found.extend(verbs(&words));
    }
    found
}

#[test]
fn every_verb_has_a_manual_page_that_mandoc_reads_without_a_warning() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let dir = folder.path().display().to_string();
    assert_eq!(gpushare(&["man", "--dir", &dir]).0, 0);
    let mut pages: Vec<String> = std::fs::read_dir(&dir)
        .expect("just written")
        .map(|page| page.expect("readable").file_name())
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    let verbs = verbs(&[]);
    assert!(verbs.contains(&"quota set".to_owned()), "{verbs:?}");
    let mut wanted: Vec<String> = verbs
        .iter()
        .map(|verb| format!("gpushare-{}.1", verb.replace(' ', "-")))
        .chain(["gpushare.1", "gpushare-top.1"].map(str::to_owned))
        .collect();
    pages.sort();
    wanted.sort();
    assert_eq!(pages, wanted);
    if !needs(Need::Tool("mandoc")) {
        return;
    }
    let read = Command::new("mandoc")
        .args(["-T", "lint", "-W", "warning"])
        .args(&pages)
        .current_dir(&dir)
        .output()
        .expect("mandoc");
    let errors = String::from_utf8_lossy(&read.stdout);
    assert!(read.status.success(), "{errors}");
}

/// Starts a shell that loads the completions of a program in `folder`, and returns what it writes; `None` without that shell.
fn shell(folder: &Path, shell: &str, program: &str, ask: &str, dir: &Path) -> Option<String> {
    let (code, script) = gpushare(&["completions", shell, program]);
    assert_eq!(code, 0);
    std::fs::write(folder.join(format!("{program}.{shell}")), script).expect("ours");
    if !needs(Need::Tool(shell)) {
        return None;
    }
    let ours = Path::new(env!("CARGO_BIN_EXE_gpushare"))
        .parent()
        .expect("a folder");
    let path = std::env::var("PATH").expect("a path");
    let completed = Command::new(shell)
        .args([if shell == "zsh" { "-fc" } else { "-c" }, ask])
        .env("HOME", folder)
        .env("PATH", format!("{}:{path}", ours.display()))
        .env("GPUSHARE_DIR", dir)
        .current_dir(folder)
        .output()
        .expect("a shell");
    assert!(
        completed.stderr.is_empty(),
        "{shell} {program}: {completed:?}"
    );
    Some(String::from_utf8_lossy(&completed.stdout).into_owned())
}

#[test]
fn each_shell_loads_the_completions_of_the_dashboard() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let program = "gpushare-top";
    for (name, ask) in [
        (
            "bash",
            "source gpushare-top.bash; COMP_WORDS=(gpushare-top --onc); COMP_CWORD=1; \
             _gpushare__top gpushare-top --onc gpushare-top; echo \"${COMPREPLY[@]}\"",
        ),
        // zsh completes words only in a terminal.
        (
            "zsh",
            "autoload -Uz compinit; compinit -u -D; source ./gpushare-top.zsh; \
             [ \"$_comps[gpushare-top]\" = _gpushare-top ] && which _gpushare-top",
        ),
        (
            "fish",
            "source gpushare-top.fish; complete -C 'gpushare-top --onc'",
        ),
    ] {
        let said = shell(folder.path(), name, program, ask, folder.path());
        assert!(said.is_none_or(|said| said.contains("--once")), "{name}");
    }
}

/// Returns what each shell proposes for a line, one candidate per line.
fn proposed(folder: &Path, line: &str, dir: &Path) -> Vec<String> {
    let asks = [
        (
            "bash",
            format!(
                "source gpushare.bash; COMP_LINE='gpushare {line}'; COMP_POINT=${{#COMP_LINE}}; _gpushare; \
                 printf '%s\\n' \"${{COMPREPLY[@]}}\""
            ),
        ),
        // zsh completes words only in a terminal, so the test takes what the function would show there.
        (
            "zsh",
            format!(
                "autoload -Uz compinit; compinit -u -D; source ./gpushare.zsh; [ \"$_comps[gpushare]\" = _gpushare ] || exit 1; \
                 _describe() {{ print -rl -- ${{(P)3}} }}; words=(${{=:-gpushare {line}}}); CURRENT=$#words; _gpushare"
            ),
        ),
        (
            "fish",
            format!("source gpushare.fish; complete -C 'gpushare {line}'"),
        ),
    ];
    let said = asks
        .iter()
        .filter_map(|(name, ask)| shell(folder, name, "gpushare", ask, dir));
    said.collect()
}

#[test]
fn each_shell_completes_verbs_targets_groups_policies_scenarios_plans_and_programs() {
    let world = World::new();
    let _train = world.actor("train-7b");
    let _hostile = world.actor("train$(id)");
    let folder = tempfile::tempdir().expect("a temporary directory");
    assert!(
        world
            .gpushare(&["group", "create", "team", "weight=200"])
            .code
            == 0
    );
    for (line, wanted) in [
        ("quo", "quota"),
        ("pause name:tr", "train-7b"),
        ("policy set al", "all"),
        ("policy set 0 overlap order=f", "fair"),
        ("set all wei", "weight="),
        ("group show te", "team"),
        ("run --sim=one", "one-gpu"),
        ("experiment prio", "priority"),
        ("run --group te", "team"),
        ("run -- bas", "bash"),
    ] {
        for said in proposed(folder.path(), line, world.dir()) {
            assert!(said.contains(wanted), "{line}: {said:?}");
            assert!(!said.contains("$("), "a shell would run it: {said:?}");
        }
    }
}

#[test]
fn a_completion_where_nothing_runs_is_quick_and_makes_no_file() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let dir = folder.path().join("segments");
    let start = std::time::Instant::now();
    for line in ["pause ", "policy set ", "run --group x"] {
        let words: Vec<&str> = ["--", "gpushare"]
            .into_iter()
            .chain(line.split(' '))
            .collect();
        let index = (words.len() - 2).to_string();
        let asked = Command::new(env!("CARGO_BIN_EXE_gpushare"))
            .args(&words)
            .envs([
                ("_GPUSHARE_COMPLETE", "bash"),
                ("_CLAP_COMPLETE_INDEX", &index),
            ])
            .env("GPUSHARE_DIR", &dir)
            .output()
            .expect("it is built");
        assert!(
            asked.status.success() && asked.stderr.is_empty(),
            "{asked:?}"
        );
    }
    assert!(
        start.elapsed() < std::time::Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    assert!(!dir.exists(), "a completion changes nothing");
}
