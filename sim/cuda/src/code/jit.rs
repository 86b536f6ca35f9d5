//! The logs of the JIT compiler: the buffers in a caller's options, and the text written there.
//!
//! Nothing is compiled, so the logs are short: with `CU_JIT_LOG_VERBOSE` the entry functions, and the reason why an
//! image is refused. A given buffer always gets text, even if empty, and its size option the length of the text in
//! bytes.

use std::ffi::{c_char, c_void};

use gpushare_abi::errors::CUerror;

use crate::{
    c::{In, Out, put_text},
    code::image::Image,
};

/// The buffer of one log.
#[derive(Clone, Copy, Debug, Default)]
struct Log {
    buffer: u64,
    room: usize,
    /// The address of the option that receives the text's length.
    written: u64,
}

/// The buffers in which a caller wants the logs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Logs {
    info: Log,
    error: Log,
    is_verbose: bool,
}

/// A list of `CUjit_option`s with their values.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Number of options.
    pub count: u32,
    /// The keys of the options.
    pub keys: In<u32>,
    /// The values of the options.
    pub values: In<*mut c_void>,
}

impl Logs {
    /// Reads the options that say so.
    pub fn of(options: Options) -> Result<Self, CUerror> {
        let mut logs = Self::default();
        for index in 0..options.count as usize {
            let key = options.keys.at(index)?;
            let value = options.values.at(index)? as u64;
            let written = options.values.0.wrapping_add(index) as u64;
            match key {
                3 => logs.info.buffer = value,
                4 => (logs.info.room, logs.info.written) = (value as u32 as usize, written),
                5 => logs.error.buffer = value,
                6 => (logs.error.room, logs.error.written) = (value as u32 as usize, written),
                12 => logs.is_verbose = value as u32 != 0,
                _ => {}
            }
        }
        Ok(logs)
    }

    /// Writes the logs of an accepted image.
    pub fn took(&self, image: &Image) {
        let Image::Known { entries, .. } = image else {
            return self.took_text("");
        };
        let lines = entries.iter().map(|entry| {
            let name = &entry.name;
            format!("ptxas info    : Compiling entry function '{name}'\n")
        });
        self.took_text(&lines.collect::<String>());
    }

    /// Writes the text about an accepted image, if the caller wants it.
    pub fn took_text(&self, text: &str) {
        self.info.put(if self.is_verbose { text } else { "" });
        self.error.put("");
    }

    /// Writes the logs of a refused image.
    pub fn refused(&self) {
        self.info.put("");
        self.error.put(
            "ptxas application ptx input, line 1; fatal   : Missing .version directive at start of file\n\
             ptxas fatal   : Ptx assembly aborted due to errors\n",
        );
    }
}

impl Log {
    fn put(&self, text: &str) {
        let buffer: Out<c_char> = Out(self.buffer as *mut _);
        if buffer.is_null() || self.room == 0 {
            return;
        }
        let room = i32::try_from(self.room).unwrap_or(i32::MAX);
        // There is a buffer, and it has room.
        let _ = put_text(buffer, room, text);
        let bytes = text.len().min(self.room - 1);
        Out::<usize>(self.written as *mut _).set_if_wanted(bytes);
    }
}
