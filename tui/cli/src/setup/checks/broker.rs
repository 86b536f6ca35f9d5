//! Check of the machine's broker.

use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use shm_layout::broker::private_dir;
use shm_layout::locate::SYSTEM_DIR;
use shm_layout::socket::SOCKET;
use shm_layout::text::PathText as _;
use shm_layout::{ABI_VERSION, OpenError};

use super::segments::named_dir;
use super::{Finding, Level, Patient};
use gpushare_broker::status;
use shm_layout::variables;

const CHECK: &str = "broker";
/// The directory of the units that `gpushare init` writes.
const ADMINISTRATORS: &str = "/etc/systemd/system";
/// Directories in which a unit may be.
const UNITS: [&str; 3] = [
    ADMINISTRATORS,
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// Returns the findings; none on a machine of one user. For a user who named a directory of their own, a failure becomes a
/// warning, because their programs do not depend on the broker.
pub(super) fn check(patient: &Patient) -> Vec<Finding> {
    let mut findings = findings(patient);
    let apart = matches!(&patient.dir, Ok(dir) if !dir.is_brokered && named_dir());
    for finding in findings.iter_mut().filter(|_| apart) {
        if finding.level == Level::Fail {
            finding.level = Level::Warn;
            finding.found = format!(
                "{} (your programs do without it: {} is set)",
                finding.found,
                variables::DIR
            );
        }
    }
    findings
}

/// Returns what an installed unit says while no broker serves: a package brings one to every machine, an administrator only to
/// those that need it.
fn not_started(unit: Option<&str>) -> Vec<Finding> {
    let stopped = "gpushare.service is installed and not started";
    match unit {
        Some(ADMINISTRATORS) => vec![Finding::warn(
            CHECK,
            stopped,
            "systemctl enable --now gpushare",
        )],
        Some(_) => vec![Finding::ok(
            CHECK,
            format!("{stopped}; only users who do not trust each other need it"),
        )],
        None => Vec::new(),
    }
}

fn findings(patient: &Patient) -> Vec<Finding> {
    let system = Path::new(SYSTEM_DIR);
    let ours = patient.dir.as_ref().ok().filter(|dir| dir.is_brokered);
    let dir = ours.map_or(system, |dir| &dir.path);
    let mut units = UNITS.into_iter();
    let unit = units.find(|place| Path::new(place).join("gpushare.service").exists());
    let socket = std::fs::symlink_metadata(dir.join(SOCKET));
    if !socket.is_ok_and(|socket| socket.file_type().is_socket()) {
        return not_started(unit);
    }
    let mut findings = match status(dir) {
        Ok(broker) => {
            let found = format!(
                "{} serves, release {}, process {}",
                dir.shown(),
                broker.release,
                broker.pid
            );
            let mut findings = vec![Finding::ok(CHECK, found)];
            if broker.abi != ABI_VERSION || broker.release != env!("CARGO_PKG_VERSION") {
                findings.push(Finding::fail(
                    CHECK,
                    format!(
                        "the broker is release {} (version {}) and this is {} (version {ABI_VERSION})",
                        broker.release,
                        broker.abi,
                        env!("CARGO_PKG_VERSION")
                    ),
                    "use one release everywhere; restart the broker after an update",
                ));
            }
            let faults = broker.faults.into_iter();
            findings.extend(faults.map(|fault| {
                Finding::warn(
                    CHECK,
                    fault,
                    "use a kernel that allows it, and no user in a container as root",
                )
            }));
            findings
        }
        Err(OpenError::NoBroker { source, .. })
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            vec![Finding::warn(
                CHECK,
                format!("{} serves, and you are not in its group", dir.shown()),
                "ask to be added to the group of gpushare serve; then log in again",
            )]
        }
        Err(error) => vec![Finding::fail(
            CHECK,
            error.to_string(),
            "systemctl restart gpushare; programs that run go on meanwhile, and new ones run unmanaged",
        )],
    };
    // Without systemd the broker may be started in ways that this check cannot see.
    if dir == system && unit.is_none() && sd_notify::booted().unwrap_or(false) {
        findings.push(Finding::warn(
            CHECK,
            "no gpushare.service is installed: after a reboot there is no broker",
            "gpushare init --group GROUP installs it",
        ));
    }
    findings.extend(reachable(dir));
    findings
}

/// Checks that users cannot reach the broker's private files.
fn reachable(dir: &Path) -> Option<Finding> {
    use std::os::unix::fs::MetadataExt as _;
    let private = private_dir(dir);
    let meta = std::fs::metadata(&private).ok()?;
    let open = meta.mode() & 0o077 != 0 || meta.uid() != 0;
    open.then(|| {
        Finding::fail(
            CHECK,
            format!("others may enter {}", private.shown()),
            "restart the broker, which closes it",
        )
    })
}
