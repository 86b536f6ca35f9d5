//! One letter for each process, kept for its life: the bar, the lanes and the tables speak of the same `A`.

use crate::sample::Who;
use rustc_hash::FxHashMap;

const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Who has which letter. When all are taken the rest share `*`.
#[derive(Clone, Debug, Default)]
pub struct Letters {
    given: FxHashMap<Who, usize>,
    /// Where to look for a free one: a letter just freed rests before it means someone else.
    next: usize,
}

impl Letters {
    /// Gives the newcomers letters and takes back those of who is not in `present`.
    pub fn update(&mut self, present: &[Who]) {
        self.given.retain(|who, _| present.contains(who));
        for who in present {
            if self.given.contains_key(who) {
                continue;
            }
            let free = |at: &usize| self.given.values().all(|taken| taken != at);
            let candidates = (0..ALPHABET.len()).map(|step| (self.next + step) % ALPHABET.len());
            if let Some(at) = candidates.into_iter().find(free) {
                self.given.insert(*who, at);
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
        letters.update(&[a, b]);
        assert_eq!((letters.letter(a), letters.letter(b)), ('A', 'B'));
        letters.update(&[b, c]);
        assert_eq!((letters.letter(b), letters.letter(c)), ('B', 'C'));
    }

    #[test]
    fn more_processes_than_letters_share_a_star() {
        let many: Vec<Who> = (0..100).map(Who::Pid).collect();
        let mut letters = Letters::default();
        letters.update(&many);
        assert_eq!(letters.letter(many[61]), '9');
        assert_eq!(letters.letter(many[99]), '*');
    }
}
