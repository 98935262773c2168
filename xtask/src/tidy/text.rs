//! Rules about lines of text.

use super::{File, Report, Tree};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

const MAX_COLUMNS: usize = 100;

/// Checks that source lines fit 100 columns. A line with a web address may be longer.
pub fn columns(tree: &Tree, report: &mut Report) {
    const KINDS: [&str; 7] = [".rs", ".c", ".h", ".py", ".sh", ".lua", ".ci/run"];
    for file in tree.files().filter(|f| KINDS.iter().any(|k| f.path.ends_with(k))) {
        for (i, line) in file.text.lines().enumerate() {
            let width = line.chars().count();
            if width > MAX_COLUMNS && !line.contains("://") {
                report.add(&file.path, i + 1, format!("{width} columns, at most {MAX_COLUMNS}"));
            }
        }
    }
}

/// Finds notes to finish something later, in any file, and code that says it does not exist yet.
pub fn leftovers(tree: &Tree, report: &mut Report) {
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];
    let phrases = [
        concat!("not ", "implemented"),
        concat!("not yet ", "implemented"),
        concat!("not available in ", "this version"),
    ];
    for file in tree.files() {
        for (i, line) in file.text.lines().enumerate() {
            for phrase in phrases.iter().filter(|p| file.is_rust() && line.contains(**p)) {
                report.add(&file.path, i + 1, format!("{phrase}: a stub"));
            }
            for word in line.split(|c: char| !c.is_alphanumeric() && c != '_') {
                if words.contains(&word) {
                    report.add(&file.path, i + 1, format!("{word}: finish it or write an issue"));
                }
            }
        }
    }
}

/// Finds paths of a developer's machine and hosts of a private package registry.
pub fn machine(tree: &Tree, report: &mut Report) {
    let words = machine_words();
    for file in tree.files().filter(|f| !f.path.ends_with(".lock")) {
        for (i, line) in file.text.lines().enumerate() {
            for word in words.iter().filter(|w| mentions(line, w)) {
                report.add(&file.path, i + 1, format!("names this machine or registry: {word}"));
            }
        }
    }
}

/// Returns true if `line` contains `word` at the start of a path or name.
fn mentions(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | '*'))
    })
}

/// Returns home folders, the folder of this checkout, and the registry hosts configured on this
/// machine.
fn machine_words() -> Vec<String> {
    let mut words: Vec<String> =
        ["home", "Users", "root"].iter().map(|d| format!("/{d}/")).collect();
    let home = std::env::var("HOME").unwrap_or_default();
    if home.len() > 4 {
        words.push(home.clone());
    }
    let root = crate::root();
    if let Some(parent) = root.parent().and_then(Path::to_str).filter(|p| p.len() > 4) {
        words.push(format!("{parent}/"));
    }
    let cargo = std::env::var("CARGO_HOME").unwrap_or_else(|_| format!("{home}/.cargo"));
    let settings = [
        format!("{cargo}/config.toml"),
        format!("{home}/.npmrc"),
        format!("{home}/.config/pip/pip.conf"),
        "/etc/pip.conf".to_string(),
    ];
    for path in settings {
        words.extend(private_hosts(&std::fs::read_to_string(path).unwrap_or_default()));
    }
    for name in ["PIP_INDEX_URL", "NPM_CONFIG_REGISTRY"] {
        words.extend(private_hosts(&std::env::var(name).unwrap_or_default()));
    }
    words.sort();
    words.dedup();
    words
}

/// Returns the hosts of the web addresses in `text`, except public registries.
fn private_hosts(text: &str) -> Vec<String> {
    const PUBLIC: [&str; 4] = ["crates.io", "pypi.org", "npmjs.org", "github.com"];
    let hosts = text.split("://").skip(1).map(|rest| {
        let end = rest.find(|c: char| matches!(c, '/' | '"' | '\'') || c.is_whitespace());
        let authority = &rest[..end.unwrap_or(rest.len())];
        authority.rsplit('@').next().unwrap_or("").to_string()
    });
    hosts
        .filter(|h| h.len() > 4 && !PUBLIC.iter().any(|p| h == p || h.ends_with(&format!(".{p}"))))
        .collect()
}

/// Checks that relative links in Markdown files lead to a file, and to a heading of it if they name
/// one.
pub fn links(tree: &Tree, report: &mut Report) {
    for file in tree.files().filter(|f| f.path.ends_with(".md")) {
        let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
        let mut fenced = false;
        for (i, line) in file.text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            for target in link_targets(line).filter(|_| !fenced) {
                let path = plain(&folder.join(target));
                if !crate::root().join(&path).exists() {
                    report.add(&file.path, i + 1, format!("link leads nowhere: {target}"));
                }
            }
            for (target, heading) in heading_targets(line).filter(|_| !fenced) {
                let path = plain(&folder.join(target));
                let page = if target.is_empty() { Some(file) } else { page_of(tree, &path) };
                if page.is_some_and(|page| !has_heading(&page.text, heading)) {
                    report.add(&file.path, i + 1, format!("no such heading: {target}#{heading}"));
                }
            }
        }
    }
}

