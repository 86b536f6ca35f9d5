//! Waits for memory: the waiting process, the reason, and the holders of the memory.

use shm_layout::{Blocked, MemoryWait};

use super::{Holding, ProcessSample, Sample};
use gpushare_base::text::memory;
use gpushare_base::text::units::{short_size, short_time};

/// Maximum number of holders named in a sentence.
const NAMED: usize = 3;

/// A process that holds memory for which another waits.
#[derive(Clone, Copy, Debug)]
pub struct Holder<'a> {
    /// The process.
    pub process: &'a ProcessSample,
    /// The bytes that it holds.
    pub bytes: u64,
}

/// Returns the holders of the memory that a process waits for on a device, the largest first: the other members of its
/// group, or all others on the device. A process that waits for its own quota has none.
pub fn holders<'a>(
    sample: &'a Sample,
    process: &ProcessSample,
    holding: &Holding,
) -> Vec<Holder<'a>> {
    let Some(wait) = holding.memory_wait else {
        return Vec::new();
    };
    let concerns = |other: &ProcessSample| match wait.limit {
        Blocked::Quota => false,
        Blocked::Group => other.group == process.group,
        Blocked::Limit | Blocked::Device | Blocked::Behind => true,
    };
    let mut holders: Vec<Holder<'a>> = sample
        .holdings(holding.gpu)
        .filter(|(other, held)| {
            let is_other =
                other.shown_pid() != process.shown_pid() || other.slot() != process.slot();
            is_other && held.used > 0 && concerns(other)
        })
        .map(|(process, held)| Holder {
            process,
            bytes: held.used,
        })
        .collect();
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
    holders
}

/// Describes what a process waits for on a device and which processes hold it, as a sentence whose subject is the
/// process; `name` names a process.
pub fn sentence(
    sample: &Sample,
    process: &ProcessSample,
    holding: &Holding,
    name: impl Fn(&ProcessSample) -> String,
) -> Option<String> {
    let wait = holding.memory_wait?;
    let since = short_time(sample.time_ns.saturating_sub(wait.since_ns));
    let begin = format!(
        "has waited {since} for {} on GPU{}",
        short_size(wait.bytes),
        holding.gpu,
    );
    if wait.limit == Blocked::Behind {
        let ahead = sample.holdings(holding.gpu).filter(|(_, other)| {
            let ticket = other.memory_wait.map(|wait| wait.ticket);
            ticket.is_some_and(|ticket| ticket < wait.ticket)
        });
        let ahead: Vec<String> = ahead.map(|(other, _)| name(other)).take(NAMED).collect();
        if !ahead.is_empty() {
            return Some(format!("{begin}, behind {}", ahead.join(", ")));
        }
    }
    let what = format!("{begin}: {}", memory::full(wait.limit));
    let holders = holders(sample, process, holding);
    let named: Vec<String> = holders
        .iter()
        .take(NAMED)
        .map(|holder| format!("{} ({})", name(holder.process), short_size(holder.bytes)))
        .collect();
    let rest = match holders.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(match (wait.limit, named.is_empty()) {
        (Blocked::Quota, _) => what + "; only raising it, or what it frees itself, ends that",
        (_, true) => what + "; no other process that is seen holds any",
        (_, false) => format!("{what}; held by {}{rest}", named.join(", ")),
    })
}

/// Returns the time until a wait ends at the latest, in nanoseconds.
pub fn left_ns(sample: &Sample, wait: &MemoryWait) -> Option<u64> {
    Some(wait.until_ns?.saturating_sub(sample.time_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceSample;

    fn process(pid: u32, group: &str, used: u64, wait: Option<MemoryWait>) -> ProcessSample {
        let mut holding = Holding::default();
        holding.view.used = used;
        holding.view.memory_wait = wait;
        let mut process = ProcessSample {
            pid: Some(pid),
            ..ProcessSample::default()
        };
        process.view.slot.epoch = 1;
        process.view.slot.index = pid as u16;
        process.view.group = Some(group.to_owned()).filter(|group| !group.is_empty());
        process.view.devices.push(holding);
        process
    }

    fn said(limit: Blocked) -> String {
        let wait = MemoryWait {
            bytes: 30 << 30,
            limit,
            since_ns: 1_000_000_000,
            ..MemoryWait::default()
        };
        let mut sample = Sample::default();
        sample.snapshot.time_ns = 13_000_000_000;
        sample.snapshot.processes = vec![
            process(1, "team", 1 << 30, Some(wait)),
            process(2, "team", 10 << 30, None),
            process(3, "", 40 << 30, None),
            process(4, "", 0, None),
        ];
        let waits = &sample.processes[0];
        let pid = |process: &ProcessSample| process.shown_pid().to_string();
        sentence(&sample, waits, &waits.devices[0], pid).expect("it waits")
    }

    #[test]
    fn a_request_behind_others_names_those_and_no_limit_that_nobody_has_set() {
        let wait = |ticket, limit| MemoryWait {
            bytes: 1 << 30,
            limit,
            since_ns: 1_000_000_000,
            ticket,
            ..MemoryWait::default()
        };
        let mut sample = Sample::default();
        sample.snapshot.time_ns = 13_000_000_000;
        sample.snapshot.devices.push(DeviceSample::default());
        sample.snapshot.processes = vec![
            process(1, "", 12 << 30, None),
            process(2, "", 0, Some(wait(1, Blocked::Limit))),
            process(3, "", 0, Some(wait(2, Blocked::Behind))),
        ];
        let said = |sample: &Sample, at: usize| {
            let waits = &sample.processes[at];
            let pid = |process: &ProcessSample| process.shown_pid().to_string();
            sentence(sample, waits, &waits.devices[0], pid).expect("it waits")
        };
        let begin = "has waited 12.0s for 1.0G on GPU0";
        assert_eq!(said(&sample, 2), format!("{begin}, behind 2"));
        let limit = format!("{begin}: the device's limit is reached; held by 1 (12.0G)");
        assert_eq!(said(&sample, 1), limit);
        sample.snapshot.processes[1].devices[0].memory_wait = None;
        let asked = format!("{begin}: others asked before it; held by 1 (12.0G)");
        assert_eq!(said(&sample, 2), asked, "they have just left the queue");
    }

    #[test]
    fn who_holds_what_is_waited_for_is_named() {
        let begin = "has waited 12.0s for 30.0G on GPU0: ";
        assert_eq!(
            said(Blocked::Device),
            format!("{begin}the device is full; held by 3 (40.0G), 2 (10.0G)")
        );
        assert_eq!(
            said(Blocked::Group),
            format!("{begin}its group's quota is full; held by 2 (10.0G)")
        );
        assert_eq!(
            said(Blocked::Quota),
            format!(
                "{begin}its quota is full; only raising it, or what it frees itself, ends that"
            )
        );
    }
}
