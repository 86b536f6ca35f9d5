//! The summary of one process on one device, as text that fits any width.

use crate::keys::Keymap;
use gpushare_base::text::eviction;
use gpushare_base::text::units::{human_size, short_count, short_size, short_time};
use gpushare_observe::data::Data;
use gpushare_sample::{Holding, ProcessSample, Source};
use unicode_width::UnicodeWidthStr;

/// The gap between two pieces of a line; a line may be broken there.
const GAP: &str = "   ";

/// Returns the lines, the pieces of each with [`GAP`] between them.
pub(super) fn lines(
    data: &Data,
    process: &ProcessSample,
    holding: &Holding,
    keys: &Keymap,
) -> Vec<String> {
    let now = data.sample.time_ns;
    let quota = holding.quota.bytes.map_or("no quota".into(), human_size);
    let none = || "none".to_owned();
    let up = match process.slot() {
        Some(_) => short_time(now.saturating_sub(process.registered_ns)),
        None => "?".into(),
    };
    let count = &holding.counters;
    let mut lines = vec![
        format!(
            "user {}   container {}   group {}   up {up}   {}",
            process.user,
            process.container.as_deref().unwrap_or("none"),
            group(data, process, holding.gpu),
            if process.identity.exe.is_empty() {
                "?"
            } else {
                &process.identity.exe
            },
        ),
        format!(
            "GPU{}  used {}   peak {}   quota {quota} ({}{})   NVML counts {}",
            holding.gpu,
            human_size(holding.used),
            human_size(holding.peak),
            source_word(process, holding.quota.source),
            still(holding.quota_until_ns, now),
            holding.nvml.bytes.map_or_else(none, human_size),
        ),
        format!(
            "allocations {}   frees {}   denials {} ({})   pinned {}   imported {}   gate closed {}   stepped aside {}",
            short_count(count.allocations),
            short_count(count.frees),
            count.denials,
            short_size(count.denied_bytes),
            short_size(count.host_pinned_bytes),
            short_size(count.imported_bytes),
            short_count(count.gate_misses),
            short_count(count.bypasses),
        ),
        format!(
            "launches {} ({} captured)   copies {} ({})   syncs {}   last work {}",
            short_count(holding.launches()),
            short_count(count.captured),
            short_count(holding.copies()),
            short_size(count.copy_bytes),
            short_count(count.syncs),
            match count.last_submit_ns {
                0 => none(),
                at => format!("{} ago", short_time(now.saturating_sub(at))),
            },
        ),
        share_line(process, holding, now),
    ];
    lines.extend(threads_line(process));
    if let Some(line) = where_it_is(process, now) {
        lines.insert(1, line);
    }
    if let Some(line) = trace_line(process, keys) {
        lines.insert(0, line);
    }
    lines
}

fn source_word(process: &ProcessSample, source: Source) -> &'static str {
    match process.is_managed() {
        true => source.word(),
        false => "none",
    }
}

/// Describes what the process does on the host's processors.
fn threads_line(process: &ProcessSample) -> Option<String> {
    let threads = &process.threads;
    match (
        threads.readable?,
        threads.busiest_percent,
        threads.waits_percent,
    ) {
        (true, Some(busiest), Some(waits)) => Some(format!(
            "threads {}   use {}% of a core   the busiest {busiest}%   waits {waits}% of its time for a processor",
            threads.number.unwrap_or(0),
            threads.cpu_percent.unwrap_or(0),
        )),
        _ => Some("threads not readable from here".to_owned()),
    }
}

