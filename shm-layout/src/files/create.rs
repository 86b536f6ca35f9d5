//! The two files: how they are made, which checks precede the mapping, and how a pair is recognised.
//!
//! ```text
//!   nameless file ─▶ fallocate ─▶ header ─▶ version word ─▶ link(name)     a reader never sees half of one
//!
//!   state (with a fresh instance) ─▶ control (with the same)               a control without its state is set aside
//! ```
//!
//! `link` does not replace, so of two creators one wins and the other opens the winner's. A file of an earlier boot is
//! replaced, and a `control` whose `state` was removed is renamed ([`SET_ASIDE`]), both only under a lock on the directory.
//! Nothing in use is ever truncated or unlinked. Space is allocated first, so that a full file system is an error now
//! and not a SIGBUS later.
//!
//! **The instance.** A process that has `state` and `control` mapped keeps that pair, whatever becomes of the names. If its
//! files are removed, it still applies the settings it has mapped, and shares state only with processes that mapped the same
//! pair. A process that starts later makes or finds another pair, and never applies the earlier one's settings.
//!
//! Where the machine has a broker, it makes and finds them ([`broker`](crate::broker)).

use std::{
    fs::{File, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{FileExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, fallocate};

use crate::{
    files::{
        dir::{CONTROL, Dir},
        error::OpenError,
        probe,
    },
    layout::{control::Control, registry::Registry, state::State},
    os::{clock, liveness::FileId, procfs},
    protocol::crash::crash_point,
    value::ABI_VERSION,
};

/// Prefix of the name of a `control` file that was set aside; its instance follows.
pub(crate) const SET_ASIDE: &str = "control.set-aside-";
/// Number of such files that are kept.
const KEPT_ASIDE: usize = 3;

/// The kind of a segment; only a broker has the third.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    State,
    Control,
    Identity,
}

/// The choice between making a missing or stale file and leaving it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    Find,
    Make,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::State => "state",
            Kind::Control => CONTROL,
            Kind::Identity => "identity",
        }
    }

    fn magic(self) -> u64 {
        u64::from_le_bytes(match self {
            Kind::State => *b"gpushare",
            Kind::Control => *b"gpushctl",
            Kind::Identity => *b"gpushidt",
        })
    }

    pub(crate) fn size(self) -> u64 {
        match self {
            Kind::State => size_of::<State>() as u64,
            Kind::Control => size_of::<Control>() as u64,
            Kind::Identity => size_of::<Registry>() as u64,
        }
    }
}

/// A file and its mapping.
pub(crate) struct Mapped {
    pub(crate) map: MmapRaw,
    pub(crate) id: FileId,
    pub(crate) instance: Instance,
}

/// Two files that belong together.
pub(crate) struct Pair {
    pub(crate) state: Mapped,
    pub(crate) control: Mapped,
    /// A `control` of earlier segments that was in the way, by its new name.
    pub(crate) set_aside: Option<PathBuf>,
}

/// The way a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Maps both files of `dir`, after making them where that is wanted and allowed.
pub(crate) fn open(
    dir: &Dir,
    want: Want,
    state_rw: bool,
    control_rw: bool,
) -> Result<Pair, OpenError> {
    let access = |write| if write { Access::Write } else { Access::Read };
    let make = want == Want::Make;
    let mut set_aside = None;
    let mut attempts = 0;
    loop {
        let error = match both(dir, access(state_rw), access(control_rw)) {
            Ok((state, control)) => {
                return Ok(Pair {
                    state,
                    control,
                    set_aside,
                });
            }
            Err(error) => error,
        };
        attempts += 1;
        if !make || attempts > 50 {
            return Err(error);
        }
        match error {
            OpenError::Missing { .. }
            | OpenError::StaleBoot { .. }
            | OpenError::OtherInstance { .. } => settle(dir, &mut set_aside)?,
            OpenError::NotReady { .. } => std::thread::sleep(Duration::from_millis(10)),
            other => return Err(other),
        }
    }
}

fn both(dir: &Dir, state: Access, control: Access) -> Result<(Mapped, Mapped), OpenError> {
    let state = open_checked(dir, Kind::State, state)?;
    let control = open_checked(dir, Kind::Control, control)?;
    if state.instance != control.instance {
        return Err(OpenError::OtherInstance {
            path: dir.path().join(CONTROL),
        });
    }
    Ok((state, control))
}

