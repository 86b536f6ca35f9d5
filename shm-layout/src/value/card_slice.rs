//! The time slice that a process has from the card itself, under `hw-timeslice`.

/// State of a process's own time slice on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum CardSlice {
    /// The card's default: the policy asks for none, or the process has no channels there yet.
    #[default]
    Default,
    /// The card's default, because the policy asks for none. The driver and the card are known to obey one.
    Available,
    /// Its channels have a slice of so many microseconds.
    Set(u32),
    /// The policy asks for one, and its channels keep the default.
    Refused(Unsliced, u16),
}

reasons! {
    /// The reason that a process does not follow `hw-timeslice`; a code of the driver's stands beside it, 0 for none.
    enum Unsliced;
    /// No request of the driver's came by.
    NotSeen = "the library did not see the driver make its channels";
    /// The driver's branch was not measured.
    Driver = "its driver is not one that is known to obey (580)";
    /// The card's generation was not measured.
    Card = "its card is not one that is known to obey (compute capability 9)";
    /// The channels belong to the server.
    Mps = "it is a client of MPS, whose server has the channels";
    /// Not measured.
    Mig = "it runs on a MIG instance, where this was not measured";
    /// The host divides the card among the guests.
    Virtual = "it runs on a virtual GPU, whose host divides the time";
    /// The device of a group is not known.
    Several = "it uses several GPUs, and they have different policies";
    /// The table is full.
    TooMany = "it has more channel groups than the library keeps";
    /// A request failed.
    Refused = "the driver refused";
    /// GET did not read what SET wrote.
    Ignored = "the driver kept another slice than the one that was set";
}

/// The first byte of a word: 0 is the default, 1 a slice that is set, above it the reason of a refusal. Below it a default has 1
/// where another slice is available.
const TAG: u32 = 24;
const AVAILABLE: u32 = 1;
const SET: u32 = 1;
const FIRST_REASON: u32 = 2;
const MOST: u32 = (1 << TAG) - 1;

impl CardSlice {
    /// Returns true if the process has a slice of its own, or would have one under a policy that asks for it.
    pub fn is_possible(self) -> bool {
        matches!(self, Self::Available | Self::Set(_))
    }

    /// Returns the state as a word of the segment.
    pub(crate) fn word(self) -> u32 {
        match self {
            Self::Default => 0,
            Self::Available => AVAILABLE,
            Self::Set(us) => SET << TAG | us.min(MOST),
            Self::Refused(why, status) => (FIRST_REASON + why as u32) << TAG | u32::from(status),
        }
    }

    /// Returns the state of a word. Any word is some state, because any process can write there.
    pub(crate) fn of(word: u32) -> Self {
        let reason = (word >> TAG).checked_sub(FIRST_REASON);
        match reason.map(|at| Unsliced::ALL.get(at as usize)) {
            None if word == AVAILABLE => Self::Available,
            None if word >> TAG == SET => Self::Set(word & MOST),
            Some(Some(why)) => Self::Refused(*why, word as u16),
            _ => Self::Default,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_read_back_from_its_word() {
        let refused = Unsliced::ALL
            .iter()
            .map(|why| CardSlice::Refused(*why, 0x56));
        let others = [
            CardSlice::Default,
            CardSlice::Available,
            CardSlice::Set(0),
            CardSlice::Set(4_000),
        ];
        for state in others.into_iter().chain(refused) {
            assert_eq!(CardSlice::of(state.word()), state);
        }
        assert_eq!(CardSlice::of(u32::MAX), CardSlice::Default);
    }
}
