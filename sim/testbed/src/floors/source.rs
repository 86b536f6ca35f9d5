//! The modules of a crate and what each takes from the others, read from its text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// One path from a module to another.
pub struct Import {
    /// File and line.
    pub place: String,
    /// As written.
    pub path: String,
    /// The module that uses ...
    pub from: String,
    /// ... and the one that declares. The crate's root is the empty name.
    pub to: String,
}

/// A crate's modules.
pub struct Sources {
    /// The documentation of `lib.rs`.
    pub documentation: String,
    files: BTreeMap<String, File>,
}

/// One file, without its tests.
struct File {
    path: String,
    /// Line and segments of each path.
    paths: Vec<(usize, Vec<String>)>,
    /// What `use` makes known under a name.
    known: BTreeMap<String, Vec<String>>,
    /// Modules that only the tests have.
    test_modules: BTreeSet<String>,
    /// Modules within this file that surround what is being read.
    inner: usize,
}

impl Sources {
    /// Reads every file that belongs to the library.
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

    /// Their names, the root's empty one among them.
    pub fn modules(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Every path that leads from one module to another.
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

    /// The module that declares what `path` names, seen from `module`; `None` where it leads out of the crate.
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

/// A word or a sign, and its line.
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

    /// Reads on from a token; says where the next one is.
    fn item(&mut self, tokens: &[Token], at: usize) -> usize {
        let word = |at: usize| tokens.get(at).map_or("", |(_, text)| text.as_str());
        let line = tokens[at].0;
        match word(at) {
            "#" if word(at + 1) == "[" => {
                let end = closing(tokens, at + 1);
                let of_tests = word(at + 2) == "cfg"
                    && (at..end).any(|at| word(at) == "test")
                    && !(at..end).any(|at| word(at) == "not");
                // What other attributes name is used as well.
                if of_tests {
                    self.skip(tokens, end)
                } else {
                    at + 2
                }
            }
            // In a macro the name of a module may be an argument: `mod $name {`.
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
            // A path goes on behind its first word; what stands behind `::` is no first word.
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

    /// A path as this file's module sees it.
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

    /// Passes an item over, its other attributes too; remembers the module that it declares.
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

    /// One tree of a `use`, behind a prefix.
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

/// The parts of a list, apart by commas that stand in no braces of their own.
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

/// Where it goes on behind the bracket that closes the one at `open`.
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

/// Words and signs, without comments and literals.
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

/// How long the word, sign, literal or comment at the beginning of a text is.
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
        // A letter and a quotation mark, or an escape; else it is a lifetime.
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

/// The end of a literal that begins at `from`; an escape hides what comes behind it.
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
