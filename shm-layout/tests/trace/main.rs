//! Trace buffers: records are read as written, whatever else the file contains, and whenever the writer dies.

#[path = "../common/mod.rs"]
mod common;
mod deaths;
mod files;
mod orders;

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use common::*;
use proptest::prelude::*;
use shm_layout::{
    trace::{Buffer, Call, Guest, Kind, Reader, TraceError, TraceState},
    *,
};

const NAMES: [&str; 3] = ["cuInit", "cuMemAlloc_v2", "cuLaunchKernel"];
const RECORDS: u32 = 1000;
const ALLOC: u16 = 1;

fn call(code: u16, start_ns: u64) -> Call {
    Call {
        code,
        start_ns,
        duration_ns: 40,
        waited_ns: 10,
        bytes: 7,
        tid: 99,
        device: Some(0),
    }
}

fn guest() -> Guest<'static> {
    Guest {
        calls: &NAMES,
        devices: &[GPU],
    }
}

fn make(dir: &Path, process: &ProcessView, records: u32) -> Result<PathBuf, TraceError> {
    shm_layout::trace::create(dir, process.slot, &process.identity, records)
}

/// Makes a buffer, as the operator does, for the process in `registration`'s slot.
fn made(dir: &Dir, registration: &Registration) -> PathBuf {
    let view = look(registration.segments());
    let mut processes = view.processes.iter();
    let process = processes.find(|process| process.slot == registration.slot());
    make(dir.path(), process.expect("it lives"), RECORDS).expect("room for a buffer")
}
