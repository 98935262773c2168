//! Reading graphs: both formats, their errors, and arbitrary bytes.
#![allow(non_snake_case)]

use std::path::Path;
use weft_asp::{parse, Arc, Base, Format, Graph, ReadError, ReadErrorKind, ReadOptions};

fn read(format: Format, base: Base, directed: bool, text: &[u8]) -> Result<Graph, ReadError> {
    parse(&mut &text[..], ReadOptions { format, base, directed })
}

fn dimacs(text: &str) -> Result<Graph, ReadError> {
    read(Format::Dimacs, Base::Detect, true, text.as_bytes())
}

fn edges(text: &str) -> Result<Graph, ReadError> {
    read(Format::EdgeList, Base::Detect, true, text.as_bytes())
}

fn arc(from: u32, to: u32, weight: u32) -> Arc {
    Arc { from, to, weight }
}

#[test]
fn dimacs__nodes_from_one_comments_and_blank_lines() {
    let text = "c a road\np sp 4 3\n\na 1 2 10\r\nccomment\na 4 1 0\na 2 2 5";
    let expected =
        Graph { nodes: 4, arcs: vec![arc(0, 1, 10), arc(3, 0, 0), arc(1, 1, 5)], first_id: 1 };
    assert_eq!(dimacs(text), Ok(expected));
}

#[test]
fn dimacs__errors_name_the_line() {
    use ReadErrorKind::*;
    let expected_arc = Fields("a FROM TO WEIGHT");
    let node = |id| Node { id, first: 1, nodes: Some(2) };
    for (text, line, kind) in [
        ("", 1, NoProblem),
        ("c only\n", 2, NoProblem),
        ("a 1 2 3\n", 1, NoProblem),
        ("p sp 2\n", 1, Fields("p sp NODES ARCS")),
        ("p max 2 1\n", 1, Fields("p sp NODES ARCS")),
        ("p sp 2 x\n", 1, Number("x".into())),
        ("p sp 2 1\np sp 2 1\n", 2, SecondProblem),
        ("p sp 2 1\na 1 2\n", 2, expected_arc.clone()),
        ("p sp 2 1\na 1 2 3 4\n", 2, expected_arc),
        ("p sp 2 1\na 0 1 1\n", 2, node(0)),
        ("p sp 2 1\na 1 3 1\n", 2, node(3)),
        ("p sp 2 1\na 1 2 -7\n", 2, Number("-7".into())),
        ("p sp 2 1\na 1 2 1.5\n", 2, Number("1.5".into())),
        ("p sp 2 1\na 1 2 4294967295\n", 2, Number("4294967295".into())),
        ("p sp 2 1\nq 1\n", 2, UnknownLine("q".into())),
        ("p sp 2 2\na 1 2 1\n", 3, ArcCount { declared: 2, found: 1 }),
        ("p sp 2 0\na 1 2 1\n", 3, ArcCount { declared: 0, found: 1 }),
        ("p sp 4294967294 18446744073709551615\n", 2, ArcCount { declared: u64::MAX, found: 0 }),
    ] {
        let error = dimacs(text).unwrap_err();
        assert_eq!(error, ReadError { line, kind }, "{text}");
        assert!(error.to_string().starts_with(&format!("line {line}: ")));
    }
}

#[test]
fn edge_list__weights_separators_and_comments() {
    let text = "# a comment\n0 1 5\n1,2\n 3\t0 7 # trailing\n% another\n\n";
    let expected =
        Graph { nodes: 4, arcs: vec![arc(0, 1, 5), arc(1, 2, 1), arc(3, 0, 7)], first_id: 0 };
    assert_eq!(edges(text), Ok(expected));
    assert_eq!(edges(""), Ok(Graph::default()));
}

#[test]
fn edge_list__the_base_is_detected_or_given() {
    let arcs = |graph: &Graph| (graph.nodes, graph.first_id, graph.arcs[0].from);
    let with = |base| read(Format::EdgeList, base, true, b"1 2\n2 3\n").unwrap();
    assert_eq!(arcs(&with(Base::Detect)), (3, 1, 0));
    assert_eq!(arcs(&with(Base::One)), (3, 1, 0));
    assert_eq!(arcs(&with(Base::Zero)), (4, 0, 1));
    assert_eq!(arcs(&edges("1 2\n2 0\n").unwrap()), (3, 0, 1));
    assert_eq!("1".parse(), Ok(Base::One));
    assert!("2".parse::<Base>().is_err());
}

#[test]
fn edge_list__errors_name_the_line() {
    use ReadErrorKind::*;
    let expected = Fields("FROM TO [WEIGHT]");
    for (text, line, kind) in [
        ("0 1\n5\n", 2, expected.clone()),
        ("0 1 2 3\n", 1, expected),
        ("0 one\n", 1, Number("one".into())),
        ("0 99999999999\n", 1, Number("99999999999".into())),
    ] {
        assert_eq!(edges(text), Err(ReadError { line, kind }), "{text}");
    }
    let error = read(Format::EdgeList, Base::One, true, b"1 2\n0 1\n").unwrap_err();
    assert_eq!(error, ReadError { line: 2, kind: Node { id: 0, first: 1, nodes: None } });
}

#[test]
fn parse__undirected_adds_the_way_back() {
    let graph = read(Format::EdgeList, Base::Detect, false, b"0 1 5\n1 2 6\n").unwrap();
    assert_eq!(graph.arcs, [arc(0, 1, 5), arc(1, 2, 6), arc(1, 0, 5), arc(2, 1, 6)]);
}

#[test]
fn parse__long_lines_and_bytes_that_are_no_text() {
    let long = vec![b'1'; 1 << 20];
    let error = read(Format::EdgeList, Base::Detect, true, &long).unwrap_err();
    assert_eq!(error.to_string(), "line 1: longer than 65536 bytes");
    let error = read(Format::Dimacs, Base::Detect, true, b"c x\n\xff\xfe\n").unwrap_err();
    assert_eq!(error.line, 2);
}

#[test]
fn parse__mutated_files_never_panic_and_keep_ends_inside() {
    let text = b"c x\np sp 5 3\na 1 2 10\na 2 3 4\na 5 1 4294967294\n";
    let mut state = 7u64;
    let mut random = |bound: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % bound
    };
    for _ in 0..20_000 {
        let mut bytes = text.to_vec();
        for _ in 0..1 + random(4) {
            let at = random(bytes.len());
            match random(3) {
                0 => bytes[at] = b"0123456789 \n-apc\xff#"[random(18)],
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"0123456789 \n"[random(12)]),
            }
        }
        for format in [Format::Dimacs, Format::EdgeList] {
            if let Ok(graph) = read(format, Base::Detect, false, &bytes) {
                let inside = |a: &Arc| (a.from.max(a.to) as usize) < graph.nodes;
                assert!(graph.arcs.iter().all(inside));
            }
        }
    }
}

#[test]
fn of_path__gr_files_are_dimacs() {
    assert_eq!(Format::of_path(Path::new("a/b/USA.gr")), Format::Dimacs);
    assert_eq!(Format::of_path(Path::new("x.GR")), Format::Dimacs);
    assert_eq!(Format::of_path(Path::new("x.txt")), Format::EdgeList);
    assert_eq!(Format::of_path(Path::new("gr")), Format::EdgeList);
}
