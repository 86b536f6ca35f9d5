//! Errors in a plan.

use std::ops::Range;

/// An error, and the byte of the file where it is.
pub(super) struct Wrong {
    pub(super) at: Option<usize>,
    pub(super) why: String,
}

impl Wrong {
    pub(super) fn at(span: Range<usize>, why: impl Into<String>) -> Self {
        Self {
            at: Some(span.start),
            why: why.into(),
        }
    }
}

pub(super) fn within(
    span: Range<usize>,
    what: &str,
    value: u32,
    least: u32,
    most: u32,
) -> Result<(), Wrong> {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(Wrong::at(
            span,
            format!("{what} = {value} is out of range; must be between {least} and {most}"),
        )),
    }
}

pub(super) fn check_variable(name: &str) -> Result<(), String> {
    let odd = name.is_empty() || name.contains(['=', '\0']);
    match odd {
        false => Ok(()),
        true => Err(format!("{name:?} is no name of a variable")),
    }
}
