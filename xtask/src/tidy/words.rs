//! Rules about the words of documents: the glossary, and the openings of pages of the guide.

use super::{Report, Tree};

const GLOSSARY: &str = "STYLE.md";
const GUIDE: &str = "docs/guide/";
/// Other documents in which the words of the glossary hold.
const PAGES: [&str; 3] = ["ARCHITECTURE.md", "README.md", "docs/guide.md"];

/// Words of the glossary that new names in code do not have. Some that it advises against have
/// other meanings in most of their places (line, look, room, told), and are not among them.
const NOT_IN_NAMES: [&str; 12] = [
    "dozes", "doze", "door", "gate", "giving", "intake", "lend", "lent", "luck", "put out", "seat",
    "story",
];
/// The folders in which a word has another meaning, or stands for the present.
const ELSEWHERE: &[(&str, &[&str])] = &[
    ("door", &["faces/ffi/", "tools/lab/"]),
    ("doze", &["tools/measure/"]),
    ("gate", &["faces/capi/", "faces/python/", "faces/via/"]),
    ("giving", &["crates/weft-models/"]),
    ("lend", &["crates/weft-link/", "faces/ofi/", "faces/sockets/", "faces/via/"]),
    (
        "lent",
        &[
            "crates/weft-link/",
            "crates/weft-mxoe/",
            "crates/weft-packets/",
            "crates/weftd/",
            "faces/mx/",
            "tools/bench/",
        ],
    ),
    ("put out", &["crates/weft-cluster/", "faces/capi/"]),
    ("seat", &["faces/ffi/", "papers/awari/"]),
    ("story", &["crates/weft-sim/"]),
];

/// Finds words in names of items that the glossary advises against.
pub fn terms(tree: &Tree, report: &mut Report) {
    let listed = |word: &str, path: &str| {
        let folders = ELSEWHERE.iter().filter(|(other, _)| *other == word).flat_map(|(_, f)| *f);
        folders.into_iter().any(|folder| path.starts_with(folder))
    };
    for file in tree.rust().filter(|f| !f.is_test()) {
        for (at, pair) in file.tokens.windows(2).enumerate() {
            let Some(name) = pair[1].ident().filter(|_| KINDS.iter().any(|k| pair[0].is(k))) else {
                continue;
            };
            let snake = snake(name);
            let found = NOT_IN_NAMES.iter().find(|word| {
                has(&snake, word) && !file.in_test_item(at) && !listed(word, &file.path)
            });
            if let Some(word) = found {
                let message = format!("`{name}`: the glossary has another term for \"{word}\"");
                report.add(&file.path, pair[1].line, message);
            }
        }
    }
}

/// Keywords before the name of an item.
const KINDS: [&str; 8] = ["fn", "struct", "enum", "trait", "mod", "const", "static", "type"];

/// Returns the words of a name, with a space between any two, in small letters.
fn snake(name: &str) -> String {
    let mut words = String::new();
    let mut was_small = false;
    for c in name.chars() {
        if c == '_' || c.is_uppercase() && was_small {
            words.push(' ');
        }
        was_small = c.is_lowercase() || c.is_ascii_digit();
        words.extend(c.to_lowercase().filter(|c| *c != '_'));
    }
    words
}

/// Finds words that the glossary shows in bold, which stand for another term.
pub fn glossary(tree: &Tree, report: &mut Report) {
    let Some(style) = tree.get(GLOSSARY) else { return };
    let all = words(&style.text);
    let is_page = |path: &str| path.starts_with(GUIDE) || PAGES.contains(&path);
    for file in tree.files().filter(|file| file.path.ends_with(".md") && is_page(&file.path)) {
        let mut fenced = false;
        for (i, line) in file.text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            let text: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
            let text = text.to_lowercase();
            for (word, term) in
                all.iter().filter(|(word, _)| !fenced && has(&text, &word.to_lowercase()))
            {
                report.add(&file.path, i + 1, format!("\"{word}\": the term is {term}"));
            }
        }
    }
}

/// Returns the bold words of the glossary, each with the term for it.
fn words(style: &str) -> Vec<(&str, &str)> {
    let section = style.split_once("\n## Glossary\n").map_or("", |(_, section)| section);
    let section = section.split("\n#").next().unwrap_or(section);
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let cells = rows.map(|row| row.split('|').map(str::trim).skip(1));
    let pairs = cells.filter_map(|mut row| Some((row.next()?, row.next()?)));
    pairs
        .flat_map(|(term, not)| not.split("**").skip(1).step_by(2).map(move |w| (w, term)))
        .collect()
}

/// True if a text has a word, and not only as a part of another one.
fn has(text: &str, word: &str) -> bool {
    let outside =
        |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || matches!(c, '-' | '_'));
    text.match_indices(word).any(|(at, _)| {
        let (before, after) =
            (text[..at].chars().next_back(), text[at + word.len()..].chars().next());
        outside(before) && outside(after)
    })
}

/// Checks that each page of the guide opens with the task of its reader.
pub fn openings(tree: &Tree, report: &mut Report) {
    for file in tree.files().filter(|file| file.path.starts_with(GUIDE)) {
        let mut lines = file.text.lines();
        let titled = lines.next().is_some_and(|line| line.starts_with("# "));
        let opening = lines.nth(1).unwrap_or_default();
        if file.path.ends_with(".md") && !(titled && opening.starts_with("You ")) {
            let message = "a page of the guide opens with the reader's task: \"You want to ...\"";
            report.add(&file.path, 3, message);
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::testing::lines_of;
    use super::*;

    #[test]
    fn glossary__finds_bold_words_in_prose() {
        let style = "# Style\n\n**not this**\n\n## Glossary\n\n| use | not |\n| --- | --- |\n\
                     | over TCP | **by TCP** |\n| spin | look |\n\n### Names\n\n| a | **b** |\n";
        let text = "Not this, a look.\nSent By TCP.\n`by TCP`, standby TCP\n```\nby TCP\n```\nb\n";
        let files = |path| [(GLOSSARY, style), (path, text)];
        assert_eq!(lines_of(glossary, &files("docs/guide/a.md")), [2]);
        assert_eq!(lines_of(glossary, &files("README.md")), [2]);
        assert_eq!(lines_of(glossary, &files("docs/adr/a.md")), [0; 0]);
    }

    #[test]
    fn terms__are_other_words_in_code_and_elsewhere_in_tests() {
        let text =
            "fn put_out() {}\nstruct HasPutOut;\nfn output() { let seat = 1; }\nfn seats_of() {}\n\
                    enum SeatMap {}\n#[cfg(test)]\nmod tests { fn seat() {} }\n";
        let lines = |path| lines_of(terms, &[(path, text)]);
        assert_eq!(lines("crates/weft-cluster/src/c.rs"), [5]);
        assert_eq!(lines("crates/c/src/c.rs"), [1, 2, 5]);
        assert_eq!(lines("crates/c/tests/c.rs"), [0; 0]);
    }

    #[test]
    fn openings__are_the_readers_tasks() {
        let page = |text| [("docs/guide/a.md", text)];
        assert_eq!(lines_of(openings, &page("# A\n\nYou want to a.\n")), [0; 0]);
        assert_eq!(lines_of(openings, &page("# A\n\nThe agent is a.\n")), [3]);
        assert_eq!(lines_of(openings, &page("# A\n")), [3]);
    }
}
