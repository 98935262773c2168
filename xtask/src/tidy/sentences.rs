//! The rules about sentences of comments and documents.

use super::{File, Report, Tree};

/// Words that begin a clause in place of a subject.
const CLAUSES: [&str; 9] =
    ["What", "Who", "Whoever", "Whose", "Whether", "That", "How", "Why", "Which"];
/// Words that begin such a clause too, unless a comma separates an adverbial clause from the rest.
const ADVERBIAL: [&str; 2] = ["Where", "When"];
/// Words at the beginning of a comment that point at a neighbour in place of a subject.
const POINTERS: [&str; 7] = ["Does the same", "The same", "As", "So", "It", "They", "Those"];

/// Finds sentences that begin with a clause, or with the pronoun "That", in place of a subject: in
/// comments of Rust and C sources, and in Markdown documents. Headings and questions may.
pub fn sentences(tree: &Tree, report: &mut Report) {
    for file in tree.files() {
        for paragraph in paragraphs(file) {
            for (line, word) in paragraph.faults() {
                let message = match ADVERBIAL.contains(&word) {
                    true => format!("a sentence begins with {word}, and no comma ends the clause"),
                    false => format!("a sentence begins with {word}: name its subject"),
                };
                report.add(&file.path, line, message);
            }
        }
    }
}

/// Finds comments of Rust and C sources that begin with a word that points at a neighbour: a reader
/// of one item must not need another.
pub fn openings(tree: &Tree, report: &mut Report) {
    for file in tree.files().filter(|file| !file.path.ends_with(".md")) {
        for (line, words) in paragraphs(file).iter().filter_map(Paragraph::pointer) {
            let message = format!("a comment begins with \"{words}\": name its subject");
            report.add(&file.path, line, message);
        }
    }
}

/// A paragraph, item of a list or cell of a table, in one line of text.
#[derive(Default)]
struct Paragraph {
    text: String,
    /// Offset of each line in the text, and its number in the file.
    lines: Vec<(usize, usize)>,
}

impl Paragraph {
    fn of(line: usize, text: &str) -> Paragraph {
        Paragraph { text: text.to_string(), lines: vec![(0, line)] }
    }

    fn push(&mut self, line: usize, text: &str) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.lines.push((self.text.len(), line));
        self.text.push_str(text);
    }

    /// Returns line and words of the beginning, if these point at a neighbour.
    fn pointer(&self) -> Option<(usize, &'static str)> {
        let text = self.text.trim_start_matches(is_mark);
        let words = POINTERS.into_iter().find(|words| {
            let rest = text.strip_prefix(words);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        })?;
        Some((self.lines.first()?.1, words))
    }

    /// Returns line and first word of each sentence that breaks the rule.
    fn faults(&self) -> Vec<(usize, &str)> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < self.text.len() {
            let end = at + sentence_len(&self.text[at..]);
            if let Some(word) = fault(&self.text[at..end]) {
                let begun = self.lines.iter().rev().find(|(offset, _)| *offset <= at);
                found.push((begun.map_or(0, |&(_, line)| line), word));
            }
            at = end;
        }
        found
    }
}

/// Returns the length of the first sentence of a text, with the space behind it.
pub(super) fn sentence_len(text: &str) -> usize {
    let mut ended = false;
    for (at, c) in text.char_indices() {
        match c {
            '.' | '!' | '?' => ended = true,
            ')' | '*' | '_' | '"' | '”' if ended => {}
            ' ' if ended => return at + 1,
            _ => ended = false,
        }
    }
    text.len()
}

/// True for characters that may stand before the first word of a sentence.
fn is_mark(c: char) -> bool {
    c.is_whitespace() || matches!(c, '*' | '_' | '(' | '[')
}

/// Returns the first word of a sentence if it breaks the rule.
fn fault(sentence: &str) -> Option<&str> {
    let text = sentence.trim_start_matches(is_mark);
    let word = text.split(|c: char| !c.is_alphanumeric() && c != '\'').next()?;
    let is_question = text.trim_end_matches(|c| is_mark(c) || c == ')').ends_with('?');
    let broken = CLAUSES.contains(&word) || ADVERBIAL.contains(&word) && !text.contains(',');
    (broken && !is_question).then_some(word)
}

/// A line of a file, as far as it is text for people.
enum Line<'a> {
    Code,
    Text(&'a str),
    /// A comment behind code, which no other line continues.
    Behind(&'a str),
}

/// Returns the text of each line of a file.
fn lines(file: &File) -> Vec<Line<'_>> {
    let is_c = file.path.ends_with(".c") || file.path.ends_with(".h");
    let mut block = false;
    let text = |line| match () {
        () if file.path.ends_with(".md") => Line::Text(line),
        () if is_c && (block || line.trim_start().starts_with("/*")) => {
            let (text, end) = line.split_once("*/").map_or((line, false), |(text, _)| (text, true));
            block = !end;
            let text = text.trim_start();
            Line::Text(text.strip_prefix("/*").unwrap_or(text).trim_start_matches('*'))
        }
        () if is_c || file.is_rust() => comment(line),
        () => Line::Code,
    };
    file.text.lines().map(text).collect()
}

/// Returns the comment of a line that begins outside a block comment.
fn comment(line: &str) -> Line<'_> {
    match line.split_once("//") {
        Some((code, text)) if code.trim().is_empty() => {
            Line::Text(text.strip_prefix(['/', '!']).unwrap_or(text))
        }
        Some((code, text)) if code.ends_with(' ') && !ends_in_string(code) => Line::Behind(text),
        _ => Line::Code,
    }
}

