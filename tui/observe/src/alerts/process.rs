//! Alerts about processes that are stuck, unmanaged, misconfigured or late to apply an edit, and about lost events.

use super::{Finding, NEWS_NS, about, each, name, some_of};
use crate::data::Data;
use crate::data::alert::Remedy;
use gpushare_base::text::units::{short_count, short_size, short_time};
use gpushare_base::text::{refused, residence};
use gpushare_sample::Who;
use gpushare_sample::{DELETED, ProcessState, STUCK_NS, TraceState, crashes};
use shm_layout::Phase;

pub(super) fn stuck(data: &Data, found: &mut Vec<Finding>) {
    for process in &data.sample.processes {
        let silent = data.sample.time_ns.saturating_sub(process.heartbeat_ns);
        let what = match process.state {
            ProcessState::Stuck => "shows no sign of life for",
            ProcessState::Stopped if silent > STUCK_NS && process.heartbeat_ns > 0 => {
                "is stopped and shows no sign of life for"
            }
            _ => continue,
        };
        let advice = match process.state {
            ProcessState::Stopped => format!("kill -CONT {} resumes it", process.shown_pid()),
            _ => format!("if it is stopped: kill -CONT {}", process.shown_pid()),
        };
        found.push(Finding {
            who: Some(Who::of(process)),
            gpu: None,
            sentence: format!("{} {what} {}", name(data, process), short_time(silent)),
            remedy: Remedy::advice(advice),
        });
    }
}

pub(super) fn crash(data: &Data, found: &mut Vec<Finding>) {
    let news = data.sample.time_ns.saturating_sub(NEWS_NS);
    let crashes = crashes(&data.sample, data.log.losses()).into_iter();
    let fresh = crashes.filter(|crash| crash.goes_on || crash.time_ns >= news);
    found.extend(fresh.map(|crash| Finding {
        who: Some(crash.who),
        gpu: Some(crash.gpu),
        sentence: crash.sentence,
        remedy: None,
    }));
}

pub(super) fn lost_memory(data: &Data, found: &mut Vec<Finding>) {
    for process in &data.sample.processes {
        let at = &process.residence;
        if at.phase != Phase::Lost {
            continue;
        }
        let held = process.devices.iter().map(|h| h.used.max(h.evicted));
        let bytes = held.fold(0, u64::saturating_add);
        found.push(Finding {
            who: Some(Who::of(process)),
            gpu: None,
            sentence: format!(
                "{} lost {}",
                name(data, process),
                residence::lost(at.why, at.code, bytes)
            ),
            remedy: Remedy::advice("its calls fail: start it again"),
        });
    }
}

pub(super) fn unevicted(data: &Data, found: &mut Vec<Finding>) {
    for process in data.sample.processes.iter().filter(|p| p.share.evict) {
        let at = &process.residence;
        let Some(why) = at.why.filter(|_| at.phase == Phase::Resident) else {
            continue;
        };
        found.push(Finding {
            who: Some(Who::of(process)),
            gpu: None,
            sentence: format!(
                "{} is paused and {}",
                name(data, process),
                residence::refusal(why, at.code)
            ),
            remedy: Remedy::key('E', "resume it"),
        });
    }
}

pub(super) fn invalid(data: &Data, found: &mut Vec<Finding>) {
    for process in data.sample.processes.iter().filter(|p| p.invalid) {
        found.push(Finding {
            who: Some(Who::of(process)),
            gpu: None,
            sentence: format!(
                "{} was started with an invalid GPUSHARE_ value and runs without it; its stderr says which",
                name(data, process)
            ),
            remedy: Remedy::advice("start it again with a right value"),
        });
    }
}

pub(super) fn faults(data: &Data, found: &mut Vec<Finding>) {
    each(data, |process, holding| {
        let faults = holding.counters.faults;
        if faults > 0 {
            found.push(about(
                process,
                holding,
                format!(
                    "{}: gpushare had {} in it, and those calls ran without limit or lock; its stderr says where",
                    name(data, process),
                    some_of(faults, "internal fault"),
                ),
                None,
            ));
        }
    });
}

