//! The rows of the process table: one for each process on each device.

use std::cmp::Ordering;

use super::choices::{Choices, Tree};
use gpushare_observe::data::Data;
use gpushare_observe::rows::rows_of;
use gpushare_sample::columns::{COLUMNS, Row, Value};

pub(super) fn rows<'a>(data: &'a Data, choices: &Choices) -> Vec<Row<'a>> {
    let only = (!choices.all_gpus).then_some(choices.gpu);
    let processes = data.sample.processes.iter();
    let mut rows: Vec<Row<'_>> = processes
        .flat_map(|process| rows_of(data, process, only))
        .filter(|row| choices.filter.accepts(row))
        .collect();
    if let Some(pinned) = &choices.pinned {
        // New rows come last.
        let place = |row: &Row<'_>| (row.who, row.holding.gpu);
        rows.sort_by_cached_key(|row| {
            let at = pinned.iter().position(|pinned| *pinned == place(row));
            (at.unwrap_or(usize::MAX), place(row))
        });
        return rows;
    }
    let keys = [Some((choices.sort, choices.descending)), choices.then];
    rows.sort_by(|a, b| {
        let mut orders = keys.iter().flatten().map(|key| compare(a, b, *key));
        let order = orders.find(|order| order.is_ne());
        order
            .unwrap_or(Ordering::Equal)
            .then_with(|| (a.who, a.holding.gpu).cmp(&(b.who, b.holding.gpu)))
    });
    gathered(rows, choices.tree)
}

/// Groups the rows by user, group or container, in the order of the first row of each.
fn gathered(mut rows: Vec<Row<'_>>, tree: Tree) -> Vec<Row<'_>> {
    if tree == Tree::Flat {
        return rows;
    }
    let mut found: Vec<String> = Vec::new();
    for row in &rows {
        let branch = tree.branch(row);
        if !found.contains(&branch) {
            found.push(branch);
        }
    }
    rows.sort_by_cached_key(|row| {
        let branch = tree.branch(row);
        found.iter().position(|one| *one == branch)
    });
    rows
}

/// Compares two rows by a column. Absent values come last in both sort orders.
fn compare(a: &Row<'_>, b: &Row<'_>, (column, descending): (usize, bool)) -> Ordering {
    let Some(column) = COLUMNS.get(column) else {
        return Ordering::Equal;
    };
    match ((column.value)(a), (column.value)(b)) {
        (Value::None, Value::None) => Ordering::Equal,
        (Value::None, _) => Ordering::Greater,
        (_, Value::None) => Ordering::Less,
        (x, y) if descending => y.compare(&x),
        (x, y) => x.compare(&y),
    }
}
