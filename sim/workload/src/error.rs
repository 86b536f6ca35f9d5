//! What can stand between a program and its GPU.

use std::fmt;

use gpushare_abi::errors::{CUDA_ERROR_OUT_OF_MEMORY, CUerror};

/// Why something on the driver did not work.
#[derive(Debug)]
pub enum Error {
    /// There is no driver library, or it cannot be loaded; the loader's own words.
    NoDriver(String),
    /// The driver library has no such function: it is too old, or no driver at all.
    MissingFunction(&'static str),
    /// A driver call answered with an error.
    Call {
        /// The driver function.
        function: &'static str,
        /// What it answered.
        error: CUerror,
    },
}

impl Error {
    /// Whether an allocation was refused: by a full device or by a spent quota, a client cannot tell.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Call { error, .. } if *error == CUDA_ERROR_OUT_OF_MEMORY)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver(reason) => write!(
                f,
                "no CUDA driver here ({reason}); install NVIDIA's driver, or try the simulator with \
                 `gpushare run --sim`"
            ),
            Self::MissingFunction(name) => write!(
                f,
                "the CUDA driver has no {name}; it is older than CUDA 11.4 or not a driver"
            ),
            Self::Call { function, error } => write!(f, "{function}: {error}"),
        }
    }
}

impl std::error::Error for Error {}
