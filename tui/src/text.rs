//! Text that a user reads and types: units, UUIDs, names of driver functions, error messages.

pub mod calls;
pub mod exit;
pub mod plain;
pub mod units;
pub mod uuids;
