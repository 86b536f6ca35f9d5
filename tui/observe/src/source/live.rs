//! The live source: segments, NVML and `/proc` in one sample.
//!
//! A missing segment is not an error: the sample names what is waited for, and the next call tries again. A segment
//! that cannot be used (foreign, truncated, another version) ends the source with a sentence.

use std::collections::HashMap;
use std::fs;
use std::mem;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};
use shm_layout::{LivenessCache, OpenError, ProcessView, Segments, Snapshot, clock, snapshot_of};

use super::edits::Edits;
use super::events::Tail;
use super::{Source, host::Host, join, nvml};
use crate::source::unmanaged;
use gpushare_base::host::artifacts;
use gpushare_base::host::pace::Pace;
use gpushare_base::host::pids::{self, HostPids};
use gpushare_base::host::procfs;
use gpushare_base::text::users::Users;
use gpushare_sample::{
    DeviceSample, Holding, Nvml, OF_NVML, Origin, ProcessSample, ProcessState, Sample, Segment,
    SlotId,
};

/// Time for which a failed search in `/proc` is not repeated.
const MISSED_NS: u64 = 5_000_000_000;
/// Time for which a pid found in `/proc` is kept: it does not change while the process has its slot.
const FOUND_NS: u64 = 60_000_000_000;
/// Time for which NVML may still list a process that has exited.
const LAG_NS: u64 = 2_000_000_000;
/// Time between two rounds of NVML, and the longest where a round costs much.
const NVML_PACE: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];
/// A round of NVML may cost the time until the next one divided by this.
const NVML_SHARE: u32 = 1000;

/// The source that reads this machine.
pub struct Live {
    dir: PathBuf,
    open: Option<Open>,
    /// Set if samples contain events.
    tells_events: bool,
    /// Set if `/proc` is read to verify the pid that a process states.
    asks_proc: bool,
    nvml: nvml::Watch,
    /// The reader of processors and threads; `None` where no reader of the samples wants them.
    load: Option<Host>,
    host: String,
    users: Users,
    pids: HostPids,
    known: FxHashMap<SlotId, Known>,
    /// The pids of processes that have exited, and when that was noticed.
    left: Vec<(u32, u64)>,
    /// Processes of an earlier sample: the next sample reuses their memory.
    spare: Vec<ProcessSample>,
    unmanaged: HashMap<u32, ProcessSample>,
}

/// Facts from `/proc` about a process.
#[derive(Clone, Copy)]
struct Known {
    pid: Option<u32>,
    /// Time of the search for its pid.
    found_ns: u64,
    stopped: bool,
    /// Time of the last look at its state.
    looked_ns: u64,
}

impl Known {
    fn lasts_ns(&self) -> u64 {
        match self.pid {
            Some(_) => FOUND_NS,
            None => MISSED_NS,
        }
    }
}

/// Time without a heartbeat after which a process is checked for being stopped.
const STOPPED_NS: u64 = 1_000_000_000;

struct Open {
    segments: Segments,
    files: [Option<(u64, u64)>; 2],
    tail: Tail,
    edits: Edits,
    lives: LivenessCache,
}

impl Live {
    /// Watches the segments in `dir`, with NVML unless `use_nvml` is false.
    pub fn new(dir: &Path, use_nvml: bool) -> Self {
        Self::with(
            dir,
            match use_nvml {
                true => {
                    let [shortest, longest] = NVML_PACE;
                    nvml::Watch::start(dir, Pace::new(shortest, longest, NVML_SHARE))
                }
                false => nvml::Watch::off(),
            },
        )
    }

    /// Watches the segments in `dir`, with NVML's answers from `nvml`.
    pub fn with(dir: &Path, nvml: nvml::Watch) -> Self {
        Self {
            dir: dir.to_owned(),
            open: None,
            tells_events: true,
            asks_proc: true,
            nvml,
            load: Some(Host::new()),
            host: host(),
            users: Users::of_this_machine(),
            pids: HostPids::new(),
            known: FxHashMap::default(),
            left: Vec::new(),
            spare: Vec::new(),
            unmanaged: HashMap::new(),
        }
    }

    /// Leaves the events and edits out of the samples. Reading a full ring costs ten times the rest of a sample.
    pub fn without_events(mut self) -> Self {
        self.tells_events = false;
        self
    }

