//! Which values are valid, checked before an edit is written.

use super::EditError;
use crate::{
    codec,
    text::{self, LONGEST_LABEL},
    value::{
        Change, EvictAfter, OnFull, QuotaValue, RECORDS, Rule, RuleLimits, Set, ShareEdit,
        valid_cap, valid_priority, valid_weight,
    },
};

fn idle_time(after: impl IntoIterator<Item = EvictAfter>) -> Result<(), EditError> {
    match after.into_iter().find(|after| !after.is_valid()) {
        Some(value) => Err(invalid("evict-after", format!("cannot be {value}"))),
        None => Ok(()),
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
            share:
                ShareEdit {
                    weight,
                    priority,
                    cap,
                    boost,
                    on_full,
                    evict_after,
                    ..
                },
            ..
        } => {
            shares(weight.values(), cap.values())?;
            idle_time(evict_after.values())?;
            on_full_time(on_full.values())?;
            if priority.ends_ns().or(boost.ends_ns()).is_some() {
                return Err(invalid("priority", "that ends by itself is a boost"));
            }
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
        Change::DeviceMemory { evict_after, .. } => idle_time(evict_after.values()),
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
            memory.values().try_for_each(|value| quota(&value))?;
            shares(weight.values(), cap.values())
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

fn on_full_time(on_full: impl IntoIterator<Item = OnFull>) -> Result<(), EditError> {
    match on_full.into_iter().find(|value| !value.is_valid()) {
        Some(value) => Err(invalid("on-full", format!("cannot be {value}"))),
        None => Ok(()),
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

fn shares(
    weight: impl IntoIterator<Item = u32>,
    cap: impl IntoIterator<Item = u32>,
) -> Result<(), EditError> {
    if let Some(value) = weight.into_iter().find(|value| !valid_weight(*value)) {
        return Err(invalid(
            "weight",
            format!("must be between 1 and 1000, not {value}"),
        ));
    }
    if let Some(value) = cap.into_iter().find(|value| !valid_cap(*value)) {
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
