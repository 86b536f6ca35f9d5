//! The pool of memory that a device keeps for graphs, as the driver manages it.
//!
//! The driver allocates memory when a launch (or an upload) needs more than the pool has, and keeps it for the next
//! launch. A free, the destruction of the executable and the destruction of the graph change nothing; a trim releases
//! the unused memory. Launches in one stream follow each other and use the same memory. Launches in different streams
//! also use the same memory, unless one is still running. (All measured, on an H200 with 580.159.04.)
//!
//! A launch is under way from its claim until the driver has it. Its stream looks idle until then, but is not.

use std::collections::HashMap;

use crate::tracking::graph::{plan::Part, sealed::is_sealed};

/// The pool of one device. All numbers are requested bytes; the driver allocates blocks of 32 MiB (measured).
#[derive(Debug, Default)]
pub struct Pool {
    charged: u64,
    /// Allocations that a launch has made and that are not freed.
    live: HashMap<u64, u64>,
    live_bytes: u64,
    /// The most temporary memory that a launch in each stream has needed, until the stream is seen idle.
    streams: HashMap<usize, Temporary>,
    stream_bytes: u64,
    /// Bytes charged for launches that are under way to the driver. No trim releases them.
    pending: u64,
    /// Claims that were completed.
    completed: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Temporary {
    bytes: u64,
    launches: u64,
    /// Claims that are not completed.
    under_way: u64,
}

/// The memory claimed for a launch, until it is known whether the launch was made.
#[derive(Debug)]
pub struct Claim {
    stream: usize,
    before: u64,
    raised: u64,
    fresh: Vec<u64>,
    /// Bytes to be charged for the launch.
    pub more: u64,
}

impl Pool {
    /// Claims the memory that a launch needs; with `launches` false, the memory that an upload allocates for it.
    pub fn claim(&mut self, stream: usize, part: &Part, launches: bool) -> Claim {
        let place = self.streams.entry(stream).or_default();
        let before = place.bytes;
        let raised = before.max(part.temporary);
        place.bytes = raised;
        place.launches += 1;
        place.under_way += 1;
        self.stream_bytes += raised - before;
        let (mut fresh, mut later) = (Vec::new(), 0);
        for piece in &part.kept {
            if self.live.contains_key(&piece.address) {
                continue;
            }
            if launches {
                self.live.insert(piece.address, piece.bytes);
                self.live_bytes += piece.bytes;
                fresh.push(piece.address);
            } else {
                later += piece.bytes;
            }
        }
        // Earlier launches in this stream are done by then, so only other streams may use memory at the same time.
        let beside = self.stream_bytes - raised;
        let wanted = self.live_bytes + beside + part.temporary + later;
        let more = wanted.saturating_sub(self.charged);
        self.charged += more;
        self.pending += more;
        Claim {
            stream,
            before,
            raised,
            fresh,
            more,
        }
    }

    /// Records that the launch was made.
    pub fn keep(&mut self, claim: &Claim) {
        self.pending -= claim.more;
        self.ends(claim);
    }

    /// Counts a claim as completed. Its stream may have been destroyed since.
    fn ends(&mut self, claim: &Claim) {
        self.completed += 1;
        if let Some(place) = self.streams.get_mut(&claim.stream) {
            place.under_way = place.under_way.saturating_sub(1);
        }
    }

    /// Releases the claim because the launch was not made.
    pub fn give_up(&mut self, claim: &Claim) {
        self.pending -= claim.more;
        self.charged -= claim.more;
        self.ends(claim);
        if let Some(place) = self.streams.get_mut(&claim.stream)
            && place.bytes == claim.raised
        {
            place.bytes = claim.before;
            self.stream_bytes -= claim.raised - claim.before;
        }
        for address in &claim.fresh {
            self.free(*address);
        }
    }

    /// Returns the other streams whose memory could be used again, if they are idle, each with its number of launches.
    pub fn others(&self, stream: usize) -> Vec<(usize, u64)> {
        let could = |temporary: &Temporary| temporary.bytes > 0 && temporary.under_way == 0;
        self.streams
            .iter()
            .filter(|(other, temporary)| {
                **other != stream && could(temporary) && !is_sealed(**other)
            })
            .map(|(other, temporary)| (*other, temporary.launches))
            .collect()
    }

    /// Records that a stream was seen idle after `launches` launches, so that other streams may use its memory.
    pub fn is_idle_after(&mut self, stream: usize, launches: u64) {
        if let Some(temporary) = self.streams.get_mut(&stream)
            && temporary.launches == launches
        {
            self.stream_bytes -= temporary.bytes;
            temporary.bytes = 0;
        }
    }

    /// Returns the handles of the streams in which graphs were launched.
    pub fn streams(&self) -> impl Iterator<Item = usize> {
        self.streams.keys().copied().filter(|key| !is_sealed(*key))
    }

