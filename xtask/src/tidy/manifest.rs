//! Rules about manifests, licences and the lock file.

use super::{Report, Tree};

/// Returns the non-empty lines of a manifest with their number and section, without comments.
fn entries(text: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    let mut section = "";
    text.lines().enumerate().filter_map(move |(i, line)| {
        let line = line.trim();
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
            return None;
        }
        (!line.is_empty() && !line.starts_with('#')).then_some((i + 1, section, line))
    })
}

/// Returns line and name of the dependencies of a crate's own code (not of its tests or build
/// script).
pub fn dependencies(text: &str) -> Vec<(usize, String)> {
    let of_code = |s: &str| s == "dependencies" || s.ends_with(".dependencies");
    let name_of =
        |line: &str| line.split(['.', '=', ' ']).next().unwrap_or("").trim_matches('"').to_string();
    let direct = entries(text).filter(|(_, s, _)| of_code(s)).map(|(i, _, l)| (i, name_of(l)));
    let tables = text.lines().enumerate().filter_map(|(i, line)| {
        let name = line.trim().strip_prefix("[dependencies.")?.strip_suffix(']')?;
        Some((i + 1, name.to_string()))
    });
    direct.chain(tables).collect()
}

/// Returns the package name in a manifest.
pub fn package_name(text: &str) -> Option<&str> {
    let name = |l: &'_ str| l.starts_with("name");
    let (_, _, line) = entries(text).find(|(_, s, l)| *s == "package" && name(l))?;
    line.split('"').nth(1)
}

/// Returns the values of `path = "..."` in the target sections of a manifest.
pub fn target_paths(text: &str) -> Vec<&str> {
    const TARGETS: [&str; 5] = ["lib", "bin", "test", "bench", "example"];
    entries(text)
        .filter(|(_, s, l)| TARGETS.contains(s) && l.starts_with("path"))
        .filter_map(|(_, _, l)| l.split('"').nth(1))
        .collect()
}

/// Checks that every crate takes the workspace's lints, and that these require `SAFETY` comments.
pub fn lints(tree: &Tree, report: &mut Report) {
    for file in tree.files().filter(|f| f.path.ends_with("Cargo.toml")) {
        let has = |section: &str, key: &str, value: &str| {
            entries(&file.text)
                .any(|(_, s, l)| s == section && l.starts_with(key) && l.ends_with(value))
        };
        if file.path == "Cargo.toml" {
            let lint = "undocumented_unsafe_blocks";
            if !has("workspace.lints.clippy", lint, "\"deny\"") {
                report.add(&file.path, 0, format!("clippy's {lint} is not denied"));
            }
        } else if package_name(&file.text).is_some()
            && !file.text.contains("\n[workspace]")
            && !has("lints", "workspace", "true")
        {
            report.add(&file.path, 0, "does not take the workspace's lints");
        }
    }
}

/// Checks that both licence texts exist and every crate names them.
pub fn licences(tree: &Tree, report: &mut Report) {
    const TEXTS: [(&str, &str); 2] =
        [("LICENSE-MIT", "Permission is hereby granted"), ("LICENSE-APACHE", "Apache License")];
    for (path, words) in TEXTS {
        if !tree.get(path).is_some_and(|f| f.text.contains(words)) {
            report.add(path, 0, "licence text is missing");
        }
    }
    for file in tree.files().filter(|f| f.path.ends_with("/Cargo.toml")) {
        let names_it =
            entries(&file.text).any(|(_, s, l)| s == "package" && l.starts_with("license"));
        if !names_it {
            report.add(&file.path, 0, "names no licence");
        }
    }
}

/// Checks that dependencies come from crates.io alone.
pub fn lockfile(tree: &Tree, report: &mut Report) {
    let public = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
    for file in tree.files().filter(|f| f.path.ends_with("Cargo.lock")) {
        for (i, line) in file.text.lines().enumerate() {
            if line.starts_with("source = ") && line != public {
                report.add(&file.path, i + 1, "dependency from elsewhere than crates.io");
            }
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::testing::messages;
    use super::*;

    const GOOD: &str =
        "[package]\nname = \"a\"\nlicense.workspace = true\n[lints]\nworkspace = true\n";

    #[test]
    fn dependencies__all_spellings() {
        let text = "[dependencies]\na = \"1\"\nb.workspace = true\n\"c\" = { path = \"x\" }\n\
                    [dev-dependencies]\nd = \"1\"\n[target.'cfg(loom)'.dependencies]\n\
                    loom = \"1\"\n\
                    [dependencies.e]\nversion = \"1\"\n";
        let names: Vec<String> = dependencies(text).into_iter().map(|(_, n)| n).collect();
        assert_eq!(names, ["a", "b", "c", "loom", "e"]);
    }

    #[test]
    fn lints__every_crate_inherits() {
        assert_eq!(messages(lints, &[("a/Cargo.toml", GOOD)]).len(), 0);
        assert_eq!(messages(lints, &[("a/Cargo.toml", "[package]\nname = \"a\"\n")]).len(), 1);
        let root = "[workspace.lints.clippy]\nundocumented_unsafe_blocks = \"deny\"\n";
        assert_eq!(messages(lints, &[("Cargo.toml", root)]).len(), 0);
        assert_eq!(messages(lints, &[("Cargo.toml", "[workspace]\n")]).len(), 1);
    }

    #[test]
    fn licences__texts_and_fields() {
        let texts =
            [("LICENSE-MIT", "Permission is hereby granted"), ("LICENSE-APACHE", "Apache License")];
        assert_eq!(messages(licences, &texts).len(), 0);
        assert_eq!(messages(licences, &[texts[0], texts[1], ("a/Cargo.toml", GOOD)]).len(), 0);
        assert_eq!(messages(licences, &[("a/Cargo.toml", "[package]\nname = \"a\"\n")]).len(), 3);
    }

    #[test]
    fn lockfile__foreign_sources_are_named() {
        let good = "source = \"registry+https://github.com/rust-lang/crates.io-index\"\n";
        assert_eq!(messages(lockfile, &[("Cargo.lock", good)]).len(), 0);
        assert_eq!(
            messages(lockfile, &[("Cargo.lock", "source = \"git+https://x.org/y\"\n")]).len(),
            1
        );
    }
}
