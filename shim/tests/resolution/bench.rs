//! A directory with a driver, and the means to build programs and to start them with that driver.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use gpushare_testbed::{Watched, artifact, cc_by};

/// A target of programs: a machine and a libc.
#[derive(Clone)]
pub struct Target {
    pub compiler: String,
    /// Compiler arguments for a program, after the source.
    pub for_programs: Vec<String>,
    /// Compiler arguments for a library, after the source.
    pub for_libraries: Vec<String>,
    /// The command that starts the programs, if they do not start by themselves; it accepts `-E NAME=VALUE`.
    pub runner: Vec<String>,
    pub preload: PathBuf,
    /// A message that the library may print on this target; empty for none.
    pub complaint: &'static str,
}

impl Target {
    /// Returns the target of this machine and its libc.
    pub fn native() -> Self {
        Self {
            compiler: "cc".to_owned(),
            for_programs: Vec::new(),
            for_libraries: Vec::new(),
            runner: Vec::new(),
            preload: artifact("libgpushare.so"),
            complaint: "",
        }
    }

    pub fn library(&self, source: &str, soname: &str, more: &[&str]) -> PathBuf {
        let soname_flag = format!("-Wl,-soname,{soname}");
        let mut flags = vec![
            "-shared",
            "-fPIC",
            "-fvisibility=default",
            "-Wl,-Bsymbolic",
            "-w",
            &soname_flag,
        ];
        flags.extend(more);
        flags.extend(self.for_libraries.iter().map(String::as_str));
        cc_by(&self.compiler, &app(source), soname, &flags)
    }

    pub fn program(&self, source: &str, more: &[&str]) -> PathBuf {
        let mut flags = vec!["-w"];
        flags.extend(more);
        flags.extend(self.for_programs.iter().map(String::as_str));
        let name = source.trim_end_matches(".c");
        cc_by(&self.compiler, &app(source), name, &flags)
    }
}

pub fn app(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/apps")
        .join(name)
}

/// Output of `apps/by_dlsym.c` if every lookup leads to the library.
pub const BY_DLSYM: [&str; 7] = [
    "cuInit ours",
    "cuLaunchKernel ours",
    "cuDriverGetVersion driver",
    "cuMemPoolCreate null",
    "error libc's",
    "cuNoSuch null",
    "malloc found",
];

/// A directory with a driver, and private segments.
pub struct Bench {
    dir: tempfile::TempDir,
    target: Target,
}

impl Bench {
    pub fn new() -> Self {
        Self::on(Target::native())
    }

    pub fn on(target: Target) -> Self {
        let bench = Self {
            dir: tempfile::tempdir().expect("a temporary directory"),
            target,
        };
        fs::create_dir(bench.segments()).expect("a fresh directory");
        bench.install("noop_driver.c", "libcuda.so.1", &[]);
        bench
    }

    pub fn segments(&self) -> PathBuf {
        self.dir.path().join("segments")
    }

    pub fn install(&self, source: &str, soname: &str, more: &[&str]) {
        let place = self.dir.path().join(soname);
        let _ = fs::remove_file(&place);
        let library = self.target.library(source, soname, more);
        symlink(library, place).expect("a fresh directory takes links");
    }

    /// Returns the command of a program with the driver, the preload library, and these variables.
    pub fn command(&self, program: &Path, variables: &[(&str, &OsStr)]) -> Command {
        let segments = self.segments();
        let mut all: Vec<(&str, &OsStr)> = vec![
            ("LD_LIBRARY_PATH", self.dir.path().as_os_str()),
            ("LD_PRELOAD", self.target.preload.as_os_str()),
            ("GPUSHARE_DIR", segments.as_os_str()),
        ];
        all.extend(variables);
        let Some((runner, args)) = self.target.runner.split_first() else {
            let mut command = Command::new(program);
            command.envs(all);
            return command;
        };
        let mut command = Command::new(runner);
        command.args(args);
        for (name, value) in all {
            let mut pair = OsString::from(name);
            pair.push("=");
            pair.push(value);
            command.arg("-E").arg(pair);
        }
        command.arg(program);
        command
    }

    /// Checks that the library prints nothing, or only the message that the target allows.
    pub fn complains_little(&self, name: &str, output: &Output) {
        let may = self.target.complaint;
        let said = text(&output.stderr);
        let expected = said
            .lines()
            .all(|line| !may.is_empty() && line.contains(may));
        assert!(expected, "{name}: {said}");
    }

    /// Runs a program and returns its lines. It must succeed, without a message.
    pub fn says(&self, source: &str, flags: &[&str], args: &[&Path]) -> Vec<String> {
        let program = self.target.program(source, flags);
        let output = Watched::spawn(self.command(&program, &[]).args(args)).wait_output();
        self.complains_little(source, &output);
        lines(source, &output)
    }
}

/// Returns the output lines of a program that must have succeeded.
pub fn lines(name: &str, output: &Output) -> Vec<String> {
    let said = text(&output.stdout);
    let status = output.status;
    assert!(
        status.success(),
        "{name}: {status} {said} {}",
        text(&output.stderr)
    );
    said.lines().map(str::to_owned).collect()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
