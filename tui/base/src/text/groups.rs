//! Names of groups, read from `/etc/group`.

use crate::text::exit::Failure;

/// Returns the number of a group that is given by name or number.
pub fn number(group: &str) -> Result<u32, Failure> {
    if group.is_empty() {
        return Err(Failure::usage(
            "the name of the group is empty; give a name from /etc/group or a number",
        ));
    }
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let text = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let find = |line: &str| {
        let mut fields = line.split(':');
        (fields.next() == Some(group))
            .then(|| fields.nth(1)?.parse().ok())
            .flatten()
    };
    text.lines().find_map(find).ok_or_else(|| {
        Failure::no_such_target(format!(
            "there is no group {group}; create it with groupadd {group} and add its users"
        ))
    })
}
