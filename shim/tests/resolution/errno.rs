//! The value of `errno` after a call: it is the driver's, even if the library does slow work of its own.

use std::{ffi::OsStr, fs, os::unix::fs::symlink};

use gpushare_testbed::{Watched, cc_driver};

use crate::bench::{Bench, Target, app, lines};

macro_rules! names {
    (
        hooked { $($(#[doc = $about:literal])* $base:literal $since:literal $kind:ident $($hook:ident)::+ $(($($given:ident),*))? fn $name:ident $args:tt $(twin $twin:ident)?;)* }
        used { $($used:tt)* }
    ) => {
        const HOOKED: &[&str] = &[$(stringify!($name), $(stringify!($twin),)?)*];
    };
}

gpushare_abi::driver_table!(names);

/// Returns the source of a driver with every hooked function: the functions of the driver that does nothing, and for the others
/// a function that only sets `errno`, every second one.
fn driver() -> String {
    let noop = app("noop_driver.c");
    let text = fs::read_to_string(&noop).expect("a source of ours");
    let mut all = format!("#include \"{}\"\n#include <errno.h>\n", noop.display());
    for (number, name) in HOOKED.iter().enumerate() {
        if !text.contains(&format!(" {name}(")) {
            let leaves = if number % 2 == 0 { number } else { 0 };
            let body = match leaves {
                0 => "return 0;".to_owned(),
                errno => format!("errno = {errno}; return 0;"),
            };
            all += &format!("EXPORT res {name}(void) {{ {body} }}\n");
        }
    }
    all
}

#[test]
fn hooked_calls_leave_errno_as_the_driver_does() {
    let bench = Bench::new();
    let source = bench.segments().with_file_name("every_driver.c");
    fs::write(&source, driver()).expect("a fresh directory");
    let place = bench.segments().with_file_name("libcuda.so.1");
    fs::remove_file(&place).expect("the one that was installed");
    symlink(cc_driver(&source, &["-DNVML"]), place).expect("a fresh directory takes links");
    let text = fs::read_to_string(app("noop_driver.c")).expect("a source of ours");
    let names = HOOKED.iter().map(|name| {
        // The functions of the driver that does nothing write through their pointers.
        let writes = text.contains(&format!(" {name}("));
        format!("{}{name}", if writes { "+" } else { "" })
    });
    let names: Vec<_> = names.filter(|name| name != "+cuInit").collect();
    let program = Target::native().program("every_call.c", &[]);
    let run = |preload: bool, policy: &str| {
        let mut command = bench.command(&program, &[("GPUSHARE_POLICY", OsStr::new(policy))]);
        if !preload {
            command.env_remove("LD_PRELOAD");
        }
        lines(
            "every_call.c",
            &Watched::spawn(command.args(&names)).wait_output(),
        )
    };
    let bare = run(false, "off");
    assert!(bare.len() >= 4 * 100, "{bare:?}");
    assert_eq!(bare[0], "cuInit 0 77");
    for policy in ["off", "timeslice=5ms"] {
        let ours = run(true, policy);
        let differ: Vec<_> = bare.iter().zip(&ours).filter(|(a, b)| a != b).collect();
        assert!(differ.is_empty(), "{policy}: {differ:?}");
        assert_eq!(bare.len(), ours.len());
    }
}
