//! Other tools' variables, read as those tools read them, so that a program that ran under them runs under gpushare unchanged.
//!
//! An alias speaks only where ours is silent. Within a family the first of the table that is set stands; for memory, a
//! device's own variable (`…_0`) stands above the one for all devices.

use std::{fs, iter, path::PathBuf};

use crate::grammar::{self as text, TextError};
use crate::launch::{LaunchLimits, MemoryLimit};
use crate::policy::{LockPolicy, PolicyKind, Values};
use crate::value::{DEVICES_PER_PROCESS, Source};
use crate::variables;

use super::{Reader, source_or_invalid};

/// Default of the lock wrapper when only one of its other variables is set.
const LAUNCHES: u32 = 10;

type ParseBytes = fn(&str) -> Result<u64, TextError>;

fn source(name: &str) -> Source {
    Source::of_alias(name).unwrap_or(Source::Alias(u8::MAX))
}

/// Reads the first family of memory variables that is set.
pub(super) fn memory(reader: &mut Reader<'_>, limits: &mut LaunchLimits) {
    for family in [
        "WRAPPER_MAX_MEMORY",
        "CUDA_DEVICE_MEMORY_LIMIT",
        "CUDA_MEM_LIMIT",
    ] {
        let before = reader.complaints.len();
        let (bytes, zero): (ParseBytes, _) = match family {
            "WRAPPER_MAX_MEMORY" => (plain_bytes, MemoryLimit::Bytes(0)),
            _ => (text::parse_size, MemoryLimit::Unset),
        };
        let limit = |bytes| {
            if bytes == 0 {
                zero
            } else {
                MemoryLimit::Bytes(bytes)
            }
        };
        let everywhere = reader.amount(family, bytes).map(limit);
        let mut said_any = everywhere.is_some();
        for (ordinal, memory) in limits.memory.iter_mut().enumerate() {
            let of_one = format!("{family}_{ordinal}");
            let named = match family {
                "WRAPPER_MAX_MEMORY" => None,
                _ => reader.amount(&of_one, bytes).map(limit),
            };
            said_any |= named.is_some();
            if named.is_some_and(|limit| limit != MemoryLimit::Unset) {
                let ordinal = u8::try_from(ordinal).unwrap_or(u8::MAX);
                reader.named.push((ordinal, of_one));
            }
            *memory = named.or(everywhere).unwrap_or_default();
        }
        let well = reader.complaints.len() == before;
        if said_any || !well {
            limits.memory_source = source_or_invalid(well, source(family));
            return;
        }
    }
}

/// The first cap that is set.
pub(super) fn cap(reader: &mut Reader<'_>, limits: &mut LaunchLimits) {
    let disabled = matches!(
        reader.own("GPU_CORE_UTILIZATION_POLICY", read_core_policy),
        Some(CorePolicy::Disable)
    );
    let sm_limit = (!disabled).then_some("CUDA_DEVICE_SM_LIMIT");
    for name in iter::once("ALNAIR_VGPU_COMPUTE_PERCENTILE").chain(sm_limit) {
        if !reader.is_set(name) {
            continue;
        }
        let percent = reader.own(name, any_percent);
        limits.settings.cap = percent.filter(|percent| (1..100).contains(percent));
        limits.sources.cap = share_from(limits, name, percent.is_some());
        return;
    }
    core_limit(reader, limits);
}

/// vgpu-manager's cap, which may differ between devices. A process has one here: the lowest.
fn core_limit(reader: &mut Reader<'_>, limits: &mut LaunchLimits) {
    const NAME: &str = "CUDA_CORE_LIMIT";
    let before = reader.complaints.len();
    let everywhere = reader.own(NAME, any_percent);
    let of_each: Vec<Option<u32>> = (0..DEVICES_PER_PROCESS)
        .map(|ordinal| reader.own(&format!("{NAME}_{ordinal}"), any_percent))
        .collect();
    let well = reader.complaints.len() == before;
    let all = || {
        iter::once(everywhere)
            .chain(of_each.iter().copied())
            .flatten()
    };
    if well && all().next().is_none() {
        return;
    }
    let limiting = |percent: &u32| (1..100).contains(percent);
    limits.settings.cap = all().filter(limiting).min();
    limits.sources.cap = share_from(limits, NAME, well);
    if let Some(cap) = limits.settings.cap
        && all().any(|percent| percent != cap)
    {
        reader.advice.push(format!(
            "{NAME}_n differs between devices; a process has one cap here, so the lowest, {cap}%, holds on all"
        ));
    }
}

/// Reads HAMi's priority: 0 is high; 1 is the default of a task.
pub(super) fn priority(reader: &mut Reader<'_>, limits: &mut LaunchLimits) {
    const NAME: &str = "CUDA_TASK_PRIORITY";
    if !reader.is_set(NAME) {
        return;
    }
    let rank = reader.own(NAME, |text| text::parse_integer(text, 0, 3));
    limits.settings.priority = rank.map(|rank| 10 - 10 * i32::try_from(rank).unwrap_or(1));
    limits.sources.priority = share_from(limits, NAME, rank.is_some());
}

/// Makes this variable the source of the share, unless one of ours is. Returns the source.
fn share_from(limits: &mut LaunchLimits, name: &str, well: bool) -> Source {
    let from = source_or_invalid(well, source(name));
    if limits.share_source == Source::Default || !well {
        limits.share_source = from;
    }
    from
}

