//! Turns that are counted: after each quantum the holder's turn is decided anew.

use super::*;

impl World {
    /// Runs a schedule as under `launches=N`: every process wants the device all the time, and after each quantum the holder's
    /// turn is decided again. Returns the turns in order, with their numbers of quanta. `length` gives the duration of a
    /// process's quantum.
    fn take_turns(
        mut self,
        turns: usize,
        mut length: impl FnMut(usize) -> u64,
    ) -> Vec<(usize, u64)> {
        let mut now = self.start;
        self.arrivals(now, None);
        let free = self.lock(0).device.turn().owner();
        self.lock(0).pass(free, now);
        let mut taken = Vec::new();
        while taken.len() < turns {
            let who = self.owner().expect("one of them always wants it");
            let lock = self.lock(who);
            assert!(lock.begin(lock.device.turn().owner(), now, Some(0)));
            lock.device
                .turn()
                .leave(usize::from(self.processes[who].0.slot().index));
            let mut quanta = 0;
            loop {
                let quantum = length(who);
                now += quantum;
                quanta += 1;
                self.arrivals(now, Some(who));
                if self.lock(who).due_at(now, quantum) {
                    break;
                }
            }
            self.lock(who).release(Reason::Count, now);
            // It is back a little later.
            now += MS / 100;
            self.arrivals(now, None);
            taken.push((who, quanta));
        }
        taken
    }
}

/// Numbers that look random: up to a tenth more or less than they should be.
fn shaken(length: u64) -> impl FnMut(usize) -> u64 {
    let mut state = 1u64;
    move |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        length * 9 / 10 + (state >> 33) % (length / 5)
    }
}

#[test]
fn two_equal_processes_alternate_quantum_by_quantum() {
    for order in Order::ALL {
        let turns = World::new(order, &[PLAIN, PLAIN]).take_turns(5000, shaken(MS / 2));
        for (before, after) in turns.iter().zip(&turns[1..]).skip(1) {
            assert_eq!((after.0, after.1), (1 - before.0, 1), "{order:?}");
        }
    }
}

#[test]
fn weights_hold_though_a_turn_ends_at_whole_quanta_only() {
    let equal = [MS / 5; 3];
    // Each process's kernels have another length.
    let various = [MS / 2, MS / 5, MS];
    for weights in [[100, 200, 400], [100, 150, 350], [30, 170, 1000]] {
        for lengths in [equal, various] {
            follow(weights, lengths);
        }
    }
}

fn follow(weights: [u32; 3], lengths: [u64; 3]) {
    let wishes = weights.map(|weight| Wish { weight, ..PLAIN });
    let mut shake = shaken(1000);
    let mut held = [0; 3];
    World::new(Order::Fair, &wishes).take_turns(6000, |who| {
        let length = lengths[who] * shake(who) / 1000;
        held[who] += length;
        length
    });
    let (all, total) = (held.iter().sum::<u64>() as f64, weights.iter().sum::<u32>());
    let shares = held.map(|one| one as f64 * 100.0 / all);
    let wanted = weights.map(|one| f64::from(one) * 100.0 / f64::from(total));
    near(&shares, &wanted);
}

#[test]
fn an_urgent_holder_goes_on_until_the_other_has_aged() {
    let wishes = [
        Wish {
            priority: 1,
            ..PLAIN
        },
        PLAIN,
    ];
    let turns = World::new(Order::Priority, &wishes).take_turns(20, |_| MS);
    for (who, quanta) in &turns[1..] {
        let wanted = if *who == 0 { 100..=101 } else { 1..=1 };
        assert!(wanted.contains(quanta), "{turns:?}");
    }
}
