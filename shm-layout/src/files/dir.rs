//! A directory of ours, opened once: the one place where anything in it is found, made, renamed and removed.
//!
//! `/dev/shm` and `/tmp` are shared by all users. Any name in them may be taken already: by a directory, a link, a pipe. So a
//! directory is opened without following a link in its last component. It must belong to the effective user (or to root, which
//! is trusted with every user's), and only its owner may write it; root has no exemption. Its files are opened relative to that
//! descriptor only, without following links and without blocking. The open file is then checked: it must be a regular file of
//! the directory's owner, with no second name. Links in the components before the last one are the caller's choice and are
//! followed.
//!
//! A workload keeps no descriptor, so it opens the directory again each time; the path names the same directory as long as its
//! owner leaves it there.

use std::{
    ffi::OsStr,
    fs::{File, Permissions},
    io,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, FlockOperation, Mode as Bits, OFlags, Stat, flock, fstat, linkat,
        mkdirat, openat, readlinkat, renameat, statat, symlinkat, unlinkat,
    },
    io::Errno,
    process::geteuid,
};

use crate::{
    files::error::OpenError,
    os::{clock, procfs},
};

/// The directory of the broker, `gpushare serve`.
pub const SYSTEM_DIR: &str = "/run/gpushare";

/// A user who may write a directory may put any file into it under any name.
const WRITTEN_BY_OTHERS: u32 = 0o022;
/// The broker's socket.
pub const SOCKET: &str = "socket";
/// Name of the file with the operator's settings.
pub const CONTROL: &str = "control";

/// A directory that only its owner may write. The owner is the effective user or root.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
    owner: u32,
    bits: u32,
}

impl Dir {
    /// Opens a directory.
    pub fn open(path: &Path) -> Result<Dir, OpenError> {
        // A slash or a dot at the end would have the last component followed.
        let path = path.components().as_path();
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        Dir::open_at(CWD, path.as_os_str(), path.to_path_buf())
    }

    /// Opens the directory, and makes it with mode 0700 if it is missing.
    pub fn open_or_make(path: &Path) -> Result<Dir, OpenError> {
        match Dir::open(path) {
            Err(OpenError::Missing { .. }) => {}
            found => return found,
        }
        match mkdirat(CWD, path, Bits::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Dir::open(path),
            Err(errno) => Err(failed(path, "create the directory", errno)),
        }
    }

    /// A directory in this one.
    pub fn inner(&self, name: &str) -> Result<Dir, OpenError> {
        let inner = Dir::open_at(&self.fd, name.as_ref(), self.path.join(name))?;
        if inner.owner != self.owner {
            return Err(self.wrong_owner(inner.path, inner.owner));
        }
        Ok(inner)
    }

    /// Opens a directory inside; if it is missing, makes it writable for its owner only.
    pub fn inner_or_make(&self, name: &str) -> Result<Dir, OpenError> {
        match mkdirat(&self.fd, name, Bits::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => self.inner(name),
            // The name exists after all, on a read-only file system.
            Err(errno) => self
                .inner(name)
                .map_err(|_| failed(&self.path.join(name), "create the directory", errno)),
        }
    }

