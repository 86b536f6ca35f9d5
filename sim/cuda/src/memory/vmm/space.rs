//! The address space of the driver's virtual memory calls: reservations, mappings, and the access to them. It
//! contains only numbers; [`super`] maps the pages.
//!
//! * A mapping lies inside one reservation and overlaps no other mapping.
//! * Unmapping and access take whole mappings: a range that cuts one is refused, and access one that has a hole.
//! * A reservation is freed with the very address and size it was made with, once nothing is mapped in it.
//!
//! A refused call changes nothing.

use std::collections::BTreeMap;

/// A device ordinal, or [`HOST`].
pub type Place = i32;
/// The host as a place.
pub const HOST: Place = -1;

/// The access from a location: a value of the driver's `CU_MEM_ACCESS_FLAGS_…`.
pub type Access = u32;
/// No access.
pub const NO_ACCESS: Access = 0;
/// Reading.
pub const READ: Access = 1;
/// Reading and writing.
pub const READ_WRITE: Access = 3;

/// A call that does not fit the address space as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The size in bytes.
    pub size: u64,
    /// The identifier of the mapped physical allocation.
    pub physical: u64,
    /// From which byte of it.
    pub offset: u64,
    /// The access of each location.
    access: BTreeMap<Place, Access>,
}

impl Mapping {
    /// Returns the access from a location.
    pub fn access(&self, place: Place) -> Access {
        self.access.get(&place).copied().unwrap_or(NO_ACCESS)
    }

    /// Returns the widest access from any location.
    pub fn widest(&self) -> Access {
        self.access.values().fold(NO_ACCESS, |all, one| all | one)
    }
}

/// Reservations and the mappings in them.
#[derive(Debug, Default)]
pub struct Space {
    reserved: BTreeMap<u64, u64>,
    mapped: BTreeMap<u64, Mapping>,
}

impl Space {
    /// Returns a space without reservations.
    pub const fn new() -> Self {
        Self {
            reserved: BTreeMap::new(),
            mapped: BTreeMap::new(),
        }
    }

    /// Notes a reservation; its addresses are fresh.
    pub fn reserve(&mut self, address: u64, size: u64) {
        self.reserved.insert(address, size);
    }

    /// Frees a reservation.
    pub fn free(&mut self, address: u64, size: u64) -> Result<(), Refused> {
        let end = address.checked_add(size).ok_or(Refused)?;
        let known = self.reserved.get(&address) == Some(&size);
        if !known || self.mapped.range(address..end).next().is_some() {
            return Err(Refused);
        }
        self.reserved.remove(&address);
        Ok(())
    }

    /// Maps `size` bytes of a physical allocation; without access yet.
    pub fn map(
        &mut self,
        address: u64,
        size: u64,
        physical: u64,
        offset: u64,
    ) -> Result<(), Refused> {
        let end = address.checked_add(size).ok_or(Refused)?;
        let (base, length) = self.reservation(address).ok_or(Refused)?;
        let overlaps = self
            .mapped
            .range(..end)
            .next_back()
            .is_some_and(|(at, mapping)| at + mapping.size > address);
        if size == 0 || end > base + length || overlaps {
            return Err(Refused);
        }
        let access = BTreeMap::new();
        self.mapped.insert(
            address,
            Mapping {
                size,
                physical,
                offset,
                access,
            },
        );
        Ok(())
    }

    /// Removes the mappings of a range and returns them with their addresses. The range may have holes, or contain no
    /// mapping.
    pub fn unmap(&mut self, address: u64, size: u64) -> Result<Vec<(u64, Mapping)>, Refused> {
        let end = address.checked_add(size).ok_or(Refused)?;
        let reaches_in = |(start, mapping): (&u64, &Mapping)| start + mapping.size > address;
        let reaches_out = |(start, mapping): (&u64, &Mapping)| start + mapping.size > end;
        let cut = self
            .mapped
            .range(..address)
            .next_back()
            .is_some_and(reaches_in)
            || self
                .mapped
                .range(..end)
                .next_back()
                .is_some_and(reaches_out);
        if size == 0 || cut {
            return Err(Refused);
        }
        let starts: Vec<_> = self
            .mapped
            .range(address..end)
            .map(|(start, _)| *start)
            .collect();
        Ok(starts
            .iter()
            .filter_map(|start| self.mapped.remove_entry(start))
            .collect())
    }

    /// Sets the access to a range; returns the changed mappings.
    pub fn set_access(
        &mut self,
        address: u64,
        size: u64,
        grants: &[(Place, Access)],
    ) -> Result<Vec<(u64, Mapping)>, Refused> {
        let starts = self.whole(address, size)?;
        let mut changed = Vec::new();
        for start in starts {
            if let Some(mapping) = self.mapped.get_mut(&start) {
                mapping.access.extend(grants.iter().copied());
                changed.push((start, mapping.clone()));
            }
        }
        Ok(changed)
    }

