//! Sentences about Xids, the numbers by which NVIDIA's kernel driver reports errors of a device.

/// The meaning of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// The error, in few words.
    pub what: &'static str,
    /// The action that helps.
    pub remedy: &'static str,
}

const PROGRAM: &str = "a program is the cause; compute-sanitizer finds the place";
const RESET: &str = "end its programs, then reset the GPU: nvidia-smi --gpu-reset";
const EXCHANGE: &str = "if it comes again, have the card exchanged";

/// The numbers of NVIDIA's list that a user meets on a card for computing.
const KNOWN: [(u64, &str, &str); 16] = [
    (13, "a kernel caused an exception", PROGRAM),
    (31, "a kernel used memory that is not its own", PROGRAM),
    (43, "a program's work was stopped", PROGRAM),
    (
        45,
        "a program's work was cleaned up after an error before it, or after the program was killed",
        PROGRAM,
    ),
    (48, "memory has an error that ECC could not correct", RESET),
    (62, "its internal controller stopped", RESET),
    (
        63,
        "a bad row of memory is to be replaced by a spare one",
        RESET,
    ),
    (64, "a bad row of memory could not be replaced", EXCHANGE),
    (
        74,
        "an NVLink has an error",
        "check the NVLinks: nvidia-smi nvlink --status",
    ),
    (
        79,
        "the card has fallen off the bus",
        "check its power and its slot, and restart the machine",
    ),
    (92, "memory has many errors that ECC corrected", EXCHANGE),
    (
        94,
        "memory has an error, which ended one program alone",
        RESET,
    ),
    (
        95,
        "memory has an error, which reached several programs",
        RESET,
    ),
    (119, "its system processor (GSP) does not answer", RESET),
    (120, "its system processor (GSP) had an error", RESET),
    (140, "memory has an error that was not recovered", RESET),
];

/// Returns the meaning of an Xid.
pub fn meaning(xid: u64) -> Meaning {
    let known = KNOWN.iter().find(|(number, ..)| *number == xid);
    known.map_or(
        Meaning {
            what: "an error of the device or of its driver",
            remedy: "the kernel's log says more: dmesg | grep Xid",
        },
        |(_, what, remedy)| Meaning { what, remedy },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_not_known_sends_the_reader_to_the_kernels_log() {
        assert!(meaning(79).what.contains("off the bus"));
        assert!(meaning(4711).remedy.contains("dmesg"));
        assert!(KNOWN.is_sorted_by_key(|(number, ..)| *number));
    }
}
