//! The rule about records of decisions.

use super::{File, Report, Tree};

const FOLDER: &str = "docs/adr/";
const INDEX: &str = "docs/adr/README.md";
const SECTIONS: [&str; 4] = ["Context", "Decision", "Rejected", "Evidence"];
const MAX_WORDS: usize = 900;

/// Checks that each record of a decision follows the template in `docs/adr/README.md`: its title,
/// its status, its sections in order, its length, and its row in the index.
pub fn records(tree: &Tree, report: &mut Report) {
    let mut taken = Vec::new();
    let records: Vec<(&File, &str)> = tree.files().filter_map(|f| Some((f, name(f)?))).collect();
    for (file, name) in &records {
        let Some(number) = number(name) else {
            report.add(&file.path, 0, "the name of a record begins with four digits and a hyphen");
            continue;
        };
        if taken.contains(&number) {
            report.add(&file.path, 0, format!("there is another record {number}"));
        }
        taken.push(number);
        let mut lines = file.text.lines();
        if !lines.next().unwrap_or_default().starts_with(&format!("# {number}. ")) {
            report.add(&file.path, 1, format!("the title begins with \"# {number}. \""));
        }
        sections(file, report);
        let words = file.text.split_whitespace().count();
        if words > MAX_WORDS {
            report.add(&file.path, 0, format!("{words} words, at most {MAX_WORDS}"));
        }
        let status = lines.nth(1).and_then(status);
        let Some(status) = status.filter(|s| leads_to(s, number, &records)) else {
            let forms = "\"Status: accepted, DATE.\" or \"Status: superseded by N, DATE.\"";
            report.add(&file.path, 3, format!("the third line is {forms}, see {INDEX}"));
            continue;
        };
        if !is_listed(tree, name, status) {
            report.add(&file.path, 0, format!("has no row in {INDEX} with status {status}"));
        }
    }
}

/// Returns the name of a file if it is a record.
fn name(file: &File) -> Option<&str> {
    let name = file.path.strip_prefix(FOLDER)?;
    (name.ends_with(".md") && file.path != INDEX).then_some(name)
}

/// Returns the number in a record's name.
fn number(name: &str) -> Option<u32> {
    let (digits, _) = name.split_once('-')?;
    let four = digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| four)
}

/// Returns the status that a line names, without its dates.
fn status(line: &str) -> Option<&str> {
    let text = line.strip_prefix("Status: ")?.strip_suffix('.')?;
    let (text, amended) = text.split_once("; amended ").unwrap_or((text, "2000-01-01"));
    let (status, date) = text.split_once(", ")?;
    (is_date(date) && is_date(amended)).then_some(status)
}

fn is_date(text: &str) -> bool {
    let fits = |(i, b): (usize, u8)| match i {
        4 | 7 => b == b'-',
        _ => b.is_ascii_digit(),
    };
    text.len() == 10 && text.bytes().enumerate().all(fits)
}

/// Returns true if the status is one of the allowed, and names another record if it names one.
fn leads_to(status: &str, own: u32, records: &[(&File, &str)]) -> bool {
    let Some(next) = status.strip_prefix("superseded by ") else {
        return status == "accepted";
    };
    next.parse().is_ok_and(|n: u32| n != own && records.iter().any(|(_, r)| number(r) == Some(n)))
}

/// Checks that the sections of a record are those of the template, in their order.
fn sections(file: &File, report: &mut Report) {
    let mut fenced = false;
    let mut expected = SECTIONS.iter();
    for (i, line) in file.text.lines().enumerate() {
        fenced ^= line.starts_with("```");
        let Some(title) = line.strip_prefix("## ").filter(|_| !fenced) else { continue };
        match expected.next() {
            Some(section) if *section == title => {}
            Some(section) => {
                report.add(&file.path, i + 1, format!("the next section is {section}"));
                return;
            }
            None => report.add(&file.path, i + 1, format!("no section follows {}", SECTIONS[3])),
        }
    }
    if let Some(section) = expected.next() {
        report.add(&file.path, 0, format!("there is no section {section}"));
    }
}

