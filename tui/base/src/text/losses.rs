//! A lost context in words: what the driver's error means for the process that got it.

use gpushare_abi::errors::description_of;

/// What a kernel of the process, or its surroundings, did: `an illegal memory access was encountered (700)`.
pub fn cause(code: u16) -> String {
    let text = description_of(code.into()).map(|text| text.to_string_lossy());
    match text {
        Some(text) => format!("{text} ({code})"),
        None => format!("driver error {code}"),
    }
}
