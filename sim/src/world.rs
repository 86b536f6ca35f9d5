//! Opening a world, and the devices in it.
//!
//! The first process makes the world from its scenario and stores the scenario in it; later processes read it there. A world
//! without members is made again when a process comes with another scenario. All this happens under the world's lock file, so a
//! maker that is killed leaves no half-made world that counts.

#![allow(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use shared_memory::{Shmem, ShmemConf};

use crate::layout::{Layout, MAGIC, SCENARIO_WORDS};
use crate::locks::{self, Exclusive, Life, lock_path};
use crate::scenario::{Compute, Scenario};
use crate::{remains, sweep};

/// A compute unit: a GPU, or an instance of a GPU in MIG mode.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Index in the world.
    pub index: usize,
    /// Index of the GPU that it is or belongs to.
    pub gpu: usize,
    /// Index among the GPU's MIG instances, and the profile's name.
    pub mig: Option<(usize, String)>,
    /// `Simulated GPU`, with the profile for a MIG instance.
    pub name: String,
    /// Bytes of its UUID.
    pub uuid: [u8; 16],
    /// Bytes of the UUID of the whole GPU.
    pub gpu_uuid: [u8; 16],
    /// Bytes of device memory.
    pub memory: u64,
    /// Bytes that a process's first context takes.
    pub context_memory: u64,
    /// Bytes that the code of a module or of a kernel takes in a context.
    pub code_memory: u64,
    /// Compute capability.
    pub compute: Compute,
    /// Speed of kernels; 2.0 halves each duration.
    pub speed: f64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Length of a process's turn, in nanoseconds; with 0, kernels run one after the other.
    pub slice: u64,
}

impl Device {
    /// Returns the UUID as `GPU-…` or `MIG-…`.
    pub fn uuid_text(&self) -> String {
        uuid_text(if self.mig.is_some() { "MIG" } else { "GPU" }, &self.uuid)
    }

    /// Returns the PCI bus number of the GPU. The domain is 0 and the function is `.0`.
    pub fn pci_bus(&self) -> u32 {
        self.gpu as u32 * 0x10 + 0x10
    }

    /// Returns how long a kernel of nominal duration `ns` runs here.
    pub fn duration(&self, ns: u64) -> u64 {
        ((ns as f64 / self.speed) as u64).max(1)
    }
}

/// Formats a UUID as text, with its prefix.
pub fn uuid_text(prefix: &str, uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let (a, b, c, d, e) = (
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    );
    format!("{prefix}-{a}-{b}-{c}-{d}-{e}")
}

/// The reason why a world cannot be opened, as a sentence.
#[derive(Debug)]
pub struct WorldError(String);

impl fmt::Display for WorldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WorldError {}

/// A world: its shared memory, its scenario, its devices.
#[derive(Debug)]
pub struct World {
    layout: &'static Layout,
    _memory: Mapped,
    lock_path: PathBuf,
    scenario: Scenario,
    kept: bool,
    devices: Vec<Device>,
}

/// The mapping, which is never removed. Leak checkers find it here.
struct Mapped(#[expect(dead_code, reason = "it is only kept")] ManuallyDrop<Shmem>);

// SAFETY: no reference to it is left; the world's words are atomics.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mapped")
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Layout")
    }
}

/// Returns the name of this process's world: `$GPUSHARE_SIM_WORLD`, else the one that belongs to `$GPUSHARE_DIR`.
pub fn name() -> String {
    name_in(&|variable| std::env::var(variable).ok())
}

/// Returns the name of the world of a process with these variables.
pub fn name_in(get: &dyn Fn(&str) -> Option<String>) -> String {
    if let Some(name) = get("GPUSHARE_SIM_WORLD").filter(|name| !name.is_empty()) {
        return name;
    }
    match get("GPUSHARE_DIR") {
        // Programs get the absolute path from `gpushare run`.
        Some(dir) => {
            let absolute = std::path::absolute(&dir).ok();
            let absolute = absolute.and_then(|path| path.into_os_string().into_string().ok());
            of_directory(&absolute.unwrap_or(dir))
        }
        None => "default".into(),
    }
}

