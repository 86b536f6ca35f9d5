//! Waits for memory: the waiting process, the reason, and the holders of the memory.

use std::ffi::OsString;

use shm_layout::memory::queue::EvictionRules;
use shm_layout::{Blocked, MemoryWait};

use super::{GroupView, Holding, ProcessSample, Sample};
use gpushare_base::text::units::{short_size, short_time};
use gpushare_base::text::{memory, shell};

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
        .filter(|(other, held)| is_other(process, other) && held.used > 0 && concerns(other))
        .map(|(process, held)| Holder {
            process,
            bytes: held.used,
        })
        .collect();
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
    holders
}

/// Returns the reason of a wait in one word: that of [`Blocked`], or `reserve`. Shared memory has no word for reserves that leave
/// no room and says `limit` or `device`, so the reserves of the sample decide.
pub fn reason(
    sample: &Sample,
    process: &ProcessSample,
    holding: &Holding,
    wait: MemoryWait,
) -> &'static str {
    if !ahead(sample, process, holding, wait).is_empty() {
        return Blocked::Behind.word();
    }
    match blocking_reserve(sample, process, holding, wait) {
        Some(_) => "reserve",
        None => limit_of(sample, holding.gpu, wait).word(),
    }
}

/// Returns the limit that a request waits for. Without a limit of the operator the device itself has no room.
fn limit_of(sample: &Sample, gpu: usize, wait: MemoryWait) -> Blocked {
    let device = sample.devices.get(gpu);
    match wait.limit {
        Blocked::Limit if device.is_none_or(|device| device.limit.is_none()) => Blocked::Device,
        limit => limit,
    }
}

/// Returns the bytes of a device that no process uses, under the operator's limit at most what that leaves.
fn free_bytes(sample: &Sample, gpu: usize, limit: Blocked) -> u64 {
    let Some(device) = sample.devices.get(gpu) else {
        return 0;
    };
    let counted = sample.ledger_bytes(gpu);
    let used = device.used_bytes.unwrap_or(0).max(counted);
    let free = device.total_bytes.saturating_sub(used);
    match device.limit.filter(|_| limit == Blocked::Limit) {
        Some(most) => free.min(most.saturating_sub(counted)),
        None => free,
    }
}

fn is_other(process: &ProcessSample, other: &ProcessSample) -> bool {
    other.shown_pid() != process.shown_pid() || other.slot() != process.slot()
}

/// Returns the processes that get memory of the device before one that waits for some.
fn ahead<'a>(
    sample: &'a Sample,
    process: &ProcessSample,
    holding: &Holding,
    wait: MemoryWait,
) -> Vec<&'a ProcessSample> {
    // On an overcommitted device the order is by what each process has lacked, which a sample does not tell.
    let is_by_ticket = sample
        .devices
        .get(holding.gpu)
        .is_some_and(|device| !EvictionRules::of(device.policy.0, device.overcommit).are_on());
    // A process that has as much already, and one within its reserve, pass every other.
    let passes = !wait.is_return && holding.used >= wait.bytes
        || holding.used.saturating_add(wait.bytes) <= holding.reserved;
    if passes || wait.limit == Blocked::Quota || !is_by_ticket && wait.limit != Blocked::Behind {
        return Vec::new();
    }
    let precedes = |other: &ProcessSample, theirs: MemoryWait| {
        let blocks = match theirs.limit {
            Blocked::Quota => false,
            Blocked::Group => other.group == process.group,
            Blocked::Limit | Blocked::Device | Blocked::Behind => true,
        };
        let is_first =
            (other.share.priority, wait.ticket) > (process.share.priority, theirs.ticket);
        blocks && is_first && !other.share.paused
    };
    let all = sample.holdings(holding.gpu);
    all.filter(|(other, held)| held.memory_wait.is_some_and(|wait| precedes(other, wait)))
        .map(|(other, _)| other)
        .collect()
}

