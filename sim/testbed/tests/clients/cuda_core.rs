//! NVIDIA's Pythonic runtime over the driver API, unmodified from PyPI, on the simulator.

use gpushare_testbed::python;

use crate::each_way::{client, each_way};

#[test]
fn cuda_core_copies_pools_forks_a_graph_and_maps_memory() {
    let Some(python) = python(&["cuda-bindings==13.5.0", "cuda-core==1.2.2"]) else {
        return;
    };
    let run = each_way(python, |command| {
        command.arg(client("cuda_core.py"));
    });
    assert_eq!(run.printed, "Simulated GPU: done\n");
    // One launch and two replays of a graph of three.
    assert_eq!(run.kernels, 7);
}
