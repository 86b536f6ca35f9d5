//! The command line of a test without a harness: its own words, and enough of the harness's for `cargo test name` and `--list`.

/// The parsed command line.
#[derive(Default)]
pub struct Wanted {
    /// True if the test is to run at all.
    pub run: bool,
    pub seconds: Option<u64>,
    pub seed: Option<u64>,
}

const WITH_VALUE: [&str; 7] = [
    "--test-threads",
    "--logfile",
    "--format",
    "--color",
    "--shuffle-seed",
    "--report-time",
    "-Z",
];

impl Wanted {
    /// Reads the arguments, then the environment. An invalid word ends the program, as in the harness.
    pub fn of_arguments(test: &str) -> Wanted {
        let from = |name: &str| std::env::var(name).ok();
        let mut seconds = from("GPUSHARE_CHAOS_SECONDS");
        let mut seed = from("GPUSHARE_CHAOS_SEED");
        let (mut filters, mut skips) = (Vec::new(), Vec::new());
        let (mut exact, mut list, mut ignored) = (false, false, false);
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let (word, value) = match argument.split_once('=') {
                Some((word, value)) if word.starts_with('-') => (word, Some(value.to_owned())),
                _ => (argument.as_str(), None),
            };
            let mut value = || value.clone().or_else(|| arguments.next());
            match word {
                "--seconds" => seconds = Some(value().unwrap_or_default()),
                "--seed" => seed = Some(value().unwrap_or_default()),
                "--skip" => skips.extend(value()),
                "--exact" => exact = true,
                "--list" => list = true,
                "--ignored" => ignored = true,
                word if WITH_VALUE.contains(&word) => drop(value()),
                word if word.starts_with('-') => {}
                name => filters.push(name.to_owned()),
            }
        }
        let matches = |name: &String| {
            if exact {
                name == test
            } else {
                test.contains(name.as_str())
            }
        };
        let named = filters.is_empty() || filters.iter().any(matches);
        let run = named && !skips.iter().any(matches) && !ignored;
        if list && run {
            println!("{test}: test");
        }
        Wanted {
            run: run && !list,
            seconds: seconds.map(|text| number("--seconds", &text)),
            seed: seed.map(|text| number("--seed", &text)),
        }
    }
}

fn number(word: &str, text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| {
        eprintln!("{word} takes a whole number, not {text:?}");
        std::process::exit(2)
    })
}
