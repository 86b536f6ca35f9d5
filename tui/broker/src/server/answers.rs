//! The answer to each message.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use shm_layout::wire::{self, Field, Message, Verb};
use shm_layout::{ABI_VERSION, SlotId, parse_uuid, socket::DESCRIPTORS};

use super::super::rights::Caller;
use super::super::{edits, pods};
use super::Server;
use crate::client_privileges::{ClientPrivileges, in_container};
use crate::container_of;
use gpushare_base::text::exit::Exit;

/// A slot, as in the answer.
struct Given {
    slot: SlotId,
    member: u32,
    /// Group of which the process is a member.
    group: Option<String>,
}

fn with(answer: Message, given: Given) -> Message {
    let answer = answer
        .with(Field::Slot, given.slot.index)
        .with(Field::Epoch, given.slot.epoch)
        .with(Field::Member, given.member);
    match given.group {
        Some(group) => answer.with(Field::Group, group),
        None => answer,
    }
}

impl Server {
    /// Returns the answer to a message, and the descriptors that are sent with it.
    pub(super) fn answer(&mut self, number: u64, message: &Message) -> (Message, Vec<OwnedFd>) {
        let alone = |message| (message, Vec::new());
        match message.verb {
            Verb::Open => self.open(number, message),
            Verb::Accounts => self.accounts(message),
            Verb::Device => alone(self.device(number, message)),
            Verb::Edit => alone(self.edit(number, message)),
            Verb::Status => alone(self.status()),
            Verb::Upgrade => self.hand_over(number),
            Verb::Done | Verb::Refused => alone(Message::refused("an answer was not asked for")),
        }
    }

    fn open(&mut self, number: u64, message: &Message) -> (Message, Vec<OwnedFd>) {
        let theirs: u32 = message.number(Field::Abi).unwrap_or(0);
        if theirs != ABI_VERSION {
            let why = format!(
                "this program's gpushare uses layout version {theirs} and the broker of this machine version {ABI_VERSION}; \
                 use the library, the tools and the broker of one release"
            );
            return (Message::refused(why), Vec::new());
        }
        let write = message.text(Field::Access) == Some(wire::WORKLOAD);
        let mut files: Vec<OwnedFd> = match self.slots.descriptions(write) {
            Ok(files) => files.map(OwnedFd::from).into(),
            Err(error) => {
                let why = format!("the broker cannot hand out the segments: {error}");
                return (Message::refused(why), Vec::new());
            }
        };
        let wants_slot = write && message.text(Field::Label).is_some();
        let answer = Message::new(Verb::Done).with(Field::Abi, ABI_VERSION);
        let answer = match wants_slot.then(|| self.register(number, message)) {
            None => answer,
            Some(Ok((given, accounts))) => {
                files.push(accounts);
                with(answer, given)
            }
            Some(Err(why)) => answer.with(Field::Why, why),
        };
        (answer, files)
    }

    /// Returns read-only descriptors of slots' accounts.
    fn accounts(&mut self, message: &Message) -> (Message, Vec<OwnedFd>) {
        let asked = wire::slots_of(message.text(Field::Slots).unwrap_or_default());
        let asked = asked.map(|(index, epoch)| SlotId { index, epoch });
        match self.slots.accounts_of(asked.take(DESCRIPTORS)) {
            Ok(found) => {
                let slots = wire::slots(found.iter().map(|(slot, _)| (slot.index, slot.epoch)));
                let files = found.into_iter().map(|(_, file)| file).collect();
                (Message::new(Verb::Done).with(Field::Slots, slots), files)
            }
            Err(error) => (Message::refused(error), Vec::new()),
        }
    }

    /// Assigns a place in the table of devices.
    fn device(&mut self, number: u64, message: &Message) -> Message {
        let Some(uuid) = message.text(Field::Uuid).and_then(parse_uuid) else {
            return Message::refused("a device has a UUID");
        };
        let Some(client) = self.clients.get(number) else {
            return Message::refused("the client has gone");
        };
        match self.slots.enter_device(&client.of, uuid) {
            Ok(()) => Message::new(Verb::Done),
            Err(why) => Message::refused(why),
        }
    }

