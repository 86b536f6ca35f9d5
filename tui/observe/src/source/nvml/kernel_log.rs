//! The errors of GPUs (Xids) that NVIDIA's kernel module wrote to the kernel's log, with the process that each names.
//!
//! Most users may not read the log where `kernel.dmesg_restrict` is 1, and a container often has none. A read never waits. Anyone
//! who may write to the log can write such a line too, but the kernel marks it as not its own, and it does not count here.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::xids::{Pci, Xid};

/// The kernel's log; each read returns a record.
pub const KMSG: &str = "/dev/kmsg";
/// The most records that the first round reads, more than a log has that was not enlarged.
const MOST_AT_FIRST: usize = 20_000;
/// The most records that a later round reads. What is left is read in the next one, or the kernel has overwritten it by then.
const MOST: usize = 500;
/// The length of the longest record.
const LONGEST: usize = 8192;
/// The most characters of a process's name; the kernel has 15.
const LONGEST_NAME: usize = 32;

/// A reader of the log, from its oldest record on.
#[derive(Debug)]
pub struct KernelLog {
    file: File,
    /// The time of the last round.
    read_ms: Option<i64>,
}

impl KernelLog {
    /// Opens the log.
    pub fn open(path: &Path) -> io::Result<Self> {
        let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag of open");
        let file = File::options()
            .read(true)
            .custom_flags(nonblocking)
            .open(path)?;
        Ok(Self {
            file,
            read_ms: None,
        })
    }

    /// Returns the errors that were written since the last round, and of which card each is.
    pub fn take(&mut self, now_ms: i64) -> Vec<(Pci, Xid)> {
        let most = match self.read_ms {
            None => MOST_AT_FIRST,
            Some(_) => MOST,
        };
        let since_boot = clock_gettime(ClockId::Monotonic);
        let booted_ms = now_ms - since_boot.tv_sec * 1000 - since_boot.tv_nsec / 1_000_000;
        let mut found = Vec::new();
        let mut room = [0; LONGEST];
        for _ in 0..most {
            match self.file.read(&mut room) {
                Ok(0) => break,
                // Lines that follow the record's own begin with a blank.
                Ok(length) => found.extend(
                    room[..length]
                        .split(|byte| *byte == b'\n')
                        .filter_map(error),
                ),
                // Records were overwritten before they were read.
                Err(error) if error.raw_os_error() == Some(Errno::PIPE.raw_os_error()) => {}
                Err(_) => break,
            }
        }
        for (_, xid) in &mut found {
            // The log's clock runs on its own: after months its records are minutes off. A new one came since the last round.
            let at_ms = booted_ms.saturating_add(xid.unix_ms);
            xid.unix_ms = at_ms.max(self.read_ms.unwrap_or(i64::MIN)).min(now_ms);
        }
        self.read_ms = Some(now_ms);
        found
    }
}

/// Returns the log of the machine that has this NVML: that of a simulated one is a file beside it.
pub(super) fn path(library: Option<&Path>) -> PathBuf {
    library.map_or_else(
        || PathBuf::from(KMSG),
        |library| library.with_file_name("kmsg"),
    )
}

