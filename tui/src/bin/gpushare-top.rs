//! `gpushare-top`: the dashboard. Everything is in [`gpushare_tui::top`].

use std::process::ExitCode;

fn main() -> ExitCode {
    gpushare_tui::top::main()
}
