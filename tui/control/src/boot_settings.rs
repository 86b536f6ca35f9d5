//! Boot settings: files whose settings are applied to new segments automatically, after a boot for instance.

use std::path::PathBuf;

use shm_layout::Mode;
use shm_layout::text::PathText as _;

use super::manifest::Manifest;
use gpushare_base::text::exit::Failure;
use gpushare_base::text::files;

/// File of the machine.
const MACHINE: &str = "/etc/gpushare/config.toml";
/// File of the user, in the directory for settings.
const USER: &str = "gpushare/config.toml";

/// Returns the files, the machine's first. If a broker serves the machine, a user has none.
pub fn files(mode: Mode) -> Vec<PathBuf> {
    let own = match mode {
        Mode::System => None,
        Mode::User => files::config_home().map(|home| home.join(USER)),
    };
    std::iter::once(MACHINE.into()).chain(own).collect()
}

/// Reads and merges the files. Returns the settings with a name for messages, or `None` if there is no file.
pub fn read(mode: Mode) -> Result<Option<(Manifest, String)>, Failure> {
    let mut found: Option<(Manifest, String)> = None;
    for file in files(mode).into_iter().filter(|file| file.exists()) {
        let (more, name) = (Manifest::read(&file)?, file.shown());
        found = Some(match found.take() {
            None => (more, name),
            Some((below, names)) => (more.above(below), format!("{names} and {name}")),
        });
    }
    Ok(found)
}
