//! Which values are valid, checked before an edit is written.

use super::EditError;
use crate::{
    codec,
    text::{self, LONGEST_LABEL},
    value::{
        Change, EvictAfter, OnFull, QuotaValue, RECORDS, Rule, RuleLimits, Set, valid_cap,
        valid_priority, valid_weight,
    },
};

fn idle_time(after: Option<EvictAfter>) -> Result<(), EditError> {
    match after {
        Some(value) if !value.is_valid() => {
            Err(invalid("evict-after", format!("cannot be {value}")))
        }
        _ => Ok(()),
    }
}

pub(super) fn invalid(field: &'static str, why: impl Into<String>) -> EditError {
    EditError::Invalid {
        field,
        why: why.into(),
    }
}

/// Checks the ranges of a change.
pub(super) fn ranges(change: &Change) -> Result<(), EditError> {
    match change {
        Change::ProcessQuota { value, .. } => quota(value),
        Change::ProcessQuotas { quotas, .. } => quotas.iter().try_for_each(|one| quota(&one.value)),
        Change::ProcessShare {
            weight,
            priority,
            cap,
            boost,
            on_full,
            evict_after,
            ..
        } => {
            shares(weight.value(), cap.value())?;
            idle_time(evict_after.value())?;
            on_full_time(on_full.value())?;
            if let Set::To(value) = priority {
                in_priority_range("priority", *value)?;
            }
            if let Set::To(boost) = boost {
                in_priority_range("boost", boost.priority)?;
            }
            Ok(())
        }
        Change::Policy {
            policy: Some(policy),
            ..
        } => policy.check().map_err(|(field, why)| invalid(field, why)),
        Change::Policy { policy: None, .. } => Ok(()),
        Change::DeviceLimit { value, .. } => quota(value),
        Change::DeviceMemory { evict_after, .. } => idle_time(evict_after.value()),
        Change::Group {
            name,
            memory,
            weight,
            cap,
            ..
        } => {
            if codec::name_words(name).is_none() {
                return Err(invalid(
                    "group",
                    "must have a name of 1 to 31 bytes without control characters",
                ));
            }
            if let Set::To(value) = memory {
                quota(value)?;
            }
            shares(weight.value(), cap.value())
        }
        Change::Trace {
            on: Some(records), ..
        } if !RECORDS.contains(records) => Err(invalid(
            "records",
            format!(
                "must be between {} and {}, not {records}",
                RECORDS.start(),
                RECORDS.end()
            ),
        )),
        Change::Trace { .. } => Ok(()),
        Change::Label { label, .. } => {
            if label.len() > LONGEST_LABEL {
                return Err(invalid(
                    "label",
                    format!("must have {LONGEST_LABEL} bytes at most"),
                ));
            }
            text::visible(label).map_err(|error| invalid("label", error.to_string()))
        }
        Change::Rule {
            rule: Some(rule), ..
        } => of_rule(rule),
        Change::Rule { rule: None, .. } => Ok(()),
    }
}

fn of_rule(rule: &Rule) -> Result<(), EditError> {
    let texts = [
        ("rule", Some(&rule.name)),
        ("group", rule.group.as_ref()),
        ("executable", rule.executable.as_ref()),
        ("container", rule.container.as_ref()),
        ("label", rule.label.as_ref()),
    ];
    for ((field, text), most) in texts.into_iter().zip(codec::RULE_TEXTS) {
        let Some(text) = text else { continue };
        if text.len() > most || field == "rule" && text.is_empty() {
            return Err(invalid(field, format!("must have 1 to {most} bytes")));
        }
        text::visible(text).map_err(|error| invalid(field, format!("cannot be: {error}")))?;
    }
    let RuleLimits {
        memory,
        weight,
        priority,
        cap,
        on_full,
        evict_after,
    } = rule.limits;
    memory.as_ref().map_or(Ok(()), quota)?;
    shares(weight, cap)?;
    idle_time(evict_after)?;
    on_full_time(on_full)?;
    priority.map_or(Ok(()), |value| in_priority_range("priority", value))
}

fn on_full_time(on_full: Option<OnFull>) -> Result<(), EditError> {
    match on_full {
        Some(value) if !value.is_valid() => Err(invalid("on-full", format!("cannot be {value}"))),
        _ => Ok(()),
    }
}

fn in_priority_range(field: &'static str, value: i32) -> Result<(), EditError> {
    if valid_priority(value) {
        return Ok(());
    }
    Err(invalid(
        field,
        format!("must be between -20 and 19, not {value}"),
    ))
}

fn shares(weight: Option<u32>, cap: Option<u32>) -> Result<(), EditError> {
    if let Some(value) = weight.filter(|value| !valid_weight(*value)) {
        return Err(invalid(
            "weight",
            format!("must be between 1 and 1000, not {value}"),
        ));
    }
    if let Some(value) = cap.filter(|value| !valid_cap(*value)) {
        return Err(invalid(
            "cap",
            format!("must be between 1% and 100%, not {value}%"),
        ));
    }
    Ok(())
}

fn quota(value: &QuotaValue) -> Result<(), EditError> {
    match value {
        QuotaValue::Percent(percent) if !(1..=100).contains(percent) => Err(invalid(
            "quota",
            format!("must be between 1% and 100%, not {percent}%"),
        )),
        QuotaValue::Bytes(bytes) if *bytes > 1 << 60 => {
            Err(invalid("quota", "must be at most 1 EiB"))
        }
        _ => Ok(()),
    }
}