/// Returns true if a row of the index leads to the record and has its status.
fn is_listed(tree: &Tree, name: &str, status: &str) -> bool {
    let link = format!("]({name})");
    let is_row = |line: &str| {
        let mut cells = line.split('|').map(str::trim);
        line.starts_with('|') && line.contains(&link) && cells.any(|cell| cell == status)
    };
    tree.get(INDEX).is_some_and(|index| index.text.lines().any(is_row))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::testing::messages;
    use super::*;

    const GOOD: &str = "# 7. A ring\n\nStatus: accepted, 2026-11-22.\n\n## Context\n\na\n\n\
                        ## Decision\n\nb\n\n### Consequences\n\nc\n\n## Rejected\n\nd\n\n\
                        ## Evidence\n\ne\n";
    const ROW: &str = "| [7](0007-a-ring.md) | A ring | accepted | It is round. |\n";

    fn found(index: &str, files: &[(&str, &str)]) -> Vec<String> {
        let all: Vec<(&str, &str)> = files.iter().copied().chain([(INDEX, index)]).collect();
        messages(records, &all)
    }

    fn of_one(text: &str) -> usize {
        found(ROW, &[("docs/adr/0007-a-ring.md", text)]).len()
    }

    #[test]
    fn records__that_follow_the_template_are_left() {
        assert_eq!(of_one(GOOD), 0);
        let amended = "accepted, 2026-11-22; amended 2026-11-29.";
        assert_eq!(of_one(&GOOD.replace("accepted, 2026-11-22.", amended)), 0);
        assert_eq!(of_one(&GOOD.replace("\na\n", "\n```\n## a\n```\n")), 0);
    }

    #[test]
    fn records__have_a_title_with_their_number() {
        assert_eq!(of_one(&GOOD.replace("# 7. ", "# 0007: ")), 1);
        assert_eq!(of_one(&GOOD.replace("# 7. ", "# 8. ")), 1);
        assert_eq!(found(ROW, &[("docs/adr/7-a-ring.md", GOOD)]).len(), 1);
        let two = [("docs/adr/0007-a-ring.md", GOOD), ("docs/adr/0007-b.md", GOOD)];
        let index = format!("{ROW}{}", ROW.replace("a-ring", "b"));
        assert_eq!(found(&index, &two), ["there is another record 7"]);
    }

    #[test]
    fn records__have_a_status_of_the_allowed_forms() {
        for status in [
            "Status: accepted.",
            "Status: accepted, 2026-11.",
            "Status: accepted, 2026-11-22",
            "Status: accepted, 2026-11-22; amended.",
            "Status: proposed, 2026-11-22.",
            "Status: superseded by 9, 2026-11-22.",
            "Status: superseded by 7, 2026-11-22.",
            "Date: 2026-11-22. Status: accepted.",
            "",
        ] {
            let text = GOOD.replace("Status: accepted, 2026-11-22.", status);
            assert_eq!(of_one(&text), 1, "{status}");
        }
    }

    #[test]
    fn records__that_are_superseded_name_the_next_one() {
        let old = GOOD.replace("accepted", "superseded by 9");
        let new = GOOD.replace("# 7", "# 9");
        let files =
            [("docs/adr/0007-a-ring.md", old.as_str()), ("docs/adr/0009-a.md", new.as_str())];
        let next = "| [9](0009-a.md) | A | accepted | b |\n";
        assert_eq!(found(&format!("{ROW}{next}"), &files).len(), 1, "the index has another status");
        let row = ROW.replace("accepted", "superseded by 9");
        assert_eq!(found(&format!("{row}{next}"), &files), [""; 0]);
    }

    #[test]
    fn records__have_their_sections_in_order() {
        for (from, to) in [
            ("## Rejected\n\nd\n\n", ""),
            ("## Evidence\n\ne\n", ""),
            ("### Consequences", "## Consequences"),
            ("## Rejected", "## Alternatives"),
            ("## Evidence\n\ne\n", "## Evidence\n\ne\n\n## Later\n"),
        ] {
            assert_eq!(of_one(&GOOD.replace(from, to)), 1, "{from} {to}");
        }
        let swapped =
            GOOD.replace("Rejected", "x").replace("Evidence", "Rejected").replace("x", "Evidence");
        assert_eq!(of_one(&swapped), 1);
    }

    #[test]
    fn records__have_at_most_900_words() {
        let words = GOOD.split_whitespace().count();
        let long = |n: usize| format!("{GOOD}{}", "word ".repeat(n - words));
        assert_eq!(of_one(&long(900)), 0);
        assert_eq!(of_one(&long(901)), 1);
    }

    #[test]
    fn records__stand_in_the_index() {
        let file = [("docs/adr/0007-a-ring.md", GOOD)];
        assert_eq!(found("", &file).len(), 1);
        assert_eq!(found("[7](0007-a-ring.md) accepted\n", &file).len(), 1, "no row");
        assert_eq!(found(&ROW.replace("a-ring", "b"), &file).len(), 1);
        assert_eq!(found("", &[("docs/adr/notes/a.txt", "")]).len(), 0);
    }
}
