//! The hash by which the library finds out which parts of a process's memory have changed: the kernel that computes it
//! on the device, and the same computation on the processor.
//!
//! A chunk consists of 32-bit words. Thread `t` of [`THREADS`] reads 64 bytes in each of 64 steps: in step `q` the four
//! times four words at `q * 32768 + v * 8192 + t * 16` with `v` from 0 to 3. With p = 2^61-1 and keys that are random:
//!
//! ```text
//!   sum(t) = Σ over the steps q of  step^(63-q) * Σ over the 16 words of  key * word          (mod p)
//!   hash   = Σ over the threads t of  sum(t) * Π over the set bits of t of  that bit's key    (mod p)
//! ```
//!
//! That is done twice, with keys of their own. The word keys have 56 bits, the others 60.
//!
//! The difference of two chunks' hashes is a polynomial in the keys. If the chunks differ, it is not zero, because each word
//! has a monomial of its own, and a difference of two words is less than p. Its degree is 1 in the word keys, 63 in the step
//! key and 9 in the keys of the bits. So by the lemma of Schwartz and Zippel both hashes are equal with a probability of at
//! most (1/2^56 + 72/2^60)^2 < 2^-107, over the choice of the keys. A chunk of zeros has the hash [`ZEROS`], and another one
//! has it with at most the same probability.

use std::ffi::CStr;

/// Size of a chunk, in bytes.
pub const CHUNK: u64 = 2 << 20;
/// Threads of the kernel's block; a chunk has one block.
pub const THREADS: u32 = 512;
/// The kernel's name.
pub const NAME: &CStr = c"gpushare_chunk_hash";
/// The kernel.
pub const PTX: &CStr = {
    let text = concat!(include_str!("chunk_hash.ptx"), "\0");
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a NUL in the text"),
    }
};

/// The hash of a chunk.
pub type Hash = [u64; 2];
/// The hash of a chunk of zeros.
pub const ZEROS: Hash = [0; 2];

const STEPS: usize = CHUNK as usize / (THREADS as usize * 64);
const VECTORS: usize = 4;
const WORDS: usize = 16;
const BITS: usize = THREADS.trailing_zeros() as usize;
const PRIME: u64 = (1 << 61) - 1;

/// The keys, as the kernel takes them.
#[repr(C, align(16))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The low and the high 28 bits of the key of each word.
    words: [[[u32; 2]; WORDS]; 2],
    step: [u64; 2],
    /// The highest bit's key first.
    bits: [[u64; BITS]; 2],
}

const _: () = assert!(size_of::<Keys>() == 416, "as `chunk_hash.ptx` says");

impl Keys {
    /// Makes keys of random numbers.
    pub fn new(mut random: impl FnMut() -> u64) -> Self {
        let mut half = || random() as u32 >> 4;
        let words = std::array::from_fn(|_| std::array::from_fn(|_| [half(), half()]));
        let mut key = || random() >> 4;
        Self {
            words,
            step: [key(), key()],
            bits: std::array::from_fn(|_| std::array::from_fn(|_| key())),
        }
    }

    /// Reads keys from a kernel's parameters.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (halves, longs) = bytes.get(..size_of::<Self>())?.split_at(8 * 2 * WORDS);
        let word =
            |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| halves[4 * at + byte]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| longs[8 * at + byte]));
        Some(Self {
            words: std::array::from_fn(|side| {
                std::array::from_fn(|at| {
                    std::array::from_fn(|half| word((side * WORDS + at) * 2 + half))
                })
            }),
            step: [long(0), long(1)],
            bits: std::array::from_fn(|side| std::array::from_fn(|at| long(2 + side * BITS + at))),
        })
    }
}

/// Completes a hash that the kernel has written.
pub fn reduced(words: Hash) -> Hash {
    words.map(|word| word % PRIME)
}

/// Returns the hash of a chunk.
pub fn of(keys: &Keys, chunk: &[u8]) -> Hash {
    assert_eq!(chunk.len() as u64, CHUNK);
    if chunk
        .as_chunks::<16>()
        .0
        .iter()
        .all(|bytes| *bytes == [0; 16])
    {
        return ZEROS;
    }
    [0, 1].map(|side| one(&keys.words[side], keys.step[side], &keys.bits[side], chunk))
}

