//! The rule that a crate has one type of a name.

use super::lex::Token;
use super::{File, Report, Tree};
use std::collections::BTreeMap;

/// Checks that no two types of a library crate share a name, as far as its other modules see them.
/// A `sys` module keeps the names of the system: its types stay behind it.
pub fn types(tree: &Tree, report: &mut Report) {
    let mut known: BTreeMap<(&str, String), (&str, usize)> = BTreeMap::new();
    for file in tree.rust().filter(|f| !f.is_test()) {
        let Some(folder) = library(&file.path) else { continue };
        for (name, line) in seen_types(file) {
            if let Some((path, at)) = known.get(&(folder, name.clone())) {
                report.add(&file.path, line, format!("a type `{name}` is in {path}:{at} too"));
            } else {
                known.insert((folder, name), (&file.path, line));
            }
        }
    }
}

/// Returns the folder of the library crate that a source belongs to; `None` for `sys` modules and
/// for sources of other crates.
fn library(path: &str) -> Option<&str> {
    let at = path.find("/src/").filter(|_| path.starts_with("crates/"))?;
    let in_sys = path.split('/').any(|part| part == "sys" || part == "sys.rs");
    (!in_sys).then(|| &path[..at])
}

/// Returns names and lines of the types that are `pub` or `pub(crate)`.
fn seen_types(file: &File) -> Vec<(String, usize)> {
    let tokens = &file.tokens;
    let mut found = Vec::new();
    for at in (0..tokens.len()).filter(|&at| tokens[at].is("pub") && !file.in_test_item(at)) {
        let within = tokens.get(at + 1).and_then(|token| token.opens('('));
        let of_crate = tokens.get(at + 2).is_some_and(|token| token.is("crate"));
        let next = match within {
            Some(end) if of_crate => end + 1,
            Some(_) => continue,
            None => at + 1,
        };
        let kinds = ["struct", "enum", "trait", "union"];
        let is_type = tokens.get(next).is_some_and(|t| kinds.iter().any(|kind| t.is(kind)));
        let name = tokens.get(next + 1).and_then(Token::ident).filter(|_| is_type);
        found.extend(name.map(|name| (name.to_string(), tokens[at].line)));
    }
    found
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn types__a_name_stands_once_in_a_crate() {
        let files = [
            ("crates/a/src/one.rs", "pub struct Path;\npub(super) enum State {}\nstruct Own;"),
            ("crates/a/src/two.rs", "\npub(crate) trait Path {}\npub enum State {} struct Own;"),
            ("crates/a/src/sys/mod.rs", "pub struct Path;"),
            ("crates/a/src/three.rs", "#[cfg(test)] mod tests { pub struct Path; }"),
            ("crates/b/src/lib.rs", "pub struct Path;"),
        ];
        let report = testing::found(types, &files);
        let found: Vec<_> = report.findings().iter().map(|f| (f.path.as_str(), f.line)).collect();
        assert_eq!(found, [("crates/a/src/two.rs", 2)]);
    }
}
