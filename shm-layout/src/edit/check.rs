//! Checks of values before an edit is written.

use gpushare_settings::table::MEMORY;

use super::EditError;
use crate::{
    layout::codec,
    text::{self, LONGEST_LABEL},
    value::{Change, QuotaValue, RECORDS, Rule},
};

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
        Change::ProcessShare { share, .. } => setting(share.check()),
        Change::Policy {
            policy: Some(policy),
            ..
        } => policy.check().map_err(|(field, why)| invalid(field, why)),
        Change::Policy { policy: None, .. } => Ok(()),
        Change::DeviceLimit { value, .. } => quota(value),
        Change::DeviceMemory { settings, .. } => setting(settings.check()),
        Change::Group { name, settings, .. } => {
            if codec::name_words(name).is_none() {
                return Err(invalid(
                    "group",
                    "must have a name of 1 to 31 bytes without control characters",
                ));
            }
            setting(settings.check())
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
    setting(rule.limits.check())
}

/// The answer of the table of settings.
fn setting(checked: Result<(), (&'static str, String)>) -> Result<(), EditError> {
    checked.map_err(|(word, why)| invalid(word, why))
}

fn quota(value: &QuotaValue) -> Result<(), EditError> {
    let checked = MEMORY.check([*value]);
    checked.map_err(|(_, why)| invalid("quota", why))
}
