//! The rules of stream capture, as in the driver: which streams capture, into which graph, and which calls are
//! forbidden.
//!
//! A *sequence* begins on its origin stream. Another stream joins it by waiting for an event that was
//! recorded in it, and must be joined back before the end. Each stream of a sequence has *tails*: the
//! nodes that its next node will wait for. A forbidden call makes a sequence *invalid*; an invalid one
//! takes no more work, and its end gives an error and no graph.
//!
//! | call | forbidden while | answer |
//! |---|---|---|
//! | unsafe calls (allocate, free, synchronous copies, load a module …) | see [`Sequences::unsafe_call`] | `STREAM_CAPTURE_UNSUPPORTED` |
//! | synchronise or query a stream, or its context | it captures | `STREAM_CAPTURE_UNSUPPORTED` |
//! | synchronise or query an event | it was recorded in a capture that lasts | `CAPTURED_EVENT` |
//! | work in the legacy stream | a blocking stream of the context captures | `STREAM_CAPTURE_IMPLICIT` |

use std::collections::{BTreeMap, BTreeSet};

use gpushare_abi::errors::*;
use gpushare_abi::types::{
    CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED, CUstreamCaptureMode,
};

use crate::handles::NodeId;

/// The properties of a stream that the rules use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamFacts {
    /// The stream's handle.
    pub stream: u64,
    /// The handle of the stream's context.
    pub context: u64,
    /// True if the stream and the legacy stream wait for each other.
    pub blocking: bool,
}

/// A capturing stream, as its next operation finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Active {
    /// The sequence's number.
    pub sequence: u64,
    /// The graph being made.
    pub graph: u64,
    /// The nodes that the next node waits for.
    pub tails: Vec<NodeId>,
}

/// The mark of an event that was last recorded in a capture; the event keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureMark {
    sequence: u64,
    nodes: Vec<NodeId>,
}

/// The graph that receives the nodes of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The graph's handle.
    pub graph: u64,
    /// The sequence made the graph; a failed one throws it away.
    pub own: bool,
}

#[derive(Debug)]
struct Sequence {
    origin: u64,
    thread: u64,
    mode: CUstreamCaptureMode,
    target: Target,
    valid: bool,
    streams: BTreeMap<u64, Member>,
    /// Nodes that nothing waits for yet.
    leaves: BTreeSet<NodeId>,
}

#[derive(Debug)]
struct Member {
    facts: StreamFacts,
    tails: Vec<NodeId>,
}

/// All sequences of the process.
#[derive(Debug, Default)]
pub struct Sequences {
    sequences: BTreeMap<u64, Sequence>,
    of_stream: BTreeMap<u64, u64>,
    begun: u64,
}

impl Sequences {
    /// Returns a state in which no sequence runs.
    pub const fn new() -> Self {
        Self {
            sequences: BTreeMap::new(),
            of_stream: BTreeMap::new(),
            begun: 0,
        }
    }

