//! `gpushare set`, `pause` and `resume`: a process's share of the device's time.

use std::io::Write;

use shm_layout::{Boost, Change, Set, SlotId};

use super::manner::Manner;
use super::{Done, world};
use crate::edit::audit::Place;
use crate::edit::targets::Target;
use crate::edit::{EditRequest, Editor};
use crate::text::exit::{Exit, Failure};
use crate::text::units;

/// Change weight, priority or cap of a running process
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: gpushare set name:train weight=200 priority=5 cap=30%\n\
                        With --for the priority is a boost that ends by itself: gpushare set 4711 priority=10 --for 30s"
)]
pub struct SetArgs {
    /// pid, name:LABEL, group:G, user:U or all
    target: String,
    /// weight=1..1000, priority=-20..19, cap=1%..100%; the value inherit unsets one
    #[arg(required = true, value_name = "KEY=VALUE")]
    values: Vec<String>,
    /// Boost: the priority holds for this time and then reverts by itself
    #[arg(long = "for", value_name = "TIME")]
    duration: Option<String>,
    #[command(flatten)]
    manner: Manner,
}

/// Keep a process from the GPU until it is resumed; what it holds in memory stays
#[derive(Debug, clap::Args)]
pub struct PauseArgs {
    /// pid, name:LABEL, group:G, user:U or all
    target: String,
    #[command(flatten)]
    manner: Manner,
}

/// Let a paused process use the GPU again
#[derive(Debug, clap::Args)]
pub struct ResumeArgs {
    /// pid, name:LABEL, group:G, user:U or all
    target: String,
    #[command(flatten)]
    manner: Manner,
}

/// What is to change of a share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    pub weight: Set<u32>,
    pub priority: Set<i32>,
    pub cap: Set<u32>,
    pub paused: Set<bool>,
    pub boost: Set<Boost>,
}

impl Share {
    /// The edit for one process.
    pub fn change(self, slot: SlotId) -> Change {
        let Self {
            weight,
            priority,
            cap,
            paused,
            boost,
        } = self;
        Change::ProcessShare {
            slot,
            weight,
            priority,
            cap,
            paused,
            boost,
        }
    }

    /// Reads one `KEY=VALUE`.
    pub fn read(&mut self, text: &str) -> Result<(), Failure> {
        let known = "weight=, priority= and cap=";
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("{text:?} has no value; known are {known}")))?;
        let twice = match key {
            "weight" => put(&mut self.weight, key, value, |text| {
                units::parse_integer(text, 1, 1000).map(small)
            })?,
            "priority" => put(&mut self.priority, key, value, |text| {
                units::parse_integer(text, -20, 19).map(|value| i32::try_from(value).unwrap_or(0))
            })?,
            "cap" => put(&mut self.cap, key, value, units::parse_percent)?,
            _ => {
                return Err(Failure::usage(format!(
                    "{key:?} is not known; known are {known}"
                )));
            }
        };
        if twice {
            Err(Failure::usage(format!("{key}= is said twice")))
        } else {
            Ok(())
        }
    }
}

fn small(value: i64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Fills one setting; says whether it was filled already.
fn put<T: PartialEq>(
    place: &mut Set<T>,
    key: &str,
    text: &str,
    read: impl Fn(&str) -> Result<T, units::TextError>,
) -> Result<bool, Failure> {
    let value = match text {
        "inherit" | "none" => Set::Inherit,
        text => Set::To(read(text).map_err(|error| Failure::usage(format!("{key}: {error}")))?),
    };
    Ok(std::mem::replace(place, value) != Set::Keep)
}

pub fn set(args: &SetArgs, out: &mut dyn Write) -> Done {
    let mut share = Share::default();
    for value in &args.values {
        share.read(value)?;
    }
    if let Some(duration) = &args.duration {
        let until_ns = super::quota::parse_until(duration)?;
        let Set::To(priority) = share.priority else {
            return Err(Failure::usage("--for boosts the priority; add priority=N"));
        };
        (share.priority, share.boost) = (Set::Keep, Set::To(Boost { priority, until_ns }));
    }
    edit(&args.target, share, &args.manner, out)
}

pub fn pause(args: &PauseArgs, out: &mut dyn Write) -> Done {
    let share = Share {
        paused: Set::To(true),
        ..Share::default()
    };
    edit(&args.target, share, &args.manner, out)
}

pub fn resume(args: &ResumeArgs, out: &mut dyn Write) -> Done {
    let share = Share {
        paused: Set::To(false),
        ..Share::default()
    };
    edit(&args.target, share, &args.manner, out)
}

fn edit(target: &str, share: Share, manner: &Manner, out: &mut dyn Write) -> Done {
    let target: Target = target.parse().map_err(Failure::usage)?;
    let dir = world::dir()?;
    let sample = world::look(&dir)?;
    let requests = target
        .resolve(&sample)?
        .into_iter()
        .map(|chosen| EditRequest {
            target_start_time: Some(chosen.start_time),
            ..EditRequest::new(share.change(chosen.slot), chosen.title, Place::Ctl)
                .because(manner.reason.clone())
        });
    manner.make(&Editor::open(&dir), requests.collect(), &sample, out)?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(texts: &[&str]) -> Result<Share, Failure> {
        let mut share = Share::default();
        texts.iter().try_for_each(|text| share.read(text))?;
        Ok(share)
    }

    #[test]
    fn only_what_is_said_changes() {
        let share = read(&["weight=200", "cap=inherit"]).expect("well formed");
        assert_eq!(
            share,
            Share {
                weight: Set::To(200),
                cap: Set::Inherit,
                ..Share::default()
            }
        );
    }

    #[test]
    fn values_out_of_range_and_unknown_keys_are_refused() {
        for text in [
            "weight=0",
            "weight=1001",
            "priority=20",
            "cap=0",
            "cap=101%",
            "speed=1",
            "weight",
        ] {
            assert!(read(&[text]).is_err(), "{text}");
        }
        assert!(read(&["weight=1", "weight=2"]).is_err());
    }
}