/// Returns the scenario's text of a world with living members: the next process gets this scenario, whatever it asks for.
/// Returns `None` if there is no such world.
pub fn scenario_of_living(world: &str) -> Option<String> {
    let os_name = os_name(world);
    let path = PathBuf::from(format!("/dev/shm{os_name}"));
    let lock_path = lock_path(&path);
    locks::existing(&path).ok()?;
    let _exclusive = Exclusive::lock(&lock_path).ok()?;
    let memory = ShmemConf::new().os_id(&os_name).open().ok()?;
    if memory.len() < size_of::<Layout>() {
        return None;
    }
    // Leaked, as in `open_named`.
    let memory = ManuallyDrop::new(memory);
    // SAFETY: the mapping is leaked, is large enough, and a Layout is atomics only.
    let layout: &'static Layout = unsafe { &*memory.as_ptr().cast::<Layout>() };
    // ORDER: pairs with the Release in open_named; the scenario's words are there.
    let made = layout.magic.load(Acquire) == MAGIC;
    (made && sweep::anyone_alive(layout, &lock_path))
        .then(|| read_scenario(layout))
        .flatten()
}

fn of_directory(dir: &str) -> String {
    let name = Path::new(dir).file_name().and_then(|name| name.to_str());
    match name.filter(|name| name.starts_with(remains::STAGE)) {
        Some(stage) => stage.to_owned(),
        None => remains::of_directory(hash(dir.as_bytes(), 0)),
    }
}

/// Returns the name of a world's shared memory, in the form that `shm_open` takes.
pub fn os_name(world: &str) -> String {
    let clean = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.".contains(c) {
            c
        } else {
            '_'
        }
    };
    let name: String = world.chars().map(clean).take(80).collect();
    // SAFETY: geteuid has no preconditions.
    let uid = unsafe { libc::geteuid() };
    format!("/gpushare-sim-{uid}-{name}")
}

/// Removes a world's files. Its members stay in the old world; the next process makes a new one.
pub fn remove(world: &str) {
    let path = PathBuf::from(format!("/dev/shm{}", os_name(world)));
    // A missing file is fine.
    let _ = std::fs::remove_file(lock_path(&path));
    let _ = std::fs::remove_file(path);
}

impl World {
    /// Opens this process's world. `$GPUSHARE_SIM_SCENARIO` is used if it has to be made.
    pub fn open() -> Result<Self, WorldError> {
        let wanted = std::env::var("GPUSHARE_SIM_SCENARIO")
            .ok()
            .filter(|name| !name.is_empty());
        let text = match &wanted {
            Some(name) => Some(Scenario::text_of(name).map_err(|e| WorldError(e.to_string()))?),
            None => None,
        };
        Self::open_named(&name(), text.as_deref())
    }

    /// Opens a world by name. If it has to be made, it gets this scenario's text, or the default one if `None`.
    pub fn open_named(world: &str, scenario: Option<&str>) -> Result<Self, WorldError> {
        let os_name = os_name(world);
        let lock_path = lock_path(Path::new(&format!("/dev/shm{os_name}")));
        let cannot = |what: &str, why: &dyn fmt::Display| {
            WorldError(format!("simulated world {os_name}: cannot {what}: {why}"))
        };
        let exclusive = Exclusive::lock(&lock_path).map_err(|e| cannot("lock it", &e))?;
        let memory = map(&os_name).map_err(|e| cannot("open its shared memory", &e))?;
        // SAFETY: the mapping is leaked, is large enough (see `map`), and a Layout is atomics only.
        let layout: &'static Layout = unsafe { &*memory.as_ptr().cast::<Layout>() };
        let memory = Mapped(ManuallyDrop::new(memory));

        // ORDER: pairs with the Release below; the scenario's words are there.
        let made = layout.magic.load(Acquire) == MAGIC;
        let written = made.then(|| read_scenario(layout)).flatten();
        let text = match (written, scenario) {
            (Some(written), None) => written,
            (Some(written), Some(wanted)) if written == wanted => written,
            (Some(written), Some(_)) if sweep::anyone_alive(layout, &lock_path) => written,
            (_, Some(wanted)) => wanted.to_owned(),
            (None, None) => crate::scenario::BUILT_IN[0].1.to_owned(),
        };
        let kept = scenario.is_some_and(|wanted| wanted != text);
        let scenario = Scenario::parse(&text).map_err(|e| cannot("use its scenario", &e))?;
        write_scenario(layout, &text).map_err(|e| cannot("store its scenario", &e))?;
        // ORDER: publishes the scenario to readers of the magic.
        layout.magic.store(MAGIC, Release);
        if remains::is_of_directory(world) {
            let present = Life::present(&lock_path).map_err(|e| cannot("register with it", &e))?;
            remains::keep_until_exit(Path::new(&format!("/dev/shm{os_name}")), layout, present);
        }
        drop(exclusive);
        if !made {
            remains::sweep();
        }

        let devices = devices(world, &scenario);
        Ok(Self {
            layout,
            _memory: memory,
            lock_path,
            scenario,
            kept,
            devices,
        })
    }

