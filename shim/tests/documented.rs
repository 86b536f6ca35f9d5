//! The generated file `DRIVER.md`: the effect of each hook, and each environment variable. Run the tests with `BLESS=1` to
//! write it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use shm_layout::variables::{Reader, TABLE};

/// Calls below the driver's functions that were tried on a device and are not used: what was called, the driver's answer, and what
/// the throughput of two programs showed.
const TRIED: &[[&str; 3]] = &[
    [
        "`NVA06C_CTRL_CMD_SET_TIMESLICE` (0xa06c0103, microseconds) on each channel group",
        "0 in about 0.25 ms a group; GET (0xa06c0104) reads the value back",
        "obeys, and `hw-timeslice` uses it (libcuda sets 2 048 us on the compute group some 30 ms after it made it, so the slice is set again then): 8 ms beside 1 ms gave 9.19 and 1.38 a second. A longer slice did not help a program that waits for its processor: an LLM beside an embedding and a training took 17.9 ms a token by default, 21.5 with 100 ms for itself, 17.8 with 1 ms for the others (11.6 alone)",
    ],
    [
        "`NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS` (0x2080110b) on all 20 channels, with and without *only disable scheduling*",
        "0 in 0.4 to 0.9 ms",
        "not used; pauses even a running kernel: off for 4 of 6 s, one made 1.86 and the other 8.55 a second",
    ],
    [
        "`NVA06C_CTRL_CMD_GPFIFO_SCHEDULE` (0xa06c0101) with `bEnable` 0",
        "0",
        "no effect: 4.87 and 4.86 a second",
    ],
    [
        "`NVA06C_CTRL_CMD_PREEMPT` (0xa06c0105), 20 times in 2 s",
        "0 in about 0.3 ms a group",
        "no effect: 4.87 and 4.88 a second",
    ],
];

/// Functions for memory or work that pass through without a hook, each with the reason.
const LEFT_ALONE: &[(&str, &str)] = &[
    (
        "`cuLaunchHostFunc…`, `cuStreamAddCallback`",
        "run on the host",
    ),
    (
        "`cuStreamWaitValue…`, `cuStreamWriteValue…`, `cuStreamBatchMemOp`, events, semaphores",
        "order work and are none: a drain waits for what they wait for",
    ),
    (
        "`cuMemAddressReserve`, `cuMemAddressFree`, `cuMemSetAccess`, `cuMemAdvise`",
        "give addresses and rights, not memory",
    ),
    (
        "`cuMulticastAddDevice`, `cuMulticastGetGranularity`",
        "take no memory and keep none",
    ),
    (
        "other `cuLogicalEndpoint…`",
        "shown to other hosts is what `cuMemCreate` made and what is charged; what an endpoint keeps alive after its last handle is not known",
    ),
    (
        "`cuExternalMemoryGetMapped…`, `cuGraphics…`",
        "show memory that its maker is charged for",
    ),
    (
        "`cuModuleLoad…`, `cuLibraryLoad…`, `cuCtxCreate`",
        "take memory of the driver's own measure: it shows as unaccounted",
    ),
    (
        "`cuDevResource…`",
        "a green context takes no memory of its own",
    ),
    (
        "`cuGraphConditionalHandleCreate`, conditional nodes",
        "a launch counts as one graph; a driver refuses nodes that allocate in their bodies",
    ),
    (
        "`cuCheckpointProcessCheckpoint`, `cuCheckpointProcessRestore`",
        "what a program's own checkpoint takes off a device stays charged: it comes back to the same addresses",
    ),
    (
        "`cuGraphKernelNodeSetParams`, `cuGraphExecUpdate` and other changes to graphs",
        "a launch counts as one graph, whatever is in it; the nodes that allocate cannot be changed",
    ),
];

struct Row {
    since: i32,
    hook: &'static str,
    name: &'static str,
    has_twin: bool,
    /// The effect, on the first row of a hook.
    about: &'static str,
}

