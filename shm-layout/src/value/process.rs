//! The states that a process publishes about itself: where its memory is, the time slice that it has from the card, its trace, and
//! the loss of its context.

/// Declares the reasons of one kind, numbered from 0 in the order of their rows.
macro_rules! reasons {
    (
        $(#[$about:meta])* enum $Kind:ident;
        $($(#[$doc:meta])* $name:ident = $sentence:literal;)*
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(
            feature = "serde",
            derive(serde::Serialize, serde::Deserialize),
            serde(rename_all = "snake_case")
        )]
        #[repr(u8)]
        pub enum $Kind {
            $($(#[$doc])* $name,)*
        }

        impl $Kind {
            const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the reason as a clause.
            pub fn sentence(self) -> &'static str {
                match self {
                    $(Self::$name => $sentence,)*
                }
            }
        }
    };
}

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
    /// The driver had no memory for the streams that copy.
    CardFull = "the card is so full that the driver has no memory for what copies";
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
                | Why::CardFull
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
    /// True if a part of the memory is still on its device and could leave too: a process leaves as far as another lacks room.
    pub is_in_part: bool,
    /// Since when it is there.
    pub since_ns: u64,
    /// Expected duration of the step under way, by earlier steps on this machine; 0 where there is no step.
    pub expected_ns: u64,
    /// Bytes of the host that the copy takes.
    pub host_bytes: u64,
    /// Time of the application's last submission, as its keeper saw it.
    pub used_ns: u64,
    /// Duration of the last eviction and restore together, without the time in which host memory was made.
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

/// State of a process's own time slice on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum CardSlice {
    /// The card's default: the policy asks for none, or the process has no channels there yet.
    #[default]
    Default,
    /// The card's default, because the policy asks for none. The driver and the card are known to obey one.
    Available,
    /// Its channels have a slice of so many microseconds.
    Set(u32),
    /// The policy asks for one, and its channels keep the default.
    Refused(Unsliced, u16),
}

reasons! {
    /// The reason that a process does not follow `hw-timeslice`; a code of the driver's stands beside it, 0 for none.
    enum Unsliced;
    /// No request of the driver's came by.
    NotSeen = "the library did not see the driver make its channels";
    /// The driver's branch was not measured.
    Driver = "its driver is not one that is known to obey (580)";
    /// The card's generation was not measured.
    Card = "its card is not one that is known to obey (compute capability 9)";
    /// The channels belong to the server.
    Mps = "it is a client of MPS, whose server has the channels";
    /// Not measured.
    Mig = "it runs on a MIG instance, where this was not measured";
    /// The host divides the card among the guests.
    Virtual = "it runs on a virtual GPU, whose host divides the time";
    /// The device of a group is not known.
    Several = "it uses several GPUs, and they have different policies";
    /// The table is full.
    TooMany = "it has more channel groups than the library keeps";
    /// A request failed.
    Refused = "the driver refused";
    /// GET did not read what SET wrote.
    Ignored = "the driver kept another slice than the one that was set";
}

/// The first byte of a word: 0 is the default, 1 a slice that is set, above it the reason of a refusal. Below it a default has 1
/// where another slice is available.
const TAG: u32 = 24;
const AVAILABLE: u32 = 1;
const SET: u32 = 1;
const FIRST_REASON: u32 = 2;
const MOST: u32 = (1 << TAG) - 1;
/// The card's default slice in microseconds.
const DEFAULT_US: u32 = 2_048;

impl CardSlice {
    /// Returns true if the process has a slice of its own, or would have one under a policy that asks for it.
    pub fn is_possible(self) -> bool {
        matches!(self, Self::Available | Self::Set(_))
    }

    /// Returns the state as a word of the segment.
    pub(crate) fn word(self) -> u32 {
        match self {
            Self::Default => 0,
            Self::Available => AVAILABLE,
            Self::Set(us) => SET << TAG | us.min(MOST),
            Self::Refused(why, status) => (FIRST_REASON + why as u32) << TAG | u32::from(status),
        }
    }

    /// Returns true for a slice that is longer than the card's default.
    pub(crate) fn is_long(self) -> bool {
        matches!(self, Self::Set(us) if us > DEFAULT_US)
    }

    /// Returns the state of a word. Any word is some state, because any process can write there.
    pub(crate) fn of(word: u32) -> Self {
        let reason = (word >> TAG).checked_sub(FIRST_REASON);
        match reason.map(|at| Unsliced::ALL.get(at as usize)) {
            None if word == AVAILABLE => Self::Available,
            None if word >> TAG == SET => Self::Set(word & MOST),
            Some(Some(why)) => Self::Refused(*why, word as u16),
            _ => Self::Default,
        }
    }
}

/// The operator's order for a trace, or for its end; the end may be that of a trace that the launch asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceOrder {
    /// Records of the buffer; zero ends the trace.
    pub records: u32,
    /// Never zero. Another number is another order: the buffer is opened anew.
    pub number: u32,
}

impl TraceOrder {
    /// Records of the buffer it wants; `None` if it ends the trace.
    pub fn room(self) -> Option<u32> {
        (self.records > 0).then_some(self.records)
    }
}

/// State of a process's trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum TraceState {
    /// The process writes no trace.
    #[default]
    Off,
    /// The process writes a trace.
    On,
    /// Asked for, but it finds no buffer.
    NoBuffer,
    /// Asked for, but it may not write the buffer: its view of the directory is read-only, or the file is not its own.
    NotPermitted,
    /// Asked for, but there is no room for the buffer: on the file system, or in the process.
    NoSpace,
    /// Asked for, but the file is no buffer of its own.
    BadBuffer,
}