    /// Reads only the devices and their processes: no events, no load of the host, and no check in `/proc` of a process's pid
    /// and of being stopped.
    pub fn of_devices(mut self) -> Self {
        self.asks_proc = false;
        self.load = None;
        self.without_events()
    }

    /// Waits for NVML's first answer, at most `limit`. It is meant for programs that print once.
    pub fn settle(&self, limit: Duration) {
        self.nvml.settle(limit);
    }

    /// Returns a sample of the present state.
    pub fn look(&mut self) -> Result<Sample, OpenError> {
        let mut segment = Segment {
            dir: self.dir.display().to_string(),
            ..Segment::default()
        };
        match self.segments() {
            Ok(()) => segment.abi = Some(shm_layout::ABI_VERSION),
            Err(error) if error.is_not_yet() => segment.waiting = Some(error.to_string()),
            Err(error) => return Err(error),
        }
        Ok(self.join(segment))
    }

    /// Opens the segments, and opens them again when another file has replaced them or when a file was cut short:
    /// memory behind the end of a file must not be touched.
    fn segments(&mut self) -> Result<(), OpenError> {
        let files = ["state", "control"].map(|name| {
            let meta = fs::symlink_metadata(self.dir.join(name)).ok()?;
            Some((meta.ino(), meta.len()))
        });
        let stands = |open: &Open| open.files == files && !open.segments.is_outdated();
        if self.open.as_ref().is_some_and(stands) {
            return Ok(());
        }
        self.open = None;
        self.known.clear();
        let segments = Segments::open_viewer(&self.dir)?;
        self.open = Some(Open {
            tail: Tail::new(&segments),
            edits: Edits::of(&self.dir),
            lives: LivenessCache::default(),
            segments,
            files,
        });
        Ok(())
    }

    fn join(&mut self, segment: Segment) -> Sample {
        let look = self.nvml.latest();
        let (events, mut snapshot) = match &mut self.open {
            Some(open) => (
                match self.tells_events {
                    true => open.tail.take(&open.segments),
                    false => Vec::new(),
                },
                snapshot_of(
                    &open.segments,
                    clock::now(),
                    mem::take(&mut self.spare),
                    &mut open.lives,
                ),
            ),
            None => (
                Vec::new(),
                Snapshot {
                    time_ns: clock::now(),
                    ..Snapshot::default()
                },
            ),
        };
        let now_ns = snapshot.time_ns;
        let devices = join::devices(mem::take(&mut snapshot.devices), &look);
        let places = join::Places::of(&devices);
        let mut processes = mem::take(&mut snapshot.processes);
        processes.retain_mut(|process| {
            let here = !join::is_long_gone(process, now_ns);
            if here {
                self.introduce(process, now_ns, &places);
            }
            here
        });
        let mut sample = Sample {
            snapshot: snapshot.with(processes, devices),
            unix_ms: jiff::Timestamp::now().as_millisecond(),
            host: self.host.clone(),
            segment,
            nvml: look.state.clone(),
            ..Sample::default()
        };
        join::forget_the_gone(&mut sample);
        self.notice_who_left(&sample);
        let has_left = |pid| self.left.iter().any(|(left, _)| *left == pid);
        join::add_nvml_processes(&mut sample, &look, has_left);
        self.introduce_unmanaged(&mut sample);
        if sample.devices.iter().any(DeviceSample::is_sim) {
            sample.origin = Origin::Sim;
        }
        if let Some(load) = &mut self.load {
            let pids = sample.processes.iter().filter_map(|process| process.pid);
            sample.machine = load.machine(pids);
            for process in &mut sample.snapshot.processes {
                process.threads = load.threads(process.pid);
            }
        }
        let silent = match &sample.nvml {
            Nvml::Missing(why) => std::slice::from_ref(why),
            _ => &look.warnings,
        };
        let silent = silent.iter().map(|why| format!("{OF_NVML}{why}"));
        sample.snapshot.warnings.extend(silent);
        if let Some(open) = self.open.as_mut().filter(|_| self.tells_events) {
            open.tail.resolve(&open.segments, &events, &mut sample);
            sample.edits = open.edits.resolve(&events, sample.time_ns);
        }
        sample
    }

