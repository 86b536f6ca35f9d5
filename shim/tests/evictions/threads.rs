//! Threads that may call the driver while the process is evicted: the driver's own, recognised by the code that started them
//! and not by their name.

use gpushare_testbed::{Testbed, cc};
use shm_layout::Phase;

use crate::client::{Client, MIB, app};

const WORDS: u64 = MIB / 4;

/// Starts a client with this name that is evicted when it is idle.
fn named<'b>(bed: &'b Testbed, name: &str) -> Client<'b> {
    let mut client = Client::start_bare(bed, &[("GPUSHARE_EVICT_AFTER", "300ms")]);
    client.ok(&format!("name {name}"));
    client.ok("init");
    client.ok("device 0");
    client.ok(&format!("alloc a {MIB}"));
    client.ok(&format!("write a 7 {WORDS}"));
    client.ok("context-current c");
    client
}

/// Waits for the eviction and checks that this command ends it.
fn is_brought_back_by(client: &mut Client<'_>, words: &str) {
    client.reaches(Phase::Evicted);
    assert_eq!(client.code(words), 0, "{words}");
    assert_eq!(client.ok(&format!("read a {WORDS}"))[1], 7);
}

#[test]
fn a_name_like_those_of_the_drivers_threads_lets_nobody_past_the_door() {
    let bed = Testbed::new();
    for name in ["cuda-train", "cuda0", "cuda-EvtHandlr", "cuda00001400006"] {
        let mut client = named(&bed, name);
        is_brought_back_by(&mut client, "synchronize");
        for words in ["synchronize", "submit a", "call cuProfilerStop 0"] {
            // A thread inherits the name of the thread that starts it.
            let words = format!("in-a-thread in {words}");
            is_brought_back_by(&mut client, &words);
        }
    }
}

#[test]
fn a_driver_thread_that_stays_in_the_driver_has_the_memory_brought_back() {
    let bed = Testbed::new();
    let flags = ["-shared", "-fPIC", "-pthread"];
    let library = cc(&app("starts_threads.c"), "libcuda.so.9", &flags);
    let mut client = named(&bed, "memory");
    for words in ["alloc b 4096", "submit a", "call cuProfilerStop 0"] {
        let words = format!("in-a-thread-of {} in {words}", library.display());
        is_brought_back_by(&mut client, &words);
    }
}
