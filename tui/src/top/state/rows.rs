//! The rows of the process table: one for each process on each device.

use std::cmp::Ordering;

use crate::sample::{DeviceSample, Holding, ProcessSample};
use crate::top::columns::{self, Value};

use super::lanes::Cell;
use super::pulse::Pulse;
use super::{Choices, Data, Who};

/// One row.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    /// Which process.
    pub who: Who,
    /// Its letter.
    pub letter: char,
    /// The process.
    pub process: &'a ProcessSample,
    /// What it holds on the device.
    pub holding: &'a Holding,
    /// The device.
    pub device: &'a DeviceSample,
    /// Its rates.
    pub pulse: Option<&'a Pulse>,
    /// How it spent its recent time on the lock.
    pub spent: Cell,
    /// Whom it waited for longest lately: letter, pid, and which share of its waits.
    pub behind: Option<(char, u32, f64)>,
    /// The moment the row is about.
    pub now_ns: u64,
}

pub(super) fn every(data: &Data) -> Vec<Row<'_>> {
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
        .devices
        .iter()
        .filter(move |h| only.is_none_or(|gpu| gpu == h.gpu));
    wanted.filter_map(move |holding| {
        Some(Row {
            who,
            letter: data.letter(who),
            process,
            holding,
            device: data.sample.devices.get(holding.gpu)?,
            pulse: data.pulse(who, holding.gpu),
            spent: data.spent(who, holding.gpu),
            behind: data.behind(process, holding),
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
    let Some(column) = columns::COLUMNS.get(choices.sort) else {
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
