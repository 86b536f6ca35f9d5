//! The settings of a process, each a row.
//!
//! `settings!` at the end lists them: a field's name, its row, and how it is held when it is in force. From the list come the
//! structs that have a field for each setting (an edit, a record, the values of a rule or a launch, what is in force and the
//! source of each), and every function that goes through them. The rows above it say everything else.
//!
//! `record!` does the same for the settings of a group and of a device.
//!
//! To add one: a row, a line in the list, and a type of its own where its values have a grammar of their own (see
//! [`OnFull`]). Its bits must be free in the record ([`PROCESS_WORDS`]), in a rule's and in a launch's;
//! a test finds two rows that share one. A setting that a person gives at a launch takes a free word of [`LAUNCH_WORDS`].

use crate::grammar::{INHERIT, TextError, parse_integer, parse_percent};
use crate::row::{About, Field, Grammar, Launched, Places, Row};
use crate::value::{Boost, EvictAfter, OnFull, QuotaValue, Reserve, Set, Source, Timed};
use resolve::{choose, converted};
use structs::{record, settings};

mod resolve;
mod structs;
#[cfg(test)]
mod tests;

#[cfg(test)]
use tests::RowTest;

pub use resolve::{LaunchShare, Pace, ReadVariable, put_timed, timed};
pub use structs::SettingEdit;

/// Words of a process's record.
pub const PROCESS_WORDS: usize = 87;
/// Words of a rule's record.
pub const RULE_WORDS: usize = 63;
/// Words of a device's, a group's and the common record.
pub const SMALL_WORDS: usize = 23;
/// Words of a launch: weight and cap; priority and sources; memory refused; idle time; free ones.
pub const LAUNCH_WORDS: usize = 8;

/// The priority of a boost in a process's record, which a flag marks as set, and the word with its end.
const BOOST_PRIORITY: Field = Field::part(2, 32, 32).if_bit(FLAGS, 32 + 5);
const BOOST_UNTIL: usize = 3;
/// The one source of a launch's weight, priority and cap together.
const LAUNCH_SOURCE: Field = Field::part(1, 40, 8);

/// The word of a process's record whose upper half marks the values that are set.
const FLAGS: usize = 0;
/// The words of the values that follow temporary ones: weight and cap, then the flags. The end times begin at `ENDS`.
const THEN: usize = 75;
const THEN_FLAGS: usize = THEN + 1;
const ENDS: usize = THEN + 4;

/// Returns the places of a value in a process's record and of the value that follows it. Flag `flag` marks either as set.
const fn flagged(value: Field, flag: u32, then: Option<(Field, usize)>) -> Option<Places> {
    Some(Places {
        value: value.if_bit(FLAGS, 32 + flag),
        then: match then {
            Some((field, ends)) => Some((field.if_bit(THEN_FLAGS, flag), ends)),
            None => None,
        },
    })
}

/// Returns the places of a switch in a process's record: bit `flag` marks it as set, and the next bit is its value.
const fn switch(flag: u32, ends: usize) -> Option<Places> {
    let then = Field::part(THEN_FLAGS, flag + 1, 1);
    flagged(
        Field::part(FLAGS, 32 + flag + 1, 1),
        flag,
        Some((then, ends)),
    )
}

/// Returns the places of a value that has a whole word, and of the value that follows it.
const fn whole(value: usize, then: usize, ends: usize) -> Option<Places> {
    Some(Places {
        value: Field::word(value),
        then: Some((Field::word(then), ends)),
    })
}

/// Returns the place of a launch's value that no other tool's variable sets.
const fn launched(value: Field) -> Option<Launched> {
    Some(Launched {
        value,
        source: None,
    })
}

fn unsigned(text: &str, least: i64, most: i64) -> Result<u32, TextError> {
    parse_integer(text, least, most).map(|value| u32::try_from(value).unwrap_or(0))
}

const SWITCH: Grammar<bool> = Grammar {
    read: |text| match text {
        "true" | "yes" | "on" => Ok(true),
        "false" | "no" | "off" => Ok(false),
        _ => Err(TextError::UnknownWord {
            text: text.to_owned(),
            known: "yes or no".into(),
        }),
    },
    none: None,
    show: |on| if on { "yes" } else { "no" }.to_owned(),
    refuse: |_| None,
    bits: u128::from,
    of_bits: |bits| Some(bits == 1),
};

