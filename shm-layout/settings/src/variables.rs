//! Every environment variable that gpushare reads or sets, in one table.
//!
//! Help, man pages, `DRIVER.md`, `gpushare run` and `gpushare doctor` take names and meanings from here. The value of a
//! library's variable is read by [`environment`](crate::environment), with the grammar of [`text`](crate::text).

use crate::row::About;
use crate::table::{self, SETTINGS};
pub use crate::value::ALIASES;

/// The program that reads a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The preloaded library; the tools check and pass on what it will read.
    Library,
    /// The tools.
    Tools,
    /// The simulated GPU.
    Simulator,
}

/// An environment variable.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Name; `_n` at the end stands for a device's ordinal.
    pub name: &'static str,
    /// An example value.
    pub example: &'static str,
    /// The program that reads it.
    pub reader: Reader,
    /// For another tool's variable: ours that it stands for.
    pub alias_of: Option<&'static str>,
    /// For another tool's variable: a limit may have it as its source.
    pub is_source: bool,
    /// The option of `gpushare run` that sets it; empty for none.
    pub option: &'static str,
    /// The values of that option, in a few characters.
    pub values: &'static str,
    /// Others rely on it: a launch that asks for it fails where it cannot be enforced.
    pub is_limit: bool,
    /// The effect of the variable.
    pub meaning: &'static str,
}

/// A variable without an option, for the fields that most have alike.
const PLAIN: Variable = Variable {
    name: "",
    example: "",
    reader: Reader::Library,
    alias_of: None,
    is_source: false,
    option: "",
    values: "",
    is_limit: false,
    meaning: "",
};

