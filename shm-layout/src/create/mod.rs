//! The two files: how they come to be, and what is checked before they are mapped.
//!
//! ```text
//!   nameless file ─▶ fallocate ─▶ header ─▶ version word ─▶ link(name)     nobody ever sees half of one
//! ```
//!
//! `link` does not replace, so of two creators one wins and the other opens the winner's. Only a file of an earlier
//! boot is replaced, under a lock on the directory. Nothing in use is ever truncated or unlinked. Space is
//! allocated first, so that a full file system is an error now and not a SIGBUS later.

mod header;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

pub(crate) use header::{boot_id, says_system};
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{AtFlags, CWD, FallocateFlags, FlockOperation, fallocate, flock, linkat};

use crate::{
    clock,
    control::Control,
    crash::crash_point,
    error::OpenError,
    liveness::FileId,
    locate::{Mode, check_owner, mode_of},
    state::State,
};

/// Which of the two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    State,
    Control,
}

/// Whether a missing or stale file is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    Find,
    Make,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::State => "state",
            Kind::Control => "control",
        }
    }

    fn magic(self) -> u64 {
        u64::from_le_bytes(match self {
            Kind::State => *b"gpushare",
            Kind::Control => *b"gpushctl",
        })
    }

    fn size(self) -> u64 {
        match self {
            Kind::State => size_of::<State>() as u64,
            Kind::Control => size_of::<Control>() as u64,
        }
    }
}

/// Maps a file of `dir`, after making it where that is wanted and allowed.
pub(crate) fn open(
    dir: &Path,
    kind: Kind,
    want: Want,
    write: bool,
) -> Result<(MmapRaw, FileId), OpenError> {
    let path = dir.join(kind.name());
    let make = want == Want::Make && mode_of(dir) == Mode::User;
    let mut attempts = 0;
    loop {
        let error = match open_checked(&path, kind, write) {
            Ok(mapped) => return Ok(mapped),
            Err(error) => error,
        };
        attempts += 1;
        if !make || attempts > 50 {
            return Err(error);
        }
        match error {
            OpenError::Missing { .. } => publish(dir, kind, Mode::User, None, false)?,
            OpenError::StaleBoot { .. } => replace_stale(dir, kind)?,
            OpenError::NotReady { .. } => std::thread::sleep(Duration::from_millis(10)),
            other => return Err(other),
        }
    }
}

/// Makes both files of a system installation.
pub(crate) fn system(dir: &Path, group: Option<u32>) -> Result<(), OpenError> {
    let io = |op: &'static str| {
        move |source| OpenError::Io {
            path: dir.to_path_buf(),
            op,
            source,
        }
    };
    fs::create_dir_all(dir).map_err(io("create the directory"))?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).map_err(io("set the mode of"))?;
    for kind in [Kind::Control, Kind::State] {
        match open_checked(&dir.join(kind.name()), kind, true) {
            Ok(_) => {}
            Err(OpenError::Missing { .. }) => publish(dir, kind, Mode::System, group, false)?,
            Err(OpenError::StaleBoot { .. }) => publish(dir, kind, Mode::System, group, true)?,
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

fn open_checked(path: &Path, kind: Kind, write: bool) -> Result<(MmapRaw, FileId), OpenError> {
    let io = |op: &'static str| {
        move |source| OpenError::Io {
            path: path.to_path_buf(),
            op,
            source,
        }
    };
    let opened = OpenOptions::new()
        .read(true)
        .write(write)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    let mut file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(OpenError::Missing {
                path: path.to_path_buf(),
            });
        }
        Err(source) => return Err(io(if write { "open for writing" } else { "open" })(source)),
    };
    let meta = file.metadata().map_err(io("look at"))?;
    if !meta.is_file() {
        return Err(OpenError::Foreign {
            path: path.to_path_buf(),
        });
    }
    check_owner(path, meta.uid())?;
    let mut bytes = [0u8; 48];
    let got = header::read_up_to(&mut file, &mut bytes).map_err(io("read"))?;
    header::check(path, kind, &bytes, got, meta.len())?;
    let mut options = MmapOptions::new();
    options.len(kind.size() as usize);
    let mapped = if write {
        options.map_raw(&file)
    } else {
        options.map_raw_read_only(&file)
    };
    let id = FileId {
        dev: meta.dev(),
        ino: meta.ino(),
    };
    Ok((mapped.map_err(io("map"))?, id))
}

