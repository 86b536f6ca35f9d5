//! Residence of a process's memory: on its devices, or evicted to the host.

/// Phase of the residence of a process's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[repr(u8)]
pub enum Phase {
    /// On its devices.
    #[default]
    Resident,
    /// On its way to the host.
    Evicting,
    /// On the host.
    Evicted,
    /// On the host, and wanted back: it waits for room.
    Returning,
    /// On its way back.
    Restoring,
    /// Gone: a step failed.
    Lost,
}

impl Phase {
    /// Returns one word for tables and JSON; `None` for a process whose memory is on its devices.
    pub fn word(self) -> Option<&'static str> {
        Some(match self {
            Phase::Resident => return None,
            Phase::Evicting => "evicting",
            Phase::Evicted => "evicted",
            Phase::Returning => "returning",
            Phase::Restoring => "restoring",
            Phase::Lost => "lost",
        })
    }

    pub(crate) fn of_byte(byte: u8) -> Phase {
        const ALL: [Phase; 6] = [
            Phase::Resident,
            Phase::Evicting,
            Phase::Evicted,
            Phase::Returning,
            Phase::Restoring,
            Phase::Lost,
        ];
        ALL.get(usize::from(byte)).copied().unwrap_or_default()
    }
}

reasons! {
    /// The reason that a process is not evicted ("not evicted: …"), or the result of an attempt.
    enum Why;
    /// The process has nothing to evict.
    Nothing = "it holds no memory on its devices";
    /// The driver has no checkpoint calls for managed memory.
    Managed = "it has managed memory, which the driver does not evict";
    /// Memory of another process is mapped.
    Imported = "it uses memory of another process, which would not come back";
    /// Another process may have its memory mapped.
    Exported = "it has shown its memory to other processes";
    /// The process is a client of MPS.
    Mps = "it is a client of MPS, whose memory the driver does not evict";
    /// One of the process's devices is a MIG instance.
    Mig = "it runs on a MIG instance, whose memory the driver does not evict";
    /// The driver is too old, or not known to do it right.
    Driver = "the driver is not one that is known to evict and restore (570 to 609)";
    /// The room on the card cannot be looked at.
    NoNvml = "NVML does not answer in it, so it could not see whether there is room to come back";
    /// The host has no room for the copy.
    HostMemory = "the host, or its memory cgroup, has too little memory for the copy";
    /// A stream is capturing.
    Capturing = "it is capturing a graph";
    /// Work or calls did not end in time.
    Busy = "it is busy: its work or a call of the driver did not end in time";
    /// The process is locked by something else.
    Locked = "another program has locked it for a checkpoint";
    /// The kernel or the processor lacks a needed feature.
    System = "this system lacks what is needed to stop its calls";
    /// The process has lost its context.
    LostContext = "it has lost its context";
    /// The application used the memory before its eviction had ended.
    Wanted = "it was used meanwhile";
    /// The memory was restored so recently that evicting it again would be thrashing.
    TooSoon = "it came back a short while ago";
    /// A step failed and was undone.
    Refused = "the driver refused";
    /// The checkpoint failed and cannot be undone.
    CheckpointFailed = "the driver failed to evict it; its memory on the devices is lost";
    /// The restore failed.
    RestoreFailed = "the driver failed to bring it back; its memory on the devices is lost";
    /// No thread could be started.
    NoThread = "no thread could be started in it";
    /// The operator or the launch keeps the memory on the devices.
    Pinned = "it is pinned: its memory stays on its devices";
}

impl Why {
    pub(crate) fn of_byte(byte: u8) -> Option<Why> {
        Why::ALL.get(usize::from(byte.checked_sub(1)?)).copied()
    }

    pub(crate) fn byte(why: Option<Why>) -> u8 {
        why.map_or(0, |why| why as u8 + 1)
    }

    /// Returns true if a new attempt may soon succeed.
    pub fn may_pass(self) -> bool {
        matches!(
            self,
            Why::Nothing
                | Why::HostMemory
                | Why::Capturing
                | Why::Busy
                | Why::Locked
                | Why::Wanted
                | Why::TooSoon
                | Why::NoThread
                | Why::Pinned
        )
    }
}

/// Residence of a process's memory, with its times and reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct Residence {
    /// Present phase.
    pub phase: Phase,
    /// The reason that the memory is not evicted, though this was requested or the idle time is over.
    pub why: Option<Why>,
    /// The driver's error code that goes with it; 0 for none.
    pub code: u16,
    /// True if the driver's checkpoint moves the memory, with contexts and modules; false for copies.
    pub is_checkpoint: bool,
    /// Since when it is there.
    pub since_ns: u64,
    /// Expected duration of the step under way, by earlier steps on this machine; 0 where there is no step.
    pub expected_ns: u64,
    /// Bytes of the host that the copy takes.
    pub host_bytes: u64,
    /// Time of the application's last submission, as its keeper saw it.
    pub used_ns: u64,
    /// Duration of the last eviction and restore together.
    pub swap_ns: u64,
    /// The time at which the context of a process on the host leaves its devices too; 0 for never.
    pub deep_at_ns: u64,
    /// Expected extra duration of a restore after that.
    pub deep_ns: u64,
}

impl Residence {
    /// Returns the time until the context leaves the devices too, if the process stays on the host; `None` for never.
    pub fn deepens_in_ns(&self, now_ns: u64) -> Option<u64> {
        let is_due = self.phase == Phase::Evicted && self.deep_at_ns != 0;
        is_due.then(|| self.deep_at_ns.saturating_sub(now_ns))
    }

    /// Returns the progress of the step under way in per cent of its expected duration; at most 99 until the step ends.
    pub fn progress(&self, now_ns: u64) -> Option<u8> {
        let under_way = matches!(self.phase, Phase::Evicting | Phase::Restoring);
        if !under_way || self.expected_ns == 0 {
            return None;
        }
        let elapsed = now_ns.saturating_sub(self.since_ns);
        let percent = u128::from(elapsed) * 100 / u128::from(self.expected_ns);
        Some(percent.min(99) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_byte_is_some_phase_and_some_reason_or_none() {
        for byte in 0..=u8::MAX {
            let phase = Phase::of_byte(byte);
            assert!(phase as u8 == byte || phase == Phase::Resident);
            let why = Why::of_byte(byte);
            assert!(why.is_none() || Why::byte(why) == byte);
        }
    }

    #[test]
    fn progress_is_told_by_time_and_never_done_too_early() {
        let mut residence = Residence {
            phase: Phase::Evicting,
            since_ns: 100,
            expected_ns: 1000,
            ..Residence::default()
        };
        assert_eq!(residence.progress(600), Some(50));
        assert_eq!(residence.progress(9000), Some(99));
        residence.phase = Phase::Evicted;
        assert_eq!(residence.progress(600), None);
    }
}
