//! The page of results: rows and remarks of the consumers that ran, and those that it had before of
//! others.

use super::site::Site;
use crate::run::output_of;
use std::path::Path;
use std::process::Command;

/// The page.
const RESULTS: &str = "docs/results/consumers.md";

/// The openings of remarks that the suite makes; a new run replaces those. Others are by hand, and
/// stay.
pub const OPENINGS: [&str; 4] =
    ["not run: ", "failed over weft: ", "fails likewise without weft: ", "not between hosts: "];

/// Text before the table.
const HEAD: &str = "\
# Programs of others over weft

Tests of other projects, unmodified, from Debian, PyPI or builds by hand, over weft's libfabric
provider between all ranks. `cargo xtask test --suite consumers --write` installs and runs them, and
writes this page; `cargo xtask test --suite consumers NAME` runs one. [The
guide](../guide/consumers.md) says how to start such programs.

\"Own\" counts the tests that fail without weft in the same way, in one of up to three runs over the
MPI's own transport: shared memory inside a host, TCP between two. \"Failed\" counts the tests that
fail over weft alone, \"skipped\" the tests that their suite leaves out itself. Two and four
hosts are hosts of `weft lab`, each with as many of the ranks. A row is of the day in its last
column.

";

/// The titles of the table.
const TITLES: &str = "\
| consumer | over | hosts | tests | passed | own | failed | skipped | s | on |
| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |
";

/// The rows and remarks of a consumer that has run.
struct Parts {
    rows: String,
    list: String,
}

/// Writes the results of all consumers that were ever run with this cache; rows of others stay.
///
/// # Errors
/// The file cannot be written.
pub fn write(site: &Site, names: &[&str]) -> Result<(), String> {
    let folder = site.cache.join("reports");
    let path = crate::root().join(RESULTS);
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    let parts: Vec<Option<Parts>> = names.iter().map(|name| read(&folder, name)).collect();
    let text = merged(&old, &machine(site), names, &parts);
    std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    println!("\nwritten: {}", path.display());
    Ok(())
}

/// Reads the report of a consumer, if it has run.
fn read(folder: &Path, name: &str) -> Option<Parts> {
    let part = |part| std::fs::read_to_string(folder.join(format!("{name}.{part}"))).ok();
    Some(Parts { rows: part("rows")?, list: part("list")? })
}

/// Returns the items of a page's list, each with its further lines.
fn items(page: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    let lines = page.lines().skip_while(|line| !line.starts_with("- *"));
    for line in lines.take_while(|line| !line.starts_with('#')) {
        match items.last_mut() {
            Some(item) if line.starts_with("  ") => item.push_str(&format!("{line}\n")),
            _ if line.starts_with("- *") => items.push(format!("{line}\n")),
            _ => {}
        }
    }
    items
}

/// Returns true for a remark that the suite made.
fn is_made(item: &str) -> bool {
    let text = item.split_once("*: ").map_or("", |(_, text)| text);
    OPENINGS.iter().any(|opening| text.starts_with(opening))
}

/// Returns the page with the parts of the consumers that ran, and everything else of the old one.
fn merged(old: &str, machine: &str, names: &[&str], parts: &[Option<Parts>]) -> String {
    let old_items = items(old);
    let (mut rows, mut list) = (String::new(), String::new());
    for (name, parts) in names.iter().zip(parts) {
        let is_row = |line: &&str| line.starts_with(&format!("| {name} "));
        let of = |item: &&String| item.starts_with(&format!("- *{name}*"));
        let kept = |item: &&String| of(item) && (parts.is_none() || !is_made(item));
        match parts {
            Some(parts) => rows.push_str(&parts.rows),
            None => rows.extend(old.lines().filter(is_row).map(|line| format!("{line}\n"))),
        }
        list.extend(old_items.iter().filter(kept).cloned());
        list.extend(parts.iter().map(|parts| parts.list.as_str()));
    }
    let rest = old.find("\n## ").map_or("", |at| &old[at..]);
    format!("{HEAD}{machine}\n\n{TITLES}{rows}\n{list}{rest}")
}

/// Returns a sentence on date, version and machine.
fn machine(site: &Site) -> String {
    let of = |program: &str, word: &str| {
        output_of(Command::new(program).arg(word)).unwrap_or_default().trim().to_string()
    };
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        processors.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "Last run on {}: {}, {} ({cores} cores), Linux {}.",
        of("date", "+%F"),
        site.version(),
        model.unwrap_or("an unknown processor"),
        of("uname", "-r")
    )
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn merged__keeps_what_did_not_run_and_what_is_by_hand() {
        let old = "\
# Title

| consumer |
| --- |
| one 1 | old |
| two 2 | old |

- *one*: not run: why
- *one*: by hand,
  two lines
- *two*: failed over weft: x

## Goals

- *no remark*
";
        let one = Parts { rows: "| one 3 | new |\n".into(), list: "- *one*: not run: y\n".into() };
        let page = merged(old, "machine", &["one", "two"], &[Some(one), None]);
        let (_, table) = page.split_once("---").unwrap();
        let expected = "| one 3 | new |\n| two 2 | old |\n\n- *one*: by hand,\n  two lines\n\
                        - *one*: not run: y\n- *two*: failed over weft: x\n\n## Goals\n\n\
                        - *no remark*\n";
        assert!(table.ends_with(expected), "{page}");
        let again = merged(&page, "machine", &["one", "two"], &[None, None]);
        assert_eq!(again, page);
    }

    #[test]
    fn is_made__by_the_suite() {
        assert!(is_made("- *x*: failed over weft: a\n"));
        assert!(!is_made("- *x 1.2*, by hand: 3 of 4\n") && !is_made("- *x*: built by hand\n"));
    }
}
