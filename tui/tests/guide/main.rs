//! The guide and the README: every link has a target, every command runs, every quoted message exists, and the reference agrees
//! with the tables.

mod commands;
mod first_minutes;
mod links;
mod messages;
mod readme;
mod reference;
mod results;

use std::path::{Path, PathBuf};

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

/// Returns the README and the guide, sorted by name.
fn pages() -> Vec<Page> {
    let guide = std::fs::read_dir(workspace().join("assets/guide")).expect("the guide");
    let mut paths: Vec<PathBuf> = guide.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    paths.insert(0, workspace().join("README.md"));
    assert!(paths.len() > 9, "{paths:?}");
    paths.into_iter().map(page).collect()
}
