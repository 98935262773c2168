//! The commit that installed programs print beside their version.

use crate::run::output_of;
use std::path::Path;
use std::process::Command;

/// The variable by which the compiler learns the commit: `weft --version` prints it.
pub const VARIABLE: &str = "WEFT_COMMIT";

/// Git writes the commit into this file when it makes an archive.
const ARCHIVED: &str = "dist/commit";

/// Returns the commit that a build of the sources in `root` prints: that of the environment, else
/// that of the sources.
pub fn commit(root: &Path) -> Option<String> {
    std::env::var(VARIABLE).ok().or_else(|| of_sources(root)).filter(|commit| !commit.is_empty())
}

/// Returns the commit of the sources in `root`, with `-dirty` where tracked files were changed:
/// from Git, or from the file in a source archive.
pub fn of_sources(root: &Path) -> Option<String> {
    let found = match root.join(".git").exists() {
        true => described(root),
        false => archived(&std::fs::read_to_string(root.join(ARCHIVED)).ok()?),
    };
    found.map(|commit| commit.trim().to_owned())
}

fn described(root: &Path) -> Option<String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(root).args(["describe", "--always", "--dirty", "--exclude", "*"]);
    output_of(&mut git)
}

/// Returns the commit in the text of the file, unless it is still the pattern.
fn archived(text: &str) -> Option<String> {
    (!text.contains('$')).then(|| text.to_owned())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn archived__the_pattern_is_no_commit() {
        assert_eq!(archived("$Format:%h$\n"), None);
        assert_eq!(archived("abc1234\n").as_deref(), Some("abc1234\n"));
    }

    #[test]
    fn archived__git_writes_the_file() {
        let file = |name: &str| std::fs::read_to_string(crate::root().join(name));
        let attributes = file(".gitattributes").unwrap_or_default();
        assert!(attributes.contains(&format!("{ARCHIVED} export-subst")), "{attributes}");
        assert!(file(ARCHIVED).is_ok());
    }
}
