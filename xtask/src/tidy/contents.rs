//! The tables of contents in `ARCHITECTURE.md`: a row for each crate and for each folder of its
//! modules, made of the first lines of their documentation.

use super::manifest::package_name;
use super::{arrows, sentences, File, Report, Tree};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const PAGE: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- contents: written by `cargo xtask contents` -->\n";
const END: &str = "<!-- end of contents -->\n";
/// Folders of modules that have no row: each crate may have them, and `STYLE.md` says what they
/// have.
const COMMON: [&str; 3] = ["sys", "tests", "bin"];

/// Checks that the tables are those of the present crates, and that each crate and each folder of
/// modules says what it is.
pub fn contents(tree: &Tree, report: &mut Report) {
    let Some(page) = tree.get(PAGE) else { return };
    match replaced(&page.text, &tables(tree)) {
        None => report.add(PAGE, 0, "has no place for the contents"),
        Some(text) if text != page.text => {
            report.add(PAGE, 0, "the contents are not current: run `cargo xtask contents`")
        }
        Some(_) => {}
    }
    for one in crates(tree) {
        for file in one.folders.iter().map(|(_, file)| *file).chain([one.root]) {
            if first_paragraph(&file.text).is_empty() {
                report.add(&file.path, 1, "does not begin with its documentation (`//!`)");
            }
        }
    }
}

/// Writes the tables.
pub fn write(root: &Path) -> Result<bool, String> {
    let tree = Tree::load(root)?;
    let page = tree.get(PAGE).ok_or(format!("there is no {PAGE}"))?;
    let text = replaced(&page.text, &tables(&tree));
    let text = text.ok_or(format!("{PAGE} has no place for the contents"))?;
    fs::write(root.join(PAGE), text).map_err(|e| format!("{PAGE}: {e}"))?;
    Ok(true)
}

/// Returns a page with these tables between its two marks.
fn replaced(page: &str, tables: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{tables}{END}{after}"))
}

/// A crate of the workspace.
struct Crate<'a> {
    folder: &'a str,
    /// Its place in the order of the layers.
    place: usize,
    /// `lib.rs`, or `main.rs`.
    root: &'a File,
    /// The folders of modules in `src`, with the file that declares what is in each.
    folders: Vec<(&'a str, &'a File)>,
}

/// Returns the crates, those that others build on first.
fn crates(tree: &Tree) -> Vec<Crate<'_>> {
    let mut found: Vec<Crate<'_>> = tree.files().filter_map(|f| of_manifest(tree, f)).collect();
    found.sort_by_key(|one| (one.place, one.folder));
    found
}

fn of_manifest<'a>(tree: &'a Tree, manifest: &'a File) -> Option<Crate<'a>> {
    let folder = manifest.path.strip_suffix("/Cargo.toml")?;
    let name = package_name(&manifest.text)?;
    let root = ["lib.rs", "main.rs"];
    let root = root.iter().find_map(|file| tree.get(&format!("{folder}/src/{file}")))?;
    let source = format!("{folder}/src/");
    let names: BTreeSet<&str> = tree
        .rust()
        .filter_map(|file| Some(file.path.strip_prefix(&source)?.split_once('/')?.0))
        .filter(|name| !COMMON.contains(name))
        .collect();
    let file = |name| {
        let own = tree.get(&format!("{source}{name}/mod.rs"));
        own.or_else(|| tree.get(&format!("{source}{name}.rs")))
    };
    let folders = names.into_iter().filter_map(|name| Some((name, file(name)?))).collect();
    Some(Crate { folder, place: arrows::place(name), root, folders })
}

/// Returns a table for each folder of crates, and one for the crates beside these folders.
fn tables(tree: &Tree) -> String {
    let all = crates(tree);
    let top = |one: &Crate<'_>| one.folder.split_once('/').map(|(top, _)| top.to_string());
    let mut text = String::new();
    for (name, title) in [
        (Some("crates"), "Libraries and the agent: `crates/`"),
        (Some("faces"), "Adapters: `faces/`"),
        (Some("tools"), "The command and its parts: `tools/`"),
        (Some("apps"), "Applications that the demo shows: `apps/`"),
        (Some("papers"), "Reproductions of the papers: `papers/`"),
        (None, "Tests and tasks of the project"),
    ] {
        let rows: Vec<String> =
            all.iter().filter(|one| top(one).as_deref() == name).flat_map(rows_of).collect();
        if !rows.is_empty() {
            let rows = rows.concat();
            text.push_str(&format!("### {title}\n\n| path | content |\n| --- | --- |\n{rows}\n"));
        }
    }
    text
}

