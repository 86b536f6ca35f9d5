//! `gpushare pin` and `unpin`: whether a process's memory stays on its GPUs.

use std::io::Write;

use shm_layout::{Set, ShareEdit};

use super::edits::EditOptions;
use super::share::{edit, share_for};
use crate::Done;

/// Keep a process's memory on the GPU: it is evicted neither for others nor because it is idle
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Memory that is evicted comes back by itself. gpushare run --pin starts a program pinned; a rule of apply pins all that match."
)]
pub struct PinArgs {
    /// pid, name:LABEL, group:G, user:U or all
    target: String,
    /// Unpin it after this time
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<String>,
    #[command(flatten)]
    edit: EditOptions,
}

/// Let a pinned process's memory be evicted again
#[derive(Debug, clap::Args)]
pub struct UnpinArgs {
    /// pid, name:LABEL, group:G, user:U or all
    target: String,
    /// Pin it again after this time
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<String>,
    #[command(flatten)]
    edit: EditOptions,
}

pub fn pin(args: &PinArgs, out: &mut dyn Write) -> Done {
    set(
        &args.target,
        true,
        args.duration.as_deref(),
        &args.edit,
        out,
    )
}

pub fn unpin(args: &UnpinArgs, out: &mut dyn Write) -> Done {
    set(
        &args.target,
        false,
        args.duration.as_deref(),
        &args.edit,
        out,
    )
}

fn set(
    target: &str,
    pinned: bool,
    duration: Option<&str>,
    options: &EditOptions,
    out: &mut dyn Write,
) -> Done {
    let share = ShareEdit {
        pinned: Set::To(pinned),
        ..ShareEdit::default()
    };
    edit(target, share_for(share, duration)?, options, out)
}
