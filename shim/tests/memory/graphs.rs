//! Memory that the driver keeps for graphs. The simulator behaves as the driver of an H200 does (580.159.04): an upload or a
//! launch takes the memory, and it is kept until it is trimmed. The ledger must agree to the byte at each step.

use gpushare_testbed::Testbed;
use proptest::prelude::*;

use crate::client::{Client, INVALID_VALUE, MIB, OUT_OF_MEMORY};

const NOT_SUPPORTED: u64 = 801;

/// Checks that the charge equals the bytes that the driver keeps for graphs.
fn kept(client: &mut Client<'_>, bytes: u64, when: &str) {
    assert_eq!(client.ok("graph-kept"), [bytes], "the driver {when}");
    assert_eq!(client.used(), bytes, "the ledger {when}");
}

/// Makes a graph `name` with one allocation, which it frees or not, and an executable of it.
fn graph(client: &mut Client<'_>, name: &str, bytes: u64, freed: bool) {
    client.ok(&format!("graph {name}"));
    client.ok(&format!("graph-alloc node-{name} {name} {bytes} at-{name}"));
    if freed {
        client.ok(&format!(
            "graph-free {name} node-{name} at-{name} free-{name}"
        ));
    }
    client.ok(&format!("graph-instantiate exec-{name} {name}"));
}

#[test]
fn a_graphs_memory_is_charged_from_its_launch_until_it_is_trimmed() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok("stream s");
    graph(&mut client, "g", 4 * MIB, false);
    kept(&mut client, 0, "before a launch");
    assert_eq!(client.code("graph-instantiate again g"), NOT_SUPPORTED);
    assert_eq!(client.code("graph-clone copy g"), NOT_SUPPORTED);
    client.ok("graph-upload exec-g s");
    kept(&mut client, 4 * MIB, "after an upload");
    client.ok("graph-launch exec-g s");
    assert_eq!(
        client.code("graph-launch exec-g s"),
        INVALID_VALUE,
        "in use"
    );
    client.ok("graph-trim");
    kept(&mut client, 4 * MIB, "trimmed while in use");
    client.ok("free-async at-g");
    client.ok("synchronize");
    client.ok("graph-launch exec-g s");
    kept(&mut client, 4 * MIB, "launched again");
    client.ok("free at-g");
    client.ok("graph-trim");
    kept(&mut client, 0, "freed and trimmed");
    client.ok("graph-launch exec-g s");
    client.ok("graph-exec-destroy exec-g");
    client.ok("graph-destroy g");
    client.ok("graph-trim");
    kept(&mut client, 4 * MIB, "destroyed and trimmed while in use");
    client.ok("free-async at-g");
    client.ok("synchronize");
    kept(&mut client, 4 * MIB, "freed at last");
    client.ok("graph-trim");
    kept(&mut client, 0, "at the end");
}

#[test]
fn graphs_in_one_stream_share_what_they_free_themselves() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok("stream s");
    for (name, bytes, together) in [("a", 3, 3), ("b", 2, 3), ("c", 5, 5)] {
        graph(&mut client, name, bytes * MIB, true);
        for _ in 0..2 {
            client.ok(&format!("graph-launch exec-{name} s"));
            kept(&mut client, together * MIB, name);
        }
    }
    graph(&mut client, "d", MIB, false);
    client.ok("graph-launch exec-d s");
    kept(&mut client, 5 * MIB, "out of what is free again");
    for name in ["a", "b", "c"] {
        client.ok(&format!("graph-exec-destroy exec-{name}"));
        client.ok(&format!("graph-destroy {name}"));
    }
    client.ok("graph-trim");
    kept(&mut client, MIB, "trimmed down to what is in use");
}

#[test]
fn graphs_in_idle_streams_share_too() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "5MiB")]);
    for (name, stream) in [("a", "s"), ("b", "t"), ("c", "u")] {
        client.ok(&format!("stream {stream}"));
        graph(&mut client, name, 4 * MIB, true);
        client.ok(&format!("graph-launch exec-{name} {stream}"));
        kept(&mut client, 4 * MIB, "the launch before is done");
    }
}