fn rows_of(one: &Crate<'_>) -> Vec<String> {
    let row = |path: &str, text: &str| format!("| `{path}` | {} |\n", plain(text));
    let own = row(one.folder, &first_paragraph(&one.root.text));
    let folders = one.folders.iter().map(|(name, file)| {
        let text = first_paragraph(&file.text);
        row(&format!("  {name}/"), text[..sentences::sentence_len(&text)].trim_end())
    });
    [own].into_iter().chain(folders).collect()
}

/// Returns the first paragraph of a file's documentation in one line.
fn first_paragraph(text: &str) -> String {
    let own = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    own.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Returns a text as a cell of a table, without the links that only rustdoc follows.
fn plain(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("[`") {
        let Some((name, behind)) = after.split_once("`]") else { break };
        out.push_str(&format!("{before}`{name}`"));
        let target = behind.strip_prefix('(').and_then(|target| target.split_once(')'));
        rest = target.map_or(behind, |(_, behind)| behind);
    }
    (out + rest).replace('|', "\\|")
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::testing;
    use super::*;

    const CORE: &str = "[package]\nname = \"weft-core\"\n";
    const LINK: &str = "[package]\nname = \"weft-link\"\n";

    fn tree() -> Vec<(&'static str, &'static str)> {
        vec![
            ("crates/a/Cargo.toml", LINK),
            (
                "crates/a/src/lib.rs",
                "//! Links,\n//! as [`Link`](a::Link) has them.\n//!\n//! X.\n",
            ),
            ("crates/a/src/udp/mod.rs", "//! The UDP link. It\n//! needs no right.\nfn a() {}\n"),
            ("crates/a/src/tcp.rs", "//! A|B.\n"),
            ("crates/a/src/tcp/send.rs", "//! Sends.\n"),
            ("crates/a/src/sys/mod.rs", "//! System calls.\n"),
            ("crates/b/Cargo.toml", CORE),
            ("crates/b/src/main.rs", "//! The engine.\n"),
            ("xtask/Cargo.toml", "[package]\nname = \"xtask\"\n"),
            ("xtask/src/main.rs", "//! Tasks.\n"),
        ]
    }

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let report = testing::found(contents, files);
        report.findings().iter().map(|f| format!("{}: {}", f.path, f.message)).collect()
    }

    #[test]
    fn tables__have_crates_in_the_order_of_layers_and_folders_below() {
        let text = tables(&Tree::of(&tree()));
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
        let expected = [
            "| `crates/b` | The engine. |",
            "| `crates/a` | Links, as `Link` has them. |",
            "| `  tcp/` | A\\|B. |",
            "| `  udp/` | The UDP link. |",
            "| `xtask` | Tasks. |",
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn contents__of_an_old_page_are_found_and_replaced() {
        let page = format!("# A\n{BEGIN}old\n{END}\nend\n");
        let mut files = tree();
        files.push((PAGE, &page));
        let stale = format!("{PAGE}: the contents are not current: run `cargo xtask contents`");
        assert_eq!(found(&files), [stale]);
        let new = replaced(&page, &tables(&Tree::of(&files))).unwrap();
        assert!(new.starts_with("# A\n") && new.ends_with("\nend\n") && !new.contains("old"));
        files.last_mut().unwrap().1 = &new;
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn contents__need_a_place_and_first_lines() {
        let mut files = tree();
        files.push((PAGE, "# A\n"));
        files.retain(|(path, _)| !path.ends_with("tcp.rs"));
        files.push(("crates/a/src/tcp.rs", "fn a() {}\n"));
        let place = format!("{PAGE}: has no place for the contents");
        let lines = "crates/a/src/tcp.rs: does not begin with its documentation (`//!`)";
        assert_eq!(found(&files), [place.as_str(), lines]);
    }
}
