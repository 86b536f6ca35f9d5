//! Why a process or device could not be registered.

use std::{fmt, io};

use crate::value::{DEVICES_PER_PROCESS, MAX_DEVICES};

/// Why a process could not be registered. It runs on, unmanaged.
#[derive(Debug)]
pub enum RegisterError {
    /// Every slot is taken by a living process.
    Full {
        /// How many there are.
        capacity: usize,
    },
    /// The broker of the machine refused, or did not answer.
    Refused(String),
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
            Self::Io(error) => write!(f, "cannot register: {error}"),
        }
    }
}

impl std::error::Error for RegisterError {}

/// The slot has no room for another device, or the segment has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevicesFull;

impl fmt::Display for DevicesFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no room for another device ({DEVICES_PER_PROCESS} a process, {MAX_DEVICES} in all)"
        )
    }
}

impl std::error::Error for DevicesFull {}
