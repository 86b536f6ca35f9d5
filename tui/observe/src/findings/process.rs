//! Findings about processes that are stuck, unmanaged, misconfigured or late to apply an edit, and about lost events.

use super::{Found, NEWS_NS, continues, some};
use crate::finding::Edit;
use gpushare_base::text::units::{short_count, short_size, short_time};
use gpushare_base::text::{eviction, refused};
use gpushare_sample::Who;
use gpushare_sample::{DELETED, ProcessState, STUCK_NS, TraceState, crashes};
use shm_layout::{CardSlice, Phase, PolicyKind};

pub(super) fn stuck(found: &mut Found<'_>) {
    let data = found.data;
    for process in &data.sample.processes {
        let silent = data.sample.time_ns.saturating_sub(process.heartbeat_ns);
        let (what, condition) = match process.state {
            ProcessState::Stuck => ("shows no sign of life for", "if it is stopped: "),
            ProcessState::Stopped if silent > STUCK_NS && process.heartbeat_ns > 0 => {
                ("is stopped and shows no sign of life for", "")
            }
            _ => continue,
        };
        found
            .of(process, format!("{what} {}", short_time(silent)))
            .since(process.heartbeat_ns)
            .advise(condition.to_owned() + &continues(process));
    }
}

pub(super) fn crash(found: &mut Found<'_>) {
    let data = found.data;
    let news = data.sample.time_ns.saturating_sub(NEWS_NS);
    let crashes = crashes(&data.sample, data.log.losses()).into_iter();
    for crash in crashes.filter(|crash| crash.goes_on || crash.time_ns >= news) {
        let finding = found.on(crash.gpu, crash.sentence);
        finding.who = Some(crash.who);
        finding.since(crash.time_ns);
    }
}

pub(super) fn lost_memory(found: &mut Found<'_>) {
    for process in &found.data.sample.processes {
        let at = &process.residence;
        if at.phase != Phase::Lost {
            continue;
        }
        let held = process.devices.iter().map(|h| h.used.max(h.evicted));
        let bytes = held.fold(0, u64::saturating_add);
        found
            .of(
                process,
                format!("lost {}", eviction::lost(at.why, at.code, bytes)),
            )
            .advise("its calls fail: start it again");
    }
}

pub(super) fn unevicted(found: &mut Found<'_>) {
    for process in found.data.sample.processes.iter().filter(|p| p.share.evict) {
        let at = &process.residence;
        let Some(why) = at.why.filter(|_| at.phase == Phase::Resident) else {
            continue;
        };
        let who = Who::of(process);
        found
            .of(
                process,
                format!("is paused and {}", eviction::refusal(why, at.code)),
            )
            .propose("resume it", "", Edit::resume(who));
    }
}

pub(super) fn invalid(found: &mut Found<'_>) {
    for process in found.data.sample.processes.iter().filter(|p| p.invalid) {
        let what = "was started with an invalid GPUSHARE_ value and runs without it; its stderr says which";
        found
            .of(process, what)
            .since(process.registered_ns)
            .advise("start it again with a right value");
    }
}

pub(super) fn faults(found: &mut Found<'_>) {
    found.each(|found, process, holding| {
        let faults = holding.counters.faults;
        if faults > 0 {
            let what = format!(
                "had {} of gpushare, and those calls ran without limit or lock; its stderr says where",
                some(faults, "internal fault"),
            );
            found.about(process, holding, what);
        }
    });
}

pub(super) fn unsliced(found: &mut Found<'_>) {
    found.each(|found, process, holding| {
        let (CardSlice::Refused(why, status), PolicyKind::HwTimeslice(ns)) =
            (holding.card_slice, holding.policy.0.kind)
        else {
            return;
        };
        let code = match status {
            0 => String::new(),
            code => format!(" (status {code:#x})"),
        };
        let what = format!("does not follow hw-timeslice: {}{code}", why.sentence());
        let (gpu, words) = (
            holding.gpu,
            format!("{} order=fair", PolicyKind::Timeslice(ns)),
        );
        found.about(process, holding, what).propose(
            format!("set {words}"),
            "give it its share by turns",
            Edit::Policy { gpu, words },
        );
    });
}

pub(super) fn traced(found: &mut Found<'_>) {
    for process in &found.data.sample.processes {
        let Some(trace) = process.trace() else {
            continue;
        };
        let written = format!(
            "{} records, {} dropped",
            short_count(trace.progress.records),
            short_count(trace.progress.dropped)
        );
        let (what, remedy) = match (trace.progress.state, trace.wanted) {
            (TraceState::On, _) => (format!("is traced: {written}"), "stop it"),
            // The process has no trace, but log files of `PFLOG`.
            (_, None) => (
                format!("writes logs of its calls, as its launch asked: {written}"),
                "",
            ),
            (TraceState::Off, Some(_)) => ("has not started the requested trace".into(), ""),
            (state, Some(_)) => (
                format!("cannot be traced: {}", state.word()),
                "cancel the request",
            ),
        };
        let finding = found.of(process, what);
        if !remedy.is_empty() {
            finding.propose(remedy, "", Edit::EndTrace(Who::of(process)));
        }
    }
}

pub(super) fn refused(found: &mut Found<'_>) {
    if let Some(sentence) = found.data.sample.refusal() {
        found.add(sentence);
    }
}

pub(super) fn unmanaged(found: &mut Found<'_>) {
    found.each(|found, process, holding| {
        if process.is_unmanaged() && process.elsewhere.is_none() {
            let used = short_size(holding.used);
            found
                .about(
                    process,
                    holding,
                    format!("uses {used} on GPU{} without gpushare", holding.gpu),
                )
                .advise("start it with gpushare run");
        }
    });
}

pub(super) fn elsewhere(found: &mut Found<'_>) {
    found.each(|found, process, holding| {
        let Some(dir) = &process.elsewhere else {
            return;
        };
        let (which, remedy) = match dir.strip_suffix(DELETED) {
            Some(dir) => (
                format!(
                    "whose segments in {dir} were removed: it keeps its limits, and no edit reaches it"
                ),
                "start it again".to_owned(),
            ),
            None => (
                format!("on the segments in {dir}"),
                format!("GPUSHARE_DIR={dir} gpushare-top shows it"),
            ),
        };
        let used = short_size(holding.used);
        found
            .about(process, holding, format!("uses {used} on GPU{} with gpushare, {which}", holding.gpu))
            .advise(remedy);
    });
}

pub(super) fn unobeyed(found: &mut Found<'_>) {
    let data = found.data;
    let generation = data.sample.generation;
    for process in data.sample.processes.iter().filter(|p| p.is_managed()) {
        if process.acked >= generation || process.state == ProcessState::Gone {
            continue;
        }
        let what = format!(
            "has applied edit {} and not yet edit {generation}",
            process.acked
        );
        let finding = found.of(process, what);
        if let Some(edit) = data.edit(generation) {
            finding.since(edit.time_ns);
        }
    }
}

pub(super) fn lost(found: &mut Found<'_>) {
    let data = found.data;
    let ago = data.sample.time_ns.saturating_sub(data.log.lost_ns);
    if data.log.lost > 0 && ago < refused::NEWS_NS {
        found.add(format!(
            "{} events came faster than they were read, the last {} ago; lanes may have gaps",
            data.log.lost,
            short_time(ago)
        ));
    }
}
