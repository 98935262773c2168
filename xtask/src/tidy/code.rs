//! Rules about Rust code.

use super::lex::{self, Kind};
use super::{File, Report, Tree};

const MAX_FUNCTION: usize = 70;
const MAX_FILE: usize = 800;

/// Files outside `sys` modules that may hold `unsafe`, each small and reviewed as a whole.
const UNSAFE_FILES: [&str; 1] = ["crates/weft-link/src/bytes.rs"];

/// Checks that functions fit a screen.
pub fn functions(tree: &Tree, report: &mut Report) {
    for file in tree.rust() {
        for f in lex::functions(&file.tokens) {
            let lines = f.lines.end() - f.lines.start() + 1;
            if lines > MAX_FUNCTION {
                let message = format!("`{}` has {lines} lines, at most {MAX_FUNCTION}", f.name);
                report.add(&file.path, *f.lines.start(), message);
            }
        }
    }
}

/// Checks the length of files, without their tests.
pub fn files(tree: &Tree, report: &mut Report) {
    for file in tree.rust().filter(|f| !f.is_test()) {
        let tests: usize = file
            .test_items
            .iter()
            .map(|r| file.tokens[*r.end()].line - file.tokens[*r.start()].line + 1)
            .sum();
        let lines = file.text.lines().count() - tests;
        if lines > MAX_FILE {
            report.add(&file.path, 0, format!("{lines} lines without tests, at most {MAX_FILE}"));
        }
    }
}

/// Checks that `unsafe` stands in `sys` modules only. (Clippy checks the reason of each block.)
pub fn unsafe_places(tree: &Tree, report: &mut Report) {
    for file in tree.rust() {
        let in_sys = file.path.split('/').any(|p| p == "sys" || p == "sys.rs");
        if in_sys || UNSAFE_FILES.contains(&file.path.as_str()) {
            continue;
        }
        for token in file.tokens.iter().filter(|t| t.is("unsafe")) {
            report.add(&file.path, token.line, "`unsafe` outside a `sys` module");
        }
    }
}

/// Checks that no code is left to be written later.
pub fn unfinished(tree: &Tree, report: &mut Report) {
    for file in tree.rust() {
        for pair in file.tokens.windows(2) {
            let stub = pair[0].is("todo") || pair[0].is("unimplemented");
            if stub && pair[1].is_punct('!') {
                report.add(&file.path, pair[0].line, "unfinished code");
            }
        }
    }
}

/// Checks that an ignored test names its reason.
pub fn ignored(tree: &Tree, report: &mut Report) {
    for file in tree.rust() {
        for three in file.tokens.windows(3) {
            let bare = three[0].opens('[').is_some()
                && three[1].is("ignore")
                && matches!(three[2].kind, Kind::Close('['));
            if bare {
                report.add(&file.path, three[1].line, "ignored test without a reason");
            }
        }
    }
}

/// Checks that tests wait for an event, not for time to pass. Examples are programs, not tests.
pub fn sleeps(tree: &Tree, report: &mut Report) {
    for file in tree.rust().filter(|f| !f.path.split('/').any(|p| p == "examples")) {
        for (i, four) in file.tokens.windows(4).enumerate() {
            let sleep = four[0].is("thread") && four[1].is_punct(':') && four[3].is("sleep");
            if sleep && (file.is_test() || file.in_test_item(i)) {
                report.add(&file.path, four[0].line, "sleep in a test");
            }
        }
    }
}

/// Checks that tests read as `function__case`.
pub fn test_names(tree: &Tree, report: &mut Report) {
    for file in tree.rust() {
        for (i, four) in file.tokens.windows(4).enumerate() {
            let attribute =
                four[0].is_punct('#') && four[1].opens('[') == Some(i + 3) && four[2].is("test");
            if !attribute {
                continue;
            }
            let name = file.tokens[i + 4..].windows(2).find(|w| w[0].is("fn"));
            if let Some(name) = name.and_then(|w| w[1].ident()).filter(|n| !n.contains("__")) {
                let message = format!("test `{name}` is not named function__case");
                report.add(&file.path, four[0].line, message);
            }
        }
    }
}

/// Crates that are state machines, each with the crates that it may depend on.
const PURE: [(&str, &[&str]); 3] = [
    ("crates/weft-core/", &[]),
    ("crates/weft-mxoe/", &[]),
    ("crates/weft-names/", &["weft-core"]),
];

/// Checks that the state machines cannot reach the operating system and have no container of random
/// order.
pub fn purity(tree: &Tree, report: &mut Report) {
    for (root, may) in PURE {
        pure(tree, root, may, report);
    }
}

