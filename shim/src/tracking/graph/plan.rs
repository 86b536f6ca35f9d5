//! The plan of a graph: the allocations and frees of its nodes, and the memory that an executable made from it needs.

use std::collections::BTreeMap;

/// An allocation of a graph. Its address is fixed when its node is added; the memory is allocated by a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The address.
    pub address: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// The ordinal of its device.
    pub ordinal: u8,
}

/// The allocations and frees of a graph.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The allocations.
    pub pieces: Vec<Piece>,
    /// The addresses that the graph frees.
    pub frees: Vec<u64>,
}

/// The memory that launches of an executable need.
#[derive(Debug)]
pub struct Need {
    /// The memory by device.
    pub parts: Vec<Part>,
    /// The addresses that the graph frees and does not allocate.
    pub frees: Vec<u64>,
}

/// The memory that launches need on one device.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The ordinal of the device.
    pub ordinal: u8,
    /// Allocations that outlast the launch.
    pub kept: Vec<Piece>,
    /// Bytes beside them that are free again after the launch.
    pub temporary: u64,
}

impl Plan {
    /// Adds the nodes of a graph that becomes a part of this one.
    pub fn absorb(&mut self, other: Self) {
        self.pieces.extend(other.pieces);
        self.frees.extend(other.frees);
    }

    /// Returns the memory that an executable made from this plan needs.
    pub fn need(&self) -> Need {
        let mut of_device: BTreeMap<u8, Vec<Piece>> = BTreeMap::new();
        for piece in &self.pieces {
            of_device.entry(piece.ordinal).or_default().push(*piece);
        }
        let parts = of_device.into_iter().map(|(ordinal, pieces)| {
            let all = covered(&pieces);
            let kept: Vec<_> = pieces
                .into_iter()
                .filter(|piece| !self.frees.contains(&piece.address))
                .collect();
            Part {
                ordinal,
                temporary: all.saturating_sub(covered(&kept)),
                kept,
            }
        });
        let own = |address: &u64| self.pieces.iter().any(|piece| piece.address == *address);
        Need {
            parts: parts.collect(),
            frees: self.frees.iter().copied().filter(|at| !own(at)).collect(),
        }
    }
}

/// Returns the bytes that the pieces cover. Allocations that never exist at the same time may share addresses.
fn covered(pieces: &[Piece]) -> u64 {
    let mut ranges: Vec<_> = pieces
        .iter()
        .map(|piece| (piece.address, piece.address.saturating_add(piece.bytes)))
        .collect();
    ranges.sort_unstable();
    let mut end = 0;
    let mut bytes = 0;
    for (from, to) in ranges {
        bytes += to.saturating_sub(from.max(end));
        end = end.max(to);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(address: u64, bytes: u64, ordinal: u8) -> Piece {
        Piece {
            address,
            bytes,
            ordinal,
        }
    }

    #[test]
    fn what_a_graph_frees_itself_is_needed_only_meanwhile() {
        let plan = Plan {
            pieces: vec![piece(1000, 64, 0), piece(2000, 32, 0), piece(3000, 8, 1)],
            frees: vec![1000, 7000],
        };
        let need = plan.need();
        assert_eq!(need.frees, [7000], "another graph's");
        assert_eq!(need.parts.len(), 2);
        assert_eq!(need.parts[0].kept, [piece(2000, 32, 0)]);
        assert_eq!((need.parts[0].temporary, need.parts[1].temporary), (64, 0));
    }

    #[test]
    fn allocations_that_share_addresses_are_needed_once() {
        let plan = Plan {
            pieces: vec![piece(1000, 64, 0), piece(1000, 48, 0), piece(1032, 64, 0)],
            frees: vec![1000, 1000, 1032],
        };
        assert_eq!(plan.need().parts[0].temporary, 96);
    }
}