#[test]
fn a_graph_that_runs_keeps_its_memory_from_other_streams_and_from_a_trim() {
    let bed = Testbed::new();
    let mut client = with_one_that_runs(&bed, "12MiB");
    client.ok("graph-launch exec-b t");
    kept(&mut client, 8 * MIB, "beside the one that runs");
    client.ok("graph-trim");
    kept(&mut client, 4 * MIB, "trimmed while it runs");
    client.denied(&format!("alloc more {}", 10 * MIB));
    client.ok("graph-launch exec-b t");
    kept(&mut client, 8 * MIB, "again beside it");
    client.ok("host-write word 1");
    client.ok("synchronize");
    client.ok("graph-trim");
    kept(&mut client, 0, "at the end");
}

/// Launches a graph of 4 MiB under a quota; it runs in the stream `s` until the host writes 1 to `word`.
fn with_one_that_runs<'b>(bed: &'b Testbed, quota: &str) -> Client<'b> {
    let mut client = Client::start(bed, &[("GPUSHARE_MEMORY", quota)]);
    client.ok("host word 4");
    client.ok("host-write word 0");
    client.ok("stream s");
    client.ok("stream t");
    for name in ["a", "b"] {
        graph(&mut client, name, 4 * MIB, true);
    }
    client.ok("stream-hold s word 1");
    client.ok("graph-submit exec-a s");
    client
}

#[test]
fn a_graph_that_runs_in_a_destroyed_stream_keeps_its_memory_until_it_is_done() {
    let bed = Testbed::new();
    let mut client = with_one_that_runs(&bed, "4MiB");
    client.ok("stream-destroy s");
    client.denied("graph-submit exec-b t");
    client.ok("graph-trim");
    kept(&mut client, 4 * MIB, "trimmed while it runs");
    client.ok("host-write word 1");
    client.ok("synchronize");
    client.ok("graph-launch exec-b t");
    kept(&mut client, 4 * MIB, "in its place");
}

#[test]
fn a_graph_that_runs_keeps_its_memory_beside_the_end_of_another_context() {
    let bed = Testbed::new();
    let mut client = with_one_that_runs(&bed, "4MiB");
    client.ok("context c 0");
    client.ok("context-destroy c");
    client.ok("device 0");
    client.denied("graph-submit exec-b t");
    client.ok("host-write word 1");
    client.ok("synchronize");
    client.ok("graph-launch exec-b t");
    kept(&mut client, 4 * MIB, "in its place");
}

#[test]
fn graphs_in_a_default_stream_leave_their_memory_to_others_after_a_reset() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "5MiB")]);
    graph(&mut client, "a", 4 * MIB, true);
    client.ok("graph-submit exec-a none");
    client.ok("synchronize");
    client.ok("device-reset 0");
    client.ok("device 0");
    client.ok("stream t");
    graph(&mut client, "b", 4 * MIB, true);
    client.ok("graph-launch exec-b t");
    kept(&mut client, 4 * MIB, "in the place of the first");
}

#[test]
fn graphs_in_a_context_that_was_destroyed_leave_their_memory_to_others() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "5MiB")]);
    client.ok("stream t");
    client.ok("context c 0");
    client.ok("stream s");
    for name in ["a", "b"] {
        graph(&mut client, name, 4 * MIB, true);
    }
    client.ok("graph-submit exec-a s");
    client.ok("context-destroy c");
    client.ok("device 0");
    client.ok("graph-launch exec-b t");
    kept(&mut client, 4 * MIB, "in the place of the first");
}

#[test]
fn a_captured_free_of_what_no_graph_allocated_is_refused_and_changes_nothing() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok("stream s");
    client.ok("async a 4096");
    client.ok("capture s");
    assert_eq!(client.code("capture-free a s"), INVALID_VALUE);
    client.code("capture-end s g");
    assert_eq!(client.used(), 4096);
    client.ok("free-async a");
    assert_eq!(client.used(), 0);
}

#[test]
fn a_denied_launch_answers_out_of_memory_and_may_be_made_later() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "8MiB")]);
    client.ok("stream s");
    client.ok(&format!("alloc a {}", 4 * MIB));
    graph(&mut client, "g", 6 * MIB, true);
    client.denied("graph-upload exec-g s");
    client.denied("graph-launch exec-g s");
    assert_eq!(client.process().devices[0].counters.denials, 2);
    kept_beside(&mut client, 4 * MIB);
    client.ok("free a");
    client.ok("graph-launch exec-g s");
    kept(&mut client, 6 * MIB, "launched at last");
    client.denied(&format!("alloc a {}", 4 * MIB));
    client.ok("graph-trim");
    client.ok(&format!("alloc a {}", 4 * MIB));
}

