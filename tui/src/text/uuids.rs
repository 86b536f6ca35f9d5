//! Device UUIDs as people and `CUDA_VISIBLE_DEVICES` write them: `GPU-…` and `MIG-…`.

use shm_layout::Uuid;

/// `GPU-01234567-89ab-cdef-0123-456789abcdef`, or `MIG-…` for an instance.
pub fn format(uuid: Uuid, mig: bool) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let (a, b, c, d, e) = (
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    );
    format!("{}-{a}-{b}-{c}-{d}-{e}", if mig { "MIG" } else { "GPU" })
}

/// Reads a UUID with or without its prefix; `None` when it is not a whole one.
pub fn parse(text: &str) -> Option<Uuid> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_uuid_reads_back() {
        let uuid = std::array::from_fn(|at| at as u8 * 17);
        assert_eq!(
            format(uuid, false),
            "GPU-00112233-4455-6677-8899-aabbccddeeff"
        );
        assert_eq!(parse(&format(uuid, false)), Some(uuid));
        assert_eq!(parse(&format(uuid, true)), Some(uuid));
        assert_eq!(parse("00112233445566778899aabbccddeeff"), Some(uuid));
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
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
