//! The command line.

use std::time::Duration;

use clap::Parser;

/// Keeps a GPU busy with kernels of a given length in a given rhythm, and holds a given amount of memory.
#[derive(Parser)]
#[command(name = "gpushare-workload", version)]
pub struct Options {
    /// Duration of each kernel, in microseconds
    #[arg(long, value_name = "US", default_value_t = 1000)]
    pub kernel_us: u64,
    /// Number of blocks of each kernel; as many as the device has multiprocessors fill the device
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub blocks: u32,
    /// Pause after each burst, in microseconds
    #[arg(long, value_name = "US", default_value_t = 0)]
    pub gap_us: u64,
    /// Kernels to launch before waiting for them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub burst: u32,
    /// Memory to hold all the time (512M, 2GiB, bytes)
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = bytes)]
    pub memory: u64,
    /// Allocate and free another piece of memory in each round
    #[arg(long)]
    pub churn: bool,
    /// Allocate one more piece in each round until one is refused, then free all of them and start again
    #[arg(long, conflicts_with = "churn")]
    pub until_oom: bool,
    /// Size of such a piece
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = bytes)]
    pub piece: u64,
    /// End after this many seconds; without it, run until killed
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: Option<Duration>,
    /// Number of the device in this process
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: u32,
    /// Write the report as JSON
    #[arg(long)]
    pub report_json: bool,
    /// End when stdin is closed, and so with the process that started it
    #[arg(long, conflicts_with = "script")]
    pub until_eof: bool,
    /// Execute commands from stdin, one per line, with one line of reply each: alloc SIZE, free, launch US [COUNT], sync,
    /// spin US MS, fault, info, sleep MS, quit
    #[arg(long)]
    pub script: bool,
}

/// A size: bytes, or a number with K, M, G or T (powers of 1024; `MB` and the like are of 1000).
pub fn bytes(text: &str) -> Result<u64, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_bytes: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(format!("`{text}` is not a size; write 512M, 2GiB or bytes")),
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit_bytes))
        .ok_or_else(|| format!("`{text}` is not a size; write 512M, 2GiB or bytes"))
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("`{text}` is not a number of seconds"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn sizes_have_binary_and_decimal_units() {
        assert_eq!(bytes("512M"), Ok(512 << 20));
        assert_eq!(bytes("2GiB"), Ok(2 << 30));
        assert_eq!(bytes("3gb"), Ok(3_000_000_000));
        assert_eq!(bytes("77"), Ok(77));
        for wrong in ["", "G", "8Q", "-1", "1.5G", "99999999999T"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }
}