    /// Adds facts about a managed process that its slot does not contain.
    fn introduce(&mut self, process: &mut ProcessSample, now_ns: u64, places: &join::Places) {
        let known = self.of_proc(&process.view, now_ns);
        let ProcessSample {
            view,
            pid,
            user,
            container,
            state,
            threads: _,
            elsewhere,
        } = process;
        join::place(&mut view.devices, places);
        *pid = known.pid;
        user.clear();
        user.push_str(&self.users.shown(view.identity.uid));
        *container = join::container(view);
        *state = ProcessState::of(view, now_ns, known.stopped);
        *elsewhere = None;
    }

    /// Returns the facts of `/proc` about a managed process. They are cached, because reading them for many processes
    /// is most of the cost of a sample.
    fn of_proc(&mut self, view: &ProcessView<Holding>, now_ns: u64) -> Known {
        let believed = |at: u64, long: u64| now_ns.saturating_sub(at) < long;
        let mut known = match self.known.get(&view.slot) {
            Some(known) if believed(known.found_ns, known.lasts_ns()) => *known,
            _ => match &view.vouched {
                Some(vouched) => Known {
                    pid: Some(vouched.pid),
                    found_ns: now_ns,
                    stopped: false,
                    looked_ns: 0,
                },
                None => {
                    let identity = &view.identity;
                    let told = match self.asks_proc {
                        true => None,
                        false => self.pids.told(identity),
                    };
                    let seen = told.or_else(|| self.pids.look_for(identity));
                    Known {
                        pid: seen.map(|seen| seen.pid),
                        found_ns: now_ns,
                        stopped: seen.is_some_and(|seen| seen.stopped),
                        looked_ns: now_ns,
                    }
                }
            },
        };
        if self.asks_proc && !believed(known.looked_ns, STOPPED_NS) {
            // The keeper thread of a stopped process writes no heartbeat.
            let ticks = believed(view.heartbeat_ns, STOPPED_NS);
            known.stopped = !ticks && known.pid.is_some_and(pids::is_stopped);
            known.looked_ns = if ticks { known.looked_ns } else { now_ns };
        }
        self.known.insert(view.slot, known);
        known
    }

    /// Remembers processes that exited: NVML's answer may be older, and they must not appear as unmanaged.
    fn notice_who_left(&mut self, sample: &Sample) {
        let now_ns = sample.time_ns;
        self.left
            .retain(|(_, at_ns)| now_ns.saturating_sub(*at_ns) < LAG_NS);
        let present: FxHashSet<SlotId> = sample.processes.iter().filter_map(|p| p.slot()).collect();
        let gone = self.known.extract_if(|slot, _| !present.contains(slot));
        self.left
            .extend(gone.filter_map(|(_, known)| Some((known.pid?, now_ns))));
    }

    /// Adds the facts of `/proc` about unmanaged processes; each is read once.
    fn introduce_unmanaged(&mut self, sample: &mut Sample) {
        let mut still_here = HashMap::new();
        for process in sample.processes.iter_mut().filter(|p| !p.is_managed()) {
            let Some(pid) = process.pid else { continue };
            let known = self.unmanaged.remove(&pid).filter(|known| {
                pids::start_time(&PathBuf::from(format!("/proc/{pid}")))
                    == Some(known.identity.start_time)
            });
            let found = known.unwrap_or_else(|| unmanaged::introduced(pid, &self.users));
            process.identity = found.identity.clone();
            process.user.clone_from(&found.user);
            process.container.clone_from(&found.container);
            process.elsewhere.clone_from(&found.elsewhere);
            if MPS_SERVERS
                .iter()
                .any(|name| found.name().starts_with(name))
            {
                process.state = ProcessState::Server;
            }
            still_here.insert(pid, found);
        }
        self.unmanaged = still_here;
    }
}

impl Source for Live {
    fn next(&mut self) -> Result<Option<Sample>> {
        Ok(Some(self.look()?))
    }

    fn reuse(&mut self, before: &mut Sample) {
        self.spare = mem::take(&mut before.snapshot.processes);
    }
}

/// The names of the MPS servers' programs: NVIDIA's, as much as the kernel keeps of its name, and the simulator's.
const MPS_SERVERS: [&str; 2] = ["nvidia-cuda-mps", artifacts::SIM_MPS];

