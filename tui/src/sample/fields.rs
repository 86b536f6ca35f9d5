//! What each key of a process in JSON means: the manual prints it, a test holds it to what is written.

/// Path and meaning, in the order in which they are written.
pub const FIELDS: &[(&str, &str)] = &[
    (
        "pid",
        "Its pid on this host; null where it cannot be seen from here.",
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
    ("trace.state", "on, or why nothing is written."),
    ("trace.records", "Records written."),
    ("trace.dropped", "Records that found no room."),
    (
        "trace.room_records",
        "Records there is room for; null when its launch asked for it.",
    ),
    ("devices", "One entry for each device it can see."),
    ("devices[].gpu", "The device's number, as --gpu takes it."),
    ("devices[].uuid", "The device's UUID."),
    (
        "devices[].used_bytes",
        "What it holds; for an unmanaged process what NVML says.",
    ),
    ("devices[].peak_bytes", "The most it ever held."),
    (
        "devices[].quota_bytes",
        "What it may hold; null for no limit.",
    ),
    (
        "devices[].quota_source",
        "Who set the quota, as for share_source.",
    ),
    ("devices[].denials", "Allocations that were refused."),
    ("devices[].launches", "Kernels and graphs launched."),
    (
        "devices[].lock",
        "Its dealings with the device's lock; null for an unmanaged process.",
    ),
    ("devices[].lock.policy", "The rule it obeys."),
    (
        "devices[].lock.policy_source",
        "Who set the policy, as for share_source.",
    ),
    ("devices[].lock.state", "idle, wait, hold or paused."),
    (
        "devices[].lock.held_ns",
        "How long it held the lock altogether.",
    ),
    (
        "devices[].lock.waited_ns",
        "How long it waited for it altogether.",
    ),
    ("devices[].lock.acquisitions", "How often it got it."),
    ("devices[].lock.forced", "How often it was taken away."),
    (
        "devices[].lock.hold_p50_us",
        "Half of its holds were no longer.",
    ),
    (
        "devices[].lock.hold_p99_us",
        "Ninety-nine in a hundred holds were no longer.",
    ),
    (
        "devices[].lock.wait_p50_us",
        "Half of its waits were no longer.",
    ),
    (
        "devices[].lock.wait_p99_us",
        "Ninety-nine in a hundred waits were no longer.",
    ),
    (
        "devices[].lock.ended_by",
        "How often its holds ended for each reason.",
    ),
    (
        "devices[].lock.waited_for",
        "Whom it waited for, the longest first.",
    ),
    (
        "devices[].lock.waited_for[].pid",
        "That process's pid; null when it has gone or cannot be seen from here.",
    ),
    (
        "devices[].lock.waited_for[].ns_pid",
        "That process's pid as it sees itself; null when it has gone.",
    ),
    ("devices[].lock.waited_for[].waited_ns", "How long."),
];
