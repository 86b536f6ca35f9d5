//! The broker's serving thread.

mod accept;
mod answers;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Resource, getrlimit, pidfd_getfd, pidfd_open, setrlimit,
};
use sd_notify::NotifyState;
use shm_layout::peer::{has_ended, unread};
use shm_layout::socket::{Connection, DESCRIPTORS, send};
use shm_layout::text::PathText as _;
use shm_layout::wire::{self, Message, Verb};
use shm_layout::{OpenError, SlotId, locate::SYSTEM_DIR};

use accept::Descriptors;

use super::clients::Clients;
use super::looking::{Look, Looking};
use super::reaping::Reaping;
use super::slots::Slots;
use super::socket;
use super::turns::Turns;
use crate::client_privileges::account;
use crate::container_of;
use gpushare_base::text::exit::Failure;
use gpushare_control::SYSTEM_LOGS;
use gpushare_control::audit::AuditLog;

/// The options of a broker.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory of the socket.
    pub dir: PathBuf,
    /// Group that may use the broker, besides root.
    pub group: Option<u32>,
    /// True if all users may use the broker.
    pub everyone: bool,
    /// Group that may make every edit, besides root.
    pub admins: Option<u32>,
    /// Maximum number of slots of one user.
    pub per_user: usize,
    /// Maximum priority and weight that a launch may set.
    pub launch: (i32, u32),
    /// True if this broker takes over from a running one.
    pub upgrade: bool,
}

/// Interval of the search for processes that became other programs, and for damaged words, while a process has a slot.
const ROUND: Duration = Duration::from_secs(1);
/// Name of the state among the descriptors that the service manager keeps.
const KEPT: &str = "state";

/// Maximum number of messages that are answered before new connections are accepted.
const AT_ONCE: usize = 16;

/// Sources of an event.
const LISTENER: u64 = 0;
const BELL: u64 = 1;
const LOOKED: u64 = 2;
const CLIENT: u64 = 1 << 62;
const PROCESS: u64 = 1 << 63;

/// A process with a slot.
struct Tenant {
    slot: SlotId,
    pid: u32,
    process: OwnedFd,
    /// True while the slot is being given back.
    leaving: bool,
}

impl Tenant {
    /// Orders that the slot is given back. The process's descriptor is removed from the poll, because it would report the
    /// end again and again.
    fn leave(&mut self, poll: &OwnedFd, reaping: &Reaping) {
        self.leaving = true;
        let _ = epoll::delete(poll, &self.process);
        reaping.order(self.slot);
    }
}

struct Server {
    options: Options,
    slots: Slots,
    listener: OwnedFd,
    poll: OwnedFd,
    clients: Clients,
    turns: Turns,
    tenants: Vec<Option<Tenant>>,
    reaping: Reaping,
    looking: Looking,
    log: AuditLog,
    buffer: Vec<u8>,
    descriptors: Descriptors,
    /// Descriptors that were sent with answers and are still to be closed.
    handed: Vec<OwnedFd>,
    /// True if a client was answered since the last sleep.
    answered: bool,
    /// True if a round is to follow soon. Without a process with a slot there are no rounds, so the next one finds what
    /// changed since the last one.
    look_soon: bool,
    /// True once another broker has taken over.
    over: bool,
}

/// Serves until it is killed or another broker takes over.
pub fn serve(options: Options, ready: impl FnOnce(&str)) -> Result<(), Failure> {
    let mut server = Server::start(options)?;
    server.slots.prepare();
    let resumed = match server.slots.broker.resumed() {
        true => "; found the memory of the earlier broker",
        false => "",
    };
    let loose = match server.slots.broker.is_tight() {
        true => "",
        false => {
            "; warning: this kernel or sandbox allows no read-only mount, so root in a container may write the settings"
        }
    };
    ready(&format!(
        "{}: serving{resumed}{loose}",
        server.options.dir.shown()
    ));
    let state = server.slots.broker.state();
    let _ =
        sd_notify::notify_with_fds(&[NotifyState::FdStore, NotifyState::FdName(KEPT)], &[state]);
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    server.run().map_err(Failure::from)
}

