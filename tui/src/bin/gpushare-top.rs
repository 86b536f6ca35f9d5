//! `gpushare-top`: the dashboard. Everything is in [`gpushare_top`].

use std::process::ExitCode;

fn main() -> ExitCode {
    gpushare_top::main(env!("GPUSHARE_VERSION"))
}
