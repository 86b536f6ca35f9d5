//! A holder and a waiter, for the tests of how the one looks at the other.

use std::path::Path;

use super::super::{DeviceLock, wait::Watch};
use crate::{
    Change, Identity, LaunchLimits, LockPolicy, Operator, PolicyKind, Registration, register,
};

pub(in crate::lock) const MS: u64 = 1_000_000;

/// Slices of 100 ms, and 200 ms to drain.
pub(in crate::lock) fn slices() -> LockPolicy {
    LockPolicy {
        kind: PolicyKind::Timeslice(100 * MS),
        grace_ns: 200 * MS,
        ..LockPolicy::default()
    }
}

/// Queues a waiter, which begins to watch the holder.
pub(in crate::lock) fn queued(waiter: &DeviceLock<'_>, start: u64) -> Watch {
    waiter.enqueue(start);
    Watch::begin(start)
}

/// Makes new segments where this policy applies to every device, and returns their operator.
pub(in crate::lock) fn operator(dir: &Path, policy: LockPolicy) -> Operator {
    let operator = Operator::open(dir).expect("operator");
    let change = Change::Policy {
        device: None,
        policy: Some(policy),
        until: None,
    };
    operator.edit(None, &change, 0).expect("edited");
    operator
}

pub(in crate::lock) fn pair(
    policy: LockPolicy,
) -> (tempfile::TempDir, Registration, Registration, crate::Entry) {
    let dir = tempfile::tempdir().expect("a directory");
    let operator = operator(dir.path(), policy);
    let enter = || {
        let process = register(
            operator.segments(),
            &Identity::default(),
            &LaunchLimits::default(),
        );
        let process = process.expect("a slot");
        let entry = process.add_device([1; 16], 0, "", 1, 0).expect("an entry");
        (process, entry)
    };
    let ((holder, entry), (waiter, _)) = (enter(), enter());
    (dir, holder, waiter, entry)
}
