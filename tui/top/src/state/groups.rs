//! The lines of the process table when its rows are gathered: each group has a line above its rows, and no row while it is
//! folded.

use super::choices::{Choices, Tree};
use gpushare_sample::columns::Row;

/// A line of the table.
#[derive(Clone, Copy)]
pub enum Line<'a> {
    /// A group, with its rows and whether it is folded.
    Group(&'a [Row<'a>], bool),
    /// A process on a device.
    Row(&'a Row<'a>),
}

impl<'a> Line<'a> {
    /// Returns the rows that a key on this line acts on.
    pub fn rows(self) -> &'a [Row<'a>] {
        match self {
            Line::Group(rows, _) => rows,
            Line::Row(row) => std::slice::from_ref(row),
        }
    }
}

/// Returns the lines of rows that are gathered already.
pub fn lines<'a>(rows: &'a [Row<'a>], choices: &Choices) -> Vec<Line<'a>> {
    let tree = choices.tree;
    if tree == Tree::Flat {
        return rows.iter().map(Line::Row).collect();
    }
    let name = |row: &Row<'_>| tree.branch(row);
    let mut lines = Vec::new();
    for group in rows.chunk_by(|a, b| name(a) == name(b)) {
        let folded = choices.folded.contains(&name(&group[0]));
        lines.push(Line::Group(group, folded));
        if !folded {
            lines.extend(group.iter().map(Line::Row));
        }
    }
    lines
}
