//! Gives the library the driver's soname, and links it as the driver is linked: its own calls stay in it,
//! and it stays loaded (its threads run its code).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for argument in [
        "-Wl,-soname,libcuda.so.1",
        "-Wl,-Bsymbolic",
        "-Wl,-z,nodelete",
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}
