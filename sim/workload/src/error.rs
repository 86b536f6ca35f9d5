//! Errors between a program and its GPU.

use std::fmt;

use gpushare_abi::errors::{CUDA_ERROR_OUT_OF_MEMORY, CUerror};

/// The reason why a use of the driver failed.
#[derive(Debug)]
pub enum Error {
    /// No driver library, or one that cannot be loaded; with the loader's message.
    NoDriver(String),
    /// The driver library has no such function: it is too old, or no driver at all.
    MissingFunction(&'static str),
    /// A driver call returned an error.
    Call {
        /// The driver function.
        function: &'static str,
        /// The result of the call.
        error: CUerror,
    },
}

impl Error {
    /// Returns true if an allocation was refused. A full device and a spent quota give the same error.
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
