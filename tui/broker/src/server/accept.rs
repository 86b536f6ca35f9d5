//! Accepting connections, also when descriptors run out.
//!
//! Each connection and each process takes some descriptors. Before the last ones are used, the account with most
//! connections loses its oldest one, and if only processes are left, a new client is refused with a message. When there is
//! no descriptor at all, a spare one is closed to refuse waiting clients. If even that fails, the broker accepts nothing
//! for a moment.

use std::io::ErrorKind;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, accept_with, recv};
use rustix::process::{Resource, getrlimit};
use shm_layout::peer::Peer;
use shm_layout::socket::{DESCRIPTORS, send};
use shm_layout::wire::Message;

use super::{LISTENER, Server, add};
use crate::account::Account;
use crate::client_privileges::{account, user};

/// Pause in accepting when the machine has no descriptors.
const DEAF: Duration = Duration::from_millis(100);
/// Descriptors reserved for answers: segments to hand out now and next, files of `/proc`, the log.
const FOR_ANSWERS: usize = 28 + 2 * DESCRIPTORS;

/// Maximum number of connections that are admitted at a time, and that are examined for that. Most of a flood is refused.
const TAKEN_IN: usize = 64;
const LOOKED_AT: usize = 1024;

/// The reply to a client whose account has used up its allowance.
const TOO_MANY: &str = "your programs have asked the broker of this machine too often in a short time; try again in a few seconds";
/// The reply to a client that cannot be served because the broker is out of descriptors.
const CROWDED: &str = "the broker of this machine has no descriptors left for one more process; end some programs, or raise LimitNOFILE \
                       of gpushare.service";
/// The reply to a client without a pid in the broker's namespace, because nothing about it can be read.
const STRANGER: &str = "the broker runs in a container that does not see this process; start it on the machine itself, or with the \
                        machine's PID namespace (podman: --pid=host, Kubernetes: hostPID: true)";

/// The supply of descriptors for clients.
pub(super) struct Descriptors {
    /// Number of descriptors that processes and connections may use.
    room: usize,
    /// Descriptor that is closed to accept and refuse a client when there are none.
    spare: Option<OwnedFd>,
    /// End of the pause in accepting.
    deaf_until: Option<Instant>,
}

impl Descriptors {
    pub(super) fn new() -> Self {
        Self {
            room: room(),
            spare: spare(),
            deaf_until: None,
        }
    }
}

impl Server {
    /// Accepts waiting clients, a limited number at a time, so that others are served in between.
    pub(super) fn accept(&mut self) {
        let mut taken = 0;
        for _ in 0..LOOKED_AT {
            if taken >= TAKEN_IN {
                return;
            }
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(error) if is_full(error) => {
                    self.turn_one_away(flags);
                    continue;
                }
                Err(_) => return,
            };
            // Checked before the descriptors are used up, because answers need some for a moment.
            if self.is_crowded() && !self.clients.make_room() {
                refuse(&socket, CROWDED);
                continue;
            }
            let peer = match Peer::of(socket.as_fd()) {
                Ok(peer) => peer,
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    refuse(&socket, STRANGER);
                    continue;
                }
                Err(_) => continue,
            };
            let now = Instant::now();
            let Some(whom) = self.admit(&peer, now) else {
                refuse(&socket, TOO_MANY);
                continue;
            };
            let of = whom.1.clone();
            let (number, displaced) = self.clients.take_in(socket, peer, whom, now);
            if displaced {
                self.turns.displaces(&of, now);
            }
            // The client's message has usually arrived by now.
            self.has_said(number);
            taken += 1;
        }
    }

    /// Returns the client's user and the account that is charged for the connection, or `None` if the account's allowance
    /// is used up.
    fn admit(&mut self, peer: &Peer, now: Instant) -> Option<(u32, Account)> {
        // For most clients the uid is the account's, and reading `/proc` is most of the work. So the uid's account is
        // checked first.
        let alleged = Account::User(peer.uid);
        if peer.uid != 0 && self.turns.is_spent(&alleged, now) {
            return None;
        }
        let user = user(peer.pid, peer.uid);
        let of = account(peer.pid, user, "");
        self.turns.connects(&of, now).then_some((user, of))
    }

    /// Returns true if only the descriptors that are reserved for answers are left.
    fn is_crowded(&self) -> bool {
        let tenants = self.tenants.iter().flatten().count();
        // A process with a slot has two descriptors (process and accounts), and so has a connection (socket and process).
        2 * tenants + 2 * (self.clients.count() + 1) > self.descriptors.room
    }

    /// Refuses a client when there is no descriptor for it. Otherwise the poll would report it again and again.
    fn turn_one_away(&mut self, flags: SocketFlags) {
        self.descriptors.spare = None;
        if let Ok(socket) = accept_with(&self.listener, flags) {
            refuse(&socket, CROWDED);
        }
        self.descriptors.spare = spare();
        if self.descriptors.spare.is_none() && epoll::delete(&self.poll, &self.listener).is_ok() {
            // The whole machine has no descriptor left.
            self.descriptors.deaf_until = Some(Instant::now() + DEAF);
        }
    }

    /// Ends the pause in accepting when it is over. Returns its end if it is not.
    pub(super) fn listen_again(&mut self, now: Instant) -> Option<Instant> {
        let descriptors = &mut self.descriptors;
        if descriptors.deaf_until.is_some_and(|until| until <= now) {
            descriptors.spare = descriptors.spare.take().or_else(spare);
            descriptors.deaf_until = match add(&self.poll, &self.listener, LISTENER) {
                Ok(()) => None,
                Err(_) => Some(now + DEAF),
            };
        }
        descriptors.deaf_until
    }
}

fn is_full(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE)
}

/// Sends the reason to a client that is not accepted.
fn refuse(socket: &OwnedFd, why: &str) {
    // The client's message is read first, because a socket that is closed with unread data loses the reply.
    let _ = recv(socket, &mut [0; 1][..], RecvFlags::DONTWAIT);
    let _ = send(socket.as_fd(), &Message::refused(why).encode(), &[]);
}

fn spare() -> Option<OwnedFd> {
    Some(std::fs::File::open("/dev/null").ok()?.into())
}

/// Returns the number of descriptors for processes and connections.
fn room() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(65_536);
    let used = std::fs::read_dir("/proc/self/fd").map_or(16, Iterator::count);
    usize::try_from(limit)
        .unwrap_or(usize::MAX)
        .saturating_sub(used + FOR_ANSWERS)
}
