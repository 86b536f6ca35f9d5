//! Links within the repository.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use gpushare_testbed::{Need, needs};
use serde_json::{Value, json};

use crate::{Page, pages, workspace};

/// Returns the targets in `](…)`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
}

/// Returns the anchor that GitHub makes of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-'));
    kept.collect::<String>()
        .to_lowercase()
        .trim()
        .replace(' ', "-")
}

fn leads_somewhere(page: &Page, link: &str) -> bool {
    if link.contains("://") || link.starts_with("{repository}/") {
        return true;
    }
    let (file, part) = link.split_once('#').unwrap_or((link, ""));
    let target = match file {
        "" => page.path.clone(),
        file => page.path.parent().expect("in a folder").join(file),
    };
    if part.is_empty() {
        return target.exists();
    }
    let text = std::fs::read_to_string(&target).unwrap_or_default();
    text.lines()
        .filter(|line| line.starts_with('#'))
        .any(|line| anchor(line.trim_start_matches('#')) == part)
}

#[test]
fn every_link_leads_somewhere() {
    let mut count = 0;
    for page in pages() {
        for link in links(&page.text) {
            assert!(
                leads_somewhere(&page, link),
                "{}: {link} leads nowhere",
                page.path.display()
            );
            count += 1;
        }
    }
    assert!(count > 30, "{count}");
}

#[test]
fn every_page_of_the_guide_is_in_its_table_and_in_the_book() {
    let guide = workspace().join("assets/guide");
    for list in ["README.md", "SUMMARY.md"] {
        let text = std::fs::read_to_string(guide.join(list)).expect("the list");
        let linked: BTreeSet<&str> = links(&text)
            .filter(|link| !link.contains('/') && Path::new(link).extension().is_some())
            .collect();
        for page in pages().iter().skip(1) {
            let name = page.path.file_name().and_then(|name| name.to_str());
            let name = name.expect("plain text");
            assert!(
                ["README.md", "SUMMARY.md"].contains(&name) || linked.contains(name),
                "{name} is missing in {list}"
            );
        }
    }
}

/// Returns the pages as mdbook has them once its preprocessor has changed their links.
fn book(chapters: &[Value]) -> Value {
    let mut links = Command::new(workspace().join(".ci/book-links"));
    let links = links.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut links = links.spawn().expect("a program of this repository");
    let book = json!([{}, { "items": chapters }]).to_string();
    let mut input = links.stdin.take().expect("piped");
    input.write_all(book.as_bytes()).expect("it reads");
    drop(input);
    let output = links.wait_with_output().expect("our child");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn in_the_book_no_link_leaves_the_guide() {
    if !needs(Need::Tool("python3")) {
        return;
    }
    let pages = pages();
    let guide = pages.iter().skip(1);
    let chapters: Vec<Value> = guide
        .map(|page| json!({ "Chapter": { "content": page.text } }))
        .collect();
    for chapter in book(&chapters)["items"].as_array().expect("a list") {
        let text = chapter["Chapter"]["content"].as_str().expect("a page");
        for link in links(text) {
            let leaves = link.starts_with("../") || link.starts_with("README.md");
            assert!(!leaves, "{link} leads nowhere in the book");
        }
    }
}
