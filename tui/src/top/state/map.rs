//! Maps by process and device. They are asked thousands of times a second and filled by nobody but ourselves, so a hash
//! of a few instructions does.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map with a quick hash.
pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<Quick>>;

/// Multiplies and turns, a word at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quick(u64);

impl Quick {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        // The table takes its position from the low bits, which a multiplication leaves poor.
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.add(u64::from(*byte));
        }
    }

    fn write_u16(&mut self, word: u16) {
        self.add(word.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.add(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.add(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.add(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.add(word as u64);
    }
}
