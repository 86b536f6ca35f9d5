//! Every environment variable gpushare reads or sets, in one table.
//!
//! Help, man pages and `gpushare run` take the names from here.

/// One variable.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What a value looks like.
    pub example: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

/// Declares a constant for each name and the table of all.
macro_rules! variables {
    ($($(#[$doc:meta])* $constant:ident = $name:literal, $example:literal, $meaning:literal;)*) => {
        $($(#[$doc])* #[doc = $meaning] pub const $constant: &str = $name;)*

        /// All of them, in the order the manual prints.
        pub const TABLE: &[Variable] = &[$(Variable { name: $name, example: $example, meaning: $meaning },)*];
    };
}

variables! {
    MEMORY = "GPUSHARE_MEMORY", "8GiB", "Quota of the process: a size, a percentage of the device, `none`, or one per device (`0:8GiB,1:50%`).";
    WEIGHT = "GPUSHARE_WEIGHT", "200", "Share of the device's time against others under the order `fair`, 1 to 1000; 100 when not set.";
    PRIORITY = "GPUSHARE_PRIORITY", "5", "Place in the queue under the order `priority`, -20 to 19, higher first; 0 when not set.";
    CAP = "GPUSHARE_CAP", "30%", "The most of the device's time the process may hold, 1 to 100 percent.";
    GROUP = "GPUSHARE_GROUP", "team-a", "The group whose quota, weight and cap the process shares.";
    NAME = "GPUSHARE_NAME", "train-7b", "The label under which the process is shown and found as `name:LABEL`.";
    POLICY = "GPUSHARE_POLICY", "timeslice=5ms", "The lock policy the process obeys where the operator has set none.";
    DIR = "GPUSHARE_DIR", "/run/gpushare", "The directory of the segments, in place of /run/gpushare and /dev/shm/gpushare-UID.";
    DISABLE = "GPUSHARE_DISABLE", "1", "The preloaded library steps aside: nothing is counted, limited or locked.";
    LOG = "GPUSHARE_LOG", "info", "How much the preloaded library says on standard error: `off`, `warn` or `info`; `warn` when not set.";
    NVML_VIEW = "GPUSHARE_NVML_VIEW", "0", "With `0` a program that asks NVML sees the whole device's memory and not its quota.";
    TRACE = "GPUSHARE_TRACE", "262144", "A trace from the first call on, with room for so many records; `gpushare run --trace` sets it.";
    LIB = "GPUSHARE_LIB", "/opt/gpushare/libgpushare.so", "Where `gpushare run` finds the library to preload when it is not beside the program.";
    SIM = "GPUSHARE_SIM", "1", "The tools look at the simulated GPU even where a real one is present.";
    SIM_WORLD = "GPUSHARE_SIM_WORLD", "demo", "Name of the simulator's shared world; programs of one world contend with each other.";
    SIM_SCENARIO = "GPUSHARE_SIM_SCENARIO", "two-gpus", "The simulated machine: a built-in scenario or the path of a TOML file.";
    PFLOG = "PFLOG", "./profile", "Alnair's name: the directory of metrics.log and timeline.log, for a program that writes them itself and for `gpushare trace export --format alnair`.";
    ALLOWED_GPUS = "GPUSHARE_ALLOWED_GPUS", "/usr/local/share/gpus/ids", "File with the UUIDs `gpushare pick` may choose, one a line.";
}

/// Names of other tools that the preloaded library honours, with what they stand for here.
pub const ALIASES: &[(&str, &str)] = &[
    ("WRAPPER_MAX_MEMORY", "memory=BYTES"),
    ("CUDA_OVERRIDE_KERNEL_N_SYNC", "policy launches=N"),
    ("CUDA_OVERRIDE_MAX_SYNC_MS", "policy timeslice=Nms"),
    ("CUDA_OVERRIDE_ALWAYS_LOCK", "policy always"),
    ("CUDA_OVERRIDE_SYNC_LOCK_SKIPS", "policy sync-skips=N"),
    ("ALNAIR_VGPU_COMPUTE_PERCENTILE", "cap=N%"),
    ("CUDA_DEVICE_MEMORY_LIMIT", "memory=SIZE"),
    ("CUDA_DEVICE_MEMORY_LIMIT_n", "memory, on device n"),
    ("CUDA_DEVICE_SM_LIMIT", "cap=N%"),
    ("CUDA_MEM_LIMIT", "memory=SIZE"),
    ("CUDA_MEM_LIMIT_n", "memory, on device n"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The library cannot be a dependency of the tools, so its own table is read as text.
    const LIBRARY: &str = include_str!("../../shim/src/environment/table.rs");

    #[test]
    fn every_variable_the_library_reads_is_explained() {
        let quoted = LIBRARY.split('"').skip(1).step_by(2);
        let names: Vec<&str> = quoted.filter(|text| is_name(text)).collect();
        assert!(
            names.len() > 15,
            "the library's table was not understood: {names:?}"
        );
        for name in names {
            let explained = TABLE.iter().any(|variable| variable.name == name);
            assert!(
                explained || ALIASES.iter().any(|(alias, _)| *alias == name),
                "{name}"
            );
        }
    }

    fn is_name(text: &str) -> bool {
        let name = text.strip_suffix("_n").unwrap_or(text);
        name.contains('_')
            && name
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    }

    #[test]
    fn each_name_is_said_once_and_explained() {
        for (at, variable) in TABLE.iter().enumerate() {
            assert!(variable.meaning.ends_with('.'), "{}", variable.name);
            assert!(
                !TABLE[..at].iter().any(|other| other.name == variable.name),
                "{}",
                variable.name
            );
        }
    }
}
