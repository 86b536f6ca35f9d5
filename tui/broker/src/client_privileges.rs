//! From where a client asks. In a container without a user namespace there is a root who is no more than a tenant, and who
//! takes any user's and any group's number: a number alone says little of who is in there.

use shm_layout::broker::Account;
use shm_layout::peer::{Peer, namespace_maker};
use shm_layout::{Identity, Vouched, procfs};

use super::place::Place;
use crate::container_of;

/// CAP_SYS_ADMIN in the kernel's sets.
const SYS_ADMIN: u64 = 1 << 21;

/// Where a client stands.
#[derive(Debug)]
pub struct ClientPrivileges {
    /// The user that it is, and whose processes are its own: see [`user`].
    pub user: u32,
    /// It may do what makes root root (CAP_SYS_ADMIN, in the broker's user namespace).
    pub rules_the_machine: bool,
    /// It is in no container: it has the broker's user and pid namespace and the broker's root directory.
    pub at_home: bool,
    /// It is in a user namespace that a user made.
    is_users: bool,
    pid_ns: u64,
    container: String,
}

impl ClientPrivileges {
    /// `None` where the client is gone.
    pub fn of(peer: &Peer) -> Option<Self> {
        let user = user(peer.pid, peer.uid);
        let (who, vouched) = container_of::look(peer.pid, user, peer.gid)?;
        let process = peer.pid.to_string();
        let (theirs, ours) = (Place::of(&process)?, Place::ours()?);
        let (their_rights, our_rights) = (rights(&process)?, rights("self")?);
        // What was read of its number is its own as long as it has not ended.
        if peer.has_ended() {
            return None;
        }
        let same_users = theirs.user_ns == ours.user_ns;
        Some(Self {
            user,
            // A broker that lacks the right itself cannot ask for it.
            rules_the_machine: same_users && their_rights & SYS_ADMIN >= our_rights & SYS_ADMIN,
            at_home: theirs == *ours,
            is_users: namespace_maker(peer.pid).is_some(),
            pid_ns: who.pid_ns,
            container: vouched.container,
        })
    }

    /// Whose allowance it takes from. Where it is in namespaces that root made, its root has all numbers.
    pub fn account(&self, peer: &Peer) -> Account {
        match account(peer.pid, self.user, &self.container) {
            Account::User(_) if !self.at_home && !self.is_users => {
                Account::Container(String::new())
            }
            account => account,
        }
    }

    /// Whether a process of the same user is one that it may call its own.
    pub fn reaches(&self, who: &Identity, vouched: &Vouched) -> bool {
        self.at_home || (who.pid_ns, &vouched.container) == (self.pid_ns, &self.container)
    }
}

/// The user of a process that has this number: the one who made its user namespace, for that user has many numbers in there and
/// would pass by rules, rights and limits with one after the other. Of a namespace that root made it is the number.
pub fn user(pid: u32, uid: u32) -> u32 {
    namespace_maker(pid).unwrap_or(uid)
}

/// Who a process's slot counts for: its [`user`], but for what is in a container that root made, where there is a root who takes any
/// number.
pub fn account(pid: u32, user: u32, container: &str) -> Account {
    let of = match user == 0 && !is_at_home(pid) {
        true => Account::Container(String::new()),
        false => Account::User(user),
    };
    in_container(of, pid, container)
}

/// The same where its container is known only now. Namespaces alone name no container, since who has some makes more.
pub fn in_container(account: Account, pid: u32, container: &str) -> Account {
    // A user's own has the user's name before its own.
    let by_root = !container.is_empty() && !container.contains('/');
    match account {
        Account::User(_) if !by_root || is_at_home(pid) => account,
        _ if by_root => Account::Container(container.to_owned()),
        _ => Account::Container(String::new()),
    }
}

fn is_at_home(pid: u32) -> bool {
    Place::of(&pid.to_string()).is_some_and(|place| Some(&place) == Place::ours())
}

/// What a process may do, of what root may.
fn rights(process: &str) -> Option<u64> {
    let status = procfs::record(format!("/proc/{process}/status")).ok()?;
    let rights = status
        .lines()
        .find_map(|line| line.strip_prefix("CapPrm:"))?;
    u64::from_str_radix(rights.trim(), 16).ok()
}
