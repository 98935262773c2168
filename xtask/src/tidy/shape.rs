//! Rules about the shape of types: a struct has few fields, a type few public methods.

use super::lex::{Kind, Token};
use super::{File, Report, Tree};
use std::collections::BTreeMap;

const MAX_FIELDS: usize = 15;
const MAX_METHODS: usize = 40;
/// The beginning of the sentence in a struct's documentation that says why it has more fields.
const REASON: &str = "More than 15 fields:";

/// Checks that a struct has at most 15 fields, or says why.
pub fn fields(tree: &Tree, report: &mut Report) {
    for file in tree.rust().filter(|f| !f.is_test()) {
        for (name, at, fields) in structs(file) {
            let line = file.tokens[at].line;
            if fields <= MAX_FIELDS || documents(file, line).contains(REASON) {
                continue;
            }
            let message = format!("`{name}` has {fields} fields, at most {MAX_FIELDS}");
            report.add(&file.path, line, format!("{message}; or `{REASON}` and why"));
        }
    }
}

/// Checks that a type has at most 40 public methods.
pub fn methods(tree: &Tree, report: &mut Report) {
    let files = || tree.rust().filter(|f| !f.is_test());
    let mut types: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for file in files() {
        for name in defined(file) {
            *types.entry((home(file, false), name)).or_default() += 1;
        }
    }
    let mut found: BTreeMap<(&str, String), (usize, &str, usize)> = BTreeMap::new();
    for file in files() {
        for (name, line, methods) in inherent(file) {
            // Private types of different modules may share a name.
            let shared = types.get(&(home(file, false), name.as_str())).is_some_and(|n| *n > 1);
            let count = found.entry((home(file, shared), name)).or_insert((0, &file.path, line));
            count.0 += methods;
        }
    }
    for ((_, name), (methods, path, line)) in &found {
        if *methods > MAX_METHODS {
            let message = format!("`{name}` has {methods} public methods, at most {MAX_METHODS}");
            report.add(path, *line, message);
        }
    }
}

/// Returns the folder of the crate that a file belongs to, or of its module there.
fn home(file: &File, module: bool) -> &str {
    let source = file.path.find("/src/").map_or(0, |at| at + "/src/".len());
    let rest = &file.path[source..];
    &file.path[..source + rest.find('/').filter(|_| module).unwrap_or(0)]
}

/// Returns the names of the types that a file defines.
fn defined(file: &File) -> impl Iterator<Item = &str> {
    let is_type = |token: &Token| ["struct", "enum", "union"].iter().any(|kind| token.is(kind));
    file.tokens.windows(2).filter(move |pair| is_type(&pair[0])).filter_map(|pair| pair[1].ident())
}

/// Returns the structs with named fields: name, index of the name, and number of fields.
fn structs(file: &File) -> Vec<(&str, usize, usize)> {
    let tokens = &file.tokens;
    let mut found = Vec::new();
    for at in 1..tokens.len() {
        let Some(name) = tokens[at].ident().filter(|_| tokens[at - 1].is("struct")) else {
            continue;
        };
        if file.in_test_item(at) {
            continue;
        }
        let rest = tokens.iter().enumerate().skip(at + 1);
        let end = rest.clone().find(|(_, t)| t.is_punct(';') || t.opens('{').is_some());
        if let Some((open, close)) = end.and_then(|(open, t)| Some((open, t.opens('{')?))) {
            found.push((name, at, count(tokens, open + 1, close)));
        }
    }
    found
}

/// Returns the number of fields between these tokens: of colons that follow a name outside of
/// brackets and of other paths.
fn count(tokens: &[Token], from: usize, to: usize) -> usize {
    let (mut fields, mut at, mut angle) = (0, from, 0i32);
    while at < to {
        let colon = tokens[at].is_punct(':') && angle == 0;
        let of_path = tokens[at - 1].is_punct(':') || tokens[at + 1].is_punct(':');
        fields += usize::from(colon && !of_path);
        match tokens[at].kind {
            Kind::Punct('<') => angle += 1,
            Kind::Punct('>') if !tokens[at - 1].is_punct('-') => angle -= 1,
            Kind::Open(_, mate) => at = mate,
            _ => {}
        }
        at += 1;
    }
    fields
}