/// Makes missing files, replaces files of an earlier boot, and sets aside a `control` of another state. The state decides, and
/// is made first: a maker that is killed in between leaves a state to which the next one makes the `control`.
fn settle(dir: &Dir, set_aside: &mut Option<PathBuf>) -> Result<(), OpenError> {
    // A new file replaces nothing, which is safe without the lock, which a sandbox may forbid.
    let locked = dir.lock().ok().flatten();
    let alone = |kind: Kind| match &locked {
        Some(_) => Ok(()),
        None => Err(OpenError::NotReady {
            path: dir.path().join(kind.name()),
        }),
    };
    let look = |kind| open_checked(dir, kind, Access::Read);
    let make = |kind, instance, replace| publish(dir, kind, instance, replace);
    let instance = match look(Kind::State) {
        Ok(state) => state.instance,
        Err(error @ (OpenError::Missing { .. } | OpenError::StaleBoot { .. })) => {
            let replace = matches!(error, OpenError::StaleBoot { .. });
            if replace {
                alone(Kind::State)?;
            }
            let instance = Instance::fresh();
            if !make(Kind::State, instance, replace)? {
                // Another process was faster: its file is used at the next look.
                return Ok(());
            }
            crash_point!("pair:state");
            instance
        }
        Err(other) => return Err(other),
    };
    match look(Kind::Control) {
        Ok(control) if control.instance == instance => return Ok(()),
        Ok(control) => {
            alone(Kind::Control)?;
            *set_aside = Some(put_aside(dir, control.instance)?);
            crash_point!("pair:set-aside");
            make(Kind::Control, instance, false)?
        }
        Err(OpenError::Missing { .. }) => make(Kind::Control, instance, false)?,
        Err(OpenError::StaleBoot { .. }) => {
            alone(Kind::Control)?;
            make(Kind::Control, instance, true)?
        }
        Err(other) => return Err(other),
    };
    Ok(())
}

/// Renames `control`, and removes the oldest of those renamed before.
fn put_aside(dir: &Dir, instance: Instance) -> Result<PathBuf, OpenError> {
    let [first, second] = instance.0;
    let name = format!("{SET_ASIDE}{first:016x}{second:016x}");
    dir.rename(CONTROL, &name)
        .map_err(failed(&dir.path().join(CONTROL), "set aside"))?;
    let names = dir.names().unwrap_or_default().into_iter();
    let mut earlier: Vec<(Duration, String)> = names
        .filter(|other| is_set_aside(other) && *other != name)
        .map(|other| (dir.age(&other).unwrap_or(Duration::MAX), other))
        .collect();
    earlier.sort();
    for (_, other) in earlier.iter().skip(KEPT_ASIDE - 1) {
        let _ = dir.remove(other);
    }
    Ok(dir.path().join(name))
}

fn is_set_aside(name: &str) -> bool {
    let instance = name.strip_prefix(SET_ASIDE);
    instance.is_some_and(|hex| hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

pub(crate) fn failed(path: &Path, op: &'static str) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_path_buf();
    move |source| OpenError::Io { path, op, source }
}

/// Opens a file, checks it and maps it.
pub(crate) fn open_checked(dir: &Dir, kind: Kind, access: Access) -> Result<Mapped, OpenError> {
    let path = dir.path().join(kind.name());
    let mut file = dir.existing(kind.name(), access == Access::Write)?;
    let header = read_header(&path, &mut file, kind)?;
    match header.is_stale() {
        true => Err(OpenError::StaleBoot { path }),
        false => map(path, &file, kind, access, header.instance()),
    }
}

/// Maps a file, for reading, that a broker of this boot handed out.
pub(crate) fn handed(path: PathBuf, mut file: File, kind: Kind) -> Result<Mapped, OpenError> {
    let header = read_header(&path, &mut file, kind)?;
    map(path, &file, kind, Access::Read, header.instance())
}

/// A file whose header says nothing, because others may write it.
pub(crate) fn map(
    path: PathBuf,
    file: &File,
    kind: Kind,
    access: Access,
    instance: Instance,
) -> Result<Mapped, OpenError> {
    let mut options = MmapOptions::new();
    options.len(kind.size() as usize);
    let map = if access == Access::Write {
        options.map_raw(file)
    } else {
        options.map_raw_read_only(file)
    };
    Ok(Mapped {
        map: map.map_err(failed(&path, "map"))?,
        id: FileId::of(file).map_err(failed(&path, "look at"))?,
        instance,
    })
}

/// Makes a whole file and gives it its name; false if another file has it.
pub(crate) fn publish(
    dir: &Dir,
    kind: Kind,
    instance: Instance,
    replace: bool,
) -> Result<bool, OpenError> {
    let path = dir.path().join(kind.name());
    let scratch = dir
        .scratch(kind.name(), replace)
        .map_err(failed(&path, "create"))?;
    let file = &scratch.file;
    crash_point!("create:made");
    make_room(&path, file, kind)?;
    crash_point!("create:allocated");
    probe::check(&path, file)?;
    file.set_permissions(Permissions::from_mode(0o600))
        .map_err(failed(&path, "set the mode of"))?;
    write_header(file, kind, instance).map_err(failed(&path, "initialise"))?;
    crash_point!("create:initialised");
    let named = scratch.publish(kind.name(), replace);
    crash_point!("create:named");
    named.map_err(failed(&path, "name"))
}

/// Gives every byte of a segment its place.
pub(crate) fn make_room(path: &Path, file: &File, kind: Kind) -> Result<(), OpenError> {
    allocate(file, kind.size()).map_err(|source| match source.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => OpenError::NoSpace {
            path: path.to_path_buf(),
            want: kind.size(),
        },
        _ => failed(path, "allocate")(source),
    })
}

/// The largest file this process may write; where a sandbox does not say, there is none.
fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    #[expect(
        unsafe_code,
        reason = "rustix takes for granted that this call is allowed"
    )]
    // SAFETY: the place is ours.
    unsafe {
        libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit)
    };
    limit.rlim_cur
}

