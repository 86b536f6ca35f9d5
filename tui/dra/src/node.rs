//! Claims on this node: their preparation before a pod uses them, and its removal afterwards.
//!
//! ```text
//!   note     PLUGIN/claims/UID.json         the decision; removed last
//!   group    k8s-…                          memory, weight and cap of all processes of the claim, at the broker
//!   pods     RUN-private/pods/POD           groups of the pod's processes
//!   CDI      CDI/gpushare.dev-claim_UID.json   mounts and variables of the containers
//! ```
//!
//! All names follow from the claim's UID and every file is written completely or not at all. So each step can be repeated:
//! after a crash between two of them, when the kubelet asks twice, and when a reboot has removed what was in memory.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gpushare_base::host::{cdi, output};
use gpushare_broker::pods;
use gpushare_control::audit::Place;
use gpushare_control::{EditRequest, Editor, group};
use serde::{Deserialize, Serialize};
use shm_layout::text::LONGEST_LABEL;
use shm_layout::{Change, SegmentDir, Segments, clock, snapshot, variables};

use crate::claim::{DRIVER, ResourceClaim};
use crate::slices;

/// Kind of our devices in CDI files.
const KIND: &str = "gpushare.dev/claim";

/// The directories and files of the driver on this node.
#[derive(Debug)]
pub struct Node {
    /// Directory of the broker.
    pub run: PathBuf,
    /// Directory of the notes, which survive a reboot.
    pub notes: PathBuf,
    /// Directory in which the container runtime searches for CDI files.
    pub cdi: PathBuf,
    /// Path of the library on the machine itself.
    pub library: PathBuf,
    /// Kind of a GPU's CDI device, `nvidia.com/gpu`. Without it, the variable that NVIDIA's runtime reads is set.
    pub gpu_kind: Option<String>,
}

/// A note is the record of a prepared claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Unique id of the claim.
    pub uid: String,
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
    /// Group of its processes.
    pub group: String,
    /// Settings of the group, as an operator would type them.
    pub settings: Vec<String>,
    /// Variables of its containers.
    pub env: Vec<(String, String)>,
    /// UIDs of the pods that are known to use it.
    pub pods: BTreeSet<String>,
    /// Devices in the reply to the kubelet.
    pub devices: Vec<Given>,
}

/// A device in the reply to the kubelet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// Request that the device is for.
    pub request: String,
    /// Pool of the device.
    pub pool: String,
    /// Name of the device in the pool.
    pub device: String,
    /// Share of the device.
    #[serde(default)]
    pub share: Option<String>,
    /// Names of its CDI devices.
    pub cdi: Vec<String>,
}

impl Node {
    /// Returns the note of a claim that was prepared before.
    pub fn noted(&self, uid: &str) -> Option<Note> {
        serde_json::from_slice(&fs::read(self.note(uid)).ok()?).ok()
    }

    /// Returns the notes of all claims that are prepared.
    pub fn all(&self) -> Vec<Note> {
        let files = fs::read_dir(&self.notes).into_iter().flatten().flatten();
        let names = files.filter_map(|file| file.file_name().into_string().ok());
        let uids = names.filter_map(|name| Some(name.strip_suffix(".json")?.to_owned()));
        uids.filter_map(|uid| self.noted(&uid)).collect()
    }

    /// Decides the group, the variables and the devices of a claim. Also returns remarks for the log.
    pub fn decide(&self, claim: &ResourceClaim) -> Result<(Note, Vec<String>), String> {
        let ours = claim.ours();
        if ours.is_empty() {
            return Err(format!("it has no device of {DRIVER}"));
        }
        let asked = claim.asked()?;
        let memory = asked.memory.map(shm_layout::text::format_size);
        let settings = [
            memory.as_ref().map(|memory| format!("memory={memory}")),
            asked.weight.map(|weight| format!("weight={weight}")),
            asked.cap.map(|cap| format!("cap={cap}")),
            asked
                .reserve
                .map(|bytes| format!("reserve={}", shm_layout::text::format_size(bytes))),
        ];
        let meta = &claim.metadata;
        let group = pods::group(&meta.uid, claim.is_shared());
        let mut label = format!("{}/{}", meta.namespace, meta.name);
        label.truncate(LONGEST_LABEL);
        let mut env = vec![
            (variables::NAME.to_owned(), label),
            (variables::GROUP.to_owned(), group.clone()),
        ];
        // The quota is also set for each process, because the broker cannot identify the pod in a cluster within a
        // container.
        env.extend(memory.map(|memory| (variables::MEMORY.to_owned(), memory)));
        env.extend(asked.env);
        let uuids: BTreeSet<String> = ours
            .iter()
            .filter_map(|one| slices::uuid_of(&one.device))
            .collect();
        if self.gpu_kind.is_none() && !uuids.is_empty() {
            let all: Vec<String> = uuids.into_iter().collect();
            env.push(("NVIDIA_VISIBLE_DEVICES".to_owned(), all.join(",")));
        }
        let gpu = |device: &str| {
            Some(format!(
                "{}={}",
                self.gpu_kind.as_ref()?,
                slices::uuid_of(device)?
            ))
        };
        let devices = ours.into_iter().map(|one| Given {
            cdi: [format!("{KIND}={}", meta.uid)]
                .into_iter()
                .chain(gpu(&one.device))
                .collect(),
            request: one.request.split('/').next().unwrap_or_default().to_owned(),
            pool: one.pool,
            device: one.device,
            share: one.share,
        });
        let note = Note {
            uid: meta.uid.clone(),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            group,
            settings: settings.into_iter().flatten().collect(),
            env,
            pods: claim.pods(),
            devices: devices.collect(),
        };
        Ok((note, asked.remarks))
    }

