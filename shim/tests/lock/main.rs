//! The GPU lock, seen from outside: programs that launch kernels on a driver whose kernels take time, and the
//! driver's own timeline to say who ran when. See `apps/timed_driver.c` and `apps/spinner.c`.

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
