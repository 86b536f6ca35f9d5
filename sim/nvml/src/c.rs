//! The C boundary: pointers from the caller, device handles and NVML's structs.
//!
//! A null pointer is refused here. Any other pointer is trusted, as in the real NVML.

#![allow(unsafe_code, reason = "the one file that follows a caller's pointers")]

use std::ffi::{CStr, c_char};
use std::ptr::NonNull;

use crate::answer::{Fault, INSUFFICIENT_SIZE, INVALID_ARGUMENT, NvmlReturn};

/// `nvmlDevice_t`: a number and not a pointer, so that a stale handle is refused.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) usize);

/// A caller's pointer to one value, for output or input.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Out<T>(Option<NonNull<T>>);

impl<T: Copy> Out<T> {
    pub(crate) fn set(self, value: T) -> NvmlReturn {
        let target = self.0.ok_or(INVALID_ARGUMENT)?;
        // SAFETY: the caller's own pointer to a `T`, by NVML's contract.
        unsafe { target.write(value) };
        Ok(())
    }

    /// Reads the caller's value.
    pub(crate) fn get(self) -> Result<T, Fault> {
        let source = self.0.ok_or(INVALID_ARGUMENT)?;
        // SAFETY: the caller's own pointer to a `T`, by NVML's contract.
        Ok(unsafe { source.read() })
    }

    /// Fills the caller's array of `room` values; missing values become the default.
    pub(crate) fn fill_all(self, room: u32, values: &[T]) -> NvmlReturn
    where
        T: Default,
    {
        let target = self.0.ok_or(INVALID_ARGUMENT)?;
        for index in 0..room as usize {
            let value = values.get(index).copied().unwrap_or_default();
            // SAFETY: one of the caller's `room` values, by NVML's contract.
            let place = unsafe { target.add(index) };
            // SAFETY: as above.
            unsafe { place.write(value) };
        }
        Ok(())
    }

    /// Returns true if the caller passed a null pointer.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_none()
    }

    /// Fills the caller's array. `count` is the array's size on entry and the number of values on return.
    pub(crate) fn fill(self, count: Out<u32>, values: &[T]) -> NvmlReturn {
        let room = count.get()? as usize;
        count.set(values.len() as u32)?;
        if values.len() > room {
            return Err(INSUFFICIENT_SIZE);
        }
        if values.is_empty() {
            return Ok(());
        }
        let target = self.0.ok_or(INVALID_ARGUMENT)?;
        // SAFETY: the caller has room for `room` values there, by NVML's contract.
        unsafe { target.copy_from_nonoverlapping(NonNull::from(values).cast(), values.len()) };
        Ok(())
    }
}

/// A caller's buffer for text.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct OutText(Option<NonNull<u8>>);

impl OutText {
    /// Writes the text and a zero byte.
    pub(crate) fn set(self, room: u32, text: &str) -> NvmlReturn {
        let target = self.0.ok_or(INVALID_ARGUMENT)?;
        if text.len() >= room as usize {
            return Err(INSUFFICIENT_SIZE);
        }
        let source = NonNull::from(text.as_bytes()).cast();
        // SAFETY: the caller has `room` bytes there, more than the text's.
        unsafe { target.copy_from_nonoverlapping(source, text.len()) };
        // SAFETY: at most the last of the caller's `room` bytes.
        let end = unsafe { target.add(text.len()) };
        // SAFETY: as above.
        unsafe { end.write(0) };
        Ok(())
    }
}

/// Text from the caller.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct InText(Option<NonNull<c_char>>);

impl InText {
    pub(crate) fn get(self) -> Result<String, Fault> {
        let text = self.0.ok_or(INVALID_ARGUMENT)?;
        // SAFETY: the caller's own zero-terminated text, by NVML's contract.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) };
        Ok(text.to_string_lossy().into_owned())
    }
}

macro_rules! structs {
    ($($(#[$doc:meta])* $name:ident: $size:literal { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }
        const _: () = assert!(size_of::<$name>() == $size, concat!("the layout of ", stringify!($name), " is wrong"));
    )*};
}

structs! {
    /// `nvmlMemory_t`, and `nvmlBAR1Memory_t`.
    Memory: 24 { total: u64, free: u64, used: u64, }
    /// `nvmlMemory_v2_t`.
    MemoryV2: 40 { version: u32, total: u64, reserved: u64, free: u64, used: u64, }
    /// `nvmlProcessInfo_v1_t`.
    ProcessInfoV1: 16 { pid: u32, used_bytes: u64, }
    /// `nvmlProcessInfo_v2_t`, which is `nvmlProcessInfo_t` of the `_v3` calls too.
    ProcessInfo: 24 { pid: u32, used_bytes: u64, gpu_instance: u32, compute_instance: u32, }
    /// `nvmlProcessUtilizationSample_t`.
    ProcessSample: 32 { pid: u32, time_us: u64, sm: u32, memory: u32, encoder: u32, decoder: u32, }
    /// `nvmlEventData_t`.
    EventData: 32 { device: Handle, kind: u64, data: u64, gpu_instance: u32, compute_instance: u32, }
    /// `nvmlUtilization_t`.
    Utilization: 8 { gpu: u32, memory: u32, }
    /// `nvmlTemperature_v1_t`.
    Temperature: 12 { version: u32, sensor: u32, celsius: i32, }
    /// `nvmlPciInfo_t`.
    PciInfo: 68 {
        bus_id_legacy: [u8; 16], domain: u32, bus: u32, device: u32, device_id: u32, subsystem_id: u32,
        bus_id: [u8; 32],
    }
    /// `nvmlPciInfoExt_v1_t`.
    PciInfoExt: 64 {
        version: u32, domain: u32, bus: u32, device: u32, device_id: u32, subsystem_id: u32, base_class: u32,
        sub_class: u32, bus_id: [u8; 32],
    }
    /// `nvmlSystemDriverBranchInfo_v1_t`.
    DriverBranch: 84 { version: u32, branch: [u8; 80], }
}

/// Returns the `version` of a struct of NVML's first version: its size, with the version number in the high bits.
pub(crate) const fn version_1<T>() -> u32 {
    size_of::<T>() as u32 | 1 << 24
}