fn failed(what: &str, dir: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::failed(format!("cannot {what} {}: {error}", dir.shown()))
}

impl Server {
    fn start(options: Options) -> Result<Self, Failure> {
        let dir = &options.dir;
        raise_limit();
        socket::make_dir(dir).map_err(|error| failed("make", dir, error))?;
        let mut given = kept();
        let mut listener = None;
        if options.upgrade {
            let mut handed = take_over(dir)?;
            listener = handed.pop();
            given.extend(handed);
        }
        let slots = Slots::open(dir, given, options.per_user, options.launch)
            .map_err(|error| Failure::failed(error.to_string()))?;
        let listener = match listener {
            Some(listener) => listener,
            None => socket::make(dir, options.group, options.everyone)
                .map_err(|error| failed("listen in", dir, error))?,
        };
        if dir == Path::new(SYSTEM_DIR) {
            let made = std::fs::create_dir_all(SYSTEM_LOGS);
            made.map_err(|error| failed("make", Path::new(SYSTEM_LOGS), error))?;
        }
        let log = AuditLog::of_the_machine(dir).readable_by(options.admins.unwrap_or(0));
        log.make()
            .map_err(|error| failed("write", &log.path(), error))?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        let reaping = Reaping::start(slots.broker.reaper())?;
        add(&poll, &listener, LISTENER)?;
        let looking = Looking::start()?;
        add(&poll, &reaping.bell(), BELL)?;
        add(&poll, &looking.bell(), LOOKED)?;
        let mut server = Self {
            slots,
            listener,
            poll,
            clients: Clients::default(),
            turns: Turns::default(),
            tenants: std::iter::repeat_with(|| None)
                .take(shm_layout::MAX_PROCESSES)
                .collect(),
            reaping,
            looking,
            log,
            buffer: Vec::with_capacity(wire::MOST),
            descriptors: Descriptors::new(),
            handed: Vec::new(),
            answered: false,
            look_soon: false,
            over: false,
            options,
        };
        server.inherit();
        Ok(server)
    }

    /// Watches the processes with slots from an earlier broker, and gives back the slots of dead ones.
    fn inherit(&mut self) {
        for (slot, who, vouched) in self.slots.inherited() {
            let pid = i32::try_from(vouched.pid).ok().and_then(Pid::from_raw);
            // The descriptor is opened before the check, so that the checked pid belongs to the descriptor's process.
            let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
            match process.filter(|_| container_of::is_still(&vouched)) {
                Some(process) => {
                    let account = account(vouched.pid, who.uid, &vouched.container);
                    self.slots.charge(slot, account);
                    self.watch(slot, vouched.pid, process);
                }
                None => self.reaping.order(slot),
            }
        }
    }

    fn watch(&mut self, slot: SlotId, pid: u32, process: OwnedFd) {
        let index = usize::from(slot.index);
        if add(&self.poll, &process, PROCESS | index as u64).is_err() {
            self.reaping.order(slot);
            return;
        }
        self.tenants[index] = Some(Tenant {
            slot,
            pid,
            process,
            leaving: false,
        });
    }

    fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(64);
        let mut round = Instant::now() + ROUND;
        // True if a client was served since the last round.
        let mut busy = true;
        loop {
            let now = Instant::now();
            let next_client = self.clients.sweep(now);
            self.begin();
            let watches = self.tenants.iter().any(Option::is_some);
            if now >= round {
                self.look_around();
                self.slots.broker.settle();
                busy = false;
                round = now + ROUND;
            }
            let next_round = (watches || busy).then_some(round);
            let deaf = self.listen_again(now);
            let until = next_client.into_iter().chain(next_round).chain(deaf).min();
            let left = until.map(|until| until.saturating_duration_since(now));
            let left = left.into_iter().chain(self.turns.until_next(now)).min();
            let timeout = left.and_then(|left| match left {
                Duration::ZERO => Some(Timespec::default()),
                // Rounded up, because a sleep that ends too early is a loop without work.
                left => Timespec::try_from(left + Duration::from_millis(1)).ok(),
            });
            self.tidy();
            events.clear();
            match epoll::wait(&self.poll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if !busy && !events.is_empty() && !watches {
                // There were no rounds while the broker was idle, so the old time has passed.
                round = Instant::now() + ROUND;
            }
            busy |= !events.is_empty();
            for event in &events {
                let about = event.data.u64();
                match about {
                    LISTENER => self.accept(),
                    BELL => self.given_back(),
                    LOOKED => self.have_let_go(),
                    _ if about & PROCESS != 0 => self.ended((about & !PROCESS) as usize),
                    _ => self.has_said(about & !CLIENT),
                }
                self.begin();
            }
            for _ in 0..AT_ONCE {
                let Some(number) = self.turns.next(Instant::now()) else {
                    break;
                };
                self.hear(number);
                self.begin();
                if self.over {
                    return Ok(());
                }
                self.listen_to(number);
            }
        }
    }

    /// Queues a client with data for its turn. The kernel reports nothing more about the client until then.
    fn has_said(&mut self, number: u64) {
        if let Some(client) = self.clients.get(number) {
            self.turns.wait(&client.of, number, Instant::now());
        }
    }

    /// Has the kernel report once when the client sends more.
    fn listen_to(&mut self, number: u64) {
        let Some(client) = self.clients.get(number) else {
            return;
        };
        let (about, when) = (
            EventData::new_u64(CLIENT | number),
            EventFlags::IN | EventFlags::ONESHOT,
        );
        let done = match std::mem::replace(&mut client.is_watched, true) {
            true => epoll::modify(&self.poll, &client.socket, about, when),
            false => epoll::add(&self.poll, &client.socket, about, when),
        };
        if done.is_err() {
            self.clients.let_go(number);
        }
    }

    /// Receives and answers one message of a client.
    fn hear(&mut self, number: u64) {
        let Some(client) = self.clients.get(number) else {
            return;
        };
        if unread(client.socket.as_fd()) > 0 {
            // A client that leaves answers unread keeps their descriptors open in the kernel, so it is disconnected.
            self.clients.let_go(number);
            return;
        }
        self.buffer.clear();
        // Descriptors that come with the message are not received; the kernel closes them.
        let heard = recv(
            &client.socket,
            spare_capacity(&mut self.buffer),
            RecvFlags::DONTWAIT,
        );
        match heard {
            Err(Errno::AGAIN | Errno::INTR) => return,
            Ok(_) if !self.buffer.is_empty() => {}
            _ => {
                self.clients.let_go(number);
                return;
            }
        }
        let message = Message::decode(&self.buffer);
        let (answer, files) = match message {
            Ok(message) => self.answer(number, &message),
            Err(why) => (Message::refused(why), Vec::new()),
        };
        let over = answer.verb == Verb::Upgrade;
        let answer = match over {
            true => Message::new(Verb::Done),
            false => answer,
        };
        let Some(client) = self.clients.get(number) else {
            return;
        };
        let handed: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
        let sent = send(client.socket.as_fd(), &answer.encode(), &handed);
        self.answered = true;
        self.handed.extend(files);
        if self.handed.len() >= DESCRIPTORS {
            self.handed.clear();
        }
        if sent.is_err() || answer.verb == Verb::Refused {
            self.clients.let_go(number);
        }
        self.over = over && sent.is_ok();
    }

    /// Does the work that can wait until the answered client runs, because the kernel may have woken the client on this
    /// processor.
    fn tidy(&mut self) {
        if !std::mem::take(&mut self.answered) {
            self.handed.clear();
            self.slots.prepare();
        }
    }

    /// Has the broker count the accounts of slots whose connection has closed.
    fn begin(&mut self) {
        let mut any = false;
        for slot in self.clients.begun() {
            self.slots.begin(slot);
            any = true;
        }
        if any && std::mem::take(&mut self.look_soon) {
            self.look_around();
        }
    }

    /// Handles the end of a process.
    fn ended(&mut self, index: usize) {
        let Some(tenant) = self.tenants.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        if !tenant.leaving && has_ended(&tenant.process) {
            tenant.leave(&self.poll, &self.reaping);
        }
    }

