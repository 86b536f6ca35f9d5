//! Passes the version to the two programs, with the commit and its date where the source is a git checkout.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let number = env!("CARGO_PKG_VERSION");
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]);
    let commit = git(&["log", "-1", "--format=%h %cs", "--abbrev=9"]);
    let (version, date) = match commit.split_once(' ') {
        Some((commit, date)) => (format!("{number} ({commit} {date})"), date),
        None => (number.to_owned(), ""),
    };
    if !log.is_empty() {
        println!("cargo::rerun-if-changed={log}");
    }
    println!("cargo::rustc-env=GPUSHARE_VERSION={version}");
    println!("cargo::rustc-env=GPUSHARE_DATE={date}");
}

/// Returns what git prints, or nothing where there is no git or no repository.
fn git(words: &[&str]) -> String {
    let output = Command::new("git").args(words).output();
    let output = output.ok().filter(|output| output.status.success());
    output.map_or(String::new(), |output| {
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    })
}
