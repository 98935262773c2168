//! The rule that the engine's methods are of four kinds, and that its documentation lists them.

use super::{File, Report, Tree};
use std::collections::BTreeMap;

const FOLDER: &str = "crates/weft-core/src/engine/";
const LIST: &str = "crates/weft-core/src/engine/mod.rs";

/// The kinds, as the list in the documentation of the engine names them.
const KINDS: [&str; 4] = ["Commands", "Handlers", "Polls", "Getters"];

/// Checks that each public method of the engine stands in the list of its kind. A name tells the
/// kinds `handle_*` and `poll_*`; of the others, a getter changes nothing.
pub fn kinds(tree: &Tree, report: &mut Report) {
    let Some(list) = tree.get(LIST) else { return };
    let mut listed = listed(list);
    let in_engine = |f: &&File| f.path.starts_with(FOLDER) && !f.is_test();
    for file in tree.rust().filter(in_engine) {
        for (name, line, kind) in methods(file) {
            match listed.remove(&name) {
                Some((_, found)) if found == kind => {}
                Some((at, _)) => report.add(LIST, at, format!("`{name}` belongs to {kind}")),
                None => report.add(&file.path, line, format!("{LIST} lists no `{name}`: {kind}")),
            }
        }
    }
    for (name, (line, _)) in listed {
        report.add(LIST, line, format!("the engine has no public method `{name}`"));
    }
}

/// Returns the methods that the module's documentation lists, each with its line and kind.
fn listed(file: &File) -> BTreeMap<String, (usize, &'static str)> {
    let mut found = BTreeMap::new();
    let mut kind = None;
    let text = file.text.lines().map_while(|line| line.strip_prefix("//!")).enumerate();
    for (i, line) in text {
        let begun = KINDS.iter().find(|kind| line.starts_with(&format!(" - **{kind}**")));
        let goes_on = line.starts_with("   ");
        kind = begun.copied().or(kind.filter(|_| goes_on));
        let Some(kind) = kind else { continue };
        for name in line.split('`').skip(1).step_by(2) {
            found.insert(name.to_string(), (i + 1, kind));
        }
    }
    found
}

/// Returns the public methods of `impl Engine` in a file, each with its line and kind.
fn methods(file: &File) -> Vec<(String, usize, &'static str)> {
    let tokens = &file.tokens;
    let mut found = Vec::new();
    for i in 0..tokens.len().saturating_sub(2) {
        let is_engine = tokens[i].is("impl") && tokens[i + 1].is("Engine");
        let Some(end) = tokens[i + 2].opens('{').filter(|_| is_engine) else { continue };
        for at in i + 3..end - 3 {
            let public = tokens[at].is("pub") && tokens[at + 1].is("fn");
            let Some(name) = tokens[at + 2].ident().filter(|_| public) else { continue };
            let arguments = tokens[at + 3..end].iter().find_map(|token| token.opens('('));
            let mut arguments = tokens[at + 3..arguments.unwrap_or(at + 3)].iter();
            let by_shared = arguments.any(|token| token.is("self")) && {
                let mut until = tokens[at + 3..].iter().take_while(|token| !token.is("self"));
                !until.any(|token| token.is("mut"))
            };
            let kind = match () {
                () if name.starts_with("handle_") => "Handlers",
                () if name.starts_with("poll_") => "Polls",
                () if by_shared => "Getters",
                () => "Commands",
            };
            found.push((name.to_string(), tokens[at].line, kind));
        }
    }
    found
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::testing;
    use super::*;

    const CODE: &str = "impl Engine { pub fn new(mut cfg: C) -> E {} pub fn id(&self) -> u8 {}\n\
        pub fn send(&mut self, a: u8) {} pub(super) fn inner(&self) {} fn own(&self) {} }\n\
        impl Other { pub fn else_where(&self) {} }\n\
        impl Engine { pub fn handle_packet(&mut self) {} pub fn poll_event(&mut self) {} }\n";

    fn faults(list: &str) -> Vec<(usize, String)> {
        let report = testing::found(kinds, &[(LIST, &format!("{list}{CODE}"))]);
        report.findings().iter().map(|f| (f.line, f.message.clone())).collect()
    }

    #[test]
    fn kinds__each_method_stands_in_the_list_of_its_kind() {
        let list =
            "//! - **Commands**: `new`,\n//!   `send`\n//! - **Handlers**: `handle_packet`\n\
            //! - **Polls**: `poll_event`\n//! - **Getters**: `id`\n//!\n//! See `other`.\n";
        assert_eq!(faults(list), []);
        let wrong = list.replace("`id`", "`id`, `gone`, `new`").replace("`new`,\n", "\n");
        let found: Vec<usize> = faults(&wrong).iter().map(|(line, _)| *line).collect();
        assert_eq!(found, [5, 5], "one that is not there, one of another kind");
        let missing = faults(&list.replace("`send`", ""));
        assert_eq!(missing.len(), 1);
        assert!(missing[0].1.ends_with("lists no `send`: Commands"), "{missing:?}");
    }
}
