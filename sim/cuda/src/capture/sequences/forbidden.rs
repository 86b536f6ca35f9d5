//! The calls that a running capture forbids. A forbidden call fails and makes the sequences that it violates invalid.

use super::*;

/// The reason why the end of a sequence gave no graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The sequence has not ended: the wrong stream or thread tried to end it, or nothing captures.
    Still(CUerror),
    /// The sequence has ended, and its graph must be discarded.
    Broken(Target, CUerror),
}

impl Sequences {
    /// Checks a potentially unsafe call. In its own interaction mode, a thread
    /// * `relaxed` may always make it,
    /// * `thread_local` may not while a sequence of its own runs that is not relaxed,
    /// * `global` (the default) also may not while another thread's global sequence runs.
    pub fn unsafe_call(&mut self, thread: u64, mode: CUstreamCaptureMode) -> CUresult {
        let offends = |sequence: &Sequence| {
            let own = sequence.thread == thread && sequence.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
            let global = sequence.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
            match mode {
                CU_STREAM_CAPTURE_MODE_RELAXED => false,
                CU_STREAM_CAPTURE_MODE_GLOBAL => own || global,
                _ => own,
            }
        };
        self.refuse(offends, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Checks a synchronisation or query of a stream.
    pub fn synchronise_stream(&mut self, stream: u64) -> CUresult {
        let offends = |sequence: &Sequence| sequence.streams.contains_key(&stream);
        self.refuse(offends, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Checks a synchronisation of all of a context.
    pub fn synchronise_context(&mut self, context: u64) -> CUresult {
        let offends = |sequence: &Sequence| {
            let mut streams = sequence.streams.values();
            streams.any(|member| member.facts.context == context)
        };
        self.refuse(offends, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Returns the error for a synchronisation or query of an event that was last recorded in a capture: it is never
    /// allowed, and makes that capture invalid if it still runs.
    pub fn synchronise_event(&mut self, mark: &CaptureMark) -> CUerror {
        self.invalidate(mark.sequence);
        CUDA_ERROR_CAPTURED_EVENT
    }

    /// Returns true if the context's legacy stream is closed for now.
    pub fn closes_legacy(&self, context: u64) -> bool {
        self.sequences.values().any(|s| s.blocks_in(context))
    }

    /// Checks work in the context's legacy stream, which waits for all blocking streams, as they do for it.
    pub fn use_legacy(&mut self, context: u64) -> CUresult {
        let offends = |sequence: &Sequence| sequence.blocks_in(context);
        self.refuse(offends, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    }

    fn refuse(&mut self, offends: impl Fn(&Sequence) -> bool, error: CUerror) -> CUresult {
        let mut answer = Ok(());
        for sequence in self.sequences.values_mut().filter(|s| offends(s)) {
            sequence.valid = false;
            answer = Err(error);
        }
        answer
    }
}

impl Sequence {
    /// Returns true if a stream of the sequence is of this context and waits for the legacy stream.
    fn blocks_in(&self, context: u64) -> bool {
        let mut members = self.streams.values().map(|member| member.facts);
        members.any(|stream| stream.blocking && stream.context == context)
    }
}
