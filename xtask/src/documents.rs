//! The pages of documentation that are installed, or are in the book. A link to a file that is not
//! there becomes plain text.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// Installed folders, below `docs`: pages, and the pictures in them.
const FOLDERS: [&str; 3] = ["", "guide", "results"];
/// The order of the pages in the book.
pub const SUMMARY: &str = "SUMMARY.md";

/// Returns the names of the installed files below `docs`, sorted.
pub fn names(docs: &Path) -> Result<Vec<String>, String> {
    let mut names = files(docs, &FOLDERS, &[".md", ".png"])?;
    names.retain(|name| name != SUMMARY);
    Ok(names)
}

/// Returns the names of the files of the book below `docs`, sorted.
pub fn of_book(docs: &Path) -> Result<Vec<String>, String> {
    let folders = [&FOLDERS[..], &["adr"]].concat();
    files(docs, &folders, &[".md", ".png", ".csv", ".html"])
}

/// Returns the names of the files in these folders that end so, sorted.
fn files(docs: &Path, folders: &[&str], endings: &[&str]) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for folder in folders {
        let path = docs.join(folder);
        let files = fs::read_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let files = files.flatten().filter_map(|file| file.file_name().into_string().ok());
        let shown = files.filter(|name| endings.iter().any(|ending| name.ends_with(ending)));
        names.extend(shown.map(|name| Path::new(folder).join(name).display().to_string()));
    }
    names.sort();
    Ok(names)
}

/// Returns a page of `names` as it is installed.
pub fn page(docs: &Path, name: &str, names: &[String]) -> Result<String, String> {
    let path = docs.join(name);
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(without_links(&text, |target| {
        let file = within(docs, name, target);
        file.is_some_and(|file| file.exists() && !is_installed(docs, &file, names))
    }))
}

/// Returns the file that a link names; `None` for an address or a heading of the same page.
fn within(docs: &Path, page: &str, target: &str) -> Option<PathBuf> {
    let file = target.split('#').next()?;
    if file.is_empty() || file.contains(':') || file.contains(char::is_whitespace) {
        return None;
    }
    let mut path = docs.join(page).parent()?.to_path_buf();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            other => path.push(other),
        }
    }
    Some(path)
}

fn is_installed(docs: &Path, file: &Path, names: &[String]) -> bool {
    let name = file.strip_prefix(docs).ok().map(|name| name.display().to_string());
    name.is_some_and(|name| names.contains(&name))
}

/// Returns a page in which links with a dead target are plain text.
fn without_links(text: &str, is_dead: impl Fn(&str) -> bool) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(end) = rest.find("](") {
        out.push_str(&rest[..end]);
        let after = &rest[end + 2..];
        let target = after.split(')').next().unwrap_or(after);
        match out.rfind('[').filter(|_| target.len() < after.len() && is_dead(target)) {
            Some(start) => {
                out.remove(start);
                rest = &after[target.len() + 1..];
            }
            None => {
                out.push_str("](");
                rest = after;
            }
        }
    }
    out + rest
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn without_links__dead_ones_are_text() {
        let text = "a [b](c.md), [`d`](e.rs) and a[0](x)\n[f\ng](e.rs).";
        let shown = without_links(text, |target| target == "e.rs");
        assert_eq!(shown, "a [b](c.md), `d` and a[0](x)\nf\ng.");
        assert_eq!(without_links("[a](e.rs", |_| true), "[a](e.rs");
    }

    #[test]
    fn page__no_link_of_an_installed_page_is_dead() {
        let docs = crate::root().join("docs");
        let names = names(&docs).expect("the documents");
        for name in names.iter().filter(|name| name.ends_with(".md")) {
            let text = page(&docs, name, &names).expect("a page");
            let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            for file in targets.filter_map(|target| within(&docs, name, target)) {
                assert!(is_installed(&docs, &file, &names), "{name}: {}", file.display());
            }
        }
    }
}
