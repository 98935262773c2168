//! The rules about the files that `ARCHITECTURE.md` names, and its walks through them.

use super::{Report, Tree};
use std::collections::BTreeSet;

const PAGE: &str = "ARCHITECTURE.md";
const SECTION: &str = "\n## Five walks\n";
/// The line after the steps of a walk begins so.
const ASKED: &str = "\nAsked:";

/// Checks that the table of the walks counts the files that each of them enters and asks.
pub fn walks(tree: &Tree, report: &mut Report) {
    let Some(page) = tree.get(PAGE) else { return };
    let Some((_, section)) = page.text.split_once(SECTION) else { return };
    let section = section.split("\n## ").next().unwrap_or(section);
    let mut parts = section.split("\n### ");
    let table = parts.next().unwrap_or_default();
    for walk in parts {
        let title = walk.lines().next().unwrap_or_default();
        let Some((steps, rest)) = walk.split_once(ASKED) else {
            report.add(PAGE, 0, format!("the walk \"{title}\" does not say which files it asks"));
            continue;
        };
        let entered = files(steps);
        let asked = files(rest.split("\n\n").next().unwrap_or(rest));
        let (entered, asked) = (entered.len(), asked.difference(&entered).count());
        if !table.contains(&format!("(#{}) | {entered} | {asked} |", anchor(title))) {
            let counts = format!("enters {entered} files and asks {asked}");
            report.add(PAGE, 0, format!("the walk \"{title}\" {counts}: correct its row"));
        }
    }
}

/// Checks that each file of Rust that the page names is there. The page may leave out the beginning
/// of a path.
pub fn named(tree: &Tree, report: &mut Report) {
    let Some(page) = tree.get(PAGE) else { return };
    let is_there = |name: &str| {
        let ends =
            |path: &str| path.strip_suffix(name).is_some_and(|p| p.is_empty() || p.ends_with('/'));
        tree.rust().any(|file| ends(&file.path))
    };
    for (i, line) in page.text.lines().enumerate() {
        let code = line.split('`').skip(1).step_by(2);
        for name in code.filter(|name| name.ends_with(".rs") && !is_there(name)) {
            report.add(PAGE, i + 1, format!("there is no file `{name}`"));
        }
    }
}

/// Returns the files that a text names as code.
fn files(text: &str) -> BTreeSet<&str> {
    let code = text.split('`').skip(1).step_by(2);
    code.filter(|name| name.contains("/src/") && name.ends_with(".rs")).collect()
}

/// Returns the anchor of a heading.
fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::testing::{lines_of, messages};
    use super::*;

    fn found(row: &str, walk: &str) -> usize {
        let text =
            format!("# A\n## Five walks\n\n{row}\n\n### A `read()` of x\n\n{walk}\n\n## B\n");
        messages(walks, &[(PAGE, &text)]).len()
    }

    #[test]
    fn walks__are_counted_by_files_once_each() {
        let walk = "1. `f` in `a/src/b.rs`.\n2. `g` in `a/src/c.rs`, again `a/src/b.rs`.\n\n\
                    Asked: `a/src/d.rs`, `a/src/b.rs`.\n\nMore: `a/src/e.rs`.";
        assert_eq!(found("| [a](#a-read-of-x) | 2 | 1 | 9 |", walk), 0);
        assert_eq!(found("| [a](#a-read-of-x) | 3 | 1 | 9 |", walk), 1);
        assert_eq!(found("| [a](#a-read-of-x) | 2 | 0 | 9 |", walk), 1);
    }

    #[test]
    fn walks__say_which_files_they_ask() {
        assert_eq!(found("| [a](#a-read-of-x) | 1 | 0 | 9 |", "1. `f` in `a/src/b.rs`."), 1);
    }

    #[test]
    fn named__files_are_there() {
        let page =
            "`a/src/b.rs` and `b.rs`\n`src/b.rs`, b.rs\n`seat.rs`\n`c/src/b.rs`, `x.md`\n`b`\n";
        let files = [(PAGE, page), ("crates/a/src/b.rs", ""), ("crates/a/src/theseat.rs", "")];
        assert_eq!(lines_of(named, &files), [3, 4]);
    }
}
