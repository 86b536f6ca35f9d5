//! Requirements of a test. A test whose requirement is missing does not run, and is never counted as passed silently.
//!
//! In CI (`CI` set) a test that cannot run fails, unless `GPUSHARE_TESTS_MAY_LACK` names the missing requirement: `.ci/run`
//! lists there what it could not install. Elsewhere the test writes to stderr, past the harness's capture, that it did not run.
//! Each time a file is left under `target/skipped`, from which `.ci/run` makes its last line about tests.

use std::env;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::artifact::target_dir;

/// A requirement of a test. `GPUSHARE_TESTS_MAY_LACK` lists requirements by name.
#[derive(Clone, Copy, Debug)]
pub enum Need<'a> {
    /// The test runs as other users or changes file owners. Its name is `root`.
    Root,
    /// A program in the search path.
    Tool(&'a str),
    /// A file of the named package, at one of these places.
    File(&'a str, &'a [&'a Path]),
    /// Anything that the test has tried: its name, and whether it works.
    Works(&'a str, bool),
}

impl Need<'_> {
    fn name(&self) -> &str {
        match self {
            Need::Root => "root",
            Need::Tool(name) | Need::File(name, _) | Need::Works(name, _) => name,
        }
    }

    fn is_met(&self) -> bool {
        match self {
            Need::Root => rustix::process::geteuid().is_root(),
            Need::Tool(name) => is_in_path(name),
            Need::File(_, places) => places.iter().any(|place| place.exists()),
            Need::Works(_, it_does) => *it_does,
        }
    }
}

/// Returns true if the machine has what the calling test needs. Otherwise the test ends, or omits the part that needs it.
///
/// # Panics
///
/// In CI, when it is missing and `GPUSHARE_TESTS_MAY_LACK` does not name it.
pub fn needs(need: Need<'_>) -> bool {
    let is_met = need.is_met();
    let test = Test::current();
    test.note(need.name(), is_met);
    if !is_met {
        let said = format!("not run: {test} needs {}", need.name());
        let lacking = env::var("GPUSHARE_TESTS_MAY_LACK").unwrap_or_default();
        assert!(
            env::var_os("CI").is_none() || may_lack(&lacking, need.name()),
            "{said}, which this machine lacks and GPUSHARE_TESTS_MAY_LACK does not name"
        );
        // Written directly, because the harness hides the printed output of a passing test.
        let _ = writeln!(std::io::stderr(), "{said}");
    }
    is_met
}

fn may_lack(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|word| word == name)
}

fn is_in_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// The name of the test that the calling thread runs.
struct Test {
    program: String,
    name: String,
}

impl Test {
    fn current() -> Self {
        let own = env::current_exe().unwrap_or_default();
        let program = own.file_stem().unwrap_or_default().to_string_lossy();
        // The hash that cargo appends is removed.
        let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
        Self {
            program: program.to_owned(),
            // The harness names each test's thread after the test.
            name: std::thread::current().name().unwrap_or("?").to_owned(),
        }
    }

    /// Leaves a file for a missing requirement, or removes the file of an earlier run.
    fn note(&self, need: &str, is_met: bool) {
        let dir = target_dir().join("skipped").join(&self.program);
        let file: PathBuf = dir.join(format!("{} needs {need}", self.name.replace('/', ".")));
        // A failure is ignored: the message on stderr remains.
        let _ = match is_met {
            true => fs::remove_file(file),
            false => fs::create_dir_all(&dir).and_then(|()| fs::write(file, "")),
        };
    }
}

impl std::fmt::Display for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.program, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn what_is_there_is_found() {
        assert!(Need::Tool("sh").is_met() && !Need::Tool("no-such-program").is_met());
        let places = [Path::new("/nonexistent"), Path::new("/proc/self/exe")];
        assert!(Need::File("one", &places).is_met());
        assert!(!Need::File("none", &places[..1]).is_met());
    }

    /// Fails on purpose; the test below runs it in another process.
    #[test]
    #[ignore = "a part of another test"]
    fn lacks_something() {
        assert!(!needs(Need::Works("such-luck", false)));
        assert!(!needs(Need::Tool("no-such-program")));
    }

    #[test]
    fn a_test_that_lacks_something_says_so_and_fails_in_ci_unless_it_may_lack_it() {
        let run = |ci: bool, may_lack: &str| {
            let mut command = Command::new(env::current_exe().expect("this test"));
            command
                .args(["--ignored", "--exact", "needs::tests::lacks_something"])
                .env_remove("CI")
                .env("GPUSHARE_TESTS_MAY_LACK", may_lack);
            if ci {
                command.env("CI", "true");
            }
            let output = command.output().expect("started");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.success(), said)
        };
        let dir = target_dir().join("skipped");
        let noted = || {
            let name = "needs::tests::lacks_something needs no-such-program";
            fs::exists(dir.join(Test::current().program).join(name)).expect("readable")
        };
        let (passed, said) = run(false, "");
        assert!(passed && said.contains("needs::tests::lacks_something needs no-such-program"));
        assert!(noted());
        assert!(!run(true, "").0 && !run(true, "no-such-program such").0);
        assert!(run(true, "such-luck no-such-program").0);
        for need in ["such-luck", "no-such-program"] {
            let test = Test {
                name: "needs::tests::lacks_something".to_owned(),
                ..Test::current()
            };
            test.note(need, true);
        }
        assert!(!noted(), "a later run has it");
    }

    #[test]
    fn no_test_says_by_itself_that_it_is_skipped() {
        fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(dir).expect("readable").flatten() {
                let (path, name) = (entry.path(), entry.file_name());
                let name = name.to_string_lossy();
                if path.is_dir() && name != "target" && !name.starts_with('.') {
                    sources(&path, found);
                } else if name.ends_with(".rs") {
                    found.push(path);
                }
            }
        }
        let mut all = Vec::new();
        let workspace = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        sources(Path::new(workspace), &mut all);
        assert!(all.len() > 100, "{}", all.len());
        let words = concat!("print", "ln!(\"skipped");
        let says = |path: &PathBuf| fs::read_to_string(path).is_ok_and(|text| text.contains(words));
        let those: Vec<_> = all.iter().filter(|path| says(path)).collect();
        assert!(those.is_empty(), "these do not ask needs: {those:?}");
    }
}
