//! Keeps `PROTOCOL.md` and the Wireshark dissector `docs/weft.lua` equal to the code.
#![allow(non_snake_case)]

use std::path::Path;
use weft_core::wire::{self, code, flags, reason, status, FieldInfo, PacketType};

/// A header as a document describes it.
#[derive(Debug, PartialEq, Eq)]
struct Table {
    name: String,
    /// `None` for the common header.
    number: Option<u8>,
    sequenced: bool,
    len: usize,
    /// Offset, size, name; in order of offset.
    fields: Vec<(usize, usize, String)>,
}

fn document(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn rows<'a>(fields: impl IntoIterator<Item = &'a FieldInfo>) -> Vec<(usize, usize, String)> {
    let mut rows: Vec<_> =
        fields.into_iter().map(|f| (f.offset, f.size, f.name.to_string())).collect();
    rows.sort();
    rows
}

/// Returns the tables of the code.
fn expected() -> Vec<Table> {
    let types = PacketType::ALL.iter().map(|kind| Table {
        name: kind.name().to_string(),
        number: Some(*kind as u8),
        sequenced: kind.is_sequenced(),
        len: kind.header_len(),
        fields: rows(kind.fields()),
    });
    std::iter::once(common()).chain(types).collect()
}

fn common() -> Table {
    Table {
        name: "Common header".to_string(),
        number: None,
        sequenced: false,
        len: wire::COMMON_LEN,
        fields: rows(wire::COMMON_FIELDS),
    }
}

/// Returns the cells of a Markdown table row.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

/// Reads headings `### NAME (n), sequenced, L bytes` and the field rows below each.
fn markdown_tables(text: &str) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        if line.starts_with('#') {
            let table = line.strip_prefix("### ").and_then(heading);
            open = table.is_some();
            tables.extend(table);
        } else if let (true, Some(cells)) = (open, cells(line)) {
            if let Ok(offset) = cells[0].parse() {
                let size = cells[1].parse().expect("size is a number");
                let field = (offset, size, cells[2].to_string());
                tables.last_mut().expect("open").fields.push(field);
            }
        }
    }
    tables
}

fn heading(text: &str) -> Option<Table> {
    let mut parts = text.split(", ");
    let title = parts.next()?;
    let mut table =
        Table { name: title.into(), number: None, sequenced: false, len: 0, fields: vec![] };
    for part in parts {
        match part {
            "sequenced" => table.sequenced = true,
            "unsequenced" => {}
            _ => table.len = part.strip_suffix(" bytes")?.parse().ok()?,
        }
    }
    if let Some((name, number)) = title.split_once(" (") {
        table.name = name.into();
        table.number = number.strip_suffix(')')?.parse().ok();
    }
    (table.len > 0).then_some(table)
}

/// Reads rows `| number | NAME |` of the section with this heading.
fn markdown_names(text: &str, heading: &str) -> Vec<(u64, String)> {
    let start = text.find(&format!("\n{heading}\n")).expect("heading exists") + heading.len() + 2;
    let section = text[start..].lines().take_while(|line| !line.starts_with('#'));
    let rows = section.filter_map(cells);
    rows.filter_map(|cells| Some((cells[0].parse().ok()?, cells[1].to_string()))).collect()
}

fn flag_bits() -> Vec<(u64, String)> {
    let bits = [
        flags::SYNC,
        flags::ACTIVE,
        flags::NACK,
        flags::REPLY,
        flags::DIRECT,
        flags::LAST,
        flags::ACKNOW,
        flags::DATA64,
        flags::APART,
    ];
    let bits = bits.iter().map(|b| u64::from(b.trailing_zeros()));
    bits.zip(flags::NAMES).map(|(bit, name)| (bit, name.to_string())).collect()
}

fn named<T: Into<u64> + Copy>(values: &[(T, &str)]) -> Vec<(u64, String)> {
    values.iter().map(|(value, name)| ((*value).into(), name.to_string())).collect()
}

fn statuses() -> Vec<(u64, String)> {
    named(&[
        (status::OK, "OK"),
        (status::REFUSED, "REFUSED"),
        (status::TRUNCATED, "TRUNCATED"),
        (status::CANCELLED, "CANCELLED"),
        (status::NO_HANDLER, "NO_HANDLER"),
        (status::UNMAPPED, "UNMAPPED"),
    ])
}

fn codes() -> Vec<(u64, String)> {
    named(&[
        (code::FETCH_ADD, "FETCH_ADD"),
        (code::COMPARE_SWAP, "COMPARE_SWAP"),
        (code::SWAP, "SWAP"),
        (code::FETCH_AND, "FETCH_AND"),
        (code::FETCH_OR, "FETCH_OR"),
        (code::FETCH_XOR, "FETCH_XOR"),
        (code::CLIENT, "CLIENT"),
    ])
}

