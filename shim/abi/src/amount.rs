//! Sizes and addresses as a call has them: 64 bits wide, or 32 in the forms that CUDA had before 3.2.

/// A size or an address of either width.
pub trait Amount: Copy {
    /// The same number, 64 bits wide.
    fn wide(self) -> u64;

    /// A number that is known to fit, as wide as this.
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
