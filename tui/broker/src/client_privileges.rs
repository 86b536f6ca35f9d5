//! Privileges of a client, by its namespaces. In a container without a user namespace, root is only a tenant, but it can
//! take any user's and any group's number, so the number alone does not identify the client.

use shm_layout::peer::{Peer, namespace_maker};
use shm_layout::{Identity, Vouched};

use super::namespaces::Namespaces;
use crate::account::Account;
use crate::container_of;
use gpushare_base::host::procfs;
use gpushare_base::text::users::given_to;

/// Bit of CAP_SYS_ADMIN in the kernel's capability sets.
const SYS_ADMIN: u64 = 1 << 21;

/// The user, namespaces and capabilities of a client.
#[derive(Debug)]
pub struct ClientPrivileges {
    /// User of the client, whose processes count as its own: see [`user`].
    pub user: u32,
    /// True if the client has CAP_SYS_ADMIN in the broker's user namespace.
    pub rules_the_machine: bool,
    /// True if the client is in no container: it has the broker's user namespace, pid namespace and root directory.
    pub at_home: bool,
    /// True if the client is in a user namespace that a user made.
    is_users: bool,
    pid_ns: u64,
    container: String,
}

impl ClientPrivileges {
    /// Reads the privileges. Returns `None` if the client has ended.
    pub fn of(peer: &Peer) -> Option<Self> {
        let user = user(peer.pid, peer.uid);
        let (who, vouched) = container_of::look(peer.pid, user, peer.gid)?;
        let process = peer.pid.to_string();
        let (theirs, ours) = (Namespaces::of(&process)?, Namespaces::ours()?);
        let (their_rights, our_rights) = (rights(&process)?, rights("self")?);
        // The pid belongs to the client only while the client has not ended, so this is checked after `/proc` was read.
        if peer.has_ended() {
            return None;
        }
        let same_users = theirs.user_ns == ours.user_ns;
        Some(Self {
            user,
            // A broker without the capability cannot require it.
            rules_the_machine: same_users && their_rights & SYS_ADMIN >= our_rights & SYS_ADMIN,
            at_home: theirs == *ours,
            is_users: namespace_maker(peer.pid).is_some(),
            pid_ns: who.pid_ns,
            container: vouched.container,
        })
    }

    /// Returns the account that is charged for the client's requests. In namespaces that root made, the container's root
    /// can take all numbers, so the container is charged.
    pub fn account(&self, peer: &Peer) -> Account {
        match account(peer.pid, self.user, &self.container) {
            Account::User(_) if !self.at_home && !self.is_users => {
                Account::Container(String::new())
            }
            account => account,
        }
    }

    /// Returns true if the client may treat a process of the same user as its own.
    pub fn reaches(&self, who: &Identity, vouched: &Vouched) -> bool {
        self.at_home || (who.pid_ns, &vouched.container) == (self.pid_ns, &self.container)
    }
}

/// Returns the user of a process with this uid: the user who made its user namespace, because that user has many uids in it
/// and could avoid rules, rights and limits by changing them. Outside of such namespaces it is the user whom the machine gave the
/// uid for them. In a namespace that root made, it is the uid.
pub fn user(pid: u32, uid: u32) -> u32 {
    namespace_maker(pid)
        .or_else(|| given_to(uid).filter(|_| has_our_users(pid)))
        .unwrap_or(uid)
}

/// Returns true if the process is in the broker's user namespace. In one that root made, a number is what the container's root
/// says, whatever it is outside.
fn has_our_users(pid: u32) -> bool {
    Namespaces::of(&pid.to_string())
        .zip(Namespaces::ours())
        .is_some_and(|(theirs, ours)| theirs.user_ns == ours.user_ns)
}

/// Returns the account that a process's slot is charged to: its [`user`], or the container if root made one, because the
/// container's root can take any uid.
pub fn account(pid: u32, user: u32, container: &str) -> Account {
    let is_roots = user == 0 || !has_our_users(pid) && namespace_maker(pid).is_none();
    let of = match is_roots && !is_at_home(pid) {
        true => Account::Container(String::new()),
        false => Account::User(user),
    };
    in_container(of, pid, container)
}

/// Returns the account once the process's container is known. Namespaces alone do not identify a container, because a
/// process in one can make more.
pub fn in_container(account: Account, pid: u32, container: &str) -> Account {
    // The name of a user's own container begins with the user's name and a slash.
    let by_root = !container.is_empty() && !container.contains('/');
    match account {
        Account::User(_) if !by_root || is_at_home(pid) => account,
        _ if by_root => Account::Container(container.to_owned()),
        _ => Account::Container(String::new()),
    }
}

fn is_at_home(pid: u32) -> bool {
    Namespaces::of(&pid.to_string()).is_some_and(|place| Some(&place) == Namespaces::ours())
}

/// Returns the permitted capabilities of a process.
fn rights(process: &str) -> Option<u64> {
    let status = procfs::record(format!("/proc/{process}/status")).ok()?;
    let rights = status
        .lines()
        .find_map(|line| line.strip_prefix("CapPrm:"))?;
    u64::from_str_radix(rights.trim(), 16).ok()
}