/// Declares a constant for each of our names, and the table of all. In brackets are an option of `gpushare run`, its values,
/// and whether it is a limit.
macro_rules! variables {
    ($($constant:ident = $name:literal, $example:literal, $reader:ident $([$option:literal $values:literal $is_limit:literal])?, $meaning:literal;)*
     => $($alias:literal, $value:literal, $of:expr, $does:literal;)*
     => $($other:literal, $given:literal, $near:expr, $instead:literal;)*) => {
        $(#[doc = $meaning] pub const $constant: &str = $name;)*

        /// Ours, but for those that the table of settings names.
        const OURS: &[Variable] = &[
            $(Variable {
                name: $name,
                example: $example,
                reader: Reader::$reader,
                meaning: $meaning,
                $(option: $option, values: $values, is_limit: $is_limit,)?
                ..PLAIN
            },)*
        ];

        const OTHERS: &[Variable] = &[
            $(Variable { name: $alias, example: $value, alias_of: Some($of), is_source: true, meaning: $does, ..PLAIN },)*
            $(Variable { name: $other, example: $given, alias_of: Some($near), meaning: $instead, ..PLAIN },)*
        ];
    };
}

variables! {
    SWAPPABLE = "GPUSHARE_SWAPPABLE", "1", Library, "Allocations of 2 MiB and more are made so that they leave the device and come back at the speed of the link when the process is evicted.";
    GROUP = "GPUSHARE_GROUP", "team-a", Library ["group" "G" true], "The group whose quota, weight and cap the process shares.";
    GANG = "GPUSHARE_GANG", "ddp-7b", Library ["gang" "JOB" false], "The job whose processes have their turns on all their devices together; `none` for no job. When not set, the job of torchrun, MPI or Slurm, if it has several processes; else what one session started as members of one group.";
    NAME = "GPUSHARE_NAME", "train-7b", Library ["name" "LABEL" false], "The label of the process in all displays; `name:LABEL` selects it as a target.";
    POLICY = "GPUSHARE_POLICY", "timeslice=5ms", Library ["policy" "POLICY" true], "The lock policy of the process unless the operator has set one.";
    DIR = "GPUSHARE_DIR", "/run/gpushare", Library, "The directory of the segments, in place of /run/gpushare and /dev/shm/gpushare-UID.";
    DISABLE = "GPUSHARE_DISABLE", "1", Library, "The preloaded library steps aside: nothing is counted, limited or locked.";
    LOG = "GPUSHARE_LOG", "info", Library, "How much the preloaded library prints on standard error: `off`, `warn` or `info`; `warn` when not set.";
    NVML_VIEW = "GPUSHARE_NVML_VIEW", "0", Library, "With `0` a program that asks NVML sees the whole device's memory and not its quota.";
    TRACE = "GPUSHARE_TRACE", "262144", Library, "Record driver calls from the first one on, with room for this many; `gpushare run --trace` sets it.";
    GPU_MEM = "GPUSHARE_GPU_MEM", "8GiB", Tools, "What all processes of a Slurm job may use of each GPU, where the site has only the TaskProlog; with the plugin `--gpu-mem` says it.";
    GPU_RESERVE = "GPUSHARE_GPU_RESERVE", "4GiB", Tools, "Memory of each GPU that no process outside a Slurm job can take, where the site has only the TaskProlog; with the plugin `--gpu-reserve` says it.";
    LIB = "GPUSHARE_LIB", "/opt/gpushare/libgpushare.so", Tools, "Where `gpushare run` finds the library to preload when it is not beside the program.";
    SIM = "GPUSHARE_SIM", "1", Tools, "The tools read the simulated GPU even when a real one is present.";
    SIM_WORLD = "GPUSHARE_SIM_WORLD", "demo", Simulator, "Name of the simulator's shared world; programs of one world contend with each other.";
    SIM_SCENARIO = "GPUSHARE_SIM_SCENARIO", "two-gpus", Simulator, "The simulated machine: a built-in scenario or the path of a TOML file.";
    ALLOWED_GPUS = "GPUSHARE_ALLOWED_GPUS", "/usr/local/share/gpus/ids", Tools, "File with the UUIDs `gpushare pick` may choose, one per line.";
    =>
    "WRAPPER_MAX_MEMORY", "4217928960", MEMORY, "Bytes, on every device.";
    "CUDA_OVERRIDE_KERNEL_N_SYNC", "10", POLICY, "`launches=N`; 0 is every launch.";
    "CUDA_OVERRIDE_MAX_SYNC_MS", "2.5", POLICY, "`timeslice`, in milliseconds; 0 is none.";
    "CUDA_OVERRIDE_ALWAYS_LOCK", "1", POLICY, "`always`, regardless of the previous two.";
    "CUDA_OVERRIDE_SYNC_LOCK_SKIPS", "1", POLICY, "`sync-skips=N`.";
    "ALNAIR_VGPU_COMPUTE_PERCENTILE", "50", CAP, "Percent; a value outside 1 to 99 is no limit.";
    "CUDA_DEVICE_MEMORY_LIMIT", "1g", MEMORY, "k, m, g or bytes, on every device; 0 is no limit.";
    "CUDA_DEVICE_MEMORY_LIMIT_n", "1024m", MEMORY, "The same for device n.";
    "CUDA_DEVICE_SM_LIMIT", "50", CAP, "Percent; 0 and 100 are no limit.";
    "CUDA_MEM_LIMIT", "1024m", MEMORY, "k, m, g or bytes, on every device; 0 is no limit.";
    "CUDA_MEM_LIMIT_n", "1g", MEMORY, "The same for device n.";
    "PFLOG", "./profile", "gpushare trace", "Alnair's name: the directory of metrics.log and timeline.log, for a program that writes them itself and for `gpushare trace export --format alnair`.";
    "CUDA_CORE_LIMIT", "50", CAP, "Percent; 0 and 100 are no limit.";
    "CUDA_CORE_LIMIT_n", "50", CAP, "The same for device n; where devices differ, the lowest holds on all.";
    "CUDA_TASK_PRIORITY", "0", PRIORITY, "0 is high (10), 1 is normal (0), 2 and 3 are low (-10, -20).";
    =>
    "GPU_CORE_UTILIZATION_POLICY", "disable", CAP, "With `disable`, CUDA_DEVICE_SM_LIMIT is not applied; with `force` or `default` it is.";
    "CUDA_MEM_RATIO", "2", "gpushare policy", "Host memory does not stand in for the device's, so a ratio has no effect; `gpushare policy set GPU overcommit=on` evicts idle processes instead.";
    "CUDA_MEM_RATIO_n", "2", "gpushare policy", "The same for device n.";
    "CUDA_OVERSUBSCRIBE", "true", "gpushare policy", "Host memory does not stand in for the device's, so this has no effect; `gpushare policy set GPU overcommit=on` evicts idle processes instead.";
    "ACTIVE_OOM_KILLER", "true", ON_FULL, "No process is killed over its quota, an allocation is refused or waits: see GPUSHARE_ON_FULL; `gpushare kill` ends one by hand.";
}

/// The variable of a setting.
const fn of_setting(about: &About) -> Variable {
    Variable {
        name: about.variable,
        example: about.example,
        option: about.word,
        values: about.values,
        is_limit: about.is_limit,
        meaning: about.says,
        ..PLAIN
    }
}

/// The settings, of which those with a variable are in the table.
const ROWS: [&About; 1 + SETTINGS.len()] = {
    let mut rows = [&table::MEMORY.about; 1 + SETTINGS.len()];
    let mut at = 0;
    while at < SETTINGS.len() {
        rows[1 + at] = SETTINGS[at];
        at += 1;
    }
    rows
};

/// Settings with a variable.
const LAUNCHED: usize = {
    let (mut at, mut launched) = (0, 0);
    while at < ROWS.len() {
        launched += !ROWS[at].variable.is_empty() as usize;
        at += 1;
    }
    launched
};

/// All of them, ours first; of these the settings before the rest.
pub const TABLE: &[Variable] = &{
    let mut all = [PLAIN; LAUNCHED + OURS.len() + OTHERS.len()];
    let (mut at, mut next) = (0, 0);
    while at < ROWS.len() {
        if !ROWS[at].variable.is_empty() {
            all[next] = of_setting(ROWS[at]);
            next += 1;
        }
        at += 1;
    }
    let mut at = 0;
    while at < OURS.len() + OTHERS.len() {
        all[next + at] = if at < OURS.len() {
            OURS[at]
        } else {
            OTHERS[at - OURS.len()]
        };
        at += 1;
    }
    all
};

/// The variables that an option of `gpushare run` sets.
pub fn of_options() -> impl Iterator<Item = &'static Variable> {
    TABLE.iter().filter(|variable| !variable.option.is_empty())
}