/// Returns true if a string is open at the end of this code.
fn ends_in_string(code: &str) -> bool {
    code.replace("\\\"", "").matches('"').count() % 2 == 1
}

/// Returns the paragraphs of a file, without headings and code.
fn paragraphs(file: &File) -> Vec<Paragraph> {
    let mut found = Vec::new();
    let mut last = Paragraph::default();
    let mut fenced = false;
    for (i, line) in lines(file).into_iter().enumerate() {
        let (text, alone) = match line {
            Line::Code => ("", true),
            Line::Text(text) => (text, false),
            Line::Behind(text) => (text, true),
        };
        let plain = text.trim();
        let fence = plain.starts_with("```");
        fenced = (fenced ^ fence) && !alone;
        let is_indented = text.len() - text.trim_start().len() >= 4;
        let is_code = fenced || fence || last.text.is_empty() && is_indented;
        let row = plain.starts_with('|');
        let item = item_text(plain);
        let ends = alone || is_code || row || item.is_some() || plain.is_empty();
        if ends || plain.starts_with('#') {
            found.push(std::mem::take(&mut last));
        }
        if is_code || plain.is_empty() || plain.starts_with('#') {
            continue;
        }
        for cell in plain.split('|').filter(|_| row) {
            found.push(Paragraph::of(i + 1, cell));
        }
        if !row {
            last.push(i + 1, item.unwrap_or(plain));
        }
    }
    found.push(last);
    found
}

/// Returns the text of an item of a list, without its mark.
fn item_text(line: &str) -> Option<&str> {
    let mark = line.split(' ').next()?;
    let number = mark.strip_suffix('.').is_some_and(|n| n.parse::<u16>().is_ok());
    (number || matches!(mark, "-" | "*" | "+")).then(|| line[mark.len()..].trim_start())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::testing::lines_of;
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        lines_of(sentences, &[(path, text)])
    }

    #[test]
    fn sentences__finds_clauses_in_place_of_a_subject() {
        for text in [
            "What a peer was told.",
            "**Who waits** is named.",
            "Whether the ring is full.",
            "That does not hold.",
            "How often it is tried.",
            "Where peers reach this.",
            "The end. (Whoever comes first.)",
        ] {
            assert_eq!(found("a.rs", &format!("/// {text}\nfn a() {{}}\n")), [1], "{text}");
            assert_eq!(found("a.md", &format!("{text}\n")), [1], "{text}");
            assert_eq!(found("a.py", &format!("// {text}\n")), [0; 0], "{text}");
        }
    }

    #[test]
    fn sentences__leaves_subjects_questions_and_adverbial_clauses() {
        for text in [
            "The rank that waits. Whatever comes, it goes on.",
            "Where the link can, it copies. When it cannot, it sends.",
            "Whatsoever. However it ends, `What` is a name.",
            "What does it cost? **Who needs it?** Little.",
        ] {
            assert_eq!(found("a.rs", &format!("//! {text}\n")), [0; 0], "{text}");
            assert_eq!(found("a.md", &format!("- {text}\n")), [0; 0], "{text}");
        }
    }

    #[test]
    fn sentences__names_the_line_where_the_sentence_begins() {
        let text = "/// A ring of\n/// packets. What\n/// else.\nfn a() {} // The end. That is.\n";
        assert_eq!(found("a.rs", text), [2, 4]);
        let text = "/* A ring.\n * What is in it.\n */\nint a; /* one */\n// Who.\n";
        assert_eq!(found("a.c", text), [2, 5]);
    }

    #[test]
    fn sentences__of_documents_are_in_paragraphs_items_and_cells() {
        let text =
            "# What it is\n\nA line\nWhat for\n\n- one\n- What\n\n| a | Who is |\n\n1. How.\n";
        assert_eq!(found("a.md", text), [7, 9, 11]);
        assert_eq!(found("a.md", "```\nWhat.\n```\n\n    Who.\n\nThat is.\n"), [7]);
    }

    #[test]
    fn sentences__are_not_in_strings() {
        assert_eq!(found("a.rs", "let a = \"b // What\";\nlet url = \"http://Who\";\n"), [0; 0]);
    }

    #[test]
    fn openings__finds_comments_that_point_at_a_neighbour() {
        for text in ["Does the same.", "As [`a`], but b.", "So many.", "It is.", "(They are.)"] {
            let lines = |path, text: String| lines_of(openings, &[(path, &text)]);
            assert_eq!(lines("a.rs", format!("fn a() {{}}\n/// {text}\nfn b() {{}}\n")), [2]);
            assert_eq!(lines("a.rs", format!("/// A ring.\n///\n/// {text}\n")), [3], "{text}");
            assert_eq!(lines("a.h", format!("int a; /* {text} */\nint b;\n/* {text} */\n")), [3]);
            assert_eq!(lines("a.rs", format!("fn a() {{}} // {text}\n")), [1], "{text}");
            assert_eq!(lines("a.md", format!("{text}\n")), [0; 0], "{text}");
        }
    }

    #[test]
    fn openings__leaves_later_sentences_and_other_words() {
        let text = "/// A ring.\n/// It turns. So does\n/// As. Items. Its end.\n";
        assert_eq!(lines_of(openings, &[("a.rs", text)]), [0; 0]);
        let text = "// Its end.\n\n// Ask.\n\n// Some.\n\n// `It`.\n\nlet a = \"// It\";\n";
        assert_eq!(lines_of(openings, &[("a.rs", text)]), [0; 0]);
    }
}
