//! Links libgpushare.so so that it needs nothing but libc.so.6.
//!
//! A preload goes into every process of the user who sets it. One that needs libgcc_s or ld-linux makes every musl
//! program fail to start. So the unwinder is linked in (libgcc_eh.a), and the dynamic linker, which is always
//! there, is not named: two small linker scripts stand in front of the system's `libgcc_s.so` and `libc.so`.
//! Where the pieces are not found (a linker that is no C compiler) the ordinary link goes on as ever. That no
//! newer libc than glibc 2.17 is asked for is `src/sys/old_libc.rs`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libgpushare.so");
    // Our exports are ours even where a program exports the same names: without this the dynamic linker fills the
    // addresses that we hand out with the program's own functions, and they call themselves. All of them are functions;
    // the plain -Bsymbolic would also make every look-up of ours begin with ourselves.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    let ours = |name| env::var(name).unwrap_or_default();
    // cargo names the linker that is configured for the target; without one rustc takes `cc`.
    let linker = match env::var("RUSTC_LINKER") {
        Ok(linker) => Some(linker),
        Err(_) if ours("TARGET") == ours("HOST") => Some("cc".to_owned()),
        Err(_) => None,
    };
    let Some(linker) = linker else { return };
    if ours("CARGO_CFG_TARGET_ENV") == "gnu" {
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        if write_scripts(&linker, &out).is_some() {
            println!("cargo:rustc-link-search=native={}", out.display());
        }
    }
}

fn write_scripts(linker: &str, out: &Path) -> Option<()> {
    let unwinder = library(linker, "libgcc_eh.a")?;
    let builtins = library(linker, "libgcc.a")?;
    let libc = library(linker, "libc.so.6")?;
    let rest = library(linker, "libc_nonshared.a")?;
    let script = |name: &str, files: &[&Path]| {
        let files: Vec<_> = files
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        fs::write(out.join(name), format!("GROUP ( {} )\n", files.join(" "))).ok()
    };
    script("libgcc_s.so", &[&unwinder, &builtins])?;
    script("libc.so", &[&libc, &rest])
}

/// Where the C compiler finds a library; it answers with the bare name when it does not.
fn library(linker: &str, name: &str) -> Option<PathBuf> {
    let answer = Command::new(linker)
        .arg(format!("-print-file-name={name}"))
        .output()
        .ok()?;
    let path = PathBuf::from(String::from_utf8(answer.stdout).ok()?.trim());
    path.is_absolute()
        .then(|| fs::canonicalize(path).ok())
        .flatten()
}
