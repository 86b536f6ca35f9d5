//! The README: its size, for a reader decides on one screen or two, and what changes in it with the first release.

use std::fs;
use std::path::Path;
use std::process::Command;

use gpushare_testbed::{Need, needs};

use crate::workspace;

fn check_size(text: &str) {
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() <= 120, "{} lines", lines.len());
    for (number, line) in lines.iter().enumerate() {
        let width = line.chars().count();
        assert!(
            width <= 120,
            "line {}: {width} characters: {line}",
            number + 1
        );
    }
}

#[test]
fn the_readme_has_at_most_120_lines_of_at_most_120_characters() {
    let text = fs::read_to_string(workspace().join("README.md")).expect("the README");
    check_size(&text);
}

/// Publishes a copy of the files, and returns them.
fn published(folder: &Path, address: &str) -> [String; 3] {
    let mut publish = Command::new(workspace().join(".ci/publish"));
    let output = publish.arg(address).arg("--root").arg(folder).output();
    let output = output.expect("a program of this repository");
    assert!(output.status.success(), "{output:?}");
    FILES.map(|name| fs::read_to_string(folder.join(name)).expect("there"))
}

const FILES: [&str; 3] = ["README.md", "Cargo.toml", "CHANGELOG.md"];

#[test]
fn with_the_first_release_the_readme_leads_to_it_once_and_for_all() {
    if !needs(Need::Tool("python3")) || !needs(Need::Tool("git")) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    for name in FILES {
        fs::copy(workspace().join(name), folder.path().join(name)).expect("copied");
    }
    let address = "https://forge.example/some-owner/gpushare";
    let first = published(folder.path(), address);
    assert_eq!(first, published(folder.path(), address));
    let [readme, manifest, changelog] = first;
    check_size(&readme);
    assert!(
        readme.contains(&format!("]({address}/releases/latest)")),
        "{readme}"
    );
    for words in ["No release is published", "published:", "{repository}"] {
        assert!(!readme.contains(words), "{words}: {readme}");
    }
    assert!(
        manifest.contains(&format!("\nrepository = \"{address}\"\n")),
        "{manifest}"
    );
    let version = env!("CARGO_PKG_VERSION");
    let heading = format!("## {version}, 20");
    assert!(changelog.contains(&heading), "{changelog}");
}