/// The weight under the order `fair`.
pub const WEIGHT: Row<u32> = Row {
    about: About {
        word: "weight",
        label: "Weight",
        values: "1..1000",
        hint: "1 to 1000, 100 is normal, or inherit",
        variable: "GPUSHARE_WEIGHT",
        example: "200",
        is_limit: false,
        says: "Share of the device's time relative to others under the order `fair`, 1 to 1000; 100 when not set.",
    },
    grammar: Grammar {
        read: |text| unsigned(text, 1, 1000),
        none: None,
        show: |weight| weight.to_string(),
        refuse: |weight| {
            (!(1..=1000).contains(&weight))
                .then(|| format!("must be between 1 and 1000, not {weight}"))
        },
        bits: |weight| weight as u128,
        of_bits: |bits| Some(bits as u32).filter(|weight| (1..=1000).contains(weight)),
    },
    process: flagged(
        Field::part(1, 0, 32),
        0,
        Some((Field::part(THEN, 0, 32), ENDS)),
    ),
    rule: Some(Field::part(1, 0, 32).if_bit(0, 6)),
    launch: launched(Field::part(0, 0, 32)),
    group: Some(Places {
        value: Field::part(7, 0, 32),
        then: Some((Field::part(9, 0, 32), 11)),
    }),
    device: None,
    precedes_rule: |_, _| false,
};

/// The priority under the order `priority`. A temporary one is a boost.
pub const PRIORITY: Row<i32> = Row {
    about: About {
        word: "priority",
        label: "Priority",
        values: "-20..19",
        hint: "-20 to 19, the highest is next, or inherit",
        variable: "GPUSHARE_PRIORITY",
        example: "5",
        is_limit: false,
        says: "Priority under the order `priority`, -20 to 19; the highest gets the lock next; 0 when not set. Under gpushare mps it also decides the priority in MPS, which stays until the program ends: above 0 is MPS's normal priority, 0 and below is the one below normal. CUDA_MPS_CLIENT_PRIORITY, where it is set, takes precedence.",
    },
    grammar: Grammar {
        read: |text| parse_integer(text, -20, 19).map(|value| i32::try_from(value).unwrap_or(0)),
        none: None,
        show: |priority| priority.to_string(),
        refuse: |priority| {
            (!(-20..=19).contains(&priority))
                .then(|| format!("must be between -20 and 19, not {priority}"))
        },
        bits: |priority| priority as u32 as u128,
        of_bits: |bits| Some(bits as u32 as i32).filter(|priority| (-20..=19).contains(priority)),
    },
    process: flagged(Field::part(2, 0, 32), 1, None),
    rule: Some(Field::part(2, 0, 32).if_bit(0, 7)),
    launch: Some(Launched {
        value: Field::part(1, 0, 32).if_bit(1, 32),
        source: Some(Field::part(1, 48, 8)),
    }),
    group: None,
    device: None,
    precedes_rule: |_, _| false,
};

/// The cap.
pub const CAP: Row<u32> = Row {
    about: About {
        word: "cap",
        label: "Cap",
        values: "1%..100%",
        hint: "1% to 100% of the GPU's time, none or inherit",
        variable: "GPUSHARE_CAP",
        example: "30%",
        is_limit: true,
        says: "Upper limit of the process's share of the device's time, 1 to 100 percent. Under gpushare mps it limits the time in the same way; --mps-threads limits the SMs.",
    },
    grammar: Grammar {
        read: parse_percent,
        // The whole device is no cap.
        none: Some(100),
        show: |cap| format!("{cap}%"),
        refuse: |cap| {
            (!(1..=100).contains(&cap)).then(|| format!("must be between 1% and 100%, not {cap}%"))
        },
        bits: |cap| cap as u128,
        of_bits: |bits| Some(bits as u32).filter(|cap| (1..=100).contains(cap)),
    },
    process: flagged(
        Field::part(1, 32, 32),
        2,
        Some((Field::part(THEN, 32, 32), ENDS + 1)),
    ),
    rule: Some(Field::part(1, 32, 32).if_bit(0, 8)),
    launch: Some(Launched {
        value: Field::part(0, 32, 32),
        source: Some(Field::part(1, 56, 8)),
    }),
    group: Some(Places {
        value: Field::part(7, 32, 32),
        then: Some((Field::part(9, 32, 32), 12)),
    }),
    device: None,
    precedes_rule: |own, rule| own <= rule,
};

