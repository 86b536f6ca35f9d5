//! The answers that differ between a user's own directory and the directory of a machine's broker.
//!
//! In their own directory a user edits the segments directly and keeps the log and the settings. A broker does that for the
//! users of a machine, so there a program asks the broker and writes nothing itself.

use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use shm_layout::broker::private_dir;
use shm_layout::locate::SYSTEM_DIR;
use shm_layout::{OpenError, SegmentDir, check_file_system};

use gpushare_base::text::files;

/// Directory of the audit log of the machine's broker.
pub const SYSTEM_LOGS: &str = "/var/log/gpushare";
/// File with the machine's boot settings.
const MACHINE: &str = "/etc/gpushare/config.toml";
/// File with the user's boot settings, in the directory for settings.
const USER: &str = "gpushare/config.toml";

/// The questions that a tool has about the segments' directory before it acts.
pub trait Installation {
    /// Returns the directory.
    fn dir(&self) -> &SegmentDir;

    /// Returns the words for the segments' owner.
    fn about(&self) -> &'static str {
        match self.dir().is_brokered {
            true => "the machine's, from its broker",
            false => "your own",
        }
    }

    /// Returns the directory of the audit log.
    fn logs(&self) -> PathBuf {
        match self.dir().is_brokered {
            true => logs_of_broker(&self.dir().path),
            false => self.dir().path.clone(),
        }
    }

    /// Returns true if a program writes a line about its own actions. A broker's log belongs to the broker and to root.
    fn is_log_ours(&self) -> bool {
        !self.dir().is_brokered
    }

    /// Returns the files with boot settings, the machine's first. A user of a broker has none.
    fn boot_settings(&self) -> Vec<PathBuf> {
        let home = files::config_home().filter(|_| !self.dir().is_brokered);
        let own = home.map(|home| home.join(USER));
        std::iter::once(MACHINE.into()).chain(own).collect()
    }

    /// Fails if the file system cannot carry segments. A broker's segments are in memory.
    fn check_file_system(&self) -> Result<(), OpenError> {
        match self.dir().is_brokered {
            true => Ok(()),
            false => check_file_system(&self.dir().path),
        }
    }

    /// Returns true if this program may make a group.
    fn may_make_groups(&self) -> bool {
        !self.dir().is_brokered || geteuid().is_root()
    }

    /// Returns true if this program may trace a user's process. Under a broker the trace is in a directory of that user.
    fn may_trace(&self, uid: u32) -> bool {
        !self.dir().is_brokered || geteuid().as_raw() == uid
    }
}

impl Installation for SegmentDir {
    fn dir(&self) -> &SegmentDir {
        self
    }
}

/// Returns the directory of a broker's log. For another directory than the machine's, it is beside the broker's other files.
pub(crate) fn logs_of_broker(dir: &Path) -> PathBuf {
    match dir == Path::new(SYSTEM_DIR) {
        true => SYSTEM_LOGS.into(),
        false => private_dir(dir),
    }
}
