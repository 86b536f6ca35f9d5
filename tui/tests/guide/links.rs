//! Links within the repository.

use std::collections::BTreeSet;
use std::path::Path;

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
    if link.contains("://") {
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