pub(super) fn traced(data: &Data, found: &mut Vec<Finding>) {
    for process in &data.sample.processes {
        let Some(trace) = process.trace() else {
            continue;
        };
        let written = format!(
            "{} records, {} dropped",
            short_count(trace.progress.records),
            short_count(trace.progress.dropped)
        );
        let (sentence, remedy) = match (trace.progress.state, trace.wanted) {
            (TraceState::On, _) => (format!("is traced: {written}"), Remedy::key('t', "stop it")),
            // The process has no trace, but log files of `PFLOG`.
            (_, None) => (
                format!("writes logs of its calls, as its launch asked: {written}"),
                None,
            ),
            (TraceState::Off, Some(_)) => ("has not started the requested trace".into(), None),
            (state, Some(_)) => (
                format!("cannot be traced: {}", state.word()),
                Remedy::key('t', "cancel the request"),
            ),
        };
        found.push(Finding {
            who: Some(Who::of(process)),
            gpu: None,
            sentence: format!("{} {sentence}", name(data, process)),
            remedy,
        });
    }
}

pub(super) fn refused(data: &Data, found: &mut Vec<Finding>) {
    found.extend(data.sample.refusal().map(|sentence| Finding {
        who: None,
        gpu: None,
        sentence,
        remedy: None,
    }));
}

pub(super) fn unmanaged(data: &Data, found: &mut Vec<Finding>) {
    each(data, |process, holding| {
        if process.is_stranger() && process.elsewhere.is_none() {
            found.push(about(
                process,
                holding,
                format!(
                    "{} uses {} on GPU{} without gpushare",
                    name(data, process),
                    short_size(holding.used),
                    holding.gpu
                ),
                Remedy::advice("start it with gpushare run"),
            ));
        }
    });
}

pub(super) fn elsewhere(data: &Data, found: &mut Vec<Finding>) {
    each(data, |process, holding| {
        let Some(dir) = &process.elsewhere else {
            return;
        };
        let (which, remedy) = match dir.strip_suffix(DELETED) {
            Some(dir) => (
                format!(
                    "whose segments in {dir} were removed: it keeps its limits, and no edit reaches it"
                ),
                Remedy::advice("start it again"),
            ),
            None => (
                format!("on the segments in {dir}"),
                Remedy::advice(format!("GPUSHARE_DIR={dir} gpushare-top shows it")),
            ),
        };
        found.push(about(
            process,
            holding,
            format!(
                "{} uses {} on GPU{} with gpushare, {which}",
                name(data, process),
                short_size(holding.used),
                holding.gpu
            ),
            remedy,
        ));
    });
}

pub(super) fn unobeyed(data: &Data, found: &mut Vec<Finding>) {
    let generation = data.sample.generation;
    for process in data
        .sample
        .processes
        .iter()
        .filter(|p| p.is_managed() && p.acked < generation)
    {
        if process.state == ProcessState::Gone {
            continue;
        }
        found.push(Finding {
            who: Some(Who::of(process)),
            gpu: None,
            sentence: format!(
                "{} has applied edit {} and not yet edit {generation}",
                name(data, process),
                process.acked
            ),
            remedy: None,
        });
    }
}

pub(super) fn lost(data: &Data, found: &mut Vec<Finding>) {
    let ago = data.sample.time_ns.saturating_sub(data.log.lost_ns);
    if data.log.lost > 0 && ago < refused::NEWS_NS {
        found.push(Finding {
            who: None,
            gpu: None,
            sentence: format!(
                "{} events came faster than they were read, the last {} ago; lanes may have gaps",
                data.log.lost,
                short_time(ago)
            ),
            remedy: None,
        });
    }
}