fn reasons() -> Vec<(u64, String)> {
    named(&[
        (reason::CLOSED, "CLOSED"),
        (reason::SILENT, "SILENT"),
        (reason::PROTOCOL, "PROTOCOL"),
        (reason::GONE, "GONE"),
        (reason::LOST, "LOST"),
        (reason::STUCK, "STUCK"),
        (reason::FLOODED, "FLOODED"),
    ])
}

#[test]
fn protocol_md__headers_match_the_code() {
    // The messages of agents, which follow, are tested beside their code.
    let text = document("PROTOCOL.md");
    let packets = text.split("\n## Names\n").next().expect("packets come first");
    assert_eq!(markdown_tables(packets), expected());
}

#[test]
fn protocol_md__numbers_match_the_code() {
    let text = document("PROTOCOL.md");
    assert_eq!(markdown_names(&text, "### Flags"), flag_bits());
    assert_eq!(markdown_names(&text, "### Status"), statuses());
    assert_eq!(markdown_names(&text, "### Atomic codes"), codes());
    assert_eq!(markdown_names(&text, "### Reasons"), reasons());
    assert!(text.starts_with(&format!("# The weft protocol, version {}\n", wire::VERSION)));
}

/// Returns the lines of the Lua table that starts with `start`, up to its closing brace.
fn lua_block<'a>(text: &'a str, start: &str) -> impl Iterator<Item = &'a str> {
    let indent = start.len() - start.trim_start().len();
    let from = text.find(start).unwrap_or_else(|| panic!("no {start:?}")) + start.len();
    let close = format!("{:indent$}}}", "");
    text[from..].lines().take_while(move |line| !line.starts_with(&close))
}

/// Parses a row `{ offset, size, "name", BASE },`.
fn lua_row(line: &str) -> Option<(usize, usize, String)> {
    let mut cells = line.trim().strip_prefix("{ ")?.split(", ");
    let offset = cells.next()?.parse().ok()?;
    let size = cells.next()?.parse().ok()?;
    Some((offset, size, cells.next()?.trim_matches('"').to_string()))
}

/// Parses a line `[n] = { name = "NAME", sequenced = bool, length = L, fields = {`.
fn lua_type(line: &str) -> Option<Table> {
    let (number, rest) = line.trim().strip_prefix('[')?.split_once("] = { name = \"")?;
    let (name, rest) = rest.split_once("\", sequenced = ")?;
    let (sequenced, rest) = rest.split_once(", length = ")?;
    Some(Table {
        name: name.to_string(),
        number: Some(number.parse().ok()?),
        sequenced: sequenced.parse().ok()?,
        len: rest.split(',').next()?.parse().ok()?,
        fields: vec![],
    })
}

/// Reads lines `[n] = "NAME",`.
fn lua_names(text: &str, start: &str) -> Vec<(u64, String)> {
    let pair = |line: &str| {
        let (number, name) = line.trim().strip_prefix('[')?.split_once("] = \"")?;
        Some((number.parse().ok()?, name.trim_end_matches("\",").to_string()))
    };
    lua_block(text, start).filter_map(pair).collect()
}

#[test]
fn dissector__headers_match_the_code() {
    let text = document("docs/weft.lua");
    let mut tables = vec![Table {
        fields: lua_block(&text, "local COMMON = {\n").filter_map(lua_row).collect(),
        ..common()
    }];
    for line in lua_block(&text, "local TYPES = {\n") {
        if let Some(table) = lua_type(line) {
            tables.push(table);
        } else if let Some(row) = lua_row(line) {
            tables.last_mut().expect("a type is open").fields.push(row);
        }
    }
    assert_eq!(tables, expected());
}

#[test]
fn dissector__numbers_match_the_code() {
    let text = document("docs/weft.lua");
    assert!(text.contains(&format!("\nlocal VERSION = {}\n", wire::VERSION)));
    assert!(text.contains(&format!("\nlocal COMMON_LEN = {}\n", wire::COMMON_LEN)));
    let names: Vec<_> = flags::NAMES.iter().map(|name| format!("{name:?}")).collect();
    assert!(text.contains(&format!("\nlocal FLAGS = {{ {} }}\n", names.join(", "))));
    assert_eq!(lua_names(&text, "    status = {\n"), statuses());
    assert_eq!(lua_names(&text, "    code = {\n"), codes());
    assert_eq!(lua_names(&text, "    reason = {\n"), reasons());
}