    fn given_back(&mut self) {
        for slot in self.reaping.done() {
            self.slots.forget(slot);
            self.tenants[usize::from(slot.index)].take_if(|tenant| tenant.slot == slot);
        }
    }

    /// Does the checks for changes that cause no event.
    fn look_around(&mut self) {
        self.look_at(|_| true);
        for slot in self.slots.repair() {
            self.reaping.order(slot);
        }
    }

    /// Orders a check of these processes, if they may no longer have their slots' accounts mapped. One check covers all
    /// slots of a process.
    fn look_at(&self, which: impl Fn(&Tenant) -> bool) {
        let mut looks: BTreeMap<u32, Look> = BTreeMap::new();
        let tenants = self.tenants.iter().flatten();
        for tenant in tenants.filter(|tenant| !tenant.leaving && which(tenant)) {
            if let Some((accounts, account)) = self.slots.may_have_let_go(tenant.slot) {
                let look = looks.entry(tenant.pid).or_insert_with(|| Look {
                    account: account.clone(),
                    pid: tenant.pid,
                    slots: Vec::new(),
                });
                look.slots.push((tenant.slot, accounts));
            }
        }
        looks
            .into_values()
            .for_each(|look| self.looking.order(look));
    }

    /// Gives back the checked slots that their processes no longer have mapped.
    fn have_let_go(&mut self) {
        for slot in self.looking.found() {
            let tenant = self.tenants[usize::from(slot.index)].as_mut();
            if let Some(tenant) = tenant.filter(|tenant| tenant.slot == slot && !tenant.leaving) {
                tenant.leave(&self.poll, &self.reaping);
            }
        }
    }
}

fn add(poll: &OwnedFd, source: &impl std::os::fd::AsFd, about: u64) -> io::Result<()> {
    Ok(epoll::add(
        poll,
        source,
        EventData::new_u64(about),
        EventFlags::IN,
    )?)
}

/// Returns a duplicate of a descriptor that the service manager passes under a name.
pub fn handed(name: &str) -> Option<OwnedFd> {
    let mut listed = sd_notify::listen_fds_with_names().into_iter().flatten();
    let (fd, _) = listed.find(|(_, given)| given == name)?;
    let this = pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).ok()?;
    pidfd_getfd(this, fd, PidfdGetfdFlags::empty()).ok()
}

/// Returns the descriptors that the service manager kept, each reopened.
fn kept() -> Vec<OwnedFd> {
    let listed = sd_notify::listen_fds_with_names();
    let states = listed
        .into_iter()
        .flatten()
        .filter(|(_, name)| name == KEPT);
    let open = |fd| {
        let path = format!("/proc/self/fd/{fd}");
        std::fs::File::options()
            .read(true)
            .write(true)
            .open(path)
            .ok()
    };
    states
        .filter_map(|(fd, _)| open(fd))
        .map(OwnedFd::from)
        .collect()
}

/// Asks the running broker for the state and the listening socket. That broker then ends.
fn take_over(dir: &Path) -> Result<Vec<OwnedFd>, Failure> {
    let asked = Connection::to(dir).and_then(|broker| broker.ask(&Message::new(Verb::Upgrade)));
    let (_, handed) = asked.map_err(|error| match &error {
        OpenError::NoBroker { source, .. } => match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                let why = "no broker runs there; start it without --upgrade";
                failed("take over in", dir, why)
            }
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                let why = "the broker went meanwhile, or another one took over; gpushare doctor says which one serves";
                failed("take over in", dir, why)
            }
            _ => error.into(),
        },
        _ => error.into(),
    })?;
    match handed.len() {
        2 => Ok(handed),
        _ => Err(failed(
            "take over in",
            dir,
            "the broker that runs handed nothing over",
        )),
    }
}

/// Raises the limit of open descriptors, because each process and each connection needs one.
fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(65_536).min(65_536);
    limit.current = Some(wanted);
    let _ = setrlimit(Resource::Nofile, limit);
}
