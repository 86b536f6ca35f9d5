//! `gpushare`: starts programs under gpushare, shows what they do, and changes what they may do.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpushare_cli::main(env!("GPUSHARE_VERSION"), env!("GPUSHARE_DATE"))
}
