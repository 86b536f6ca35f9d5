//! The way to the broker of a machine: a socket of whole packets, beside which descriptors travel.
//!
//! A broker that hangs must not hang its clients: a reply comes within [`PATIENCE`] or not at all. A client trusts root's
//! socket and checks the descriptors that it gets: a state that another process could truncate is not mapped.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    fs::{SealFlags, fcntl_get_seals},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
        SocketType, connect, recv, recvmsg, sendmsg, socket_with,
        sockopt::{self, Timeout},
    },
};

use crate::{
    broker::wire::{self, Message, Verb},
    files::error::OpenError,
};

pub use crate::files::dir::SOCKET;

/// Longest wait for a reply.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// Interval between attempts of a starting process to reach the next broker. The service manager restarts a broker after 100
/// ms.
const RESTART: Duration = Duration::from_millis(20);
/// Maximum number of descriptors in a reply.
pub const DESCRIPTORS: usize = 16;
/// The seals of memory that is handed out: nothing makes it shorter or longer, and no seal is added.
pub(crate) const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// Sends a request to the broker of a directory, and once more if the broker ended during the first, because another may have
/// taken over. Only for requests that may be repeated.
pub fn ask(dir: &Path, question: &Message) -> Result<(Message, Vec<OwnedFd>), OpenError> {
    let (answer, handed, _) = ask_and_stay(dir, question, Connection::to)?;
    Ok((answer, handed))
}

/// Sends a request, and returns the reply with the connection. A process that starts, and would do without the reply, connects
/// [`to_next`](Connection::to_next).
pub(crate) fn ask_and_stay(
    dir: &Path,
    question: &Message,
    connect: impl Fn(&Path) -> Result<Connection, OpenError>,
) -> Result<(Message, Vec<OwnedFd>, Connection), OpenError> {
    // The message is ready before the broker wakes up for the connection, so that it does not go to sleep again.
    let question = question.encode();
    let mut attempts = 0;
    loop {
        attempts += 1;
        let connection = connect(dir)?;
        match connection.hear(&question) {
            Err(OpenError::NoBroker { source, .. }) if went(&source) && attempts < 3 => {}
            answer => return answer.map(|(answer, handed)| (answer, handed, connection)),
        }
    }
}

fn went(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

/// A connection to the broker.
pub struct Connection {
    socket: OwnedFd,
    path: PathBuf,
}

impl Connection {
    /// Connects to the broker of a directory.
    pub fn to(dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join(SOCKET);
        match Self::connect(&path) {
            Ok(socket) => Ok(Self { socket, path }),
            Err(error) => Err(no_broker(&path, error)),
        }
    }

    /// Connects to the broker. If the last broker is gone and left its socket, connects to one that starts within [`PATIENCE`].
    pub fn to_next(dir: &Path) -> Result<Self, OpenError> {
        let began = Instant::now();
        loop {
            match Self::to(dir) {
                Err(OpenError::NoBroker { source, .. })
                    if source.kind() == io::ErrorKind::ConnectionRefused
                        && began.elapsed() < PATIENCE =>
                {
                    std::thread::sleep(RESTART);
                }
                connected => return connected,
            }
        }
    }

    fn connect(path: &Path) -> io::Result<OwnedFd> {
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        for which in [Timeout::Send, Timeout::Recv] {
            sockopt::set_socket_timeout(&socket, which, Some(PATIENCE))?;
        }
        let connected = || match connect(&socket, &address) {
            Err(Errno::ISCONN) => Ok(()),
            done => Ok(done?),
        };
        patiently(&socket, Timeout::Send, connected)?;
        Ok(socket)
    }

    /// Asks, and waits for the answer and its descriptors.
    pub fn ask(&self, question: &Message) -> Result<(Message, Vec<OwnedFd>), OpenError> {
        self.hear(&question.encode())
    }

    fn hear(&self, question: &[u8]) -> Result<(Message, Vec<OwnedFd>), OpenError> {
        let heard = self.exchange(question);
        let (answer, descriptors) = heard.map_err(|error| no_broker(&self.path, error))?;
        if answer.verb == Verb::Done {
            return Ok((answer, descriptors));
        }
        let why = answer.text(wire::Field::Why);
        Err(OpenError::Refused {
            path: self.path.clone(),
            why: why.unwrap_or("it did not say why").to_owned(),
            exit: answer.number(wire::Field::Exit),
        })
    }

    fn exchange(&self, question: &[u8]) -> io::Result<(Message, Vec<OwnedFd>)> {
        let socket = self.socket.as_fd();
        match patiently(socket, Timeout::Send, || send(socket, question, &[])) {
            // A client that was turned away at once is told the reason.
            Err(error) if went(&error) => {}
            sent => sent?,
        }
        let (bytes, descriptors) = patiently(socket, Timeout::Recv, || receive(socket))?;
        let answer = Message::decode(&bytes).map_err(io::Error::other)?;
        Ok((answer, descriptors))
    }
}

/// Repeats a call that a signal interrupted, for [`PATIENCE`] in all: the socket's own time limit is for one call.
fn patiently<T>(
    socket: impl AsFd,
    which: Timeout,
    mut call: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let began = Instant::now();
    let mut interrupted = false;
    let done = loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                interrupted = true;
                let left = PATIENCE.saturating_sub(began.elapsed());
                if left < Duration::from_micros(1) {
                    break Err(io::ErrorKind::TimedOut.into());
                }
                sockopt::set_socket_timeout(&socket, which, Some(left))?;
            }
            done => break done,
        }
    };
    if interrupted {
        sockopt::set_socket_timeout(&socket, which, Some(PATIENCE))?;
    }
    done
}

