//! What a stream or a graph node does, as a value: it can be queued, kept in a graph and run again.

use std::sync::Arc;

use gpushare_abi::types::CUstream;
use gpushare_sim::clock;

use crate::c;
use crate::driver::Driver;

/// A piece of work.
#[derive(Clone, Debug)]
pub enum Task {
    /// A kernel that takes its time on the engine.
    Kernel(Arc<crate::launch::Launch>),
    /// A copy.
    Copy(Copy),
    /// A memset.
    Fill(Fill),
    /// A call of the application's function.
    Host(Host),
    /// A call of the application's stream callback.
    Callback(Callback),
    /// Gives an allocation back, in stream order.
    Free(u64),
    /// Comes to the free of a pool's allocation.
    Settle(crate::pool::Settle),
    /// Waits until a word in memory compares as wanted, or writes one.
    Word(Word),
    /// Nothing; it only has a place in the order.
    Nothing,
    /// Nothing; it keeps a graph's allocation until the work on it is done.
    Keep(Arc<crate::graph::memory::Allocation>),
    /// All of these, in this order.
    All(Arc<[Task]>),
    /// Marks an event.
    Record(Arc<crate::event::Event>),
    /// Waits for an event's latest mark.
    Await(Arc<crate::event::Event>),
}

/// A copy of up to three dimensions between addresses.
#[derive(Clone, Debug)]
pub struct Copy {
    /// Where from.
    pub from: Side,
    /// Where to.
    pub to: Side,
    /// Bytes a row.
    pub width: usize,
    /// Rows a slice.
    pub height: usize,
    /// Slices.
    pub depth: usize,
    /// The source's bytes, if the application may re-use its memory at once; rows without gaps.
    pub staged: Option<Arc<[u8]>>,
}

/// One side of a copy.
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
    /// A copy without rows.
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
        }
    }

    /// Takes the source's bytes along.
    pub fn stage(&mut self) {
        let mut bytes = Vec::with_capacity(self.width * self.height * self.depth);
        for z in 0..self.depth {
            for y in 0..self.height {
                bytes.extend_from_slice(&c::read_bytes(self.from.row(y, z), self.width));
            }
        }
        self.staged = Some(bytes.into());
    }

    fn run(&self) {
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

impl Fill {
    fn run(&self) {
        for y in 0..self.height {
            let row = self.to + (y * self.pitch) as u64;
            match self.element {
                1 => c::fill(row, self.value as u8, self.width),
                2 => c::fill(row, self.value as u16, self.width),
                _ => c::fill(row, self.value, self.width),
            }
        }
    }
}

/// A call of the application's function.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// The function.
    pub function: unsafe extern "C" fn(*mut std::ffi::c_void),
    /// Its argument, an address.
    pub data: u64,
}

/// A call of the application's stream callback.
#[derive(Clone, Copy, Debug)]
pub struct Callback {
    /// The function.
    pub function: unsafe extern "C" fn(CUstream, u32, *mut std::ffi::c_void),
    /// The stream's handle, as the application gave it.
    pub stream: u64,
    /// Its argument, an address.
    pub data: u64,
}

/// A word that a stream waits for or writes.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// Where.
    pub address: u64,
    /// The value.
    pub value: u64,
    /// It has 64 bits rather than 32.
    pub wide: bool,
    /// How to wait for it: 0 at least, 1 equal, 2 any common bit, 3 not all bits; `None` to write it.
    pub wait: Option<u32>,
}

impl Word {
    fn run(&self) {
        let bytes = if self.wide { 8 } else { 4 };
        let Some(wait) = self.wait else {
            c::copy_bytes(
                self.address,
                self.value.to_le_bytes().as_ptr() as u64,
                bytes,
            );
            return;
        };
        loop {
            let mut word = [0; 8];
            word[..bytes].copy_from_slice(&c::read_bytes(self.address, bytes));
            let now = u64::from_le_bytes(word);
            let met = match wait & 3 {
                0 if self.wide => now.wrapping_sub(self.value) as i64 >= 0,
                0 => (now as u32).wrapping_sub(self.value as u32) as i32 >= 0,
                1 => now == self.value,
                2 => now & self.value != 0,
                _ => !(now | self.value) != 0,
            };
            if met {
                return;
            }
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }
}

impl Task {
    /// Does it. It could have begun at `ready`; returns when it ended.
    pub fn run(&self, driver: &Driver, ordinal: i32, ready: u64) -> u64 {
        match self {
            Self::Kernel(launch) => match driver.device(ordinal) {
                Ok(device) => {
                    driver
                        .member
                        .run_kernel(device.index, device.duration(launch.ns), ready)
                }
                Err(_) => ready,
            },
            Self::All(tasks) => tasks
                .iter()
                .fold(ready, |ready, task| task.run(driver, ordinal, ready)),
            Self::Nothing | Self::Keep(_) => ready,
            Self::Record(event) => {
                event.happened(ready);
                ready
            }
            Self::Await(event) => event.wait().max(ready),
            Self::Copy(copy) => {
                copy.run();
                clock::now()
            }
            Self::Fill(fill) => {
                fill.run();
                clock::now()
            }
            Self::Host(host) => {
                c::call_host(host.function, host.data);
                clock::now()
            }
            Self::Callback(callback) => {
                c::call_back(callback.function, callback.stream, callback.data);
                clock::now()
            }
            Self::Word(word) => {
                word.run();
                clock::now()
            }
            Self::Free(address) => {
                // The application may have freed it twice; a stream has nobody to tell.
                let _ = crate::pool::free_now(*address);
                ready
            }
            Self::Settle(free) => {
                free.run();
                ready
            }
        }
    }
}