/// Reads a record: `6,1234,5678,-;NVRM: Xid (PCI:0000:65:00): 79, pid=1234, name=python3, GPU has fallen off the bus.`
/// The time is left as the kernel gives it, in milliseconds since the start of the machine.
fn error(record: &[u8]) -> Option<(Pci, Xid)> {
    /// Facility and level in one number.
    const LEVELS: u32 = 8;
    // The kernel escapes what is not ASCII.
    let (head, message) = std::str::from_utf8(record).ok()?.split_once(';')?;
    let mut head = head.split(',');
    let priority: u32 = head.next()?.parse().ok()?;
    if priority >= LEVELS {
        return None;
    }
    let at_us: i64 = head.nth(1)?.parse().ok()?;
    let (card, report) = message.strip_prefix("NVRM: Xid (PCI:")?.split_once("): ")?;
    let mut parts = report.split(", ");
    let number = parts.next()?.parse().ok()?;
    let pid = parts
        .next()
        .and_then(|part| part.strip_prefix("pid=")?.parse().ok());
    let name = parts.next().filter(|_| pid.is_some());
    let name = name.and_then(|part| part.strip_prefix("name="));
    let xid = Xid {
        number: Some(number),
        unix_ms: at_us / 1000,
        pid,
        name: name.map(|name| name.chars().take(LONGEST_NAME).collect()),
    };
    // Behind the card there may be one of its instances.
    Some((Pci::parse(card.split(' ').next()?)?, xid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(record: &str) -> Option<u64> {
        error(record.as_bytes())?.1.number
    }

    #[test]
    fn an_error_has_its_card_its_time_and_its_process() {
        let record = b"3,1234,98765432,-;NVRM: Xid (PCI:0000:65:00): 31, pid=77, name=python3, Ch 00000008, intr 10000000.";
        let (card, xid) = error(record).expect("an error");
        assert_eq!(Some(card), Pci::parse("0000:65:00"));
        let told = (xid.number, xid.unix_ms, xid.pid, xid.name.as_deref());
        assert_eq!(told, (Some(31), 98_765, Some(77), Some("python3")));
        for (record, pid) in [
            (
                "4,1,2,-;NVRM: Xid (PCI:0000:65:00 GPU-I:05): 43, pid=9, name=a b, more",
                Some(9),
            ),
            (
                "4,1,2,-;NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
                None,
            ),
            (
                "4,1,2,-;NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.",
                None,
            ),
            ("4,1,2,c,caller=T9;NVRM: Xid (PCI:0000:65:00): 79", None),
        ] {
            let (card, xid) = error(record.as_bytes()).expect(record);
            assert_eq!(
                (card, xid.pid),
                (Pci::parse("0000:65:00").unwrap(), pid),
                "{record}"
            );
            assert_eq!(xid.name.is_some(), pid.is_some(), "{record}");
        }
    }

    #[test]
    fn a_line_that_the_kernel_did_not_write_is_no_error() {
        let forged = "NVRM: Xid (PCI:0000:65:00): 79, pid=1, name=a, b";
        assert_eq!(number(&format!("6,1,2,-;{forged}")), Some(79));
        for record in [
            // A user's line, by the kernel's own mark, and one of a daemon.
            format!("12,1,2,-;{forged}"),
            format!("30,1,2,-;{forged}"),
            format!("-1,1,2,-;{forged}"),
            // In the text of another line, or in the name of a process.
            format!("6,1,2,-;usb 1-1: Product: {forged}"),
            format!("6,1,2,-;x[7]: segfault at 0\\x0a6,1,2,-;{forged}"),
            format!(" SUBSYSTEM=6,1,2,-;{forged}"),
            "6,1,2,-;NVRM: Xid (PCI:[77]: segfault at 0 ip 0 sp 0 error 4): 79, pid=1".into(),
            "6,1,2,-;NVRM: Xid (PCI:0000:65:00): -79, pid=1".into(),
            "6,1,2,-;NVRM: Xid (PCI:0000:65): 79, pid=1".into(),
            "6,1,2,-;NVRM: Xid (PCI:".into(),
            "6,1;2".into(),
            String::new(),
        ] {
            assert_eq!(number(&record), None, "{record}");
        }
        let mut bytes = format!("6,1,2,-;{forged}").into_bytes();
        bytes.push(0xff);
        assert!(error(&bytes).is_none());
    }

    #[test]
    fn a_long_name_is_cut_and_a_time_is_never_in_the_future_nor_before_the_last_round() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kmsg");
        let line = |us: u64| {
            format!(
                "6,1,{us},-;NVRM: Xid (PCI:0000:65:00): 31, pid=7, name={}, x\n",
                "n".repeat(900)
            )
        };
        std::fs::write(&path, line(u64::MAX >> 1)).unwrap();
        let mut log = KernelLog::open(&path).unwrap();
        let first = log.take(1_000_000_000_000);
        assert_eq!(first[0].1.unix_ms, 1_000_000_000_000);
        assert_eq!(
            first[0].1.name.as_ref().map(String::len),
            Some(LONGEST_NAME)
        );
        assert!(log.take(1_000_000_000_000).is_empty(), "each once");
        use std::io::Write as _;
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(line(0).as_bytes()).unwrap();
        assert_eq!(log.take(1_000_000_000_500)[0].1.unix_ms, 1_000_000_000_000);
    }

    #[test]
    fn a_round_of_an_endless_log_ends_and_one_of_an_empty_pipe_does_not_wait() {
        let mut endless = KernelLog::open(Path::new("/dev/zero")).unwrap();
        endless.read_ms = Some(0);
        assert!(endless.take(0).is_empty());
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("kmsg");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        assert!(KernelLog::open(&pipe).unwrap().take(0).is_empty());
    }
}
