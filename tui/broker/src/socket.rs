//! The broker's socket. It is made in the directory that containers mount, and a broker that takes over replaces it.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use shm_layout::OpenError;
use shm_layout::socket::{SOCKET, ask};
use shm_layout::wire::{Field, Message, Verb};

/// Maximum number of connections that wait to be accepted; the kernel's own limit is lower.
const QUEUE: i32 = 4096;
/// Temporary name of a new socket before it replaces the old one.
const HIDDEN: &str = ".socket.new";

/// Listens in `dir`, for the members of a group, for all users, or for root alone. An existing socket is replaced in one
/// step, so that clients always find one.
pub fn make(dir: &Path, group: Option<u32>, everyone: bool) -> io::Result<OwnedFd> {
    let hidden = dir.join(HIDDEN);
    match fs::remove_file(&hidden) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(&hidden)?)?;
    fs::set_permissions(
        &hidden,
        Permissions::from_mode(if everyone { 0o666 } else { 0o660 }),
    )?;
    chown(&hidden, Some(0), group.or(Some(0)))?;
    listen(&socket, QUEUE)?;
    fs::rename(&hidden, dir.join(SOCKET))?;
    Ok(socket)
}

/// Makes the directory of the socket. All users may enter it, and root alone may write it.
pub fn make_dir(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    File::open(dir)?.set_permissions(Permissions::from_mode(0o755))
}

/// The state that a broker reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerStatus {
    /// Pid of the broker.
    pub pid: u32,
    /// Release of the broker.
    pub release: String,
    /// ABI version of the segments.
    pub abi: u32,
    /// Problems, as sentences.
    pub faults: Vec<String>,
}

/// Asks the broker of a directory for its state.
pub fn status(dir: &Path) -> Result<BrokerStatus, OpenError> {
    let (answer, _) = ask(dir, &Message::new(Verb::Status))?;
    let faults = answer.text(Field::Json).unwrap_or_default();
    Ok(BrokerStatus {
        pid: answer.number(Field::Pid).unwrap_or(0),
        release: answer.text(Field::Release).unwrap_or_default().to_owned(),
        abi: answer.number(Field::Abi).unwrap_or(0),
        faults: serde_json::from_str(faults).unwrap_or_default(),
    })
}
