//! The libraries and programs that a test starts: their paths, and building them when they are stale.
//!
//! `cargo test -p X` builds no other package's cdylib, so a test that preloads one must build it. An artifact is used as it is
//! if it is newer than every file in cargo's list of its sources. A program without such a list, which `cargo test` builds for
//! its package's tests, is used if it is newer than every source file. Otherwise cargo builds the package with this test's
//! profile into this test's target directory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};

/// File name of an artifact, and its package.
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

/// Returns the path of an artifact. Builds it first if it is missing or stale.
///
/// `GPUSHARE_ARTIFACTS` names a directory of ready-made artifacts instead, for a machine without cargo.
///
/// # Panics
///
/// When the name is unknown or the build fails; cargo's message is on stderr.
pub fn artifact(name: &str) -> PathBuf {
    static MADE: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    if let Some(dir) = std::env::var_os("GPUSHARE_ARTIFACTS") {
        return PathBuf::from(dir).join(name);
    }
    // This process builds one artifact at a time. The map stays valid if a test panics here.
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

/// Builds an artifact for another machine with a C compiler for it. Returns `None` if that compiler or Rust's libraries for the
/// machine are not installed.
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

/// Returns the target directory of this test.
pub fn target_dir() -> PathBuf {
    profile_dir()
        .parent()
        .expect("a profile's directory is inside the target directory")
        .to_owned()
}

/// Returns the profile's directory, such as `target/debug`. Test binaries are one level below, in `deps` or `examples`.
pub(crate) fn profile_dir() -> PathBuf {
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
    // Tests need both libraries of the simulator, and one build compiles their dependencies once.
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

/// Returns true if no source in cargo's list is newer than the artifact.
fn is_fresh(artifact: &Path) -> bool {
    let Some(made) = modified(artifact) else {
        return false;
    };
    let Ok(list) = std::fs::read_to_string(artifact.with_extension("d")) else {
        return false;
    };
    // One line, `artifact: source source …`. A path with an escaped blank is not found, which only causes a cargo call.
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

/// Returns true for a program that `cargo test` itself built for its package's tests and that is newer than all sources. Cargo
/// writes no list for those. A separate build would compile most of their dependencies again, because of a different feature
/// set.
fn is_made_on_the_way(artifact: &Path) -> bool {
    if artifact.extension().is_some() || artifact.with_extension("d").exists() {
        return false;
    }
    let sources = [
        "tui",
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

/// Returns when the newest file in a folder was changed. Tests are in no artifact.
fn newest(path: &Path) -> Option<SystemTime> {
    if path.ends_with("tests") {
        return None;
    }
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

/// Locks a file until the returned file is dropped.
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
