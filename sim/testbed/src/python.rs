//! Real clients from PyPI, unmodified, in a virtual environment under the target directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::artifact::{lock, target_dir};
use crate::needs::{Need, needs};

/// Returns the interpreter of an environment with `packages` (pip requirements, `name==version`).
///
/// The environment is made on first use and kept; concurrent test programs wait for each other. If pip cannot provide the
/// packages, the reason is printed and `None` is returned: the test [`needs`] `PyPI`.
///
/// # Panics
///
/// As [`needs`].
pub fn python(packages: &[&str]) -> Option<PathBuf> {
    provided("python", packages, None)
}

/// Age up to which an environment with the newest releases is used again.
const NEW_ENOUGH: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the interpreter of an environment with the newest releases of `packages`; otherwise it works as [`python`].
///
/// That environment is separate from the one with fixed versions.
///
/// # Panics
///
/// As [`needs`].
pub fn newest_python(packages: &[&str]) -> Option<PathBuf> {
    provided("newest-python", packages, Some(NEW_ENOUGH))
}

fn provided(name: &str, packages: &[&str], renewed: Option<Duration>) -> Option<PathBuf> {
    let clients = target_dir().join("clients");
    match provide(&clients, name, packages, renewed) {
        Ok(python) => needs(Need::Works("PyPI", true)).then_some(python),
        Err(reason) => {
            eprintln!("no clients from PyPI: {reason}");
            needs(Need::Works("PyPI", false));
            None
        }
    }
}

fn provide(
    clients: &Path,
    name: &str,
    packages: &[&str],
    renewed: Option<Duration>,
) -> Result<PathBuf, String> {
    std::fs::create_dir_all(clients).map_err(|error| error.to_string())?;
    let _one_at_a_time = lock(&clients.join("lock"));
    let environment = clients.join(name);
    let python = environment.join("bin/python");
    // The first environment keeps its older file name.
    let stamps = clients.join(match renewed {
        None => "installed".to_owned(),
        Some(_) => format!("installed-{name}"),
    });
    std::fs::create_dir_all(&stamps).map_err(|error| error.to_string())?;

    let missing: Vec<&str> = packages
        .iter()
        .copied()
        .filter(|package| !is_there(&stamps.join(package), renewed))
        .collect();
    if missing.is_empty() && python.exists() {
        return Ok(python);
    }
    if !python.exists() {
        succeed(
            Command::new("python3")
                .args(["-m", "venv"])
                .arg(&environment),
        )?;
    }
    succeed(
        Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--prefer-binary"])
            .args(renewed.map(|_| "--upgrade"))
            .arg("--disable-pip-version-check")
            .args(&missing),
    )?;
    for package in missing {
        std::fs::write(stamps.join(package), "").map_err(|error| error.to_string())?;
    }
    Ok(python)
}

/// Returns true if the environment is installed and not too old.
fn is_there(stamp: &Path, renewed: Option<Duration>) -> bool {
    let Ok(installed) = stamp.metadata().and_then(|stamp| stamp.modified()) else {
        return false;
    };
    renewed.is_none_or(|often| installed.elapsed().is_ok_and(|age| age < often))
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let output = command
        .env_remove("LD_PRELOAD")
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}: {}", output.status, said.trim()))
}
