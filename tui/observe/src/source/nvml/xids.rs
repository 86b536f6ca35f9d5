//! The errors (Xids) of a device, which two sources report: NVML's events, and the kernel's log. Each error is counted once.

use std::collections::VecDeque;
use std::fmt;

/// The place of a card on the PCI bus: domain, bus and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pci([u32; 3]);

impl Pci {
    /// Reads `0000:65:00`; a function behind it, as in `0000:65:00.0`, is left out.
    pub fn parse(text: &str) -> Option<Self> {
        let card = text.split('.').next()?;
        let mut parts = card
            .split(':')
            .map(|part| u32::from_str_radix(part, 16).ok());
        let place = [parts.next()??, parts.next()??, parts.next()??];
        parts.next().is_none().then_some(Self(place))
    }
}

impl fmt::Display for Pci {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [domain, bus, device] = self.0;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}")
    }
}

/// An error of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xid {
    /// The driver's number of it.
    pub number: Option<u64>,
    /// The time at which it came.
    pub unix_ms: i64,
    /// The process that the kernel's log names.
    pub pid: Option<u32>,
    /// The name of that process.
    pub name: Option<String>,
}

/// The source of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Nvml,
    Log,
}

/// The errors of one device.
#[derive(Debug, Default)]
pub(super) struct Xids {
    /// The number of errors.
    pub(super) count: u64,
    /// The newest of them, and the source of each while the other has not reported it.
    newest: VecDeque<(Xid, Option<By>)>,
}

/// Reports of one error come within this time from both sources. A driver whose card has failed may answer late.
const SAME_MS: i64 = 60_000;
/// The number of errors that wait for the other source's report.
const KEPT: usize = 64;

impl Xids {
    /// Adds a report. One that the other source has made too is the same error.
    pub(super) fn add(&mut self, by: By, xid: Xid) {
        let same = self.newest.iter_mut().find(|(known, alone)| {
            alone.is_some_and(|source| source != by)
                && known.number == xid.number
                && known.unix_ms.abs_diff(xid.unix_ms) <= SAME_MS.unsigned_abs()
        });
        match same {
            Some((known, alone)) => {
                *alone = None;
                if by == By::Log {
                    *known = xid;
                }
            }
            None => {
                self.count += 1;
                self.newest.truncate(KEPT - 1);
                self.newest.push_front((xid, Some(by)));
            }
        }
    }

    /// Returns the newest error.
    pub(super) fn newest(&self) -> Option<&Xid> {
        self.newest.front().map(|(xid, _)| xid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xid(number: u64, unix_ms: i64) -> Xid {
        Xid {
            number: Some(number),
            unix_ms,
            pid: None,
            name: None,
        }
    }

    #[test]
    fn an_error_that_both_sources_report_counts_once_and_has_its_process() {
        let mut xids = Xids::default();
        let named = |number, at| Xid {
            pid: Some(7),
            ..xid(number, at)
        };
        xids.add(By::Nvml, xid(31, 5000));
        xids.add(By::Log, named(31, 4000));
        assert_eq!((xids.count, xids.newest()), (1, Some(&named(31, 4000))));
        xids.add(By::Log, named(31, 6000));
        xids.add(By::Log, named(13, 6000));
        xids.add(By::Nvml, xid(13, 9000));
        xids.add(By::Nvml, xid(31, 9000));
        assert_eq!((xids.count, xids.newest()), (3, Some(&named(13, 6000))));
        xids.add(By::Nvml, xid(31, 9000));
        assert_eq!(xids.count, 4, "one that the log does not have");
    }

    #[test]
    fn no_number_of_errors_fills_the_memory() {
        let mut xids = Xids::default();
        (0..1000).for_each(|at| xids.add(By::Log, xid(31, at)));
        assert_eq!((xids.count, xids.newest.len()), (1000, KEPT));
        assert_eq!(xids.newest().unwrap().unix_ms, 999);
    }

    #[test]
    fn a_card_is_found_by_nvmls_name_of_it() {
        assert_eq!(Pci::parse("00000000:65:00.0"), Pci::parse("0000:65:00"));
        assert_eq!(
            Pci::parse("00000000:A5:00.0").unwrap().to_string(),
            "0000:a5:00"
        );
        assert_ne!(Pci::parse("0001:65:00"), Pci::parse("0000:65:00"));
        for text in ["", "0000:65", "0000:65:00:1", "0000:xy:00", "[77]"] {
            assert_eq!(Pci::parse(text), None, "{text}");
        }
    }
}