/// Returns the documentation above a line as one line of text.
fn documents(file: &File, line: usize) -> String {
    let lines: Vec<&str> = file.text.lines().take(line - 1).collect();
    let above = lines.iter().rev().map(|line| line.trim_start());
    let mut above: Vec<&str> =
        above.take_while(|line| line.starts_with("//") || line.starts_with("#[")).collect();
    above.reverse();
    above.iter().map(|line| line.trim_start_matches('/').trim()).collect::<Vec<_>>().join(" ")
}

/// Returns the types of `impl Type { … }` blocks: name, line, and number of public methods.
fn inherent(file: &File) -> Vec<(String, usize, usize)> {
    let tokens = &file.tokens;
    let mut found = Vec::new();
    for at in (0..tokens.len()).filter(|&at| tokens[at].is("impl") && !file.in_test_item(at)) {
        let head = tokens.iter().enumerate().skip(at + 1);
        let Some((open, close)) =
            head.take_while(|(_, t)| !t.is_punct(';')).find_map(|(i, t)| Some((i, t.opens('{')?)))
        else {
            continue;
        };
        let head = &tokens[at + 1..open];
        if head.iter().any(|token| token.is("for")) {
            continue;
        }
        let Some(name) = subject(head) else { continue };
        let public = (open + 1..close).filter(|&i| tokens[i].is("pub"));
        let is_method = |&i: &usize| {
            let until = tokens[i + 1..close].iter().take_while(|t| t.ident().is_some());
            until.take(4).any(|t| t.is("fn"))
        };
        found.push((name.to_string(), tokens[at].line, public.filter(is_method).count()));
    }
    found
}

/// Returns the type that the head of an `impl` names: the first name outside of its generics.
fn subject(head: &[Token]) -> Option<&str> {
    let mut angle = 0i32;
    let start = head.iter().position(|token| {
        match token.kind {
            Kind::Punct('<') => angle += 1,
            Kind::Punct('>') => angle -= 1,
            Kind::Ident(_) => return angle == 0,
            _ => {}
        }
        false
    })?;
    head[start].ident()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::testing::messages;
    use super::super::Rule;
    use super::*;

    fn faults(rule: Rule, text: &str) -> Vec<String> {
        messages(rule, &[("crates/a/src/lib.rs", text)])
    }

    fn of_fields(count: usize) -> String {
        (0..count)
            .map(|i| format!("pub f{i}: std::collections::BTreeMap<u8, [u8; 2]>,\n"))
            .collect()
    }

    #[test]
    fn fields__more_than_15_need_a_reason() {
        let text = |doc: &str, count| {
            format!("{doc}\n#[derive(Debug)]\npub struct S<T: Copy> {{\n{}}}\n", of_fields(count))
        };
        assert_eq!(faults(fields, &text("/// A thing.", 15)), [""; 0]);
        let found = faults(fields, &text("/// A thing.", 16));
        assert!(found[0].starts_with("`S` has 16 fields"), "{found:?}");
        let reason = "/// A table. More than 15\n/// fields: each is a setting.";
        assert_eq!(faults(fields, &text(reason, 16)), [""; 0]);
    }

    #[test]
    fn methods__all_blocks_of_a_type_count() {
        let block = |of: &str, from: usize, to: usize| {
            let methods: String =
                (from..to).map(|i| format!("pub const fn m{i}(&self) {{}}\n")).collect();
            let others = "fn own(&self) {} pub(crate) fn in_crate(&self) {}";
            format!("impl<T> {of} {{ {methods} {others} }}\n")
        };
        let most = block("S<T>", 0, 20) + &block("S<T>", 20, 40);
        assert_eq!(faults(methods, &most), [""; 0]);
        assert_eq!(faults(methods, &(most.clone() + &block("Trait for S<T>", 40, 80))), [""; 0]);
        let found = faults(methods, &(most + &block("S<T>", 40, 41)));
        assert_eq!(found, ["`S` has 41 public methods, at most 40"]);
    }
}