fn pure(tree: &Tree, root: &str, may: &[&str], report: &mut Report) {
    let lib = format!("{root}src/lib.rs");
    if let Some(file) = tree.get(&lib) {
        for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            if !file.text.lines().any(|l| l == attribute) {
                report.add(&lib, 1, format!("{attribute} is missing"));
            }
        }
    }
    if let Some(file) = tree.get(&format!("{root}Cargo.toml")) {
        for (line, name) in super::manifest::dependencies(&file.text) {
            if !may.contains(&name.as_str()) {
                report.add(&file.path, line, format!("a state machine must not depend on {name}"));
            }
        }
    }
    let source = format!("{root}src/");
    for file in tree.rust().filter(|f| f.path.starts_with(&source) && !f.is_test()) {
        impure_names(file, report);
    }
}

fn impure_names(file: &File, report: &mut Report) {
    for (i, token) in file.tokens.iter().enumerate() {
        let Some(name) = token.ident() else { continue };
        let reaches_out = matches!(name, "std" | "HashMap" | "HashSet" | "include_bytes" | "env");
        if reaches_out && !file.in_test_item(i) {
            report.add(&file.path, token.line, format!("`{name}` in a state machine"));
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::testing::messages;
    use super::super::Rule;
    use super::*;

    fn count(rule: Rule, path: &str, text: &str) -> usize {
        messages(rule, &[(path, text)]).len()
    }

    #[test]
    fn functions__seventy_lines_pass_and_one_more_does_not() {
        let body = |n: usize| format!("fn f() {{\n{}}}\n", "g();\n".repeat(n));
        assert_eq!(count(functions, "a.rs", &body(68)), 0);
        assert_eq!(count(functions, "a.rs", &body(69)), 1);
    }

    #[test]
    fn files__tests_do_not_count() {
        let code = "fn f() {}\n".repeat(800);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "fn f() {}\n".repeat(50));
        assert_eq!(count(files, "src/a.rs", &(code.clone() + &tests)), 0);
        assert_eq!(count(files, "src/a.rs", &(code.clone() + "fn g() {}\n")), 1);
        assert_eq!(count(files, "tests/a.rs", &(code + "fn g() {}\n")), 0);
    }

    #[test]
    fn unsafe_places__sys_modules_only() {
        let text = "// unsafe in words\nfn f() { unsafe { g() } }";
        assert_eq!(count(unsafe_places, "src/a.rs", text), 1);
        assert_eq!(count(unsafe_places, "src/shm/sys.rs", text), 0);
        assert_eq!(count(unsafe_places, "src/shm/sys/map.rs", text), 0);
        assert_eq!(count(unsafe_places, "src/a.rs", "macro_rules! m { () => { unsafe {} } }"), 1);
    }

    #[test]
    fn unfinished__stubs_are_found() {
        assert_eq!(count(unfinished, "a.rs", "fn f() { todo!() }"), 1);
        assert_eq!(count(unfinished, "a.rs", "fn todo() { \"unimplemented!()\"; }"), 0);
    }

    #[test]
    fn ignored__needs_a_reason() {
        assert_eq!(count(ignored, "a.rs", "#[ignore] fn f() {}"), 1);
        assert_eq!(count(ignored, "a.rs", "#[ignore = \"needs root\"] fn f() {}"), 0);
    }

    #[test]
    fn sleeps__only_in_tests() {
        let text = "fn f() { std::thread::sleep(D) }";
        assert_eq!(count(sleeps, "src/a.rs", text), 0);
        assert_eq!(count(sleeps, "tests/a.rs", text), 1);
        let inside = format!("#[cfg(test)] mod tests {{ {text} }}");
        assert_eq!(count(sleeps, "src/a.rs", &inside), 1);
    }

    #[test]
    fn test_names__want_two_underscores() {
        assert_eq!(count(test_names, "a.rs", "#[test] fn parse__short() {}"), 0);
        assert_eq!(count(test_names, "a.rs", "#[test] #[allow(x)] fn parse_short() {}"), 1);
    }

    #[test]
    fn purity__std_is_for_tests_only() {
        let path = "crates/weft-core/src/a.rs";
        assert_eq!(count(purity, path, "use core::fmt; use alloc::vec::Vec;"), 0);
        assert_eq!(count(purity, path, "use std::time::Instant;"), 1);
        assert_eq!(count(purity, path, "#[cfg(test)] mod tests { extern crate std; }"), 0);
        assert_eq!(count(purity, "crates/weft-core/src/lib.rs", "#![no_std]\n"), 1);
        let manifest = "[package]\n[dependencies]\nlibc = \"1\"\n";
        assert_eq!(count(purity, "crates/weft-core/Cargo.toml", manifest), 1);
        let manifest = "[package]\n[dependencies]\nweft-core = \"1\"\nlibc = \"1\"\n";
        assert_eq!(count(purity, "crates/weft-names/Cargo.toml", manifest), 1);
    }
}
