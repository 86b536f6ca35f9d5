//! The messages that the troubleshooting page quotes.

use std::path::Path;

use crate::{page, workspace};

/// Every source of the library and the tools, without the breaks within a text.
fn sources() -> String {
    let mut text = String::new();
    for dir in ["shim/src", "shm-layout/src", "tui/src"] {
        read(&workspace().join(dir), &mut text);
    }
    // In a text a backslash at the end of a line takes the blanks of the next one with it.
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
        if path.is_dir() {
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
        // What stands for a name or a number is apart in the source, however it is written there.
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
