//! Letters for processes: the bar, the lanes and the tables use the same `A`, and so does every other dashboard, because the
//! letter follows from the slot of the process. The processes of one gang share the letter of the first, because they take turns
//! together. Two of them on one device have their own letters, because there they take turns with each other. A process without a
//! slot has one of the last small letters.

use std::sync::LazyLock;

use gpushare_sample::{Holding, ProcessSample, SlotId, Who};
use rustc_hash::FxHashMap;

/// Latin letters first; then Greek and Cyrillic letters that resemble no Latin one.
static ALPHABET: LazyLock<Vec<char>> = LazyLock::new(|| {
    let latin = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let greek = "ΓΔΘΛΞΠΣΦΨΩαβγδεζηθλμξπρστφχψω";
    let cyrillic = "БДЖЗИЛЦЧШЩЪЫЭЮЯбвгджзийлмнптцчшщъыьэюя";
    [latin, greek, cyrillic].concat().chars().collect()
});

/// Number of Latin letters, with which the alphabet begins.
const LETTERS: usize = 52;

/// A process that needs a letter.
#[derive(Clone, Copy, Debug)]
pub struct Present {
    /// The identity of the process.
    pub who: Who,
    /// The number of its gang; 0 means none.
    pub gang: u64,
    /// A bit for each device that the process uses.
    pub devices: u64,
}

impl Present {
    /// Returns what a process needs for its letter.
    pub fn of(process: &ProcessSample) -> Self {
        let bit = |holding: &Holding| 1_u64.wrapping_shl(holding.gpu as u32);
        Self {
            who: Who::of(process),
            gang: process.gang,
            devices: process.uses().fold(0, |bits, holding| bits | bit(holding)),
        }
    }
}

/// The letters of all processes. Processes without a letter share `*`.
#[derive(Clone, Debug, Default)]
pub struct RowLabels {
    given: FxHashMap<Who, usize>,
}

impl RowLabels {
    /// Gives letters to new processes and frees those of processes that are not in `present`.
    pub fn update(&mut self, present: &[Present]) {
        let earlier = std::mem::take(&mut self.given);
        let mut gangs: FxHashMap<u64, (usize, u64)> = FxHashMap::default();
        let mut slots: Vec<(u16, &Present)> = present
            .iter()
            .filter_map(|one| Some((slot(one.who)?.index, one)))
            .collect();
        slots.sort_unstable_by_key(|(index, _)| *index);
        for (index, one) in slots {
            let mut at = usize::from(index);
            if one.gang != 0 {
                let (first, devices) = gangs.entry(one.gang).or_insert((at, 0));
                if *devices & one.devices == 0 {
                    at = *first;
                    *devices |= one.devices;
                }
            }
            self.given.insert(one.who, at);
        }
        let others = present.iter().filter(|one| slot(one.who).is_none());
        for one in others {
            let is_free = |at: &usize| self.given.values().all(|taken| taken != at);
            let kept = earlier.get(&one.who).copied().filter(is_free);
            if let Some(at) = kept.or_else(|| (0..LETTERS).rev().find(is_free)) {
                self.given.insert(one.who, at);
            }
        }
    }

    /// Returns the letter of a process.
    pub fn letter(&self, who: Who) -> char {
        let at = self.given.get(&who);
        at.and_then(|at| ALPHABET.get(*at)).copied().unwrap_or('*')
    }

    /// Returns a small number that selects the colour of a process.
    pub fn hue(&self, who: Who) -> usize {
        self.given.get(&who).copied().unwrap_or(0)
    }
}

fn slot(who: Who) -> Option<SlotId> {
    match who {
        Who::Slot(slot) => Some(slot),
        Who::Pid(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::*;

    fn at(index: u16) -> Who {
        Who::Slot(SlotId { index, epoch: 3 })
    }

    fn present(all: &[(Who, u64)]) -> Vec<Present> {
        let one = |(who, gang): &(Who, u64)| Present {
            who: *who,
            gang: *gang,
            devices: 0,
        };
        all.iter().map(one).collect()
    }

    #[test]
    fn a_letter_follows_from_the_slot_whatever_came_before() {
        let [a, c] = [at(0), at(2)];
        let mut long = RowLabels::default();
        for index in 0..64 {
            long.update(&present(&[(at(index), 0)]));
        }
        let mut new = RowLabels::default();
        for letters in [&mut long, &mut new] {
            letters.update(&present(&[(c, 0), (a, 0)]));
            assert_eq!((letters.letter(a), letters.letter(c)), ('A', 'C'));
        }
    }

    #[test]
    fn a_process_without_a_slot_keeps_a_small_letter_that_no_slot_has() {
        let (one, other) = (Who::Pid(1), Who::Pid(2));
        let mut letters = RowLabels::default();
        letters.update(&present(&[(one, 0), (at(0), 0), (other, 0)]));
        assert_eq!([one, other].map(|who| letters.letter(who)), ['z', 'y']);
        letters.update(&present(&[(other, 0), (at(51), 0)]));
        assert_eq!([other, at(51)].map(|who| letters.letter(who)), ['y', 'z']);
        letters.update(&present(&[(other, 0), (at(50), 0)]));
        assert_eq!([other, at(50)].map(|who| letters.letter(who)), ['z', 'y']);
    }

    #[test]
    fn more_processes_than_letters_share_a_star() {
        let many: Vec<(Who, u64)> = (0..200).map(|index| (at(index), 0)).collect();
        let mut letters = RowLabels::default();
        letters.update(&present(&many));
        assert_eq!(letters.letter(many[61].0), '9');
        assert_eq!(letters.letter(many[62].0), 'Γ');
        assert_eq!(letters.letter(many[199].0), '*');
        let earlier = |at: usize| &ALPHABET[..at];
        assert!((0..ALPHABET.len()).all(|at| !earlier(at).contains(&ALPHABET[at])));
        assert!(
            ALPHABET
                .iter()
                .all(|letter| letter.to_string().width() == 1)
        );
    }

    #[test]
    fn the_processes_of_a_gang_share_a_letter_but_not_on_one_device() {
        let [a, b, c] = [0, 1, 2].map(at);
        let mut letters = RowLabels::default();
        let mut all = present(&[(a, 7), (b, 7), (c, 7)]);
        letters.update(&all);
        assert_eq!([a, b, c].map(|who| letters.letter(who)), ['A', 'A', 'A']);
        for (one, devices) in all.iter_mut().zip([1, 1, 2]) {
            one.devices = devices;
        }
        letters.update(&all);
        assert_eq!([a, b, c].map(|who| letters.letter(who)), ['A', 'B', 'A']);
    }
}