/// Checks that the paths of the repository that Markdown files write as code exist: those that
/// begin with a folder of the repository, or with the folder of a crate and `src`.
pub fn paths(tree: &Tree, report: &mut Report) {
    let known: BTreeSet<String> = tree.files().flat_map(|file| places(&file.path)).collect();
    let is_top = |name: &str| known.contains(name) && !name.contains('.');
    for file in tree.files().filter(|f| f.path.ends_with(".md")) {
        for (i, line) in file.text.lines().enumerate() {
            let code = line.split('`').skip(1).step_by(2).map(|path| path.trim_end_matches('/'));
            for path in code.filter(|path| path.contains('/') && path.chars().all(in_path)) {
                let (first, rest) = path.split_once('/').unwrap_or((path, ""));
                let whole = match rest.starts_with("src/") && !is_top(first) {
                    true => format!("crates/{path}"),
                    false => path.to_string(),
                };
                let ours = is_top(whole.split('/').next().unwrap_or_default());
                if ours && !known.contains(&whole) {
                    report.add(&file.path, i + 1, format!("there is no {whole}"));
                }
            }
        }
    }
}

/// Returns a file's path and the folders above it.
fn places(path: &str) -> impl Iterator<Item = String> + '_ {
    path.match_indices('/').map(|(at, _)| &path[..at]).chain([path]).map(str::to_string)
}

fn in_path(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-')
}

fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| {
        let target = rest.split([')', ' ', '#']).next()?;
        let local = !target.is_empty() && !target.contains(':');
        local.then_some(target)
    })
}

/// Returns file and heading of the links that name a heading.
fn heading_targets(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split("](").skip(1).filter_map(|rest| {
        let (target, heading) = rest.split([')', ' ']).next()?.split_once('#')?;
        (!target.contains(':')).then_some((target, heading))
    })
}

/// Returns the Markdown file of this path.
fn page_of<'a>(tree: &'a Tree, path: &Path) -> Option<&'a File> {
    tree.get(path.to_str()?).filter(|file| file.path.ends_with(".md"))
}

/// True if a heading of the page has this anchor. GitHub makes anchors of lower-case letters,
/// digits, `-` and `_`, with `-` for a space.
fn has_heading(text: &str, anchor: &str) -> bool {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || matches!(c, '-' | '_') => Some(c),
        _ => None,
    };
    let mut fenced = false;
    text.lines().any(|line| {
        fenced ^= line.trim_start().starts_with("```");
        let title = line.trim_start_matches('#');
        let is_heading = !fenced && title.len() < line.len() && title.starts_with(' ');
        is_heading && title.trim().to_lowercase().chars().filter_map(kept).eq(anchor.chars())
    })
}

/// Removes `.` and `..` from the path.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::Normal(p) => out.push(p),
            _ => {}
        }
    }
    out
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::testing::lines_of;
    use super::*;

    #[test]
    fn columns__counts_characters_and_spares_addresses() {
        let at_limit = "ä".repeat(100);
        let text = format!("{at_limit}\n{at_limit}x\n// https://{at_limit}\n");
        assert_eq!(lines_of(columns, &[("a.c", &text), ("a.md", &text)]), [2]);
    }

    #[test]
    fn leftovers__finds_the_word_and_not_a_part_of_it() {
        let text = format!("a\n// {}: later\n{}S\n", concat!("TO", "DO"), concat!("TO", "DO"));
        assert_eq!(lines_of(leftovers, &[("a.rs", &text)]), [2]);
        let stub = format!("fn a() {{ bail!(\"{}\") }}", concat!("not ", "implemented"));
        assert_eq!(lines_of(leftovers, &[("a.rs", &stub), ("a.md", &stub)]), [1]);
    }

    #[test]
    fn machine__finds_home_folders_at_the_start_of_a_path_only() {
        let text = format!("/{0}/me/x\nsrc/{0}/mod.rs\n", "home");
        assert_eq!(lines_of(machine, &[("a.md", &text)]), [1]);
    }

    #[test]
    fn private_hosts__leaves_out_the_public_ones() {
        let text = "a = \"https://index.crates.io/\"\nb = https://u:p@mirror.example.net:81/x";
        assert_eq!(private_hosts(text), ["mirror.example.net:81"]);
    }

    #[test]
    fn links__checks_relative_targets_outside_code() {
        let text = "[a](../Cargo.toml) [b](https://x.org)\n[c](nowhere.md#x)\n```\n[d](no)\n```\n";
        assert_eq!(lines_of(links, &[("docs/a.md", text)]), [2]);
    }

    #[test]
    fn paths__of_the_repository_exist() {
        let text = "`crates/a/src/lib.rs` and `a/src/lib.rs`\n`crates/b`, `a/src/gone.rs`\n\
                    `crates/a/` `usr/bin/x` `crates/<name>/src`\n";
        let files = [("docs/a.md", text), ("crates/a/src/lib.rs", "")];
        assert_eq!(lines_of(paths, &files), [2, 2]);
    }

    #[test]
    fn links__checks_headings_of_the_page_and_of_others() {
        let text =
            "# `weft`: Two words\n[a](#weft-two-words)\n[b](#two)\n[c](../README.md#first)\n\
                    [d](../README.md#second)\n[e](https://x.org/#y)\n";
        let other = "```\n# Second\n```\n## First\n#second\n";
        assert_eq!(lines_of(links, &[("docs/a.md", text), ("README.md", other)]), [3, 5]);
    }
}