fn one(words: &[[u32; 2]; WORDS], step: u64, bits: &[u64; BITS], chunk: &[u8]) -> u64 {
    const ROW: usize = THREADS as usize * 16;
    let mut sums = [0_u64; THREADS as usize];
    for rows in chunk.chunks_exact(VECTORS * ROW) {
        for (thread, sum) in sums.iter_mut().enumerate() {
            let (mut low, mut high) = (0, 0);
            for (vector, keys) in words.chunks_exact(4).enumerate() {
                let at = vector * ROW + thread * 16;
                let (found, _) = rows[at..at + 16].as_chunks::<4>();
                for (word, key) in found.iter().zip(keys) {
                    let word = u64::from(u32::from_le_bytes(*word));
                    low += word * u64::from(key[0]);
                    high += word * u64::from(key[1]);
                }
            }
            let new = u128::from(low) + (u128::from(high) << 28);
            *sum = modulo(u128::from(*sum) * u128::from(step) + new);
        }
    }
    for (level, key) in bits.iter().enumerate() {
        let half = sums.len() >> (level + 1);
        for thread in 0..half {
            let upper = u128::from(sums[thread + half]) * u128::from(*key);
            sums[thread] = modulo(upper + u128::from(sums[thread]));
        }
    }
    sums[0]
}

fn modulo(value: u128) -> u64 {
    let folded = (value as u64 & PRIME) + (value >> 61) as u64;
    let folded = (folded & PRIME) + (folded >> 61);
    if folded >= PRIME {
        folded - PRIME
    } else {
        folded
    }
}

const _: () = assert!(STEPS == 64, "as the bound says");

#[cfg(test)]
mod tests {
    use super::*;

    /// A generator that the check on a GPU has too.
    fn numbers(mut state: u64) -> impl FnMut() -> u64 {
        move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state ^ state >> 29
        }
    }

    fn chunk(seed: u64) -> Vec<u8> {
        let mut next = numbers(seed);
        (0..CHUNK / 8).flat_map(|_| next().to_le_bytes()).collect()
    }

    #[test]
    fn the_hash_is_that_of_the_kernel() {
        // Computed from the text of the kernel.
        let keys = Keys::new(numbers(1));
        assert_eq!(
            of(&keys, &chunk(2)),
            [1_050_450_556_640_793_109, 2_289_568_015_521_637_514]
        );
        assert_eq!(
            of(&keys, &vec![0xff; CHUNK as usize]),
            [1_575_290_256_181_888_805, 2_068_232_346_053_447_311]
        );
    }

    #[test]
    fn one_bit_changes_it_and_zeros_have_their_own() {
        let keys = Keys::new(numbers(3));
        let mut bytes = vec![0; CHUNK as usize];
        assert_eq!(of(&keys, &bytes), ZEROS);
        let mut seen = vec![ZEROS];
        for bit in [
            0,
            31,
            32,
            127,
            128,
            8 * 8192,
            8 * 32768 + 5,
            8 * CHUNK as usize - 1,
        ] {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let hash = of(&keys, &bytes);
            assert!(!seen.contains(&hash), "bit {bit}");
            seen.push(hash);
        }
        assert_ne!(of(&Keys::new(numbers(4)), &bytes), of(&keys, &bytes));
    }

    #[test]
    fn keys_are_read_as_they_are_written() {
        let mut number = 0;
        let keys = Keys::new(|| {
            number += 1 << 40 | 16;
            number
        });
        let words = keys.words.as_flattened().as_flattened();
        let longs = keys.step.iter().chain(keys.bits.as_flattened());
        let bytes: Vec<u8> = words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .chain(longs.flat_map(|long| long.to_le_bytes()))
            .collect();
        assert_eq!(Keys::from_bytes(&bytes), Some(keys));
        assert_eq!(Keys::from_bytes(&bytes[1..]), None);
    }

    #[test]
    fn a_hash_that_the_kernel_has_not_reduced_is_the_same() {
        assert_eq!(reduced([PRIME, 8 * PRIME + 7]), [0, 7]);
    }
}
