//! The README's size: a reader decides on one screen or two.

use crate::workspace;

#[test]
fn the_readme_has_at_most_120_lines_of_at_most_120_characters() {
    let text = std::fs::read_to_string(workspace().join("README.md")).expect("the README");
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
