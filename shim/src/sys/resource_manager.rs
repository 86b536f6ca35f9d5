//! Reading of the driver's requests to its kernel module, as far as they concern this process's channels, and requests of the shim's own
//! ([`gpushare_abi::resource_manager`] has the records).
#![allow(unsafe_code, reason = "reads and makes requests of the kernel")]

use std::{
    ffi::{c_int, c_ulong, c_void},
    mem::size_of,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use gpushare_abi::resource_manager::{
    ALLOCATE, ALLOCATE_WITH_RIGHTS, Allocation, AllocationWithRights, CHANNEL_GROUP, CHECK_VERSION,
    CONTROL, Control, FREE, Free, GET_TIMESLICE, SET_TIMESLICE, Version,
};

use super::next_ioctl;

/// An object by its handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// The handle of the client to which it belongs.
    pub client: u32,
    /// Its own handle; a client's own is also that of its client.
    pub handle: u32,
}

/// A file by its identity, which a descriptor loses when it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// The number of the file system that it is in.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

impl File {
    /// Returns the file behind a descriptor.
    pub fn of(descriptor: c_int) -> Option<Self> {
        // SAFETY: all-zero is a valid record.
        let mut found: libc::stat64 = unsafe { std::mem::zeroed() };
        // SAFETY: the result is a local variable.
        let done = unsafe { libc::fstat64(descriptor, &raw mut found) };
        (done == 0).then_some(Self {
            device: found.st_dev,
            inode: found.st_ino,
        })
    }
}

/// A fact about channels in the kernel module's answer to a request of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The driver is of this branch.
    Version(u32),
    /// An object was released, and with it those that belong to it.
    Released(Object),
    /// A channel group was made.
    Group {
        /// The group.
        object: Object,
        /// The handle of the object that it belongs to.
        parent: u32,
    },
    /// The driver set a channel group's time slice.
    Slice {
        /// The group.
        object: Object,
        /// The slice in microseconds.
        us: u64,
    },
}

/// Reads the record of a request that has succeeded; `None` for one that says nothing about channels.
///
/// # Safety
///
/// * `record` points to the record of this request.
pub unsafe fn answer(request: c_ulong, record: *const c_void) -> Option<Answer> {
    match request as u32 {
        FREE => {
            // SAFETY: the caller passes the record of this request.
            let free = unsafe { record.cast::<Free>().read_unaligned() };
            Some(Answer::Released(Object {
                client: free.client,
                handle: free.object,
            }))
        }
        ALLOCATE => {
            // SAFETY: as above.
            let made = unsafe { record.cast::<Allocation>().read_unaligned() };
            group(&made, made.status)
        }
        ALLOCATE_WITH_RIGHTS => {
            // SAFETY: as above.
            let whole = unsafe { record.cast::<AllocationWithRights>().read_unaligned() };
            // SAFETY: as above; the two records begin alike.
            let made = unsafe { record.cast::<Allocation>().read_unaligned() };
            group(&made, whole.status)
        }
        CONTROL => {
            // SAFETY: as above.
            let call = unsafe { record.cast::<Control>().read_unaligned() };
            let is_slice = call.function == SET_TIMESLICE
                && call.status == 0
                && call.arguments_size as usize == size_of::<u64>();
            is_slice.then(|| Answer::Slice {
                object: Object {
                    client: call.client,
                    handle: call.object,
                },
                // SAFETY: the function has read its argument there.
                us: unsafe { (call.arguments as *const u64).read_unaligned() },
            })
        }
        CHECK_VERSION => {
            // SAFETY: as above.
            let version = unsafe { record.cast::<Version>().read_unaligned() };
            branch_of(&version.text).map(Answer::Version)
        }
        _ => None,
    }
}

fn group(made: &Allocation, status: u32) -> Option<Answer> {
    let object = Object {
        client: made.client,
        handle: made.object,
    };
    (made.class == CHANNEL_GROUP && status == 0).then_some(Answer::Group {
        object,
        parent: made.parent,
    })
}

