//! The driver table has every function that NVIDIA's newest header declares. A function in no list could be called by a linked
//! program while it is evicted, and could take memory or submit work without being counted.
//!
//! The header is in the newest release of NVIDIA's runtime package on PyPI, and is kept in the target directory.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use gpushare_abi::LEFT_OUT;
use gpushare_testbed::newest_python;

macro_rules! rows {
    (
        hooked { $($(#[doc = $about:literal])* $base:literal $since:literal $kind:ident $($hook:ident)::+ $(($($given:ident),*))? fn $name:ident $args:tt $(twin $twin:ident)?;)* }
        used { $($used:tt)* }
    ) => {
        /// Base name, version, and exported symbols of each row.
        const ROWS: &[(&str, u32, &[&str])] = &[$(($base, $since, &[stringify!($name) $(, stringify!($twin))?])),*];
    };
}

macro_rules! names {
    ($($name:ident $(:$query:ident)?)*) => {
        const OTHERS: &[&str] = &[$(stringify!($name)),*];
    };
}

gpushare_abi::driver_table!(rows);
gpushare_abi::other_functions!(names);

/// The header's functions by exported symbol, and the versions of each base name.
struct Header {
    symbols: BTreeSet<String>,
    versions: BTreeMap<String, BTreeSet<u32>>,
}

/// Returns `None` if PyPI cannot be reached, which fails in CI.
fn header() -> Option<Header> {
    let python = newest_python(&["nvidia-cuda-runtime"])?;
    let folder = "import sysconfig; print(sysconfig.get_paths()['purelib'])";
    let output = Command::new(python).args(["-c", folder]).output();
    let output = output.expect("the interpreter runs").stdout;
    let folder = String::from_utf8(output).expect("a path in UTF-8");
    let packages = Path::new(folder.trim()).join("nvidia");
    let folders = fs::read_dir(&packages).expect("the package is in it");
    let include = folders.map(|folder| folder.expect("it can be read").path().join("include"));
    let newest = include
        .filter(|include| include.join("cuda.h").exists())
        .max_by_key(|include| version_of(include))
        .unwrap_or_else(|| panic!("no cuda.h in {}", packages.display()));
    Some(read(&newest))
}

/// Reads a file of the header without its comments.
fn text(path: PathBuf) -> String {
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let mut code = String::new();
    for part in text.split("*/") {
        code.push_str(part.split("/*").next().unwrap_or_default());
        code.push(' ');
    }
    code
}

fn version_of(include: &Path) -> u32 {
    let text = text(include.join("cuda.h"));
    let word = text.split("#define CUDA_VERSION ").nth(1);
    let word = word.and_then(|rest| rest.split_whitespace().next());
    let version = word.and_then(|word| word.parse().ok());
    version.expect("the header says its version")
}

fn is_function(name: &str) -> bool {
    matches!(name.as_bytes(), [b'c', b'u', third, ..] if third.is_ascii_uppercase())
}

/// Returns the name at the start of a text.
fn name_at(text: &str) -> &str {
    let end = text.find(|c: char| c != '_' && !c.is_ascii_alphanumeric());
    &text[..end.unwrap_or(text.len())]
}

fn read(include: &Path) -> Header {
    let mut symbols = BTreeSet::new();
    for file in ["cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h"] {
        let text = text(include.join(file));
        // The form `CUresult CUDAAPI NAME(…`.
        let declared = text.split("CUDAAPI").skip(1).map(str::trim_start);
        symbols.extend(declared.map(name_at).map(str::to_owned));
        // The forms `#define NAME SYMBOL` and `#define NAME __CUDA_API_PTSZ(SYMBOL)`; the per-thread form is exported too.
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let ["#define", _, symbol] = words[..] else {
                continue;
            };
            let (form, symbol) = symbol.split_once('(').unwrap_or(("", symbol));
            let symbol = name_at(symbol);
            if let Some(form) = form.strip_prefix("__CUDA_API_") {
                symbols.insert(format!("{symbol}_{}", form.to_lowercase()));
            }
            symbols.insert(symbol.to_owned());
        }
    }
    symbols.retain(|name| is_function(name));
    let mut versions: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for file in ["cudaTypedefs.h", "cudaGLTypedefs.h"] {
        // The form `PFN_NAME_vVERSION`, with an optional suffix `_ptds` or `_ptsz`.
        for name in text(include.join(file)).split("*PFN_").skip(1).map(name_at) {
            let name = name.trim_end_matches("_ptds").trim_end_matches("_ptsz");
            if let Some((base, version)) = name.rsplit_once("_v") {
                let version = version.parse().expect("a version");
                versions.entry(base.to_owned()).or_default().insert(version);
            }
        }
    }
    Header { symbols, versions }
}

#[test]
fn every_function_of_the_newest_header_has_a_row_or_a_reason() {
    let Some(header) = header() else { return };
    assert!(header.symbols.len() > 600, "{}", header.symbols.len());
    let hooked = ROWS.iter().flat_map(|(.., symbols)| symbols.iter());
    let left_out = LEFT_OUT.iter().map(|(name, _)| name);
    let known: BTreeSet<&str> = hooked.chain(OTHERS).chain(left_out).copied().collect();
    let new = header.symbols.iter().map(String::as_str);
    let new: Vec<&str> = new.filter(|symbol| !known.contains(symbol)).collect();
    assert!(
        new.is_empty(),
        "the newest header declares functions that stand nowhere: give those that take memory or submit work a row in \
         shim/abi/src/table, and list the others in table/others.rs: {}",
        new.join(" ")
    );
}

#[test]
fn a_row_says_the_version_that_the_header_says() {
    let Some(header) = header() else { return };
    assert!(header.versions.len() > 400, "{}", header.versions.len());
    let cuda = ROWS.iter().filter(|(base, ..)| is_function(base));
    let wrong: Vec<String> = cuda
        .filter_map(|(base, since, symbols)| {
            let theirs = header.versions.get(*base)?;
            let text = format!("{}: {since}, the header has {theirs:?}", symbols[0]);
            (!theirs.contains(since)).then_some(text)
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The first version with the functions for a thread's default stream.
const PER_THREAD: u32 = 7000;

#[test]
fn each_version_of_a_hooked_function_has_a_row() {
    let Some(header) = header() else { return };
    let known: BTreeSet<(&str, u32)> = ROWS
        .iter()
        .map(|(base, since, _)| (*base, *since))
        .collect();
    let bases: BTreeSet<&str> = ROWS.iter().map(|(base, ..)| *base).collect();
    let missing: Vec<String> = bases
        .iter()
        .filter_map(|base| Some((base, header.versions.get(*base)?)))
        .flat_map(|(base, versions)| versions.iter().map(move |version| (*base, *version)))
        .filter(|(base, version)| !known.contains(&(*base, *version)) && *version != PER_THREAD)
        .filter(|of| *of != ("cuMemGetAddressRange", 2000)) // the 32-bit form: no swappable memory has a 32-bit address
        .map(|(base, version)| format!("{base} {version}"))
        .collect();
    assert!(missing.is_empty(), "no row for {}", missing.join(", "));
}

#[test]
fn no_function_stands_in_two_places() {
    let hooked = ROWS.iter().flat_map(|(.., symbols)| symbols.iter());
    let left_out = LEFT_OUT.iter().map(|(name, _)| name);
    let mut seen = BTreeSet::new();
    let twice: Vec<_> = hooked
        .chain(OTHERS)
        .chain(left_out)
        .filter(|name| !seen.insert(**name))
        .collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert!(OTHERS.is_sorted(), "found by binary search");
}
