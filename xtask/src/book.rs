//! `cargo xtask book`: guide, results and records as one book for a browser, with search.

use crate::run::{output_of, succeeds, Outcome};
use crate::setup::has;
use crate::{documents, tools};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const HOW: &str = "mdbook cannot be installed here (`cargo install --locked mdbook`)";
/// Names of a browser that searches the book in the suite.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// A word of many pages, and of no page's name.
const SOUGHT: &str = "retransmission";

/// Builds the book, and checks the links between its pages.
pub fn main(args: &[String]) -> Result<bool, String> {
    if let Some(other) = args.first() {
        return Err(format!("unknown option {other}"));
    }
    checked(&tools::program("mdbook").ok_or(HOW)?).map(|(held, _)| held)
}

/// Builds the book, and returns its folder, and true if no link is dead.
fn checked(mdbook: &Path) -> Result<(bool, PathBuf), String> {
    let html = build(mdbook)?;
    let dead = dead_links(&html)?;
    dead.iter().for_each(|link| eprintln!("{link}"));
    if dead.is_empty() {
        println!("{}", html.join("index.html").display());
    }
    Ok((dead.is_empty(), html))
}

/// The suite: the book, where mdBook can be installed, and its search, where there is a browser.
pub fn suite() -> Outcome {
    let Some(mdbook) = tools::program("mdbook") else { return Outcome::skip(HOW) };
    let html = match checked(&mdbook) {
        Ok((true, html)) => html,
        Ok((false, _)) => return Outcome::one(false),
        Err(why) => return Outcome::one(false).note(why),
    };
    let mut outcome = Outcome::one(true);
    outcome.add(searched(&html));
    outcome
}

/// Searches the book for a word, as its reader would.
fn searched(html: &Path) -> Outcome {
    let Some(browser) = BROWSERS.into_iter().find(|browser| has(browser)) else {
        let why = "skipped book search: no browser is here (Debian: chromium)";
        return Outcome::skip(why);
    };
    let mut command = Command::new(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=60000"]);
    command.arg("--allow-file-access-from-files").arg("--dump-dom");
    let page = format!("file://{}?search={SOUGHT}", html.join("index.html").display());
    let shown = output_of(command.arg(page)).unwrap_or_default();
    Outcome::one(results(&shown) > 0).note(format!("search: {} results", results(&shown)))
}

/// Returns the number of results in a page that has searched.
fn results(shown: &str) -> usize {
    let list = shown.split_once("searchresults\"").map_or("", |(_, rest)| rest);
    list.split("</ul>").next().map_or(0, |list| list.matches("<li").count())
}

/// Builds the book in `target/book/html`, and returns that folder. Links to files that are not in
/// the book become plain text.
fn build(mdbook: &Path) -> Result<PathBuf, String> {
    let (root, book) = (crate::root(), crate::root().join("target/book"));
    let fail = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    if book.exists() {
        fs::remove_dir_all(&book).map_err(|e| fail(&book, e))?;
    }
    let docs = root.join("docs");
    let names = documents::of_book(&docs)?;
    for name in &names {
        let to = book.join("docs").join(indexed(name));
        let folder = to.parent().unwrap_or(&book);
        fs::create_dir_all(folder).map_err(|e| fail(folder, e))?;
        let copied = match name.ends_with(".md") {
            true => fs::write(&to, indexed(&documents::page(&docs, name, &names)?)),
            false => fs::copy(docs.join(name), &to).map(drop),
        };
        copied.map_err(|e| fail(&to, e))?;
    }
    let settings = book.join("book.toml");
    fs::copy(root.join("book.toml"), &settings).map_err(|e| fail(&settings, e))?;
    let html = book.join("html");
    let mut command = Command::new(mdbook);
    match succeeds(command.arg("build").arg(&book).arg("--dest-dir").arg(&html)) {
        true => Ok(html),
        false => Err("mdbook failed".to_string()),
    }
}

/// Names the index of the records as mdBook names the first page of a folder, in paths and in
/// links: mdBook itself does so in paths alone.
fn indexed(text: &str) -> String {
    text.replace("adr/README.md", "adr/index.md").replace("](README.md", "](index.md")
}

/// Returns a line for each link between pages of the book that leads nowhere.
fn dead_links(html: &Path) -> Result<Vec<String>, String> {
    let mut pages = BTreeMap::new();
    let mut folders = vec![html.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let files = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for path in files.flatten().map(|file| file.path()) {
            match path.extension().and_then(|ending| ending.to_str()) {
                _ if path.is_dir() => folders.push(path),
                Some("html") => {
                    let text = fs::read_to_string(&path);
                    pages.insert(path.clone(), text.map_err(|e| format!("{path:?}: {e}"))?);
                }
                _ => {}
            }
        }
    }
    // The page for print has all pages in one, and its links are those of others. The page for
    // addresses that do not exist is shown at any depth, with links from the root of a server.
    pages.retain(|path, _| !path.ends_with("print.html") && !path.ends_with("404.html"));
    let mut dead = Vec::new();
    for (path, text) in &pages {
        let folder = path.parent().unwrap_or(html);
        for link in values(text, "href") {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            if file.contains(':') || file.starts_with("//") {
                continue;
            }
            let to = if file.is_empty() { path.clone() } else { plain(&folder.join(file)) };
            let to = if to.is_dir() { to.join("index.html") } else { to };
            let has_heading = |text: &String| values(text, "id").any(|id| id == heading);
            let there = heading.is_empty() || pages.get(&to).is_none_or(has_heading);
            if !to.exists() || !there {
                dead.push(format!(
                    "{}: no {link}",
                    path.strip_prefix(html).unwrap_or(path).display()
                ));
            }
        }
    }
    Ok(dead.into_iter().collect::<BTreeSet<_>>().into_iter().collect())
}

/// Returns the values of an attribute in a page.
fn values<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let mark = format!(" {name}=\"");
    let starts: Vec<usize> = text.match_indices(&mark).map(|(at, _)| at + mark.len()).collect();
    starts.into_iter().filter_map(|at| text[at..].split('"').next())
}