fn abouts() -> BTreeMap<&'static str, &'static str> {
    let mut abouts = BTreeMap::new();
    for row in ROWS {
        let about = abouts.entry(row.hook).or_insert(row.about.trim());
        let first = *about == row.about.trim();
        assert!(
            !about.is_empty(),
            "the first row of {} says nothing",
            row.hook
        );
        assert!(first || row.about.is_empty(), "{} says it again", row.name);
    }
    abouts
}

macro_rules! rows {
    (
        hooked { $($(#[doc = $about:literal])* $base:literal $since:literal $kind:ident $($hook:ident)::+ $(($($given:ident),*))? fn $name:ident $args:tt $(twin $twin:ident)?;)* }
        used { $($used:tt)* }
    ) => {
        const ROWS: &[Row] = &[
            $(Row {
                since: $since,
                hook: concat!($("::", stringify!($hook)),+),
                name: stringify!($name),
                has_twin: !concat!("", $(stringify!($twin))?).is_empty(),
                about: concat!("" $(, $about)*),
            },)*
        ];
    };
}

gpushare_abi::driver_table!(rows);

fn document() -> String {
    let mut text = String::from(
        "<!-- Generated from the tables by `BLESS=1 cargo test -p gpushare-shim documented`; do not edit. -->\n\n\
         # What we do at each function of the driver\n\n\
         A function that is not here passes through untouched; only while the process is evicted it waits, unless it is a query (`Query` in `abi`), which is answered or waits for the end of a move. *Since* is the version `cuGetProcAddress` is asked for.\n\n\
         | function | since | per-thread form | what we do |\n|---|---|---|---|\n",
    );
    let abouts = abouts();
    for row in ROWS {
        let since = match row.since {
            0 => "NVML".to_owned(),
            since => format!("{}.{}", since / 1000, since % 1000 / 10),
        };
        let twin = if row.has_twin { "yes" } else { "" };
        let (name, about) = (row.name, abouts[row.hook]);
        let _ = writeln!(text, "| `{name}` | {since} | {twin} | {about} |");
    }
    text.push_str("\n`ioctl` is exported too. What the driver asks its kernel module passes through untouched; the library reads the answers to three requests: which version the driver has (0xd2), that a channel group was made (0x2b, class 0xa06c), and that an object was released (0x29). Any other request goes on after one comparison.\n");
    text.push_str("\n# What passes through on purpose\n\n| functions | why |\n|---|---|\n");
    for (functions, why) in LEFT_ALONE {
        let _ = writeln!(text, "| {functions} | {why} |");
    }
    text.push_str("\nOf what a newer driver adds, `gpushare doctor` names what allocates, copies or launches.\n");
    text.push_str("\n# What was tried below the driver's functions\n\nOn a process's own descriptors; an H200, driver 580.159.04, two processes with kernels of 90 ms that made 4.87 a second each.\n\n");
    text.push_str("| call | answer | effect |\n|---|---|---|\n");
    for [call, answer, effect] in TRIED {
        let _ = writeln!(text, "| {call} | {answer} | {effect} |");
    }
    text.push_str("\n# The variables we read\n\nThe operator's word stands above all of these, ours above another tool's.\n\n");
    text.push_str("| variable | for example | what it does |\n|---|---|---|\n");
    let ours = TABLE
        .iter()
        .filter(|variable| variable.reader == Reader::Library);
    for variable in ours {
        let of = variable
            .alias_of
            .map(|ours| format!(" In place of `{ours}`."))
            .unwrap_or_default();
        let _ = writeln!(
            text,
            "| `{}` | `{}` | {}{of} |",
            variable.name, variable.example, variable.meaning
        );
    }
    text
}

#[test]
fn what_is_documented_is_what_the_tables_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("DRIVER.md");
    let text = document();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &text).expect("writing DRIVER.md");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == text,
        "DRIVER.md is stale: BLESS=1 cargo test -p gpushare-shim documented"
    );
}
