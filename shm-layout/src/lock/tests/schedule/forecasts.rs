//! The forecast, beside the shares that the lock's own words give.

use super::*;
use crate::lock::forecast::{Burst, Demand, forecast};
use crate::value::Share;

/// Returns the shares that are foreseen for these wishes, in per cent.
fn foreseen(order: Order, kind: PolicyKind, wishes: &[Wish], seconds: u64) -> Vec<f64> {
    let policy = LockPolicy {
        kind,
        order,
        ..LockPolicy::default()
    };
    let demands: Vec<Demand> = wishes.iter().map(demand).collect();
    let foreseen = forecast(&policy, &demands, 0, seconds * SECOND).expect("turns");
    foreseen.iter().map(|one| one.held * 100.0).collect()
}

fn demand(wish: &Wish) -> Demand {
    let work_ns = match wish.gap_ns {
        0 => Burst::ENDLESS,
        _ => wish.work_ns,
    };
    Demand {
        share: Share {
            weight: wish.weight,
            priority: wish.priority,
            cap: wish.cap,
            ..Share::default()
        },
        bursts: vec![Burst {
            work_ns,
            gap_ns: wish.gap_ns,
        }],
        counted_ns: Some(wish.work_ns),
        kernel_ns: wish.work_ns,
        step_ns: 0,
    }
}

const SLICES: PolicyKind = PolicyKind::Timeslice(5 * MS);

#[test]
fn a_forecast_follows_weights_caps_and_priorities() {
    let weights = [100, 200, 400].map(|weight| Wish { weight, ..PLAIN });
    let shares = foreseen(Order::Fair, SLICES, &weights, 10);
    near(&shares, &[14.3, 28.6, 57.1]);
    // Its launches end its turns, and the others' theirs.
    let shares = foreseen(Order::Fair, PolicyKind::Launches(4), &weights, 10);
    near(&shares, &[14.3, 28.6, 57.1]);
    let capped = Wish {
        cap: Some(20),
        ..PLAIN
    };
    near(
        &foreseen(Order::Fair, SLICES, &[capped, PLAIN], 10),
        &[20.0, 80.0],
    );
    near(&foreseen(Order::Fair, SLICES, &[capped], 10), &[20.0]);
    let urgent = Wish {
        priority: 5,
        ..PLAIN
    };
    let shares = foreseen(Order::Priority, SLICES, &[urgent, PLAIN], 20);
    assert!(shares[0] > 90.0 && shares[1] > 0.0, "{shares:?}");
}

#[test]
fn a_policy_without_turns_has_no_forecast_and_a_process_without_work_no_turn() {
    let of = |kind| {
        let policy = LockPolicy {
            kind,
            ..LockPolicy::default()
        };
        forecast(&policy, &[demand(&PLAIN), Demand::default()], 0, SECOND)
    };
    for kind in [
        PolicyKind::Off,
        PolicyKind::Overlap(None),
        PolicyKind::HwTimeslice(8 * MS),
    ] {
        assert_eq!(of(kind), None);
    }
    let shares = of(SLICES).expect("turns");
    assert_eq!((shares[0].held, shares[1].held), (1.0, 0.0));
    assert_eq!(shares[0].turns.len(), 1, "it is alone");
}

#[test]
fn a_hand_off_takes_time_and_no_turn_ends_within_a_kernel() {
    let policy = LockPolicy {
        kind: SLICES,
        order: Order::Fifo,
        ..LockPolicy::default()
    };
    let long = Demand {
        kernel_ns: 20 * MS,
        ..demand(&PLAIN)
    };
    let demands = [long, demand(&PLAIN)];
    let shares = forecast(&policy, &demands, 5 * MS, 20 * SECOND).expect("turns");
    let shares: Vec<f64> = shares.iter().map(|one| one.held * 100.0).collect();
    // 20 ms and 5 ms, each behind a hand-off of 5 ms.
    near(&shares, &[57.1, 14.3]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_forecast_gives_the_shares_that_the_lock_gives(wishes in prop::collection::vec(wish(), 1..6), order in 0..Order::ALL.len()) {
        let order = Order::ALL[order];
        // The schedule's turns end at a kernel, and it sees an arrival only there; so kernels are as short as slices, and none ends
        // at an arrival.
        let short = |wish: Wish| Wish { from_ns: 0, work_ns: MS, gap_ns: 5 * wish.gap_ns + wish.gap_ns.min(MS / 3), ..wish };
        let wishes: Vec<Wish> = wishes.into_iter().map(short).collect();
        let real = World::new(order, &wishes).run(5).shares;
        let foreseen = foreseen(order, PolicyKind::Timeslice(MS), &wishes, 5);
        for (real, foreseen) in real.iter().zip(&foreseen) {
            prop_assert!((real - foreseen).abs() < 5.0, "{order:?} {wishes:?}: {foreseen:.1?} was foreseen; a share is {real:.1}");
        }
    }
}
