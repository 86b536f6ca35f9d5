//! The guide and the README: every link leads somewhere, every command runs, every message is still said, and the reference is
//! what the tables say.

mod commands;
mod links;
mod messages;
mod reference;

use std::path::{Path, PathBuf};

/// A page: its path and its text.
struct Page {
    path: PathBuf,
    text: String,
}

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn page(path: PathBuf) -> Page {
    let text = std::fs::read_to_string(&path);
    Page {
        text: text.unwrap_or_else(|error| panic!("{}: {error}", path.display())),
        path,
    }
}

/// The README and the guide, by name.
fn pages() -> Vec<Page> {
    let guide = std::fs::read_dir(workspace().join("assets/guide")).expect("the guide");
    let mut paths: Vec<PathBuf> = guide.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.insert(0, workspace().join("README.md"));
    assert!(paths.len() > 9, "{paths:?}");
    paths.into_iter().map(page).collect()
}
