//! The library's requirements on the system, read from its ELF file.

use std::{collections::HashSet, path::Path, process::Command};

use gpushare_testbed::artifact;

fn readelf(what: &str, library: &Path) -> String {
    let output = Command::new("readelf")
        .args(["--wide", what])
        .arg(library)
        .output()
        .expect("readelf comes with the C compiler");
    assert!(output.status.success(), "readelf {what}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn needed(library: &Path) -> Vec<String> {
    readelf("-d", library)
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned()))
        .collect()
}

/// Returns the newest glibc version among its symbols, and the number of versions.
fn newest_version(library: &Path) -> ((u32, u32), usize) {
    let versions: Vec<_> = readelf("-V", library)
        .lines()
        .filter_map(|line| line.split_once("Name: ")?.1.split_whitespace().next())
        .filter_map(|name| {
            let mut parts = name.strip_prefix("GLIBC_")?.split('.');
            let major = parts.next()?.parse().ok()?;
            Some((major, parts.next()?.parse().ok()?))
        })
        .collect();
    let newest = versions.iter().max();
    (*newest.expect("it names libc's versions"), versions.len())
}

/// Checks that it needs only libc.so.6, and no symbol newer than glibc 2.17.
pub fn asks_little(library: &Path) {
    assert_eq!(needed(library), ["libc.so.6"]);
    let (newest, _) = newest_version(library);
    assert!(newest <= (2, 17), "it names a symbol of glibc {newest:?}");
    // Only versioned symbols name a version; every other undefined symbol would come from elsewhere.
    let symbols = readelf("--dyn-syms", library);
    let nobodys: Vec<_> = symbols
        .lines()
        .filter(|line| line.contains(" GLOBAL ") && line.contains(" UND "))
        .filter(|line| !line.contains("@GLIBC_") && !line.contains("__tls_get_addr"))
        .collect();
    assert!(nobodys.is_empty(), "{nobodys:#?}");
    // The functions that libfaketime replaces and that read the time or wait.
    let clocks: Vec<_> = symbols
        .lines()
        .filter(|line| line.contains(" UND "))
        .filter_map(|line| line.split_whitespace().nth(7)?.split('@').next())
        .filter(|name| {
            ["time", "sleep", "usleep"].contains(name)
                || ["clock_", "nanosleep", "gettimeofday", "timedwait", "timer"]
                    .iter()
                    .any(|part| name.contains(part))
        })
        .collect();
    assert!(clocks.is_empty(), "it asks libc for the time: {clocks:?}");
}

/// Checks that calls of its own exports do not go through the linker, so that a program that exports such a name does not
/// change them.
pub fn reaches_itself_directly(library: &Path) {
    let exports = exports(library);
    assert!(exports.len() >= 100, "{exports:?}");
    let preemptible = preemptible(library, &exports);
    assert!(preemptible.is_empty(), "{preemptible:#?}");
}

fn exports(library: &Path) -> HashSet<String> {
    readelf("--dyn-syms", library)
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.len() >= 8 && words[0].ends_with(':') && words[6] != "UND")
        .filter_map(|words| Some(words[7].split('@').next()?.to_owned()))
        .collect()
}

/// Returns the relocations through which the dynamic linker would resolve one of `names`.
fn preemptible(library: &Path, names: &HashSet<String>) -> Vec<String> {
    readelf("-r", library)
        .lines()
        .filter(|line| {
            // Columns: offset, info, type, the symbol's value and its name. Without a symbol there is only an addend.
            let name = line.split_whitespace().nth(4);
            name.is_some_and(|name| names.contains(name.split('@').next().unwrap_or(name)))
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn no_relocation_asks_the_linker_for_an_export_of_its_own() {
    reaches_itself_directly(&artifact("libgpushare.so"));
}

#[test]
fn a_preemptible_export_is_read_off_a_librarys_file() {
    let source = tempfile::Builder::new()
        .suffix(".c")
        .tempfile()
        .expect("a temporary file");
    let text = "int one(void) { return 1; } void *table[] = {one}; int two(void) { return one(); }";
    std::fs::write(source.path(), text).expect("our own file");
    for (flag, found) in [("-Wl,-z,now", true), ("-Wl,-Bsymbolic", false)] {
        let library =
            gpushare_testbed::cc(source.path(), "own.so", &["-shared", "-fPIC", "-O0", flag]);
        let exports = exports(&library);
        assert!(
            exports.contains("one") && exports.contains("two"),
            "{exports:?}"
        );
        assert_eq!(!preemptible(&library, &exports).is_empty(), found, "{flag}");
    }
}

#[test]
fn it_needs_libc_alone_and_nothing_newer_than_glibc_2_17() {
    asks_little(&artifact("libgpushare.so"));
}

#[test]
fn what_a_library_needs_is_read_off_its_file() {
    let source = tempfile::Builder::new()
        .suffix(".c")
        .tempfile()
        .expect("a temporary file");
    let text = "int pthread_create(); int start(void) { return pthread_create(); }";
    std::fs::write(source.path(), text).expect("our own file");
    let library = gpushare_testbed::cc(source.path(), "newer.so", &["-shared", "-fPIC", "-w"]);
    let (newest, count) = newest_version(&library);
    assert!(count >= 1 && newest >= (2, 2), "{newest:?}");
}
