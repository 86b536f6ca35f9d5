//! The card's own time slices, under `hw-timeslice` and `overlap order=priority`: the keeper sets them on the channel groups of this
//! process.
//!
//! The card's scheduler gives each channel group of each process a time slice in turn, so the lengths of the slices are the shares
//! of processes that keep the card busy. No call of the application's is touched: `hw-timeslice` gates nothing. A slice is set where
//! the driver and the card are known to obey, is read back, and is given back at the end of the policy. Where that fails the process
//! keeps the card's default, and under `hw-timeslice` publishes the reason.
//!
//! Under `overlap` a graph or a long kernel that is submitted already cannot be held back. So the process that goes first has a long
//! slice, and the only other one a short one: what it has submitted makes way, and costs nothing while the first is idle. Several
//! others use the card by turns, and each switch costs time. So they have longer slices, and so has the first if it mostly works on its
//! processor, in place of its long one.
//!
//! The device of a group is not known. A process that uses several devices follows a policy that is the same on all of them.

use std::{cell::OnceCell, sync::atomic::Ordering::Relaxed};

use gpushare_abi::types::CUdevice;
use shm_layout::{CardSlice, DEVICE_MIG, PolicyKind, Precedence, Unsliced, clock};

use crate::{
    channel_groups::{ChannelGroups, Group},
    driver_query::context,
    managed_process::{self, Device, ManagedProcess},
    notice::{self, Cause},
    sys::resource_manager::{self, File},
};

/// The drivers and cards that were measured to obey, by the shares of busy processes: branch and major compute capability.
const KNOWN: [(u32, u32); 1] = [(580, 9)];

/// The bounds of a slice in microseconds, whatever the weight.
const SHORTEST_US: u64 = 100;
const LONGEST_US: u64 = 1_000_000;

/// The slices under `overlap`, in microseconds, of the process that goes first and of the only other one. Measured on an H100,
/// a ResNet-152 of 2.71 ms in one graph beside one without a pause, median and 99th percentile in ms: by the default 4.09 / 5.08, with
/// the first slice alone 3.51 / 4.64, with the second of 1 ms 3.03 / 3.63, of 500 us 2.84 / 3.15, of 200 us 2.68 / 2.86. The other one did
/// 336 to 346 answers a second in all cases. A shorter slice costs more where a process leaves the card between its kernels.
const FIRST_US: u64 = 20_000;
const SECOND_US: u64 = 200;
/// The slice of each of several others, in microseconds, and of the first too if it mostly works on its processor. Measured on an H200, an LLM
/// beside an embedding and a training, compared with time slicing: by the default the LLM took 0.90 of the time and the others did 0.92 as
/// much; with 4 ms 0.87 and 1.00, with 8 ms 1.01 and 1.02. Later, with shorter queues, 4 ms gave 0.90 and 0.97. Beside an inference
/// the slice itself changes little, but a queue that lasts for half of it is not felt there, and keeps the others from running dry.
const AMONG_US: u64 = 4_000;
/// A process whose submissions take longer, in nanoseconds, keeps the card's default: there is nothing to gain, and what it has submitted
/// would keep the first waiting for a whole slice. The shortest recent ones count, so one that mixes short and long kernels does not keep it.
const LONGEST_AMONG: u64 = 2_000_000;
/// A process that has left its place under `overlap` keeps the slice for so long, because it may be back at once.
const LASTING_NS: u64 = 100_000_000;

/// The slices that were set on the channel groups of this process.
#[derive(Default)]
pub struct CardSlices {
    groups: Vec<Sliced>,
    /// The place of the process under `overlap`, and when it was last seen there, for each device.
    places: Vec<(Option<Precedence>, u64)>,
    /// The branch of the driver by its kernel module, where the driver's own request did not go by.
    branch_of_module: OnceCell<Option<u32>>,
    /// Why the process cannot follow the policy, for each device.
    obstacles: OnceCell<Vec<Option<Unsliced>>>,
}

/// A group whose slice was looked at.
struct Sliced {
    serial: u64,
    /// The slice that the driver gave it; `None` if the driver refused to tell.
    default_us: Option<u64>,
    /// The slice that was asked for last.
    asked_us: u64,
    /// Why it does not have that slice, and the driver's status.
    refused: Option<(Unsliced, u32)>,
}