    /// Gives a client a slot with its accounts. The error says why there is none.
    fn register(&mut self, number: u64, message: &Message) -> Result<(Given, OwnedFd), String> {
        let client = self.clients.get(number);
        let pod = || container_of::pod(client?.peer.pid);
        let group = pods::entered(self.slots.broker.private(), pod, message.text(Field::Group))?;
        let alone = self.tenants.iter().all(Option::is_none);
        match group {
            Some(_) if alone => self.look_around(),
            // The reply does not wait for the round.
            _ => self.look_soon = alone,
        }
        let Some(client) = self.clients.get(number).filter(|one| one.given.is_none()) else {
            return Err("a connection gets one slot".to_owned());
        };
        let peer = &client.peer;
        let pid = peer.pid;
        let who = container_of::look(pid, client.user, peer.gid);
        let account = who
            .as_ref()
            .map(|(_, vouched)| in_container(client.of.clone(), pid, &vouched.container));
        // The pid belongs to the client only while the client has not ended, so this is checked after `/proc` was read.
        let process = peer.process.try_clone();
        let (Some((mut who, vouched)), Some(account), Ok(process), false) =
            (who, account, process, peer.has_ended())
        else {
            return Err("the process that asked has ended".to_owned());
        };
        who.label = container_of::label(message.text(Field::Label).unwrap_or_default());
        self.clear_earlier(pid);
        let (slot, member) =
            self.slots
                .assign(account.clone(), (&who, &vouched), group.as_deref())?;
        self.watch(slot, pid, process);
        let accounts = self.slots.accounts(slot);
        let accounts =
            accounts.map_err(|error| format!("the broker has no descriptor left: {error}"))?;
        if let Some(client) = self.clients.get(number) {
            client.given = Some(slot);
            client.of = account;
        }
        let given = Given {
            slot,
            member,
            group,
        };
        Ok((given, accounts))
    }

    /// Gives back the earlier slots of a process that registers again. It has become another program, or a broker ended
    /// before the process got the reply.
    fn clear_earlier(&mut self, pid: u32) {
        let tenants = self.tenants.iter_mut().flatten();
        for tenant in tenants.filter(|tenant| tenant.pid == pid && !tenant.leaving) {
            if self.slots.broker.is_untouched(tenant.slot) {
                tenant.leave(&self.poll, &self.reaping);
            }
        }
        self.look_at(|tenant| tenant.pid == pid);
    }

    fn edit(&mut self, number: u64, message: &Message) -> Message {
        let words = message.text(Field::Json).unwrap_or_default();
        let Some(client) = self.clients.get(number) else {
            return Message::refused("the client has gone");
        };
        let peer = Arc::clone(&client.peer);
        let Some(caller) = Caller::of(&peer, self.options.admins) else {
            return Message::refused("the process that asked has ended");
        };
        let now = Instant::now();
        if !caller.administrator && !self.clients.may_ask(&caller.account, now) {
            let why = "too many edits in a short time; try again in a few seconds";
            return edits::refusal(Exit::Failed, why.to_owned());
        }
        let clients = &mut self.clients;
        let told = || match caller.administrator {
            true => Some(0),
            false => clients.may_be_told(&caller.account, now),
        };
        edits::make(&self.slots.broker, &self.log, &caller, &peer, words, told)
    }

    fn status(&self) -> Message {
        let mut faults = Vec::new();
        if !self.slots.broker.is_tight() {
            faults.push("root in a container may write the settings: the kernel allows no read-only mount (5.12 does)");
        }
        Message::new(Verb::Done)
            .with(Field::Abi, ABI_VERSION)
            .with(Field::Release, env!("CARGO_PKG_VERSION"))
            .with(Field::Pid, std::process::id())
            .with(
                Field::Json,
                serde_json::to_string(&faults).unwrap_or_default(),
            )
    }

    fn hand_over(&mut self, number: u64) -> (Message, Vec<OwnedFd>) {
        let peer = self
            .clients
            .get(number)
            .map(|client| Arc::clone(&client.peer));
        let root = peer
            .and_then(|peer| Some(peer.uid == 0 && ClientPrivileges::of(&peer)?.rules_the_machine));
        if root != Some(true) {
            let why = "only root may take over from a broker".to_owned();
            return (edits::refusal(Exit::NotPermitted, why), Vec::new());
        }
        let state = self.slots.broker.state().try_clone_to_owned();
        match (state, self.listener.try_clone()) {
            (Ok(state), Ok(listener)) => (Message::new(Verb::Upgrade), vec![state, listener]),
            (Err(error), _) | (_, Err(error)) => (Message::refused(error), Vec::new()),
        }
    }
}
