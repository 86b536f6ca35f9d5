//! The control segment's types: only the operator writes them; workloads map them read-only.
//!
//! Settings are records of words under a seqlock. [`crate::layout::codec`] defines the meaning of each word and accepts any value.

pub(crate) use gpushare_settings::table::{PROCESS_WORDS, RULE_WORDS, SMALL_WORDS};

use crate::{
    MAX_DEVICES, MAX_GROUPS, MAX_PROCESSES, MAX_RULES,
    layout::{shared, state::Header},
    protocol::primitive::{AtomicU32, AtomicU64},
};

shared! {
    /// The control segment: only the operator writes it.
    pub struct Control: 238912 align 64 {
        0 header: Header,
        /// Counts edits.
        128 generation: AtomicU64,
        /// Changes at every edit; a futex word.
        136 bell: AtomicU32,
        140 _reserved0: AtomicU32,
        144 _reserved: [AtomicU64; 14],
        256 journal: Journal,
        /// Settings that hold for every device that has none of its own.
        1152 common: SmallRecord,
        1344 devices: [SmallRecord; MAX_DEVICES],
        13632 groups: [SmallRecord; MAX_GROUPS],
        25920 slots: [SlotRecord; MAX_PROCESSES],
        /// The first that matches a process holds for it.
        206144 rules: [RuleRecord; MAX_RULES],
    }
}

shared! {
    /// The record that an edit under way replaces. If the operator dies halfway, the next one undoes the edit from it.
    pub(crate) struct Journal: 896 align 64 {
        /// Kind and index of the record + 1; zero when no edit is under way. Written last.
        0 record: AtomicU64,
        /// The generation before the edit.
        8 generation: AtomicU64,
        16 words: [AtomicU64; PROCESS_WORDS],
        712 _reserved: [AtomicU64; 23],
    }
}

shared! {
    /// A process's settings.
    pub(crate) struct SlotRecord: 704 align 64 {
        0 seq: AtomicU64,
        8 words: [AtomicU64; PROCESS_WORDS],
    }
}

shared! {
    /// A device's or group's settings.
    pub(crate) struct SmallRecord: 192 align 64 {
        0 seq: AtomicU64,
        8 words: [AtomicU64; SMALL_WORDS],
    }
}

shared! {
    /// A rule.
    pub(crate) struct RuleRecord: 512 align 64 {
        0 seq: AtomicU64,
        8 words: [AtomicU64; RULE_WORDS],
    }
}
