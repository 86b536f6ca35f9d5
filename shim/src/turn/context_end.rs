//! The ends of contexts that the driver may refuse.
//!
//! It refuses to destroy a primary context, and a release keeps one that has other references. So what is tracked in a context
//! stays tracked until the driver has decided. Until then its work counts as not done, and the driver is not asked about it,
//! because its streams and events may be gone.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering::Relaxed},
};

const UNDER_WAY: u8 = 0;
const GONE: u8 = 1;
const REFUSED: u8 = 2;

/// The end of contexts, with the driver's decision.
#[derive(Clone)]
pub struct ContextEnd(Arc<AtomicU8>);

impl ContextEnd {
    /// Returns an end that the driver is about to be asked for.
    pub fn under_way() -> Self {
        Self(Arc::new(AtomicU8::new(UNDER_WAY)))
    }

    /// Returns an end that has happened.
    pub fn gone() -> Self {
        Self(Arc::new(AtomicU8::new(GONE)))
    }

    /// Records the driver's decision.
    pub fn decide(&self, is_gone: bool) {
        self.0.store(if is_gone { GONE } else { REFUSED }, Relaxed);
    }

    /// Returns true if the contexts are gone.
    pub fn is_gone(&self) -> bool {
        self.state() == GONE
    }

    fn state(&self) -> u8 {
        self.0.load(Relaxed)
    }
}

/// The ends of a context that are under way or have happened.
#[derive(Clone, Default)]
pub struct Ends(Vec<ContextEnd>);

impl Ends {
    /// Adds an end.
    pub fn add(&mut self, end: &ContextEnd) {
        self.0.retain(|end| end.state() != REFUSED);
        self.0.push(end.clone());
    }

    /// Adds the ends of another.
    pub fn add_all(&mut self, ends: &Ends) {
        ends.0.iter().for_each(|end| self.add(end));
    }

    /// Returns true if the context is gone.
    pub fn is_gone(&self) -> bool {
        self.0.iter().any(ContextEnd::is_gone)
    }

    /// Returns true while the context's work counts as not done, false once the context is gone, and `None` if the driver
    /// may be asked.
    pub fn is_pending(&self) -> Option<bool> {
        if self.is_gone() {
            return Some(false);
        }
        let mut ends = self.0.iter();
        ends.any(|end| end.state() == UNDER_WAY).then_some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_pending_until_each_end_is_decided() {
        let mut ends = Ends::default();
        assert_eq!(ends.is_pending(), None);
        let [first, second] = [(); 2].map(|()| ContextEnd::under_way());
        ends.add(&first);
        ends.add(&second);
        first.decide(false);
        assert_eq!(ends.is_pending(), Some(true));
        second.decide(false);
        assert_eq!(ends.is_pending(), None);
        ends.add(&ContextEnd::under_way());
        ends.add(&ContextEnd::gone());
        assert_eq!(ends.is_pending(), Some(false));
    }
}