impl CardSlices {
    /// Sets the slices that the settings say, and publishes the result. Calls the driver only where something has changed.
    pub fn follow(&mut self, process: &ManagedProcess) {
        let weight = process.registration.share().weight;
        let (mut kinds, mut wishes) = (Vec::new(), Vec::new());
        for (at, device) in process.devices.iter().enumerate() {
            let kind = process.registration.policy(device.entry).0.kind;
            let place = matches!(kind, PolicyKind::Overlap(_)).then(|| {
                let now = clock::now();
                let is_long = device.turn.queue_depth().submission_ns() > LONGEST_AMONG;
                let lock = process.registration.lock(device.entry);
                self.lasting_place(at, lock.precedence(is_long, now), now)
            });
            kinds.push(kind);
            wishes.push(slice_us(kind, place.flatten(), weight));
        }
        let wanted = self.wanted(process, &wishes);
        let done = self.set(wanted.unwrap_or(None));
        for (at, device) in process.devices.iter().enumerate() {
            let is_asked_for = matches!(kinds[at], PolicyKind::HwTimeslice(_));
            let slice = match (wanted, done) {
                (Ok(Some(us)), Ok(count)) if wishes[at].is_some() && count > 0 => {
                    CardSlice::Set(us as u32)
                }
                _ if !is_asked_for && self.is_available(process, at) => CardSlice::Available,
                _ if !is_asked_for => CardSlice::Default,
                (Ok(None), _) => CardSlice::Default,
                (Err(why), _) => CardSlice::Refused(why, 0),
                (_, Err((why, status))) => CardSlice::Refused(why, status as u16),
                _ if is_unseen() && is_used(process, device) => {
                    CardSlice::Refused(Unsliced::NotSeen, 0)
                }
                _ => CardSlice::Default,
            };
            process.registration.publish_card_slice(device.entry, slice);
            if let CardSlice::Refused(why, _) = slice {
                notice::once(
                    Cause::Slices,
                    format_args!(
                        "hw-timeslice has no effect on GPU {} here, because {}; timeslice=T gives shares by turns",
                        device.ordinal,
                        why.sentence()
                    ),
                );
            }
        }
    }

    /// Returns the place of the process on its device at this position, now or a moment ago.
    fn lasting_place(
        &mut self,
        at: usize,
        place: Option<Precedence>,
        now_ns: u64,
    ) -> Option<Precedence> {
        if self.places.len() <= at {
            self.places.resize(at + 1, (None, now_ns));
        }
        let (known, seen_ns) = &mut self.places[at];
        let counts_at_once = match place {
            Some(Precedence::First | Precedence::Second) => true,
            Some(Precedence::Among) => matches!(*known, None | Some(Precedence::Among)),
            None => false,
        };
        if counts_at_once || now_ns.saturating_sub(*seen_ns) >= LASTING_NS {
            (*known, *seen_ns) = (place, now_ns);
        }
        *known
    }

    /// Gives all groups the slices back that they had.
    pub fn give_back(&mut self) {
        // At the end of the process, which publishes nothing any more.
        let _ = self.set(None);
    }

    /// Returns the slice for all groups of the process; `None` for the card's default.
    fn wanted(
        &self,
        process: &ManagedProcess,
        wishes: &[Option<u64>],
    ) -> Result<Option<u64>, Unsliced> {
        let is_only = process.devices.len() == 1;
        let used = process.devices.iter().enumerate();
        let used = used.filter(|(_, device)| is_only || is_used(process, device));
        let used: Vec<usize> = used.map(|(at, _)| at).collect();
        let mut of_used = used.iter().map(|at| wishes[*at]);
        let Some(first) = of_used.next() else {
            return Ok(None);
        };
        if of_used.any(|wish| wish != first) {
            return Err(Unsliced::Several);
        }
        if first.is_none() {
            return Ok(None);
        }
        let obstacles = self.obstacles(process)?;
        match used.iter().find_map(|at| obstacles[*at]) {
            Some(why) => Err(why),
            None => Ok(first),
        }
    }

