//! `gpushare set`, `pause` and `resume`: a process's share of the device, and the place of its memory.

use std::io::Write;

use shm_layout::{Change, Reserve, Set, ShareEdit, SlotId};

use super::edits::EditOptions;
use super::evictions;
use crate::{Done, segments};
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::plain::plain;
use gpushare_base::text::units;
use gpushare_control::audit::Place;
use gpushare_control::targets::{Chosen, Target};
use gpushare_control::{quota, share};
use gpushare_sample::Sample;

/// Change weight, priority or cap of a running process, what it does when memory is refused, or when it is evicted
#[derive(Debug, clap::Args)]
#[command(
    after_help = "With --for the settings end by themselves, also when this program has gone: gpushare set 4711 priority=10 --for 30s\n\
                  An allocation that waits for memory fails at once after on-full=fail."
)]
pub struct SetArgs {
    /// pid, name:LABEL, group:G, user:U or all
    target: String,
    #[arg(required = true, value_name = "KEY=VALUE", help = format!("{}; name=LABEL where a broker serves", share::help()))]
    values: Vec<String>,
    /// Go back to the present settings after this time
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<String>,
    #[command(flatten)]
    edit: EditOptions,
}

/// Pause a process: it cannot use the GPU until it is resumed. Its memory stays on the GPU, unless --evict is given
#[derive(Debug, clap::Args)]
pub struct PauseArgs {
    /// pid, name:LABEL, group:G, user:U or all
    target: String,
    /// Move its memory to the host, so that others can use the room; it comes back at its first call after resume
    ///
    /// It needs that much memory of the host. What the driver cannot evict and restore (managed memory, memory shared with
    /// other processes, clients of MPS, MIG) stays where it is, and the answer says why; the process is paused all the same.
    #[arg(long)]
    evict: bool,
    /// Evict it even if it is pinned
    #[arg(long, requires = "evict")]
    force: bool,
    /// Resume it after this time
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<String>,
    #[command(flatten)]
    edit: EditOptions,
}

/// Let a paused process use the GPU again
#[derive(Debug, clap::Args)]
pub struct ResumeArgs {
    /// pid, name:LABEL, group:G, user:U or all
    target: String,
    /// Pause it again after this time
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<String>,
    #[command(flatten)]
    edit: EditOptions,
}

/// Raise a process's priority for a limited time
#[derive(Debug, clap::Args)]
#[command(
    after_help = "It holds under the order priority, and under overlap whatever the order. gpushare set TARGET priority=N --for TIME is the same."
)]
pub struct BoostArgs {
    /// pid, name:LABEL, group:G, user:U or all
    target: String,
    /// The priority, -20 to 19
    #[arg(
        value_name = "PRIORITY",
        default_value = "19",
        allow_hyphen_values = true
    )]
    priority: String,
    /// For how long
    #[arg(
        long = "for",
        value_name = "TIME",
        allow_hyphen_values = true,
        default_value = "1m"
    )]
    duration: String,
    #[command(flatten)]
    edit: EditOptions,
}

pub fn boost(args: &BoostArgs, out: &mut dyn Write) -> Done {
    let set = SetArgs {
        target: args.target.clone(),
        values: vec![format!("priority={}", args.priority)],
        duration: Some(args.duration.clone()),
        edit: args.edit.clone(),
    };
    self::set(&set, out)
}

pub fn set(args: &SetArgs, out: &mut dyn Write) -> Done {
    let mut share = ShareEdit::default();
    let mut names = args
        .values
        .iter()
        .filter_map(|value| value.strip_prefix("name="));
    let name = names.next();
    if names.next().is_some() {
        return Err(Failure::usage("name= is given twice"));
    }
    for value in args
        .values
        .iter()
        .filter(|value| !value.starts_with("name="))
    {
        share::read(&mut share, value)?;
    }
    if args.duration.is_some() && name.is_some() {
        return Err(Failure::usage("--for does not go with name=, which stays"));
    }
    let reserve = share.reserve.value();
    let share = share_for(share, args.duration.as_deref())?;
    if share != ShareEdit::default() {
        let check = |chosen: &Chosen, sample: &Sample| match reserve {
            Some(reserve) => check_reserve(chosen, sample, reserve),
            None => Ok(()),
        };
        edit_checked(&args.target, share, check, &args.edit, out)?;
    }
    if let Some(label) = name {
        let change = |slot| Change::Label {
            slot,
            label: label.to_owned(),
        };
        edit_each(&args.target, change, |_, _| Ok(()), &args.edit, out)?;
    }
    Ok(Exit::Done)
}