/// The pause, which keeps a process from the device.
pub const PAUSED: Row<bool> = Row {
    about: About {
        word: "paused",
        label: "",
        values: "yes|no",
        hint: "",
        variable: "",
        example: "",
        is_limit: false,
        says: "Whether the process is kept off the device until it is resumed: `gpushare pause` and `resume`.",
    },
    grammar: SWITCH,
    process: switch(3, ENDS + 2),
    rule: None,
    launch: None,
    group: None,
    device: None,
    precedes_rule: |_, _| false,
};

/// The action of a process when memory is refused.
pub const ON_FULL: Row<OnFull> = Row {
    about: About {
        word: "on-full",
        label: "When full",
        values: "fail|wait|wait=TIME",
        hint: "fail, wait or wait=10m for memory, or inherit",
        variable: "GPUSHARE_ON_FULL",
        example: "wait=10m",
        is_limit: false,
        says: "What an allocation does that finds no room within the quotas or on the device: `fail` at once, `wait`, or wait for so long; `fail` when not set. It waits in line while its quota, its group's or the device is full, and gets its memory when there is room; after the time it fails as it would have.",
    },
    grammar: OnFull::GRAMMAR,
    process: whole(74, THEN + 2, ENDS + 4),
    rule: Some(Field::word(5)),
    launch: launched(Field::word(2)),
    group: None,
    device: None,
    precedes_rule: |_, _| false,
};

/// The eviction of a process's memory while the process is paused.
pub const EVICT: Row<bool> = Row {
    about: About {
        word: "evict",
        label: "",
        values: "yes|no",
        hint: "",
        variable: "",
        example: "",
        is_limit: false,
        says: "Whether the memory of a paused process leaves its devices: `gpushare pause --evict`.",
    },
    grammar: SWITCH,
    process: switch(6, ENDS + 3),
    rule: None,
    launch: None,
    group: None,
    device: None,
    precedes_rule: |_, _| false,
};

/// The idle time after which the memory of a process is evicted.
pub const EVICT_AFTER: Row<EvictAfter> = Row {
    about: About {
        word: "evict-after",
        label: "Evict after",
        values: "TIME|never",
        hint: "idle time such as 15m, never, or inherit",
        variable: "GPUSHARE_EVICT_AFTER",
        example: "15m",
        is_limit: false,
        says: "When the program has made no request for this long, its memory leaves the device until its next request; `never` when not set. The driver copies all it has on its devices to the host, others use the room, and its next call waits until it is back. What the driver cannot evict is left where it is; gpushare ps --json says why.",
    },
    grammar: EvictAfter::GRAMMAR,
    process: whole(73, THEN + 3, ENDS + 5),
    rule: Some(Field::word(6)),
    launch: launched(Field::word(3)),
    group: None,
    device: whole(18, 20, 21),
    precedes_rule: |_, _| false,
};

/// The pin, which keeps a process's memory on its devices.
pub const PINNED: Row<bool> = Row {
    about: About {
        word: "pin",
        label: "Pin",
        values: "yes|no",
        hint: "yes: its memory stays on the GPU, no, or inherit",
        variable: "GPUSHARE_PIN",
        example: "yes",
        is_limit: false,
        says: "Whether the process's memory stays on the device, whatever others ask for and however long it is idle; `no` when not set. Memory that is evicted comes back by itself. gpushare pin and unpin set it while the program runs.",
    },
    grammar: SWITCH,
    process: switch(8, ENDS + 6),
    rule: Some(Field::part(0, 11, 1).if_bit(0, 10)),
    launch: launched(Field::part(1, 34, 1).if_bit(1, 33)),
    group: None,
    device: None,
    precedes_rule: |_, _| false,
};

/// The quota. Of a process an edit for each device sets it.
pub const MEMORY: Row<QuotaValue> = Row {
    about: About {
        word: "memory",
        label: "Memory",
        values: "SIZE|%|none",
        hint: "a size, a share of the device, none or inherit",
        variable: "GPUSHARE_MEMORY",
        example: "8GiB",
        is_limit: true,
        says: "Quota of the process: a size, a percentage of the device, `none`, or one per device (`0:8GiB,1:50%`).",
    },
    grammar: QuotaValue::GRAMMAR,
    process: None,
    rule: Some(Field::part(3, 0, 8).above(4).if_bit(0, 9)),
    launch: None,
    group: Some(Places {
        value: Field::part(5, 0, 8).above(6),
        then: Some((Field::part(5, 8, 8).above(8), 10)),
    }),
    device: None,
    precedes_rule: |_, _| false,
};

