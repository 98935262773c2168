//! The rules about modules that import each other: no circle of more than three among the children
//! of one module, and the layers of the endpoint's crate.

use super::arrows::module_path;
use super::lex::{Kind, Token};
use super::{File, Report, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// Most modules of a circle.
const MOST: usize = 3;

/// The modules of the endpoint's crate that import fewer than all others, and those they import.
const LAYERS: &[(&str, &[&str])] = &[
    ("bell", &[]),
    ("clock", &[]),
    ("cores", &[]),
    ("counters", &[]),
    ("memory", &[]),
    ("calibration", &["cores"]),
    ("choices", &[]),
    ("selflink", &[]),
    ("reactor", &["calibration", "clock", "counters", "memory"]),
    ("port", &["reactor"]),
    ("endpoint", &["calibration", "choices", "clock", "counters", "memory", "port", "reactor"]),
    ("group", &["endpoint", "port", "reactor"]),
];

/// A path of modules, from the root of its crate.
type Path = Vec<String>;

/// The children of a module, and those that each imports, with a file and a line.
type Children = BTreeMap<String, BTreeMap<String, (String, usize)>>;

/// The imports among the children of each module.
type Imports = BTreeMap<Path, Children>;

/// Checks that no more than three children of a module import each other in a circle.
pub fn circles(tree: &Tree, report: &mut Report) {
    for (source, imports) in imports(tree) {
        for (parent, children) in &imports {
            for circle in circles_of(children) {
                let parent = parent.join("::");
                let names = circle.iter().copied().collect::<Vec<_>>().join(", ");
                let text = format!("{} modules import each other: {names}", circle.len());
                report.add(&source, 0, format!("{parent}: {text}"));
            }
        }
    }
}

/// Checks that modules of the endpoint's crate import lower ones only.
pub fn layers(tree: &Tree, report: &mut Report) {
    const SOURCE: &str = "crates/weft/src/";
    let Some(imports) = imports(tree).remove(SOURCE) else { return };
    let Some(children) = imports.get(&Path::new()) else { return };
    for (module, allowed) in LAYERS {
        for (other, (path, line)) in children.get(*module).into_iter().flatten() {
            if !allowed.contains(&other.as_str()) {
                report.add(path, *line, format!("{module} must not import {other}"));
            }
        }
    }
}

/// Returns the circles of more than three modules among the children of one module.
fn circles_of(children: &Children) -> Vec<BTreeSet<&str>> {
    let reach = |from: &str| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(next) = open.pop() {
            for other in children.get(next).into_iter().flat_map(BTreeMap::keys) {
                if let Some((other, _)) = children.get_key_value(other) {
                    if seen.insert(other.as_str()) {
                        open.push(other);
                    }
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&str, _> = children.keys().map(|m| (m.as_str(), reach(m))).collect();
    let mut found: Vec<BTreeSet<&str>> = Vec::new();
    for (module, seen) in &reached {
        let circle: BTreeSet<&str> =
            seen.iter().copied().filter(|other| reached[other].contains(module)).collect();
        if circle.len() > MOST && !found.contains(&circle) {
            found.push(circle);
        }
    }
    found
}

/// Returns the imports of each crate, by its source folder.
fn imports(tree: &Tree) -> BTreeMap<String, Imports> {
    let mut modules: BTreeMap<String, BTreeSet<Path>> = BTreeMap::new();
    let source = |file: &File| {
        let end = file.path.find("/src/")? + "/src/".len();
        (!file.is_test()).then(|| file.path[..end].to_string())
    };
    for file in tree.rust() {
        let Some(source) = source(file) else { continue };
        let path = module_path(&file.path[source.len()..]);
        let all = modules.entry(source).or_default();
        (0..=path.len()).for_each(|n| _ = all.insert(path[..n].to_vec()));
    }
    let mut found: BTreeMap<String, Imports> = BTreeMap::new();
    let roots: BTreeMap<String, BTreeMap<String, Path>> = tree
        .rust()
        .filter_map(|file| Some((source(file)?, file)))
        .filter(|(source, file)| file.path == format!("{source}lib.rs"))
        .map(|(source, file)| (source, exports(file)))
        .collect();
    for file in tree.rust() {
        let Some(source) = source(file) else { continue };
        let own = module_path(&file.path[source.len()..]);
        let (known, exported) = (&modules[&source], roots.get(&source));
        let all = found.entry(source).or_default();
        for (line, mut used) in named(file, &own) {
            let there = used.first().and_then(|name| exported?.get(name));
            if let Some(there) = there.filter(|_| !known.contains(&used[..1])) {
                used.clone_from(there);
            }
            // The longest part of the path that is a module.
            let Some(n) = (0..=used.len()).rev().find(|n| known.contains(&used[..*n])) else {
                continue;
            };
            let same = own.iter().zip(&used[..n]).take_while(|(a, b)| a == b).count();
            if same < own.len() && same < n {
                let children = all.entry(own[..same].to_vec()).or_default();
                let to = children.entry(own[same].clone()).or_default();
                to.entry(used[same].clone()).or_insert((file.path.clone(), line));
            }
        }
    }
    for (source, all) in &mut found {
        for module in modules[source].iter().filter(|module| !module.is_empty()) {
            let (parent, name) = (&module[..module.len() - 1], &module[module.len() - 1]);
            all.entry(parent.to_vec()).or_default().entry(name.clone()).or_default();
        }
    }
    found
}

/// Returns the names that the root of a crate exports from its modules, with their paths.
fn exports(root: &File) -> BTreeMap<String, Path> {
    let tokens = &root.tokens;
    let mut found = Vec::new();
    for at in (0..tokens.len()).filter(|&at| tokens[at].is("use") && !root.in_test_item(at)) {
        let name = tokens.get(at + 1).and_then(Token::ident);
        if let Some(name) = name.filter(|name| !["crate", "self"].contains(name)) {
            walk(tokens, at + 2, vec![name.to_string()], &mut found);
        }
    }
    found.into_iter().filter_map(|(_, path)| Some((path.last()?.clone(), path))).collect()
}

/// Returns the paths of the crate that a file names outside tests, from the root of the crate, with
/// their lines.
fn named(file: &File, own: &Path) -> Vec<(usize, Path)> {
    let tokens = &file.tokens;
    let mut found = Vec::new();
    let mut inner: Vec<(usize, String)> = Vec::new();
    for i in 0..tokens.len() {
        inner.retain(|(end, _)| *end > i);
        if file.in_test_item(i) || i > 1 && follows(tokens, i - 2) {
            continue;
        }
        if tokens[i].is("mod") {
            let (name, body) = (tokens.get(i + 1), tokens.get(i + 2).and_then(|t| t.opens('{')));
            inner.extend(body.zip(name.and_then(Token::ident)).map(|(b, n)| (b, n.to_string())));
        }
        let here = || own.iter().cloned().chain(inner.iter().map(|(_, name)| name.clone()));
        let base: Path = match tokens[i].ident() {
            Some("crate") => Path::new(),
            Some("self") if follows(tokens, i + 1) => here().collect(),
            Some("super") => {
                let mut base: Path = here().collect();
                base.pop();
                base
            }
            _ => continue,
        };
        walk(tokens, i + 1, base, &mut found);
    }
    found
}

/// Returns true if `::` stands at `at`.
fn follows(tokens: &[Token], at: usize) -> bool {
    [at, at + 1].iter().all(|&i| tokens.get(i).is_some_and(|t| t.is_punct(':')))
}

/// Follows a path whose first names are `base` and whose next `::` may stand at `at`: each way
/// through lists in braces is a path. Returns the index behind it.
fn walk(tokens: &[Token], at: usize, mut base: Path, found: &mut Vec<(usize, Path)>) -> usize {
    let line = tokens.get(at.saturating_sub(1)).map_or(0, |t| t.line);
    if !follows(tokens, at) {
        found.push((line, base));
        return at;
    }
    match tokens.get(at + 2).map(|t| &t.kind) {
        Some(Kind::Ident(name)) if name == "super" => {
            base.pop();
            walk(tokens, at + 3, base, found)
        }
        Some(Kind::Ident(name)) => {
            base.push(name.clone());
            walk(tokens, at + 3, base, found)
        }
        Some(Kind::Open('{', mate)) => {
            let mut i = at + 3;
            while i < *mate {
                let Some(name) = tokens[i].ident() else {
                    i += 1;
                    continue;
                };
                let mut path = base.clone();
                if name != "self" {
                    path.push(name.to_string());
                }
                i = walk(tokens, i + 1, path, found);
                // An `as` name is none of the path.
                while i < *mate && !tokens[i].is_punct(',') {
                    i += 1;
                }
                i += 1;
            }
            mate + 1
        }
        _ => {
            found.push((line, base));
            at
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::testing::messages;
    use super::*;

    /// Returns modules of which each imports the next, and the last the first.
    fn ring(names: &[&str]) -> Vec<(String, String)> {
        let next = |i: usize| names[(i + 1) % names.len()];
        let of = |(i, name): (usize, &&str)| {
            (format!("x/src/a/{name}.rs"), format!("use super::{}::T;", next(i)))
        };
        names.iter().enumerate().map(of).collect()
    }

    fn circles_in(files: &[(String, String)]) -> Vec<String> {
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (&p[..], &t[..])).collect();
        messages(circles, &files)
    }

    #[test]
    fn circles__of_three_are_allowed_and_of_four_are_not() {
        assert!(circles_in(&ring(&["b", "c", "d"])).is_empty());
        let found = circles_in(&ring(&["b", "c", "d", "e"]));
        assert_eq!(found, ["a: 4 modules import each other: b, c, d, e"]);
    }

    #[test]
    fn circles__each_way_to_name_a_module_counts() {
        let mut files = ring(&["b", "c", "d", "e"]);
        files[0].1 = "fn f() -> crate::a::c::T { crate::a::c::t() }".into();
        files[1] = ("x/src/a/c/deep.rs".into(), "use super::super::{b as _, d::{self, T}};".into());
        files[2].1 = "mod inner { use super::super::e; }".into();
        assert_eq!(circles_in(&files).len(), 1);
        files[3].1 = "#[cfg(test)] mod tests { use super::super::b::T; }".into();
        assert!(circles_in(&files).is_empty(), "tests may name anything");
    }

    #[test]
    fn circles__parents_and_children_are_none() {
        let text = |child: &str| format!("mod {child}; use {child}::T;");
        let files = [
            ("x/src/a/mod.rs".to_string(), text("b")),
            ("x/src/a/b/mod.rs".to_string(), "use super::A; mod c; use c::T;".to_string()),
            ("x/src/a/b/c.rs".to_string(), "use super::super::A; use super::B;".to_string()),
        ];
        assert!(circles_in(&files).is_empty());
    }

    #[test]
    fn layers__the_port_does_not_know_the_endpoint() {
        let root =
            ("crates/weft/src/lib.rs", "mod port; mod endpoint; pub use endpoint::Endpoint;");
        let endpoint = ("crates/weft/src/endpoint.rs", "use crate::port::Port;");
        for bad in ["use crate::endpoint::Endpoint;", "fn f(_: crate::Endpoint) {}"] {
            let port = ("crates/weft/src/port.rs", bad);
            assert_eq!(
                messages(layers, &[root, endpoint, port]),
                ["port must not import endpoint"]
            );
        }
        assert!(messages(layers, &[root, endpoint, ("crates/weft/src/port.rs", "")]).is_empty());
    }
}
