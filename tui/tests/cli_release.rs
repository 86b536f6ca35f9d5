//! `.ci/release`: its packages can be installed, started and removed, and are reproducible.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gpushare_testbed::{Need, artifact, needs};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Makes the programs to pack: those of the demo, and for the others a small program that does nothing.
fn programs() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let dir = folder.path();
    let source = dir.join("nothing.c");
    fs::write(&source, "int main(void) { return 0; }\n").expect("ours");
    let nothing = dir.join("nothing");
    done(Command::new("cc").arg("-o").arg(&nothing).arg(&source));
    for name in ["gpushare-top", "gpushare-dra", "libgpushare_spank.so"] {
        fs::copy(&nothing, dir.join(name)).expect("ours");
    }
    for name in [
        "gpushare",
        "gpushare-workload",
        "libgpushare.so",
        "libcuda.so",
        "libnvidia_ml.so",
        "gpushare-sim-mps",
    ] {
        let made = match name {
            "gpushare" => PathBuf::from(env!("CARGO_BIN_EXE_gpushare")),
            name => artifact(name),
        };
        done(
            Command::new("strip")
                .arg("-o")
                .arg(dir.join(name))
                .arg(made),
        );
    }
    folder
}

fn done(command: &mut Command) -> Output {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

fn pack(programs: &Path, out: &Path) {
    let mut release = Command::new(Path::new(ROOT).join(".ci/release"));
    release.arg("--bin").arg(programs).arg("--out").arg(out);
    done(release.env("SOURCE_DATE_EPOCH", "1700000000"));
}

fn one(out: &Path, ending: &str) -> PathBuf {
    let names = fs::read_dir(out)
        .expect("made")
        .flatten()
        .map(|entry| entry.path());
    let mut found = names.filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(ending) && !name.contains("debug")
    });
    found
        .next()
        .unwrap_or_else(|| panic!("no {ending} in {out:?}"))
}

/// Checks that the installed program finds its parts, that its library reaches a program, and that the demo runs.
fn works(gpushare: &Path) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let run = |words: &[&str]| {
        let mut command = Command::new(gpushare);
        command
            .args(words)
            .env_remove("GPUSHARE_LIB")
            .env("GPUSHARE_DIR", folder.path().join("segments"))
            .env("HOME", folder.path());
        let output = done(&mut command);
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let doctor: serde_json::Value = run(&["doctor", "--json"]);
    for check in ["library", "parts", "interposition", "quota"] {
        let mut findings = doctor["findings"].as_array().expect("a list").iter();
        let found = findings.find(|one| one["check"] == check);
        assert_eq!(found.expect("told")["level"], "ok", "{doctor}");
    }
    let report = run(&["demo", "--sim", "--headless", "--json", "--seconds", "1"]);
    assert_eq!(report["simulated"], true, "{report}");
}

#[test]
fn what_is_released_installs_starts_and_goes_and_is_the_same_twice() {
    if !["python3", "cc", "objcopy", "strip", "git"]
        .iter()
        .all(|program| needs(Need::Tool(program)))
    {
        return;
    }
    let programs = programs();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    // In parallel, because each is mostly one compressing program.
    std::thread::scope(|both| {
        both.spawn(|| pack(programs.path(), &first));
        both.spawn(|| pack(programs.path(), &second));
    });
    let sums = |out: &Path| fs::read_to_string(out.join("SHA256SUMS")).expect("made");
    assert_eq!(sums(&first), sums(&second));
    done(
        Command::new("sha256sum")
            .arg("-c")
            .arg("SHA256SUMS")
            .current_dir(&first),
    );
    let inside = fs::read_to_string(first.join("gpushare.cdx.json")).expect("made");
    assert!(inside.contains("pkg:cargo/clap@") && !inside.contains("proptest"));

    // The archive, with its own installer.
    let archive = folder.path().join("archive");
    fs::create_dir(&archive).expect("ours");
    done(
        Command::new("tar")
            .arg("xzf")
            .arg(one(&first, "tar.gz"))
            .arg("--strip-components=1")
            .arg("-C")
            .arg(&archive),
    );
    let prefix = folder.path().join("prefix");
    done(Command::new(archive.join("assets/install.sh")).arg(&prefix));
    works(&prefix.join("bin/gpushare"));

    check_readme(&archive.join("README.md"), &archive);

    if needs(Need::Tool("lintian")) {
        let mut lintian = Command::new("lintian");
        lintian.args(["--allow-root", "--fail-on", "error"]);
        done(lintian.arg(one(&first, ".deb")));
    }
    if needs(Need::Tool("twine")) {
        let mut twine = Command::new("twine");
        done(twine.args(["check", "--strict"]).arg(one(&first, ".whl")));
    }
    image(&one(&first, "tar.gz"), &folder.path().join("image"));
    if needs(Need::Tool("dpkg-deb")) && needs(Need::Root) {
        debian(&one(&first, ".deb"), &folder.path().join("debian"));
    }
    let python = folder.path().join("python");
    let made = Command::new("python3")
        .args(["-m", "venv"])
        .arg(&python)
        .output();
    let made = made.is_ok_and(|made| made.status.success());
    if needs(Need::Works("python3-venv", made)) {
        wheel(&one(&first, ".whl"), &python);
    }
}

/// Checks that a package's README says nothing about building, and leads only to what the package brings. A link that begins with /
/// counts from `root`.
fn check_readme(readme: &Path, root: &Path) {
    let text = fs::read_to_string(readme).expect("packed");
    for words in ["cargo", "<!--", "No release"] {
        assert!(!text.contains(words), "{words}: {text}");
    }
    let links = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', '#']).next());
    let mut count = 0;
    for link in links.filter(|link| !link.contains("://")) {
        assert!(
            root.join(link.trim_start_matches('/')).exists(),
            "{link}: {text}"
        );
        count += 1;
    }
    assert!(count > 10, "{text}");
}