/// Memory of a device that a process or a group has reserved.
struct Reserved<'a> {
    /// Its size.
    bytes: u64,
    /// The part in use.
    used: u64,
    /// The process or group.
    owner: Owner<'a>,
}

/// The owner of a reserve.
enum Owner<'a> {
    Process(&'a ProcessSample),
    Group(&'a GroupView),
}

impl Reserved<'_> {
    /// Returns the bytes that no process uses and no other can take.
    fn unused(&self) -> u64 {
        self.bytes.saturating_sub(self.used)
    }

    /// Names the reserve, and the command that lowers it; `name` names a process.
    fn describe(&self, name: impl Fn(&ProcessSample) -> String) -> String {
        let (owner, edit) = match self.owner {
            Owner::Process(process) => {
                let label = &process.identity.label;
                let target = match label.is_empty() {
                    true => process.shown_pid().to_string(),
                    false => shell::line(std::iter::once(OsString::from(format!("name:{label}")))),
                };
                (name(process), format!("set {target}"))
            }
            Owner::Group(group) => (
                format!("group {}", group.name),
                format!("group set {}", group.name),
            ),
        };
        format!(
            "{} are reserved for {owner} (it uses {}); gpushare {edit} reserve=SIZE gives some back",
            short_size(self.bytes),
            short_size(self.used),
        )
    }
}

/// Returns the reserves on a device that a process cannot take from.
fn reserved_from<'a>(sample: &'a Sample, process: &ProcessSample, gpu: usize) -> Vec<Reserved<'a>> {
    let others = sample.processes.iter();
    let others = others.filter(|other| is_other(process, other));
    let of_processes = others.filter_map(|other| {
        let held = other.on(gpu)?;
        Some(Reserved {
            bytes: held.reserved,
            used: held.used,
            owner: Owner::Process(other),
        })
    });
    let groups = sample.groups.iter();
    let groups = groups.filter(|group| process.group.as_ref() != Some(&group.name));
    let of_groups = groups.map(|group| Reserved {
        bytes: sample.group_reserve(group, gpu),
        used: sample.group_claim(group, gpu),
        owner: Owner::Group(group),
    });
    of_processes.chain(of_groups).collect()
}

