//! The accounts that slots, requests and looks are counted for.

/// The user account that a slot counts for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Account {
    /// A user of the machine.
    User(u32),
    /// A container that root made, whatever the user id of its root. Without a name, the roots of all containers that no tool
    /// has named.
    Container(String),
}

impl std::fmt::Display for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Container(name) if name.is_empty() => {
                f.write_str("root in namespaces of its own")
            }
            Self::Container(name) => write!(f, "container {name}"),
        }
    }
}
