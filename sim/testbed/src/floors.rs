//! The check that imports point down: a crate lists its layers in the documentation of its `lib.rs`, and [`check`] names each
//! line that imports from a higher layer.
//!
//! The list is the first block of the section `# Floors`. Each line is one layer, the top layer first: its name, its modules,
//! and a remark, separated by two or more blanks.
//!
//! ```text
//! # Floors
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
//!
//! A crate uses the check through one file, `tests/floors.rs`:
//!
//! ```no_run
//! #[test]
//! fn imports_point_down() {
//!     gpushare_testbed::floors::check(env!("CARGO_MANIFEST_DIR"));
//! }
//! ```

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use source::{Import, Sources};

/// Panics with every import that points up in the crate in `manifest_dir`, and every import cycle inside a module.
pub fn check(manifest_dir: &str) {
    let faults = faults(&Path::new(manifest_dir).join("src"));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Returns the faults of the sources in a directory.
fn faults(src: &Path) -> Vec<String> {
    let sources = Sources::read(src);
    let floors = Floors::of(&sources.documentation);
    let mut faults = circles(&floors, &sources);
    if !floors.names.is_empty() {
        faults.extend(floors.unknown(&sources));
        let imports = sources.imports();
        faults.extend(imports.iter().filter_map(|import| floors.climb(import)));
    }
    faults
}

struct Floors {
    /// Names of the layers, from the top.
    names: Vec<String>,
    of_module: BTreeMap<String, usize>,
}

impl Floors {
    fn of(documentation: &str) -> Self {
        let section = documentation
            .lines()
            .skip_while(|line| line.trim() != "# Floors")
            .skip_while(|line| !line.trim().starts_with("```"))
            .skip(1)
            .take_while(|line| !line.trim().starts_with("```"));
        let mut floors = Self {
            names: Vec::new(),
            of_module: BTreeMap::new(),
        };
        for line in section {
            let mut columns = line.trim().split("  ").filter(|column| !column.is_empty());
            let (Some(name), Some(modules)) = (columns.next(), columns.next()) else {
                continue;
            };
            let floor = floors.names.len();
            floors.names.push(name.trim().to_owned());
            for module in modules.split(',') {
                floors.of_module.insert(module.trim().to_owned(), floor);
            }
        }
        floors
    }

    /// Returns the entry of the list to which a module belongs: its own, or that of the nearest enclosing module.
    fn entry<'f>(&'f self, module: &str) -> Option<(&'f str, usize)> {
        let mut name = module;
        loop {
            if let Some((entry, floor)) = self.of_module.get_key_value(name) {
                return Some((entry, *floor));
            }
            name = name.rsplit_once("::")?.0;
        }
    }

    /// Returns modules without a layer, and names that are no module.
    fn unknown(&self, sources: &Sources) -> Vec<String> {
        let modules = sources.modules().filter(|module| !module.is_empty());
        let homeless = modules
            .filter(|module| self.entry(module).is_none())
            .map(|module| format!("src/lib.rs: no floor lists the module {module}"));
        let names = self.of_module.keys();
        let stale = names
            .filter(|name| !sources.modules().any(|module| module == *name))
            .map(|name| format!("src/lib.rs: there is no module {name}"));
        homeless.chain(stale).collect()
    }

    fn climb(&self, import: &Import) -> Option<String> {
        let (from, from_floor) = self.entry(&import.from)?;
        let place = &import.place;
        let path = &import.path;
        let Some((to, to_floor)) = self.entry(&import.to) else {
            return Some(format!(
                "{place}: `{path}` climbs from {} to the crate's root",
                self.names[from_floor]
            ));
        };
        if from == to || from_floor < to_floor {
            return None;
        }
        let names = (&self.names[from_floor], &self.names[to_floor]);
        Some(if from_floor == to_floor {
            format!(
                "{place}: `{path}` leads from {from} to {to} on the same floor, {}",
                names.0
            )
        } else {
            format!("{place}: `{path}` climbs from {} to {}", names.0, names.1)
        })
    }
}

/// Returns import cycles between the files of one module. Imports from a file's own parents do not count.
fn circles(floors: &Floors, sources: &Sources) -> Vec<String> {
    let mut uses: BTreeMap<String, Vec<Import>> = BTreeMap::new();
    for import in sources.imports() {
        let is_parent = import.to.is_empty() || is_inside(&import.from, &import.to);
        let is_inside_one = floors.entry(&import.from) == floors.entry(&import.to);
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
        faults.push(format!("{place}: `{path}` is part of a circle of files"));
    }
    faults
}

fn is_inside(module: &str, parent: &str) -> bool {
    module
        .strip_prefix(parent)
        .is_some_and(|rest| rest.starts_with("::"))
}

#[cfg(test)]
mod tests;
