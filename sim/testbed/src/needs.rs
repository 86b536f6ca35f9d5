//! What a test needs of the machine. A test that lacks it is not run, and never passes unnoticed.
//!
//! In CI (`CI` set) a test that cannot run fails, unless `GPUSHARE_TESTS_MAY_LACK` names what is missing: `.ci/run` lists
//! there what it could not install. Elsewhere the test says on stderr, past the harness's capture, that it was not run. Each
//! time a file is left under `target/skipped`, from which `.ci/run` makes its last line about tests.

use std::env;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::artifact::target_dir;

/// What a test needs. Its name is what `GPUSHARE_TESTS_MAY_LACK` lists.
#[derive(Clone, Copy, Debug)]
pub enum Need<'a> {
    /// It becomes other users, or gives files away. Its name is `root`.
    Root,
    /// Root may do what it is about. Its name is `ordinary-user`.
    OrdinaryUser,
    /// A program in the search path.
    Tool(&'a str),
    /// A file of the named package, at one of these places.
    File(&'a str, &'a [&'a Path]),
    /// Something of this name that the test has tried, and whether it works.
    Works(&'a str, bool),
}

impl Need<'_> {
    fn name(&self) -> &str {
        match self {
            Need::Root => "root",
            Need::OrdinaryUser => "ordinary-user",
            Need::Tool(name) | Need::File(name, _) | Need::Works(name, _) => name,
        }
    }

    fn is_met(&self) -> bool {
        match self {
            Need::Root => rustix::process::geteuid().is_root(),
            Need::OrdinaryUser => !rustix::process::geteuid().is_root(),
            Need::Tool(name) => is_in_path(name),
            Need::File(_, places) => places.iter().any(|place| place.exists()),
            Need::Works(_, it_does) => *it_does,
        }
    }
}

/// Whether the machine has what the calling test needs. If not, the test ends, or leaves out what needs it.
///
/// # Panics
///
/// In CI, when it is missing and nothing said that it may be.
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
        // Not by a macro that prints: the harness keeps what a passing test prints to itself.
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

/// The test that the calling thread runs.
struct Test {
    program: String,
    name: String,
}

impl Test {
    fn current() -> Self {
        let own = env::current_exe().unwrap_or_default();
        let program = own.file_stem().unwrap_or_default().to_string_lossy();
        // Without cargo's hash.
        let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
        Self {
            program: program.to_owned(),
            // The harness runs each test in a thread of that name.
            name: std::thread::current().name().unwrap_or("?").to_owned(),
        }
    }

    /// Leaves a file, or takes away the one that an earlier run has left.
    fn note(&self, need: &str, is_met: bool) {
        let dir = target_dir().join("skipped").join(&self.program);
        let file: PathBuf = dir.join(format!("{} needs {need}", self.name.replace('/', ".")));
        // What cannot be noted is still said.
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

    /// Run by the test below, in another process.
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
