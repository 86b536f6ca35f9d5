//! NVIDIA's own Python binding of the driver API, unmodified from PyPI, on the simulator.

use gpushare_testbed::python;

use crate::each_way::{client, each_way};

#[test]
fn cuda_bindings_copies_launches_replays_graphs_and_meets_the_end_of_memory() {
    let Some(python) = python(&["cuda-bindings==13.5.0"]) else {
        return;
    };
    let run = each_way(python, |command| {
        command.arg(client("cuda_bindings.py"));
    });
    assert_eq!(
        run.printed,
        "Simulated GPU: done, 64 pieces of 256 MiB fit\n"
    );
    // Three launches and two replays of a graph of two.
    assert_eq!(run.kernels, 7);
}

#[test]
fn cuda_bindings_asks_for_per_thread_streams_too() {
    let Some(python) = python(&["cuda-bindings==13.5.0"]) else {
        return;
    };
    let run = each_way(python, |command| {
        command
            .arg(client("cuda_bindings.py"))
            .env("CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM", "1");
    });
    assert_eq!(run.kernels, 7);
}

#[test]
fn cuda_bindings_builds_graphs_maps_memory_and_fills_arrays() {
    let Some(python) = python(&["cuda-bindings==13.5.0"]) else {
        return;
    };
    let run = each_way(python, |command| {
        command.arg(client("by_hand.py"));
    });
    assert_eq!(run.printed, "nothing is left\n");
}
