//! `assets/install.sh`: installs every file, repeatably, and removes all of them.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use shm_layout::text::PathText as _;

/// Makes the contents of a released archive: the programs beside `assets`. Only one of the programs is run here.
fn archive() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let root = folder.path();
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets");
    let copied = Command::new("cp").arg("-r").arg(assets).arg(root).status();
    assert!(copied.expect("cp").success());
    for (folder, names) in [
        (
            "bin",
            &["gpushare-top", "gpushare-dra", "gpushare-workload"][..],
        ),
        (
            "lib/gpushare",
            &[
                "libgpushare.so",
                "libgpushare_spank.so",
                "libcuda.so",
                "libnvidia_ml.so",
                "gpushare-sim-mps",
            ],
        ),
    ] {
        fs::create_dir_all(root.join(folder)).expect("a fresh directory");
        for name in names {
            fs::write(root.join(folder).join(name), *name).expect("a fresh directory");
        }
    }
    // A child makes the copy. If this process wrote the file, a program started by another test would inherit the descriptor,
    // and the copy could not be started.
    let made = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_gpushare"))
        .arg(root.join("bin/gpushare"))
        .status();
    assert!(made.expect("started").success());
    folder
}

fn install(archive: &Path, words: &[&Path]) -> Output {
    let mut script = Command::new(archive.join("assets/install.sh"));
    script.args(words).output().expect("a shell script")
}

/// Returns every file below a folder, with its size and mode.
fn files(below: &Path) -> BTreeMap<PathBuf, (u64, u32)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![below.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let about = entry.metadata().expect("it was there");
            if about.is_dir() {
                folders.push(entry.path());
            } else {
                found.insert(
                    entry.path(),
                    (about.len(), about.permissions().mode() & 0o777),
                );
            }
        }
    }
    found
}

#[test]
fn what_is_installed_twice_is_there_once_and_a_removal_leaves_only_what_is_not_ours() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let archive = home.path().join("an archive");
    fs::rename(self::archive().path(), &archive).expect("on the same file system");
    let prefix = home.path().join("a prefix");
    let foreign = prefix.join("share/man/man1/another.1");
    fs::create_dir_all(foreign.parent().expect("a folder")).expect("a fresh directory");
    fs::write(&foreign, "not ours").expect("a fresh directory");

    let said = install(&archive, &[&prefix]);
    assert!(said.status.success(), "{said:?}");
    let first = files(&prefix);
    let mode = |name: &str| first.get(&prefix.join(name)).map(|(_, mode)| *mode);
    for (name, wanted) in [
        ("bin/gpushare", 0o755),
        ("bin/gpushare-top", 0o755),
        ("lib/gpushare/libgpushare.so", 0o644),
        ("share/man/man1/gpushare.1", 0o644),
        ("share/man/man1/gpushare-quota-set.1", 0o644),
        ("share/bash-completion/completions/gpushare", 0o644),
        ("share/zsh/site-functions/_gpushare", 0o644),
        ("share/fish/vendor_completions.d/gpushare-top.fish", 0o644),
    ] {
        assert_eq!(mode(name), Some(wanted), "{name}");
    }
    let version = Command::new(prefix.join("bin/gpushare"))
        .arg("--version")
        .output();
    assert!(version.expect("it runs").status.success());

    let said = install(&archive, &[&prefix]);
    assert!(said.status.success(), "{said:?}");
    assert_eq!(files(&prefix), first);

    let said = install(&archive, &[Path::new("--remove"), &prefix]);
    assert!(said.status.success(), "{said:?}");
    let left: Vec<PathBuf> = files(&prefix).into_keys().collect();
    assert_eq!(left, [foreign]);
    assert!(!prefix.join("lib").exists() && !prefix.join("bin").exists());
}