    /// Returns true if launches in a stream may use memory.
    pub fn is_used_by(&self, stream: usize) -> bool {
        let temporary = self.streams.get(&stream);
        temporary.is_some_and(|temporary| temporary.bytes > 0)
    }

    /// Returns true if launches may use memory whose streams can no longer be asked.
    pub fn any_sealed(&self) -> bool {
        self.streams.keys().any(|key| is_sealed(*key))
    }

    /// Keeps the memory of a stream's launches under a key that stands for them, or releases it if there is none.
    pub fn seal(&mut self, stream: usize, key: Option<usize>) {
        let Some(temporary) = self.streams.remove(&stream) else {
            return;
        };
        match key {
            Some(key) => {
                let under_way = 0;
                self.streams.insert(
                    key,
                    Temporary {
                        under_way,
                        ..temporary
                    },
                );
            }
            None => self.stream_bytes -= temporary.bytes,
        }
    }

    /// Removes destroyed streams, so that other streams may use their memory.
    pub fn forget(&mut self, which: impl Fn(usize) -> bool) {
        for (_, temporary) in self.streams.extract_if(|stream, _| which(*stream)) {
            self.stream_bytes -= temporary.bytes;
        }
    }

    /// Removes an allocation from those in use. Returns its bytes, or `None` if it was not in use.
    pub fn free(&mut self, address: u64) -> Option<u64> {
        let bytes = self.live.remove(&address)?;
        self.live_bytes -= bytes;
        Some(bytes)
    }

    /// Adds an allocation again whose free has failed.
    pub fn put_back(&mut self, address: u64, bytes: u64) {
        if self.live.insert(address, bytes).is_none() {
            self.live_bytes += bytes;
        }
    }

    /// Returns true if the pool has memory that is not in use.
    pub fn is_idle(&self) -> bool {
        self.charged > self.live_bytes + self.pending
    }

