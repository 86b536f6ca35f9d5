//! Sizes and addresses in a call: 64 bits wide, or 32 bits in the functions from before CUDA 3.2.

/// A size or an address of either width.
pub trait Amount: Copy {
    /// Returns the number, 64 bits wide.
    fn wide(self) -> u64;

    /// Converts back to this width; the number must fit.
    fn narrow(wide: u64) -> Self;
}

impl Amount for u32 {
    fn wide(self) -> u64 {
        self.into()
    }

    fn narrow(wide: u64) -> Self {
        wide as u32
    }
}

impl Amount for u64 {
    fn wide(self) -> u64 {
        self
    }

    fn narrow(wide: u64) -> Self {
        wide
    }
}

impl Amount for usize {
    fn wide(self) -> u64 {
        self as u64
    }

    fn narrow(wide: u64) -> Self {
        wide as usize
    }
}
