//! Quotas, shares, policies and groups: changed, applied, recorded, undone.

#[path = "../cli_support/mod.rs"]
mod cli_support;
mod pins;
mod quotas;
mod refusals;
mod shares;
mod undo;

use std::time::Duration;

use cli_support::{Run as _, World, uuid};
use gpushare_testbed::eventually;
use shm_layout::{Order, PolicyKind};

const GIB: u64 = 1 << 30;