/// Replaces a file of an earlier boot; nobody maps it any more.
fn replace_stale(dir: &Path, kind: Kind) -> Result<(), OpenError> {
    let io = |op: &'static str| {
        move |source| OpenError::Io {
            path: dir.to_path_buf(),
            op,
            source,
        }
    };
    let lock = File::open(dir).map_err(io("open"))?;
    let mut attempts = 0;
    while flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        attempts += 1;
        if attempts > 200 {
            return Err(OpenError::NotReady {
                path: dir.join(kind.name()),
            });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    match open_checked(&dir.join(kind.name()), kind, false) {
        Err(OpenError::StaleBoot { .. }) => publish(dir, kind, Mode::User, None, true),
        _ => Ok(()),
    }
}

/// Makes a whole file and gives it its name.
fn publish(
    dir: &Path,
    kind: Kind,
    mode: Mode,
    group: Option<u32>,
    replace: bool,
) -> Result<(), OpenError> {
    let path = dir.join(kind.name());
    let io = |op: &'static str| {
        let path = path.clone();
        move |source| OpenError::Io { path, op, source }
    };
    let (file, temporary) = scratch(dir, kind.name(), replace).map_err(io("create"))?;
    // A temporary name does not outlive us; unless we are killed just here, which costs a hidden file.
    let _cleanup = Cleanup(temporary.clone());
    crash_point!("create:made");
    allocate(&file, kind.size()).map_err(|source| match source.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => OpenError::NoSpace {
            path: path.clone(),
            want: kind.size(),
        },
        _ => io("allocate")(source),
    })?;
    crash_point!("create:allocated");
    let bits = match (mode, kind) {
        (Mode::User, _) => 0o600,
        (Mode::System, Kind::State) => 0o664,
        (Mode::System, Kind::Control) => 0o644,
    };
    file.set_permissions(fs::Permissions::from_mode(bits))
        .map_err(io("set the mode of"))?;
    header::write(&file, kind, mode).map_err(io("initialise"))?;
    crash_point!("create:initialised");
    let proc_name = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    if let (Some(group), Kind::State) = (group, kind) {
        chown(temporary.as_ref().unwrap_or(&proc_name), None, Some(group))
            .map_err(io("give to the group"))?;
    }
    let named = match (&temporary, replace) {
        (Some(name), true) => fs::rename(name, &path),
        (Some(name), false) => fs::hard_link(name, &path),
        (None, _) => {
            linkat(CWD, &proc_name, CWD, &path, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from)
        }
    };
    crash_point!("create:named");
    match named {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map_err(io("name")),
    }
}

/// A file nobody can find, or (where the file system has no such thing, or it is to replace another) a hidden one.
pub(crate) fn scratch(dir: &Path, what: &str, named: bool) -> io::Result<(File, Option<PathBuf>)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    if !named && Path::new("/proc/self/fd").exists() {
        let nameless = options
            .clone()
            .custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC)
            .open(dir);
        if let Ok(file) = nameless {
            return Ok((file, None));
        }
    }
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = dir.join(format!(
        ".{what}.{}.{count}.{}",
        std::process::id(),
        clock::now()
    ));
    let file = options
        .create_new(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW)
        .open(&name)?;
    Ok((file, Some(name)))
}

/// Takes the hidden name back when it is dropped; after a rename there is nothing left of it.
pub(crate) struct Cleanup(pub(crate) Option<PathBuf>);

impl Drop for Cleanup {
    fn drop(&mut self) {
        if let Some(name) = &self.0 {
            let _ = fs::remove_file(name);
        }
    }
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
