//! The sequential program against another algorithm, the checks of parameters, and the output.
#![allow(non_snake_case)]

use std::cell::RefCell;
use weft_asp::{
    report, sequential, write_rows, write_summary, Arc, Graph, Keep, Outcome, Params, ParamsError,
    UNREACHABLE,
};

fn quiet(_: u64, _: u64) {}

fn params(graph: Graph, keep: Keep) -> Params {
    Params { graph, keep, ..Params::default() }
}

/// Returns the distances from one node by Bellman and Ford, in wider numbers.
fn bellman_ford(graph: &Graph, source: u32) -> Vec<u32> {
    let mut distances = vec![u64::MAX; graph.nodes];
    distances[source as usize] = 0;
    loop {
        let mut changed = false;
        for arc in &graph.arcs {
            let through = distances[arc.from as usize].saturating_add(u64::from(arc.weight));
            if through < distances[arc.to as usize] {
                distances[arc.to as usize] = through;
                changed = true;
            }
        }
        if !changed {
            let narrow = |d: u64| u32::try_from(d).unwrap_or(UNREACHABLE);
            return distances.into_iter().map(narrow).collect();
        }
    }
}

fn small() -> Graph {
    let arcs = [(0, 1, 3), (1, 0, 2), (1, 2, 1), (1, 3, 7), (3, 0, 5), (3, 2, 3)];
    let arcs = arcs.map(|(from, to, weight)| Arc { from, to, weight }).to_vec();
    Graph { nodes: 5, arcs, first_id: 1 }
}

#[test]
fn sequential__same_as_bellman_ford_on_random_graphs() {
    for (nodes, degree) in [(1, 3), (2, 1), (17, 2), (40, 1), (60, 5), (33, 32)] {
        for (seed, max_weight) in [(1, 1), (2, 50), (3, u32::MAX - 1), (4, 1 << 30)] {
            let graph = Graph::random(nodes, degree, max_weight, seed);
            let outcome = sequential(&params(graph.clone(), Keep::All), &quiet);
            assert_eq!(outcome.rows.len(), nodes as usize);
            for (source, row) in &outcome.rows {
                assert_eq!(*row, bellman_ford(&graph, *source), "{nodes} {degree} {seed}");
            }
        }
    }
}

#[test]
fn sequential__a_graph_without_nodes() {
    let outcome = sequential(&params(Graph::default(), Keep::All), &quiet);
    assert_eq!((outcome.summary.reachable, outcome.rows.len()), (0, 0));
    assert!(report(&outcome).contains("centre           none"));
}

#[test]
fn sequential__reports_each_step() {
    let seen = RefCell::new(Vec::new());
    sequential(&params(small(), Keep::None), &|done, of| seen.borrow_mut().push((done, of)));
    assert_eq!(*seen.borrow(), [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]);
}

#[test]
fn random__the_same_seed_gives_the_same_graph_inside_its_bounds() {
    let graph = Graph::random(100, 7, 9, 42);
    assert_eq!(graph, Graph::random(100, 7, 9, 42));
    assert_ne!(graph, Graph::random(100, 7, 9, 43));
    assert_eq!(graph.arcs.len(), 700);
    let fits = |a: &Arc| a.from != a.to && a.to < 100 && (1..=9).contains(&a.weight);
    assert!(graph.arcs.iter().all(fits));
    for weight in 1..=9 {
        assert!(graph.arcs.iter().any(|a| a.weight == weight));
    }
    assert!(Graph::random(1, 7, 9, 42).arcs.is_empty());
}

#[test]
fn check__names_what_is_wrong() {
    let check = |change: fn(&mut Params), ranks| {
        let mut params = params(small(), Keep::None);
        change(&mut params);
        params.check(ranks)
    };
    assert_eq!(check(|_| (), 1), Ok(()));
    let large = |p: &mut Params| p.graph.nodes = 40_000;
    let error = check(large, 1).unwrap_err();
    assert!(matches!(error, ParamsError::TooLarge { bytes: 6_400_000_000, .. }));
    assert!(error.to_string().contains("6104 MiB") && error.to_string().contains("4096 MiB"));
    assert_eq!(check(large, 2), Ok(()));
    let all = |p: &mut Params| (p.graph.nodes, p.keep) = (40_000, Keep::All);
    assert!(matches!(check(all, 1000), Err(ParamsError::TooLarge { .. })));
    let huge = |p: &mut Params| {
        (p.graph.nodes, p.memory_limit) = (usize::MAX, u64::MAX);
    };
    assert!(matches!(check(huge, 1), Err(ParamsError::TooLarge { .. })));
    assert_eq!(check(|p| p.graph.arcs[2].to = 5, 1), Err(ParamsError::Arc { index: 2 }));
    assert_eq!(check(|p| p.graph.arcs[1].weight = u32::MAX, 1), Err(ParamsError::Arc { index: 1 }));
    for id in [0, 6] {
        let params = params(small(), Keep::Sources(vec![1, id]));
        assert_eq!(params.check(1), Err(ParamsError::UnknownSource(id)));
    }
    assert!(matches!(check(|p| p.ns_per_cell = Some(-1.0), 1), Err(ParamsError::Cost(_))));
}

#[test]
fn keep__parses_words_and_lists() {
    assert_eq!("none".parse(), Ok(Keep::None));
    assert_eq!("all".parse(), Ok(Keep::All));
    assert_eq!("3, 1".parse(), Ok(Keep::Sources(vec![3, 1])));
    for bad in ["", "1,", "x", "-1", "1;2"] {
        assert_eq!(bad.parse::<Keep>(), Err(ParamsError::Sources(bad.into())));
    }
}

fn text(write: impl Fn(&mut dyn std::io::Write, &Outcome) -> std::io::Result<()>) -> String {
    let mut bytes = Vec::new();
    let outcome = sequential(&params(small(), Keep::Sources(vec![3, 1, 3])), &quiet);
    write(&mut bytes, &outcome).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn write_rows__numbers_of_the_input_and_inf() {
    let expected = "from,1,2,3,4,5\n1,0,3,4,10,inf\n3,inf,inf,0,inf,inf\n";
    assert_eq!(text(write_rows), expected);
}

#[test]
fn write_summary__one_figure_a_line() {
    let all = text(write_summary);
    let lines: Vec<&str> = all.lines().collect();
    assert_eq!(
        lines[..9],
        [
            "name,value",
            "nodes,5",
            "arcs,6",
            "reachable_pairs,9",
            "diameter,10",
            "centre,2",
            "centre_eccentricity,7",
            "centre_reaches,3",
            "mean_distance,4.777778",
        ]
    );
    assert!(lines[9].starts_with("checksum,") && lines.len() == 10);
}

#[test]
fn report__one_screen_with_the_essentials() {
    let outcome = sequential(&params(small(), Keep::None), &quiet);
    let text = report(&outcome);
    assert!(text.lines().count() <= 24 && text.lines().all(|l| l.len() <= 80));
    assert!(text.contains("reachable pairs  9 of 20"));
    assert!(text.contains("node 2, eccentricity 7, reaches 3 nodes"));
}
