//! One letter for each process, kept for its life: the bar, the lanes and the tables speak of the same `A`. The processes of
//! one gang share theirs, for they have their turns as one.

use crate::sample::Who;
use rustc_hash::FxHashMap;

const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Who has which letter. When all are taken the rest share `*`.
#[derive(Clone, Debug, Default)]
pub struct Letters {
    given: FxHashMap<Who, usize>,
    /// The letter of each gang.
    gangs: FxHashMap<u64, usize>,
    /// Where to look for a free one: a letter just freed rests before it means someone else.
    next: usize,
}

impl Letters {
    /// Gives the newcomers letters and takes back those of who is not in `present`. The number is that of a gang, 0 for
    /// none.
    pub fn update(&mut self, present: &[(Who, u64)]) {
        self.given
            .retain(|who, _| present.iter().any(|(one, _)| one == who));
        self.gangs
            .retain(|gang, _| present.iter().any(|(_, one)| one == gang));
        for (who, gang) in present {
            if self.given.contains_key(who) {
                continue;
            }
            if let Some(at) = self.gangs.get(gang) {
                self.given.insert(*who, *at);
                continue;
            }
            let free = |at: &usize| self.given.values().all(|taken| taken != at);
            let candidates = (0..ALPHABET.len()).map(|step| (self.next + step) % ALPHABET.len());
            if let Some(at) = candidates.into_iter().find(free) {
                self.given.insert(*who, at);
                if *gang != 0 {
                    self.gangs.insert(*gang, at);
                }
                self.next = (at + 1) % ALPHABET.len();
            }
        }
    }

    /// The letter.
    pub fn letter(&self, who: Who) -> char {
        self.given
            .get(&who)
            .map_or('*', |at| char::from(ALPHABET[*at]))
    }

    /// A small number that picks its colour.
    pub fn hue(&self, who: Who) -> usize {
        self.given.get(&who).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_keeps_its_letter_and_a_freed_one_rests() {
        let (a, b, c) = (Who::Pid(1), Who::Pid(2), Who::Pid(3));
        let mut letters = Letters::default();
        letters.update(&[(a, 0), (b, 0)]);
        assert_eq!((letters.letter(a), letters.letter(b)), ('A', 'B'));
        letters.update(&[(b, 0), (c, 0)]);
        assert_eq!((letters.letter(b), letters.letter(c)), ('B', 'C'));
    }

    #[test]
    fn more_processes_than_letters_share_a_star() {
        let many: Vec<(Who, u64)> = (0..100).map(|pid| (Who::Pid(pid), 0)).collect();
        let mut letters = Letters::default();
        letters.update(&many);
        assert_eq!(letters.letter(many[61].0), '9');
        assert_eq!(letters.letter(many[99].0), '*');
    }

    #[test]
    fn the_processes_of_a_gang_share_a_letter_until_the_last_has_gone() {
        let [a, b, c, d] = [1, 2, 3, 4].map(Who::Pid);
        let mut letters = Letters::default();
        letters.update(&[(a, 7), (b, 0), (c, 7)]);
        assert_eq!([a, b, c].map(|who| letters.letter(who)), ['A', 'B', 'A']);
        letters.update(&[(b, 0), (c, 7), (d, 7)]);
        assert_eq!([b, c, d].map(|who| letters.letter(who)), ['B', 'A', 'A']);
    }
}
