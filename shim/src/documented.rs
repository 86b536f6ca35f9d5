//! `DRIVER.md`: what we do at each function of the driver, and each variable we read. Generated from the tables; run the
//! tests with `BLESS=1` to write it anew.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use crate::environment::{Stands, VARIABLES};

/// What each hook does. A hook without a line here fails the test, and so does a line without a hook.
const HOOKS: &[(&str, &str)] = &[
    (
        "life::init",
        "registers the process after the driver's own start",
    ),
    (
        "lookup::proc_address",
        "answers with our function where we have one",
    ),
    (
        "context::changes",
        "notes that the thread's device may change",
    ),
    (
        "context::set_current",
        "notes that the thread's device may change",
    ),
    ("context::destroy", "gives back what the context held"),
    ("context::detach", "gives back what the context held"),
    (
        "context::primary_release",
        "gives back what the context held, at the last release",
    ),
    ("context::primary_reset", "gives back what the context held"),
    (
        "memory::primary_retain",
        "notes which context a reset takes away",
    ),
    ("stream::destroy", "forgets the stream"),
    (
        "stream::begin_capture",
        "leaves the stream alone while it captures",
    ),
    (
        "memory::linear::alloc",
        "charged to the current device: the bytes asked for",
    ),
    (
        "memory::linear::alloc_pitch",
        "charged: the driver's pitch × height",
    ),
    ("memory::linear::free", "given back"),
    (
        "memory::pool::alloc",
        "charged: the bytes asked for; captured: with the graph's launches",
    ),
    (
        "memory::pool::alloc_from",
        "charged to the pool's device: the bytes asked for",
    ),
    (
        "memory::pool::free",
        "given back when asked, in program order; captured: by the graph's launches",
    ),
    ("memory::pool::create", "notes the pool's device"),
    ("memory::pool::destroy", "forgets the pool"),
    (
        "memory::pool::set_attribute",
        "a pool that keeps memory is trimmed to what the quota leaves",
    ),
    ("memory::pool::of_device", "notes the pool's device"),
    ("memory::pool::of_location", "notes the pool's device"),
    (
        "memory::physical::create",
        "charged to its device; on the host counted as pinned",
    ),
    (
        "memory::physical::release",
        "given back when no handle, mapping or binding is left",
    ),
    ("memory::physical::map", "keeps the memory charged"),
    (
        "memory::physical::unmap",
        "given back when no handle, mapping or binding is left",
    ),
    ("memory::physical::retain", "keeps the memory charged"),
    (
        "memory::physical::export",
        "notes the name on the fabric, by which an import is known as our own",
    ),
    (
        "memory::physical::import",
        "its maker stays charged; mappings of another process's memory are counted as imported",
    ),
    (
        "memory::multicast::create",
        "charged nothing: the object has no memory of its own",
    ),
    (
        "memory::multicast::bind",
        "keeps the memory charged to its device",
    ),
    (
        "memory::multicast::bind_for",
        "keeps the memory charged to its device",
    ),
    (
        "memory::multicast::bind_address",
        "keeps the memory charged to its device",
    ),
    (
        "memory::multicast::bind_address_for",
        "keeps the memory charged to its device",
    ),
    (
        "memory::multicast::unbind",
        "given back when no handle, mapping or binding is left",
    ),
    ("memory::sparse::map", "keeps the memory charged"),
    (
        "memory::array::create",
        "charged: the bytes of its shape, all layers and faces; sparse and deferred: nothing",
    ),
    ("memory::array::create_mipmapped", "charged: all levels"),
    ("memory::array::destroy", "given back"),
    ("memory::array::destroy_mipmapped", "given back"),
    ("memory::host::alloc", "counted as pinned, against no quota"),
    ("memory::host::free", "counted off"),
    (
        "memory::host::register",
        "counted as pinned, against no quota",
    ),
    ("memory::host::unregister", "counted off"),
    (
        "memory::import::open",
        "counted as imported; its maker is charged",
    ),
    ("memory::import::close", "counted off"),
    ("memory::import::external", "counted as imported"),
    ("memory::import::destroy_external", "counted off"),
    (
        "memory::graph::add_alloc",
        "notes what each launch will allocate",
    ),
    (
        "memory::graph::add_node",
        "notes what each launch will allocate or free; a moved child graph brings its nodes along",
    ),
    (
        "memory::graph::add_free",
        "notes what each launch will free",
    ),
    (
        "memory::graph::instantiate_with",
        "notes what launches will need; charged, if it uploads",
    ),
    (
        "memory::graph::upload",
        "charged: what a launch needs beyond what the device keeps for graphs",
    ),
    (
        "memory::graph::trim",
        "given back: what the device keeps for graphs and no allocation is using",
    ),
    (
        "launch::graph",
        "counted and locked; charged: what it needs beyond what the device keeps for graphs",
    ),
    (
        "memory::graph::destroy",
        "forgets the graph; its memory stays charged until it is trimmed",
    ),
    (
        "memory::graph::instantiate",
        "notes what launches will need",
    ),
    (
        "memory::graph::destroy_exec",
        "forgets the executable; its memory stays charged until it is trimmed",
    ),
    ("memory::view::info", "agrees with the quota"),
    ("memory::view::device_total", "agrees with the quota"),
    (
        "memory::nvml::memory_info",
        "agrees with the quota, unless GPUSHARE_NVML_VIEW=0",
    ),
    (
        "memory::nvml::memory_info_v2",
        "agrees with the quota, unless GPUSHARE_NVML_VIEW=0",
    ),
];

