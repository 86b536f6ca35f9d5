//! Names of groups and labels of processes: they must fit in the segment and print on one line.

use shm_layout::text::{LONGEST_GROUP, LONGEST_LABEL, check_name};

use super::exit::Failure;

/// Checks the name of a group; `what` names its source in the message.
pub fn check_group(what: &str, text: &str) -> Result<(), Failure> {
    check(what, text, LONGEST_GROUP)
}

/// Checks the label of a process; `what` names its source in the message.
pub fn check_label(what: &str, text: &str) -> Result<(), Failure> {
    check(what, text, LONGEST_LABEL)
}

fn check(what: &str, text: &str, longest: usize) -> Result<(), Failure> {
    if text.is_empty() {
        return Err(Failure::usage(format!(
            "{what}: the name is empty; give 1 to {longest} bytes"
        )));
    }
    check_name(text, longest).map_err(|error| Failure::usage(format!("{what}: {error}")))
}
