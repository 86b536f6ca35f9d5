//! Taking in who connects, and what becomes of them when there are no descriptors left.
//!
//! Each connection and each process takes some. Before the last ones are gone, the user with most connections loses the oldest, and
//! when only processes are left one that comes is refused by a sentence. When there are none at all, whoever waits is turned
//! away with one that was kept for that; when even that one is gone, the broker sleeps a moment.

use std::io::ErrorKind;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, accept_with, recv};
use rustix::process::{Resource, getrlimit};
use shm_layout::broker::Account;
use shm_layout::peer::Peer;
use shm_layout::socket::{DESCRIPTORS, send};
use shm_layout::wire::Message;

use super::{LISTENER, Server, add};
use crate::client_privileges::{account, user};

/// How long nobody is taken in when the machine has no descriptors.
const DEAF: Duration = Duration::from_millis(100);
/// So many descriptors are for answers: segments to hand out, now and next, files of `/proc`, the log.
const FOR_ANSWERS: usize = 28 + 2 * DESCRIPTORS;

/// How many are taken in at a time, and how many are looked at for that: most of a flood is turned away.
const TAKEN_IN: usize = 64;
const LOOKED_AT: usize = 1024;

/// What one is told whose account has spent its allowance.
const TOO_MANY: &str = "your programs have asked the broker of this machine too often in a short time; try again in a few seconds";
/// What one is told for whom there is no descriptor.
const CROWDED: &str = "the broker of this machine has no descriptors left for one more process; end some programs, or raise LimitNOFILE \
                       of gpushare.service";
/// What one is told whom the kernel shows us without a number: who it is cannot be read anywhere.
const STRANGER: &str = "the broker runs in a container that does not see this process; start it on the machine itself, or with the \
                        machine's PID namespace (podman: --pid=host, Kubernetes: hostPID: true)";

/// What there is for those who come.
pub(super) struct Descriptors {
    /// How many processes and connections may have.
    room: usize,
    /// To refuse one who comes when there are none.
    spare: Option<OwnedFd>,
    /// Nobody is taken in until then.
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
    /// Takes in who waits, some at a time: others are heard in between.
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
            // Before there are none: answers need some for a moment.
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
            let number = self.clients.take_in(socket, peer, whom, now);
            // What it asks for is there by now, as a rule.
            self.has_said(number);
            taken += 1;
        }
    }

    /// The user who connects, and whom the connection counts for, unless that account has had too many.
    fn admit(&mut self, peer: &Peer, now: Instant) -> Option<(u32, Account)> {
        // Most are whom their numbers say, and looking that up is most of the work.
        let alleged = Account::User(peer.uid);
        if peer.uid != 0 && self.turns.is_spent(&alleged, now) {
            return None;
        }
        let user = user(peer.pid, peer.uid);
        let of = account(peer.pid, user, "");
        self.turns.connects(&of, now).then_some((user, of))
    }

    /// Whether processes and connections have all descriptors but those that answers need.
    fn is_crowded(&self) -> bool {
        let tenants = self.tenants.iter().flatten().count();
        // Its process and its accounts; its socket and its process.
        2 * tenants + 2 * (self.clients.count() + 1) > self.descriptors.room
    }

    /// Refuses one who comes when there is no descriptor for it: it would come again and again in our events.
    fn turn_one_away(&mut self, flags: SocketFlags) {
        self.descriptors.spare = None;
        if let Ok(socket) = accept_with(&self.listener, flags) {
            refuse(&socket, CROWDED);
        }
        self.descriptors.spare = spare();
        if self.descriptors.spare.is_none() && epoll::delete(&self.poll, &self.listener).is_ok() {
            // The whole machine has none.
            self.descriptors.deaf_until = Some(Instant::now() + DEAF);
        }
    }

    /// Takes in again when it is time; when that is.
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

/// Says why to one who is not taken in.
fn refuse(socket: &OwnedFd, why: &str) {
    // What it asked for is read first: one who finds that its words were thrown away hears no more.
    let _ = recv(socket, &mut [0; 1][..], RecvFlags::DONTWAIT);
    let _ = send(socket.as_fd(), &Message::refused(why).encode(), &[]);
}

fn spare() -> Option<OwnedFd> {
    Some(std::fs::File::open("/dev/null").ok()?.into())
}

/// How many descriptors there are for processes and connections.
fn room() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(65_536);
    let used = std::fs::read_dir("/proc/self/fd").map_or(16, Iterator::count);
    usize::try_from(limit)
        .unwrap_or(usize::MAX)
        .saturating_sub(used + FOR_ANSWERS)
}
