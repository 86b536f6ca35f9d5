//! The line of a group in the process table, with the sums of its rows.

use crate::state::Tree;
use gpushare_base::text::units::short_size;
use gpushare_sample::columns::Row;

/// Describes the sums of a group: `user alice  3 processes  40.1G  hold 34%  wait 120%  denied 4`.
pub(super) fn sum(rows: &[Row<'_>], tree: Tree) -> String {
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
