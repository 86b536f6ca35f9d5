//! Text that a user reads and types: units, UUIDs, names of driver functions, error messages.

pub mod base64;
pub mod calls;
pub use shm_layout::text::cgroups;
pub mod edits;
pub mod events;
pub mod eviction;
pub mod exit;
pub mod files;
pub mod groups;
pub mod losses;
pub mod memory;
pub mod names;
pub mod nearest;
pub mod plain;
pub mod policy;
pub mod refused;
pub mod shell;
pub mod units;
pub mod users;
pub mod uuids;
pub mod xids;