/// Checks that nothing is kept for graphs and that `bytes` are charged for other memory.
fn kept_beside(client: &mut Client<'_>, bytes: u64) {
    assert_eq!(client.ok("graph-kept"), [0]);
    assert_eq!(client.used(), bytes);
}

#[test]
fn an_instantiation_that_uploads_is_charged_or_denied_itself() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "5MiB")]);
    client.ok("stream s");
    client.ok("graph g");
    client.ok("graph-alloc n g 4194304 a");
    client.ok(&format!("alloc other {}", 2 * MIB));
    let denied = client.ask("graph-instantiate-uploading x g s");
    assert_eq!(denied, (OUT_OF_MEMORY, vec!["1".to_owned()]));
    kept_beside(&mut client, 2 * MIB);
    client.ok("free other");
    assert_eq!(client.ok("graph-instantiate-uploading x g s"), [0]);
    kept(&mut client, 4 * MIB, "uploaded");
    client.ok("graph-launch x s");
    kept(&mut client, 4 * MIB, "launched");
}

#[test]
fn a_launch_the_driver_refuses_is_not_charged() {
    let bed = Testbed::with_scenario("small");
    let mut client = Client::start(&bed, &[]);
    let total = client.ok("info")[1];
    client.ok("stream s");
    graph(&mut client, "g", total + 2 * MIB, true);
    client.denied("graph-launch exec-g s");
    assert_eq!(client.used(), 0);
    assert_eq!(
        client.process().devices[0].counters.denials,
        0,
        "the driver's own"
    );
}

#[test]
fn an_executable_that_frees_by_itself_is_charged_once() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok("stream s");
    client.ok("graph g");
    client.ok("graph-alloc n g 3145728 a");
    client.ok("graph-instantiate-freeing x g");
    for _ in 0..3 {
        client.ok("graph-launch x s");
        kept(&mut client, 3 * MIB, "launched");
    }
    client.ok("free a");
    client.ok("graph-trim");
    kept(&mut client, 0, "freed");
}

#[test]
fn one_graph_may_free_what_another_allocates() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok("stream s");
    graph(&mut client, "g", 2 * MIB, false);
    client.ok("graph f");
    client.ok("graph-free f nothing at-g node-f");
    client.ok("graph-instantiate exec-f f");
    for _ in 0..2 {
        client.ok("graph-launch exec-g s");
        client.ok("graph-trim");
        kept(&mut client, 2 * MIB, "in use");
        client.ok("graph-launch exec-f s");
    }
    client.ok("graph-trim");
    kept(&mut client, 0, "freed by the other");
}

#[test]
fn a_child_graph_that_is_moved_brings_its_memory() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok("stream s");
    client.ok("graph child");
    client.ok("graph-alloc n child 2097152 a");
    client.ok("graph-free child n a f");
    client.ok("graph parent");
    client.ok("graph-move parent child in");
    assert_eq!(client.code("graph-destroy child"), INVALID_VALUE);
    client.ok("graph-instantiate x parent");
    client.ok("graph-launch x s");
    kept(&mut client, 2 * MIB, "launched");
    client.ok("graph-exec-destroy x");
    client.ok("graph-destroy parent");
    client.ok("graph-trim");
    kept(&mut client, 0, "trimmed");
}

#[test]
fn captured_allocations_of_no_bytes_make_no_graph_that_allocates() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok("stream s");
    client.ok("capture s");
    client.ok("capture-alloc a 0 s");
    client.ok("capture-free a s");
    client.ok("capture-end s g");
    client.ok("graph-instantiate x g");
    client.ok("graph-launch x s");
    client.ok("graph-launch x s");
    assert_eq!(client.used(), 0);
}

#[test]
fn what_is_captured_is_the_graphs() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok("stream s");
    client.ok("capture s");
    client.ok("capture-alloc a 5242880 s");
    client.ok("capture-free a s");
    client.ok("capture-alloc b 2097152 s");
    client.ok("capture-end s g");
    kept(&mut client, 0, "captured");
    client.ok("graph-instantiate x g");
    client.ok("graph-launch x s");
    assert_eq!(client.used(), 7 * MIB, "each launch allocates anew");
    client.ok("free-async b");
    client.ok("synchronize");
    client.ok("graph-launch x s");
    assert_eq!(client.used(), 7 * MIB);
    client.ok("free b");
    client.ok("graph-exec-destroy x");
    client.ok("graph-destroy g");
    client.ok("graph-trim");
    kept(&mut client, 0, "trimmed");
}

