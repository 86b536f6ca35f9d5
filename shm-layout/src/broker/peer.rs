//! The peer of a socket, as the kernel recorded it when the connection was made. Nothing that the peer does later changes it.

#![expect(
    unsafe_code,
    reason = "socket options that rustix does not know, and one whose pid it takes to be no zero"
)]

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
        unix::fs::MetadataExt as _,
    },
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

// The kernel's ABI (asm-generic/socket.h); not all libcs name them.
const SO_PEERGROUPS: i32 = 59;
const SO_PEERPIDFD: i32 = 77;
// The request of nsfs for a parent namespace (linux/nsfs.h).
const NS_GET_PARENT: libc::Ioctl = 0xb702;
const NS_GET_OWNER_UID: libc::Ioctl = 0xb704;

/// The process that connected.
#[derive(Debug)]
pub struct Peer {
    /// Pid in our namespace.
    pub pid: u32,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// The process itself, whatever becomes of its number.
    pub process: OwnedFd,
}

impl Peer {
    /// Reads the peer of a connected socket. Fails where the process is gone, and with [`io::ErrorKind::Unsupported`] where our
    /// PID namespace does not have it.
    pub fn of(socket: BorrowedFd<'_>) -> io::Result<Peer> {
        let credentials = credentials(socket)?;
        // The kernel's word for a process of another container, or of the machine around ours.
        let Some(pid) = Pid::from_raw(credentials.pid) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let process = match pidfd(socket)? {
            Some(process) => process,
            // A kernel before 6.5. A pid that has passed to another process is found by its user, below.
            None => pidfd_open(pid, PidfdFlags::empty())?,
        };
        let peer = Peer {
            pid: pid.as_raw_nonzero().get().unsigned_abs(),
            uid: credentials.uid,
            gid: credentials.gid,
            groups: groups(socket)?,
            process,
        };
        if peer.has_ended() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(peer)
    }

    /// Returns true if the process has ended. What was read under its pid in `/proc` may then belong to another process.
    pub fn has_ended(&self) -> bool {
        has_ended(&self.process)
    }
}

/// Returns the user who made the user namespace that a process is in, or the outermost around it that is not ours. `None` where
/// the process is in ours, which has the inode `ours`. Fails where the kernel does not report it.
fn namespace_owner(pid: u32, ours: u64) -> io::Result<Option<u32>> {
    let inode = |file: &File| file.metadata().map(|meta| meta.ino());
    let path = format!("/proc/{pid}/ns/user");
    if std::fs::metadata(&path)?.ino() == ours {
        return Ok(None);
    }
    let mut namespace = File::open(path)?;
    // The kernel nests no deeper than 32.
    for _ in 0..64 {
        // SAFETY: takes a descriptor that is open, and makes one.
        let parent = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_PARENT) };
        if parent < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel made this descriptor for us just now.
        let parent = File::from(unsafe { OwnedFd::from_raw_fd(parent) });
        if inode(&parent)? != ours {
            namespace = parent;
            continue;
        }
        let mut owner: libc::uid_t = 0;
        // SAFETY: the place is ours and what the kernel writes.
        let told = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_OWNER_UID, &raw mut owner) };
        return match told {
            0 => Ok(Some(owner)),
            _ => Err(io::Error::last_os_error()),
        };
    }
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns the user who made the user namespace that a process is in, or the outermost around it that is not ours. `None` where
/// the process is in our namespace or in one of root's, and where the kernel does not report it.
pub fn namespace_maker(pid: u32) -> Option<u32> {
    let ours = std::fs::metadata("/proc/self/ns/user").ok()?.ino();
    let owner = namespace_owner(pid, ours).ok()?;
    owner.filter(|owner| *owner != 0)
}

/// Returns true if the process of a pidfd has ended.
pub fn has_ended(process: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Returns how many bytes, as the kernel counts them, the other end of a socket has not read yet; 0 where that is unknown.
pub fn unread(socket: BorrowedFd<'_>) -> usize {
    let mut bytes: i32 = 0;
    // SAFETY: the place is ours and what the kernel writes.
    let told = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    match told {
        0 => usize::try_from(bytes).unwrap_or(0),
        _ => 0,
    }
}

fn credentials(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the place is ours and as long as we say.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut size,
        )
    };
    if result == 0 {
        Ok(credentials)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// `None` where the kernel has no pidfd for a socket's peer.
fn pidfd(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let mut fd: i32 = -1;
    let mut size = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the place is ours and as long as we say.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut size,
        )
    };
    if result == 0 && fd >= 0 {
        // SAFETY: the kernel made this descriptor for us just now.
        return Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOPROTOOPT) => Ok(None),
        _ => Err(error),
    }
}

fn groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; 64];
    loop {
        let mut size = (groups.len() * size_of::<u32>()) as libc::socklen_t;
        // SAFETY: the place is ours and as long as we say.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut size,
            )
        };
        let wanted = size as usize / size_of::<u32>();
        if result == 0 {
            groups.truncate(wanted);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ERANGE) if wanted > groups.len() => groups.resize(wanted, 0),
            // A kernel before 4.13: then they are not known.
            Some(libc::ENOPROTOOPT) => return Ok(Vec::new()),
            _ => return Err(error),
        }
    }
}