    /// Returns the number of claims that were completed.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Records that the driver has released the unused memory, and keeps `reserved` bytes. Returns the released bytes.
    pub fn trim(&mut self, reserved: u64) -> u64 {
        let is_busy = self.streams.values().any(|place| place.under_way > 0);
        if reserved == 0 || !is_busy && reserved <= self.live_bytes {
            // No launch runs. Otherwise it is not known which.
            self.streams.retain(|_, place| place.under_way > 0);
            self.stream_bytes = self.streams.values().map(|place| place.bytes).sum();
        }
        let all = self.live_bytes + self.stream_bytes;
        // The driver may not have reserved yet what a launch under way will use.
        let kept = if is_busy { all } else { reserved.min(all) };
        let needed = self.live_bytes + self.pending;
        let gone = self.charged.saturating_sub(kept.max(needed));
        self.charged -= gone;
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracking::graph::plan::Piece;

    fn part(temporary: u64, kept: &[(u64, u64)]) -> Part {
        let piece = |(address, bytes): &(u64, u64)| Piece {
            address: *address,
            bytes: *bytes,
            ordinal: 0,
        };
        Part {
            ordinal: 0,
            kept: kept.iter().map(piece).collect(),
            temporary,
        }
    }

    /// Claims a launch and keeps it. Returns the bytes charged for it.
    fn made(pool: &mut Pool, stream: usize, part: &Part) -> u64 {
        let claim = pool.claim(stream, part, true);
        pool.keep(&claim);
        claim.more
    }

    #[test]
    fn launches_in_one_stream_share_and_in_two_that_run_do_not() {
        let mut pool = Pool::default();
        assert_eq!(made(&mut pool, 1, &part(40, &[])), 40);
        assert_eq!(made(&mut pool, 1, &part(30, &[])), 0);
        assert_eq!(made(&mut pool, 2, &part(30, &[])), 30);
        assert_eq!(pool.trim(0), 70);
        assert_eq!(made(&mut pool, 1, &part(30, &[])), 30);
    }

    #[test]
    fn what_an_idle_stream_has_used_is_there_for_others() {
        let mut pool = Pool::default();
        assert_eq!(made(&mut pool, 1, &part(40, &[])), 40);
        let seen = pool.others(2);
        assert_eq!(seen, [(1, 1)]);
        made(&mut pool, 1, &part(40, &[]));
        pool.is_idle_after(1, 1);
        assert_eq!(pool.others(2), [(1, 2)], "it was launched again meanwhile");
        pool.is_idle_after(1, 2);
        assert_eq!(made(&mut pool, 2, &part(50, &[])), 10);
        pool.forget(|stream| stream == 2);
        assert_eq!(made(&mut pool, 3, &part(50, &[])), 0);
    }

    #[test]
    fn what_runs_in_a_destroyed_stream_is_there_for_others_once_it_is_done() {
        const KEY: usize = 1 << 63;
        let mut pool = Pool::default();
        assert_eq!(made(&mut pool, 1, &part(40, &[])), 40);
        pool.seal(1, Some(KEY));
        assert_eq!((pool.others(2), pool.any_sealed()), (vec![], true));
        assert_eq!(made(&mut pool, 1, &part(30, &[])), 30, "another stream");
        assert_eq!(pool.trim(50), 20);
        pool.forget(|stream| stream == KEY);
        assert_eq!(made(&mut pool, 2, &part(20, &[])), 0, "in its place");
        pool.seal(1, None);
        assert!(!pool.any_sealed());
        assert_eq!(made(&mut pool, 2, &part(50, &[])), 0);
    }

    #[test]
    fn what_a_stream_has_used_is_there_for_its_next_launch() {
        let mut pool = Pool::default();
        assert_eq!(made(&mut pool, 1, &part(40, &[])), 40);
        assert_eq!(made(&mut pool, 1, &part(20, &[(7, 15)])), 0);
        assert_eq!(
            made(&mut pool, 2, &part(10, &[])),
            25,
            "the first may run still"
        );
        assert_eq!(pool.trim(0), 50);
    }

    #[test]
    fn what_is_not_freed_is_in_use_until_it_is() {
        let mut pool = Pool::default();
        let kept = part(0, &[(7, 40)]);
        let upload = pool.claim(1, &kept, false);
        pool.keep(&upload);
        assert_eq!(upload.more, 40);
        assert_eq!(made(&mut pool, 1, &kept), 0);
        assert_eq!(made(&mut pool, 1, &kept), 0, "freed by itself");
        assert_eq!(made(&mut pool, 1, &part(30, &[])), 30, "beside it");
        assert_eq!(pool.trim(0), 30);
        assert_eq!(pool.free(7), Some(40));
        assert_eq!(pool.free(7), None);
        assert_eq!(made(&mut pool, 1, &part(30, &[])), 0, "in its place");
        assert_eq!(pool.trim(0), 40);
    }

    #[test]
    fn a_launch_that_was_not_made_leaves_nothing() {
        let mut pool = Pool::default();
        made(&mut pool, 1, &part(10, &[]));
        let claim = pool.claim(1, &part(40, &[(7, 5)]), true);
        assert_eq!(claim.more, 35);
        pool.give_up(&claim);
        assert_eq!(made(&mut pool, 1, &part(40, &[(7, 5)])), 35);
        assert_eq!(pool.trim(0), 40);
    }

    #[test]
    fn the_stream_of_a_launch_that_is_under_way_is_not_asked_whether_it_is_idle() {
        let mut pool = Pool::default();
        let first = pool.claim(1, &part(40, &[]), true);
        assert_eq!(pool.others(2), []);
        assert_eq!(made(&mut pool, 2, &part(30, &[])), 30);
        pool.keep(&first);
        assert_eq!(pool.others(2), [(1, 1)]);
        let failed = pool.claim(1, &part(40, &[]), true);
        assert_eq!(pool.others(2), []);
        pool.give_up(&failed);
        assert_eq!(pool.others(2), [(1, 2)]);
    }

    #[test]
    fn a_trim_leaves_what_the_driver_says_that_it_keeps_and_what_a_launch_under_way_will_use() {
        let mut pool = Pool::default();
        for stream in [1, 2] {
            made(&mut pool, stream, &part(40, &[]));
        }
        assert_eq!(pool.trim(50), 30, "one of them runs");
        assert_eq!(pool.trim(u64::MAX), 0);
        let again = pool.claim(1, &part(40, &[]), true);
        assert_eq!(pool.trim(0), 40, "only the other one's");
        pool.keep(&again);
        assert_eq!((pool.trim(0), pool.charged), (40, 0));
    }

    #[test]
    fn a_trim_beside_a_launch_under_way_leaves_what_runs_too() {
        for reserved in [40, 50] {
            let mut pool = Pool::default();
            made(&mut pool, 1, &part(reserved, &[]));
            let claim = pool.claim(2, &part(40, &[(7, 5)]), true);
            assert_eq!(pool.trim(reserved), 0);
            pool.keep(&claim);
            assert_eq!(pool.charged, reserved + 45);
        }
    }

    #[test]
    fn a_trim_leaves_what_is_on_its_way_to_the_driver() {
        for fails in [false, true] {
            let mut pool = Pool::default();
            made(&mut pool, 1, &part(10, &[]));
            let claim = pool.claim(2, &part(40, &[]), true);
            assert_eq!(pool.trim(0), 10);
            if fails {
                pool.give_up(&claim);
            } else {
                pool.keep(&claim);
            }
            assert_eq!(pool.trim(0), if fails { 0 } else { 40 });
            assert_eq!(pool.charged, 0);
        }
    }
}
