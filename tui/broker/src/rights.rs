//! Permissions for edits.
//!
//! Root and the administrators' group may make any edit. Other users may lower a quota of their own processes, pause them,
//! resume those that they paused themselves, and name and trace them.

use shm_layout::broker::Broker;
use shm_layout::peer::Peer;
use shm_layout::table::{EVICT, PAUSED};
use shm_layout::{Change, QuotaValue, Set, ShareEdit, SlotId, Snapshot, clock, snapshot};

use crate::account::Account;
use crate::client_privileges::ClientPrivileges;

/// Message for a user who tries to raise a quota.
const RAISES: &str = "you may lower a quota and not raise it; ask an administrator";

/// Reason why an edit is not permitted, as the end of a sentence.
pub type Denied = String;

/// The client that asks for an edit, with its privileges.
pub struct Caller {
    /// User of the client; see `client_privileges::user`.
    pub user: u32,
    /// True if the client may make any edit.
    pub administrator: bool,
    /// Account that is charged for its edits.
    pub account: Account,
    from: ClientPrivileges,
}

impl Caller {
    /// Reads the caller's privileges. Returns `None` if it has ended.
    ///
    /// Root in a container has uid 0 and can take any group, so neither makes it an administrator.
    pub fn of(peer: &Peer, admins: Option<u32>) -> Option<Self> {
        let from = ClientPrivileges::of(peer)?;
        let member = |group| peer.gid == group || peer.groups.contains(&group);
        let root = peer.uid == 0 && from.rules_the_machine;
        Some(Self {
            user: from.user,
            account: from.account(peer),
            administrator: root || from.at_home && admins.is_some_and(member),
            from,
        })
    }
}

/// Checks that a caller who is no administrator may make this edit.
pub fn check(broker: &Broker, caller: &Caller, change: &Change) -> Result<(), Denied> {
    match change {
        Change::ProcessQuota {
            slot,
            device,
            value,
            until: None,
        } => {
            own(broker, caller, *slot)?;
            let left = broker.quotas_left(*slot, *device);
            let left = left.ok_or("the rules cannot be read just now; try again")?;
            left.into_iter()
                .try_for_each(|left| is_within(*value, left))?;
            // The process itself set this value at its launch.
            let now = snapshot(broker.segments(), clock::now());
            lowers(&now, *slot, *device, *value)
        }
        Change::ProcessShare { slot, share } if is_pause(share) => {
            own(broker, caller, *slot)?;
            match (share.paused, share.evict) {
                (Set::To(true), Set::Keep | Set::To(true)) => Ok(()),
                // The edit would end the administrator's pause, at once or when it expires, or restore the memory.
                _ if broker.held_until(*slot) > clock::now() => {
                    Err("an administrator paused this process and may resume it".into())
                }
                _ => Ok(()),
            }
        }
        // The edit affects only this process, and the trace is in its user's directory.
        Change::Label { slot, .. } | Change::Trace { slot, .. } => own(broker, caller, *slot),
        _ => Err(YOURS.into()),
    }
}

/// Returns true if the edit only pauses or resumes.
fn is_pause(share: &ShareEdit) -> bool {
    let mut words = share.words().into_iter();
    words.all(|(word, _)| [PAUSED.about.word, EVICT.about.word].contains(&word))
}

/// Limits the edit of a caller who is no administrator: a pause of its own keeps the memory setting of an administrator's
/// pause.
pub fn narrowed(broker: &Broker, mut change: Change) -> Change {
    if let Change::ProcessShare {
        slot,
        share:
            ShareEdit {
                paused: Set::To(true),
                evict: evict @ Set::Inherit,
                ..
            },
    } = &mut change
        && broker.held_until(*slot) > clock::now()
    {
        *evict = Set::Keep;
    }
    change
}

const YOURS: &str = "you may lower the quota of your own processes, pause, resume, name and trace them; ask an administrator for other changes";

/// Checks that the process of a slot belongs to this user, and for a caller in a container, that it is in that container.
fn own(broker: &Broker, caller: &Caller, slot: SlotId) -> Result<(), Denied> {
    let (who, vouched) = broker.who(slot).ok_or("the process has ended")?;
    if who.uid != caller.user {
        return Err(format!("the process belongs to another user; {YOURS}"));
    }
    match caller.from.reaches(&who, &vouched) {
        true => Ok(()),
        false => Err("the process is outside of the container that you are in".into()),
    }
}

/// Checks that a quota is at most the administrator's value. A size and a share are not compared, because the size of a
/// device is only known from its processes, which can report any value.
fn is_within(value: QuotaValue, said: QuotaValue) -> Result<(), Denied> {
    use QuotaValue::{Bytes, Inherit, Percent, Unlimited};
    let within = match (value, said) {
        (_, Inherit | Unlimited) => true,
        (Bytes(value), Bytes(said)) => value <= said,
        (Percent(value), Percent(said)) => value <= said,
        (Percent(_), Bytes(_)) => {
            return Err("an administrator set this quota as a size; give yours as one too".into());
        }
        (Bytes(_), Percent(_)) => {
            return Err(
                "an administrator set this quota as a share of the device; give yours as one too"
                    .into(),
            );
        }
        (Inherit | Unlimited, _) => false,
    };
    match within {
        true => Ok(()),
        false => Err(RAISES.into()),
    }
}

/// Checks that a quota is at most the present one, on each device that it affects.
fn lowers(
    now: &Snapshot,
    slot: SlotId,
    device: Option<u8>,
    value: QuotaValue,
) -> Result<(), Denied> {
    if matches!(value, QuotaValue::Inherit | QuotaValue::Unlimited) {
        return Err("you may lower a quota and not remove it; ask an administrator".into());
    }
    let process = now.processes.iter().find(|process| process.slot == slot);
    let process = process.ok_or("the process has not registered yet")?;
    if process.devices.is_empty() {
        return Err("the process uses no device yet".into());
    }
    let concerned = process
        .devices
        .iter()
        .filter(|entry| device.is_none_or(|device| device == entry.entry));
    for entry in concerned {
        let Some(has) = entry.quota.bytes else {
            continue;
        };
        let on = now.devices.iter().find(|on| on.index == entry.device);
        let wanted = on.and_then(|on| value.of_device(on.total_bytes).flatten());
        if wanted.is_none_or(|wanted| wanted > has) {
            return Err(RAISES.into());
        }
    }
    Ok(())
}
