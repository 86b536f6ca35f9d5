//! The channel groups of contexts, and the kernel module that keeps them.
//!
//! A context asks for its group as a driver does: by `ioctl` on a descriptor of its own, through whatever stands in for that
//! function in the process. The kernel does not answer on this descriptor. The module below does, where this library's `ioctl` stands
//! before libc's: in a program that is linked to it or has it preloaded. Elsewhere there are no groups.
//!
//! The time slice of a group is that of its process on the device.

#![allow(unsafe_code, reason = "exports and calls ioctl")]

use std::collections::HashMap;
use std::ffi::{c_int, c_ulong, c_void};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{Mutex, Once};

use gpushare_abi::resource_manager::{
    ALLOCATE_WITH_RIGHTS, AllocationWithRights, CHANNEL_GROUP, CHECK_VERSION, CONTROL, Control,
    FREE, Free, GET_TIMESLICE, SET_TIMESLICE, Version,
};

use crate::driver;
use crate::handles::lock;

type Ioctl = unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int;

/// The client, and the devices of its groups behind it.
const CLIENT: u32 = 0xc1d0_0001;
const DEVICES: u32 = 0x5c00_0000;

/// The slice of a group that was not set, in microseconds, as a driver's compute group has it (580.159.04).
const DEFAULT_US: u64 = 2_048;

const NOT_FOUND: u32 = 0x57;
const NOT_SUPPORTED: u32 = 0x56;

const CLOSED: c_int = -1;
static DESCRIPTOR: AtomicI32 = AtomicI32::new(CLOSED);

/// The devices of the groups, by handle.
static GROUPS: Mutex<Option<HashMap<u32, usize>>> = Mutex::new(None);

/// Makes a request as any library would.
fn request<T>(number: u32, record: &mut T) -> c_int {
    // The program's handle, because RTLD_DEFAULT begins with this library, which is linked -Bsymbolic.
    // SAFETY: no path: the handle of the program, which is never unloaded.
    let program = unsafe { libc::dlopen(std::ptr::null(), libc::RTLD_NOW) };
    // SAFETY: a handle of libc's and a C string.
    let found = unsafe { libc::dlsym(program, c"ioctl".as_ptr()) };
    if found.is_null() {
        return -1;
    }
    // SAFETY: the function has this type wherever it is found.
    let ioctl = unsafe { std::mem::transmute::<*mut c_void, Ioctl>(found) };
    let record = std::ptr::from_mut(record).cast();
    // SAFETY: the record is that of the request.
    unsafe { ioctl(DESCRIPTOR.load(Relaxed), number.into(), record) }
}

/// Opens the module's device once, and keeps it if there is a module.
pub fn open() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Some(world) = driver::world() {
            open_as(&world.scenario().driver.version);
        }
    });
}

fn open_as(version: &str) {
    // SAFETY: a C string.
    let descriptor = unsafe { libc::memfd_create(c"nvidiactl".as_ptr(), libc::MFD_CLOEXEC) };
    DESCRIPTOR.store(descriptor, Relaxed);
    let mut record = Version {
        command: 0,
        reply: 0,
        text: [0; 64],
    };
    let text = record.text.iter_mut().zip(version.bytes());
    text.for_each(|(to, byte)| *to = byte);
    if request(CHECK_VERSION, &mut record) < 0 {
        DESCRIPTOR.store(CLOSED, Relaxed);
        // SAFETY: the descriptor was just made, if at all.
        unsafe { libc::close(descriptor) };
    }
}

/// Makes the group of a context, and sets its slice to the default as a driver does.
pub fn make_group(context: u64, device: usize) {
    if DESCRIPTOR.load(Relaxed) != CLOSED {
        let mut record = AllocationWithRights {
            client: CLIENT,
            parent: DEVICES + device as u32,
            object: context as u32,
            class: CHANNEL_GROUP,
            ..AllocationWithRights::default()
        };
        request(ALLOCATE_WITH_RIGHTS, &mut record);
        let mut slice_us = DEFAULT_US;
        let mut record = Control {
            client: CLIENT,
            object: context as u32,
            function: SET_TIMESLICE,
            arguments: std::ptr::from_mut(&mut slice_us) as u64,
            arguments_size: size_of::<u64>() as u32,
            ..Control::default()
        };
        request(CONTROL, &mut record);
    }
}

/// Releases the group of a context.
pub fn release_group(context: u64) {
    if DESCRIPTOR.load(Relaxed) != CLOSED {
        let mut record = Free {
            client: CLIENT,
            object: context as u32,
            ..Free::default()
        };
        request(FREE, &mut record);
    }
}

/// Answers a request on the module's device, and passes any other on to the kernel.
///
/// # Safety
///
/// The requirements of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, number: c_ulong, record: *mut c_void) -> c_int {
    // SAFETY: the caller's own arguments for this call.
    let done = unsafe { libc::syscall(libc::SYS_ioctl, fd, number, record) } as c_int;
    if done >= 0 || fd != DESCRIPTOR.load(Relaxed) {
        return done;
    }
    match number as u32 {
        CHECK_VERSION => 0,
        ALLOCATE_WITH_RIGHTS => {
            // SAFETY: the record of this request.
            allocate(unsafe { &mut *record.cast() });
            0
        }
        FREE => {
            // SAFETY: the record of this request.
            free(unsafe { &mut *record.cast() });
            0
        }
        CONTROL => {
            // SAFETY: the record of this request.
            let control: &mut Control = unsafe { &mut *record.cast() };
            // SAFETY: the functions of a group that are known here have one number as their argument.
            control.status = call(control, unsafe { &mut *(control.arguments as *mut u64) });
            0
        }
        _ => done,
    }
}

fn allocate(record: &mut AllocationWithRights) {
    let device = record.parent.wrapping_sub(DEVICES) as usize;
    lock(&GROUPS)
        .get_or_insert_default()
        .insert(record.object, device);
    record.status = 0;
}

fn free(record: &mut Free) {
    let mut groups = lock(&GROUPS);
    let groups = groups.get_or_insert_default();
    let Some(device) = groups.remove(&record.object) else {
        record.status = NOT_FOUND;
        return;
    };
    record.status = 0;
    if !groups.values().any(|other| *other == device)
        && let Ok(driver) = driver::driver_while_locked()
    {
        driver.member.set_slice(device, 0);
    }
}

/// Calls a function of a group and returns its status.
fn call(control: &Control, slice_us: &mut u64) -> u32 {
    let groups = lock(&GROUPS);
    let device = groups
        .as_ref()
        .and_then(|groups| groups.get(&control.object));
    let (Some(device), Ok(driver)) = (device, driver::driver_while_locked()) else {
        return NOT_FOUND;
    };
    match control.function {
        SET_TIMESLICE => {
            let ns = match *slice_us {
                DEFAULT_US => 0,
                us => us.saturating_mul(1_000),
            };
            driver.member.set_slice(*device, ns);
        }
        GET_TIMESLICE => {
            *slice_us = match driver.member.slice(*device) {
                0 => DEFAULT_US,
                ns => ns / 1_000,
            }
        }
        _ => return NOT_SUPPORTED,
    }
    0
}
