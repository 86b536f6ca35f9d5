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

/// Returns the user who may take this number, because the machine gives it to that user for user namespaces (`/etc/subuid`).
/// `None` for a number that has a user of its own, or that no user was given. A program that the user made in such a namespace,
/// with the set-user-ID bit, has the number outside of it too. Root's numbers are for containers, whose users are not root.
pub fn given_to(uid: u32) -> Option<u32> {
    const FIRST: u32 = 1000;
    if uid < FIRST {
        return None;
    }
    let given = std::fs::read("/etc/subuid").unwrap_or_default();
    owner_of(
        uid,
        &String::from_utf8_lossy(&given),
        &Users::of_this_machine(),
    )
}

fn owner_of(uid: u32, given: &str, users: &Users) -> Option<u32> {
    let has = |line: &&str| {
        let mut numbers = line
            .split(':')
            .skip(1)
            .map(|field| field.trim().parse::<u32>());
        match (numbers.next(), numbers.next()) {
            (Some(Ok(first)), Some(Ok(count))) => {
                uid.checked_sub(first).is_some_and(|at| at < count)
            }
            _ => false,
        }
    };
    let of_its_own = users.by_uid.contains_key(&uid);
    let line = given.lines().find(has).filter(|_| !of_its_own)?;
    let owner = users.uid(line.split(':').next()?.trim());
    owner.filter(|owner| *owner != 0)
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
    fn a_number_that_was_given_to_a_user_for_namespaces_is_that_users() {
        let users = Users::parse("root:x:0:0::/:\nalice:x:1000:1000::/:\nbob:x:100500:1::/:\n");
        let given = "# a comment\nalice:100000:65536\n1001:200000:10\nnobody-known:300000:5\n\
                     broken:x:\nroot:400000:5\n0:500000:5\n";
        for (uid, owner) in [
            (100_000, Some(1000)),
            (165_535, Some(1000)),
            (165_536, None),
            (100_500, None),
            (200_009, Some(1001)),
            (300_000, None),
            (400_000, None),
            (500_004, None),
            (1000, None),
        ] {
            assert_eq!(owner_of(uid, given, &users), owner, "{uid}");
        }
    }

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
