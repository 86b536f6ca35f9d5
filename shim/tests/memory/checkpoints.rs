//! A process that is locked for a checkpoint, which does not keep others from the device, and green contexts, whose streams are
//! drained and forgotten like others.

use std::time::Duration;

use gpushare_testbed::Testbed;

use crate::client::Client;

fn client<'b>(bed: &'b Testbed, policy: &str) -> Client<'b> {
    let mut client = Client::start(bed, &[("GPUSHARE_POLICY", policy)]);
    client.ok("alloc a 4096");
    client
}

#[test]
fn a_holder_that_locks_itself_gives_the_device_up_first() {
    let policy = "timeslice=60s idle=60s max-hold=60s";
    let bed = Testbed::new();
    let (mut holder, mut other) = (client(&bed, policy), client(&bed, policy));
    holder.ok("submit a");
    holder.ok("lock");
    other.ok("submit a");
    holder.ok("unlock");
    assert_eq!(holder.code("unlock"), 401, "it runs");
}

#[test]
fn a_holder_that_another_process_locks_is_passed_over() {
    let policy = "timeslice=50ms grace=50ms";
    let bed = Testbed::new();
    let (mut holder, mut other) = (client(&bed, policy), client(&bed, policy));
    holder.ok("submit a");
    let pid = holder.watched.pid();
    other.ok(&format!("lock {pid}"));
    other.ok("submit a");
    other.ok(&format!("unlock {pid}"));
    holder.ok("submit a");
}

#[test]
fn work_in_a_green_contexts_stream_takes_its_turn() {
    let policy = "timeslice=60s idle=60s max-hold=60s";
    let bed = Testbed::new();
    let (mut holder, mut other) = (client(&bed, policy), client(&bed, policy));
    holder.ok("green g c");
    holder.ok("green-stream s g");
    holder.ok("submit a s");
    // The context is destroyed with a stream that a drain would query.
    holder.ok("green-destroy g");
    other.ok("submit a");
}

#[test]
fn a_process_may_lock_itself_while_its_keeper_looks_whether_it_is_idle() {
    let bed = Testbed::new();
    let mut one = client(&bed, "overlap idle=1ms");
    for round in 0..300 {
        one.ok("submit a");
        // The keeper looks a millisecond after the submission.
        std::thread::sleep(Duration::from_micros(700 + round % 7 * 100));
        one.ok("lock");
        one.ok("unlock");
    }
    let process = &one.process();
    assert_eq!(process.devices[0].counters.faults, 0);
}
