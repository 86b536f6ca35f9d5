//! The check that imports point down: a crate lists its layers in the documentation of its `lib.rs`, and the test names each line
//! that imports from a higher layer.
//!
//! The list is the first block of the section `# Layers`. Each line is one layer, the top layer first: its name, its modules,
//! and a remark, separated by two or more blanks.
//!
//! ```text
//! # Layers
//!
//!     faces    operator, snapshot     what the tools call
//!     seat     book, ledger, lock
//!     value    value
//! ```
//!
//! * A module uses only modules of lower layers. Two modules of one layer do not use each other.
//! * A line may name a module inside another (`trace::log`); the longest name decides.
//! * Inside one module, files have no import cycle. A file may use what its own parent declares.
//! * A crate without a list counts as one module: none of its files may be part of an import cycle.
//! * The crate's root is above all layers, so no module may use what only the root declares.
//! * Tests (`#[cfg(test)]`) may use everything.

mod source;
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use source::{Import, Sources};

#[test]
fn imports_point_down() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut crates = Vec::new();
    find_crates(root, &mut crates);
    assert!(crates.len() > 10, "{crates:?}");
    let mut found = Vec::new();
    for of_crate in crates {
        let faults = faults(&of_crate.join("src"));
        found.extend(
            faults
                .into_iter()
                .map(|fault| format!("{of_crate:?}: {fault}")),
        );
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Collects the directories below this one that have a library of Rust.
fn find_crates(dir: &Path, found: &mut Vec<PathBuf>) {
    if dir.join("src/lib.rs").exists() {
        found.push(dir.to_path_buf());
    }
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("target") && !path.ends_with(".git") {
            find_crates(&path, found);
        }
    }
}

/// Returns the faults of the sources in a directory.
fn faults(src: &Path) -> Vec<String> {
    let sources = Sources::read(src);
    let layers = Layers::of(&sources.documentation);
    let mut faults = cycles(&layers, &sources);
    if !layers.names.is_empty() {
        faults.extend(layers.unknown(&sources));
        let imports = sources.imports();
        faults.extend(imports.iter().filter_map(|import| layers.violation(import)));
    }
    faults
}

struct Layers {
    /// Names of the layers, from the top.
    names: Vec<String>,
    of_module: BTreeMap<String, usize>,
}

impl Layers {
    fn of(documentation: &str) -> Self {
        let section = documentation
            .lines()
            .skip_while(|line| line.trim() != "# Layers")
            .skip_while(|line| !line.trim().starts_with("```"))
            .skip(1)
            .take_while(|line| !line.trim().starts_with("```"));
        let mut layers = Self {
            names: Vec::new(),
            of_module: BTreeMap::new(),
        };
        for line in section {
            let mut columns = line.trim().split("  ").filter(|column| !column.is_empty());
            let (Some(name), Some(modules)) = (columns.next(), columns.next()) else {
                continue;
            };
            let layer = layers.names.len();
            layers.names.push(name.trim().to_owned());
            for module in modules.split(',') {
                layers.of_module.insert(module.trim().to_owned(), layer);
            }
        }
        layers
    }

    /// Returns the entry of the list to which a module belongs: its own, or that of the nearest enclosing module.
    fn entry<'f>(&'f self, module: &str) -> Option<(&'f str, usize)> {
        let mut name = module;
        loop {
            if let Some((entry, layer)) = self.of_module.get_key_value(name) {
                return Some((entry, *layer));
            }
            name = name.rsplit_once("::")?.0;
        }
    }

    /// Returns modules without a layer, and names that are no module.
    fn unknown(&self, sources: &Sources) -> Vec<String> {
        let modules = sources.modules().filter(|module| !module.is_empty());
        let unlisted = modules
            .filter(|module| self.entry(module).is_none())
            .map(|module| format!("src/lib.rs: no layer lists the module {module}"));
        let names = self.of_module.keys();
        let stale = names
            .filter(|name| !sources.modules().any(|module| module == *name))
            .map(|name| format!("src/lib.rs: there is no module {name}"));
        unlisted.chain(stale).collect()
    }

    fn violation(&self, import: &Import) -> Option<String> {
        let (from, from_layer) = self.entry(&import.from)?;
        let place = &import.place;
        let path = &import.path;
        let Some((to, to_layer)) = self.entry(&import.to) else {
            return Some(format!(
                "{place}: `{path}` points up from {} to the crate's root",
                self.names[from_layer]
            ));
        };
        if from == to || from_layer < to_layer {
            return None;
        }
        let names = (&self.names[from_layer], &self.names[to_layer]);
        Some(if from_layer == to_layer {
            format!(
                "{place}: `{path}` points from {from} to {to} in the same layer, {}",
                names.0
            )
        } else {
            format!(
                "{place}: `{path}` points up from {} to {}",
                names.0, names.1
            )
        })
    }
}

/// Returns import cycles between the files of one module. Imports from a file's own parents do not count.
fn cycles(layers: &Layers, sources: &Sources) -> Vec<String> {
    let mut uses: BTreeMap<String, Vec<Import>> = BTreeMap::new();
    for import in sources.imports() {
        let is_parent = import.to.is_empty() || is_inside(&import.from, &import.to);
        let is_inside_one = layers.entry(&import.from) == layers.entry(&import.to);
        if is_inside_one && !is_parent && import.from != import.to {
            uses.entry(import.from.clone()).or_default().push(import);
        }
    }
    // A file that no remaining file uses, or that uses none, is in no cycle.
    loop {
        let users: BTreeSet<String> = uses.keys().cloned().collect();
        for imports in uses.values_mut() {
            imports.retain(|import| users.contains(&import.to));
        }
        let used: BTreeSet<String> = uses
            .values()
            .flatten()
            .map(|import| import.to.clone())
            .collect();
        uses.retain(|user, imports| !imports.is_empty() && used.contains(user));
        if uses.len() == users.len() {
            break;
        }
    }
    let mut faults = Vec::new();
    for Import { place, path, .. } in uses.values().flatten() {
        faults.push(format!("{place}: `{path}` is part of an import cycle"));
    }
    faults
}

fn is_inside(module: &str, parent: &str) -> bool {
    module
        .strip_prefix(parent)
        .is_some_and(|rest| rest.starts_with("::"))
}
