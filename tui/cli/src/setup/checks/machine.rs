//! Checks of the kernel and the file system.

use std::fs;
use std::path::Path;

use shm_layout::text::PathText as _;

use super::{Finding, Patient};
use gpushare_base::host::elf::{self, Obstacle};
use gpushare_base::host::procfs;
use gpushare_base::text::units::{human_size, short_time};
use gpushare_observe::source::nvml::kernel_log::{self, KernelLog};

/// Free bytes that new segments need, with a margin.
const ROOM: u64 = 32 << 20;

pub(super) fn check(patient: &Patient) -> Vec<Finding> {
    let mut findings = vec![wait_on_several(), membarrier()];
    findings.extend(seccomp());
    findings.push(kernel_log());
    findings.extend(room(patient));
    findings.push(reach());
    findings
}

fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Checks for futex_waitv, with which a waiter wakes at once when the holder dies.
fn wait_on_several() -> Finding {
    use rustix::io::Errno;
    use rustix::thread::futex::{self, ClockId, WaitvFlags};
    match futex::waitv(&[], WaitvFlags::empty(), None, ClockId::Monotonic) {
        Err(Errno::NOSYS) => Finding::warn(
            "futex_waitv",
            format!("kernel {} does not have it (new in 5.16)", release()),
            "nothing to do: waiters poll every millisecond instead of being woken when a holder dies",
        ),
        Err(Errno::PERM) => Finding::warn(
            "futex_waitv",
            "a seccomp filter forbids it",
            "nothing to do: waiters poll every millisecond; a newer container runtime allows it",
        ),
        _ => Finding::ok(
            "futex_waitv",
            format!("kernel {} wakes waiters when a holder dies", release()),
        ),
    }
}

/// Checks for membarrier, with which a launch needs only a load instead of a fence.
fn membarrier() -> Finding {
    use rustix::thread::{MembarrierCommand, membarrier_query};
    if membarrier_query().contains_command(MembarrierCommand::PrivateExpedited) {
        Finding::ok("membarrier", "the launch path needs no fence")
    } else {
        Finding::warn(
            "membarrier",
            "the kernel or a seccomp filter does not allow it",
            "nothing to do: launches take a fenced path, some nanoseconds slower",
        )
    }
}

fn seccomp() -> Option<Finding> {
    let status = procfs::text("/proc/self/status").ok()?;
    let mode = status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp:"))?
        .trim();
    (mode == "2").then(|| {
        Finding::ok(
            "seccomp",
            "a filter is active; the checks above name what it forbids",
        )
    })
}

/// Checks for the kernel's log, which names the process of a GPU's error (Xid).
fn kernel_log() -> Finding {
    const CHECK: &str = "kernel log";
    let now_ms = jiff::Timestamp::now().as_millisecond();
    let log = KernelLog::open(Path::new(kernel_log::KMSG));
    let newest = match log.map(|mut log| log.take(now_ms).pop()) {
        Ok(newest) => newest,
        Err(error) => {
            return Finding::warn(
                CHECK,
                format!("{} cannot be read: {error}", kernel_log::KMSG),
                "root, or kernel.dmesg_restrict=0, may read it; without it the dashboard shows the errors of a GPU (Xid) that come \
                 while it runs, and not of which process they are",
            );
        }
    };
    let newest = newest.map_or_else(
        || "no error of a GPU (Xid) in it".to_owned(),
        |(card, xid)| {
            let ago = now_ms.saturating_sub(xid.unix_ms).unsigned_abs();
            format!(
                "the newest error of a GPU is Xid {}, at {card}, {} ago",
                xid.number.unwrap_or_default(),
                short_time(ago.saturating_mul(1_000_000))
            )
        },
    );
    Finding::ok(CHECK, format!("readable; {newest}"))
}

fn room(patient: &Patient) -> Option<Finding> {
    let dir = patient.dir.as_ref().ok().map(|dir| dir.path.as_path());
    let place = dir.unwrap_or(Path::new("/dev/shm"));
    // The first program makes the directory, and none above it.
    let place = match place.parent() {
        Some(parent) if !place.exists() => parent,
        _ => place,
    };
    let stat = match rustix::fs::statvfs(place) {
        Ok(stat) => stat,
        Err(error) => {
            return Some(Finding::fail(
                "room",
                format!("cannot inspect {}: {error}", place.shown()),
                "mount a tmpfs there, or set GPUSHARE_DIR to a directory on one",
            ));
        }
    };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    Some(if free < ROOM {
        Finding::warn(
            "room",
            format!("{} has only {} free", place.shown(), human_size(free)),
            "free some, or give the container more (docker run --shm-size=256m); new segments may not fit",
        )
    } else {
        Finding::ok(
            "room",
            format!("{} free in {}", human_size(free), place.shown()),
        )
    })
}

/// Lists the programs that a preload cannot reach on this machine.
fn reach() -> Finding {
    if elf::obstacle(Path::new("/bin/sh")) == Some(Obstacle::Musl) {
        return Finding::warn(
            "reach",
            "this system's programs use the musl C library, which NVIDIA's driver does not support",
            "run GPU programs in a container with glibc; the library steps aside in musl programs",
        );
    }
    Finding::ok(
        "reach",
        "dynamically linked programs, unless they are setuid or have file capabilities; not static programs, and not a \
         driver that a program loads by dlmopen; gpushare doctor -- CMD checks one program",
    )
}
