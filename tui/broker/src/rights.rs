//! Who may make which edit.
//!
//! Root and the administrators' group may make any. Everyone may make theirs smaller: lower a quota of their own processes,
//! pause them, resume what they paused themselves, name and trace them.

use shm_layout::broker::{Account, Broker};
use shm_layout::peer::Peer;
use shm_layout::{Change, QuotaValue, Set, ShareEdit, SlotId, Snapshot, clock, snapshot};

use crate::client_privileges::ClientPrivileges;

/// What nobody may do with a quota of their own.
const RAISES: &str = "you may lower a quota and not raise it; ask an administrator";

/// Why an edit is not permitted, as the end of a sentence.
pub type Denied = String;

/// Who asks, and from where.
pub struct Caller {
    /// The user that it is, whatever number it has.
    pub user: u32,
    /// May make any edit.
    pub administrator: bool,
    /// Whose allowance its edits take from.
    pub account: Account,
    from: ClientPrivileges,
}

impl Caller {
    /// `None` where the caller is gone.
    ///
    /// Root in a container has the number 0 and takes any group it likes: neither makes it an administrator.
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

/// Whether a caller who is no administrator may make this edit.
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
            // What it asked for at its launch, by its own word.
            let now = snapshot(broker.segments(), clock::now());
            lowers(&now, *slot, *device, *value)
        }
        Change::ProcessShare {
            slot,
            share:
                ShareEdit {
                    weight: Set::Keep,
                    priority: Set::Keep,
                    cap: Set::Keep,
                    boost: Set::Keep,
                    on_full: Set::Keep,
                    evict_after: Set::Keep,
                    evict,
                    paused,
                },
        } => {
            own(broker, caller, *slot)?;
            match (paused, evict) {
                (Set::To(true), Set::Keep | Set::To(true)) => Ok(()),
                // What an administrator paused would be free again at its end, or its memory be back.
                _ if broker.held_until(*slot) > clock::now() => {
                    Err("an administrator paused this process and may resume it".into())
                }
                _ => Ok(()),
            }
        }
        // It costs the process alone, and its buffer is in its user's directory.
        Change::Label { slot, .. } | Change::Trace { slot, .. } => own(broker, caller, *slot),
        _ => Err(YOURS.into()),
    }
}

/// The edit of a caller who is no administrator as it is made: a pause of one's own leaves what an administrator's pause says of the
/// memory.
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

/// That the process of a slot is this user's: in a container, of this container.
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

/// That a quota is at most what an administrator said. How many bytes a device has only its processes say, and they may say what they
/// like: bytes and shares of it are not compared.
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

/// That a quota is at most what holds now, on each device that it concerns.
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
