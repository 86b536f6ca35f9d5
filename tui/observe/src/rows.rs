//! Rows: one for each process on each device, with its activity of the last seconds there.

use gpushare_sample::columns::{Recent, Row};
use gpushare_sample::{ProcessSample, Who};

use crate::data::Data;

/// Returns every row, in the order of the sample.
pub fn every(data: &Data) -> Vec<Row<'_>> {
    let of_process = |process| rows_of(data, process, None);
    data.sample.processes.iter().flat_map(of_process).collect()
}

/// Returns the rows of one process, on all devices or on one.
pub fn rows_of<'a>(
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
        let rates = data.rates(who, holding.gpu);
        Some(Row {
            who,
            letter: data.letter(who),
            process,
            holding,
            device: data.sample.devices.get(holding.gpu)?,
            recent: Some(Recent {
                hold: spent.hold.into(),
                wait: spent.wait.into(),
                fair: rates.and_then(|rates| rates.fair),
                hold_p99_ns: rates.and_then(|rates| rates.hold_p99_ns),
                wait_p50_ns: rates.and_then(|rates| rates.wait_p50_ns),
                wait_p99_ns: rates.and_then(|rates| rates.wait_p99_ns),
                launches_per_s: rates.map(|rates| rates.launches_per_s),
                behind: data.behind(process, holding),
            }),
            now_ns: data.sample.time_ns,
        })
    })
}
