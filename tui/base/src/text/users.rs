//! Names of users, read from `/etc/passwd`.
//!
//! Directory services are not queried, because a dashboard must not hang on the network. A user who is not in the file is
//! shown by number.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

/// The users of this machine.
#[derive(Debug, Clone, Default)]
pub struct Users {
    by_uid: HashMap<u32, String>,
}

impl Users {
    /// Reads the machine's list. If it cannot be read, the list is empty.
    pub fn of_this_machine() -> Self {
        Self::read(Path::new("/etc/passwd"))
    }

    fn read(path: &Path) -> Self {
        let text = std::fs::read(path).unwrap_or_default();
        Self::parse(&String::from_utf8_lossy(&text))
    }

    fn parse(text: &str) -> Self {
        let mut by_uid = HashMap::new();
        for line in text.lines() {
            let mut fields = line.split(':');
            let (Some(name), Some(uid)) = (fields.next(), fields.nth(1)) else {
                continue;
            };
            if let Ok(uid) = uid.parse() {
                by_uid.entry(uid).or_insert_with(|| name.to_owned());
            }
        }
        Self { by_uid }
    }

    /// Returns the user's name, or the number as text.
    pub fn name(&self, uid: u32) -> String {
        self.shown(uid).into_owned()
    }

    /// Returns the user's name, or the number as text, without copying a name.
    pub fn shown(&self, uid: u32) -> Cow<'_, str> {
        match self.by_uid.get(&uid) {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(uid.to_string()),
        }
    }

    /// Returns the number, with the name if there is one: `1000 (alice)`.
    pub fn name_and_number(&self, uid: u32) -> String {
        match self.by_uid.get(&uid) {
            Some(name) => format!("{uid} ({name})"),
            None => uid.to_string(),
        }
    }

    /// Returns the number of a user who is given by name or number.
    pub fn uid(&self, name: &str) -> Option<u32> {
        self.by_uid
            .iter()
            .find(|(_, known)| *known == name)
            .map(|(uid, _)| *uid)
            .or_else(|| name.parse().ok())
    }
}

/// Returns the number and name of the user that this program runs as. Under `sudo` the name includes the user who called
/// it: `root(alice)`.
pub fn who_am_i() -> (u32, String) {
    let uid = rustix::process::getuid().as_raw();
    let name = Users::of_this_machine().name(uid);
    match std::env::var("SUDO_USER") {
        Ok(person) if !person.is_empty() && person != name => (uid, format!("{name}({person})")),
        _ => (uid, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_found_both_ways() {
        let users = Users::parse("root:x:0:0::/root:/bin/sh\nbad line\nalice:x:1000:1000::/:\n");
        assert_eq!(users.name(1000), "alice");
        assert_eq!(users.name(77), "77");
        assert_eq!(users.uid("alice"), Some(1000));
        assert_eq!(users.uid("77"), Some(77));
        assert_eq!(users.uid("nobody-here"), None);
    }
}