    /// Returns the start of the mapping that contains an address, and the mapping.
    pub fn at(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (start, mapping) = self.mapped.range(..=address).next_back()?;
        (address - start < mapping.size).then_some((*start, mapping))
    }

    /// Returns the start and the size of the reservation that contains an address.
    pub fn reservation(&self, address: u64) -> Option<(u64, u64)> {
        let (start, size) = self.reserved.range(..=address).next_back()?;
        (address - start < *size).then_some((*start, *size))
    }

    /// Returns the starts of the mappings that cover exactly this range.
    fn whole(&self, address: u64, size: u64) -> Result<Vec<u64>, Refused> {
        let end = address.checked_add(size).ok_or(Refused)?;
        let mut next = address;
        let mut starts = Vec::new();
        for (start, mapping) in self.mapped.range(address..end) {
            if *start != next {
                return Err(Refused);
            }
            starts.push(*start);
            next += mapping.size;
        }
        if size > 0 && next == end {
            Ok(starts)
        } else {
            Err(Refused)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a reservation of ten pages at 100, with two mappings: 100..102 and 102..105.
    fn space() -> Space {
        let mut space = Space::default();
        space.reserve(100, 10);
        space.map(100, 2, 1, 0).unwrap();
        space.map(102, 3, 2, 0).unwrap();
        space
    }

    #[test]
    fn a_mapping_lies_inside_one_reservation() {
        let mut space = space();
        space.reserve(110, 10);
        assert_eq!(space.map(99, 1, 3, 0), Err(Refused));
        assert_eq!(space.map(108, 4, 3, 0), Err(Refused));
        assert_eq!(space.map(200, 1, 3, 0), Err(Refused));
        assert_eq!(space.map(108, u64::MAX, 3, 0), Err(Refused));
        assert_eq!(space.map(108, 2, 3, 0), Ok(()));
    }

    #[test]
    fn a_mapping_overlaps_no_other() {
        let mut space = space();
        assert_eq!(space.map(104, 2, 3, 0), Err(Refused));
        assert_eq!(space.map(100, 1, 3, 0), Err(Refused));
        assert_eq!(space.map(105, 5, 3, 0), Ok(()));
    }

    #[test]
    fn unmapping_takes_whole_mappings_and_may_take_several() {
        let mut space = space();
        assert_eq!(space.unmap(100, 1), Err(Refused));
        assert_eq!(space.unmap(101, 4), Err(Refused));
        assert_eq!(space.unmap(100, 0), Err(Refused));
        let gone = space.unmap(100, 5).unwrap();
        let gone: Vec<_> = gone.iter().map(|(at, m)| (*at, m.physical)).collect();
        assert_eq!(gone, [(100, 1), (102, 2)]);
        assert!(space.at(100).is_none() && space.at(104).is_none());
    }

    #[test]
    fn unmapping_goes_on_over_holes() {
        let mut space = space();
        space.map(107, 2, 3, 0).unwrap();
        assert_eq!(space.unmap(105, 2), Ok(vec![]), "nothing is mapped there");
        assert_eq!(space.unmap(102, 6), Err(Refused), "the last one is cut");
        let gone = space.unmap(102, 8).unwrap();
        assert_eq!(
            gone.iter().map(|(at, _)| *at).collect::<Vec<_>>(),
            [102, 107]
        );
        assert!(space.at(101).is_some());
    }

    #[test]
    fn a_reservation_is_freed_whole_and_empty() {
        let mut space = space();
        assert_eq!(space.free(100, 10), Err(Refused));
        space.unmap(100, 5).unwrap();
        assert_eq!(space.free(100, 9), Err(Refused));
        assert_eq!(space.free(101, 9), Err(Refused));
        assert_eq!(space.free(100, 10), Ok(()));
        assert_eq!(space.free(100, 10), Err(Refused));
    }

    #[test]
    fn access_is_told_per_place() {
        let mut space = space();
        assert_eq!(space.at(104).unwrap().1.access(0), NO_ACCESS);
        space
            .set_access(102, 3, &[(0, READ_WRITE), (1, READ)])
            .unwrap();
        let (start, mapping) = space.at(104).unwrap();
        assert_eq!(
            (start, mapping.access(0), mapping.access(1)),
            (102, READ_WRITE, READ)
        );
        assert_eq!(space.at(101).unwrap().1.access(0), NO_ACCESS);
        assert_eq!(space.set_access(102, 4, &[(0, READ)]), Err(Refused));
        assert!(space.at(105).is_none());
    }
}
