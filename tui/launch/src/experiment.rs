//! Experiments: real programs run under several ways to share the GPU and are compared.
//!
//! A [`plan`] is a TOML file: programs that print figures, and conditions to run them under. [`play`] runs them once
//! under one condition, on a stage of its own, so that no run inherits the history of another and nothing of the
//! user's segments is touched. Rounds are interleaved: each has every condition once, in an order of its own
//! ([`order`]), so that a machine that grows warm or busy does not favour one. [`results`] has every sample; the
//! [`table`] and the [`document`] are made from it.

pub mod document;
pub mod figure;
pub mod plan;
pub mod play;
pub mod results;
mod scene;
pub mod table;

/// Returns the order of the conditions in a round. It is shuffled, and it is the same in every experiment.
pub fn order(round: u32, conditions: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..conditions).collect();
    // xorshift; its state is never 0.
    let mut state = u64::from(round).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for last in (1..conditions).rev() {
        for _ in 0..4 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        order.swap(last, (state % (last as u64 + 1)) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_every_condition_once_and_rounds_differ() {
        let rounds: Vec<Vec<usize>> = (0..8).map(|round| order(round, 6)).collect();
        for round in &rounds {
            let mut sorted = round.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4, 5]);
        }
        let firsts: std::collections::HashSet<usize> = rounds.iter().map(|r| r[0]).collect();
        assert!(firsts.len() > 2, "{rounds:?}");
        assert_eq!(order(3, 6), rounds[3], "the same each time");
    }
}
