//! The name of the script that an interpreter runs: `train.py` in `python3.11 train.py`. It is the label of a process that was
//! given none.

use std::{fs::File, io::Read as _};

use shm_layout::text::{LONGEST_LABEL, visible};

/// Bytes of the command line that are read. The script comes before the program's own arguments.
const MOST: u64 = 4096;

/// A program that runs another program's text, and how its options are read.
struct Interpreter {
    names: &'static [&'static str],
    /// Options whose value is the script.
    script: &'static [&'static str],
    /// Options whose value is the program itself, so that there is no script.
    text: &'static [&'static str],
    /// Options with a value of their own.
    valued: &'static [&'static str],
}

const INTERPRETERS: [Interpreter; 4] = [
    Interpreter {
        names: &["python", "pypy"],
        script: &["m"],
        text: &["c"],
        valued: &["W", "X", "-check-hash-based-pycs"],
    },
    Interpreter {
        names: &["node", "nodejs"],
        script: &[],
        text: &["e", "-eval", "p", "-print"],
        valued: &["r", "-require", "-import", "C", "-conditions"],
    },
    Interpreter {
        names: &["java"],
        script: &["jar", "m", "-module"],
        text: &[],
        valued: &[
            "cp",
            "classpath",
            "-class-path",
            "p",
            "-module-path",
            "-add-modules",
        ],
    },
    Interpreter {
        names: &["bash", "sh", "dash", "zsh", "ksh"],
        script: &[],
        text: &["c"],
        valued: &["o", "O", "-rcfile", "-init-file"],
    },
];

/// Returns the name of this process's script, or an empty text if it runs none.
pub fn name() -> String {
    let mut bytes = Vec::new();
    let file = File::open("/proc/self/cmdline");
    // Without the file, the process shows the name of its program.
    let _ = file.and_then(|file| file.take(MOST).read_to_end(&mut bytes));
    let words: Option<Vec<&str>> = bytes
        .split(|byte| *byte == 0)
        .map(|word| str::from_utf8(word).ok())
        .collect();
    let found = words.as_deref().and_then(script).unwrap_or_default();
    let fits = found.len() <= LONGEST_LABEL && visible(found).is_ok();
    if fits {
        found.to_owned()
    } else {
        String::new()
    }
}

/// Returns the script in a command line: the file's name, or the module as it was given.
fn script<'w>(command: &[&'w str]) -> Option<&'w str> {
    let (program, words) = command.split_first()?;
    let program = file_name(program)
        .trim_start_matches('-')
        .trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let interpreter = INTERPRETERS
        .iter()
        .find(|one| one.names.contains(&program))?;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix('-').filter(|option| !option.is_empty()) else {
            return Some(file_name(word)).filter(|name| !matches!(*name, "" | "-"));
        };
        if option == "-" {
            return words.next().map(|word| file_name(word));
        }
        match interpreter.kind(option) {
            Kind::Script => return words.next().map(|word| file_name(word)),
            Kind::Text => return None,
            Kind::Valued => drop(words.next()),
            Kind::Other => {}
        }
    }
    None
}

enum Kind {
    Script,
    Text,
    Valued,
    Other,
}

impl Interpreter {
    /// Returns the kind of an option, which is given without its first dash. Of short ones written together, as in `-um`, the
    /// last one takes the value.
    fn kind(&self, option: &str) -> Kind {
        let joined = |known: &&str| {
            known.len() == 1 && option.ends_with(*known) && !self.has_long_options(option)
        };
        let is_one = |list: &[&str]| list.iter().any(|known| *known == option || joined(known));
        match () {
            () if is_one(self.script) => Kind::Script,
            () if is_one(self.text) => Kind::Text,
            () if is_one(self.valued) => Kind::Valued,
            () => Kind::Other,
        }
    }

    /// Returns true if an option is one word and not several letters: `--name`, and `-name` of java.
    fn has_long_options(&self, option: &str) -> bool {
        option.starts_with('-') || option.contains('=') || self.names == ["java"]
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_has_the_name_of_its_script() {
        for (command, name) in [
            ("python3.11 train.py --epochs 3", Some("train.py")),
            (
                "/opt/conda/bin/python -u /home/a/train.py",
                Some("train.py"),
            ),
            (
                "python -m vllm.entrypoints.openai.api_server --port 1",
                Some("vllm.entrypoints.openai.api_server"),
            ),
            ("python -um trainer", Some("trainer")),
            ("python -X dev -W ignore run.py", Some("run.py")),
            ("python3 -c print(1) x", None),
            ("python3", None),
            (
                "node --max-old-space-size=4096 -r dotenv server.js",
                Some("server.js"),
            ),
            ("node -e x", None),
            ("java -Xmx4g -cp a.jar -jar /opt/app.jar", Some("app.jar")),
            ("java -cp a.jar org.example.Main", Some("org.example.Main")),
            ("bash ./job.sh", Some("job.sh")),
            ("bash -euo pipefail job.sh", Some("job.sh")),
            ("-bash -lc python", None),
            ("/usr/bin/ffmpeg -i in.mp4", None),
            ("./train.py", None),
        ] {
            let words: Vec<&str> = command.split(' ').collect();
            assert_eq!(script(&words), name, "{command}");
        }
    }
}
