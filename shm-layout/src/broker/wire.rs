//! Messages between the broker and its clients: the name of each message and field, defined once for both sides.
//!
//! One packet is one message: lines of text, each a name and a value. Any bytes may arrive; bytes that are no message are
//! refused with a sentence. A side skips fields that it does not know, so that fields may be added.
//!
//! ```text
//!   gpushare 1 open               gpushare 1 done              gpushare 1 refused
//!   abi 5                         abi 5                        why all slots of user 1000 are taken; end …
//!   access workload               slot 3
//!   label train                   epoch 1
//!                                 + state, control, identity
//! ```

use std::{fmt, str::FromStr};

/// Version of the messages. It grows when a message of an older side would be misunderstood.
pub const VERSION: u32 = 1;
/// The longest message.
pub const MOST: usize = 64 << 10;
/// First word of every message.
const MAGIC: &str = "gpushare";

/// Declares words of the wire: the enum, its word and back.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$one:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$one])* $variant,)*
        }

        impl $name {
            /// Returns the word on the wire.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            fn of_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

words! {
    /// The kind of a message.
    Verb {
        /// Requests the segments: `abi`, `access`. The reply carries three descriptors: state, control, identity. With a
        /// `label`, and a `group`, it requests a slot as well. The reply then has `slot`, `epoch`, `member` and `group`, and a
        /// fourth descriptor, the accounts to write, or `why` there is none. A client that closes the connection has mapped
        /// them.
        Open = "open",
        /// Asks for the accounts of `slots`, to read. The answer: `slots`, and a descriptor for each in their order.
        Accounts = "accounts",
        /// Asks that a device, `uuid`, have a place in the registry.
        Device = "device",
        /// Asks for an edit: `json`. The answer: `json`.
        Edit = "edit",
        /// Requests the broker's state. The reply: `abi`, `release`, `pid`, `json`.
        Status = "status",
        /// Another broker takes over; root alone may ask. The answer carries two descriptors: state, the listening socket.
        Upgrade = "upgrade",
        /// Answers: it is done.
        Done = "done",
        /// Answers: it is not, and `why`.
        Refused = "refused",
    }
}

words! {
    /// A value in a message.
    Field {
        /// The segments' version.
        Abi = "abi",
        /// `workload` for a state to write, `viewer` for one to read.
        Access = "access",
        /// The program's release.
        Release = "release",
        /// A process.
        Pid = "pid",
        /// The name of a process.
        Label = "label",
        /// The name of its group.
        Group = "group",
        /// A slot's index.
        Slot = "slot",
        /// A slot's life.
        Epoch = "epoch",
        /// Slots with their lives.
        Slots = "slots",
        /// A device.
        Uuid = "uuid",
        /// The place of its group in the table, + 1.
        Member = "member",
        /// A document.
        Json = "json",
        /// The reason of a refusal, as a sentence.
        Why = "why",
        /// The exit code of a refusal.
        Exit = "exit",
    }
}

/// `access`: state to be written.
pub const WORKLOAD: &str = "workload";
/// `access`: all to be read.
pub const VIEWER: &str = "viewer";

/// Slots and their lives, as a value.
pub fn slots(slots: impl Iterator<Item = (u16, u32)>) -> String {
    let words: Vec<String> = slots
        .map(|(index, epoch)| format!("{index}:{epoch}"))
        .collect();
    words.join(" ")
}

/// Decodes a list of slots. Parts that are no slot are skipped.
pub fn slots_of(value: &str) -> impl Iterator<Item = (u16, u32)> {
    value.split(' ').filter_map(|word| {
        let (index, epoch) = word.split_once(':')?;
        Some((index.parse().ok()?, epoch.parse().ok()?))
    })
}

/// One packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Kind of the message.
    pub verb: Verb,
    fields: Vec<(Field, String)>,
}

/// The reason that bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoMessage {
    /// The bytes are no gpushare message.
    Foreign,
    /// The message has another version.
    Version(u32),
    /// A word that this side does not know.
    Unknown,
}

impl fmt::Display for NoMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("this is no message of gpushare"),
            Self::Version(theirs) => write!(
                f,
                "a message of version {theirs} met a program that speaks version {VERSION}; \
                 use the library, the tools and the broker of one release"
            ),
            Self::Unknown => f.write_str(
                "a message that this release does not know; use the library, the tools and the broker of one release",
            ),
        }
    }
}