    /// Returns the reason that the process cannot have a slice of its own, for each device.
    fn obstacles(&self, process: &ManagedProcess) -> Result<&[Option<Unsliced>], Unsliced> {
        let of_module = || {
            *self
                .branch_of_module
                .get_or_init(resource_manager::branch_of_module)
        };
        let Some(branch) = resource_manager::branch().or_else(of_module) else {
            return Err(match is_unseen() {
                true => Unsliced::NotSeen,
                false => Unsliced::Driver,
            });
        };
        let obstacle = |device| obstacle(device, branch);
        let find = || process.devices.iter().map(obstacle).collect();
        Ok(self.obstacles.get_or_init(find))
    }

    /// Returns true if the process has channels and uses this device, and would have a slice of its own there under a policy
    /// that asks for one.
    fn is_available(&self, process: &ManagedProcess, at: usize) -> bool {
        let is_used = !is_unseen() && is_used(process, &process.devices[at]);
        is_used && self.obstacles(process).is_ok_and(|all| all[at].is_none())
    }

    /// Gives every group this slice, or its own one back. Returns the number of groups, or why one has another slice.
    fn set(&mut self, wanted_us: Option<u64>) -> Result<usize, (Unsliced, u32)> {
        let Some(page) = managed_process::page() else {
            return Ok(0);
        };
        let groups = &page.channel_groups;
        if wanted_us.is_none() && self.groups.is_empty() {
            return Ok(0);
        }
        for (serial, group) in groups.all() {
            self.set_on(groups, serial, group, wanted_us);
        }
        // Only now: a group that was released meanwhile has refused for that reason.
        let there: Vec<u64> = groups.all().map(|(serial, _)| serial).collect();
        self.groups.retain(|known| there.contains(&known.serial));
        if wanted_us.is_none() {
            self.groups.clear();
        }
        match self.groups.iter().find_map(|known| known.refused) {
            Some(refused) => Err(refused),
            None if groups.is_overrun() => Err((Unsliced::TooMany, 0)),
            None => Ok(self.groups.len()),
        }
    }

    fn set_on(
        &mut self,
        groups: &ChannelGroups,
        serial: u64,
        group: Group,
        wanted_us: Option<u64>,
    ) {
        let known = self.groups.iter_mut().find(|known| known.serial == serial);
        let asked_us = known.as_ref().map(|known| known.asked_us);
        if asked_us == wanted_us || known.is_none() && wanted_us.is_none() {
            return;
        }
        // A descriptor that was closed took its groups along.
        if File::of(group.descriptor) != Some(group.file) {
            groups.remove(group.object);
            return;
        }
        match known {
            Some(known) => known.ask(&group, wanted_us),
            None => {
                let mut new = Sliced::look(serial, &group);
                new.ask(&group, wanted_us);
                self.groups.push(new);
            }
        }
    }
}

impl Sliced {
    /// Finds out the slice that the driver gave a group.
    fn look(serial: u64, group: &Group) -> Self {
        let told = match group.slice_us {
            0 => resource_manager::slice_us(group.descriptor, group.object),
            set => Ok(set),
        };
        Self {
            serial,
            default_us: told.ok(),
            asked_us: 0,
            refused: told.err().map(|status| (Unsliced::Refused, status)),
        }
    }

    /// Sets the slice, or the one that the driver gave it, and reads it back.
    fn ask(&mut self, group: &Group, wanted_us: Option<u64>) {
        let Some(default_us) = self.default_us else {
            self.asked_us = wanted_us.unwrap_or(0);
            return;
        };
        self.asked_us = wanted_us.unwrap_or(default_us);
        let (descriptor, object) = (group.descriptor, group.object);
        let set = resource_manager::set_slice_us(descriptor, object, self.asked_us);
        let told = set.and_then(|()| resource_manager::slice_us(descriptor, object));
        self.refused = match told {
            Ok(us) if us == self.asked_us => None,
            Ok(_) => Some((Unsliced::Ignored, 0)),
            Err(status) => Some((Unsliced::Refused, status)),
        };
    }
}

