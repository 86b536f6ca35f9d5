//! The process table grouped by user, group or container: a line with the sums stands above the rows of each.

use crate::state::Tree;
use gpushare_base::text::units::short_size;
use gpushare_sample::columns::Row;

/// A line of the grouped table.
pub(super) enum Line<'a> {
    /// The sums of the rows below.
    Branch(String),
    /// A process on a device.
    Row(&'a Row<'a>),
}

/// Returns the lines of rows that are grouped already.
pub(super) fn lines<'a>(rows: &'a [Row<'a>], tree: Tree) -> Vec<Line<'a>> {
    let one = |row: &'a Row<'a>| Line::Row(row);
    if tree == Tree::Flat {
        return rows.iter().map(one).collect();
    }
    let same = |a: &Row<'_>, b: &Row<'_>| tree.branch(a) == tree.branch(b);
    let branches = rows.chunk_by(same);
    branches
        .flat_map(|branch| {
            std::iter::once(Line::Branch(sum(branch, tree))).chain(branch.iter().map(one))
        })
        .collect()
}

/// Describes the sums of a group: `user alice  3 processes  40.1G  hold 34%  wait 120%  denied 4`.
fn sum(rows: &[Row<'_>], tree: Tree) -> String {
    let name = rows.first().map(|row| tree.branch(row)).unwrap_or_default();
    let mut who: Vec<_> = rows.iter().map(|row| row.who).collect();
    who.sort_unstable();
    who.dedup();
    let used = rows.iter().map(|row| row.holding.used);
    let used = used.fold(0, u64::saturating_add);
    let recent = || rows.iter().filter_map(|row| row.recent);
    let hold: f64 = recent().map(|recent| recent.hold).sum::<f64>() * 100.0;
    let wait: f64 = recent().map(|recent| recent.wait).sum::<f64>() * 100.0;
    let denials = rows.iter().map(|row| row.holding.counters.denials);
    let denied = match denials.fold(0, u64::saturating_add) {
        0 => String::new(),
        count => format!("  denied {count}"),
    };
    let noun = if who.len() == 1 {
        "process"
    } else {
        "processes"
    };
    format!(
        "{name}  {} {noun}  {}  hold {hold:.0}%  wait {wait:.0}%{denied}",
        who.len(),
        short_size(used)
    )
}
