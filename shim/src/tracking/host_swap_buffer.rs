//! The host swap buffer: host memory to which evicted memory is copied. An allocation keeps its copy after a restore, so
//! that the next eviction copies only the chunks that differ from it.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
};

use gpushare_abi::chunk_hash::{CHUNK, Hash, Keys, ZEROS};

/// A range of host memory.
#[derive(Debug)]
pub struct Piece {
    /// The first address.
    pub start: u64,
    /// The size in bytes, a multiple of [`CHUNK`].
    pub bytes: u64,
    /// The context in which the piece is pinned; 0 for none.
    pub pinned_in: usize,
}

/// A place for a chunk in a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    piece: u32,
    index: u32,
}

impl Slot {
    /// Returns the index of the piece.
    pub fn piece(self) -> usize {
        self.piece as usize
    }

    fn plus(self, chunks: u32) -> Self {
        let index = self.index + chunks;
        Self { index, ..self }
    }
}

/// The host's copy of a chunk. A default one is void.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkCopy {
    /// The place of the contents; `None` for zeros and for a void copy.
    pub slot: Option<Slot>,
    /// The hash of the contents; `None` if it is unknown, or the place does not hold all contents.
    pub hash: Option<Hash>,
}

/// Successive chunks of an allocation whose copies are successive too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first chunk.
    pub first: u64,
    /// The number of chunks.
    pub count: u32,
    /// The place of the first chunk; `None` for zeros.
    pub slot: Option<Slot>,
}

/// The host memory, and the copies in it by their allocation's serial number.
#[derive(Debug, Default)]
pub struct HostSwapBuffer {
    pieces: Vec<Piece>,
    free: BTreeSet<Slot>,
    copies: BTreeMap<u64, Vec<ChunkCopy>>,
    /// The keys of the hashes, since the first eviction.
    keys: Option<Keys>,
    /// The function that hashes in a context.
    functions: Vec<(usize, usize)>,
}

impl HostSwapBuffer {
    /// Returns the size of the buffer in bytes.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }

    /// Returns the bytes of the buffer that do not hold copies of these allocations.
    pub fn bytes_beside(&self, serials: &[u64]) -> u64 {
        let copies = serials.iter().filter_map(|serial| self.copies.get(serial));
        let places = copies.flatten().filter(|chunk| chunk.slot.is_some());
        self.bytes().saturating_sub(places.count() as u64 * CHUNK)
    }

    /// Adds host memory. Returns the index of the piece.
    pub fn add(&mut self, piece: Piece) -> usize {
        let (at, count) = (self.pieces.len(), (piece.bytes / CHUNK) as u32);
        let slot = |index| Slot {
            piece: at as u32,
            index,
        };
        self.free.extend((0..count).map(slot));
        self.pieces.push(piece);
        at
    }

    /// Removes all copies, and returns the pieces.
    pub fn take(&mut self) -> Vec<Piece> {
        self.copies.clear();
        self.free.clear();
        std::mem::take(&mut self.pieces)
    }

    /// Returns a piece.
    pub fn piece(&mut self, index: usize) -> Option<&mut Piece> {
        self.pieces.get_mut(index)
    }

    /// Returns the address of a place; `None` for one that does not exist.
    pub fn address(&self, slot: Slot) -> Option<u64> {
        let piece = self.pieces.get(slot.piece())?;
        Some(piece.start + u64::from(slot.index) * CHUNK)
    }

    /// Frees the copies of allocations that are not named.
    pub fn keep_only(&mut self, serials: &BTreeSet<u64>) {
        let free = &mut self.free;
        self.copies.retain(|serial, chunks| {
            let stays = serials.contains(serial);
            if !stays {
                free.extend(chunks.iter().filter_map(|chunk| chunk.slot));
            }
            stays
        });
    }

    /// Returns the chunks of an allocation whose contents the host does not have, given their hashes, by their index. Their
    /// copies are void from here on, and those of zeros give their places back.
    pub fn differing(&mut self, serial: u64, hashes: &[Option<Hash>]) -> Vec<u64> {
        let chunks = self.copies.entry(serial).or_default();
        chunks.resize(hashes.len(), ChunkCopy::default());
        let mut differing = Vec::new();
        for (index, (chunk, hash)) in chunks.iter_mut().zip(hashes).enumerate() {
            if hash.is_some() && chunk.hash == *hash {
                continue;
            }
            if *hash == Some(ZEROS) {
                self.free.extend(chunk.slot.take());
                chunk.hash = Some(ZEROS);
            } else {
                chunk.hash = None;
                differing.push(index as u64);
            }
        }
        differing
    }

