//! Traces: the operator's order, and the process's answer.

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
