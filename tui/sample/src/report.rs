//! The JSON that scripts read: base units with the unit in the key, `null` for no value.
//!
//! `gpushare ps --json` and `gpushare-top --once --format json` describe processes with the same [`ProcessReport`].

use std::collections::BTreeMap;

use shm_layout::row::About;
use shm_layout::trace::TraceView;
use shm_layout::{CardSlice, Loss, MemoryWait, QuotaValue, Source};

use super::host::Threads;
use super::keys::object;
use super::memory::{self, Holder};
use super::times::Times;
use gpushare_base::text::{calls, cgroups, losses};

use super::{GroupView, Histogram, Holding, ProcessSample, Sample};

object! {
    /// A process in JSON.
    pub ProcessReport<'a>(sample: &'a Sample, p: &'a ProcessSample) {
        pid: Option<u32> = p.pid, "Its pid on this host; null if it is not visible from here." => Label("pid");
        ns_pid: Option<u32> = p.is_managed().then_some(p.identity.pid), "Its pid in its own namespace; null for a process that only NVML sees." => Silent;
        user: &'a str = &p.user, "Its user's name, or the number." => Label("user");
        name: Option<&'a str> = some(&p.identity.label), "The label from run --name." => Silent;
        title: &'a str = p.name(), "That label, else its container, else its program." => Label("name");
        exe: Option<&'a str> = some(&p.identity.exe), "The path of its program.";
        container: Option<&'a str> = p.container.as_deref(), "Its container: by name where a broker says it, else short." => Label("container");
        slot: Option<u16> = p.pid.is_none().then(|| p.slot().map(|slot| slot.index)).flatten(), "Where it stands in the segments, if its pid is not visible from here." => Label("slot");
        pod: Option<String> = cgroups::pod(&p.identity.cgroup), "The UID of its Kubernetes pod." => Label("pod");
        job: Option<&'a str> = p.slurm_job(), "Its Slurm job." => Label("job");
        group: Option<&'a str> = p.group.as_deref(), "The group whose quota it shares." => Label("group");
        rule: Option<&'a str> = p.rule.as_deref(), "The rule that holds for it: the first of gpushare apply's that matches; null for none.";
        gang: Option<String> = (p.gang != 0).then(|| format!("{:016x}", p.gang)), "Its job, whose processes have their turns together: a name that they share; null for none.";
        state: &'static str = p.state.word(), "hold, wait, active (submits work without a lock of its own), idle, memwait (an allocation waits for memory), paused, stopped (by a signal or a debugger), stuck (its keeper shows no sign of life), lost (its context is lost, or its memory), forged (a slot that the broker gave to no process), evicting, evicted, returning (evicted, and waits for room), restoring, unmanaged (only NVML sees it) or server (NVIDIA's MPS server)." => State;
        priority: Option<i32> = p.is_managed().then_some(p.share.priority), "Its priority under order=priority, including a boost.";
        share_reverts_in_ns: Option<u64> = p.share.until_ns.map(|until| until.saturating_sub(sample.time_ns)), "Time until the first of its own settings that end by themselves does so (weight, priority, cap, a pause, what happens when memory is refused, the idle time); null where all last." => Silent;
        weight: Option<u32> = p.is_managed().then_some(p.share.weight), "Its share under order=fair; 100 is normal.";
        cap_percent: Option<u32> = p.share.cap, "Upper limit of its share of a device's time; null for no cap.";
        share_source: Option<&'static str> = p.is_managed().then(|| p.share.source.word()), "Who set weight, priority or cap: default, launch, group, rule, operator, invalid, or another tool's variable.";
        reserve: Option<String> = p.is_managed().then(|| p.share.reserve.to_string()), "The memory that it is to have reserved on each of its devices: a size, a percentage, or none.";
        on_full: Option<String> = p.is_managed().then(|| p.share.on_full.to_string()), "What an allocation does that finds no room: fail, wait, or wait=TIME.";
        settings: Vec<SettingReport> = settings(p), "Every setting of a process that is in force, in the order of gpushare set; none for an unmanaged process." => Silent;
        residence: Option<ResidenceReport> = p.is_managed().then(|| ResidenceReport::of(sample, p)), "Where its memory is; null for an unmanaged process.";
        threads: &'a Threads = &p.threads, "What its threads do on the host's processors; null where /proc does not show them.";
        trace: Option<TraceReport> = p.trace().map(TraceReport::of), "Its trace; null without one." => Silent;
        devices: Vec<HoldingReport<'a>> = p.devices.iter().map(|h| HoldingReport::of(sample, p, h)).collect(), "One entry for each device it can see." => Each("");
    }
}

