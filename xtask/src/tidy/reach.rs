//! The rule that every Rust file is part of a build.

use super::lex::{Kind, Token};
use super::{manifest, File, Report, Tree};
use std::collections::BTreeSet;

/// Finds Rust files that no crate root reaches through `mod`.
pub fn dead_files(tree: &Tree, report: &mut Report) {
    let mut reached = BTreeSet::new();
    for root in roots(tree) {
        follow(tree, &root, true, &mut reached);
    }
    for file in tree.rust().filter(|f| !reached.contains(&f.path)) {
        report.add(&file.path, 0, "no `mod` leads here: dead file");
    }
}

/// Returns the files that cargo compiles as the root of a target.
fn roots(tree: &Tree) -> Vec<String> {
    let mut roots = Vec::new();
    for file in tree.files().filter(|f| f.path.ends_with("Cargo.toml")) {
        let folder = file.path.trim_end_matches("Cargo.toml");
        roots.extend(manifest::target_paths(&file.text).iter().map(|p| format!("{folder}{p}")));
        for rust in tree.rust() {
            let Some(rest) = rust.path.strip_prefix(folder) else { continue };
            let parts: Vec<&str> = rest.split('/').collect();
            let is_root = matches!(
                parts[..],
                ["build.rs"]
                    | ["src", "lib.rs" | "main.rs"]
                    | ["src", "bin", _]
                    | ["src", "bin", _, "main.rs"]
                    | ["tests" | "benches" | "examples", _]
                    | ["tests" | "benches" | "examples", _, "main.rs"]
            );
            if is_root {
                roots.push(rust.path.clone());
            }
        }
    }
    roots
}

fn follow(tree: &Tree, path: &str, root: bool, reached: &mut BTreeSet<String>) {
    let Some(file) = tree.get(path) else { return };
    if !reached.insert(path.to_string()) {
        return;
    }
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let base = if root || name == "mod.rs" {
        folder.to_string()
    } else {
        format!("{folder}/{}", name.trim_end_matches(".rs"))
    };
    for (candidates, _) in modules(file, folder, &base) {
        for candidate in candidates {
            follow(tree, &candidate, false, reached);
        }
    }
}

/// Returns the files that the `mod` declarations and `include!`s of a file may mean, and their
/// lines.
fn modules(file: &File, folder: &str, base: &str) -> Vec<(Vec<String>, usize)> {
    let tokens = &file.tokens;
    let mut found = Vec::new();
    let mut inline: Vec<(usize, &str)> = Vec::new();
    for i in 0..tokens.len() {
        inline.retain(|(end, _)| *end > i);
        if let Some(path) = literal_after(tokens, i, "include", '!') {
            found.push((vec![join(folder, path)], tokens[i].line));
        }
        let name = tokens.get(i + 1).and_then(Token::ident);
        let (true, Some(name)) = (tokens[i].is("mod"), name) else { continue };
        if let Some(end) = tokens.get(i + 2).and_then(|t| t.opens('{')) {
            inline.push((end, name));
            continue;
        }
        let inside: String = inline.iter().map(|(_, n)| format!("/{n}")).collect();
        let files = match path_attribute(tokens, i) {
            Some(path) => vec![join(folder, path)],
            None => vec![
                format!("{base}{inside}/{name}.rs").trim_start_matches('/').to_string(),
                format!("{base}{inside}/{name}/mod.rs").trim_start_matches('/').to_string(),
            ],
        };
        found.push((files, tokens[i].line));
    }
    found
}

fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the string in `word!("...")`.
fn literal_after<'a>(tokens: &'a [Token], i: usize, word: &str, mark: char) -> Option<&'a str> {
    if !tokens[i].is(word) || !tokens.get(i + 1)?.is_punct(mark) {
        return None;
    }
    literal(tokens.get(i + 3)?)
}

/// Returns the string of a `#[path = "..."]` among the attributes just before the item at `i`.
fn path_attribute(tokens: &[Token], i: usize) -> Option<&str> {
    let near = i.saturating_sub(24)..i;
    near.rev().take_while(|k| !tokens[*k].is_punct(';')).find_map(|k| {
        let named = tokens[k].is("path") && tokens.get(k + 1)?.is_punct('=');
        named.then(|| literal(tokens.get(k + 2)?)).flatten()
    })
}

fn literal(token: &Token) -> Option<&str> {
    match &token.kind {
        Kind::Literal(text) => Some(text.trim_matches('"')),
        _ => None,
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::testing;
    use super::*;

    fn dead(files: &[(&str, &str)]) -> Vec<String> {
        let mut all = vec![("c/Cargo.toml", "[package]\nname = \"c\"\n")];
        all.extend(files);
        let report = testing::found(dead_files, &all);
        report.findings().iter().map(|f| f.path.clone()).collect()
    }

    #[test]
    fn dead_files__follows_modules_of_every_shape() {
        let files = [
            ("c/src/lib.rs", "pub mod a;\nmod b { mod inner; }\n#[path = \"odd.rs\"]\nmod d;"),
            ("c/src/a.rs", "mod deep;"),
            ("c/src/a/deep/mod.rs", "include!(\"../more.rs\");"),
            ("c/src/a/more.rs", ""),
            ("c/src/b/inner.rs", ""),
            ("c/src/odd.rs", ""),
            ("c/tests/one.rs", "mod common;"),
            ("c/tests/common/mod.rs", ""),
        ];
        assert_eq!(dead(&files), Vec::<String>::new());
    }

    #[test]
    fn dead_files__names_what_nothing_declares() {
        let files = [("c/src/lib.rs", "// mod lost;"), ("c/src/lost.rs", "")];
        assert_eq!(dead(&files), ["c/src/lost.rs"]);
    }

    #[test]
    fn dead_files__targets_with_a_path_are_roots() {
        let manifest = "[package]\nname = \"f\"\n[[bin]]\nname = \"t\"\npath = \"targets/t.rs\"\n";
        assert!(dead(&[("f/Cargo.toml", manifest), ("f/targets/t.rs", "")]).is_empty());
    }
}
