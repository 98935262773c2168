//! Rules about weight: the share of `sys` modules in a crate, and the lines that the first command
//! of a newcomer builds.

use super::manifest::{dependencies, package_name};
use super::{Report, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// The largest share of `sys` modules in the lines of a crate, in percent: `unsafe` is small there.
const MAX_SHARE: usize = 30;

/// The crate that `cargo run` builds, with all that it builds on.
const FIRST: &str = "tools/cli/";
/// The largest number of lines in the crates of the default build.
const MAX_FIRST: usize = 161_000;

/// Returns the folder of each crate, with its name.
fn crates(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    tree.files().filter_map(|file| {
        let folder = file.path.strip_suffix("Cargo.toml").filter(|folder| !folder.is_empty())?;
        Some((folder, package_name(&file.text)?))
    })
}

/// Returns the lines of a crate's code, and those of its `sys` modules.
fn lines(tree: &Tree, folder: &str) -> (usize, usize) {
    let source = format!("{folder}src/");
    let of_code = tree.rust().filter(|f| f.path.starts_with(&source) && !f.is_test());
    of_code.fold((0, 0), |(all, of_sys), file| {
        let count = file.text.lines().count();
        let in_sys = file.path.split('/').any(|part| part == "sys" || part == "sys.rs");
        (all + count, of_sys + if in_sys { count } else { 0 })
    })
}

/// Checks that system calls and pointers are a small part of a crate.
pub fn shares(tree: &Tree, report: &mut Report) {
    for (folder, _) in crates(tree) {
        let (all, of_sys) = lines(tree, folder);
        if of_sys * 100 > all * MAX_SHARE {
            let share = (of_sys * 100).div_ceil(all);
            let message = format!("{share} % of its lines are `sys`, at most {MAX_SHARE} %");
            report.add(&format!("{folder}Cargo.toml"), 0, message);
        }
    }
}

/// Checks the number of lines in the crates of the default build.
pub fn first_build(tree: &Tree, report: &mut Report) {
    let folders: BTreeMap<&str, &str> = crates(tree).map(|(folder, name)| (name, folder)).collect();
    let (mut built, mut next) = (BTreeSet::new(), vec![FIRST]);
    while let Some(folder) = next.pop() {
        let Some(manifest) = tree.get(&format!("{folder}Cargo.toml")) else { continue };
        if built.insert(folder) {
            let names = dependencies(&manifest.text);
            next.extend(names.iter().filter_map(|(_, name)| folders.get(name.as_str())));
        }
    }
    let total: usize = built.iter().map(|folder| lines(tree, folder).0).sum();
    if total > MAX_FIRST {
        let message = format!("the default build has {total} lines, at most {MAX_FIRST}");
        report.add(&format!("{FIRST}Cargo.toml"), 0, message);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::testing::messages;
    use super::*;

    #[test]
    fn shares__three_tenths_pass_and_one_line_more_does_not() {
        let files = |sys| {
            let rest = "//\n".repeat(10 - sys);
            let of_sys = "//\n".repeat(sys);
            let manifest = ("a/Cargo.toml", "[package]\nname = \"a\"\n");
            let tests = ("a/src/sys/tests.rs", "//\n//\n");
            let of = [manifest, tests, ("a/src/lib.rs", &rest), ("a/src/sys.rs", &of_sys)];
            messages(shares, &of)
        };
        assert_eq!(files(3), [""; 0]);
        assert_eq!(files(4), ["40 % of its lines are `sys`, at most 30 %"]);
    }

    #[test]
    fn first_build__counts_what_the_command_builds_on() {
        let cli = "[package]\nname = \"c\"\n[dependencies]\na = { workspace = true }\n\
                   [dev-dependencies]\nb = { path = \"../b\" }\n";
        let long = "//\n".repeat(MAX_FIRST);
        let files = |inside: &str| {
            let code = [("tools/cli/src/main.rs", "//\n"), (inside, long.as_str())];
            let a = ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n");
            let b = ("crates/b/Cargo.toml", "[package]\nname = \"b\"\n");
            messages(first_build, &[("tools/cli/Cargo.toml", cli), a, b, code[0], code[1]]).len()
        };
        assert_eq!(files("crates/a/src/lib.rs"), 1);
        assert_eq!(files("crates/b/src/lib.rs"), 0);
    }
}