pub(super) fn host() -> String {
    let name = procfs::text("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use shm_layout::Identity;

    use super::*;

    #[test]
    fn a_file_cut_short_under_us_is_not_touched_behind_its_end() {
        let dir = tempfile::tempdir().unwrap();
        drop(Segments::open_workload(dir.path()).unwrap());
        let mut live = Live::new(dir.path(), false);
        assert!(live.look().unwrap().segment.abi.is_some());
        let state = fs::OpenOptions::new()
            .write(true)
            .open(dir.path().join("state"));
        state.unwrap().set_len(4096).unwrap();
        assert!(matches!(live.look(), Err(OpenError::Truncated { .. })));
    }

    #[test]
    fn events_are_left_out_where_nothing_shows_them() {
        let dir = tempfile::tempdir().unwrap();
        let segments = Segments::open_workload(dir.path()).unwrap();
        let identity = Identity::of_self("worker");
        let limits = shm_layout::LaunchLimits::default();
        let _registered = shm_layout::register(&segments, &identity, &limits).unwrap();
        let all = Live::new(dir.path(), false).look().unwrap();
        let mut live = Live::new(dir.path(), false).without_events();
        let some = live.look().unwrap();
        assert!(!all.events.is_empty());
        assert!(some.events.is_empty() && some.events_lost == 0);
        assert_eq!(some.processes.len(), all.processes.len());
    }

    #[test]
    fn one_that_came_and_went_between_two_looks_is_told_by_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let segments = Segments::open_workload(dir.path()).unwrap();
        let mut live = Live::new(dir.path(), false);
        let identity = Identity::of_self("worker");
        let limits = shm_layout::LaunchLimits::default();
        drop(shm_layout::register(&segments, &identity, &limits).unwrap());
        let events = live.look().unwrap().events;
        let names: Vec<&str> = events.iter().map(|event| &*event.name).collect();
        assert!(names.len() >= 2, "it came and it went: {events:?}");
        assert!(names.iter().all(|name| *name == "worker"), "{names:?}");
    }

    #[test]
    fn a_process_that_has_left_does_not_count_as_unmanaged_while_nvml_still_lists_it() {
        let dir = tempfile::tempdir().unwrap();
        let segments = Segments::open_workload(dir.path()).unwrap();
        let seen = |pid| gpushare_sample::nvml::Process {
            pid,
            ..Default::default()
        };
        let look = nvml::Look {
            state: Nvml::Ready("1".into()),
            devices: vec![nvml::Device {
                processes: vec![seen(std::process::id()), seen(1)],
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut live = Live::with(dir.path(), nvml::Watch::told(look));
        let identity = Identity::of_self("worker");
        let limits = shm_layout::LaunchLimits::default();
        let registered = shm_layout::register(&segments, &identity, &limits).unwrap();
        let mut pids = || -> Vec<Option<u32>> {
            let sample = live.look().unwrap();
            sample.processes.iter().map(|process| process.pid).collect()
        };
        assert_eq!(pids(), [Some(std::process::id()), Some(1)]);
        drop(registered);
        assert_eq!(pids(), [Some(1)]);
    }

    #[test]
    fn a_sample_in_the_memory_of_another_has_nothing_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let segments = Segments::open_workload(dir.path()).unwrap();
        let identity = Identity::of_self("worker");
        let limits = shm_layout::LaunchLimits::default();
        let registered = shm_layout::register(&segments, &identity, &limits).unwrap();
        let _entry = registered.add_device([7; 16], 0, "Made-up GPU", 1 << 30, 0);
        let mut live = Live::new(dir.path(), false);
        let first = live.look().unwrap();
        let mut other = first.clone();
        let process = &mut other.processes[0];
        (process.pid, process.state) = (Some(7), ProcessState::Unmanaged);
        (process.user, process.elsewhere) = ("someone".into(), Some("elsewhere".into()));
        (process.container, process.group) = (Some("box".into()), Some("team".into()));
        process.devices[0].gpu = 5;
        process.devices[0].nvml.pid = 7;
        let one_more = process.clone();
        other.processes.push(one_more);
        live.reuse(&mut other);
        assert_eq!(live.look().unwrap().processes, first.processes);
    }
}
