//! The messages that the troubleshooting page quotes.

use std::path::Path;

use crate::{page, workspace};

/// Returns every source of the library and the tools, with continued strings joined.
fn sources() -> String {
    let mut text = String::new();
    for dir in ["shim/src", "shm-layout/src", "tui"] {
        read(&workspace().join(dir), &mut text);
    }
    // A backslash at the end of a line in a string removes the blanks at the start of the next line.
    let mut pieces = text.split("\\\n");
    let mut joined = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        joined.push_str(piece.trim_start());
    }
    joined
}

fn read(dir: &Path, text: &mut String) {
    for entry in std::fs::read_dir(dir).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("tests") {
            read(&path, text);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            text.push_str(&std::fs::read_to_string(&path).expect("text"));
        }
    }
}

#[test]
fn every_message_that_is_explained_is_still_said() {
    let page = page(workspace().join("assets/guide/troubleshooting.md"));
    let sources = sources();
    let mut count = 0;
    let quoted = page
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'));
    for message in quoted {
        // The source may write a name or a number in any way, so only the text between them is compared.
        for part in message.split('…').map(|part| part.trim_matches([' ', ':'])) {
            assert!(
                sources.contains(part),
                "{part:?} of {message:?} is said nowhere"
            );
        }
        count += 1;
    }
    assert!(count > 25, "{count}");
}
