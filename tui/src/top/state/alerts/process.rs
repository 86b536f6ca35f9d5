//! Processes that are stuck, unmanaged, misconfigured or late to apply an edit, and events that were lost.

use super::{Finding, NEWS_NS, about, each, name, some_of};
use crate::sample::Who;
use crate::sample::{DELETED, ProcessState, STUCK_NS, TraceState, crashes};
use crate::text::refused;
use crate::text::units::{short_count, short_size, short_time};
use crate::top::data::Data;

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
            _ => format!("it may be stopped (kill -CONT {})", process.shown_pid()),
        };
        found.push(Finding {
            who: Some(Who::of(process)),
            gpu: None,
            sentence: format!(
                "{} {what} {}; {advice}",
                name(data, process),
                short_time(silent)
            ),
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
    }));
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
        let sentence = match (trace.progress.state, trace.wanted) {
            (TraceState::On, _) => format!("is traced: {written}; t stops it"),
            // No trace, but the files of PFLOG.
            (_, None) => format!("writes logs of its calls, as its launch asked: {written}"),
            (TraceState::Off, Some(_)) => "has not started the requested trace".into(),
            (state, Some(_)) => {
                format!("cannot be traced: {}; t cancels the request", state.word())
            }
        };
        found.push(Finding {
            who: Some(Who::of(process)),
            gpu: None,
            sentence: format!("{} {sentence}", name(data, process)),
        });
    }
}

pub(super) fn refused(data: &Data, found: &mut Vec<Finding>) {
    found.extend(data.sample.refusal().map(|sentence| Finding {
        who: None,
        gpu: None,
        sentence,
    }));
}

pub(super) fn unmanaged(data: &Data, found: &mut Vec<Finding>) {
    each(data, |process, holding| {
        if process.is_stranger() && process.elsewhere.is_none() {
            found.push(about(
                process,
                holding,
                format!(
                    "{} uses {} on GPU{} without gpushare; start it with gpushare run",
                    name(data, process),
                    short_size(holding.used),
                    holding.gpu
                ),
            ));
        }
    });
}

pub(super) fn elsewhere(data: &Data, found: &mut Vec<Finding>) {
    each(data, |process, holding| {
        let Some(dir) = &process.elsewhere else {
            return;
        };
        let remedy = match dir.strip_suffix(DELETED) {
            Some(dir) => format!(
                "whose segments in {dir} were removed: it keeps its limits, and no edit reaches it until it is started again"
            ),
            None => format!("on the segments in {dir}; GPUSHARE_DIR={dir} gpushare-top shows it"),
        };
        found.push(about(
            process,
            holding,
            format!(
                "{} uses {} on GPU{} with gpushare, {remedy}",
                name(data, process),
                short_size(holding.used),
                holding.gpu
            ),
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
        });
    }
}