    /// Prepares a claim by its note. Repeating it changes nothing.
    pub fn put(&self, note: &Note) -> Result<(), String> {
        let text = serde_json::to_vec_pretty(note).map_err(|error| error.to_string())?;
        write(&self.note(&note.uid), &text)?;
        self.group(note)?;
        self.tell_pods()?;
        let device = cdi::Device {
            name: note.uid.clone(),
            env: note.env.clone(),
        };
        let [run, library] = [&self.run, &self.library].map(|path| path.display().to_string());
        let document = cdi::document(KIND, &run, &library, &[device]);
        let text = serde_json::to_vec_pretty(&document).map_err(|error| error.to_string())?;
        write(&self.spec(&note.uid), &text)
    }

    /// Removes the preparation of a claim. For an unknown claim, the files that may exist are removed.
    pub fn take(&self, uid: &str) -> Result<(), String> {
        remove(&self.spec(uid))?;
        for shared in [false, true] {
            let name = pods::group(uid, shared);
            if self.is_defined(&name) {
                let change = Change::remove_group(name.clone());
                self.edit(change, &name, "the claim is not used any more".to_owned())?;
            }
        }
        remove(&self.note(uid))?;
        self.tell_pods()
    }

    /// Makes the claim's group. An operator's changes to an existing group are kept.
    fn group(&self, note: &Note) -> Result<(), String> {
        if note.settings.is_empty() || self.is_defined(&note.group) {
            return Ok(());
        }
        let change =
            group::change(&note.group, &note.settings, None).map_err(|failure| failure.sentence)?;
        self.edit(
            change,
            &note.group,
            format!("claim {}/{}", note.namespace, note.name),
        )
    }

    fn edit(&self, change: Change, group: &str, why: String) -> Result<(), String> {
        let dir = SegmentDir::at(&self.run);
        if !dir.is_brokered {
            return Err(format!(
                "no broker serves {}: see the log of its container",
                self.run.display()
            ));
        }
        let request =
            EditRequest::new(change, format!("group {group}"), Place::Ctl).because(Some(why));
        let done = Editor::open(&dir).submit(request);
        done.map(drop).map_err(|failure| failure.to_string())
    }

    fn is_defined(&self, name: &str) -> bool {
        let Ok(segments) = Segments::open_viewer(&self.run) else {
            return false;
        };
        let groups = snapshot(&segments, clock::now()).groups;
        groups
            .iter()
            .any(|group| group.name == name && group.defined)
    }

    fn tell_pods(&self) -> Result<(), String> {
        let mut groups = pods::Groups::new();
        for note in self.all() {
            for pod in &note.pods {
                groups
                    .entry(pod.clone())
                    .or_default()
                    .insert(note.group.clone());
            }
        }
        pods::set(&self.run, &groups).map_err(|error| error.to_string())
    }

    fn note(&self, uid: &str) -> PathBuf {
        self.notes.join(format!("{uid}.json"))
    }

    fn spec(&self, uid: &str) -> PathBuf {
        self.cdi.join(format!("gpushare.dev-claim_{uid}.json"))
    }
}

/// Returns true if the UID can be part of a file name: letters, digits and dashes.
pub fn is_uid(uid: &str) -> bool {
    !uid.is_empty()
        && uid.len() <= 64
        && uid
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Writes a file completely or not at all. Its temporary name has an ending that readers of CDI files ignore.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    folder.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    let written = output::whole_file(path, |out| Ok(out.write_all(bytes)?));
    written.map_err(|failure| failure.sentence)
}

fn remove(path: &Path) -> Result<(), String> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}
