//! The work of a stream or of a graph's node: it can be queued, kept in a graph and run again.
//!
//! Work that belongs to one subject (a launch, the record of an event, a free) is in the file of that subject.

use std::{fmt::Debug, sync::Arc, time::Duration};

use gpushare_abi::{
    errors::{CUDA_ERROR_INVALID_VALUE, CUerror},
    types::{CUstream, CUstreamBatchMemOpParams},
};
use gpushare_sim::{clock, link::Direction};

use crate::{
    c::{self, In},
    driver::Driver,
    memory::heap,
};

/// A piece of work.
pub trait Work: Debug + Send + Sync {
    /// Does it on a device. It could have begun at `ready`; returns when it ended.
    fn run(&self, driver: &Driver, ordinal: i32, ready: u64) -> u64;
}

/// Work that does nothing and only has a place in the order.
#[derive(Clone, Copy, Debug)]
pub struct Nothing;

impl Work for Nothing {
    fn run(&self, _: &Driver, _: i32, ready: u64) -> u64 {
        ready
    }
}

/// All of these, in this order.
#[derive(Debug)]
pub struct All(pub Vec<Arc<dyn Work>>);

impl Work for All {
    fn run(&self, driver: &Driver, ordinal: i32, ready: u64) -> u64 {
        let run = |ready, work: &Arc<dyn Work>| work.run(driver, ordinal, ready);
        self.0.iter().fold(ready, run)
    }
}

/// A copy of up to three dimensions between addresses.
#[derive(Clone, Debug)]
pub struct Copy {
    /// The source.
    pub from: Side,
    /// The destination.
    pub to: Side,
    /// Bytes a row.
    pub width: usize,
    /// Rows a slice.
    pub height: usize,
    /// Slices.
    pub depth: usize,
    /// The source's bytes, if the application may re-use its memory at once; rows without gaps.
    pub staged: Option<Arc<[u8]>>,
    /// The direction in which the copy uses the link between host and device, and how long; `None` for no time.
    pub link: Option<(Direction, Duration)>,
}

/// A side of a copy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Side {
    /// The first byte.
    pub address: u64,
    /// Bytes from a row to the next.
    pub pitch: usize,
    /// Bytes from a slice to the next.
    pub slice: usize,
}

impl Side {
    fn row(&self, y: usize, z: usize) -> u64 {
        self.address + (y * self.pitch + z * self.slice) as u64
    }
}

impl Copy {
    /// Creates a copy without rows.
    pub fn linear(to: u64, from: u64, bytes: usize) -> Self {
        let side = |address| Side {
            address,
            pitch: bytes,
            slice: bytes,
        };
        Self {
            from: side(from),
            to: side(to),
            width: bytes,
            height: 1,
            depth: 1,
            staged: None,
            link: None,
        }
    }

    /// Copies the source's bytes, so that the source may change.
    pub fn stage(&mut self) {
        let mut bytes = Vec::with_capacity(self.width * self.height * self.depth);
        for z in 0..self.depth {
            for y in 0..self.height {
                bytes.extend_from_slice(&c::read_bytes(self.from.row(y, z), self.width));
            }
        }
        self.staged = Some(bytes.into());
    }

    /// Copies the bytes now.
    pub fn now(&self) {
        let staged = self.staged.as_ref().map(|bytes| Side {
            address: bytes.as_ptr() as u64,
            pitch: self.width,
            slice: self.width * self.height,
        });
        let from = staged.unwrap_or(self.from);
        for z in 0..self.depth {
            for y in 0..self.height {
                c::copy_bytes(self.to.row(y, z), from.row(y, z), self.width);
            }
        }
    }
}

impl Work for Copy {
    fn run(&self, driver: &Driver, ordinal: i32, _: u64) -> u64 {
        if let Some((direction, time)) = self.link
            && let Ok(device) = driver.device(ordinal)
        {
            driver.member.use_link(device.index, direction, time);
        }
        self.now();
        clock::now()
    }
}

