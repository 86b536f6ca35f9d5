//! Snapshots, events and edits: what the tools see and do.

#[path = "../common/mod.rs"]
mod common;
mod edits;
mod events;
mod inverse;
mod rules;
mod snapshots;

use std::{fs::OpenOptions, os::unix::fs::FileExt};

use common::*;
use proptest::prelude::*;
use shm_layout::*;
