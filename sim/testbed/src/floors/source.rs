//! The modules of a crate and their imports, read from the source text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

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

/// A line number, and a word or sign.
type Token = (usize, String);

impl File {
    fn read(path: String, text: &str) -> Self {
        let tokens = tokens(text);
        let mut file = Self {
            path,
            paths: Vec::new(),
            known: BTreeMap::new(),
            test_modules: BTreeSet::new(),
            inner: 0,
        };
        let mut at = 0;
        while at < tokens.len() {
            at = file.item(&tokens, at);
        }
        file
    }

    /// Reads one item and returns the index of the next token.
    fn item(&mut self, tokens: &[Token], at: usize) -> usize {
        let word = |at: usize| tokens.get(at).map_or("", |(_, text)| text.as_str());
        let line = tokens[at].0;
        match word(at) {
            "#" if word(at + 1) == "[" => {
                let end = closing(tokens, at + 1);
                let of_tests = word(at + 2) == "cfg"
                    && (at..end).any(|at| word(at) == "test")
                    && !(at..end).any(|at| word(at) == "not");
                // A path in another attribute is an import too.
                if of_tests {
                    self.skip(tokens, end)
                } else {
                    at + 2
                }
            }
            // In a macro the module's name may be an argument: `mod $name {`.
            "mod" if word(at + 2) == "{" || word(at + 1) == "$" && word(at + 3) == "{" => {
                let open = if word(at + 1) == "$" { at + 3 } else { at + 2 };
                let end = closing(tokens, open);
                let mut next = open + 1;
                self.inner += 1;
                while next < end {
                    next = self.item(tokens, next);
                }
                self.inner -= 1;
                end
            }
            "use" => {
                let end = (at..tokens.len())
                    .find(|at| word(*at) == ";")
                    .unwrap_or(tokens.len());
                self.tree(&tokens[at + 1..end], &[]);
                end
            }
            // A path starts at a word that follows no `::`.
            first
                if is_word(first) && word(at + 1) == "::" && (at == 0 || word(at - 1) != "::") =>
            {
                let mut path = vec![first.to_owned()];
                let mut next = at + 1;
                while word(next) == "::" && is_word(word(next + 1)) {
                    path.push(word(next + 1).to_owned());
                    next += 2;
                }
                self.add(line, path);
                next
            }
            _ => at + 1,
        }
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

    /// Skips an item with its other attributes, and records the module that it declares.
    fn skip(&mut self, tokens: &[Token], mut at: usize) -> usize {
        let word = |at: usize| tokens.get(at).map_or("", |(_, text)| text.as_str());
        let mut is_function = false;
        while at < tokens.len() {
            match word(at) {
                "fn" | "impl" => is_function = true,
                "mod" if word(at + 2) == ";" => {
                    self.test_modules.insert(word(at + 1).to_owned());
                }
                ";" => return at + 1,
                "," if !is_function => return at + 1,
                "{" => return closing(tokens, at),
                "(" | "[" => {
                    at = closing(tokens, at);
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        at
    }

    /// Reads one tree of a `use`, below a prefix.
    fn tree(&mut self, tokens: &[Token], prefix: &[String]) {
        let mut path = prefix.to_vec();
        let mut line = None;
        let mut at = 0;
        while let Some((here, text)) = tokens.get(at) {
            line = line.or(Some(*here));
            match text.as_str() {
                "::" => {}
                "{" => {
                    let end = closing(tokens, at);
                    for part in split(&tokens[at + 1..end - 1]) {
                        self.tree(part, &path);
                    }
                    return;
                }
                "as" => break,
                "self" if !path.is_empty() => {}
                text => path.push(text.to_owned()),
            }
            at += 1;
        }
        let name = match tokens.last() {
            Some((_, text)) if text != "self" => text.clone(),
            _ => path.last().cloned().unwrap_or_default(),
        };
        if let Some(line) = line {
            self.add(line, path.clone());
            if self.inner == 0 && name != "*" {
                self.known.insert(name, path);
            }
        }
    }
}

/// Splits a list at the commas outside braces.
fn split(tokens: &[Token]) -> impl Iterator<Item = &[Token]> {
    let mut depth = 0;
    let parts = tokens.split(move |(_, text)| {
        depth += match text.as_str() {
            "{" => 1,
            "}" => -1,
            _ => 0,
        };
        depth == 0 && text == ","
    });
    parts.filter(|part| !part.is_empty())
}

/// Returns the index behind the bracket that closes the one at `open`.
fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0;
    for (at, (_, text)) in tokens.iter().enumerate().skip(open) {
        match text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Splits a text into words and signs, without comments and literals.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let length = length(rest, first);
        let piece = &rest[..length];
        let is_sign = piece == "::" || length == 1 && first.is_ascii_punctuation();
        if is_sign || is_word(piece) && !piece.contains('"') {
            tokens.push((line, piece.to_owned()));
        }
        line += piece.matches('\n').count();
        rest = &rest[length..];
    }
    tokens
}

/// Returns the length of the word, sign, literal or comment at the start of a text.
fn length(text: &str, first: char) -> usize {
    let until = |end: &str, from: usize| {
        text[from..]
            .find(end)
            .map_or(text.len(), |at| from + at + end.len())
    };
    let raw = text.trim_start_matches(['b', 'c', 'r']);
    let prefix = text.len() - raw.len();
    if text.starts_with("//") {
        return until("\n", 2);
    }
    if text.starts_with("/*") {
        return until("*/", 2);
    }
    if prefix <= 2 && text[..prefix].ends_with('r') && raw.starts_with(['"', '#']) {
        let fence = raw.len() - raw.trim_start_matches('#').len();
        if raw[fence..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(fence));
            return until(&end, prefix + fence + 1);
        }
    }
    if prefix <= 1 && raw.starts_with('"') {
        return quoted(text, prefix + 1, '"');
    }
    if first == '\'' {
        // A character literal: a letter and a quotation mark, or an escape. Otherwise it is a lifetime.
        let mut inside = text.chars().skip(1);
        let (letter, behind) = (inside.next(), inside.next());
        return match (letter, behind) {
            (Some('\\'), _) => quoted(text, 1, '\''),
            (Some(letter), Some('\'')) => 2 + letter.len_utf8(),
            _ => 1,
        };
    }
    if is_word(text) {
        return text
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(text.len());
    }
    if text.starts_with("::") {
        return 2;
    }
    first.len_utf8()
}

/// Returns the end of a literal that begins at `from`; an escape hides the next character.
fn quoted(text: &str, from: usize, end: char) -> usize {
    let mut escaped = false;
    for (at, letter) in text[from..].char_indices() {
        if letter == end && !escaped {
            return from + at + 1;
        }
        escaped = letter == '\\' && !escaped;
    }
    text.len()
}
