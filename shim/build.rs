//! Links libgpushare.so so that it needs nothing but libc.so.6.
//!
//! A preload goes into every process of whoever sets it. One that needs libgcc_s or ld-linux makes every musl
//! program fail to start, and one that names a newer libc's symbol does the same to every program on an older
//! system. So the unwinder is linked in (libgcc_eh.a), and the dynamic linker, which is always there, is not
//! named: two small linker scripts stand in front of the system's `libgcc_s.so` and `libc.so`. Where the
//! pieces are not found (another linker, a cross build) the ordinary link goes on as ever.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libgpushare.so");
    let ours = |name| env::var(name).unwrap_or_default();
    let native = ours("TARGET") == ours("HOST") && ours("CARGO_CFG_TARGET_ENV") == "gnu";
    let usual_linker = env::var_os("RUSTC_LINKER").is_none();
    if native && usual_linker {
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        if write_scripts(&out).is_some() {
            println!("cargo:rustc-link-search=native={}", out.display());
        }
    }
}

fn write_scripts(out: &Path) -> Option<()> {
    let unwinder = library("libgcc_eh.a")?;
    let builtins = library("libgcc.a")?;
    let libc = library("libc.so.6")?;
    let rest = library("libc_nonshared.a")?;
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
fn library(name: &str) -> Option<PathBuf> {
    let answer = Command::new("cc")
        .arg(format!("-print-file-name={name}"))
        .output()
        .ok()?;
    let path = PathBuf::from(String::from_utf8(answer.stdout).ok()?.trim());
    path.is_absolute()
        .then(|| fs::canonicalize(path).ok())
        .flatten()
}
