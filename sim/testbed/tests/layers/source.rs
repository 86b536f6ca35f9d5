//! The modules of a crate and their imports, read from the source text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// A path from one module to another.
pub struct Import {
    /// File and line of the path.
    pub place: String,
    /// The path as written.
    pub path: String,
    /// The module that contains the path.
    pub from: String,
    /// The module that declares the item. The crate's root is the empty name.
    pub to: String,
}

/// The modules of a crate.
pub struct Sources {
    /// Documentation of `lib.rs`.
    pub documentation: String,
    files: BTreeMap<String, File>,
}

/// A file, without its tests.
struct File {
    path: String,
    /// Line and segments of each path.
    paths: Vec<(usize, Vec<String>)>,
    /// The names that `use` declares, and their paths.
    known: BTreeMap<String, Vec<String>>,
    /// Modules that exist only for tests.
    test_modules: BTreeSet<String>,
    /// Number of inline modules around the current token.
    inner: usize,
}

impl Sources {
    /// Reads every file of the library.
    pub fn read(src: &Path) -> Self {
        let mut files = BTreeMap::new();
        read_directory(src, src, &mut files);
        let tests: Vec<String> = files
            .iter()
            .flat_map(|(module, file): (&String, &File)| {
                file.test_modules.iter().map(|child| join(module, child))
            })
            .collect();
        files.retain(|module, _| {
            !tests
                .iter()
                .any(|test| module == test || super::is_inside(module, test))
        });
        let root = fs::read_to_string(src.join("lib.rs")).expect("a lib.rs");
        let documentation = root.lines().filter_map(|line| line.strip_prefix("//!"));
        Self {
            documentation: documentation.collect::<Vec<_>>().join("\n"),
            files,
        }
    }

    /// Returns the modules' names; the root's name is empty.
    pub fn modules(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Returns every path from one module to another.
    pub fn imports(&self) -> Vec<Import> {
        let mut imports = Vec::new();
        for (from, file) in &self.files {
            for (line, path) in &file.paths {
                let Some(to) = self.declares(from, path, 0) else {
                    continue;
                };
                if to != *from {
                    imports.push(Import {
                        place: format!("{}:{line}", file.path),
                        path: path.join("::"),
                        from: from.clone(),
                        to,
                    });
                }
            }
        }
        imports
    }

    /// Returns the module that declares what `path` names, seen from `module`. Returns `None` for a path to another crate.
    fn declares(&self, module: &str, path: &[String], depth: usize) -> Option<String> {
        let mut rest = path;
        let mut at = module.to_owned();
        match rest.first()?.as_str() {
            "crate" => (at, rest) = (String::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {}
            first => {
                let is_child = self.files.contains_key(&join(module, first));
                let is_known = depth > 0 && self.files[module].known.contains_key(first);
                if !is_child && !is_known {
                    return None;
                }
            }
        }
        while rest.first().is_some_and(|segment| segment == "super") {
            at = at
                .rsplit_once("::")
                .map_or("", |(parent, _)| parent)
                .to_owned();
            rest = &rest[1..];
        }
        while let Some(segment) = rest.first() {
            let child = join(&at, segment);
            if self.files.contains_key(&child) {
                at = child;
                rest = &rest[1..];
                continue;
            }
            let known = self.files.get(&at).and_then(|file| file.known.get(segment));
            let Some(known) = known.filter(|_| depth < 8) else {
                break;
            };
            let further: Vec<String> = known.iter().chain(&rest[1..]).cloned().collect();
            return self.declares(&at, &further, depth + 1);
        }
        Some(at)
    }
}

fn join(module: &str, child: &str) -> String {
    match module {
        "" => child.to_owned(),
        _ => format!("{module}::{child}"),
    }
}

fn read_directory(src: &Path, dir: &Path, files: &mut BTreeMap<String, File>) {
    let entries = fs::read_dir(dir).expect("a directory of sources");
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            if path != src.join("bin") {
                read_directory(src, &path, files);
            }
            continue;
        }
        let inside = path
            .strip_prefix(src)
            .expect("it lies there")
            .to_string_lossy();
        let Some(name) = inside.strip_suffix(".rs").filter(|name| *name != "main") else {
            continue;
        };
        let name = name.strip_suffix("/mod").unwrap_or(name).replace('/', "::");
        let name = if name == "lib" { String::new() } else { name };
        let text = fs::read_to_string(&path).expect("a source file");
        files.insert(name, File::read(format!("src/{inside}"), &text));
    }
}

impl File {
    fn read(path: String, text: &str) -> Self {
        let text: TokenStream = text
            .parse()
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut file = Self {
            path,
            paths: Vec::new(),
            known: BTreeMap::new(),
            test_modules: BTreeSet::new(),
            inner: 0,
        };
        file.items(text);
        file
    }

