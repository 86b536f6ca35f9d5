//! The location and the kind of a pool's memory.
//!
//! Pinned pools are on a device or on the host; managed ones prefer a device, the host, or nothing. Only a pool on a
//! device uses that device's memory: managed memory elsewhere is on the host until a GPU touches it, and none does
//! here.

use gpushare_abi::{
    errors::{CUDA_ERROR_INVALID_VALUE, CUerror},
    types::{
        CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE,
        CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_LOCATION_TYPE_INVALID,
        CUmemLocation,
    },
};

use crate::{device::POOL_HANDLE_TYPES, driver::driver, memory::heap::Medium};

/// The host's memory nodes.
const NODES: i32 = 1;

/// A pool's place and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Home {
    /// `CU_MEM_ALLOCATION_TYPE_…`.
    pub kind: u32,
    /// `CU_MEM_LOCATION_TYPE_…`.
    pub place: u32,
    /// A device's ordinal, or a node of the host; 0 where neither is meant.
    pub id: i32,
}

impl Home {
    /// Returns the home of pinned memory on a device.
    pub fn on_device(ordinal: i32) -> Self {
        Self {
            kind: CU_MEM_ALLOCATION_TYPE_PINNED,
            place: CU_MEM_LOCATION_TYPE_DEVICE,
            id: ordinal,
        }
    }

    /// Returns the location and kind that a caller requests, or an error if there are no such pools.
    pub fn of(location: CUmemLocation, kind: u32) -> Result<Self, CUerror> {
        let managed = kind == CU_MEM_ALLOCATION_TYPE_MANAGED;
        if !managed && kind != CU_MEM_ALLOCATION_TYPE_PINNED {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let id = match location.type_ {
            CU_MEM_LOCATION_TYPE_DEVICE if driver()?.device(location.id).is_ok() => location.id,
            CU_MEM_LOCATION_TYPE_HOST => 0,
            CU_MEM_LOCATION_TYPE_HOST_NUMA if (0..NODES).contains(&location.id) => location.id,
            CU_MEM_LOCATION_TYPE_INVALID if managed => 0,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        Ok(Self {
            kind,
            place: location.type_,
            id,
        })
    }

    /// Returns the device whose memory the pool uses.
    pub fn device(self) -> Option<i32> {
        (self.place == CU_MEM_LOCATION_TYPE_DEVICE).then_some(self.id)
    }

    /// Returns the medium of the pool's memory.
    pub fn medium(self) -> Medium {
        match self.device() {
            _ if self.kind == CU_MEM_ALLOCATION_TYPE_MANAGED => Medium::Managed,
            Some(_) => Medium::Device,
            None => Medium::Host,
        }
    }

    /// Returns true if pools can be shared by handles of these types: pinned memory in one place can.
    pub fn is_shareable_by(self, handle_types: u32) -> bool {
        let in_one_place =
            self.medium() != Medium::Managed && self.place != CU_MEM_LOCATION_TYPE_HOST;
        handle_types == 0 || (in_one_place && handle_types & !POOL_HANDLE_TYPES == 0)
    }

    /// Returns true if a location has access to the memory by default: to a device's only that device, to the host's
    /// only the host, to managed memory all.
    pub fn is_reached_from(self, location: CUmemLocation) -> bool {
        match self.medium() {
            Medium::Managed => true,
            Medium::Host => location.type_ != CU_MEM_LOCATION_TYPE_DEVICE,
            Medium::Device => location.device() == self.device(),
        }
    }

    /// Returns one number for another process of the same world: the device by its index in the world.
    pub fn number(self) -> Result<i64, CUerror> {
        let id = match self.device() {
            Some(ordinal) => driver()?.device(ordinal)?.index as i64,
            None => self.id.into(),
        };
        Ok(id << 8 | i64::from(self.place) << 4 | i64::from(self.kind))
    }

    /// Returns the home of a number from [`number`](Self::number).
    pub fn from_number(number: i64) -> Result<Self, CUerror> {
        let (kind, type_) = ((number & 15) as u32, (number >> 4 & 15) as u32);
        let mut id = number >> 8;
        if type_ == CU_MEM_LOCATION_TYPE_DEVICE {
            let devices = &driver()?.devices;
            let found = devices.iter().position(|device| device.index as i64 == id);
            id = found.ok_or(CUDA_ERROR_INVALID_VALUE)? as i64;
        }
        let id = i32::try_from(id).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        Self::of(CUmemLocation { type_, id }, kind)
    }
}
