//! The device lock, observed from outside. Programs launch kernels on a driver whose kernels take time, and the driver's own
//! timeline shows when each ran. See `apps/timed_driver.c` and `apps/spinner.c`.

mod alone;
mod beside;
mod chaos;
mod drained;
mod edits;
mod gangs;
mod holders;
mod shares;
mod stage;
mod together;
mod turns;
mod witness;