#[test]
fn what_is_kept_for_graphs_that_are_gone_is_given_up_before_a_denial() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "8MiB")]);
    client.ok("stream s");
    graph(&mut client, "g", 6 * MIB, true);
    client.ok("graph-launch exec-g s");
    client.denied(&format!("alloc a {}", 4 * MIB));
    kept(&mut client, 6 * MIB, "while the executable may need it");
    client.ok("graph-exec-destroy exec-g");
    client.ok(&format!("alloc a {}", 4 * MIB));
    assert_eq!((client.ok("graph-kept"), client.used()), (vec![0], 4 * MIB));
    assert_eq!(client.process().devices[0].counters.denials, 1);
}

/// A step of a program with a few graphs. The object that it names may be of any kind, or destroyed. Each launch is waited for.
#[derive(Clone, Debug)]
enum Step {
    Make {
        graph: u8,
        sizes: Vec<(u64, bool)>,
        freeing: bool,
    },
    Launch {
        graph: u8,
        stream: u8,
    },
    Upload {
        graph: u8,
        stream: u8,
    },
    Free {
        graph: u8,
        piece: u8,
    },
    Trim,
    DestroyExec {
        graph: u8,
    },
    DestroyGraph {
        graph: u8,
    },
}

const GRAPHS: std::ops::Range<u8> = 0..4;
const STREAMS: std::ops::Range<u8> = 0..2;
const PIECES: std::ops::Range<u8> = 0..3;

fn step() -> impl Strategy<Value = Step> {
    let sizes = prop::collection::vec((1..5_u64, any::<bool>()), 1..PIECES.end as usize);
    prop_oneof![
        4 => (GRAPHS, sizes, any::<bool>())
            .prop_map(|(graph, sizes, freeing)| Step::Make { graph, sizes, freeing }),
        6 => (GRAPHS, STREAMS).prop_map(|(graph, stream)| Step::Launch { graph, stream }),
        1 => (GRAPHS, STREAMS).prop_map(|(graph, stream)| Step::Upload { graph, stream }),
        4 => (GRAPHS, PIECES).prop_map(|(graph, piece)| Step::Free { graph, piece }),
        2 => Just(Step::Trim),
        1 => GRAPHS.prop_map(|graph| Step::DestroyExec { graph }),
        1 => GRAPHS.prop_map(|graph| Step::DestroyGraph { graph }),
    ]
}

impl Step {
    /// Sends the step to the client; every result of the driver is allowed.
    fn run(&self, client: &mut Client<'_>) {
        let command = match self {
            Self::Make {
                graph,
                sizes,
                freeing,
            } => {
                client.code(&format!("graph-exec-destroy x{graph}"));
                client.code(&format!("graph-destroy g{graph}"));
                client.ok(&format!("graph g{graph}"));
                for (piece, (size, freed)) in sizes.iter().enumerate() {
                    let bytes = size * MIB + 4096;
                    client.ok(&format!("graph-alloc n g{graph} {bytes} a{graph}{piece}"));
                    if *freed {
                        client.ok(&format!("graph-free g{graph} n a{graph}{piece} f"));
                    }
                }
                let how = if *freeing {
                    "graph-instantiate-freeing"
                } else {
                    "graph-instantiate"
                };
                format!("{how} x{graph} g{graph}")
            }
            Self::Launch { graph, stream } => format!("graph-launch x{graph} s{stream}"),
            Self::Upload { graph, stream } => format!("graph-upload x{graph} s{stream}"),
            Self::Free { graph, piece } => format!("free a{graph}{piece}"),
            Self::Trim => "graph-trim".to_owned(),
            Self::DestroyExec { graph } => format!("graph-exec-destroy x{graph}"),
            Self::DestroyGraph { graph } => format!("graph-destroy g{graph}"),
        };
        client.code(&command);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Makes, launches, uploads, frees, trims and destroys in any order, correctly and wrongly. At each step the charge equals
    /// the bytes that the driver keeps for graphs.
    #[test]
    fn the_ledger_is_what_the_driver_keeps_in_any_order(steps in prop::collection::vec(step(), 1..60)) {
        let bed = Testbed::new();
        let mut client = Client::start(&bed, &[]);
        STREAMS.for_each(|stream| _ = client.ok(&format!("stream s{stream}")));
        for (number, step) in steps.iter().enumerate() {
            step.run(&mut client);
            let kept = client.ok("graph-kept")[0];
            prop_assert_eq!(client.used(), kept, "after step {}: {:?}", number, step);
        }
    }
}