/// Builds the image for Kubernetes on a base of this machine's programs instead of a registry's base.
fn image(archive: &Path, place: &Path) {
    if !needs(Need::Tool("podman")) || !needs(Need::Root) {
        return;
    }
    let (base, context) = (place.join("base"), place.join("context"));
    for dir in [
        "usr/bin",
        "usr/lib",
        "usr/lib64",
        "usr/local",
        "etc",
        "proc",
        "sys",
        "dev",
        "run",
        "tmp",
        "var",
    ] {
        fs::create_dir_all(base.join(dir)).expect("ours");
    }
    for name in ["bin", "lib", "lib64"] {
        std::os::unix::fs::symlink(format!("usr/{name}"), base.join(name)).expect("ours");
    }
    fs::create_dir(&context).expect("ours");
    let name = archive.file_name().expect("a file");
    fs::copy(archive, context.join(name)).expect("ours");
    fs::copy(
        Path::new(ROOT).join("assets/k8s/Dockerfile"),
        context.join("Dockerfile"),
    )
    .expect("there");
    let tar = place.join("base.tar");
    done(
        Command::new("tar")
            .arg("-cf")
            .arg(&tar)
            .arg("-C")
            .arg(&base)
            .arg("."),
    );
    let number = std::process::id();
    let [below, made] =
        ["base", "made"].map(|what| format!("localhost/gpushare-test-{what}:{number}"));
    let podman = |words: &[&str]| Command::new("podman").args(words).output();
    let _removed = Images([below.clone(), made.clone()]);
    let imported = podman(&["import", "-q", &tar.display().to_string(), &below]);
    let keeps = imported.is_ok_and(|imported| imported.status.success());
    if !needs(Need::Works("podman-images", keeps)) {
        return;
    }
    // A machine may allow fewer open files than podman's default.
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let files = limits.current.unwrap_or(1024);
    let built = podman(&[
        "build",
        "--isolation=chroot",
        &format!("--ulimit=nofile={files}:{files}"),
        "--ulimit=nproc=4096:4096",
        "--volume=/usr/bin:/usr/bin:ro",
        "--volume=/usr/lib:/usr/lib:ro",
        "--volume=/usr/lib64:/usr/lib64:ro",
        &format!("--build-arg=BASE={below}"),
        &format!("--tag={made}"),
        &context.display().to_string(),
    ])
    .expect("podman");
    assert!(built.status.success(), "{built:?}");
    let out = String::from_utf8_lossy(&built.stdout).into_owned();
    assert!(
        out.contains("gpushare is installed under /usr/local"),
        "{built:?}"
    );
}

struct Images([String; 2]);

impl Drop for Images {
    fn drop(&mut self) {
        let _ = Command::new("podman")
            .args(["rmi", "-f"])
            .args(&self.0)
            .output();
    }
}

/// Installs into a separate root, with dpkg's own list of files.
fn debian(package: &Path, root: &Path) {
    for dir in ["var/lib/dpkg/updates", "var/lib/dpkg/info"] {
        fs::create_dir_all(root.join(dir)).expect("ours");
    }
    for file in ["status", "available"] {
        fs::write(root.join("var/lib/dpkg").join(file), "").expect("ours");
    }
    let dpkg = |words: &[&str]| {
        let mut command = Command::new("dpkg");
        command
            .arg(format!("--root={}", root.display()))
            .args(["--force-depends", "--force-script-chrootless"])
            .arg("--log=/dev/null");
        done(command.args(words));
    };
    let unpacked = root.join("unpacked");
    done(Command::new("dpkg").arg("-x").arg(package).arg(&unpacked));
    let mode = fs::metadata(&unpacked).expect("unpacked").mode() & 0o7777;
    assert_eq!(mode, 0o755, "who unpacks it over / keeps the users out");
    dpkg(&["-i", &package.display().to_string()]);
    works(&root.join("usr/bin/gpushare"));
    check_readme(&root.join("usr/share/doc/gpushare/README.md"), root);
    assert!(root.join("usr/share/man/man1/gpushare-run.1.gz").exists());
    let unit = fs::read_to_string(root.join("usr/lib/systemd/system/gpushare.service"));
    assert!(
        unit.expect("installed")
            .contains("ExecStart=/usr/bin/gpushare")
    );
    let log = root.join("var/log/gpushare");
    fs::create_dir_all(&log).expect("ours");
    dpkg(&["--purge", "gpushare"]);
    assert!(!log.exists());
    let left = root.join("usr");
    assert!(
        !left.exists(),
        "{:?}",
        fs::read_dir(&left).map(|dir| dir.flatten().collect::<Vec<_>>())
    );
}

fn wheel(wheel: &Path, python: &Path) {
    let bin = python.join("bin");
    done(
        Command::new(bin.join("pip"))
            .args(["install", "-q", "--no-index", "--no-deps"])
            .arg(wheel),
    );
    for name in [
        "lib/gpushare/libgpushare.so",
        "share/man/man1/gpushare-run.1",
        "share/zsh/site-functions/_gpushare",
        "share/gpushare/guide/memory.md",
        "share/gpushare/experiments/inference.toml",
    ] {
        assert!(python.join(name).exists(), "{name}");
    }
    let version = done(Command::new(bin.join("gpushare")).arg("--version"));
    let module = done(Command::new(bin.join("python")).args(["-m", "gpushare_cli", "--version"]));
    assert_eq!(version.stdout, module.stdout);
    works(&bin.join("gpushare"));
    done(Command::new(bin.join("pip")).args(["uninstall", "-q", "-y", "gpushare-cli"]));
    assert!(!bin.join("gpushare").exists());
}