object! {
    SettingReport(about: &'static About, value: String, source: Source) {
        word: &'static str = about.word, "Its word: the key of gpushare set and apply, and an option of run.";
        value: String = value, "Its value as a person types it.";
        source: &'static str = source.word(), "Who set it: default, launch, group, rule, operator, invalid, or another tool's variable.";
    }
}

object! {
    ResidenceReport(sample: &Sample, p: &ProcessSample) {
        state: &'static str = p.residence.phase.word().unwrap_or("resident"), "resident, evicting, evicted, returning (waits for room), restoring or lost.";
        since_unix_ms: Option<i64> = (p.residence.since_ns != 0).then(|| sample.unix_ms_at(p.residence.since_ns)), "Since when; null if it has always been resident." => Silent;
        refused: Option<&'static str> = p.residence.why.map(|why| why.sentence()), "Why it is not evicted though it is to be, or what became of an attempt; null where nothing is in the way.";
        driver_error: Option<u32> = (p.residence.code != 0).then_some(p.residence.code.into()), "The driver's error code that goes with it." => Silent;
        progress_percent: Option<u8> = p.residence.progress(sample.time_ns), "How far it is on its way, by time; null while it does not move." => Silent;
        method: Option<&'static str> = method(p), "How it leaves or has left: copies, or checkpoint (by the driver, contexts and modules too); null while it is on its devices." => Silent;
        unused_ns: u64 = p.unused_ns(sample.time_ns), "Since the program's last request, a call that is no query, or since it registered." => Silent;
        host_bytes: u64 = p.residence.host_bytes, "Memory of the host that its copy takes, also where it is kept or made for the next eviction.";
        evictions: Option<u64> = p.evictions().map(|counters| counters.evictions), "How often it was evicted; null if it never was." => Counter;
        evictions_in_hour: Option<u64> = p.evictions().map(|counters| counters.evictions_in_hour), "How often it was evicted in the last hour; null if it never was.";
        moving_ns: Option<u64> = p.evictions().map(|counters| counters.moving_ns), "How long its memory was moved, out and back, all in all; null if it never was evicted." => Counter;
        wake_p50_ns: Option<u64> = p.wakes().map(|wakes| wakes[0]), "How long calls waited for its memory to come back, from the first call that waited: the median of the last 256 times. Null if none did.";
        wake_p99_ns: Option<u64> = p.wakes().map(|wakes| wakes[1]), "Their 99th percentile.";
        wake_max_ns: Option<u64> = p.wakes().map(|wakes| wakes[2]), "The longest of them.";
        swap_ns: u64 = p.residence.swap_ns, "What its last way out and back took." => Silent;
        evict_after_ns: Option<u64> = p.share.evict_after, "The idle time after which it is evicted; null for never." => Silent;
        deepens_in_ns: Option<u64> = p.residence.deepens_in_ns(sample.time_ns), "Until its context and modules leave the devices too (deep-after), if it stays on the host; null for never." => Silent;
        deepens_for_ns: Option<u64> = p.residence.deepens_in_ns(sample.time_ns).map(|_| p.residence.deep_ns), "How much longer its next request is expected to take after that." => Silent;
        evicts_in_ns: Option<u64> = p.evicts_in_ns(sample.time_ns), "Until it is evicted, if it stays idle; null for never." => Silent;
    }
}

