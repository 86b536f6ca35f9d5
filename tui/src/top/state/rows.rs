//! The rows of the process table: one for each process on each device.

use std::cmp::Ordering;

use super::choices::Choices;
use crate::sample::columns::{COLUMNS, Recent, Row, Value};
use crate::sample::{ProcessSample, Who};
use crate::top::data::Data;

/// Every row, in the order of the samples.
pub fn every(data: &Data) -> Vec<Row<'_>> {
    let of_process = |process| rows_of(data, process, None);
    data.sample.processes.iter().flat_map(of_process).collect()
}

fn rows_of<'a>(
    data: &'a Data,
    process: &'a ProcessSample,
    only: Option<usize>,
) -> impl Iterator<Item = Row<'a>> {
    let who = Who::of(process);
    let wanted = process
        .uses()
        .filter(move |h| only.is_none_or(|gpu| gpu == h.gpu));
    wanted.filter_map(move |holding| {
        let spent = data.spent(who, holding.gpu);
        let pulse = data.pulse(who, holding.gpu);
        Some(Row {
            who,
            letter: data.letter(who),
            process,
            holding,
            device: data.sample.devices.get(holding.gpu)?,
            recent: Some(Recent {
                hold: spent.hold.into(),
                wait: spent.wait.into(),
                launches_per_s: pulse.map(|pulse| pulse.launches_per_s),
                behind: data.behind(process, holding),
            }),
            now_ns: data.sample.time_ns,
        })
    })
}

pub(super) fn rows<'a>(data: &'a Data, choices: &Choices) -> Vec<Row<'a>> {
    let only = (!choices.all_gpus).then_some(choices.gpu);
    let processes = data.sample.processes.iter();
    let mut rows: Vec<Row<'_>> = processes
        .flat_map(|process| rows_of(data, process, only))
        .filter(|row| choices.filter.accepts(row))
        .collect();
    if let Some(pinned) = &choices.pinned {
        // Newcomers go last.
        let place = |row: &Row<'_>| (row.who, row.holding.gpu);
        rows.sort_by_cached_key(|row| {
            let at = pinned.iter().position(|pinned| *pinned == place(row));
            (at.unwrap_or(usize::MAX), place(row))
        });
        return rows;
    }
    let Some(column) = COLUMNS.get(choices.sort) else {
        return rows;
    };
    rows.sort_by(|a, b| {
        let order = match ((column.value)(a), (column.value)(b)) {
            // What is absent goes last, whichever way the rest is sorted.
            (Value::None, Value::None) => Ordering::Equal,
            (Value::None, _) => Ordering::Greater,
            (_, Value::None) => Ordering::Less,
            (x, y) if choices.descending => y.compare(&x),
            (x, y) => x.compare(&y),
        };
        order.then_with(|| (a.who, a.holding.gpu).cmp(&(b.who, b.holding.gpu)))
    });
    rows
}