/// Refuses a reserve that a device cannot give now, or that is more than the quota.
fn check_reserve(chosen: &Chosen, sample: &Sample, reserve: Reserve) -> Result<(), Failure> {
    let process = sample.process(chosen.slot);
    let holdings = process.into_iter().flat_map(|process| &process.devices);
    for (held, device) in holdings.filter_map(|held| Some((held, sample.devices.get(held.gpu)?))) {
        let wanted = reserve.of_device(device.total_bytes);
        let own = held.used.max(held.reserved);
        let most = own.saturating_add(sample.unclaimed_bytes(held.gpu));
        let why = match held.quota.bytes {
            Some(quota) if wanted > quota => {
                format!("its quota there is {}", units::human_size(quota))
            }
            _ if wanted > most => format!(
                "there are {} that no other process holds or has reserved",
                units::human_size(most)
            ),
            _ => continue,
        };
        return Err(Failure::failed(format!(
            "{} cannot have {} of gpu{} reserved: {why}",
            chosen.title,
            units::human_size(wanted),
            held.gpu
        )));
    }
    Ok(())
}

/// Limits the edit to a time if `duration` is given.
pub(super) fn share_for(share: ShareEdit, duration: Option<&str>) -> Result<ShareEdit, Failure> {
    match duration {
        Some(duration) => share::until(share, quota::parse_until(duration)?),
        None => Ok(share),
    }
}

pub fn pause(args: &PauseArgs, out: &mut dyn Write) -> Done {
    let share = ShareEdit {
        paused: Set::To(true),
        evict: if args.evict {
            Set::To(true)
        } else {
            Set::Inherit
        },
        ..ShareEdit::default()
    };
    let share = share_for(share, args.duration.as_deref())?;
    let check = |chosen: &Chosen, sample: &Sample| match args.evict && !args.force {
        true => refuse_pinned(chosen, sample),
        false => Ok(()),
    };
    let slots = edit_checked(&args.target, share, check, &args.edit, out)?;
    if args.evict && !args.edit.dry_run {
        return evictions::report(&segments::dir()?, &slots, out);
    }
    Ok(Exit::Done)
}

/// Refuses to evict a process that is pinned.
fn refuse_pinned(chosen: &Chosen, sample: &Sample) -> Result<(), Failure> {
    let process = sample.process(chosen.slot);
    match process.filter(|process| process.share.pinned) {
        None => Ok(()),
        Some(process) => Err(Failure::failed(format!(
            "{} is pinned, so its memory stays on the GPU; gpushare unpin {} lets it leave, or add --force",
            plain(&chosen.title),
            process.shown_pid()
        ))),
    }
}

pub fn resume(args: &ResumeArgs, out: &mut dyn Write) -> Done {
    let share = ShareEdit {
        paused: Set::To(false),
        evict: Set::Inherit,
        ..ShareEdit::default()
    };
    let share = share_for(share, args.duration.as_deref())?;
    edit(&args.target, share, &args.edit, out)
}

/// Makes the edit for each process of the target.
pub(super) fn edit(
    target: &str,
    share: ShareEdit,
    options: &EditOptions,
    out: &mut dyn Write,
) -> Done {
    edit_checked(target, share, |_, _| Ok(()), options, out).map(|_| Exit::Done)
}

/// Makes the edit for each process of the target if `check` passes for all. Returns these processes.
fn edit_checked(
    target: &str,
    share: ShareEdit,
    check: impl Fn(&Chosen, &Sample) -> Result<(), Failure>,
    options: &EditOptions,
    out: &mut dyn Write,
) -> Result<Vec<SlotId>, Failure> {
    edit_each(target, |slot| share.change(slot), check, options, out)
}

fn edit_each(
    target: &str,
    change: impl Fn(SlotId) -> Change,
    check: impl Fn(&Chosen, &Sample) -> Result<(), Failure>,
    options: &EditOptions,
    out: &mut dyn Write,
) -> Result<Vec<SlotId>, Failure> {
    let target: Target = target.parse().map_err(Failure::usage)?;
    let dir = segments::dir()?;
    let sample = segments::sample_to_edit(&dir)?;
    let chosen = target.resolve(&sample)?;
    chosen
        .iter()
        .try_for_each(|chosen| check(chosen, &sample))?;
    let requests = chosen.iter().map(|chosen| {
        let request = chosen.request(change(chosen.slot), Place::Ctl);
        request.because(options.reason.clone())
    });
    options.submit(&segments::editor(&dir), requests.collect(), &sample, out)?;
    Ok(chosen.iter().map(|chosen| chosen.slot).collect())
}
