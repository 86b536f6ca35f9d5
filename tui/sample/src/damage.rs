//! Damage that users of one machine do to each other: a tenant may overwrite the shared state.

use super::{ProcessSample, Sample};

impl Sample {
    /// Reports whether a broker serves these segments, judged from the processes.
    pub fn is_brokered(&self) -> bool {
        self.processes.iter().any(|one| one.vouched.is_some())
    }

    /// Names the slots that contradict their processes, as a sentence.
    pub fn damage(&self) -> Option<String> {
        let forged = self.processes.iter().filter(|one| one.forged);
        let forged = forged.filter_map(|one| Some(one.slot()?.index));
        let mut slots: Vec<u16> = self.damaged.iter().copied().chain(forged).collect();
        slots.sort_unstable();
        slots.dedup();
        let all: Vec<String> = slots.iter().map(u16::to_string).collect();
        (!all.is_empty()).then(|| {
            let (all, verb) = match &all[..] {
                [one] => (format!("slot {one}"), "says"),
                _ => (format!("slots {}", all.join(", ")), "say"),
            };
            format!("a program writes over the shared state: {all} {verb} something else than the broker")
        })
    }

    /// Names the possible culprits and the action that helps.
    pub fn damage_remedy(&self) -> String {
        let vouched = self.processes.iter().filter(|one| one.vouched.is_some());
        let mut users: Vec<&str> = vouched.map(|one: &ProcessSample| &*one.user).collect();
        users.sort_unstable();
        users.dedup();
        let whose = match &users[..] {
            [] => "no program has a slot now".to_owned(),
            [one] => format!("all programs here are {one}'s"),
            [some @ .., last] => format!(
                "one of {} and {last} does it, or their program",
                some.join(", ")
            ),
        };
        format!("{whose}: end the one that does; the broker puts right what it wrote")
    }
}