    /// Returns the number of these chunks that have no place.
    pub fn lacking(&self, serial: u64, indexes: &[u64]) -> usize {
        let chunks = self.copies.get(&serial).map_or(&[][..], Vec::as_slice);
        let has_none = |index: &&u64| {
            chunks
                .get(**index as usize)
                .is_none_or(|chunk| chunk.slot.is_none())
        };
        indexes.iter().filter(has_none).count()
    }

    /// Gives each of these chunks a place. Returns the number of those that have none, because the buffer is full.
    pub fn assign(&mut self, serial: u64, indexes: &[u64]) -> usize {
        let Some(chunks) = self.copies.get_mut(&serial) else {
            return indexes.len();
        };
        let mut missing = 0;
        for index in indexes {
            if let Some(chunk) = chunks.get_mut(*index as usize)
                && chunk.slot.is_none()
            {
                chunk.slot = self.free.pop_first();
                missing += usize::from(chunk.slot.is_none());
            }
        }
        missing
    }

    /// Records that an allocation's chunks with these hashes are copied.
    pub fn copied(&mut self, serial: u64, hashes: &[Option<Hash>]) {
        let chunks = self.copies.entry(serial).or_default();
        for (chunk, hash) in chunks.iter_mut().zip(hashes) {
            chunk.hash = *hash;
        }
    }

    /// Returns all chunks of an allocation that has a copy, by their index.
    pub fn all(&self, serial: u64) -> Vec<u64> {
        let count = self.copies.get(&serial).map_or(0, Vec::len);
        (0..count as u64).collect()
    }

    /// Joins chunks of an allocation to runs.
    pub fn runs(&self, serial: u64, indexes: &[u64]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let chunks = self.copies.get(&serial).map_or(&[][..], Vec::as_slice);
        for &index in indexes {
            let slot = chunks.get(index as usize).and_then(|chunk| chunk.slot);
            match runs.last_mut() {
                Some(run)
                    if index == run.first + u64::from(run.count)
                        && slot == run.slot.map(|slot| slot.plus(run.count)) =>
                {
                    run.count += 1;
                }
                _ => runs.push(Run {
                    first: index,
                    count: 1,
                    slot,
                }),
            }
        }
        runs
    }

    /// Returns the keys of the hashes. The process has its own, which its programs cannot foresee.
    pub fn keys(&mut self) -> Keys {
        let make = || {
            let (random, mut number) = (RandomState::new(), 0_u64);
            Keys::new(|| {
                number += 1;
                random.hash_one(number)
            })
        };
        self.keys.get_or_insert_with(make).clone()
    }

    /// Returns the function that hashes in a context, made by `load` at first.
    pub fn function<E>(
        &mut self,
        context: usize,
        load: impl FnOnce() -> Result<usize, E>,
    ) -> Result<usize, E> {
        if let Some((_, function)) = self.functions.iter().find(|known| known.0 == context) {
            return Ok(*function);
        }
        load().inspect(|function| self.functions.push((context, *function)))
    }
}

/// The process's swap buffer. An eviction and a restore hold its lock, also over driver calls, because the
/// application's calls are suspended then.
#[derive(Default)]
pub struct SharedSwapBuffer(Mutex<HostSwapBuffer>);