fn method(p: &ProcessSample) -> Option<&'static str> {
    p.residence.phase.word()?;
    Some(match p.residence.is_checkpoint {
        true => "checkpoint",
        false => "copies",
    })
}

object! {
    TraceReport(trace: TraceView) {
        state: &'static str = trace.progress.state.word(), "on, or the reason why nothing is recorded.";
        records: u64 = trace.progress.records, "Records written.";
        dropped: u64 = trace.progress.dropped, "Records that did not fit.";
        room_records: Option<u32> = trace.wanted, "Capacity in records; null when its launch asked for the trace.";
    }
}

object! {
    HoldingReport<'a>(sample: &'a Sample, p: &ProcessSample, h: &'a Holding) {
        gpu: usize = h.gpu, "The device's number, as --gpu takes it." => Label("gpu");
        uuid: &'a str = sample.devices.get(h.gpu).map_or("", |d| &d.uuid), "The device's UUID.";
        in_use: bool = h.is_used(), "Whether it did or does anything there; a program sees devices that it leaves alone." => Silent;
        used_bytes: u64 = h.used, "Memory it holds; for an unmanaged process NVML's figure.";
        evicted_bytes: Option<u64> = p.is_managed().then_some(h.evicted), "Memory that is its own and not on the device: evicted to the host.";
        peak_bytes: Option<u64> = p.is_managed().then_some(h.peak), "The peak of memory_used_bytes.";
        reserved_bytes: Option<u64> = p.is_managed().then_some(h.reserved), "Memory there that no other process can take, whether it holds it or not.";
        quota_bytes: Option<u64> = h.quota.bytes, "Its quota; null for no limit.";
        quota_source: Option<&'static str> = p.is_managed().then(|| h.quota.source.word()), "Who set the quota, as for share_source.";
        denials: Option<u64> = p.is_managed().then_some(h.counters.denials), "Allocations that were refused." => Counter;
        memory_wait: Option<MemoryWaitReport<'a>> = h.memory_wait.map(|wait| MemoryWaitReport::of(sample, p, h, wait)), "What an allocation of it waits for there; null while none does.";
        memory_waits: Option<u64> = p.is_managed().then_some(h.counters.memory_waits), "Allocations that waited for memory and do no more." => Counter;
        memory_waited_ns: Option<u64> = p.is_managed().then_some(h.counters.memory_waited_ns), "How long they waited together." => Counter;
        memory_gave_up: Option<u64> = p.is_managed().then_some(h.counters.memory_gave_up), "How many of them were refused in the end." => Counter;
        launches: Option<u64> = p.is_managed().then(|| h.launches()), "Kernels and graphs launched." => Counter;
        mps: Option<bool> = h.mps(), "Whether MPS runs its kernels there, by the driver or NVML; null where neither says." => Silent;
        card_slice_us: Option<u32> = match h.card_slice { CardSlice::Set(us) => Some(us), _ => None }, "Its time slice on the card, under hw-timeslice or overlap; null where it has the card's default." => Silent;
        card_slice_refused: Option<&'static str> = match h.card_slice { CardSlice::Refused(why, _) => Some(why.sentence()), _ => None }, "Why it has the card's default though its policy is hw-timeslice; null where that is not so." => Silent;
        submission_ns: Option<u64> = (h.submission_ns != 0).then_some(h.submission_ns), "Mean time of a kernel or graph of it while no other process used the device; measured under MPS and overlap, null where it was not." => Silent;
        lost: Option<LossReport> = h.loss.map(|loss| LossReport::of(sample, loss)), "How its context there was lost; null while it works.";
        lock: Option<LockReport> = p.is_managed().then(|| LockReport::of(sample, h)), "Its use of the device's lock; null for an unmanaged process.";
    }
}