    /// Opens a directory inside that only its owner may enter. Makes it if it is missing, and removes other users' access if
    /// they have it.
    pub fn inner_private(&self, name: &str) -> Result<Dir, OpenError> {
        match mkdirat(&self.fd, name, Bits::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(&self.path.join(name), "create the directory", errno)),
        }
        let inner = self.inner(name)?;
        if inner.bits & 0o077 != 0
            && let Err(source) = inner.set_bits(0o700)
        {
            let (path, op) = (inner.path, "close to others");
            return Err(OpenError::Io { path, op, source });
        }
        Ok(inner)
    }

    fn open_at(at: impl AsFd, name: &OsStr, path: PathBuf) -> Result<Dir, OpenError> {
        // O_PATH opens any kind of file, so that a refusal can name its kind and owner.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match openat(at, name, flags, Bits::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Err(OpenError::Missing { path }),
            Err(errno) => return Err(failed(&path, "open the directory", errno)),
        };
        let stat = fstat(&fd).map_err(|errno| failed(&path, "look at", errno))?;
        let us = geteuid().as_raw();
        if stat.st_uid != us && stat.st_uid != 0 && !is_roots_outside(&path, stat.st_uid) {
            return Err(OpenError::WrongOwner {
                path,
                owner: stat.st_uid,
                want: us,
            });
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {}
            FileType::Symlink => {
                let why = "it is a symbolic link; name the directory that it points to";
                return Err(OpenError::Unsafe { path, why });
            }
            _ => {
                let source = io::Error::from(io::ErrorKind::NotADirectory);
                let op = "use as a directory";
                return Err(OpenError::Io { path, op, source });
            }
        }
        if stat.st_mode & WRITTEN_BY_OTHERS != 0 {
            let why = "other users may write to it; run chmod go-w on it";
            return Err(OpenError::Unsafe { path, why });
        }
        Ok(Dir {
            fd,
            path,
            owner: stat.st_uid,
            bits: stat.st_mode,
        })
    }

    /// The directory itself, to be mounted again.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if a broker serves the directory: its socket is there. Only the directory's owner can make it, and no byte
    /// that a tenant may write says so. A broker that ended leaves its socket, so that programs do not switch to other segments
    /// without notice.
    pub fn is_brokered(&self) -> bool {
        self.stat(SOCKET.as_ref()).is_ok_and(|socket| {
            FileType::from_raw_mode(socket.st_mode) == FileType::Socket
                && socket.st_uid == self.owner
        })
    }

    /// Returns true if the directory belongs to the effective user. Otherwise it is root's.
    pub fn is_ours(&self) -> bool {
        self.owner == geteuid().as_raw()
    }

    /// Stats a name without opening or following it.
    fn stat(&self, name: &OsStr) -> rustix::io::Result<Stat> {
        statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Returns true if the name exists.
    pub fn has(&self, name: &str) -> bool {
        self.stat(name.as_ref()).is_ok()
    }

    /// Opens a file to read it.
    pub fn read(&self, name: &str) -> Result<File, OpenError> {
        self.file(name, OFlags::RDONLY, 0)
    }

    /// Opens a file to read and write it, made with this mode where it is missing.
    pub fn write(&self, name: &str, bits: u32) -> Result<File, OpenError> {
        self.file(name, OFlags::RDWR | OFlags::CREATE, bits)
    }

    /// Opens a file to add to its end, made with this mode where it is missing.
    pub fn append(&self, name: &str, bits: u32) -> Result<File, OpenError> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE;
        self.file(name, flags, bits)
    }

    /// Opens an existing file, for reading and perhaps writing.
    pub(crate) fn existing(&self, name: &str, write: bool) -> Result<File, OpenError> {
        let flags = if write { OFlags::RDWR } else { OFlags::RDONLY };
        self.file(name, flags, 0)
    }

    fn file(&self, name: &str, flags: OFlags, bits: u32) -> Result<File, OpenError> {
        let path = self.path.join(name);
        file_at(&self.fd, name.as_ref(), path, flags, bits, self.owner)
    }

    fn wrong_owner(&self, path: PathBuf, owner: u32) -> OpenError {
        OpenError::WrongOwner {
            path,
            owner,
            want: self.owner,
        }
    }

    /// The names in it.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(self.readable()?)? {
            // A name that is no text is not one of ours.
            if let Ok(name) = entry?.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Returns the time since the file's bytes changed.
    pub(crate) fn age(&self, name: &str) -> io::Result<Duration> {
        let modified = self.stat(name.as_ref())?.st_mtime;
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
        Ok(Duration::from_secs(
            u64::try_from(now.saturating_sub(modified)).unwrap_or(0),
        ))
    }

    /// Removes a file, or the link of that name.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    /// Removes all that is in it. A directory in it that others may write stays, and so ends this.
    pub fn remove_all(&self) -> io::Result<()> {
        for name in self.names()? {
            if self.remove(&name).is_ok() {
                continue;
            }
            self.inner(&name).map_err(io::Error::other)?.remove_all()?;
            unlinkat(&self.fd, name.as_str(), AtFlags::REMOVEDIR)?;
        }
        Ok(())
    }

    /// Renames a file within the directory, and replaces a file of the new name.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.fd, from, &self.fd, to)?)
    }

    /// Returns the target of a link.
    pub fn read_link(&self, name: &str) -> io::Result<PathBuf> {
        use std::os::unix::ffi::OsStringExt as _;
        let bytes = readlinkat(&self.fd, name, Vec::new())?.into_bytes();
        Ok(std::ffi::OsString::from_vec(bytes).into())
    }

    /// Makes a link.
    pub fn make_link(&self, target: &Path, name: &str) -> io::Result<()> {
        Ok(symlinkat(target, &self.fd, name)?)
    }

    /// A descriptor to lock, list or change the directory itself by.
    fn readable(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.fd, ".", flags, Bits::empty())
    }

    pub(crate) fn set_bits(&self, bits: u32) -> io::Result<()> {
        File::from(self.readable()?).set_permissions(Permissions::from_mode(bits))
    }

    /// Locks the pair of segments against changes by others, for as long as the file lives. `None` when another process held
    /// the lock for two seconds: a process that is stopped during a change must not stop all others.
    pub(crate) fn lock(&self) -> io::Result<Option<File>> {
        let lock = File::from(self.readable()?);
        for _ in 0..2000 {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(lock)),
                Err(Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(1)),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(None)
    }

    /// Makes a file without a name. Where the file system does not support that, or the file is to replace another, makes a
    /// hidden one.
    pub(crate) fn scratch(&self, what: &str, named: bool) -> io::Result<Scratch<'_>> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let bits = Bits::RUSR | Bits::WUSR;
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        if !named && Path::new("/proc/self/fd").exists() {
            let nameless = openat(&self.fd, ".", flags | OFlags::TMPFILE, bits);
            if let Ok(fd) = nameless {
                return Ok(Scratch {
                    dir: self,
                    file: File::from(fd),
                    name: None,
                });
            }
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".{what}.{}.{count}.{}", std::process::id(), clock::now());
        let exclusive = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let fd = openat(&self.fd, name.as_str(), flags | exclusive, bits)?;
        Ok(Scratch {
            dir: self,
            file: File::from(fd),
            name: Some(name),
        })
    }
}