/// Removes `.` and `..` from a path.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(out.pop()),
            std::path::Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn values__are_those_of_one_attribute() {
        let text = "<a class=\"x\" href=\"a.html#b\">t</a><h2 id=\"b\"><a href=\"#b\">";
        assert_eq!(values(text, "href").collect::<Vec<_>>(), ["a.html#b", "#b"]);
        assert_eq!(values(text, "id").collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn results__are_those_of_the_list() {
        let list =
            "<ul id=\"mdbook-searchresults\"><li>a</li><li class=\"b\">b</li></ul><li>c</li>";
        assert_eq!(results(list), 2);
        assert_eq!(results("<ul id=\"searchresults\"></ul><li>c</li>"), 0);
        assert_eq!(results("<li>c</li>"), 0);
    }

    #[test]
    fn dead_links__lead_to_no_file_or_to_no_heading() {
        let folder = std::env::temp_dir().join(format!("weft-book-{}", std::process::id()));
        fs::create_dir_all(folder.join("a")).unwrap();
        let b = "<a href=\"b.html#one\"><a href=\"../c.html\"><a href=\"https://x.org\">";
        fs::write(folder.join("a/a.html"), format!("{b}<a href=\"b.html#two\">")).unwrap();
        fs::write(folder.join("a/b.html"), "<h2 id=\"one\"><a href=\"#one\"><a href=\"x.md\">")
            .unwrap();
        fs::write(folder.join("c.html"), "<a href=\"a/b.html\">").unwrap();
        let dead = dead_links(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(dead, ["a/a.html: no b.html#two", "a/b.html: no x.md"]);
    }

    #[test]
    fn book__has_each_page_in_its_order() {
        let docs = crate::root().join("docs");
        let summary = fs::read_to_string(docs.join(documents::SUMMARY)).unwrap();
        let names = documents::of_book(&docs).unwrap();
        let pages =
            names.iter().filter(|name| name.ends_with(".md") && **name != documents::SUMMARY);
        for page in pages {
            assert_eq!(summary.matches(&format!("]({page})")).count(), 1, "{page}");
        }
    }
}
