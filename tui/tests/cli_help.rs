//! What the control program says about itself: help, manual, completions.

use std::process::Command;

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
fn each_verb_explains_itself() {
    let (_, help) = gpushare(&["--help"]);
    let verbs = help
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| !line.starts_with([' ', '-']));
    let mut texts = String::new();
    for verb in verbs
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
    {
        let (code, text) = gpushare(&[verb, "-h"]);
        assert_eq!(code, 0, "{verb}");
        texts.push_str(&format!("$ gpushare {verb} -h\n{text}\n"));
    }
    for nested in [["quota", "set"], ["policy", "set"], ["group", "create"]] {
        let (code, text) = gpushare(&[nested[0], nested[1], "-h"]);
        assert_eq!(code, 0);
        texts.push_str(&format!("$ gpushare {} -h\n{text}\n", nested.join(" ")));
    }
    assert!(
        texts.lines().all(|line| line.len() <= 100),
        "a line is too long"
    );
    insta::assert_snapshot!("verbs", texts);
}

#[test]
fn nothing_to_do_is_a_usage_error_with_the_help() {
    let (code, text) = gpushare(&[]);
    assert_eq!(code, 2);
    assert!(text.contains("Usage: gpushare"));
    assert_eq!(gpushare(&["no-such-verb"]).0, 2);
    assert_eq!(gpushare(&["ps", "--no-such-flag"]).0, 2);
}

#[test]
fn the_installed_manual_is_the_one_the_program_writes() {
    let installed = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets/man");
    let fresh = tempfile::tempdir().expect("a temporary directory");
    let dir = fresh.path().display().to_string();
    assert_eq!(gpushare(&["man", "--dir", &dir]).0, 0);
    let mut pages = 0;
    for page in std::fs::read_dir(fresh.path())
        .expect("just written")
        .flatten()
    {
        let ours = std::fs::read_to_string(page.path()).expect("text");
        let theirs = std::fs::read_to_string(installed.join(page.file_name())).unwrap_or_default();
        let name = page.file_name();
        assert!(
            ours == theirs,
            "{name:?} is stale: run gpushare man --dir assets/man"
        );
        pages += 1;
    }
    assert!(pages > 10, "{pages}");
}

#[test]
fn the_installed_completions_are_the_ones_the_program_writes() {
    let installed = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets/completions");
    for (shell, program, file) in [
        ("bash", "gpushare", "gpushare.bash"),
        ("zsh", "gpushare", "_gpushare"),
        ("fish", "gpushare", "gpushare.fish"),
        ("bash", "gpushare-top", "gpushare-top.bash"),
        ("zsh", "gpushare-top", "_gpushare-top"),
        ("fish", "gpushare-top", "gpushare-top.fish"),
    ] {
        let (code, ours) = gpushare(&["completions", shell, program]);
        assert_eq!(code, 0);
        let theirs = std::fs::read_to_string(installed.join(file)).unwrap_or_default();
        assert!(
            ours == theirs,
            "{file} is stale: run gpushare completions {shell} {program} > assets/completions/{file}"
        );
    }
}
