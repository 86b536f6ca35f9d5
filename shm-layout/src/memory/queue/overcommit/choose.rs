//! The choice of the processes that are asked: those whose return costs least in expectation.

use crate::value::SlotId;

/// When a process's memory may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// The memory is on its way, or the process was asked and has not answered yet.
    Coming,
    /// The memory can go at once.
    Now,
    /// When its work, its turn or its stay is over.
    Later,
}

/// The expected cost of an eviction: the number of processes at work, then bytes times uses in a time.
pub(super) type Cost = (u32, u128);

/// Another process whose memory may make room.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    /// The process.
    pub id: SlotId,
    /// When it may leave.
    pub when: When,
    /// The process came back too short a time ago.
    pub too_soon: bool,
    /// Its bytes on the device.
    pub bytes: u64,
    /// The expected cost of its return.
    pub cost: Cost,
}

/// Returns the bytes of the candidates that leave at such a time.
pub(super) fn bytes_of(candidates: &[Candidate], which: impl Fn(When) -> bool) -> u64 {
    let all = candidates.iter().filter(|candidate| which(candidate.when));
    all.map(|candidate| candidate.bytes)
        .fold(0, u64::saturating_add)
}

/// Making and pinning host memory takes this many times as long as a copy (H200: 2 s more for 20 GiB, which a copy moves in 0.4 s).
const PINNING: u64 = 4;

/// Returns the bytes that could be copied in the time in which a process leaves and returns that the host keeps `host_bytes` for. Where
/// the budget for copies is small, some have lost theirs.
pub(super) fn bytes_moved(bytes: u64, host_bytes: u64) -> u64 {
    let lacking = bytes.saturating_sub(host_bytes);
    bytes.saturating_add(lacking.saturating_mul(PINNING))
}

/// Returns bytes times uses in a time, for a process that is used once in `every_ns`.
pub(super) fn cost(bytes: u64, every_ns: u64) -> u128 {
    (u128::from(bytes) << 32) / u128::from(every_ns.max(1_000_000))
}

/// Returns the cheaper of two: the cheapest process that has enough alone, or the cheapest ones until it is enough. None if all of
/// them are not enough.
pub(super) fn choose(mut candidates: Vec<Candidate>, missing: u64) -> Vec<Candidate> {
    candidates.sort_by_key(|candidate| candidate.cost);
    let mut candidates_with_enough = candidates.iter().filter(|one| one.bytes >= missing);
    let alone = candidates_with_enough.next().copied();
    let mut together: Vec<Candidate> = Vec::new();
    let mut sum = 0_u64;
    for candidate in candidates {
        if sum >= missing {
            break;
        }
        sum = sum.saturating_add(candidate.bytes);
        together.push(candidate);
    }
    if sum < missing {
        return Vec::new();
    }
    // A large one that came late makes small ones needless.
    for at in (0..together.len()).rev() {
        let less = sum.saturating_sub(together[at].bytes);
        if less >= missing {
            sum = less;
            together.remove(at);
        }
    }
    let costs = together.iter().map(|candidate| candidate.cost);
    let cost = costs.fold((0, 0), |sum: Cost, one| (sum.0 + one.0, sum.1 + one.1));
    match alone {
        Some(alone) if alone.cost <= cost => vec![alone],
        _ => together,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Returns the indices of those chosen of processes with these bytes that are used once in so many seconds.
    fn chosen(of: &[(u64, u64)], missing: u64) -> Vec<u16> {
        let candidates = of
            .iter()
            .enumerate()
            .map(|(index, (every_s, bytes))| Candidate {
                id: SlotId {
                    index: index as u16,
                    epoch: 1,
                },
                when: When::Now,
                too_soon: false,
                bytes: *bytes,
                cost: (0, cost(*bytes, every_s * S)),
            });
        let chosen = choose(candidates.collect(), missing);
        chosen.iter().map(|candidate| candidate.id.index).collect()
    }

    #[test]
    fn the_process_goes_whose_return_costs_least_and_no_more_than_needed() {
        assert_eq!(chosen(&[(10, 8), (30, 8), (20, 8)], 5), [1], "used least");
        assert_eq!(chosen(&[(10, 8), (10, 5)], 5), [1], "of two the smaller");
        assert_eq!(
            chosen(&[(10, 50), (2, 5)], 5),
            [1],
            "a small one that is used often"
        );
        assert_eq!(chosen(&[(10, 5), (30, 2), (20, 8)], 9), [1, 2]);
        assert_eq!(chosen(&[(10, 5), (30, 2), (20, 8)], 15), [1, 2, 0]);
        assert_eq!(
            chosen(&[(30, 2), (1, 3), (20, 400)], 300),
            [2],
            "the small ones stay"
        );
        assert!(
            chosen(&[(10, 5), (30, 2)], 16).is_empty(),
            "for nothing nobody goes"
        );
    }

    #[test]
    fn a_process_for_whose_copy_the_host_keeps_memory_goes_before_one_that_is_used_a_little_less() {
        let cost = |kept, every_s| cost(bytes_moved(8, kept), every_s * S);
        assert!(cost(8, 10) < cost(0, 40));
        assert!(cost(4, 10) < cost(0, 10), "in part");
        assert!(cost(0, 60) < cost(8, 10), "a rare one goes all the same");
    }

    #[test]
    fn two_small_ones_that_are_never_used_go_before_a_large_one_that_is() {
        assert_eq!(chosen(&[(3600, 4), (3600, 4), (1, 8)], 8), [0, 1]);
        assert_eq!(chosen(&[(3600, 4), (3600, 4), (7200, 8)], 8), [2]);
    }
}
