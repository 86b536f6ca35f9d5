//! The libraries and programs a test starts: where they are, and building them when they are stale.
//!
//! `cargo test -p X` builds no other package's cdylib, so a test that preloads one has to see to it.
//! An artifact that is newer than every file in cargo's own dependency list is used as it is, and so is one that
//! `cargo test` has made on its way, if it is newer than every source; otherwise cargo builds its package, with this
//! test's profile, into this test's target directory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};

/// File name of an artifact, and the package that makes it.
const PACKAGES: [(&str, &str); 9] = [
    ("libgpushare.so", "gpushare-shim"),
    ("libgpushare_spank.so", "gpushare-spank"),
    ("libcuda.so", "gpushare-sim-cuda"),
    ("libnvidia_ml.so", "gpushare-sim-nvml"),
    ("gpushare-workload", "gpushare-workload"),
    ("gpushare-sim-mps", "gpushare-sim"),
    ("gpushare", "gpushare"),
    ("gpushare-top", "gpushare"),
    ("gpushare-dra", "gpushare-dra"),
];

/// The path of an artifact, built first if it is missing or stale.
///
/// `GPUSHARE_ARTIFACTS` names a directory of ready-made ones instead, for a machine without cargo.
///
/// # Panics
///
/// When the name is unknown or the build fails; cargo's own message is on stderr by then.
pub fn artifact(name: &str) -> PathBuf {
    static MADE: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    if let Some(dir) = std::env::var_os("GPUSHARE_ARTIFACTS") {
        return PathBuf::from(dir).join(name);
    }
    // One build at a time in this process; a test that panicked in here leaves the map usable.
    let mut made = MADE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let made = made.get_or_insert_default();
    if let Some(path) = made.get(name) {
        return path.clone();
    }
    let path = profile_dir().join(name);
    if !is_fresh(&path) && !is_made_on_the_way(&path) {
        build(name);
    }
    made.insert(name.to_owned(), path.clone());
    path
}

/// An artifact built for another machine by a C compiler for it; `None` where that compiler or Rust's own
/// libraries for the machine are not installed.
///
/// # Panics
///
/// When the name is unknown or the build fails.
pub fn artifact_for(target: &str, compiler: &str, name: &str) -> Option<PathBuf> {
    let there = Command::new(compiler).arg("--version").output().is_ok();
    let libraries = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .output()
        .ok()?;
    let libraries = String::from_utf8_lossy(&libraries.stdout).trim().to_owned();
    if !there || libraries.is_empty() || !Path::new(&libraries).exists() {
        return None;
    }
    let linker = format!(
        "CARGO_TARGET_{}_LINKER",
        target.to_uppercase().replace('-', "_")
    );
    cargo_build(name, &["--target", target], &[(&linker, compiler)]);
    let profile = profile_dir();
    let profile = profile.file_name().expect("named after its profile");
    Some(target_dir().join(target).join(profile).join(name))
}

/// The target directory this test was built into.
pub fn target_dir() -> PathBuf {
    profile_dir()
        .parent()
        .expect("a profile's directory is inside the target directory")
        .to_owned()
}

/// `target/debug` or its like: test binaries lie one below, in `deps` or `examples`.
fn profile_dir() -> PathBuf {
    let own = std::env::current_exe().expect("a test knows its own path");
    own.ancestors()
        .nth(2)
        .expect("cargo puts tests two folders deep")
        .to_owned()
}

fn build(name: &str) {
    cargo_build(name, &[], &[]);
}

fn cargo_build(name: &str, args: &[&str], variables: &[(&str, &str)]) {
    let (_, package) = PACKAGES
        .iter()
        .find(|(artifact, _)| *artifact == name)
        .unwrap_or_else(|| panic!("no package makes an artifact named {name}"));
    let _one_at_a_time = lock(&target_dir().join("gpushare-artifacts.lock"));
    let profile_dir = profile_dir();
    let profile = match profile_dir.file_name().and_then(|name| name.to_str()) {
        None | Some("debug") => "dev",
        Some(profile) => profile,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // The simulator's two libraries are needed together, and then their dependencies are compiled once.
    let packages: &[&str] = match *package {
        "gpushare-sim-cuda" | "gpushare-sim-nvml" => {
            &["-pgpushare-sim-cuda", "-pgpushare-sim-nvml"]
        }
        _ => &["--package", *package],
    };
    let status = Command::new(cargo)
        .args(["build", "--quiet"])
        .args(packages)
        .args(["--profile", profile, "--target-dir"])
        .arg(target_dir())
        .args(args)
        .envs(variables.iter().copied())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap_or_else(|error| panic!("cargo could not be started to build {name}: {error}"));
    assert!(status.success(), "building {package} for {name} failed");
}

/// Whether nothing the artifact was made from has changed since, by cargo's list beside it.
fn is_fresh(artifact: &Path) -> bool {
    let Some(made) = modified(artifact) else {
        return false;
    };
    let Ok(list) = std::fs::read_to_string(artifact.with_extension("d")) else {
        return false;
    };
    // One line, `artifact: source source …`; a blank inside a path is escaped and so never found,
    // which only costs a call of cargo.
    let Some((_, sources)) = list.split_once(": ") else {
        return false;
    };
    let lock_file = workspace().join("Cargo.lock");
    sources
        .split_whitespace()
        .map(Path::new)
        .chain([lock_file.as_path()])
        .all(|source| modified(source).is_some_and(|changed| changed < made))
}

/// Whether `cargo test` itself has made it: a program, for the tests of its package. Cargo leaves no list beside those. Building
/// them by themselves would compile most of their dependencies once more, for a feature less.
fn is_made_on_the_way(artifact: &Path) -> bool {
    if artifact.extension().is_some() || artifact.with_extension("d").exists() {
        return false;
    }
    let sources = [
        "tui/src",
        "shim/abi",
        "shm-layout/src",
        "shm-layout/settings/src",
        "sim",
        "Cargo.lock",
    ];
    let newest = sources
        .iter()
        .filter_map(|dir| newest(&workspace().join(dir)))
        .max();
    modified(artifact).is_some_and(|made| Some(made) > newest)
}

/// When the newest file in a folder was changed.
fn newest(path: &Path) -> Option<SystemTime> {
    match std::fs::read_dir(path) {
        Ok(inside) => inside.filter_map(|entry| newest(&entry.ok()?.path())).max(),
        Err(_) => modified(path),
    }
}

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

/// Holds a file's lock until the file is dropped.
pub(crate) fn lock(path: &Path) -> std::fs::File {
    let file = std::fs::File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    flock(&file, FlockOperation::LockExclusive).expect("a local file can be locked");
    file
}
