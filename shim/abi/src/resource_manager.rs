//! Requests to the driver's resource manager, the part of its kernel module that keeps a process's channels.
//!
//! libcuda makes them with `ioctl` on `/dev/nvidiactl`. A *channel group* is what the card's scheduler gives time slices to.

use std::mem::size_of;

/// The letter of the driver's requests, in bits 8 to 15 of each.
pub const LETTER: u8 = b'F';

/// Releases an object ([`Free`]).
pub const FREE: u32 = request::<Free>(0x29);
/// Calls a function of an object ([`Control`]).
pub const CONTROL: u32 = request::<Control>(0x2a);
/// Makes an object ([`Allocation`]).
pub const ALLOCATE: u32 = request::<Allocation>(0x2b);
/// Makes an object ([`AllocationWithRights`]).
pub const ALLOCATE_WITH_RIGHTS: u32 = request::<AllocationWithRights>(0x2b);
/// Compares the versions of libcuda and of the kernel module ([`Version`]).
pub const CHECK_VERSION: u32 = request::<Version>(0xd2);

/// The class of channel groups.
pub const CHANNEL_GROUP: u32 = 0xa06c;
/// The function of a channel group that sets its time slice, 64 bits of microseconds.
pub const SET_TIMESLICE: u32 = 0xa06c_0103;
/// The function of a channel group that reads its time slice.
pub const GET_TIMESLICE: u32 = 0xa06c_0104;

/// Returns the number of a request that reads and writes a record.
const fn request<T>(number: u8) -> u32 {
    3 << 30 | (size_of::<T>() as u32) << 16 | (LETTER as u32) << 8 | number as u32
}

/// An object to release, or a client, which has its own handle.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Free {
    /// The client's handle.
    pub client: u32,
    /// The parent's.
    pub parent: u32,
    /// The object's.
    pub object: u32,
    /// The answer; 0 for done.
    pub status: u32,
}

/// A new object.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocation {
    /// The client's handle.
    pub client: u32,
    /// The parent's.
    pub parent: u32,
    /// The object's, chosen by the caller.
    pub object: u32,
    /// Its class.
    pub class: u32,
    /// The address of what the class needs to know.
    pub arguments: u64,
    /// Its size.
    pub arguments_size: u32,
    /// The answer; 0 for done.
    pub status: u32,
}

/// A new object, with rights for other clients. It begins as an [`Allocation`] does.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct AllocationWithRights {
    /// The client's handle.
    pub client: u32,
    /// The parent's.
    pub parent: u32,
    /// The object's, chosen by the caller.
    pub object: u32,
    /// Its class.
    pub class: u32,
    /// The address of what the class needs to know.
    pub arguments: u64,
    /// The address of the rights.
    pub rights: u64,
    /// The size of what the class needs to know.
    pub arguments_size: u32,
    /// Flags.
    pub flags: u32,
    /// The answer; 0 for done.
    pub status: u32,
    /// Zero.
    pub _reserved: u32,
}

/// A call of an object's function.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Control {
    /// The client's handle.
    pub client: u32,
    /// The object's.
    pub object: u32,
    /// The function.
    pub function: u32,
    /// Flags.
    pub flags: u32,
    /// The address of its arguments.
    pub arguments: u64,
    /// Their size.
    pub arguments_size: u32,
    /// The answer; 0 for done.
    pub status: u32,
}

/// The version of libcuda: `580.159.04`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Version {
    /// The rule of the comparison.
    pub command: u32,
    /// The answer.
    pub reply: u32,
    /// The version; zeros follow.
    pub text: [u8; 64],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_have_the_drivers_numbers() {
        assert_eq!(FREE, 0xc010_4629);
        assert_eq!(CONTROL, 0xc020_462a);
        assert_eq!(ALLOCATE, 0xc020_462b);
        assert_eq!(ALLOCATE_WITH_RIGHTS, 0xc030_462b);
        assert_eq!(CHECK_VERSION, 0xc048_46d2);
    }
}
