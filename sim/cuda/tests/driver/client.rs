//! A client of the driver: calls by name, with whatever arguments.

#![allow(unsafe_code)]

use std::ffi::{CString, c_void};
use std::process::Command;
use std::sync::OnceLock;

use gpushare_testbed::{Testbed, artifact};

pub const INVALID_VALUE: u32 = 1;
pub const OUT_OF_MEMORY: u32 = 2;
pub const NOT_INITIALIZED: u32 = 3;
pub const NO_DEVICE: u32 = 100;
pub const INVALID_DEVICE: u32 = 101;
pub const INVALID_CONTEXT: u32 = 201;
pub const INVALID_HANDLE: u32 = 400;
pub const NOT_FOUND: u32 = 500;
pub const NOT_READY: u32 = 600;
pub const CONTEXT_IS_DESTROYED: u32 = 709;

/// Anything that goes into an argument of at most eight bytes.
pub trait Argument {
    fn word(self) -> u64;
}

macro_rules! arguments {
    ($($type:ty),*) => {$(
        impl Argument for $type {
            fn word(self) -> u64 {
                self as u64
            }
        }
    )*};
}
arguments!(u8, u16, u32, u64, usize, i32);

impl<T> Argument for &mut T {
    fn word(self) -> u64 {
        std::ptr::from_mut(self) as u64
    }
}

impl<T> Argument for &T {
    fn word(self) -> u64 {
        std::ptr::from_ref(self) as u64
    }
}

impl<T> Argument for *const T {
    fn word(self) -> u64 {
        self as u64
    }
}

impl<T> Argument for *mut T {
    fn word(self) -> u64 {
        self as u64
    }
}

/// The library, loaded into this process, in a world of its own.
fn library() -> &'static libloading::Library {
    static LIBRARY: OnceLock<libloading::Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        if std::env::var_os("GPUSHARE_SIM_WORLD").is_none() {
            let world = format!("driver-test-{}", std::process::id());
            // SAFETY: nothing else reads or writes the environment of this test program meanwhile.
            unsafe { std::env::set_var("GPUSHARE_SIM_WORLD", world) };
            extern "C" fn clean() {
                gpushare_sim::world::remove(&gpushare_sim::world::name());
            }
            // SAFETY: registers a function without arguments.
            unsafe { libc::atexit(clean) };
        }
        // SAFETY: the library's initialisers only register what it exports.
        unsafe { libloading::Library::new(artifact("libcuda.so")) }.expect("the simulator loads")
    })
}

/// The address of an export.
pub fn symbol(name: &str) -> Option<*const c_void> {
    let name = CString::new(name).expect("names have no NUL");
    // SAFETY: the type is that of an address, which is all that is taken.
    let symbol = unsafe { library().get::<*const c_void>(name.as_bytes_with_nul()) };
    symbol.ok().map(|symbol| *symbol)
}

type Function =
    unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> u32;

/// Calls a function at an address; superfluous arguments do no harm in the C calling convention.
pub fn call_at(address: *const c_void, arguments: &[u64]) -> u32 {
    let mut a = [0; 12];
    a[..arguments.len()].copy_from_slice(arguments);
    // SAFETY: the address is that of a C function that takes integers and pointers.
    let function: Function = unsafe { std::mem::transmute(address) };
    // SAFETY: the test passes what the function's documentation asks for.
    unsafe {
        function(
            a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11],
        )
    }
}

/// Calls an export by name; returns the result code.
#[macro_export]
macro_rules! cu {
    ($name:ident($($argument:expr),* $(,)?)) => {
        $crate::client::call_at(
            $crate::client::symbol(stringify!($name)).expect(stringify!($name)),
            &[$($crate::client::Argument::word($argument)),*],
        )
    };
}

/// Calls an export that has to succeed.
#[macro_export]
macro_rules! ok {
    ($name:ident($($argument:expr),* $(,)?)) => {
        assert_eq!($crate::cu!($name($($argument),*)), 0, stringify!($name))
    };
}

pub const NULL: u64 = 0;

/// Makes device 0's primary context current in this thread.
pub fn primary() -> u64 {
    ok!(cuInit(0));
    let mut context = 0u64;
    ok!(cuDevicePrimaryCtxRetain(&mut context, 0));
    ok!(cuCtxSetCurrent(context));
    context
}

/// Makes a new context on device 0, current in this thread.
pub fn context() -> u64 {
    ok!(cuInit(0));
    let mut context = 0u64;
    ok!(cuCtxCreate_v2(&mut context, 0, 0));
    context
}

pub const PTX: &str = "
    .version 7.0
    .target sm_52
    .address_size 64
    .global .align 8 .u64 counter;
    .visible .entry gpushare_spin(.param .u64 nanoseconds) { ret; }
    .visible .entry spin_us_500() { ret; }
    .visible .entry two(.param .u32 a, .param .align 8 .b8 b[24]) { ret; }";

/// A module of [`PTX`], loaded into the current context.
pub fn module() -> u64 {
    let text = CString::new(PTX).expect("no NUL");
    let mut module = 0u64;
    ok!(cuModuleLoadData(&mut module, text.as_ptr()));
    module
}

/// A kernel of [`PTX`].
pub fn kernel(module: u64, name: &str) -> u64 {
    let name = CString::new(name).expect("no NUL");
    let mut function = 0u64;
    ok!(cuModuleGetFunction(&mut function, module, name.as_ptr()));
    function
}

/// Spins for so long in a stream.
pub fn spin(function: u64, nanoseconds: u64, stream: u64) -> u32 {
    let parameters = [std::ptr::from_ref(&nanoseconds)];
    cu!(cuLaunchKernel(
        function,
        1,
        1,
        1,
        1,
        1,
        1,
        0,
        stream,
        parameters.as_ptr(),
        NULL
    ))
}

/// This program again, to run one test that is otherwise ignored, in a process of its own.
pub fn in_a_process(testbed: &Testbed, test: &str) -> Command {
    let program = std::env::current_exe().expect("we are running");
    let mut command = testbed.sim_only(program);
    // The library that this process uses, without looking again whether it is fresh.
    let library = artifact("libcuda.so");
    command.env(
        "GPUSHARE_ARTIFACTS",
        library.parent().expect("it is in a directory"),
    );
    command.args([
        "--exact",
        test,
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    command
}

/// A test of its own process passes in a scenario.
pub fn holds_in(scenario: &str, test: &str) {
    let testbed = Testbed::with_scenario(scenario);
    let output = in_a_process(&testbed, test).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
