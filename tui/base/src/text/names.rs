//! Names of groups and labels of processes: they must fit in the segment and print on one line.

use super::exit::Failure;

/// The longest group name a segment can hold.
const GROUP_BYTES: usize = 31;
/// The longest label a segment can hold.
const LABEL_BYTES: usize = 63;

/// Checks the name of a group; `what` names its source in the message.
pub fn check_group(what: &str, text: &str) -> Result<(), Failure> {
    check_name(what, text, GROUP_BYTES)
}

/// Checks the label of a process; `what` names its source in the message.
pub fn check_label(what: &str, text: &str) -> Result<(), Failure> {
    check_name(what, text, LABEL_BYTES)
}

fn check_name(what: &str, text: &str, most: usize) -> Result<(), Failure> {
    if text.is_empty() {
        return Err(Failure::usage(format!(
            "{what}: the name is empty; give 1 to {most} bytes"
        )));
    }
    if text.len() > most {
        return Err(Failure::usage(format!(
            "{what}: {:?}… has {} bytes; at most {most} fit",
            text.chars().take(most).collect::<String>(),
            text.len()
        )));
    }
    shm_layout::text::visible(text).map_err(|error| Failure::usage(format!("{what}: {error}")))
}