/// A memset of up to two dimensions.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// The first byte.
    pub to: u64,
    /// Bytes from a row to the next.
    pub pitch: usize,
    /// The value, in as many low bytes as an element has.
    pub value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub element: usize,
    /// Elements a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl Work for Fill {
    fn run(&self, _: &Driver, _: i32, _: u64) -> u64 {
        for y in 0..self.height {
            let row = self.to + (y * self.pitch) as u64;
            match self.element {
                1 => c::fill(row, self.value as u8, self.width),
                2 => c::fill(row, self.value as u16, self.width),
                _ => c::fill(row, self.value, self.width),
            }
        }
        clock::now()
    }
}

/// A call of the application's function.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// The function.
    pub function: unsafe extern "C" fn(*mut std::ffi::c_void),
    /// The function's argument, an address.
    pub data: u64,
}

impl Work for Host {
    fn run(&self, _: &Driver, _: i32, _: u64) -> u64 {
        c::call_host(self.function, self.data);
        clock::now()
    }
}

/// A call of the application's stream callback.
#[derive(Clone, Copy, Debug)]
pub struct Callback {
    /// The function.
    pub function: unsafe extern "C" fn(CUstream, u32, *mut std::ffi::c_void),
    /// The stream's handle, as the application passed it.
    pub stream: u64,
    /// The function's argument, an address.
    pub data: u64,
}

impl Work for Callback {
    fn run(&self, _: &Driver, _: i32, _: u64) -> u64 {
        c::call_back(self.function, self.stream, self.data);
        clock::now()
    }
}

/// A word that a stream waits for or writes.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// The address of the word.
    pub address: u64,
    /// The value.
    pub value: u64,
    /// True for 64 bits, false for 32.
    pub wide: bool,
    /// The condition to wait for: 0 at least, 1 equal, 2 any common bit, 3 not all bits; `None` to write the word.
    pub wait: Option<u32>,
}

impl Word {
    /// Checks a word of the application.
    pub fn checked(self) -> Result<Self, CUerror> {
        let bytes = if self.wide { 8 } else { 4 };
        if !self.address.is_multiple_of(bytes) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        heap::check(self.address, bytes)?;
        Ok(self)
    }

    /// Reads a list of memory operations: wait 32, write 32, wait 64, write 64; barriers are ignored.
    pub fn list(count: u32, list: In<CUstreamBatchMemOpParams>) -> Result<Vec<Self>, CUerror> {
        let mut words = Vec::new();
        for operation in list.all(count as usize)? {
            let [kind, address, value, flags, ..] = operation.pad;
            let (wide, wait) = match kind as u32 {
                1 => (false, Some(flags as u32)),
                2 => (false, None),
                4 => (true, Some(flags as u32)),
                5 => (true, None),
                3 | 6 => continue,
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            };
            let value = if wide { value } else { value & 0xffff_ffff };
            let word = Self {
                address,
                value,
                wide,
                wait,
            };
            words.push(word.checked()?);
        }
        Ok(words)
    }

    /// Returns true if the awaited condition holds.
    fn is_met(&self, wait: u32) -> bool {
        let bytes = if self.wide { 8 } else { 4 };
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(&c::read_bytes(self.address, bytes));
        let now = u64::from_le_bytes(word);
        match wait & 3 {
            0 if self.wide => now.wrapping_sub(self.value) as i64 >= 0,
            0 => (now as u32).wrapping_sub(self.value as u32) as i32 >= 0,
            1 => now == self.value,
            2 => now & self.value != 0,
            _ => !(now | self.value) != 0,
        }
    }
}

impl Work for Word {
    fn run(&self, _: &Driver, _: i32, _: u64) -> u64 {
        match self.wait {
            Some(wait) => {
                while !self.is_met(wait) {
                    gpushare_sim::clock::sleep(std::time::Duration::from_micros(50));
                }
            }
            None => {
                let value = self.value.to_le_bytes();
                let bytes = if self.wide { 8 } else { 4 };
                c::copy_bytes(self.address, value.as_ptr() as u64, bytes);
            }
        }
        clock::now()
    }
}
