//! Claims on this node: what is done for one that a pod is to use, and undone when it is not used any more.
//!
//! ```text
//!   note     PLUGIN/claims/UID.json         what was decided; the last to go
//!   group    k8s-…                          memory, weight and cap of all processes of the claim, asked of the broker
//!   pods     RUN-private/pods/POD           which pods' processes are in that group
//!   CDI      CDI/gpushare.dev-claim_UID.json   mounts and variables of the containers
//! ```
//!
//! All names follow from the claim's UID and every file appears whole, so each step may be done again: after a crash between
//! any two of them, when the kubelet asks twice, and when a reboot has taken what was in memory.

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
use shm_layout::{Change, Mode, SegmentDir, Segments, Set, clock, snapshot, variables};

use crate::claim::{DRIVER, ResourceClaim};
use crate::slices;

/// The kind of our devices in CDI files.
const KIND: &str = "gpushare.dev/claim";

/// Where everything is.
#[derive(Debug)]
pub struct Node {
    /// The broker's directory.
    pub run: PathBuf,
    /// What is to be remembered.
    pub notes: PathBuf,
    /// Where the container runtime looks for CDI files.
    pub cdi: PathBuf,
    /// The library, by its path on the machine itself.
    pub library: PathBuf,
    /// The kind of CDI device that a GPU is, `nvidia.com/gpu`; without it the variable that NVIDIA's runtime reads is set.
    pub gpu_kind: Option<String>,
}

/// A claim that is prepared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The claim.
    pub uid: String,
    /// Where it is.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The group of its processes.
    pub group: String,
    /// That group's settings, as an operator would type them.
    pub settings: Vec<String>,
    /// Variables of its containers.
    pub env: Vec<(String, String)>,
    /// The pods that are known to use it.
    pub pods: BTreeSet<String>,
    /// What the kubelet is told.
    pub devices: Vec<Given>,
}

/// A device, as the kubelet is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// The request.
    pub request: String,
    /// Where the scheduler found it.
    pub pool: String,
    /// Its name there.
    pub device: String,
    /// Which share of it.
    #[serde(default)]
    pub share: Option<String>,
    /// CDI devices.
    pub cdi: Vec<String>,
}

impl Node {
    /// What was decided for a claim before.
    pub fn noted(&self, uid: &str) -> Option<Note> {
        serde_json::from_slice(&fs::read(self.note(uid)).ok()?).ok()
    }

    /// All that were prepared and are not done with.
    pub fn all(&self) -> Vec<Note> {
        let files = fs::read_dir(&self.notes).into_iter().flatten().flatten();
        let names = files.filter_map(|file| file.file_name().into_string().ok());
        let uids = names.filter_map(|name| Some(name.strip_suffix(".json")?.to_owned()));
        uids.filter_map(|uid| self.noted(&uid)).collect()
    }

    /// Decides what a claim gets.
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
        ];
        let meta = &claim.metadata;
        let group = pods::group(&meta.uid, claim.is_shared());
        let mut label = format!("{}/{}", meta.namespace, meta.name);
        label.truncate(LONGEST_LABEL);
        let mut env = vec![
            (variables::NAME.to_owned(), label),
            (variables::GROUP.to_owned(), group.clone()),
        ];
        // For each process too: this holds where the broker cannot tell the pod, in a cluster within a container.
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

    /// Does all that a claim needs; what is done already stays as it is.
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

    /// Undoes it; of a claim that is not known, what there may be all the same.
    pub fn take(&self, uid: &str) -> Result<(), String> {
        remove(&self.spec(uid))?;
        for shared in [false, true] {
            let name = pods::group(uid, shared);
            if self.is_defined(&name) {
                let change = Change::Group {
                    name: name.clone(),
                    memory: Set::Keep,
                    weight: Set::Keep,
                    cap: Set::Keep,
                    remove: true,
                };
                self.edit(change, &name, "the claim is not used any more".to_owned())?;
            }
        }
        remove(&self.note(uid))?;
        self.tell_pods()
    }

    /// Makes the claim's group. What an operator has changed in one that is there stays.
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
        let dir = self.dir();
        if dir.mode != Mode::System {
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

    fn dir(&self) -> SegmentDir {
        let mode = shm_layout::dir::Dir::open(&self.run).map_or(Mode::User, |dir| dir.mode());
        SegmentDir {
            path: self.run.clone(),
            mode,
        }
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

/// A UID becomes a part of names: letters, digits and dashes.
pub fn is_uid(uid: &str) -> bool {
    !uid.is_empty()
        && uid.len() <= 64
        && uid
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Writes a file that is there whole or not at all. Whoever reads a folder of CDI files passes over other endings.
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
