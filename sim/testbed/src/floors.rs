//! Imports point down: a crate lists its floors in the documentation of its `lib.rs`, and [`check`] names each line that
//! climbs.
//!
//! The list is the first block of the section `# Floors`. A line is one floor, the top one first: its name, the
//! modules on it, and what else a reader wants to know, apart by two blanks or more.
//!
//! ```text
//! # Floors
//!
//!     faces    operator, snapshot     what the tools call
//!     seat     book, ledger, lock
//!     value    value
//! ```
//!
//! * A module uses what stands on a lower floor. Two modules on one floor do not know each other.
//! * A floor may name a module inside another (`trace::log`); the longest name decides.
//! * Inside one module, files do not use each other in a circle. A file may use what its own parent declares.
//! * The crate's root stands above all floors, so nothing may use what only the root declares.
//! * Tests (`#[cfg(test)]`) may use everything.
//!
//! A crate joins with one file, `tests/floors.rs`:
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

/// Panics with every line of the crate in `manifest_dir` that climbs, and every circle inside a module.
pub fn check(manifest_dir: &str) {
    let faults = faults(&Path::new(manifest_dir).join("src"));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What is wrong with the sources in a directory.
fn faults(src: &Path) -> Vec<String> {
    let sources = Sources::read(src);
    let floors = Floors::of(&sources.documentation);
    if floors.names.is_empty() {
        return vec!["src/lib.rs: the section `# Floors` lists no floor".to_owned()];
    }
    let mut faults = floors.unknown(&sources);
    for import in sources.imports() {
        faults.extend(floors.climb(&import));
    }
    faults.extend(circles(&floors, &sources));
    faults
}

/// The list in the documentation.
struct Floors {
    /// From the top.
    names: Vec<String>,
    /// Which floor a module stands on.
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

    /// The entry of the list that a module belongs to: itself, or the nearest module around it.
    fn entry<'f>(&'f self, module: &str) -> Option<(&'f str, usize)> {
        let mut name = module;
        loop {
            if let Some((entry, floor)) = self.of_module.get_key_value(name) {
                return Some((entry, *floor));
            }
            name = name.rsplit_once("::")?.0;
        }
    }

    /// Modules on no floor, and names of no module.
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

/// Circles between the files of one module, where what a file takes from its own parents does not count.
fn circles(floors: &Floors, sources: &Sources) -> Vec<String> {
    let mut uses: BTreeMap<String, Vec<Import>> = BTreeMap::new();
    for import in sources.imports() {
        let is_parent = import.to.is_empty() || is_inside(&import.from, &import.to);
        let is_inside_one = floors.entry(&import.from) == floors.entry(&import.to);
        if is_inside_one && !is_parent && import.from != import.to {
            uses.entry(import.from.clone()).or_default().push(import);
        }
    }
    // What is used by nothing that is left, or uses nothing that is left, is in no circle.
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
