//! Lock policies: they are read from words and made into edits, and a device's own policy is cleared where it hides the one
//! for all.

use shm_layout::text::INHERIT;
use shm_layout::{Change, LockPolicy, SegmentDir, Segments, Until, Uuid, clock, snapshot};

use super::audit::Place;
use super::targets::{device_title, uuid};
use super::{EditRequest, Editor};
use gpushare_base::text::exit::Failure;
use gpushare_base::text::nearest::explained;
use gpushare_base::text::units::{self, PolicyEdit};
use gpushare_sample::Sample;

/// Reads a policy. Returns `None` for `inherit`, which unsets it.
pub fn parse(words: &[String]) -> Result<Option<PolicyEdit>, Failure> {
    if words == [INHERIT] {
        return Ok(None);
    }
    let words: Vec<&str> = words
        .iter()
        .flat_map(|words| words.split_whitespace())
        .collect();
    // Each word is checked alone first, so that the message names the wrong one.
    for word in &words {
        units::parse_policy(&[*word]).map_err(|error| wrong(word, &error))?;
    }
    let edit = units::parse_policy(&words).map_err(|error| wrong("policy", &error))?;
    // The combination is checked too, which does not depend on the policy in force.
    applied(&edit, LockPolicy::default())?;
    Ok(Some(edit))
}

/// Returns the policy that an edit makes of another one.
pub(super) fn applied(edit: &PolicyEdit, base: LockPolicy) -> Result<LockPolicy, Failure> {
    edit.apply(base).map_err(|error| wrong("policy", &error))
}

fn wrong(what: &str, error: &units::TextError) -> Failure {
    Failure::usage(format!("{what}: {}", explained(error)))
}

/// Returns the edit for one device, or for all. It changes the words that it names of `base`, or of the policy in force.
pub fn request(
    device: Option<Uuid>,
    edit: Option<PolicyEdit>,
    base: Option<LockPolicy>,
    sample: &Sample,
    dir: &SegmentDir,
    place: Place,
    reason: Option<&str>,
) -> Result<EditRequest, Failure> {
    let in_force = || {
        let present = Present::read(dir);
        device.map_or(present.everywhere, |uuid| present.of(&uuid))
    };
    let base = base.unwrap_or_else(in_force);
    let policy = edit.map(|edit| applied(&edit, base)).transpose()?;
    let target = device.map_or_else(|| "all GPUs".to_owned(), |uuid| device_title(uuid, sample));
    let change = Change::Policy {
        device,
        policy,
        until: None,
    };
    Ok(EditRequest::new(change, target, place).because(reason.map(ToOwned::to_owned)))
}

/// Limits the edit to a time. Afterwards the permanent policy is back.
pub fn timed(mut request: EditRequest, until_ns: Option<u64>) -> EditRequest {
    if let Change::Policy { until, .. } = &mut request.change {
        *until = until_ns.map(Until::lasting);
    }
    request
}

/// Returns the edits that follow an edit for all devices: they clear a device's own policy where it hides the new one. The
/// devices in `spared` keep theirs.
pub fn clear_own(
    everywhere: &Change,
    sample: &Sample,
    dir: &SegmentDir,
    spared: &[Uuid],
    place: Place,
    reason: Option<&str>,
) -> Result<Vec<EditRequest>, Failure> {
    let present = std::cell::LazyCell::new(|| Present::read(dir));
    let requests = clearing(everywhere, sample, spared, place, |_, uuid, wanted| {
        let timed = lasts(everywhere) && present.is_timed(&uuid);
        Ok((present.of(&uuid) != wanted || timed) && present.knows(&uuid))
    })?;
    let because = |request: EditRequest| request.because(reason.map(ToOwned::to_owned));
    Ok(requests.into_iter().map(because).collect())
}

/// Returns the edits of [`clear_own`] for a dry run: for devices whose own policy differs.
pub fn would_clear(
    editor: &Editor,
    everywhere: &Change,
    sample: &Sample,
    spared: &[Uuid],
) -> Result<Vec<EditRequest>, Failure> {
    clearing(
        everywhere,
        sample,
        spared,
        Place::Ctl,
        |request, _, wanted| {
            let old = editor.preview(&request.change, &request.target)?;
            Ok(
                matches!(old, Change::Policy { policy: Some(own), until, .. }
                if own != wanted || lasts(everywhere) && until.is_some()),
            )
        },
    )
}

/// Returns true if a policy does not expire.
fn lasts(change: &Change) -> bool {
    matches!(change, Change::Policy { until: None, .. })
}

/// Returns the edits that clear a device's own policy, for the devices where it `hides` the one for all. If the edit for
/// all expires, these expire too, and the device's own policy is restored.
fn clearing(
    everywhere: &Change,
    sample: &Sample,
    spared: &[Uuid],
    place: Place,
    hides: impl Fn(&EditRequest, Uuid, LockPolicy) -> Result<bool, Failure>,
) -> Result<Vec<EditRequest>, Failure> {
    let Change::Policy {
        device: None,
        policy,
        until,
    } = everywhere
    else {
        return Ok(Vec::new());
    };
    let mut requests = Vec::new();
    for gpu in 0..sample.devices.len() {
        let uuid = uuid(sample, gpu)?;
        if spared.contains(&uuid) {
            continue;
        }
        let change = Change::Policy {
            device: Some(uuid),
            policy: until.and(*policy),
            until: *until,
        };
        let request = EditRequest::new(change, format!("gpu{gpu}"), place);
        if hides(&request, uuid, policy.unwrap_or_default())? {
            requests.push(request);
        }
    }
    Ok(requests)
}

/// The policies in force.
#[derive(Default)]
struct Present {
    /// Policy that an edit for all devices changes.
    everywhere: LockPolicy,
    devices: Vec<(Uuid, LockPolicy)>,
    /// Devices whose policy expires.
    timed: Vec<Uuid>,
}

impl Present {
    /// Reads the policies. If there are no segments, all are the default.
    fn read(dir: &SegmentDir) -> Self {
        let Ok(segments) = Segments::open_viewer(&dir.path) else {
            return Self::default();
        };
        let snapshot = snapshot(&segments, clock::now());
        let timed = snapshot.devices.iter();
        let timed = timed.filter(|device| device.policy_until_ns.is_some());
        let devices = snapshot.devices.iter();
        let devices: Vec<_> = devices
            .map(|device| (device.uuid, device.policy.0))
            .collect();
        // The policy that all devices have in common; if they differ, the operator's policy for all.
        let agreed = devices.first().map(|(_, first)| *first);
        let agreed = agreed.filter(|first| devices.iter().all(|(_, policy)| policy == first));
        Self {
            timed: timed.map(|device| device.uuid).collect(),
            everywhere: agreed.or(snapshot.default_policy).unwrap_or_default(),
            devices,
        }
    }

    fn of(&self, uuid: &Uuid) -> LockPolicy {
        let found = self.devices.iter().find(|(known, _)| known == uuid);
        found.map_or(self.everywhere, |(_, policy)| *policy)
    }

    fn is_timed(&self, uuid: &Uuid) -> bool {
        self.timed.contains(uuid)
    }

    fn knows(&self, uuid: &Uuid) -> bool {
        self.devices.iter().any(|(known, _)| known == uuid)
    }
}
