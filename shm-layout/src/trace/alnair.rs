//! The text of Alnair's profiler: the one place that knows its layout and its names.
//!
//! Its hook library wrote two files into the directory of `PFLOG`, and changed their form once. The newer form is
//!
//! ```text
//! metrics.log                      timeline.log
//! name:cuInit                      name:cuInit start:1662497122263345556 burst:4213887
//! count:4                          name:cuMemcpyH2D start:1662497162147795473 burst:23
//! burst:4213891
//! ```
//!
//! with `burst` in microseconds and `start` in nanoseconds of the wall clock. The older form ([`old`]) has one summary of
//! the process, and three lines for each call.

use super::Kind;

/// The calls of its own that Alnair always lists, in its order, and the exports that they stand for.
pub const METRICS: [(&str, &[&str]); 7] = [
    ("cuInit", &["cuInit"]),
    ("cuMemAlloc", &["cuMemAlloc", "cuMemAlloc_v2"]),
    ("cuMemFree", &["cuMemFree", "cuMemFree_v2"]),
    ("cuLaunchKernel", &["cuLaunchKernel", "cuLaunchKernel_ptsz"]),
    (
        "cuMemcpyH2D",
        &["cuMemcpyHtoD", "cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds"],
    ),
    (
        "cuMemcpyD2H",
        &["cuMemcpyDtoH", "cuMemcpyDtoH_v2", "cuMemcpyDtoH_v2_ptds"],
    ),
    (
        "cuGetProcAddress",
        &["cuGetProcAddress", "cuGetProcAddress_v2"],
    ),
];

/// Returns Alnair's name of an exported function: a name of its own, else the export without version and stream form.
pub fn name(exported: &str) -> &str {
    for (name, exports) in METRICS {
        if exports.contains(&exported) {
            return name;
        }
    }
    let plain = exported
        .strip_suffix("_ptsz")
        .or_else(|| exported.strip_suffix("_ptds"))
        .unwrap_or(exported);
    match plain.rsplit_once("_v") {
        Some((base, version))
            if !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            base
        }
        _ => plain,
    }
}

/// Returns the name that a record other than a call has beside Alnair's calls.
pub fn name_of_kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Call => "call",
        Kind::Wait => "lockWait",
        Kind::Hold => "lockHold",
        Kind::Denial => "denial",
    }
}

/// A call's lines in `metrics.log`.
pub fn metrics_line(name: &str, count: u64, total_ns: u64) -> String {
    format!("name:{name}\ncount:{count}\nburst:{}\n", total_ns / 1000)
}

/// A call's line in `timeline.log`. `start_ns` is the wall clock's.
pub fn timeline_line(name: &str, start_ns: u64, duration_ns: u64) -> String {
    format!(
        "name:{name} start:{start_ns} burst:{}\n",
        duration_ns / 1000
    )
}

/// All of `metrics.log`: Alnair's own calls first, made or not, then every other that was made. `calls` are exported
/// names, counts and nanoseconds.
pub fn metrics<'c>(calls: impl IntoIterator<Item = (&'c str, u64, u64)>) -> String {
    let mut sums: Vec<(&str, u64, u64)> = METRICS.iter().map(|(name, _)| (*name, 0, 0)).collect();
    for (exported, count, total_ns) in calls {
        let name = name(exported);
        match sums.iter_mut().find(|(known, ..)| *known == name) {
            Some(sum) => {
                sum.1 = sum.1.wrapping_add(count);
                sum.2 = sum.2.wrapping_add(total_ns);
            }
            None => sums.push((name, count, total_ns)),
        }
    }
    sums.into_iter()
        .map(|(name, count, total_ns)| metrics_line(name, count, total_ns))
        .collect()
}

/// The form before 2022-09.
pub mod old {
    /// All of `metrics.log`.
    pub fn metrics(pid: u32, kernels: u64, used_bytes: u64, kernel_ns: u64) -> String {
        format!(
            "pid:{pid}\nkernel-cnt:{kernels}\nmem-used:{used_bytes}\nburst-tm:{}\n",
            kernel_ns / 1000
        )
    }

    /// A call's lines in the timeline (then `pf.log`).
    pub fn timeline(name: &str, start_ns: u64, duration_ns: u64) -> String {
        format!(
            "name:{name}\nstart:{start_ns}\nburst:{}\n",
            duration_ns / 1000
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_read_as_alnairs_do() {
        assert_eq!(
            timeline_line("cuInit", 1_662_497_122_263_345_556, 4_213_887_123),
            "name:cuInit start:1662497122263345556 burst:4213887\n"
        );
        assert_eq!(
            metrics_line("cuMemAlloc", 124, 174_295_999),
            "name:cuMemAlloc\ncount:124\nburst:174295\n"
        );
    }

    #[test]
    fn its_own_calls_are_listed_made_or_not_and_ours_behind_them() {
        let text = metrics([
            ("cuMemcpyHtoD_v2", 3, 5_000),
            ("cuMemcpyHtoD_v2_ptds", 1, 2_000),
            ("cuMemsetD8Async_ptsz", 2, 9_000),
        ]);
        let names: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("name:"))
            .collect();
        assert_eq!(
            names,
            [
                "cuInit",
                "cuMemAlloc",
                "cuMemFree",
                "cuLaunchKernel",
                "cuMemcpyH2D",
                "cuMemcpyD2H",
                "cuGetProcAddress",
                "cuMemsetD8Async",
            ]
        );
        assert!(
            text.contains("name:cuMemcpyH2D\ncount:4\nburst:7\n"),
            "{text}"
        );
    }

    #[test]
    fn a_name_loses_its_version_and_stream_form_only() {
        assert_eq!(name("cuCtxCreate_v4"), "cuCtxCreate");
        assert_eq!(name("cuStreamSynchronize_ptsz"), "cuStreamSynchronize");
        assert_eq!(name("cuGraphLaunch"), "cuGraphLaunch");
        assert_eq!(
            name("nvmlDeviceGetMemoryInfo_v2"),
            "nvmlDeviceGetMemoryInfo"
        );
        assert_eq!(name("odd_v"), "odd_v");
    }
}
