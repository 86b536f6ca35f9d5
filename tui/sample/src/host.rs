//! The machine's processors and memory, and what the threads of a process do there.

use super::keys::object;

object! {
    /// The processors and the memory of the machine. `None` means that the kernel does not report a value.
    #[derive(Copy, Default, Eq, serde::Deserialize)]
    #[serde(default)]
    pub Machine {
        processors: Option<u32>, "Processors that are online.";
        cpu_percent: Option<u32>, "Share of the processors' time that was used since the look before; in a single look, since the machine started.";
        memory_bytes: Option<u64>, "Memory of the machine.";
        available_bytes: Option<u64>, "Memory that a program could still take.";
    }
}

object! {
    /// The threads of a process on the host's processors, since the look before; in a single look, since the process began.
    #[derive(Copy, Default, Eq, serde::Deserialize)]
    #[serde(default)]
    pub Threads {
        readable: Option<bool>, "Whether /proc shows its threads to this user; null before the first look." => Silent;
        number: Option<u32>, "Threads that it has; at most 256 are looked at.";
        cpu_percent: Option<u32>, "Processor time of all of them, as a share of one processor's.";
        busiest_percent: Option<u32>, "Processor time of the thread that wanted a processor most, as a share of one processor's.";
        waits_percent: Option<u32>, "Share of the time for which that thread was ready to run and waited for a processor.";
    }
}