/// Adds a sentence for each requested feature of other tools that gpushare does not have, with the replacement.
pub(super) fn without_counterpart(reader: &mut Reader<'_>) {
    let mut asked = Vec::new();
    for name in ["CUDA_OVERSUBSCRIBE", "ACTIVE_OOM_KILLER"] {
        if reader.switch(name, false) {
            asked.push((name, name.to_owned()));
        }
    }
    const RATIO: &str = "CUDA_MEM_RATIO";
    let of_one = (0..DEVICES_PER_PROCESS).map(|ordinal| format!("{RATIO}_{ordinal}"));
    for name in iter::once(RATIO.to_owned()).chain(of_one) {
        if reader.own(&name, ratio).is_some_and(|ratio| ratio > 1.0) {
            asked.push((RATIO, name));
            break;
        }
    }
    for (row, name) in asked {
        let row = variables::TABLE
            .iter()
            .find(|variable| variable.name == row);
        let why = row.map_or("", |row| row.meaning).trim_end_matches('.');
        let value = reader.text(&name).unwrap_or_default();
        reader
            .advice
            .push(format!("{name}={value}: {}", why.replace('`', "")));
    }
}

fn any_percent(text: &str) -> Result<u32, TextError> {
    super::unsigned(text, i64::MIN, i64::MAX)
}

#[derive(PartialEq)]
enum CorePolicy {
    Apply,
    Disable,
}

fn read_core_policy(text: &str) -> Result<CorePolicy, TextError> {
    match text.to_ascii_lowercase().as_str() {
        "default" | "force" => Ok(CorePolicy::Apply),
        "disable" => Ok(CorePolicy::Disable),
        _ => Err(TextError::UnknownWord {
            text: text.to_owned(),
            known: "default, force or disable".into(),
        }),
    }
}

fn ratio(text: &str) -> Result<f64, TextError> {
    let ratio = text
        .parse()
        .ok()
        .filter(|ratio: &f64| ratio.is_finite() && *ratio >= 0.0);
    ratio.ok_or_else(|| TextError::NotANumber {
        text: text.to_owned(),
        wanted: "a ratio such as 1 or 1.5",
    })
}

/// The lock wrapper's four variables together make one policy.
pub(super) fn policy(reader: &mut Reader<'_>, limits: &mut LaunchLimits) {
    const NAMES: [&str; 4] = [
        "CUDA_OVERRIDE_ALWAYS_LOCK",
        "CUDA_OVERRIDE_MAX_SYNC_MS",
        "CUDA_OVERRIDE_KERNEL_N_SYNC",
        "CUDA_OVERRIDE_SYNC_LOCK_SKIPS",
    ];
    if !NAMES.iter().any(|name| reader.is_set(name)) {
        return;
    }
    let before = reader.complaints.len();
    let count = |values: Values| {
        let most = values.limits.map_or(i64::MAX, |(_, most)| most as i64);
        move |text: &str| super::unsigned(text, 0, most)
    };
    let always = reader.text(NAMES[0]).is_some_and(|text| text != "0");
    let slice = reader.own(NAMES[1], milliseconds).flatten();
    let launches = reader.own(NAMES[2], count(Values::LAUNCHES));
    let skips = reader.own(NAMES[3], count(Values::SYNC_SKIPS));
    let (kind, name) = match (always, slice, launches) {
        (true, ..) => (PolicyKind::Always, NAMES[0]),
        (false, Some(ns), _) => (PolicyKind::Timeslice(ns), NAMES[1]),
        (false, None, Some(launches)) => (PolicyKind::Launches(launches.max(1)), NAMES[2]),
        (false, None, None) => (PolicyKind::Launches(LAUNCHES), NAMES[3]),
    };
    if reader.complaints.len() > before {
        limits.policy_source = Source::Invalid;
        return;
    }
    let mut policy = LockPolicy {
        kind,
        sync_skips: skips.unwrap_or(0),
        // Under the wrapper nothing of the last holder's was left when the next one began.
        overlap_ns: 0,
        ..LockPolicy::default()
    };
    if let PolicyKind::Timeslice(ns) = kind {
        policy.max_hold_ns = policy.max_hold_ns.max(ns);
    }
    limits.policy = Some(policy);
    limits.policy_source = source(name);
}

/// Returns the path where Alnair's profiler would write its files. It is absolute, because the program may change its
/// directory.
pub(super) fn profile(reader: &mut Reader<'_>) -> Option<PathBuf> {
    reader.own(variables::PFLOG, |text| {
        let found = fs::canonicalize(text).and_then(|dir| Ok((fs::metadata(&dir)?, dir)));
        let why = match found {
            Ok((meta, dir)) if meta.is_dir() => return Ok(dir),
            Ok(_) => "it is not a directory".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(TextError::Conflict {
            why: format!("cannot write a profile into {text:?}: {why}"),
        })
    })
}

/// Bytes without a unit.
fn plain_bytes(text: &str) -> Result<u64, TextError> {
    match text.parse() {
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(TextError::NotANumber {
            text: text.to_owned(),
            wanted: "a number of bytes",
        }),
    }
}

/// Milliseconds with a fraction, as nanoseconds; 0 is "not this one". A value out of range means the nearest that a
/// `timeslice` may have.
fn milliseconds(text: &str) -> Result<Option<u64>, TextError> {
    let ms = text
        .parse::<f64>()
        .ok()
        .filter(|ms| ms.is_finite() && *ms >= 0.0);
    let Some(ms) = ms else {
        return Err(TextError::NotANumber {
            text: text.to_owned(),
            wanted: "milliseconds such as 5 or 0.5",
        });
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and the cast stops at the largest"
    )]
    let ns = (ms * 1e6) as u64;
    let (least, most) = Values::TIMESLICE.limits.unwrap_or((0, u64::MAX));
    Ok((ms > 0.0).then_some(ns.clamp(least, most)))
}