/// Runs in a checkout. A listed file that no command makes would stop every installation.
#[test]
fn each_file_of_the_list_is_made_by_the_commands_that_build() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let known = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(&root)
        .output()
        .expect("cargo");
    let known: serde_json::Value = serde_json::from_slice(&known.stdout).expect("JSON");
    let list = |key: &str| known[key].as_array().expect("a list").clone();
    let usual = list("workspace_default_members");
    let made_by = |file: &str| {
        let name = file.trim_start_matches("lib").trim_end_matches(".so");
        let makes = |package: &serde_json::Value| {
            let targets = package["targets"].as_array().expect("a list").clone();
            targets.into_iter().any(|target| {
                let kind = target["kind"][0].as_str();
                target["name"] == name && kind == Some(if name == file { "bin" } else { "cdylib" })
            })
        };
        let found = list("packages").into_iter().find(makes);
        found.unwrap_or_else(|| panic!("no package makes {file}"))
    };
    let script = fs::read_to_string(root.join("assets/install.sh")).expect("a script");
    let release = fs::read_to_string(root.join(".ci/release")).expect("a script");
    let lists = script.lines().filter_map(|line| {
        let rest = line
            .strip_prefix("programs=")
            .or(line.strip_prefix("libraries="))
            .or(line.strip_prefix("helpers="));
        Some(rest?.trim_matches('"').to_owned())
    });
    let files: Vec<String> = lists
        .flat_map(|list| list.split(' ').map(str::to_owned).collect::<Vec<_>>())
        .collect();
    assert!(files.len() > 7, "{files:?}");
    for file in files {
        let package = made_by(&file);
        let name = package["name"].as_str().expect("a name");
        let asked = script.contains(&format!("-p {name}"));
        assert!(
            usual.contains(&package["id"]) || asked,
            "install.sh: {name}"
        );
        assert!(
            release.contains(&format!("\"{name}\"")),
            ".ci/release: {name}"
        );
    }
}

/// Makes a folder that looks like a checkout with built programs, and a PATH without cargo.
fn checkout() -> (tempfile::TempDir, PathBuf) {
    let folder = archive();
    let root = folder.path();
    let bin = root.join("target/release");
    fs::create_dir_all(&bin).expect("a fresh directory");
    for from in ["bin", "lib/gpushare"] {
        for entry in fs::read_dir(root.join(from)).expect("there").flatten() {
            fs::rename(entry.path(), bin.join(entry.file_name())).expect("ours");
        }
    }
    fs::write(root.join("source.rs"), "").expect("a fresh directory");
    for name in ["Cargo.toml", "Cargo.lock"] {
        fs::write(root.join(name), "").expect("a fresh directory");
    }
    let built = root.join("source.rs").shown();
    fs::write(
        bin.join("libcuda.d"),
        format!("{}: {built}\n", bin.join("libcuda.so").shown()),
    )
    .expect("a fresh directory");
    let tools = root.join("tools");
    fs::create_dir(&tools).expect("a fresh directory");
    for name in [
        "chmod", "cp", "cut", "dirname", "mkdir", "mktemp", "mv", "rm",
    ] {
        let program = ["/usr/bin", "/bin"].map(|dir| Path::new(dir).join(name));
        let program = program.into_iter().find(|path| path.exists());
        std::os::unix::fs::symlink(program.expect("everywhere"), tools.join(name)).expect("ours");
    }
    (folder, tools)
}