/// A file that has no final name yet. A hidden name is removed when this is dropped; it remains only if the process is killed.
pub(crate) struct Scratch<'d> {
    dir: &'d Dir,
    pub(crate) file: File,
    name: Option<String>,
}

impl Scratch<'_> {
    /// Gives the file its name. With `replace` it replaces another file; without, returns false if the name is taken.
    pub(crate) fn publish(&self, to: &str, replace: bool) -> io::Result<bool> {
        let at = &self.dir.fd;
        let named = match &self.name {
            Some(name) if replace => renameat(at, name.as_str(), at, to),
            Some(name) => linkat(at, name.as_str(), at, to, AtFlags::empty()),
            None => {
                let name = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                linkat(CWD, name.as_str(), at, to, AtFlags::SYMLINK_FOLLOW)
            }
        };
        match named {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        // After a rename there is nothing left of it.
        if let Some(name) = &self.name {
            let _ = self.dir.remove(name);
        }
    }
}

/// Returns true if this is the machine's directory in a container whose user namespace has no number for root of the host. Only
/// the process that made the container can have mounted it there: a directory that others could plant has another name.
fn is_roots_outside(path: &Path, owner: u32) -> bool {
    const NO_NUMBER_HERE: u32 = 65_534;
    owner == NO_NUMBER_HERE
        && path == Path::new(SYSTEM_DIR)
        && procfs::text("/proc/self/uid_map")
            .is_ok_and(|map| !map.split_ascii_whitespace().eq(["0", "0", "4294967295"]))
}

/// Opens (and makes, with this mode) a file in a directory that the user named for files of theirs, and that others may
/// write too: it must be ours.
pub fn file_of_ours(path: &Path, flags: OFlags, bits: u32) -> Result<File, OpenError> {
    let us = geteuid().as_raw();
    let whole = path.to_path_buf();
    file_at(CWD, path.as_os_str(), whole, flags, bits, us)
}

fn file_at(
    at: impl AsFd,
    name: &OsStr,
    path: PathBuf,
    flags: OFlags,
    bits: u32,
    owner: u32,
) -> Result<File, OpenError> {
    let op = if flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
        "open for writing"
    } else {
        "open"
    };
    // NONBLOCK: a pipe without a reader is an error, not a wait. On a regular file it means nothing.
    let always = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = match openat(at, name, flags | always, Bits::from_raw_mode(bits)) {
        Ok(fd) => File::from(fd),
        Err(Errno::NOENT) => return Err(OpenError::Missing { path }),
        Err(Errno::LOOP) => {
            let why = "it is a symbolic link; remove it";
            return Err(OpenError::Unsafe { path, why });
        }
        // A pipe without a reader, a socket.
        Err(Errno::NXIO) => {
            let why = "it is not a regular file; remove it";
            return Err(OpenError::Unsafe { path, why });
        }
        Err(errno) => return Err(failed(&path, op, errno)),
    };
    judge(&file, path, owner)?;
    Ok(file)
}

/// Checks the open file, which no renaming changes.
fn judge(file: &File, path: PathBuf, owner: u32) -> Result<(), OpenError> {
    let meta = match file.metadata() {
        Ok(meta) => meta,
        Err(source) => {
            let op = "look at";
            return Err(OpenError::Io { path, op, source });
        }
    };
    if !meta.is_file() {
        let why = "it is not a regular file; remove it";
        return Err(OpenError::Unsafe { path, why });
    }
    if meta.uid() != owner {
        return Err(OpenError::WrongOwner {
            path,
            owner: meta.uid(),
            want: owner,
        });
    }
    if meta.nlink() != 1 {
        let why = "it has a second name (a hard link); remove it";
        return Err(OpenError::Unsafe { path, why });
    }
    Ok(())
}

fn failed(path: &Path, op: &'static str, errno: Errno) -> OpenError {
    OpenError::Io {
        path: path.to_path_buf(),
        op,
        source: errno.into(),
    }
}
