//! Sentences about waiting for memory.

use shm_layout::Blocked;

/// Says why a request waits.
pub fn full(limit: Blocked) -> &'static str {
    match limit {
        Blocked::Quota => "its quota is full",
        Blocked::Group => "its group's quota is full",
        Blocked::Limit => "the device's limit is reached",
        Blocked::Device => "the device is full",
        Blocked::Behind => "others asked before it",
    }
}