/// What all hooks of a module do, where one line says it.
const MODULES: &[(&str, &str)] = &[
    (
        "multi_device",
        "counted and locked on each of its devices, all at once",
    ),
    ("sync", "a release point of the lock"),
    (
        "copy",
        "counted with its bytes; a release point of the lock",
    ),
    ("launch", "counted and locked"),
    ("transfer", "counted with its bytes, and locked"),
    ("memset", "counted and locked"),
];

/// Functions that have to do with memory or work and pass through all the same.
const LEFT_ALONE: &[(&str, &str)] = &[
    (
        "`cuLaunchHostFunc`, `cuStreamAddCallback`",
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
        "`cuLogicalEndpoint…`",
        "shown to other hosts is what `cuMemCreate` made and what is charged; what an endpoint keeps alive after its last handle is not known",
    ),
    (
        "`cuMemPoolImport…`, `cuExternalMemoryGetMapped…`, `cuGraphics…`",
        "show memory that its maker is charged for",
    ),
    (
        "`cuModuleLoad…`, `cuLibraryLoad…`, `cuCtxCreate`",
        "take memory of the driver's own measure: it shows as unaccounted",
    ),
    (
        "`cuGraphKernelNodeSetParams`, `cuGraphExecUpdate` and other changes to graphs",
        "a launch counts as one graph, whatever is in it; the nodes that allocate cannot be changed",
    ),
];

fn what(hook: &str) -> Option<&'static str> {
    let module = hook.split("::").next().unwrap_or_default();
    let exact = HOOKS.iter().find(|(name, _)| *name == hook);
    let (_, what) = exact.or_else(|| MODULES.iter().find(|(name, _)| *name == module))?;
    Some(what)
}

macro_rules! rows {
    (
        hooked { $($base:literal $since:literal $kind:ident $($hook:ident)::+ $(($($given:ident),*))? fn $name:ident $args:tt $(twin $twin:ident)?;)* }
        used { $($used:tt)* }
    ) => {
        /// Base name, version, hook, symbol, per-thread form.
        const ROWS: &[(&str, i32, &str, &str, &str)] = &[
            $(($base, $since, concat!($("::", stringify!($hook)),+), stringify!($name), concat!("", $(stringify!($twin))?)),)*
        ];
    };
}

gpushare_abi::driver_table!(rows);

fn document() -> String {
    let mut text = String::from(
        "<!-- Generated from the tables by `BLESS=1 cargo test -p gpushare-shim documented`; do not edit. -->\n\n\
         # What we do at each function of the driver\n\n\
         A function that is not here passes through untouched. *Since* is the version `cuGetProcAddress` is asked for.\n\n\
         | function | since | per-thread form | what we do |\n|---|---|---|---|\n",
    );
    for (_, since, hook, name, twin) in ROWS {
        let hook = hook.trim_start_matches("::");
        let since = match since {
            0 => "NVML".to_owned(),
            since => format!("{}.{}", since / 1000, since % 1000 / 10),
        };
        let what = what(hook).unwrap_or_else(|| panic!("{hook} has no line in HOOKS"));
        let _ = writeln!(
            text,
            "| `{name}` | {since} | {} | {what} |",
            if twin.is_empty() { "" } else { "yes" }
        );
    }
    text.push_str("\n# What passes through on purpose\n\n| functions | why |\n|---|---|\n");
    for (functions, why) in LEFT_ALONE {
        let _ = writeln!(text, "| {functions} | {why} |");
    }
    text.push_str("\nOf what a newer driver adds, `gpushare doctor` names what allocates, copies or launches.\n");
    text.push_str("\n# The variables we read\n\nThe operator's word stands above all of these, ours above another tool's.\n\n");
    text.push_str("| variable | for example | what it does |\n|---|---|---|\n");
    for variable in VARIABLES {
        let of = match variable.stands {
            Stands::Own => String::new(),
            Stands::For(ours) => format!(" (in the place of `{ours}`)"),
        };
        let _ = writeln!(
            text,
            "| `{}` | `{}` | {}{of} |",
            variable.name, variable.example, variable.about
        );
    }
    text
}

#[test]
fn the_document_says_what_the_tables_say() {
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

#[test]
fn every_line_has_its_hook() {
    let hooks: BTreeMap<_, _> = ROWS
        .iter()
        .map(|row| (row.2.trim_start_matches("::"), row.3))
        .collect();
    for (hook, _) in HOOKS {
        assert!(hooks.contains_key(hook), "{hook} is no hook");
    }
}
