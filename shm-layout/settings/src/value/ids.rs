//! Names of things in a segment: slots with their epoch, device UUIDs.

use super::MAX_PROCESSES;

/// A device's UUID, as the driver gives it.
pub type Uuid = [u8; 16];

/// `GPU-01234567-89ab-cdef-0123-456789abcdef`, or `MIG-…` for an instance.
pub fn format_uuid(uuid: Uuid, mig: bool) -> String {
    let mut text = String::with_capacity(40);
    text.push_str(if mig { "MIG" } else { "GPU" });
    for (at, byte) in uuid.into_iter().enumerate() {
        if matches!(at, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let digits = [byte >> 4, byte & 15].map(u32::from);
        text.extend(
            digits
                .into_iter()
                .filter_map(|digit| char::from_digit(digit, 16)),
        );
    }
    text
}

/// Reads a UUID with or without its prefix; `None` when it is not a whole one.
pub fn parse_uuid(text: &str) -> Option<Uuid> {
    let text = text.trim();
    let digits = ["GPU-", "MIG-", "gpu-", "mig-"]
        .iter()
        .find_map(|prefix| text.strip_prefix(prefix))
        .unwrap_or(text);
    let hex: Vec<u8> = digits
        .bytes()
        .filter(|byte| *byte != b'-')
        .map(|byte| char::from(byte).to_digit(16))
        .map(|digit| digit.and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()?;
    let bytes: Vec<u8> = hex
        .chunks(2)
        .map(|pair| pair.iter().fold(0, |byte, half| byte << 4 | half))
        .collect();
    if hex.len() == 32 {
        bytes.try_into().ok()
    } else {
        None
    }
}

/// A process slot in one of its lives. A re-used slot has a new epoch, so an old id never means a new process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct SlotId {
    /// Index of the slot, below 256.
    pub index: u16,
    /// Life of the slot, from 1.
    pub epoch: u32,
}

impl SlotId {
    /// Returns the slot's word and bit in a bitmap of slots.
    pub fn bit(self) -> (usize, u64) {
        (usize::from(self.index / 64), 1 << (self.index % 64))
    }

    /// Encodes the id as one word, never zero, for event arguments and owner words.
    pub fn to_word(self) -> u64 {
        u64::from(self.epoch) << 16 | u64::from(self.index).wrapping_add(1) & 0xffff
    }

    /// Decodes a word of [`to_word`](Self::to_word); `None` for zero and for words of no slot.
    pub fn from_word(word: u64) -> Option<SlotId> {
        let index = (word & 0xffff).checked_sub(1)?;
        let epoch = u32::try_from(word >> 16).ok()?;
        ((index as usize) < MAX_PROCESSES && epoch != 0).then_some(SlotId {
            index: index as u16,
            epoch,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_uuid_reads_back() {
        let uuid = std::array::from_fn(|at| at as u8 * 17);
        assert_eq!(
            format_uuid(uuid, false),
            "GPU-00112233-4455-6677-8899-aabbccddeeff"
        );
        assert_eq!(parse_uuid(&format_uuid(uuid, false)), Some(uuid));
        assert_eq!(parse_uuid(&format_uuid(uuid, true)), Some(uuid));
        assert_eq!(parse_uuid("00112233445566778899aabbccddeeff"), Some(uuid));
    }

    #[test]
    fn what_is_no_uuid_is_none() {
        for text in [
            "",
            "GPU-",
            "GPU-0011",
            "0",
            "GPU-00112233-4455-6677-8899-aabbccddeefg",
        ] {
            assert_eq!(parse_uuid(text), None, "{text}");
        }
    }
}