/// Returns the slice in microseconds that a policy gives to a process in this place and of this weight.
fn slice_us(kind: PolicyKind, place: Option<Precedence>, weight: u32) -> Option<u64> {
    match (kind, place) {
        (PolicyKind::HwTimeslice(ns), _) => {
            let us = ns.saturating_mul(weight.into()) / 100 / 1_000;
            Some(us.clamp(SHORTEST_US, LONGEST_US))
        }
        (PolicyKind::Overlap(_), Some(Precedence::First)) => Some(FIRST_US),
        (PolicyKind::Overlap(_), Some(Precedence::Second)) => Some(SECOND_US),
        (PolicyKind::Overlap(_), Some(Precedence::Among)) => Some(AMONG_US),
        _ => None,
    }
}

/// Returns true if the driver made no channel group that the library saw.
fn is_unseen() -> bool {
    managed_process::page().is_none_or(|page| page.channel_groups.is_untouched())
}

/// Returns true if the process has memory on the device, or has submitted work to it.
fn is_used(process: &ManagedProcess, device: &Device) -> bool {
    let submitted = &process.registration.count(device.entry).last_submit_ns;
    device.ledger.used() != 0 || submitted.load(Relaxed) != 0
}

/// Returns the reason that a process cannot have slices of its own on a device with a driver of this branch.
fn obstacle(device: &Device, branch: u32) -> Option<Unsliced> {
    let ordinal = CUdevice::from(device.ordinal);
    if device.flags & DEVICE_MIG != 0 {
        return Some(Unsliced::Mig);
    }
    if context::is_mps(ordinal) == Some(true) {
        return Some(Unsliced::Mps);
    }
    if is_virtual(&context::name(ordinal)) {
        return Some(Unsliced::Virtual);
    }
    let mut of_branch = KNOWN.iter().filter(|(known, _)| *known == branch);
    let generation = context::generation(ordinal);
    if of_branch.clone().next().is_none() {
        Some(Unsliced::Driver)
    } else if of_branch.any(|(_, known)| Some(*known) == generation) {
        None
    } else {
        Some(Unsliced::Card)
    }
}

/// Returns true for the name of a virtual GPU, which ends in its profile: gigabytes and a letter, as in `NVIDIA A100-40C`.
fn is_virtual(name: &str) -> bool {
    let profile = name.rsplit('-').next().unwrap_or_default();
    let size = profile.strip_suffix(['A', 'B', 'C', 'Q']);
    name.contains('-')
        && size
            .is_some_and(|size| !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_gpu_is_known_by_its_name() {
        for (name, is) in [
            ("NVIDIA A100-40C", true),
            ("GRID V100D-32Q", true),
            ("NVIDIA H100XM-80C", true),
            ("NVIDIA A100-SXM4-80GB", false),
            ("NVIDIA H100 80GB HBM3", false),
            ("NVIDIA H200", false),
            ("NVIDIA RTX 6000-Ada", false),
            ("-C", false),
            ("40C", false),
            ("", false),
        ] {
            assert_eq!(is_virtual(name), is, "{name}");
        }
    }

    #[test]
    fn a_slice_is_the_policys_times_weight_over_100() {
        let kind = PolicyKind::HwTimeslice(4_000_000);
        for (weight, us) in [(100, 4_000), (200, 8_000), (50, 2_000), (1, 100)] {
            assert_eq!(slice_us(kind, None, weight), Some(us), "{weight}");
        }
        assert_eq!(slice_us(PolicyKind::Off, None, 100), None);
    }

    #[test]
    fn a_better_place_counts_at_once_and_is_lost_after_a_while() {
        let mut slices = CardSlices::default();
        let (first, second) = (Some(Precedence::First), Some(Precedence::Second));
        let mut then = |place, at_ns| slices.lasting_place(1, place, at_ns);
        assert_eq!(then(None, 0), None);
        assert_eq!(then(first, 1), first);
        assert_eq!(then(None, LASTING_NS), first);
        assert_eq!(then(first, LASTING_NS + 5), first);
        assert_eq!(then(None, 2 * LASTING_NS), first);
        assert_eq!(then(None, 2 * LASTING_NS + 5), None);
        assert_eq!(then(second, 2 * LASTING_NS + 6), second);
        let among = Some(Precedence::Among);
        assert_eq!(then(among, 3 * LASTING_NS), second);
        assert_eq!(then(among, 4 * LASTING_NS), among);
        assert_eq!(then(first, 4 * LASTING_NS + 1), first);
    }
}
