//! The state between two samples: a sample brought forward by the events after it.

use gpushare_sample::{EventLine, LockState, ProcessState, Sample, SlotId, What};

/// Brings a sample forward to a later moment. `events` are those between both, oldest first. The states of the locks are those of
/// the moment; figures that no event reports stay those of the sample.
pub fn bring_forward(sample: &mut Sample, events: Vec<EventLine>, at_ns: u64) {
    for event in &events {
        let (Some(slot), Some(gpu)) = (event.slot, event.gpu) else {
            continue;
        };
        let state = match event.what {
            What::Wait => LockState::Wait,
            What::Hold { .. } => LockState::Hold,
            What::Active { .. } => LockState::Active,
            What::Back { .. } => LockState::Back,
            What::Release { .. } | What::Rest { .. } | What::Forced { .. } | What::Takeover => {
                LockState::Idle
            }
            _ => continue,
        };
        change_device(sample, slot, gpu, state, event.time_ns);
        change_process(sample, slot, gpu, state, event.time_ns);
    }
    let ahead_ms = at_ns.saturating_sub(sample.time_ns) / 1_000_000;
    sample.unix_ms = sample.unix_ms.saturating_add_unsigned(ahead_ms);
    sample.time_ns = at_ns;
    sample.events = events;
    sample.edits.clear();
    sample.events_lost = 0;
}

fn change_device(sample: &mut Sample, slot: SlotId, gpu: usize, state: LockState, at_ns: u64) {
    let Some(device) = sample.devices.get_mut(gpu) else {
        return;
    };
    device.waiters.retain(|waiter| *waiter != slot);
    match state {
        LockState::Hold => (device.owner, device.owner_since_ns) = (Some(slot), at_ns),
        _ if device.owner == Some(slot) => device.owner = None,
        _ => {}
    }
    if state == LockState::Wait {
        device.waiters.push(slot);
    }
}

fn change_process(sample: &mut Sample, slot: SlotId, gpu: usize, state: LockState, at_ns: u64) {
    let mut processes = sample.processes.iter_mut();
    let Some(process) = processes.find(|process| process.slot() == Some(slot)) else {
        return;
    };
    let places = process.devices.iter_mut();
    for holding in places.filter(|holding| holding.gpu == gpu) {
        holding.lock.state = state;
        holding.lock.since_ns = if state == LockState::Idle { 0 } else { at_ns };
    }
    let any = |state| process.devices.iter().any(|one| one.lock.state == state);
    let by_the_lock = [
        (LockState::Hold, ProcessState::Hold),
        (LockState::Wait, ProcessState::Wait),
        (LockState::Back, ProcessState::Back),
        (LockState::Active, ProcessState::Active),
        (LockState::Idle, ProcessState::Idle),
    ];
    // A process that is stopped, paused or away stays so.
    if by_the_lock.iter().any(|(_, known)| *known == process.state)
        && let Some((_, state)) = by_the_lock.into_iter().find(|(lock, _)| any(*lock))
    {
        process.state = state;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_sample::{DeviceSample, Holding, ProcessSample, Reason};

    fn slot(index: u16) -> SlotId {
        SlotId { index, epoch: 1 }
    }

    fn event(time_ns: u64, index: u16, what: What) -> EventLine {
        EventLine {
            time_ns,
            slot: Some(slot(index)),
            gpu: Some(0),
            what,
            ..EventLine::default()
        }
    }

    #[test]
    fn a_lock_that_is_handed_over_between_two_samples_has_its_new_holder() {
        let mut sample = Sample::default();
        sample.snapshot.time_ns = 1_000;
        sample.devices.push(DeviceSample::default());
        sample.devices[0].owner = Some(slot(0));
        sample.devices[0].waiters = vec![slot(1)];
        for (index, state) in [(0, LockState::Hold), (1, LockState::Wait)] {
            let mut process = ProcessSample::default();
            process.view.slot = slot(index);
            process.state = match index {
                0 => ProcessState::Hold,
                _ => ProcessState::Wait,
            };
            let mut holding = Holding::default();
            holding.lock.state = state;
            process.devices.push(holding);
            sample.processes.push(process);
        }
        let released = What::Release {
            reason: Reason::Slice,
            held_ns: 1,
        };
        let events = vec![
            event(2_000_000, 0, released),
            event(2_000_000, 0, What::Wait),
            event(3_000_000, 1, What::Hold { waited_ns: 501 }),
        ];
        bring_forward(&mut sample, events, 5_001_000);
        let device = &sample.devices[0];
        assert_eq!(device.owner, Some(slot(1)));
        assert_eq!(device.owner_since_ns, 3_000_000);
        assert_eq!(device.waiters, [slot(0)]);
        let state = |at: usize| {
            let process: &ProcessSample = &sample.processes[at];
            let lock = &process.devices[0].lock;
            (process.state, lock.state, lock.since_ns)
        };
        assert_eq!(state(0), (ProcessState::Wait, LockState::Wait, 2_000_000));
        assert_eq!(state(1), (ProcessState::Hold, LockState::Hold, 3_000_000));
        assert_eq!((sample.time_ns, sample.unix_ms), (5_001_000, 5));
    }
}