/// Returns the branch of a version: the number before its first point.
fn branch_of(version: &[u8]) -> Option<u32> {
    let digits = version.split(|byte| *byte == b'.').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The branch of the driver, as it went by; 0 for none. A forked child has the same driver.
static BRANCH: AtomicU32 = AtomicU32::new(0);

/// Keeps the branch of the driver.
pub fn set_branch(branch: u32) {
    BRANCH.store(branch, Relaxed);
}

/// Returns the branch of the driver, if it went by.
pub fn branch() -> Option<u32> {
    Some(BRANCH.load(Relaxed)).filter(|branch| *branch != 0)
}

/// Returns the branch of the driver, as its kernel module says it in a file.
pub fn branch_of_module() -> Option<u32> {
    branch_of(&std::fs::read("/sys/module/nvidia/version").ok()?)
}

/// Calls a function of an object that takes or returns one number. The error is the driver's status.
fn control(descriptor: c_int, object: Object, function: u32, number: &mut u64) -> Result<(), u32> {
    const NOT_ANSWERED: u32 = u32::MAX;
    let mut record = Control {
        client: object.client,
        object: object.handle,
        function,
        arguments: std::ptr::from_mut(number) as u64,
        arguments_size: size_of::<u64>() as u32,
        status: NOT_ANSWERED,
        ..Control::default()
    };
    // SAFETY: the record and the number outlive the call, and the request has the sizes of both.
    let done = unsafe { next_ioctl::get()(descriptor, CONTROL.into(), (&raw mut record).cast()) };
    match record.status {
        0 if done >= 0 => Ok(()),
        status => Err(status),
    }
}

/// Returns a channel group's time slice in microseconds.
pub fn slice_us(descriptor: c_int, group: Object) -> Result<u64, u32> {
    let mut slice_us = 0;
    control(descriptor, group, GET_TIMESLICE, &mut slice_us).map(|()| slice_us)
}

/// Sets a channel group's time slice in microseconds.
pub fn set_slice_us(descriptor: c_int, group: Object, mut slice_us: u64) -> Result<(), u32> {
    control(descriptor, group, SET_TIMESLICE, &mut slice_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer_about(class: u32, status: u32) -> Option<Answer> {
        let record = AllocationWithRights {
            client: 1,
            parent: 2,
            object: 3,
            class,
            status,
            ..AllocationWithRights::default()
        };
        // SAFETY: the record is of this request.
        unsafe { answer(ALLOCATE_WITH_RIGHTS.into(), (&raw const record).cast()) }
    }

    #[test]
    fn only_a_group_that_was_made_is_learned() {
        let object = Object {
            client: 1,
            handle: 3,
        };
        let made = Answer::Group { object, parent: 2 };
        assert_eq!(answer_about(CHANNEL_GROUP, 0), Some(made));
        assert_eq!(answer_about(CHANNEL_GROUP, 0x1f), None);
        assert_eq!(answer_about(0xc86f, 0), None);
    }

    #[test]
    fn only_a_slice_that_was_set_is_learned() {
        let told = |function, status| {
            let us = 2_048_u64;
            let record = Control {
                client: 1,
                object: 3,
                function,
                arguments: std::ptr::from_ref(&us) as u64,
                arguments_size: 8,
                status,
                ..Control::default()
            };
            // SAFETY: the record is of this request.
            unsafe { answer(CONTROL.into(), (&raw const record).cast()) }
        };
        let object = Object {
            client: 1,
            handle: 3,
        };
        let set = Answer::Slice { object, us: 2_048 };
        assert_eq!(told(SET_TIMESLICE, 0), Some(set));
        assert_eq!(told(SET_TIMESLICE, 0x1f), None);
        assert_eq!(told(GET_TIMESLICE, 0), None);
    }

    #[test]
    fn the_branch_is_the_number_before_the_first_point() {
        assert_eq!(branch_of(b"580.159.04\0\0"), Some(580));
        assert_eq!(branch_of(b"\0\0"), None);
        assert_eq!(branch_of(b""), None);
    }
}
