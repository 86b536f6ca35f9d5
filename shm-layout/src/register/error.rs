//! Errors of registering a process or a device.

use std::{fmt, io};

use crate::{
    files::error::remedy,
    value::{DEVICES_PER_PROCESS, MAX_DEVICES},
};

/// The reason that a process could not be registered. It runs on unmanaged.
#[derive(Debug)]
pub enum RegisterError {
    /// Every slot is taken by a living process.
    Full {
        /// Number of slots.
        capacity: usize,
    },
    /// The broker of the machine refused, or did not answer.
    Refused(String),
    /// The process could not enter its group. Without that, the group's limits would not apply to it.
    NoGroup {
        /// The group's name.
        name: String,
    },
    /// The system refused.
    Io(io::Error),
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { capacity } => write!(
                f,
                "all {capacity} process slots are taken; end another process and start this one again"
            ),
            Self::Refused(why) => f.write_str(why),
            Self::NoGroup { name } => write!(
                f,
                "cannot enter the group {name}: another process that was entering a group did not go on; continue or end \
                 stopped programs and start this one again"
            ),
            Self::Io(error) => write!(f, "cannot register: {error}{}", remedy(error)),
        }
    }
}

impl std::error::Error for RegisterError {}

/// The reason that a process gets no entry on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoDevice {
    /// The process has its maximum number of device entries.
    Process,
    /// All places of the table are those of devices that processes use.
    Machine,
    /// The broker of the machine refused, or did not answer.
    Refused(String),
}

impl fmt::Display for NoDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process => write!(
                f,
                "one process may use {DEVICES_PER_PROCESS} devices; list fewer in CUDA_VISIBLE_DEVICES"
            ),
            Self::Machine => write!(
                f,
                "programs use {MAX_DEVICES} other devices and there is room for no more; end some of them"
            ),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for NoDevice {}