fn no_broker(path: &Path, source: io::Error) -> OpenError {
    OpenError::NoBroker {
        path: path.to_path_buf(),
        source: match source.kind() {
            // The error of a socket's time limit.
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => source,
        },
    }
}

/// Sends a packet whole, with descriptors.
pub fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL;
    let sent = sendmsg(socket, &[IoSlice::new(bytes)], &mut beside, flags)?;
    if sent == bytes.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

/// Receives a packet whole, and the descriptors that come with it.
fn receive(socket: BorrowedFd<'_>) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    // Most answers are short: room for the longest one is 64 KiB that the kernel would have to find.
    let (_, length) = recv(socket, &mut [0; 0], RecvFlags::PEEK | RecvFlags::TRUNC)?;
    let mut bytes = vec![0; length.min(wire::MOST)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut beside,
        flags,
    )?;
    let mut descriptors = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(handed) = message {
            descriptors.extend(handed);
        }
    }
    match got.bytes {
        0 => Err(io::ErrorKind::ConnectionReset.into()),
        _ if got.flags.contains(ReturnFlags::TRUNC) => Err(io::ErrorKind::InvalidData.into()),
        // The kernel had descriptors for us, and no number for them was left.
        _ if got.flags.contains(ReturnFlags::CTRUNC) => {
            Err(io::Error::from_raw_os_error(libc::EMFILE))
        }
        length => {
            bytes.truncate(length);
            Ok((bytes, descriptors))
        }
    }
}

/// Returns true if no process can truncate this file while others have it mapped.
pub(crate) fn is_sealed(file: &std::fs::File, size: u64) -> bool {
    has_seals(file, SEALS, size)
}

/// Returns true if a file has this size and these seals.
pub(crate) fn has_seals(file: &std::fs::File, seals: SealFlags, size: u64) -> bool {
    let sealed = fcntl_get_seals(file).is_ok_and(|all| all.contains(seals));
    sealed && file.metadata().is_ok_and(|meta| meta.len() == size)
}

#[cfg(test)]
mod tests {
    use rustix::net::{accept, bind, listen};

    use super::*;

    fn broker(dir: &Path) -> OwnedFd {
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        );
        let socket = socket.expect("room");
        let _ = std::fs::remove_file(dir.join(SOCKET));
        let address = SocketAddrUnix::new(dir.join(SOCKET)).expect("short");
        bind(&socket, &address).expect("ours");
        listen(&socket, 4).expect("bound");
        socket
    }

    #[test]
    fn who_starts_while_a_broker_is_started_again_waits_for_it_a_second() {
        let dir = tempfile::tempdir().expect("a directory");
        drop(broker(dir.path()));
        let question = Message::new(Verb::Status);
        let begun = Instant::now();
        assert!(ask(dir.path(), &question).is_err());
        let asked = |begun: Instant| {
            let answer = ask_and_stay(dir.path(), &question, Connection::to_next);
            let answer = answer.map(|(answer, ..)| answer.verb);
            (answer.map_err(|error| error.to_string()), begun.elapsed())
        };
        let (nothing, took) = asked(begun);
        let why = nothing.expect_err("nobody serves");
        assert!(why.contains("does not answer"), "{why}");
        assert!(took >= PATIENCE);
        let (answer, _) = std::thread::scope(|scope| {
            let starts = scope.spawn(|| asked(Instant::now()));
            std::thread::sleep(5 * RESTART);
            let socket = broker(dir.path());
            let client = accept(&socket).expect("it comes");
            let answer = Message::new(Verb::Done).encode();
            send(client.as_fd(), &answer, &[]).expect("it waits");
            starts.join().expect("no panic")
        });
        assert_eq!(answer, Ok(Verb::Done));
    }
}