    /// Begins a sequence into a graph; the first node waits for `tails`.
    pub fn begin(
        &mut self,
        facts: StreamFacts,
        thread: u64,
        mode: CUstreamCaptureMode,
        target: Target,
        tails: Vec<NodeId>,
    ) -> Result<(), CUerror> {
        if mode > CU_STREAM_CAPTURE_MODE_RELAXED {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if self.of_stream.contains_key(&facts.stream) {
            return Err(CUDA_ERROR_ILLEGAL_STATE);
        }
        self.begun += 1;
        self.of_stream.insert(facts.stream, self.begun);
        let streams = BTreeMap::from([(facts.stream, Member { facts, tails })]);
        let sequence = Sequence {
            origin: facts.stream,
            thread,
            mode,
            target,
            valid: true,
            streams,
            leaves: BTreeSet::new(),
        };
        self.sequences.insert(self.begun, sequence);
        Ok(())
    }

    /// Ends the stream's sequence and returns the graph.
    pub fn end(&mut self, stream: u64, thread: u64) -> Result<Target, Ended> {
        let number = *self
            .of_stream
            .get(&stream)
            .ok_or(Ended::Still(CUDA_ERROR_ILLEGAL_STATE))?;
        let sequence = self
            .sequences
            .get_mut(&number)
            .expect("streams name live sequences");
        if sequence.origin != stream {
            sequence.valid = false;
            return Err(Ended::Still(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED));
        }
        if sequence.mode != CU_STREAM_CAPTURE_MODE_RELAXED && sequence.thread != thread {
            sequence.valid = false;
            return Err(Ended::Still(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD));
        }
        let sequence = self.forget(number);
        let tails = &sequence.streams[&stream].tails;
        if !sequence.valid {
            Err(Ended::Broken(
                sequence.target,
                CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
            ))
        } else if !sequence.leaves.iter().all(|leaf| tails.contains(leaf)) {
            Err(Ended::Broken(
                sequence.target,
                CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
            ))
        } else {
            Ok(sequence.target)
        }
    }

    fn forget(&mut self, number: u64) -> Sequence {
        self.of_stream.retain(|_, of| *of != number);
        self.sequences
            .remove(&number)
            .expect("streams name live sequences")
    }

    /// Removes a stream that is being destroyed. Its sequence, if it has one, is discarded; returns the graph.
    pub fn stream_gone(&mut self, stream: u64) -> Option<Target> {
        let number = *self.of_stream.get(&stream)?;
        let sequence = self.sequences.get_mut(&number)?;
        if sequence.origin == stream {
            return Some(self.forget(number).target);
        }
        // Its nodes stay in the graph, and must be joined like any others.
        sequence.streams.remove(&stream);
        self.of_stream.remove(&stream);
        None
    }

    /// Discards the sequences that began in a context that ends. Returns their graphs.
    pub fn context_gone(&mut self, context: u64) -> Vec<Target> {
        let began_there = |sequence: &Sequence| {
            let origin = sequence.streams.get(&sequence.origin);
            origin.is_some_and(|member| member.facts.context == context)
        };
        let gone = self.sequences.iter().filter(|(_, s)| began_there(s));
        let numbers: Vec<_> = gone.map(|(number, _)| *number).collect();
        numbers
            .into_iter()
            .map(|number| self.forget(number).target)
            .collect()
    }

    /// Returns the capture of a stream, if it captures. An invalid sequence is an error.
    pub fn active(&self, stream: u64) -> Result<Option<Active>, CUerror> {
        let Some((number, sequence)) = self.sequence_of(stream) else {
            return Ok(None);
        };
        if !sequence.valid {
            return Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        Ok(Some(Active {
            sequence: number,
            graph: sequence.target.graph,
            tails: sequence.streams[&stream].tails.clone(),
        }))
    }

    fn sequence_of(&self, stream: u64) -> Option<(u64, &Sequence)> {
        let number = *self.of_stream.get(&stream)?;
        Some((number, self.sequences.get(&number)?))
    }

    /// Records that a node was added for the stream; the stream's next node waits for it.
    pub fn advance(&mut self, stream: u64, node: NodeId) {
        self.with(stream, |sequence| {
            let member = sequence
                .streams
                .get_mut(&stream)
                .expect("it is of this sequence");
            for tail in member.tails.drain(..) {
                sequence.leaves.remove(&tail);
            }
            member.tails.push(node);
            sequence.leaves.insert(node);
        });
    }

    /// Changes the nodes that the stream's next node waits for (`cuStreamUpdateCaptureDependencies`).
    pub fn redirect(&mut self, stream: u64, tails: Vec<NodeId>) {
        self.with(stream, |sequence| {
            let member = sequence
                .streams
                .get_mut(&stream)
                .expect("it is of this sequence");
            for dropped in member.tails.iter().filter(|tail| !tails.contains(tail)) {
                sequence.leaves.remove(dropped);
            }
            member.tails = tails;
        });
    }

    fn with(&mut self, stream: u64, change: impl FnOnce(&mut Sequence)) {
        if let Some(number) = self.of_stream.get(&stream)
            && let Some(sequence) = self.sequences.get_mut(number)
        {
            change(sequence);
        }
    }

    /// Returns the mark of an event that is recorded now; `None` if the stream does not capture.
    pub fn record(&self, stream: u64) -> Result<Option<CaptureMark>, CUerror> {
        let active = self.active(stream)?;
        Ok(active.map(|active| CaptureMark {
            sequence: active.sequence,
            nodes: active.tails,
        }))
    }

    /// Makes a stream wait for an event; `mark` if it was last recorded in a capture. Returns true if the wait is
    /// part of a capture, so that nothing else has to be done.
    pub fn wait(
        &mut self,
        facts: StreamFacts,
        mark: Option<&CaptureMark>,
    ) -> Result<bool, CUerror> {
        let own = self.active(facts.stream)?;
        let Some(mark) = mark else {
            if own.is_some() {
                self.invalidate_of(facts.stream);
                return Err(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
            }
            return Ok(false);
        };
        if own.is_some_and(|own| own.sequence != mark.sequence) {
            self.invalidate_of(facts.stream);
            self.invalidate(mark.sequence);
            return Err(CUDA_ERROR_STREAM_CAPTURE_MERGE);
        }
        let sequence = self
            .sequences
            .get_mut(&mark.sequence)
            .ok_or(CUDA_ERROR_CAPTURED_EVENT)?;
        if !sequence.valid {
            return Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        let new = Member {
            facts,
            tails: Vec::new(),
        };
        let member = sequence.streams.entry(facts.stream).or_insert(new);
        for node in &mark.nodes {
            if !member.tails.contains(node) {
                member.tails.push(*node);
            }
        }
        self.of_stream.insert(facts.stream, mark.sequence);
        Ok(true)
    }

    fn invalidate_of(&mut self, stream: u64) {
        self.with(stream, |sequence| sequence.valid = false);
    }

    fn invalidate(&mut self, number: u64) {
        if let Some(sequence) = self.sequences.get_mut(&number) {
            sequence.valid = false;
        }
    }
}

mod forbidden;
pub use forbidden::Ended;

#[cfg(test)]
mod tests;
