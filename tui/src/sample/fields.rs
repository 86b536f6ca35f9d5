//! What each key of a process in JSON means: the manual prints it, a test holds it to what is written.

/// Path and meaning, in the order in which they are written.
pub const FIELDS: &[(&str, &str)] = &[
    (
        "pid",
        "Its pid on this host; null if it is not visible from here.",
    ),
    (
        "ns_pid",
        "Its pid as it sees itself; null for a process that only NVML sees.",
    ),
    ("user", "Its user's name, or the number."),
    ("name", "The label from run --name."),
    ("exe", "The path of its program."),
    ("container", "Its container, short."),
    ("group", "The group whose quota it shares."),
    (
        "state",
        "hold, wait, idle, paused, stopped (by a signal or a debugger), stuck (its keeper shows no sign of life) or unmanaged (only NVML sees it).",
    ),
    (
        "priority",
        "Its place under order=priority, a boost included.",
    ),
    ("weight", "Its share under order=fair; 100 is normal."),
    (
        "cap_percent",
        "The most of a device's time it may have; null for no cap.",
    ),
    (
        "share_source",
        "Who set weight, priority or cap: default, launch, group, operator, invalid, or another tool's variable.",
    ),
    ("trace", "Its trace; null without one."),
    ("trace.state", "on, or why nothing is recorded."),
    ("trace.records", "Records written."),
    ("trace.dropped", "Records that did not fit."),
    (
        "trace.room_records",
        "Capacity in records; null when its launch asked for the trace.",
    ),
    ("devices", "One entry for each device it can see."),
    ("devices[].gpu", "The device's number, as --gpu takes it."),
    ("devices[].uuid", "The device's UUID."),
    (
        "devices[].used_bytes",
        "Memory it holds; for an unmanaged process NVML's figure.",
    ),
    ("devices[].peak_bytes", "The most memory it ever held."),
    ("devices[].quota_bytes", "Its quota; null for no limit."),
    (
        "devices[].quota_source",
        "Who set the quota, as for share_source.",
    ),
    ("devices[].denials", "Allocations that were refused."),
    ("devices[].launches", "Kernels and graphs launched."),
    (
        "devices[].lock",
        "Its use of the device's lock; null for an unmanaged process.",
    ),
    ("devices[].lock.policy", "The policy it follows."),
    (
        "devices[].lock.policy_source",
        "Who set the policy, as for share_source.",
    ),
    ("devices[].lock.state", "idle, wait, hold or paused."),
    ("devices[].lock.held_ns", "Total time it held the lock."),
    (
        "devices[].lock.waited_ns",
        "Total time it waited for the lock.",
    ),
    (
        "devices[].lock.acquisitions",
        "How often it acquired the lock.",
    ),
    (
        "devices[].lock.forced",
        "How often the lock was taken from it.",
    ),
    (
        "devices[].lock.hold_p50_us",
        "The median of its hold times.",
    ),
    (
        "devices[].lock.hold_p99_us",
        "The 99th percentile of its hold times.",
    ),
    (
        "devices[].lock.wait_p50_us",
        "The median of its wait times.",
    ),
    (
        "devices[].lock.wait_p99_us",
        "The 99th percentile of its wait times.",
    ),
    (
        "devices[].lock.ended_by",
        "How often its holds ended for each reason.",
    ),
    (
        "devices[].lock.waited_for",
        "The processes it waited for, the longest wait first.",
    ),
    (
        "devices[].lock.waited_for[].pid",
        "That process's pid; null when it has gone or is not visible from here.",
    ),
    (
        "devices[].lock.waited_for[].ns_pid",
        "That process's pid as it sees itself; null when it has gone.",
    ),
    (
        "devices[].lock.waited_for[].waited_ns",
        "How long it waited for that process.",
    ),
];