object! {
    MemoryWaitReport<'a>(sample: &'a Sample, p: &ProcessSample, h: &Holding, wait: MemoryWait) {
        bytes: u64 = wait.bytes, "How much it asked for.";
        limit: &'static str = memory::reason(sample, p, h, wait), "What has no room: quota, group, limit (of the device), reserve (what others have reserved leaves none) or device; behind, if others asked before it." => Label("limit");
        waited_ns: u64 = sample.time_ns.saturating_sub(wait.since_ns), "How long it has waited.";
        left_ns: Option<u64> = memory::left_ns(sample, &wait), "How long it still waits before it fails; null for as long as it takes." => Silent;
        held_by: Vec<HolderReport<'a>> = memory::holders(sample, p, h).into_iter().map(HolderReport::of).collect(), "Who holds what it waits for, the most first." => Silent;
    }
}

object! {
    HolderReport<'a>(holder: Holder<'a>) {
        pid: Option<u32> = holder.process.pid, "Its pid on this host; null if it is not visible from here.";
        name: &'a str = holder.process.name(), "Its label, else its container, else its program.";
        used_bytes: u64 = holder.bytes, "What it holds there.";
    }
}

object! {
    LossReport(sample: &Sample, loss: Loss) {
        code: u32 = loss.code.into(), "The driver's error code.";
        cause: String = losses::cause(loss.code), "What it means.";
        call: Option<&'static str> = loss.call.and_then(calls::name), "The driver call that got it.";
        unix_ms: i64 = sample.unix_ms_at(loss.time_ns), "When." => Silent;
        idle_ms: u32 = loss.idle_ms, "For how long it had submitted nothing there, in milliseconds. Under MPS a process that had no work on the device did not cause it." => Silent;
    }
}

object! {
    LockReport(sample: &Sample, h: &Holding) {
        policy: String = h.policy.0.kind.to_string(), "The policy it follows.";
        policy_source: &'static str = h.policy.1.word(), "Who set the policy, as for share_source.";
        state: &'static str = h.lock.state.word(), "idle, wait, hold or paused." => State;
        held_ns: u64 = h.lock.held_ns, "Total time it held the lock." => Counter;
        waited_ns: u64 = h.lock.waited_ns, "Total time it waited for the lock." => Silent;
        acquisitions: u64 = h.lock.acquisitions, "How often it acquired the lock." => Counter;
        forced: u64 = h.lock.forced, "How often the lock was taken from it." => Counter;
        hold_p50_us: Option<f64> = quantile_us(&h.lock.holds, 0.50), "The median of its hold times, to two digits, as all percentiles." => Silent;
        hold_p99_us: Option<f64> = quantile_us(&h.lock.holds, 0.99), "The 99th percentile of its hold times." => Silent;
        hold_max_us: Option<f64> = longest_us(&h.lock.holds), "The longest of them." => Silent;
        wait_p50_us: Option<f64> = quantile_us(&h.lock.waits, 0.50), "The median of its wait times." => Silent;
        wait_p99_us: Option<f64> = quantile_us(&h.lock.waits, 0.99), "The 99th percentile of its wait times." => Silent;
        wait_max_us: Option<f64> = longest_us(&h.lock.waits), "The longest of them." => Silent;
        step_p50_us: Option<f64> = quantile_us(&h.lock.steps, 0.50), "The median time for which the device kept it waiting in a step: in its waits for the lock, and in the synchronisation, or the copy to the host, that ended the step." => Silent;
        step_p99_us: Option<f64> = quantile_us(&h.lock.steps, 0.99), "The 99th percentile of these times." => Silent;
        step_max_us: Option<f64> = longest_us(&h.lock.steps), "The longest of them." => Silent;
        waits_below: Times = Times::new(&h.lock.waits, h.lock.waited_ns), "How many waits took less than 1.024 us, 8.192 us, 65.5 us, 524 us, 4.19 ms, 33.6 ms, 268 ms, 2.15 s and 17.2 s, and how many there were." => Each("wait_ns");
        ended_by: BTreeMap<&'static str, u64> = h.lock.ends().into_iter().map(|(end, n)| (end.word(), n)).collect(), "How often its holds ended for each reason." => Counter;
        waited_for: Vec<Blocker> = h.lock.waited_for.iter().map(|(slot, ns)| Blocker::of(sample.process(*slot), *ns)).collect(), "The processes it waited for, the longest wait first." => Each("");
    }
}

