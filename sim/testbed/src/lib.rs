//! Test support: a private world to run preloaded programs in, with a watchdog.
