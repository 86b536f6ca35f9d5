//! Small C programs, each about one behaviour of the driver. They say themselves what they expect.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use gpushare_testbed::{Testbed, Watched, artifact, cc};

/// Compiles a program and links it with the simulator's driver, as one is linked with the real one.
fn program(name: &str) -> PathBuf {
    let apps = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apps");
    // A changed header is a changed program.
    let mut hasher = DefaultHasher::new();
    for header in ["app.h", "wire.h"] {
        let text = std::fs::read(apps.join(header)).expect("headers are beside the programs");
        text.hash(&mut hasher);
    }
    let library = artifact("libcuda.so");
    let dir = library.parent().expect("an artifact is in a directory");
    let link = format!("-L{}", dir.display());
    let version = format!("-DHEADER={:x}", hasher.finish());
    cc(
        &apps.join(format!("{name}.c")),
        name,
        &[&version, &link, "-lcuda"],
    )
}

macro_rules! programs {
    ($scenario:expr => $($name:ident)*) => {$(
        #[test]
        fn $name() {
            let bed = Testbed::with_scenario($scenario);
            let mut command = bed.sim_only(program(stringify!($name)));
            Watched::spawn(&mut command).succeed();
        }
    )*};
}

programs! {
    "two-gpus" =>
    array_roundtrip_copies
    capture_ends_by_a_forbidden_call
    capture_forks_and_joins
    capture_leaves_the_legacy_stream_alone
    capture_modes_decide_who_is_forbidden
    capture_of_per_thread_stream_and_events
    clones_and_executables_keep_objects_alive
    conditional_nodes_run_their_bodies
    copies_come_in_batches
    event_is_shared_between_processes
    graph_is_built_by_hand
    graph_keeps_objects_alive
    graph_memory_comes_with_the_launch
    graph_replays_what_was_captured
    host_memory_is_pinned
    managed_memory_keeps_wishes
    memory_is_shared_between_processes
    memory_outlasts_what_is_queued
    mipmap_levels_are_arrays
    multicast_keeps_what_is_bound
    null_arguments_are_errors
    peers_reach_each_other
    pointer_attribute_is_set
    pool_allocates_in_stream_order
    pool_allocates_nothing_for_no_bytes
    pool_is_of_the_host_or_managed
    pool_is_shared_between_processes
    pool_memory_goes_with_the_primary_context
    pool_trim_returns_what_is_reserved
    streams_name_their_context
    vmm_alias_sees_the_same_bytes
    vmm_segment_grows
}

programs! {
    "small" =>
    threads_use_all_at_once
}

programs! {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios/code.toml") =>
    code_takes_memory_when_it_is_first_needed
}