#[test]
fn from_a_checkout_what_is_older_than_its_sources_is_built_again_and_never_installed() {
    let (checkout, tools) = checkout();
    let home = tempfile::tempdir().expect("a temporary directory");
    let install = || {
        let mut script = Command::new(checkout.path().join("assets/install.sh"));
        script
            .arg(home.path())
            .env("PATH", &tools)
            .env_remove("CARGO_TARGET_DIR");
        script.output().expect("a shell script")
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let old = |name: &str| {
        let file = fs::File::options()
            .write(true)
            .open(checkout.path().join(name));
        let then = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
        file.expect("there").set_modified(then).expect("ours");
    };
    // Without cargo, cargo's list of sources decides.
    for name in ["source.rs", "Cargo.lock"] {
        old(name);
    }
    let said = install();
    assert!(said.status.success(), "{said:?}");
    old("target/release/libcuda.so");
    fs::write(checkout.path().join("source.rs"), "").expect("ours");
    let said = install();
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    let why = text(&said.stderr);
    assert!(
        why.contains("libcuda.so is older than") && why.contains("source.rs"),
        "{why}"
    );
    // If cargo exists it is always called, because only cargo knows all sources. This one prints its arguments.
    let cargo = tools.join("cargo");
    fs::write(&cargo, "#!/bin/sh\necho cargo \"$@\"\n").expect("a fresh directory");
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).expect("ours");
    let said = install();
    assert!(said.status.success(), "{said:?}");
    let asked = text(&said.stdout);
    let commands = || asked.lines().filter(|line| line.starts_with("cargo "));
    let words = commands().flat_map(str::split_whitespace);
    let built: Vec<&str> = words.filter(|word| word.starts_with("gpushare")).collect();
    for package in [
        "gpushare",
        "gpushare-dra",
        "gpushare-shim",
        "gpushare-sim",
        "gpushare-sim-cuda",
        "gpushare-sim-nvml",
        "gpushare-spank",
        "gpushare-workload",
    ] {
        let times = built.iter().filter(|built| **built == package).count();
        assert_eq!(times, 1, "{package} in {asked}");
    }
    let whole = commands().filter(|line| !line.contains(" -p "));
    assert_eq!(whole.count(), 0, "all of it, and parts again: {asked}");
    // A place that cannot be written is detected before the build.
    let file = home.path().join("file");
    fs::write(&file, "").expect("ours");
    let mut script = Command::new(checkout.path().join("assets/install.sh"));
    script.arg(file.join("prefix")).env("PATH", &tools);
    let said = script.output().expect("a shell script");
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    assert!(!text(&said.stdout).contains("cargo"), "{said:?}");
    assert!(text(&said.stderr).contains("cannot write"), "{said:?}");
}

/// A shell with the broker's process name stands for a broker.
#[test]
fn a_removal_beside_a_running_broker_says_which_process_goes_on_and_how_to_end_it() {
    let archive = archive();
    let home = tempfile::tempdir().expect("a temporary directory");
    let said = install(archive.path(), &[home.path()]);
    assert!(said.status.success(), "{said:?}");
    let program = home.path().join("bin/gpushare");
    let copied = Command::new("cp").arg("/bin/sh").arg(&program).status();
    assert!(copied.expect("cp").success());
    let mut broker = Command::new(&program)
        .args([
            "-c",
            "echo ready; read end",
            "gpushare",
            "serve",
            "--group",
            "g",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a copy of a shell");
    let mut line = String::new();
    let output = broker.stdout.take().expect("piped");
    BufReader::new(output)
        .read_line(&mut line)
        .expect("it runs");
    assert_eq!(line, "ready\n");
    let said = install(archive.path(), &[Path::new("--remove"), home.path()]);
    assert!(said.status.success(), "{said:?}");
    let told = String::from_utf8_lossy(&said.stderr).into_owned();
    let pid = broker.id();
    for words in [
        format!("process {pid} is a broker"),
        format!("kill {pid}"),
        "systemctl disable --now gpushare".to_owned(),
    ] {
        assert!(told.contains(&words), "{words}: {said:?}");
    }
    assert!(!program.exists());
    drop(broker.stdin.take());
    broker.wait().expect("our child");
    // Without a broker there is no message.
    let said = install(archive.path(), &[home.path()]);
    assert!(said.status.success(), "{said:?}");
    let said = install(archive.path(), &[Path::new("--remove"), home.path()]);
    assert!(said.stderr.is_empty(), "{said:?}");
}

#[test]
fn a_half_archive_and_a_word_too_many_are_refused_with_a_sentence() {
    let archive = archive();
    let home = tempfile::tempdir().expect("a temporary directory");
    for words in [
        &[][..],
        &[home.path(), home.path()],
        &[Path::new("--purge")],
    ] {
        assert_eq!(install(archive.path(), words).status.code(), Some(2));
    }
    fs::remove_file(archive.path().join("lib/gpushare/libgpushare.so")).expect("it was there");
    let said = install(archive.path(), &[home.path()]);
    assert_eq!(said.status.code(), Some(1));
    let why = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(why.contains("libgpushare.so is missing"), "{why}");
}