impl SharedSwapBuffer {
    /// Locks the buffer.
    pub fn lock(&self) -> MutexGuard<'_, HostSwapBuffer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the size of the buffer in bytes.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes()
    }

    /// Records that a context was destroyed, so that its pieces are no longer pinned, and its modules are gone.
    pub fn context_gone(&self, context: u64) {
        let mut buffer = self.lock();
        buffer.functions.retain(|(of, _)| *of as u64 != context);
        for piece in &mut buffer.pieces {
            if piece.pinned_in as u64 == context {
                piece.pinned_in = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn piece(start: u64, chunks: u64) -> Piece {
        Piece {
            start,
            bytes: chunks * CHUNK,
            pinned_in: 7,
        }
    }

    /// The hash of a chunk whose contents are this number.
    fn hashes(contents: &[u8]) -> Vec<Option<Hash>> {
        contents
            .iter()
            .map(|one| Some([u64::from(*one); 2]))
            .collect()
    }

    #[test]
    fn successive_places_are_one_run_within_a_piece() {
        let mut buffer = HostSwapBuffer::default();
        buffer.add(piece(0, 3));
        buffer.add(piece(3 * CHUNK, 3));
        let all = buffer.differing(1, &hashes(&[1, 2, 0, 4, 5, 6, 7]));
        assert_eq!(all, [0, 1, 3, 4, 5, 6]);
        assert_eq!(buffer.assign(1, &all), 0);
        let run = |first, count, slot: Option<(u32, u32)>| Run {
            first,
            count,
            slot: slot.map(|(piece, index)| Slot { piece, index }),
        };
        let runs = [
            run(0, 2, Some((0, 0))),
            run(2, 1, None),
            run(3, 1, Some((0, 2))),
            run(4, 3, Some((1, 0))),
        ];
        assert_eq!(buffer.runs(1, &buffer.all(1)), runs);
        assert_eq!(buffer.runs(1, &all), [runs[0], runs[2], runs[3]]);
        assert_eq!(buffer.address(Slot { piece: 1, index: 1 }), Some(4 * CHUNK));
        assert_eq!(buffer.bytes(), 6 * CHUNK);
    }

    #[test]
    fn a_full_buffer_says_how_much_is_missing_and_what_is_gone_makes_room() {
        let mut buffer = HostSwapBuffer::default();
        buffer.add(piece(0, 2));
        let all = buffer.differing(1, &hashes(&[1, 2, 3]));
        assert_eq!(
            (
                buffer.lacking(1, &all),
                buffer.assign(1, &all),
                buffer.lacking(1, &all)
            ),
            (3, 1, 1)
        );
        assert_eq!(buffer.bytes_beside(&[2]), 2 * CHUNK);
        assert_eq!(buffer.bytes_beside(&[1, 2]), 0);
        buffer.keep_only(&BTreeSet::from([2]));
        let all = buffer.differing(2, &hashes(&[1, 2]));
        assert_eq!((all.len(), buffer.assign(2, &all)), (2, 0));
        assert_eq!(buffer.all(1), [0_u64; 0]);
        assert_eq!(
            (
                buffer.take().len(),
                buffer.bytes(),
                buffer.differing(2, &hashes(&[1])).len()
            ),
            (1, 0, 1)
        );
    }

    #[test]
    fn a_function_ends_with_its_context() {
        let table = SharedSwapBuffer::default();
        table.lock().add(piece(0, 1));
        let load = |function| move || Ok::<usize, ()>(function);
        assert_eq!(table.lock().function(7, load(1)), Ok(1));
        assert_eq!(table.lock().function(7, load(2)), Ok(1));
        table.context_gone(7);
        assert_eq!(table.lock().function(7, load(2)), Ok(2));
        assert!(table.lock().pieces.iter().all(|piece| piece.pinned_in == 0));
        let keys = table.lock().keys();
        assert_eq!(table.lock().keys(), keys);
        assert_ne!(HostSwapBuffer::default().keys(), keys);
    }

    proptest! {
        /// The device's contents and the host's are simulated as numbers, 0 for zeros.
        #[test]
        fn what_is_copied_is_what_differs_and_the_host_has_all_of_it(
            rounds in vec((vec(0_u8..4, 6), any::<bool>(), any::<bool>()), 1..12)
        ) {
            let mut buffer = HostSwapBuffer::default();
            buffer.add(piece(0, 4));
            buffer.add(piece(8 * CHUNK, 4));
            let mut host = BTreeMap::new();
            // The host's contents of each chunk, known from completed evictions.
            let mut known = [None; 6];
            for (contents, has_hashes, completes) in rounds {
                let hashes = if has_hashes { hashes(&contents) } else { vec![None; 6] };
                let differing = buffer.differing(1, &hashes);
                let expected = contents.iter().enumerate().filter(|(index, one)| {
                    !has_hashes || **one != 0 && known[*index] != Some(**one)
                });
                prop_assert_eq!(&differing, &expected.map(|(index, _)| index as u64).collect::<Vec<_>>());
                prop_assert_eq!(buffer.assign(1, &differing), 0);
                let copied = if completes { differing.len() } else { differing.len() / 2 };
                for run in buffer.runs(1, &differing[..copied]) {
                    for number in 0..run.count {
                        let slot = run.slot.map(|slot| slot.plus(number));
                        host.insert(slot.expect("assigned"), contents[(run.first + u64::from(number)) as usize]);
                    }
                }
                if completes {
                    buffer.copied(1, &hashes);
                    for run in buffer.runs(1, &buffer.all(1)) {
                        for number in 0..run.count {
                            let on_host = run.slot.map_or(0, |slot| host[&slot.plus(number)]);
                            prop_assert_eq!(on_host, contents[(run.first + u64::from(number)) as usize]);
                        }
                    }
                }
                for (index, known) in known.iter_mut().enumerate() {
                    let is_touched = differing.contains(&(index as u64));
                    if is_touched {
                        *known = (completes && has_hashes).then_some(contents[index]);
                    } else if has_hashes {
                        *known = Some(contents[index]);
                    }
                }
            }
        }
    }
}