impl std::error::Error for NoMessage {}

impl Message {
    /// A message without values.
    pub fn new(verb: Verb) -> Self {
        Self {
            verb,
            fields: Vec::new(),
        }
    }

    /// A refusal.
    pub fn refused(why: impl fmt::Display) -> Self {
        Self::new(Verb::Refused).with(Field::Why, why)
    }

    /// Adds a field with a value.
    #[must_use]
    pub fn with(mut self, field: Field, value: impl fmt::Display) -> Self {
        self.fields.push((field, value.to_string()));
        self
    }

    /// A value.
    pub fn text(&self, field: Field) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields.find_map(|(known, value)| (*known == field).then_some(value.as_str()))
    }

    /// A value that is a number.
    pub fn number<T: FromStr>(&self, field: Field) -> Option<T> {
        self.text(field)?.parse().ok()
    }

    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = format!("{MAGIC} {VERSION} {}\n", self.verb.word());
        for (field, value) in &self.fields {
            text.push_str(field.word());
            text.push(' ');
            for character in value.chars() {
                match character {
                    '%' => text.push_str("%25"),
                    '\n' => text.push_str("%0A"),
                    other => text.push(other),
                }
            }
            text.push('\n');
        }
        text.into_bytes()
    }

    /// Out of any bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, NoMessage> {
        let text = std::str::from_utf8(bytes).map_err(|_| NoMessage::Foreign)?;
        // Cut off in transit, or never complete.
        let whole = text.strip_suffix('\n').ok_or(NoMessage::Foreign)?;
        let mut lines = whole.split('\n');
        let mut head = lines.next().unwrap_or_default().split(' ');
        if head.next() != Some(MAGIC) {
            return Err(NoMessage::Foreign);
        }
        let version = head.next().and_then(|version| version.parse().ok());
        match version.ok_or(NoMessage::Foreign)? {
            VERSION => {}
            theirs => return Err(NoMessage::Version(theirs)),
        }
        let verb = head.next().and_then(Verb::of_word);
        let fields = lines.filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            // The percent sign last: its result is not decoded again.
            let value = value.replace("%0A", "\n").replace("%25", "%");
            Some((Field::of_word(name)?, value))
        });
        Ok(Self {
            verb: verb.ok_or(NoMessage::Unknown)?,
            fields: fields.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_said_is_heard(label in ".{0,80}", slot in any::<u16>()) {
            let said = Message::new(Verb::Open).with(Field::Label, &label).with(Field::Slot, slot);
            let heard = Message::decode(&said.encode()).expect("a message");
            prop_assert_eq!(heard.text(Field::Label), Some(label.as_str()));
            prop_assert_eq!(heard.number::<u16>(Field::Slot), Some(slot));
        }

        #[test]
        fn any_bytes_are_a_message_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Message::decode(&bytes);
        }
    }

    #[test]
    fn slots_are_heard_as_they_were_said_and_what_is_none_is_passed_over() {
        let all = [(3, 1), (255, u32::MAX)];
        assert!(slots_of(&slots(all.into_iter())).eq(all));
        assert!(slots_of("x 7 3:1 :: 99999:1 4:-1 255:4294967295").eq(all));
    }

    #[test]
    fn a_line_end_in_a_value_adds_no_field() {
        let said = Message::new(Verb::Open).with(Field::Label, "a\nslot 7\n%0A");
        let heard = Message::decode(&said.encode()).expect("a message");
        assert_eq!(heard.text(Field::Label), Some("a\nslot 7\n%0A"));
        assert_eq!(heard.text(Field::Slot), None);
    }

    #[test]
    fn another_version_is_told_from_another_program() {
        assert_eq!(
            Message::decode(b"gpushare 2 open\n"),
            Err(NoMessage::Version(2))
        );
        assert_eq!(
            Message::decode(b"gpushare 1 dance\n"),
            Err(NoMessage::Unknown)
        );
        assert_eq!(
            Message::decode(b"GET / HTTP/1.1\r\n\n"),
            Err(NoMessage::Foreign)
        );
        assert_eq!(
            Message::decode(b"gpushare 1 open"),
            Err(NoMessage::Foreign),
            "half a message"
        );
        let newer = Message::decode(b"gpushare 1 open\nabi 5\nnews of tomorrow\n");
        assert_eq!(newer.expect("a message").number(Field::Abi), Some(5));
    }
}