/// Returns the reserve of which most is unused, if a request has no room because of reserves: without them it fits.
fn blocking_reserve<'a>(
    sample: &'a Sample,
    process: &ProcessSample,
    holding: &Holding,
    wait: MemoryWait,
) -> Option<Reserved<'a>> {
    let limit = limit_of(sample, holding.gpu, wait);
    let free = free_bytes(sample, holding.gpu, limit);
    if !matches!(limit, Blocked::Limit | Blocked::Device) || wait.bytes > free {
        return None;
    }
    let reserved = reserved_from(sample, process, holding.gpu);
    let unused = reserved.iter().map(Reserved::unused);
    let unused = unused.fold(0, u64::saturating_add);
    let most = reserved.into_iter().max_by_key(Reserved::unused);
    most.filter(|_| wait.bytes > free.saturating_sub(unused))
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
    let ahead = ahead(sample, process, holding, wait).into_iter();
    let ahead: Vec<String> = ahead.map(&name).take(NAMED).collect();
    if !ahead.is_empty() {
        return Some(format!("{begin}, behind {}", ahead.join(", ")));
    }
    if let Some(reserved) = blocking_reserve(sample, process, holding, wait) {
        return Some(format!("{begin}: {}", reserved.describe(name)));
    }
    let limit = limit_of(sample, holding.gpu, wait);
    let free = free_bytes(sample, holding.gpu, limit);
    if limit == Blocked::Device && wait.bytes <= free {
        // The figures of the driver are late.
        let why = match wait.is_return {
            true => "its memory returns up to 2 s after memory was freed there",
            false => "the driver refused it, although the accounts have room; it is asked again",
        };
        return Some(format!("{begin}: {why}"));
    }
    let what = match limit {
        Blocked::Device if free > 0 => format!(
            "{begin}: needs {}, {} are free",
            short_size(wait.bytes),
            short_size(free)
        ),
        limit => format!("{begin}: {}", memory::full(limit)),
    };
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
    use shm_layout::Reserve;

    use super::*;
    use crate::{DeviceSample, report};

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

    /// Returns a wait for so many GiB, since 12 s.
    fn wait(gib: u64, ticket: u64, limit: Blocked) -> MemoryWait {
        MemoryWait {
            bytes: gib << 30,
            limit,
            since_ns: 1_000_000_000,
            ticket,
            ..MemoryWait::default()
        }
    }

    #[test]
    fn a_request_behind_others_names_those_and_no_limit_that_nobody_has_set() {
        let mut sample = Sample::default();
        sample.snapshot.time_ns = 13_000_000_000;
        sample.snapshot.devices.push(DeviceSample::default());
        sample.snapshot.processes = vec![
            process(1, "", 12 << 30, None),
            process(2, "", 0, Some(wait(1, 1, Blocked::Limit))),
            process(3, "", 0, Some(wait(1, 2, Blocked::Behind))),
        ];
        let said = |sample: &Sample, at: usize| {
            let waits = &sample.processes[at];
            let pid = |process: &ProcessSample| process.shown_pid().to_string();
            sentence(sample, waits, &waits.devices[0], pid).expect("it waits")
        };
        let begin = "has waited 12.0s for 1.0G on GPU0";
        assert_eq!(said(&sample, 2), format!("{begin}, behind 2"));
        let full = format!("{begin}: the device is full; held by 1 (12.0G)");
        assert_eq!(said(&sample, 1), full, "no operator has set a limit");
        sample.snapshot.devices[0].view.limit = Some(12 << 30);
        let limit = "the device's limit or reserves leave no room; held by 1 (12.0G)";
        assert_eq!(said(&sample, 1), format!("{begin}: {limit}"));
        sample.snapshot.processes[1].devices[0].memory_wait = None;
        let asked = format!("{begin}: others asked before it; held by 1 (12.0G)");
        assert_eq!(said(&sample, 2), asked, "they have just left the queue");
    }

    /// Returns a card of 16 GiB, a process that holds 2 GiB, and two that wait for 15 GiB, one after the other.
    fn card() -> Sample {
        let mut sample = Sample::default();
        sample.snapshot.time_ns = 13_000_000_000;
        sample.snapshot.devices.push(DeviceSample::default());
        sample.snapshot.devices[0].view.total_bytes = 16 << 30;
        sample.snapshot.processes = vec![
            process(1, "", 2 << 30, None),
            process(2, "", 0, Some(wait(15, 1, Blocked::Device))),
            process(3, "", 0, Some(wait(15, 2, Blocked::Device))),
        ];
        sample.snapshot.processes[0].view.identity.label = "llama".into();
        sample
    }

    /// Returns why the process at `at` waits.
    fn why(sample: &Sample, at: usize) -> String {
        let waits = &sample.processes[at];
        let name = |process: &ProcessSample| process.name().to_owned();
        let said = sentence(sample, waits, &waits.devices[0], name).expect("it waits");
        let begin = "has waited 12.0s for 15.0G on GPU0";
        said.strip_prefix(begin).expect(&said).to_owned()
    }

    #[test]
    fn a_request_that_is_larger_than_what_is_free_says_both_and_the_next_one_that_it_is_behind() {
        let mut sample = card();
        let larger = ": needs 15.0G, 14.0G are free; held by llama (2.0G)";
        assert_eq!(why(&sample, 1), larger);
        sample.snapshot.processes[1].view.identity.label = "w1".into();
        assert_eq!(why(&sample, 2), ", behind w1");
        sample.snapshot.processes[2].view.share.priority = 1;
        assert_eq!(why(&sample, 2), larger, "a higher priority comes first");
    }

    #[test]
    fn a_reserve_that_leaves_no_room_is_named_with_the_command_that_lowers_it() {
        let mut sample = card();
        let holding = &mut sample.snapshot.processes[0].view.devices[0].view;
        (holding.used, holding.reserved) = (1 << 30, 12 << 30);
        let said = ": 12.0G are reserved for llama (it uses 1.0G); gpushare set name:llama reserve=SIZE gives some back";
        assert_eq!(why(&sample, 1), said);
        sample.snapshot.processes[1].view.devices[0].view.reserved = 15 << 30;
        sample.snapshot.processes[0].view.devices[0].view.reserved = 1 << 30;
        let free = ": the driver refused it, although the accounts have room; it is asked again";
        assert_eq!(why(&sample, 1), free, "its own reserve is not in its way");
    }

    /// Returns the reason in the JSON for which the second process waits, if shared memory says this limit and the operator has set
    /// one of so many GiB for the device.
    fn in_json(sample: &Sample, limit: Blocked, gib: Option<u64>) -> String {
        let mut sample = sample.clone();
        sample.snapshot.devices[0].view.limit = gib.map(|gib| gib << 30);
        let wait = &mut sample.snapshot.processes[1].view.devices[0]
            .view
            .memory_wait;
        wait.as_mut().expect("it waits").limit = limit;
        let all = serde_json::to_value(report::processes(&sample)).expect("plain data");
        let word = &all[1]["devices"][0]["memory_wait"]["limit"];
        word.as_str().expect("a word").to_owned()
    }

    #[test]
    fn the_json_says_that_a_request_waits_for_what_others_have_reserved() {
        let mut sample = card();
        let (device, limit) = (Blocked::Device, Blocked::Limit);
        assert_eq!(in_json(&sample, limit, None), "device", "no limit is set");
        sample.snapshot.processes[0].view.devices[0].view.used = 1 << 30;
        let mut with_group = sample.clone();
        with_group.snapshot.groups.push(GroupView {
            name: "team".into(),
            reserve: Some(Reserve::Mib(12 << 10)),
            ..GroupView::default()
        });
        let mut with_process = sample;
        let holding = &mut with_process.snapshot.processes[0].view.devices[0].view;
        holding.reserved = 12 << 30;
        for sample in [&with_group, &with_process] {
            assert_eq!(in_json(sample, device, None), "reserve");
            assert_eq!(in_json(sample, limit, None), "reserve");
            assert_eq!(in_json(sample, limit, Some(16)), "reserve");
            assert_eq!(in_json(sample, limit, Some(12)), "limit", "too little");
            assert_eq!(in_json(sample, Blocked::Quota, None), "quota");
        }
        with_group.snapshot.processes[1].view.group = Some("team".into());
        assert_eq!(in_json(&with_group, device, None), "device", "its own");
    }

    #[test]
    fn under_a_limit_of_the_device_too_a_reserve_is_named() {
        let mut sample = card();
        sample.snapshot.devices[0].view.limit = Some(16 << 30);
        let processes = &mut sample.snapshot.processes;
        let holding = &mut processes[0].view.devices[0].view;
        (holding.used, holding.reserved) = (1 << 30, 12 << 30);
        let waiting = &mut processes[1].view.devices[0].view;
        waiting.memory_wait = Some(wait(15, 1, Blocked::Limit));
        let said = why(&sample, 1);
        assert!(said.contains("are reserved for llama"), "{said}");
    }

    #[test]
    fn memory_that_returns_to_a_device_with_room_is_not_said_to_wait_for_room() {
        let mut sample = card();
        sample.snapshot.processes.remove(0);
        let wait = &mut sample.snapshot.processes[0].view.devices[0]
            .view
            .memory_wait;
        wait.as_mut().expect("it waits").is_return = true;
        let said = ": its memory returns up to 2 s after memory was freed there";
        assert_eq!(why(&sample, 0), said);
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
