//! End-to-end stories: programs under `gpushare run`, observed and changed by `gpushare` while they run. The simulated device
//! confirms what `gpushare` reports.

mod clients;
mod contention;
mod guests_tools;
mod stage;
mod worlds;
