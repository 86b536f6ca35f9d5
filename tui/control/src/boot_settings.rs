//! Boot settings: files whose settings are applied to new segments automatically, after a boot for instance.

use shm_layout::SegmentDir;
use shm_layout::text::PathText as _;

use super::installation::Installation as _;
use super::manifest::Manifest;
use gpushare_base::text::exit::Failure;

/// Reads and merges the files. Returns the settings with a name for messages, or `None` if there is no file.
pub fn read(dir: &SegmentDir) -> Result<Option<(Manifest, String)>, Failure> {
    let mut found: Option<(Manifest, String)> = None;
    let files = dir.boot_settings().into_iter();
    for file in files.filter(|file| file.exists()) {
        let (more, name) = (Manifest::read(&file)?, file.shown());
        found = Some(match found.take() {
            None => (more, name),
            Some((below, names)) => (more.above(below), format!("{names} and {name}")),
        });
    }
    Ok(found)
}
