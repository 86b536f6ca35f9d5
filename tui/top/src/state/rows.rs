//! The rows of the process table: one for each process on each device.

use std::cmp::Ordering;

use rustc_hash::FxHashMap;

use super::Place;
use super::choices::{Choices, Tree};
use gpushare_observe::data::Data;
use gpushare_observe::rows::rows_of;
use gpushare_sample::columns::{COLUMNS, Row, Value};

/// Returns the rows of the process table.
pub fn rows<'a>(data: &'a Data, choices: &Choices) -> Vec<Row<'a>> {
    let only = (!choices.all_gpus).then_some(choices.gpu);
    let processes = data.sample.processes.iter();
    let mut rows: Vec<Row<'_>> = processes
        .flat_map(|process| rows_of(data, process, only))
        .filter(|row| choices.filter.accepts(row))
        .collect();
    if let Some(pinned) = &choices.pinned {
        // New rows come last.
        rows.sort_by_cached_key(|row| {
            let at = pinned.iter().position(|pinned| *pinned == place(row));
            (at.unwrap_or(usize::MAX), place(row))
        });
        return rows;
    }
    let order = choices.order.as_ref();
    let order = order.filter(|order| order.by == choices.by());
    let places = order.map_or(&[][..], |order| &order.places);
    let places: FxHashMap<Place, usize> = places.iter().copied().zip(0..).collect();
    if !rows.iter().all(|row| places.contains_key(&place(row))) {
        sort(&mut rows, choices);
    }
    if !places.is_empty() {
        keep(&mut rows, &places, (choices.sort, choices.descending));
    }
    gathered(rows, choices.tree)
}

fn place(row: &Row<'_>) -> Place {
    (row.who, row.holding.gpu)
}

/// Sorts rows by the chosen columns.
fn sort(rows: &mut [Row<'_>], choices: &Choices) {
    let keys = [Some((choices.sort, choices.descending)), choices.then];
    rows.sort_by(|a, b| {
        let mut orders = keys.iter().flatten().map(|key| compare(a, b, *key));
        let order = orders.find(|order| order.is_ne());
        order
            .unwrap_or(Ordering::Equal)
            .then_with(|| place(a).cmp(&place(b)))
    });
}

/// Difference between two percentages, and part of two other numbers, up to which they count as equal.
const POINTS: f64 = 3.0;
const PART: f64 = 0.05;

/// Brings rows back to an earlier order, in which only a clear difference changes places.
fn keep(rows: &mut [Row<'_>], places: &FxHashMap<Place, usize>, key: (usize, bool)) {
    // New rows come last, and go up from there.
    rows.sort_by_cached_key(|row| {
        let at = places.get(&place(row)).copied();
        at.unwrap_or(usize::MAX)
    });
    for next in 1..rows.len() {
        let mut at = next;
        while at > 0 && is_clearly_behind(&rows[at - 1], &rows[at], key) {
            rows.swap(at - 1, at);
            at -= 1;
        }
    }
}

fn is_clearly_behind(a: &Row<'_>, b: &Row<'_>, key: (usize, bool)) -> bool {
    if compare(a, b, key) != Ordering::Greater {
        return false;
    }
    let value = |row: &Row<'_>| COLUMNS.get(key.0).map(|column| (column.value)(row));
    let (Some(x), Some(y)) = (value(a), value(b)) else {
        return true;
    };
    let (Some(m), Some(n)) = (x.number(), y.number()) else {
        return true;
    };
    let margin = match x {
        Value::Percent(_) => POINTS,
        _ => m.abs().max(n.abs()) * PART,
    };
    (m - n).abs() > margin
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
