//! Sentences about waiting for memory.

use shm_layout::Blocked;

/// Says why a request waits.
pub fn full(limit: Blocked) -> &'static str {
    match limit {
        Blocked::Quota => "its quota is full",
        Blocked::Group => "its group's quota is full",
        // A reserve counts like a limit of the device.
        Blocked::Limit => "the device's limit or reserves leave no room",
        Blocked::Device => "the device is full",
        Blocked::Behind => "others asked before it",
    }
}
