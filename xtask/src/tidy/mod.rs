//! The house rules as a test: `cargo xtask tidy`.
//!
//! A rule is a function over the tracked files. To break a rule for a good reason, name the reason
//! on the line or the line above it: `// tidy-allow(rule): reason`.

mod arrows;
mod circles;
mod code;
pub mod contents;
mod engine;
mod lex;
mod manifest;
mod reach;
mod records;
mod sentences;
mod shape;
#[cfg(test)]
mod testing;
mod text;
mod types;
mod walks;
mod weight;
mod words;

use lex::Token;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Command;

/// A place where a rule is broken.
#[derive(Debug)]
pub struct Finding {
    /// File, relative to the repository.
    pub path: String,
    /// Line, from 1; 0 for the whole file.
    pub line: usize,
    /// The fault.
    pub message: String,
}

/// One tracked text file.
pub struct File {
    /// Path relative to the repository, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
    /// Tokens, for Rust files.
    pub tokens: Vec<Token>,
    /// Token ranges compiled for tests only.
    pub test_items: Vec<RangeInclusive<usize>>,
    /// Line at which the lexer gave up.
    broken: Option<usize>,
}

impl File {
    /// Makes a file of this path and text.
    pub fn new(path: &str, text: &str) -> File {
        let lexed = if path.ends_with(".rs") { lex::lex(text) } else { Ok(Vec::new()) };
        let (tokens, broken) = match lexed {
            Ok(tokens) => (tokens, None),
            Err(line) => (Vec::new(), Some(line)),
        };
        let test_items = lex::test_items(&tokens);
        File { path: path.into(), text: text.into(), tokens, test_items, broken }
    }

    /// Returns true if it is Rust source.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Returns true if the whole file is test code: in `tests`, `benches` or `examples`, or
    /// `tests.rs`.
    pub fn is_test(&self) -> bool {
        let mut parts = self.path.split('/');
        parts.any(|p| matches!(p, "tests" | "tests.rs" | "benches" | "examples"))
    }

    /// Returns true if the token belongs to an item compiled for tests only.
    pub fn in_test_item(&self, token: usize) -> bool {
        self.test_items.iter().any(|r| r.contains(&token))
    }

    fn allows(&self, rule: &str, line: usize) -> bool {
        let mark = format!("tidy-allow({rule}):");
        let first = line.saturating_sub(2);
        self.text.lines().skip(first).take(line - first).any(|l| l.contains(&mark))
    }
}

/// The tracked files of the repository.
pub struct Tree {
    files: Vec<File>,
}

impl Tree {
    /// Loads every file that git tracks or would track.
    pub fn load(root: &Path) -> Result<Tree, String> {
        let out = Command::new("git")
            .current_dir(root)
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .output()
            .map_err(|e| format!("git ls-files: {e}"))?;
        if !out.status.success() {
            return Err(format!("git ls-files: {}", String::from_utf8_lossy(&out.stderr).trim()));
        }
        let mut files = Vec::new();
        for path in String::from_utf8_lossy(&out.stdout).lines() {
            // Rules do not apply to a file that is not text, or is deleted and not yet committed.
            if let Ok(text) = std::fs::read_to_string(root.join(path)) {
                files.push(File::new(path, &text));
            }
        }
        Ok(Tree { files })
    }

    /// Makes a tree for tests.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Tree {
        Tree { files: files.iter().map(|(p, t)| File::new(p, t)).collect() }
    }

    /// Returns all files.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter()
    }

    /// Returns the Rust files.
    pub fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|f| f.is_rust())
    }

    /// Returns the file of this path.
    pub fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|f| f.path == path)
    }
}

/// The findings of the rules.
#[derive(Default)]
pub struct Report {
    findings: Vec<Finding>,
}

impl Report {
    /// Adds a finding.
    pub fn add(&mut self, path: &str, line: usize, message: impl Into<String>) {
        self.findings.push(Finding { path: path.into(), line, message: message.into() });
    }

    /// Returns the findings.
    #[cfg(test)]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

type Rule = fn(&Tree, &mut Report);

/// Name and check of every rule.
const RULES: &[(&str, Rule)] = &[
    ("readable", readable),
    ("columns", text::columns),
    ("leftovers", text::leftovers),
    ("machine", text::machine),
    ("links", text::links),
    ("paths", text::paths),
    ("sentences", sentences::sentences),
    ("openings", sentences::openings),
    ("records", records::records),
    ("contents", contents::contents),
    ("walks", walks::walks),
    ("named", walks::named),
    ("glossary", words::glossary),
    ("terms", words::terms),
    ("guide", words::openings),
    ("functions", code::functions),
    ("files", code::files),
    ("unsafe", code::unsafe_places),
    ("unfinished", code::unfinished),
    ("ignored", code::ignored),
    ("sleep", code::sleeps),
    ("names", code::test_names),
    ("purity", code::purity),
    ("engine", engine::kinds),
    ("types", types::types),
    ("fields", shape::fields),
    ("methods", shape::methods),
    ("shares", weight::shares),
    ("weight", weight::first_build),
    ("crates", arrows::crates),
    ("simulator", arrows::simulator),
    ("layers", arrows::layers),
    ("circles", circles::circles),
    ("endpoint", circles::layers),
    ("lints", manifest::lints),
    ("licences", manifest::licences),
    ("lockfile", manifest::lockfile),
    ("dead", reach::dead_files),
];

fn readable(tree: &Tree, report: &mut Report) {
    for file in tree.rust() {
        if let Some(line) = file.broken {
            report.add(&file.path, line, "cannot be read as Rust");
        }
    }
}

/// Runs every rule and prints its findings. Returns the numbers of rules that hold and do not.
pub fn run(root: &Path) -> Result<(u32, u32), String> {
    let tree = Tree::load(root)?;
    let (mut held, mut broken) = (0, 0);
    for (name, rule) in RULES {
        let mut report = Report::default();
        rule(&tree, &mut report);
        report
            .findings
            .retain(|f| !tree.get(&f.path).is_some_and(|file| file.allows(name, f.line)));
        for f in &report.findings {
            println!("{}:{}: {name}: {}", f.path, f.line, f.message);
        }
        *(if report.findings.is_empty() { &mut held } else { &mut broken }) += 1;
    }
    println!("tidy: {held} rules hold, {broken} do not");
    Ok((held, broken))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn allow__covers_its_line_and_the_next() {
        let file = File::new("a.rs", "// tidy-allow(sleep): a reason\nlet a;\nlet b;\n");
        assert!(file.allows("sleep", 1));
        assert!(file.allows("sleep", 2));
        assert!(!file.allows("sleep", 3));
        assert!(!file.allows("columns", 2));
    }

    #[test]
    fn readable__names_broken_source() {
        assert_eq!(testing::found(readable, &[("a.rs", "fn a( {}\n}")]).findings().len(), 1);
    }
}