    /// The scenario from which it was made.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Returns true if another scenario was asked for but the world kept its own, because it has members.
    pub fn kept_its_scenario(&self) -> bool {
        self.kept
    }

    /// All compute units; a device's `index` is its position here.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    pub(crate) fn lock_path(&self) -> &Path {
        &self.lock_path
    }

    pub(crate) fn layout(&self) -> &'static Layout {
        self.layout
    }
}

/// Opens the shared memory, or makes it. The caller holds the world's lock.
fn map(os_name: &str) -> Result<Shmem, Box<dyn std::error::Error>> {
    let want = size_of::<Layout>();
    let path = PathBuf::from(format!("/dev/shm{os_name}"));
    match locks::existing(&path) {
        // A file that belongs to this user keeps its name: only this user can replace it.
        Ok(_) => {
            if let Ok(memory) = ShmemConf::new().os_id(os_name).open()
                && memory.len() >= want
            {
                return Ok(memory);
            }
            // Left half-made by a killed process, or of an older layout.
            let _ = std::fs::remove_file(path);
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let mut memory = ShmemConf::new().os_id(os_name).size(want).create()?;
    // The world outlives the process that makes it; `remove` deletes it.
    memory.set_owner(false);
    Ok(memory)
}

fn read_scenario(layout: &Layout) -> Option<String> {
    let bytes = usize::try_from(layout.scenario_bytes.load(Relaxed)).ok()?;
    let words = layout.scenario.get(..bytes.div_ceil(8))?;
    let mut text: Vec<u8> = words
        .iter()
        .flat_map(|w| w.load(Relaxed).to_le_bytes())
        .collect();
    text.truncate(bytes);
    String::from_utf8(text).ok()
}

fn write_scenario(layout: &Layout, text: &str) -> Result<(), String> {
    if text.len() > SCENARIO_WORDS * 8 {
        return Err(format!(
            "its {} bytes are more than {}",
            text.len(),
            SCENARIO_WORDS * 8
        ));
    }
    for (word, bytes) in layout.scenario.iter().zip(text.as_bytes().chunks(8)) {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        word.store(u64::from_le_bytes(padded), Relaxed);
    }
    layout.scenario_bytes.store(text.len() as u64, Relaxed);
    Ok(())
}

fn devices(world: &str, scenario: &Scenario) -> Vec<Device> {
    let mut devices = Vec::new();
    for (gpu, description) in scenario.devices.iter().enumerate() {
        let gpu_uuid = uuid(world, gpu as u64);
        let whole = Device {
            index: devices.len(),
            gpu,
            mig: None,
            name: description.name.clone(),
            uuid: gpu_uuid,
            gpu_uuid,
            memory: description.memory.0,
            context_memory: description.context.0,
            code_memory: description.code.0,
            compute: description.compute,
            speed: description.speed,
            multiprocessors: description.multiprocessors,
            slice: u64::try_from(description.slice.0.as_nanos()).unwrap_or(u64::MAX),
        };
        if description.mig.is_empty() {
            devices.push(whole);
            continue;
        }
        for (instance, mig) in description.mig.iter().enumerate() {
            devices.push(Device {
                index: devices.len(),
                mig: Some((instance, mig.profile.clone())),
                name: format!("{} MIG {}", description.name, mig.profile),
                uuid: uuid(world, 1000 + gpu as u64 * 100 + instance as u64),
                memory: mig.memory.0,
                multiprocessors: mig.multiprocessors,
                ..whole.clone()
            });
        }
    }
    devices
}

/// Returns the UUID for a world and an index; it is always the same.
fn uuid(world: &str, index: u64) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&hash(world.as_bytes(), index * 2 + 1).to_be_bytes());
    uuid[8..].copy_from_slice(&hash(world.as_bytes(), index * 2 + 2).to_be_bytes());
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// FNV-1a with a final step that spreads the bits.
fn hash(bytes: &[u8], seed: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ hash >> 33
}

#[cfg(test)]
mod tests {
    use gpushare_testbed::{Need, needs};

    use super::*;
    use crate::process::tests::Private;

    #[test]
    fn who_looks_at_a_demonstration_from_elsewhere_by_its_directory_sees_its_world() {
        let stage = "gpushare-stage-4711-0";
        for dir in [format!("/dev/shm/{stage}"), format!("/dev/shm/{stage}/")] {
            assert_eq!(of_directory(&dir), stage);
        }
        assert!(remains::is_of_directory(&of_directory("/dev/shm/mine")));
    }

    #[test]
    fn a_relative_directory_has_the_world_of_the_absolute_one() {
        let name =
            |dir: &str| name_in(&|variable| (variable == "GPUSHARE_DIR").then(|| dir.into()));
        let absolute = std::path::absolute("mine").expect("there is a directory");
        assert_eq!(name("mine"), name(absolute.to_str().expect("in UTF-8")));
    }

    #[test]
    fn uuids_belong_to_world_and_index() {
        let scenario = Scenario::parse(&"[[device]]\n".repeat(2)).expect("valid");
        let (one, other) = (devices("a", &scenario), devices("b", &scenario));
        assert_eq!(one, devices("a", &scenario));
        assert_ne!(one[0].uuid, one[1].uuid);
        assert_ne!(one[0].uuid, other[0].uuid);
        assert!(one[0].uuid_text().starts_with("GPU-"));
        assert_eq!(one[0].uuid_text().len(), 40);
    }

    #[test]
    fn instances_stand_for_a_gpu_in_mig_mode() {
        let private = Private::new("mig");
        let world = private.open(Some(&Scenario::text_of("mig").expect("built in")));
        let devices = world.devices();
        assert_eq!(devices.len(), 4);
        assert!(devices[0].uuid_text().starts_with("MIG-"));
        assert_eq!(devices[0].gpu_uuid, devices[2].gpu_uuid);
        assert_eq!((devices[3].gpu, &devices[3].mig), (1, &None));
    }

    #[test]
    fn those_who_come_later_read_the_scenario_in_the_world() {
        let private = Private::new("later");
        let first = private.open(Some("[[device]]\nmemory = \"1GiB\""));
        let second = private.open(None);
        assert_eq!(second.devices(), first.devices());
        assert_eq!(second.devices()[0].memory, 1 << 30);
    }

    #[test]
    fn an_empty_world_takes_a_new_scenario() {
        let private = Private::new("anew");
        private.open(Some("[[device]]\nmemory = \"1GiB\""));
        let world = private.open(Some("[[device]]\nmemory = \"2GiB\""));
        assert_eq!(world.devices()[0].memory, 2 << 30);
    }

    #[test]
    fn a_world_someone_lives_in_keeps_its_scenario() {
        let private = Private::new("kept");
        let first = private.open(Some("[[device]]\nmemory = \"1GiB\""));
        let member = crate::Member::join(&first).expect("room");
        let second = private.open(Some("[[device]]\nmemory = \"2GiB\""));
        assert!(second.kept_its_scenario());
        assert_eq!(second.devices()[0].memory, 1 << 30);
        let present = scenario_of_living(&private.name);
        assert_eq!(present.as_deref(), Some("[[device]]\nmemory = \"1GiB\""));
        drop(member);
        assert_eq!(scenario_of_living(&private.name), None);
        assert_eq!(scenario_of_living("no-such-world"), None);
    }

    #[test]
    fn a_half_made_world_is_made_again() {
        let private = Private::new("half");
        let path = format!("/dev/shm{}", os_name(&private.name));
        std::fs::write(&path, b"").expect("shared memory is writable");
        assert_eq!(private.open(None).devices().len(), 2);
    }

    #[test]
    fn what_another_user_or_a_link_has_the_name_of_is_refused_and_left() {
        use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
        let private = Private::new("planted");
        let memory = PathBuf::from(format!("/dev/shm{}", os_name(&private.name)));
        let refused = |path: &Path, words: &str| {
            let error = World::open_named(&private.name, None).expect_err("refused");
            assert!(error.to_string().contains(words), "{error}");
            std::fs::remove_file(path).expect("it was left");
        };
        for path in [&lock_path(&memory), &memory] {
            let victim = memory.with_extension("victim");
            std::fs::write(&victim, "precious").expect("shared memory is writable");
            symlink(&victim, path).expect("linked");
            refused(path, "not a regular file");
            assert_eq!(std::fs::read(&victim).expect("there"), b"precious");
            std::fs::remove_file(victim).expect("there");

            std::fs::write(path, "").expect("shared memory is writable");
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).expect("ours");
            refused(path, "other users may write");

            std::fs::write(path, "").expect("shared memory is writable");
            if needs(Need::Root) {
                chown(path, Some(61_237), None).expect("given away");
                refused(path, "belongs to user 61237");
            } else {
                std::fs::remove_file(path).expect("ours");
            }
        }
        assert!(World::open_named(&private.name, None).is_ok());
    }
}