/// The variable of [`table::MEMORY`].
pub const MEMORY: &str = table::MEMORY.about.variable;
/// The variable of [`table::WEIGHT`].
pub const WEIGHT: &str = table::WEIGHT.about.variable;
/// The variable of [`table::PRIORITY`].
pub const PRIORITY: &str = table::PRIORITY.about.variable;
/// The variable of [`table::CAP`].
pub const CAP: &str = table::CAP.about.variable;
/// The variable of [`table::ON_FULL`].
pub const ON_FULL: &str = table::ON_FULL.about.variable;
/// The variable of [`table::RESERVE`].
pub const RESERVE: &str = table::RESERVE.about.variable;
/// The variable of [`table::EVICT_AFTER`].
pub const EVICT_AFTER: &str = table::EVICT_AFTER.about.variable;
/// The variable of [`table::PINNED`].
pub const PIN: &str = table::PINNED.about.variable;

/// NVIDIA's: 0 for a client of MPS of normal priority, 1 for one below; read when the program starts.
pub const MPS_CLIENT_PRIORITY: &str = "CUDA_MPS_CLIENT_PRIORITY";

/// A launcher of jobs that run as several processes, by the variables that it sets.
#[derive(Clone, Copy, Debug)]
pub struct Launcher {
    /// The variable with the number of processes of the job.
    pub processes: &'static str,
    /// The variables that name the job, at least one.
    pub job: &'static [&'static str],
}

/// The known launchers: torchrun and similar ones, PMIx (Open MPI), Slurm. The first that applies counts: a program that
/// torchrun starts in a step of Slurm belongs to torchrun's job.
pub const LAUNCHERS: [Launcher; 3] = [
    Launcher {
        processes: "WORLD_SIZE",
        job: &["TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"],
    },
    Launcher {
        processes: "OMPI_COMM_WORLD_SIZE",
        job: &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
    },
    Launcher {
        processes: "SLURM_STEP_NUM_TASKS",
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    },
];

/// The alias that asks for logs and limits nothing.
pub const PFLOG: &str = ALIASES[9];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_stands_once_and_is_explained() {
        for (at, variable) in TABLE.iter().enumerate() {
            assert!(variable.meaning.ends_with('.'), "{}", variable.name);
            let mut before = TABLE[..at].iter();
            assert!(
                !before.any(|other| other.name == variable.name),
                "{}",
                variable.name
            );
        }
    }

    #[test]
    fn the_aliases_that_are_sources_have_a_number_in_the_order_of_the_table() {
        let is_of_one_device = |variable: &&Variable| variable.name.ends_with("_n");
        let sources = TABLE.iter().filter(|variable| variable.is_source);
        let names = sources.filter(|variable| !is_of_one_device(variable));
        assert!(names.map(|variable| variable.name).eq(ALIASES));
        assert_eq!(PFLOG, "PFLOG");
    }
}
