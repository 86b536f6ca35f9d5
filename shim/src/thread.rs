//! One thread's own record: what it counts, which gate it looks at, whether it is inside a call.
//!
//! The launch path reaches the record by two loads (an initial-exec TLS slot) and touches nothing that
//! another thread writes. The keeper reads the counters and `inside` of all records, and forgets the
//! streams of a device whose gate it has closed. Records are never freed: a thread that ends leaves its
//! record, counters and all, to the next one that starts. The arrival of the process begins a new
//! `generation`: records made before it are out of use.

mod generation;
mod list;
mod record;
mod slot;
mod tally;
mod tracing;

pub use list::{Inside, all, attached, begin_anew, current, launches};
pub use record::{Thread, UNMANAGED, Used, offset, stream_key};
pub use tally::{Tally, Work, add};
