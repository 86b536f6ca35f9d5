//! Snapshots, events and edits, as the tools use them.

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