object! {
    Blocker(other: Option<&ProcessSample>, ns: u64) {
        pid: Option<u32> = other.and_then(|p| p.pid), "That process's pid; null when it has ended or is not visible from here." => Of("for_pid");
        ns_pid: Option<u32> = other.map(|p| p.identity.pid), "That process's pid in its own namespace; null when it has ended." => Silent;
        name: Option<String> = other.map(|p| p.name().to_owned()), "That process's label, else its container, else its program; null when it has ended." => Label("for_name");
        waited_ns: u64 = ns, "How long it waited for that process." => CounterAs("waited_for_ns");
    }
}

object! {
    /// A group in JSON.
    pub GroupReport<'a>(sample: &Sample, group: &'a GroupView) {
        name: &'a str = &group.name, "Its name." => Label("group");
        quota: String = quota(group.memory), "What its members may hold together on a device, as an operator writes it; empty when nothing is set.";
        quota_bytes: Vec<Option<u64>> = sample.gpus().map(|gpu| sample.group_quota(group, gpu)).collect(), "The same for each device.";
        weight: Option<u32> = group.weight, "The weight each member inherits.";
        cap_percent: Option<u32> = group.cap, "The cap each member inherits.";
        reserve: String = group.reserve.unwrap_or_default().to_string(), "What no process outside it can take, on each device: a size, a percentage, or none.";
        reserved_bytes: Vec<u64> = sample.gpus().map(|gpu| sample.group_reserve(group, gpu)).collect(), "The same for each device, at most its quota.";
        defined: bool = group.defined, "Whether an operator defined it; if not, a process named it." => Silent;
        members: usize = group.members.len(), "Members alive now.";
        used_bytes: Vec<u64> = sample.gpus().map(|gpu| sample.group_bytes(group, gpu)).collect(), "What its members hold, for each device.";
    }
}

impl ProcessReport<'_> {
    /// Leaves out the devices on which the process did nothing.
    pub fn only_used(&mut self) {
        self.devices.retain(|device| device.in_use);
    }
}

/// Returns every process of the sample.
pub fn processes(sample: &Sample) -> Vec<ProcessReport<'_>> {
    let processes = sample.processes.iter();
    processes.map(|p| ProcessReport::of(sample, p)).collect()
}

/// Returns every group of the sample.
pub fn groups(sample: &Sample) -> Vec<GroupReport<'_>> {
    let groups = sample.groups.iter();
    groups.map(|group| GroupReport::of(sample, group)).collect()
}

/// Returns a quantile in microseconds.
pub fn quantile_us(histogram: &Histogram, q: f64) -> Option<f64> {
    histogram.quantile(q).map(|ns| ns as f64 / 1e3)
}

/// Returns the longest time in microseconds.
pub fn longest_us(histogram: &Histogram) -> Option<f64> {
    (histogram.max_ns > 0).then(|| histogram.max_ns as f64 / 1e3)
}

fn settings(process: &ProcessSample) -> Vec<SettingReport> {
    let typed = process.settings().into_iter();
    typed
        .map(|(about, value, source)| SettingReport::of(about, value, source))
        .collect()
}

fn quota(value: QuotaValue) -> String {
    match value {
        QuotaValue::Inherit => String::new(),
        value => value.to_string(),
    }
}

fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{explains, whole};

    #[test]
    fn every_key_is_explained_and_no_other() {
        let mut sample = whole();
        sample.groups.push(GroupView::default());
        explains(&ProcessReport::of(&sample, &sample.processes[0]));
        explains(&GroupReport::of(&sample, &sample.groups[0]));
    }
}