/// Describes the process's share of the device's time, and what it did with it.
fn share_line(process: &ProcessSample, holding: &Holding, now: u64) -> String {
    let cap = process.share.cap;
    let cap = cap.map_or_else(|| "none".to_owned(), |cap| format!("{cap}%"));
    format!(
        "weight {}   priority {}{}   cap {cap}{}   yields {} ({})   holds so far {}   forced {}   late {}",
        process.share.weight,
        process.share.priority,
        match process.share.boost_until_ns {
            Some(until) => format!(" (boost{})", still(Some(until), now)),
            None => String::new(),
        },
        // Of several values that expire, the first is shown. A boost shows its own end.
        match process.share.until_ns {
            Some(_) if process.share.boost_until_ns.is_none() => {
                format!(" (as before in {})", left(process.share.until_ns, now))
            }
            _ => String::new(),
        },
        holding.policy.0.kind,
        source_word(process, holding.policy.1),
        short_count(holding.lock.acquisitions),
        holding.lock.forced,
        holding.counters.drain_timeouts,
    )
}

/// Describes the process's trace.
fn trace_line(process: &ProcessSample, keys: &Keymap) -> Option<String> {
    let trace = process.trace()?;
    Some(format!(
        "trace {}   records {}{}   dropped {}   {} {} it",
        trace.progress.state.word(),
        short_count(trace.progress.records),
        trace
            .wanted
            .map(|room| format!(" of {}", short_count(room.into())))
            .unwrap_or_default(),
        short_count(trace.progress.dropped),
        keys.letter('t'),
        if trace.goes_on() { "stops" } else { "starts" },
    ))
}

/// Describes how long a temporary value still holds: ` for 9m`.
pub(super) fn still(until_ns: Option<u64>, now_ns: u64) -> String {
    match until_ns {
        Some(_) => format!(" for {}", left(until_ns, now_ns)),
        None => String::new(),
    }
}

fn left(until_ns: Option<u64>, now_ns: u64) -> String {
    until_ns.map_or_else(String::new, |until| {
        short_time(until.saturating_sub(now_ns))
    })
}

/// Returns the lines if every one fits; else all pieces one behind the other, broken at the width.
pub(super) fn fitted(lines: Vec<String>, width: u16) -> Vec<String> {
    let width = usize::from(width);
    if lines.iter().all(|line| line.width() <= width) {
        return lines;
    }
    let mut fitted = Vec::new();
    let mut rest = String::new();
    for piece in lines.iter().flat_map(|line| line.split(GAP)) {
        if !rest.is_empty() && rest.width() + GAP.len() + piece.width() > width {
            fitted.push(std::mem::take(&mut rest));
        }
        if !rest.is_empty() {
            rest += GAP;
        }
        rest += piece;
    }
    fitted.push(rest);
    fitted
}

/// Describes where the process's memory is, when it is evicted, or why it is not.
fn where_it_is(process: &ProcessSample, now_ns: u64) -> Option<String> {
    let held = process
        .devices
        .iter()
        .map(|h| h.used)
        .fold(0, u64::saturating_add);
    let bytes = match process.evicted_bytes() {
        0 => held,
        evicted => evicted,
    };
    let line = eviction::line(&process.residence, bytes, now_ns);
    line.or_else(|| {
        let left = short_time(process.evicts_in_ns(now_ns)?);
        Some(format!("evicted in {left}{GAP}if it stays idle"))
    })
}

fn group(data: &Data, process: &ProcessSample, gpu: usize) -> String {
    let Some(name) = &process.group else {
        return "none".into();
    };
    let known = data.sample.groups.iter().find(|group| group.name == *name);
    let quota = known.and_then(|group| data.sample.group_quota(group, gpu));
    match (known, quota) {
        (Some(group), Some(quota)) => {
            let used = data.sample.group_bytes(group, gpu);
            format!("{name} ({} of {})", short_size(used), short_size(quota))
        }
        _ => name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_broken_between_its_pieces_only() {
        let lines = vec![
            "used 4.0 GiB   peak 5.0 GiB   quota none".to_owned(),
            "x".into(),
        ];
        assert_eq!(fitted(lines.clone(), 80), lines);
        let narrow = ["used 4.0 GiB", "peak 5.0 GiB", "quota none   x"];
        assert_eq!(fitted(lines.clone(), 20), narrow);
        let each = ["used 4.0 GiB", "peak 5.0 GiB", "quota none", "x"];
        assert_eq!(fitted(lines, 0), each);
    }
}
