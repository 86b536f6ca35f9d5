//! Sentences about a lost context: the meaning of the driver's error for its process.

use gpushare_abi::errors::description_of;

/// Returns the cause of the loss: `an illegal memory access was encountered (700)`.
pub fn cause(code: u16) -> String {
    let text = description_of(code.into()).map(|text| text.to_string_lossy());
    match text {
        Some(text) => format!("{text} ({code})"),
        None => format!("driver error {code}"),
    }
}