/// The memory that is kept for a process on each of its devices.
pub const RESERVE: Row<Reserve> = Row {
    about: About {
        word: "reserve",
        label: "Reserve",
        values: "SIZE|%|none",
        hint: "memory that no other process takes, or inherit",
        variable: "GPUSHARE_RESERVE",
        example: "8GiB",
        is_limit: true,
        says: "Memory that no other process can take, on each device of the process: a size, a percentage of the device, or `none`; none when not set. At most the quota. It counts from the process's first use of the device to its end. A program under `gpushare run` starts only when it can be given, and waits for that under on-full=wait. Under a broker only that of a rule or an operator counts.",
    },
    grammar: Reserve::GRAMMAR,
    process: Some(Places {
        value: Field::part(THEN_FLAGS, 32, 32),
        // Beside the quota of the first device.
        then: Some((Field::part(4, 32, 32), ENDS + 7)),
    }),
    rule: Some(Field::part(47, 0, 32)),
    launch: launched(Field::part(4, 0, 32)),
    // Of all members together, beside what each has of its own.
    group: Some(Places {
        value: Field::part(13, 0, 32),
        then: Some((Field::part(13, 32, 32), 14)),
    }),
    device: None,
    precedes_rule: |_, _| false,
};

/// Makes room on a full device.
pub const OVERCOMMIT: Row<bool> = Row {
    about: About {
        word: "overcommit",
        label: "Overcommit",
        values: "on|off",
        hint: "on, off or inherit",
        variable: "",
        example: "",
        is_limit: false,
        says: "Whether a process that finds the device full may have idle processes evicted; `off` when not set.",
    },
    grammar: Grammar {
        read: |text| match text {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(TextError::UnknownWord {
                text: text.to_owned(),
                known: "on, off or inherit".into(),
            }),
        },
        none: None,
        show: |on| if on { "on" } else { "off" }.to_owned(),
        refuse: |_| None,
        bits: |on| 1 + u128::from(on),
        of_bits: |bits| match bits {
            1 => Some(false),
            2 => Some(true),
            _ => None,
        },
    },
    process: None,
    rule: None,
    launch: None,
    group: None,
    device: Some(Places {
        value: Field::part(19, 0, 8),
        then: Some((Field::part(19, 8, 8), 22)),
    }),
    precedes_rule: |_, _| false,
};

record! {
    /// An edit of a group's settings. Its members inherit weight and cap, and have memory and reserve together.
    GroupEdit,
    /// The settings of a group as its record has them.
    GroupRecord at group;
    memory = MEMORY: QuotaValue;
    weight = WEIGHT: u32;
    cap = CAP: u32;
    reserve = RESERVE: Reserve;
}

record! {
    /// An edit of what happens to the memory of processes on a device.
    DeviceEdit,
    /// These settings of a device as its record has them.
    DeviceRecord at device;
    evict_after = EVICT_AFTER: EvictAfter;
    overcommit = OVERCOMMIT: bool;
}

settings! {
    weight = WEIGHT: u32, in force u32 = 100, "weight", |set| set, |now| now;
    priority = PRIORITY: i32, in force i32 = 0, "priority", |set| set, |now| now;
    cap = CAP: u32, in force Option<u32> = None, "cap_percent", Some, |now| now.unwrap_or(100);
    paused = PAUSED: bool, in force bool = false, "paused", |set| set, |now| now;
    on_full = ON_FULL: OnFull, in force OnFull = OnFull::Fail, "on_full", |set| set, |now| now;
    evict = EVICT: bool, in force bool = false, "evict", |set| set, |now| now;
    evict_after = EVICT_AFTER: EvictAfter, in force Option<u64> = None, "evict_after_ns",
        EvictAfter::ns, |now| now.map_or(EvictAfter::Never, EvictAfter::Idle);
    pinned = PINNED: bool, in force bool = false, "pinned", |set| set, |now| now;
    reserve = RESERVE: Reserve, in force Reserve = Reserve::Nothing, "reserve", |set| set, |now| now;
}