impl TraceState {
    /// Every state, by the byte that the segment has for it.
    pub(crate) const ALL: [TraceState; 6] = [
        TraceState::Off,
        TraceState::On,
        TraceState::NoBuffer,
        TraceState::NotPermitted,
        TraceState::NoSpace,
        TraceState::BadBuffer,
    ];

    /// Returns the state as tables show it.
    pub fn word(self) -> &'static str {
        match self {
            TraceState::Off => "off",
            TraceState::On => "on",
            TraceState::NoBuffer => "no buffer",
            TraceState::NotPermitted => "not permitted",
            TraceState::NoSpace => "no space",
            TraceState::BadBuffer => "bad buffer",
        }
    }
}

/// Progress of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct Progress {
    /// State of the trace.
    pub state: TraceState,
    /// True if the process also writes the files of `PFLOG`.
    pub logs: bool,
    /// Records written.
    pub records: u64,
    /// Records that did not fit.
    pub dropped: u64,
}

/// A process's trace as the snapshot has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct TraceView {
    /// Number of records that the operator asked for; `None` for no trace.
    #[cfg_attr(feature = "serde", serde(rename = "room"))]
    pub wanted: Option<u32>,
    /// The process's progress with the trace.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub progress: Progress,
}

impl TraceView {
    /// Returns true if a trace was started, by an operator or by the launch, so that it can be stopped.
    pub fn goes_on(&self) -> bool {
        self.wanted.is_some() || self.progress.state == TraceState::On
    }
}

/// The first answer of the driver after which nothing works any more in the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Loss {
    /// The driver's error code.
    pub code: u16,
    /// The driver call that got it, by the shim's own numbering.
    pub call: Option<u16>,
    /// Time of the loss.
    pub time_ns: u64,
    /// For how long the process had submitted nothing to the device by then, in milliseconds.
    pub idle_ms: u32,
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

    #[test]
    fn every_state_is_read_back_from_its_word() {
        let refused = Unsliced::ALL
            .iter()
            .map(|why| CardSlice::Refused(*why, 0x56));
        let others = [
            CardSlice::Default,
            CardSlice::Available,
            CardSlice::Set(0),
            CardSlice::Set(4_000),
        ];
        for state in others.into_iter().chain(refused) {
            assert_eq!(CardSlice::of(state.word()), state);
        }
        assert_eq!(CardSlice::of(u32::MAX), CardSlice::Default);
    }
}
