//! Who may make which edit.
//!
//! Root and the administrators' group may make any. Everyone may make theirs smaller: lower a quota of their own processes,
//! pause them, and resume what they paused themselves.

use shm_layout::broker::Broker;
use shm_layout::peer::Peer;
use shm_layout::{Change, QuotaValue, Set, SlotId, Snapshot, clock, snapshot};

/// Why an edit is not permitted, as the end of a sentence.
pub type Denied = String;

/// Whether a caller may make any edit.
pub fn is_administrator(peer: &Peer, admins: Option<u32>) -> bool {
    let member = |group| peer.gid == group || peer.groups.contains(&group);
    peer.uid == 0 || admins.is_some_and(member)
}

/// Whether a caller who is no administrator may make this edit.
pub fn check(broker: &Broker, uid: u32, change: &Change) -> Result<(), Denied> {
    match change {
        Change::ProcessQuota {
            slot,
            device,
            value,
            until: None,
        } => {
            own(broker, uid, *slot)?;
            let now = snapshot(broker.segments(), clock::now());
            lowers(&now, *slot, *device, *value)
        }
        Change::ProcessShare {
            slot,
            weight: Set::Keep,
            priority: Set::Keep,
            cap: Set::Keep,
            boost: Set::Keep,
            on_full: Set::Keep,
            evict_after: Set::Keep,
            evict: _,
            paused,
        } => {
            own(broker, uid, *slot)?;
            match paused {
                Set::To(true) => Ok(()),
                _ if broker.is_held(*slot) => {
                    Err("an administrator paused this process and may resume it".into())
                }
                _ => Ok(()),
            }
        }
        _ => Err(YOURS.into()),
    }
}

const YOURS: &str = "you may lower the quota of your own processes, pause and resume them; ask an administrator for other changes";

/// That the process of a slot is this user's.
fn own(broker: &Broker, uid: u32, slot: SlotId) -> Result<(), Denied> {
    let (who, _) = broker.who(slot).ok_or("the process has ended")?;
    if who.uid == uid {
        Ok(())
    } else {
        Err(format!("the process belongs to another user; {YOURS}"))
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
            return Err("you may lower a quota and not raise it; ask an administrator".into());
        }
    }
    Ok(())
}
