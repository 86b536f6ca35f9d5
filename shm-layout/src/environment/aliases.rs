//! Other tools' variables, with those tools' own reading of them: what ran under them before runs under us the same.
//!
//! An alias speaks only where ours is silent. Within a family the first of the table that is set stands; for memory, a
//! device's own variable (`…_0`) stands above the one for all devices.

use std::{fs, path::PathBuf};

use crate::text::{self, PolicyField, TextError};
use crate::value::{LaunchLimits, LockPolicy, MemoryLimit, PolicyKind, Source};
use crate::variables;

use super::{Reader, said};

/// What the lock wrapper does when only one of its other variables is set.
const LAUNCHES: u32 = 10;

type ParseBytes = fn(&str) -> Result<u64, TextError>;

fn source(name: &str) -> Source {
    Source::of_alias(name).unwrap_or(Source::Alias(u8::MAX))
}

/// The first of the memory families that says anything.
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
        let everywhere = reader.own(family, bytes).map(limit);
        let mut said_any = everywhere.is_some();
        for (ordinal, memory) in limits.memory.iter_mut().enumerate() {
            let of_one = format!("{family}_{ordinal}");
            let named = match family {
                "WRAPPER_MAX_MEMORY" => None,
                _ => reader.own(&of_one, bytes).map(limit),
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
            limits.memory_source = said(well, source(family));
            return;
        }
    }
}

/// The first cap that is set.
pub(super) fn cap(reader: &mut Reader<'_>, limits: &mut LaunchLimits) {
    for name in ["ALNAIR_VGPU_COMPUTE_PERCENTILE", "CUDA_DEVICE_SM_LIMIT"] {
        if !reader.is_set(name) {
            continue;
        }
        let percent = reader.own(name, |text| super::unsigned(text, i64::MIN, i64::MAX));
        limits.cap = percent.filter(|percent| (1..100).contains(percent));
        if limits.share_source == Source::Default || percent.is_none() {
            limits.share_source = said(percent.is_some(), source(name));
        }
        return;
    }
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
    let count = |field: PolicyField| {
        let (_, most) = field.limits();
        move |text: &str| super::unsigned(text, 0, i64::try_from(most).unwrap_or(i64::MAX))
    };
    let always = reader.text(NAMES[0]).is_some_and(|text| text != "0");
    let slice = reader.own(NAMES[1], milliseconds).flatten();
    let launches = reader.own(NAMES[2], count(PolicyField::LAUNCHES));
    let skips = reader.own(NAMES[3], count(PolicyField::SYNC_SKIPS));
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

/// Where Alnair's profiler would write its files. The program may change its directory: the path is an absolute one.
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
    let (least, most) = PolicyField::TIMESLICE.limits();
    Ok((ms > 0.0).then_some(ns.clamp(least, most)))
}
