//! Letters for processes: each process keeps one for its life, and the bar, the lanes and the tables use the same `A`.
//! The processes of one gang share a letter, because they take turns together. Two of them on one device get different
//! letters, because there they take turns with each other.

use std::sync::LazyLock;

use gpushare_sample::Who;
use rustc_hash::FxHashMap;

/// Latin letters first; then Greek and Cyrillic letters that resemble no Latin one.
static ALPHABET: LazyLock<Vec<char>> = LazyLock::new(|| {
    let latin = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let greek = "ΓΔΘΛΞΠΣΦΨΩαβγδεζηθλμξπρστφχψω";
    let cyrillic = "БДЖЗИЛЦЧШЩЪЫЭЮЯбвгджзийлмнптцчшщъыьэюя";
    [latin, greek, cyrillic].concat().chars().collect()
});

/// Numbers of letters at the begin of the alphabet: capitals, all Latin ones, and these with digits.
const LETTERS: [usize; 3] = [26, 52, 62];

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

/// The letters of all processes. Processes without a free letter share `*`.
#[derive(Clone, Debug, Default)]
pub struct RowLabels {
    given: FxHashMap<Who, usize>,
    /// The letter of each gang.
    gangs: FxHashMap<u64, usize>,
    /// Position at which the search for a free letter starts: a letter just freed is not reused at once.
    next: usize,
}

impl RowLabels {
    /// Gives letters to new processes and frees those of processes that are not in `present`.
    pub fn update(&mut self, present: &[Present]) {
        self.given
            .retain(|who, _| present.iter().any(|one| one.who == *who));
        self.gangs
            .retain(|gang, _| present.iter().any(|one| one.gang == *gang));
        for (index, one) in present.iter().enumerate() {
            let earlier = &present[..index];
            let taken = |at: &usize| {
                let same = |other: &&Present| self.given.get(&other.who) == Some(at);
                earlier
                    .iter()
                    .filter(same)
                    .any(|other| other.devices & one.devices != 0)
            };
            match self.given.get(&one.who) {
                Some(at) if one.gang == 0 || !taken(at) => {}
                Some(_) => self.give(one.who),
                None => match self.gangs.get(&one.gang) {
                    Some(at) if !taken(at) => {
                        self.given.insert(one.who, *at);
                    }
                    Some(_) => self.give(one.who),
                    None => {
                        self.give(one.who);
                        if let Some(at) = self.given.get(&one.who).filter(|_| one.gang != 0) {
                            self.gangs.insert(one.gang, *at);
                        }
                    }
                },
            }
        }
    }

    /// Gives a process a free letter, if there is one.
    fn give(&mut self, who: Who) {
        let free = |at: &usize| self.given.values().all(|taken| taken != at);
        // As long as a common letter is free, no process gets a rare one.
        let kinds = LETTERS.into_iter().chain([ALPHABET.len()]);
        let in_kind = |count: usize| {
            let mut steps = (0..count).map(|step| (self.next + step) % count);
            steps.find(free)
        };
        match kinds.map(in_kind).find(Option::is_some).flatten() {
            Some(at) => {
                self.given.insert(who, at);
                self.next = at + 1;
            }
            None => {
                self.given.remove(&who);
            }
        }
    }

    /// Returns the letter of a process.
    pub fn letter(&self, who: Who) -> char {
        self.given.get(&who).map_or('*', |at| ALPHABET[*at])
    }

    /// Returns a small number that selects the colour of a process.
    pub fn hue(&self, who: Who) -> usize {
        self.given.get(&who).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::*;

    fn present(all: &[(Who, u64)]) -> Vec<Present> {
        let one = |(who, gang): &(Who, u64)| Present {
            who: *who,
            gang: *gang,
            devices: 0,
        };
        all.iter().map(one).collect()
    }

    #[test]
    fn a_process_keeps_its_letter_and_a_freed_one_rests() {
        let (a, b, c) = (Who::Pid(1), Who::Pid(2), Who::Pid(3));
        let mut letters = RowLabels::default();
        letters.update(&present(&[(a, 0), (b, 0)]));
        assert_eq!((letters.letter(a), letters.letter(b)), ('A', 'B'));
        letters.update(&present(&[(b, 0), (c, 0)]));
        assert_eq!((letters.letter(b), letters.letter(c)), ('B', 'C'));
    }

    #[test]
    fn few_processes_have_capitals_however_many_came_before() {
        let mut letters = RowLabels::default();
        let mut seen = Vec::new();
        for first in 0..300 {
            let few: Vec<(Who, u64)> = (first..first + 3).map(|pid| (Who::Pid(pid), 0)).collect();
            letters.update(&present(&few));
            seen.push(letters.letter(few[2].0));
        }
        assert!(seen.iter().all(char::is_ascii_uppercase), "{seen:?}");
        assert!(seen.windows(2).all(|two| two[0] != two[1]), "{seen:?}");
    }

    #[test]
    fn more_processes_than_letters_share_a_star() {
        let many: Vec<(Who, u64)> = (0..200).map(|pid| (Who::Pid(pid), 0)).collect();
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
    fn the_processes_of_a_gang_share_a_letter_until_the_last_has_gone() {
        let [a, b, c, d] = [1, 2, 3, 4].map(Who::Pid);
        let mut letters = RowLabels::default();
        letters.update(&present(&[(a, 7), (b, 0), (c, 7)]));
        assert_eq!([a, b, c].map(|who| letters.letter(who)), ['A', 'B', 'A']);
        letters.update(&present(&[(b, 0), (c, 7), (d, 7)]));
        assert_eq!([b, c, d].map(|who| letters.letter(who)), ['B', 'A', 'A']);
    }

    #[test]
    fn two_of_a_gang_on_one_device_have_letters_of_their_own() {
        let [a, b, c] = [1, 2, 3].map(Who::Pid);
        let mut letters = RowLabels::default();
        let mut all = present(&[(a, 7), (b, 7), (c, 7)]);
        letters.update(&all);
        assert_eq!([a, b, c].map(|who| letters.letter(who)), ['A', 'A', 'A']);
        for (one, devices) in all.iter_mut().zip([1, 1, 2]) {
            one.devices = devices;
        }
        for _ in 0..2 {
            letters.update(&all);
            assert_eq!([a, b, c].map(|who| letters.letter(who)), ['A', 'B', 'A']);
        }
    }
}