/// Gives every byte its place on the file system.
pub(crate) fn allocate(file: &File, size: u64) -> io::Result<()> {
    // Beyond its limit a process is not only refused: SIGXFSZ would end it.
    if file_size_limit() < size {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    match fallocate(file, FallocateFlags::empty(), 0, size) {
        Ok(()) => return Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
        Err(error) => return Err(error.into()),
    }
    // Not on the stack: a guest's may be the smallest there is.
    static ZEROS: [u8; 65536] = [0; 65536];
    let mut left = size;
    let mut out = file;
    while left > 0 {
        let part = left.min(ZEROS.len() as u64);
        out.write_all(&ZEROS[..part as usize])?;
        left -= part;
    }
    Ok(())
}

/// Length of the part of a file that is checked.
const BYTES: usize = 72;

fn read_up_to(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

/// A file's first bytes, if they are those of its kind, of this version and of a whole file.
fn read_header(path: &Path, file: &mut File, kind: Kind) -> Result<Header, OpenError> {
    let len = file.metadata().map_err(failed(path, "look at"))?.len();
    let mut bytes = [0; BYTES];
    let got = read_up_to(file, &mut bytes).map_err(failed(path, "read"))?;
    let (path, header) = (path.to_path_buf(), Header(bytes));
    let word = |at| header.word(at);
    let want = kind.size();
    let version = word(8) as u32;
    if word(0) == 0 && version == 0 {
        return Err(if len < want {
            OpenError::Truncated { path, len, want }
        } else {
            OpenError::NotReady { path }
        });
    }
    if got < 16 || word(0) != kind.magic() {
        return Err(OpenError::Foreign { path });
    }
    match version {
        ABI_VERSION => {}
        0 => return Err(OpenError::NotReady { path }),
        theirs => {
            return Err(OpenError::WrongVersion {
                path,
                ours: ABI_VERSION,
                theirs,
            });
        }
    }
    if len < want || word(16) != want {
        return Err(OpenError::Truncated {
            path,
            len: len.min(word(16)),
            want,
        });
    }
    Ok(header)
}

/// The first bytes of a file.
struct Header([u8; BYTES]);

impl Header {
    fn word(&self, at: usize) -> u64 {
        u64::from_ne_bytes(std::array::from_fn(|index| self.0[at + index]))
    }

    /// Returns true if the file is from before the last boot.
    fn is_stale(&self) -> bool {
        let (boot, now) = ([self.word(24), self.word(32)], boot_id());
        boot != now && now != [0, 0] && boot != [0, 0]
    }

    fn instance(&self) -> Instance {
        Instance([self.word(56), self.word(64)])
    }
}

/// Returns this boot's id; zero where the system does not report one.
pub(crate) fn boot_id() -> [u64; 2] {
    static BOOT: OnceLock<[u64; 2]> = OnceLock::new();
    *BOOT.get_or_init(read_boot_id)
}

fn read_boot_id() -> [u64; 2] {
    let Ok(text) = procfs::record("/proc/sys/kernel/random/boot_id") else {
        return [0, 0];
    };
    let hex: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    match u128::from_str_radix(&hex, 16) {
        Ok(bits) => [(bits >> 64) as u64, bits as u64],
        Err(_) => [0, 0],
    }
}

/// The number that two files have in common if they belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instance(pub(crate) [u64; 2]);

impl Instance {
    pub(crate) fn fresh() -> Instance {
        let mut bytes = [0u8; 16];
        let flags = libc::GRND_NONBLOCK;
        #[expect(unsafe_code, reason = "of rustix we use no random numbers")]
        // SAFETY: the place is ours and as long as we say.
        let got =
            unsafe { libc::syscall(libc::SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), flags) };
        if got == bytes.len() as libc::c_long {
            return Instance(
                [0, 8].map(|at| u64::from_ne_bytes(std::array::from_fn(|index| bytes[at + index]))),
            );
        }
        // Early in a boot, or where a sandbox forbids it: different will do, for it is no secret.
        Instance([clock::now(), u64::from(std::process::id())])
    }
}

/// The header by plain writes, the version word by one of its own at the end: no process has mapped the file yet, and
/// `link` publishes it.
pub(crate) fn write_header(file: &File, kind: Kind, instance: Instance) -> io::Result<()> {
    let boot = boot_id();
    let word = |at: u64, value: u64| file.write_all_at(&value.to_ne_bytes(), at);
    word(0, kind.magic())?;
    word(16, kind.size())?;
    word(24, boot[0])?;
    word(32, boot[1])?;
    word(40, clock::now())?;
    word(48, u64::from(rustix::process::geteuid().as_raw()))?;
    word(56, instance.0[0])?;
    word(64, instance.0[1])?;
    word(8, u64::from(ABI_VERSION))
}
