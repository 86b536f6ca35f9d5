//! The whole road, end to end: programs under `gpushare run`, watched and changed by `gpushare` while
//! they run, with the simulated device as the witness of what is true.

mod clients;
mod contention;
mod guests_tools;
mod stage;
mod worlds;
