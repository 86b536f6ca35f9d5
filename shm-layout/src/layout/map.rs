//! The layout as text.
//!
//! A test compares the map below with [`map`]'s; a change to it is a change of [`ABI_VERSION`].
//!
//! ```text
#![doc = include_str!("../../tests/layout.txt")]
//! ```

use crate::{
    layout::{
        Field, control,
        counters::{Counters, HistogramWords},
        private_account, registry, state,
    },
    trace,
    value::ABI_VERSION,
};

/// Returns the whole layout as text, which a second implementation would need. The golden test compares it.
pub fn map() -> String {
    let mut text = format!("gpushare segments, ABI version {}\n", ABI_VERSION);
    let mut one = |name: &str, size: usize, align: usize, fields: &[Field]| {
        text.push_str(&format!("\n{name}: {size} bytes, aligned to {align}\n"));
        for field in fields {
            let Field {
                offset,
                size,
                name,
                kind,
            } = field;
            text.push_str(&format!("{offset:>9} {size:>9}  {name}: {kind}\n"));
        }
    };
    macro_rules! print {
        ($($kind:ty),*) => {
            $(one(stringify!($kind), size_of::<$kind>(), align_of::<$kind>(), <$kind>::FIELDS);)*
        };
    }
    print!(
        state::State,
        state::Header,
        state::Device,
        state::Group,
        state::Slot
    );
    print!(
        state::DeviceEntry,
        Counters,
        HistogramWords,
        state::Ring,
        state::Cell
    );
    print!(
        control::Control,
        control::Journal,
        control::SlotRecord,
        control::SmallRecord
    );
    print!(
        registry::Registry,
        registry::RegistryEntry,
        registry::RegistryGroup,
        registry::RegistryDevice
    );
    print!(
        private_account::PrivateAccount,
        private_account::PrivateAccountEntry
    );
    print!(
        trace::Tables,
        trace::Head,
        trace::Name,
        trace::Row,
        trace::Line
    );
    text
}
