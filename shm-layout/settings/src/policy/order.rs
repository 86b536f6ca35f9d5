//! The order in which waiters get a lock.

/// The order that chooses the next waiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Order {
    /// The first in the queue.
    Fifo,
    /// The highest priority, with ageing.
    Priority,
    /// The least time held for its weight.
    #[default]
    Fair,
    /// The shortest mean hold, less an eighth of the wait.
    Shortest,
}

impl Order {
    /// Every order, the default first. A segment keeps an order by its `code`.
    pub const ALL: [Order; 4] = [Order::Fair, Order::Priority, Order::Fifo, Order::Shortest];

    /// The words of the orders with their numbers, in the same sequence.
    pub(super) const CHOICES: [(&str, u64); Self::ALL.len()] = {
        let mut choices = [("", 0); Self::ALL.len()];
        let mut at = 0;
        while at < choices.len() {
            choices[at] = (Self::ALL[at].word(), Self::ALL[at].code());
            at += 1;
        }
        choices
    };

    /// Help text of `order=`.
    pub(super) const ABOUT: &str = "which waiter is next: fair, priority, fifo or shortest";

    /// Returns the word after `order=`, the order in the words of a user, and who waits longest under it.
    const fn texts(self) -> [&'static str; 3] {
        match self {
            Order::Fifo => ["fifo", "first come, first served", "each waits"],
            Order::Priority => ["priority", "urgent first", "the least urgent waits"],
            Order::Fair => ["fair", "shares by weight", "one waits"],
            Order::Shortest => ["shortest", "shortest work first", "one waits"],
        }
    }

    /// Returns the word after `order=`.
    pub const fn word(self) -> &'static str {
        self.texts()[0]
    }

    /// Returns the order in the words of a user.
    pub const fn in_words(self) -> &'static str {
        self.texts()[1]
    }

    /// Returns a clause that says who waits longest.
    pub const fn who_waits(self) -> &'static str {
        self.texts()[2]
    }

    /// Returns the number in a segment.
    pub const fn code(self) -> u64 {
        self as u64
    }

    /// The order of a number in a segment.
    pub fn of_code(code: u64) -> Option<Order> {
        Self::ALL.into_iter().find(|order| order.code() == code)
    }
}