    fn items(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            at += self.item(&tokens, at);
        }
    }

    /// Reads what starts at a token. Returns the number of its tokens.
    fn item(&mut self, tokens: &[TokenTree], at: usize) -> usize {
        let rest = &tokens[at..];
        let is =
            |at: usize, text: &str| rest.get(at).is_some_and(|token| token.to_string() == text);
        match rest {
            [_, TokenTree::Group(attribute), ..]
                if is(0, "#") && is_of_tests(attribute.stream()) =>
            {
                2 + self.skip(&rest[2..])
            }
            // In a macro the module's name may be an argument: `mod $name {`.
            [_, _, TokenTree::Group(body), ..] if is(0, "mod") => self.module(body.stream(), 3),
            [_, _, _, TokenTree::Group(body), ..] if is(0, "mod") && is(1, "$") => {
                self.module(body.stream(), 4)
            }
            [TokenTree::Ident(_), ..] if is(0, "use") => {
                let end = (0..rest.len()).find(|at| is(*at, ";"));
                let end = end.unwrap_or(rest.len());
                self.tree(&rest[1..end], &[]);
                end
            }
            // A path starts at a word that follows no `::`.
            [TokenTree::Ident(first), ..]
                if is_separator(rest, 1) && (at < 2 || !is_separator(tokens, at - 2)) =>
            {
                let mut path = vec![first.to_string()];
                let mut next = 1;
                while let Some(TokenTree::Ident(segment)) = rest.get(next + 2)
                    && is_separator(rest, next)
                {
                    path.push(segment.to_string());
                    next += 3;
                }
                self.add(first.span().start().line, path);
                next
            }
            [TokenTree::Group(group), ..] => {
                self.items(group.stream());
                1
            }
            _ => 1,
        }
    }

    fn module(&mut self, body: TokenStream, length: usize) -> usize {
        self.inner += 1;
        self.items(body);
        self.inner -= 1;
        length
    }

    /// Records a path, converted to the view of this file's module.
    fn add(&mut self, line: usize, mut path: Vec<String>) {
        for _ in 0..self.inner {
            if let Some(first) = path.iter_mut().find(|segment| *segment != "self")
                && first == "super"
            {
                *first = "self".to_owned();
            }
        }
        path.dedup_by(|a, b| a == "self" && b == "self");
        self.paths.push((line, path));
    }

    /// Returns the length of an item with its other attributes, and records the module that it declares.
    fn skip(&mut self, tokens: &[TokenTree]) -> usize {
        let mut is_function = false;
        for (at, token) in tokens.iter().enumerate() {
            match token.to_string().as_str() {
                "fn" | "impl" => is_function = true,
                "mod" if tokens.get(at + 2).is_some_and(|end| end.to_string() == ";") => {
                    self.test_modules.insert(tokens[at + 1].to_string());
                }
                ";" => return at + 1,
                "," if !is_function => return at + 1,
                _ if is_braced(token) => return at + 1,
                _ => {}
            }
        }
        tokens.len()
    }

    /// Reads one tree of a `use`, below a prefix.
    fn tree(&mut self, tokens: &[TokenTree], prefix: &[String]) {
        let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else {
            return;
        };
        let mut path = prefix.to_vec();
        for token in tokens {
            match token {
                TokenTree::Group(parts) => {
                    let parts: Vec<TokenTree> = parts.stream().into_iter().collect();
                    for part in parts.split(|token| token.to_string() == ",") {
                        self.tree(part, &path);
                    }
                    return;
                }
                TokenTree::Punct(sign) if sign.as_char() == ':' => {}
                TokenTree::Ident(word) if word == "as" => break,
                TokenTree::Ident(word) if word == "self" && !path.is_empty() => {}
                other => path.push(other.to_string()),
            }
        }
        let name = match last.to_string() {
            name if name != "self" => name,
            _ => path.last().cloned().unwrap_or_default(),
        };
        self.add(first.span().start().line, path.clone());
        if self.inner == 0 && name != "*" {
            self.known.insert(name, path);
        }
    }
}

fn is_braced(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

/// Returns true if `::` starts at this token.
fn is_separator(tokens: &[TokenTree], at: usize) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(sign)) if sign.as_char() == ':' && sign.spacing() == Spacing::Joint)
}

/// Returns true if an attribute leaves its item out of everything but tests.
fn is_of_tests(attribute: TokenStream) -> bool {
    let text = attribute.to_string();
    let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let words: Vec<&str> = words.collect();
    words[0] == "cfg" && words.contains(&"test") && !words.contains(&"not")
}
