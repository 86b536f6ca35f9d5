//! A trace as CSV: a row for each record; values are in base units, which the heading names.

use std::io::Write;

use serde::Serialize;
use shm_layout::trace::{Kind, Record};

use super::{Account, Found, device_name, device_names};
use gpushare_base::text::exit::Failure;
use gpushare_base::text::plain::cell;
use gpushare_base::text::uuids;
use gpushare_sample::{Reason, Sample};

/// Headings, which a trace without records also has.
const HEADINGS: [&str; 12] = [
    "pid",
    "name",
    "tid",
    "kind",
    "call",
    "start_ns",
    "start_unix_ns",
    "duration_ns",
    "bytes",
    "gpu",
    "uuid",
    "ended_by",
];

#[derive(Default, Serialize)]
struct Row<'a> {
    pid: u32,
    name: &'a str,
    tid: u32,
    kind: &'static str,
    call: &'a str,
    start_ns: u64,
    start_unix_ns: u64,
    duration_ns: u64,
    bytes: u64,
    gpu: &'a str,
    uuid: &'a str,
    ended_by: &'static str,
}

/// Writes all traces into one table.
pub fn write(
    traces: &[Found],
    sample: &Sample,
    out: &mut dyn Write,
) -> Result<Vec<Account>, Failure> {
    let mut table = csv::WriterBuilder::new()
        .has_headers(false)
        .from_writer(out);
    table
        .write_record(HEADINGS)
        .map_err(|error| cannot(&error))?;
    let mut accounts = Vec::new();
    for found in traces {
        let reader = found.read()?;
        let header = reader.header();
        let names = device_names(header, sample);
        let uuids: Vec<String> = header
            .devices
            .iter()
            .map(|uuid| uuids::format(*uuid, false))
            .collect();
        let mut account = Account::new(found, &reader);
        for record in reader.records() {
            let row = Row {
                pid: account.pid,
                name: &cell(&header.label),
                tid: record.tid,
                kind: kind(record.kind),
                call: &cell(record.name.unwrap_or_default()),
                start_ns: record.start_ns,
                start_unix_ns: header.realtime_of(record.start_ns),
                duration_ns: record.duration_ns,
                bytes: record.bytes,
                gpu: device_name(&names, record.device).unwrap_or_default(),
                uuid: device_name(&uuids, record.device).unwrap_or_default(),
                ended_by: ended_by(&record),
            };
            table.serialize(row).map_err(|error| cannot(&error))?;
            account.records += 1;
        }
        accounts.push(account);
    }
    table.flush()?;
    Ok(accounts)
}

fn cannot(error: &csv::Error) -> Failure {
    match error.kind() {
        csv::ErrorKind::Io(io) => std::io::Error::new(io.kind(), io.to_string()).into(),
        _ => Failure::failed(format!("CSV cannot be written: {error}")),
    }
}

/// Returns the word for a kind of record.
pub fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Call => "call",
        Kind::Wait => "wait",
        Kind::Hold => "hold",
        Kind::Denial => "denial",
    }
}

/// Returns the word for the end of a hold, or an empty string if the record has none.
pub fn ended_by(record: &Record<'_>) -> &'static str {
    record.reason.map_or("", Reason::word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headings_are_the_rows_own() {
        let mut table = csv::Writer::from_writer(Vec::new());
        table.serialize(Row::default()).expect("memory");
        let text = String::from_utf8(table.into_inner().expect("memory")).expect("text");
        assert_eq!(text.lines().next(), Some(HEADINGS.join(",").as_str()));
    }
}
