//! Rules about dependencies between crates and between modules.

use super::lex::{Kind, Token};
use super::{File, Report, Tree};
use std::collections::BTreeSet;

/// The workspace's crates that each crate may build on. `None`: all of them.
const ARROWS: &[(&str, Option<&[&str]>)] = &[
    ("weft-core", Some(&[])),
    ("weft-sys", Some(&[])),
    ("weft-link", Some(&["weft-core", "weft-sys"])),
    ("weft-kernel", Some(&["weft-core", "weft-link"])),
    ("weft-agent", Some(&["weft-core", "weft-link", "weft-kernel"])),
    ("weft-launch", Some(&["weft-core", "weft-link"])),
    (
        "weft",
        Some(&["weft-core", "weft-sys", "weft-link", "weft-agent", "weft-launch", "weft-cluster"]),
    ),
    ("weft-packets", Some(&["weft-core", "weft-link", "weft-kernel", "weft-agent", "weft"])),
    ("weft-mxoe", Some(&[])),
    ("weft-names", Some(&["weft-core"])),
    ("weft-cluster", Some(&["weft-core", "weft-sys", "weft-link", "weft-names"])),
    (
        "weftd",
        Some(&[
            "weft-core",
            "weft-sys",
            "weft-link",
            "weft-kernel",
            "weft-agent",
            "weft-names",
            "weft-cluster",
            "weft-streams",
        ]),
    ),
    (
        "weft-sim",
        Some(&[
            "weft-core",
            "weft-link",
            "weft-agent",
            "weft",
            "weft-packets",
            "weft-names",
            "weft-mxoe",
        ]),
    ),
    ("weft-models", Some(&["weft-core", "weft", "weft-packets"])),
    ("weft-swarm", Some(&["weft-packets", "weft-models", "weft-sim"])),
    (
        "weft-capi",
        Some(&["weft-core", "weft-sys", "weft-link", "weft", "weft-packets", "weft-models"]),
    ),
    ("weft-ofi", Some(&["weft-core", "weft-sys", "weft-link", "weft"])),
    ("weft-ffi", Some(&["weft-core", "weft-sys", "weft-link", "weft"])),
    ("weft-via", Some(&["weft-core", "weft-link", "weft", "weft-ffi"])),
    ("weft-mx", Some(&["weft-core", "weft-sys", "weft-link", "weft", "weft-ffi", "weft-mxoe"])),
    (
        "weft-python",
        Some(&["weft-core", "weft-sys", "weft-link", "weft", "weft-packets", "weft-models"]),
    ),
    ("weft-torch", Some(&["weft-sys", "weft-link", "weft"])),
    ("weft-streams", Some(&[])),
    ("weft-preload", Some(&["weft-streams", "weft-sys"])),
    ("weft-plot", Some(&[])),
    ("weft-run", Some(&["weft-sys", "weft-link", "weft", "weft-cluster", "weft-streams"])),
    ("weft-lab", Some(&["weft-sys", "weft-link", "weft-run"])),
    ("weft-measure", Some(&["weft-link", "weft", "weft-run", "weft-lab"])),
    ("weft-app", Some(&["weft", "weft-apps", "weft-sor", "weft-asp", "weft-plot", "weft-run"])),
    ("weft-simulate", Some(&["weft", "weft-sim", "weft-swarm", "weft-plot", "weft-run"])),
    (
        "weft-bench",
        Some(&[
            "weft-core",
            "weft-link",
            "weft-kernel",
            "weft-agent",
            "weft",
            "weft-packets",
            "weft-models",
            "weft-ffi",
            "weft-mx",
            "weft-mxoe",
            "weft-via",
            "weft-cluster",
            "weftd",
            "weft-plot",
            "weft-run",
            "weft-lab",
            "weft-measure",
        ]),
    ),
    // The first command of a newcomer builds this, and neither benchmarks nor papers.
    (
        "weft-cli",
        Some(&[
            "weft-core",
            "weft-link",
            "weft-sys",
            "weft",
            "weft-packets",
            "weft-models",
            "weft-ffi",
            "weft-sim",
            "weft-agent",
            "weft-cluster",
            "weft-run",
            "weft-lab",
            "weft-measure",
            "weft-app",
            "weft-simulate",
        ]),
    ),
    ("weft-platform", Some(&["weft-core", "weft-link", "weft-packets", "weft-models"])),
    ("weft-papers", None),
    ("weft-conformance", None),
    ("weft-fuzz", None),
    ("xtask", Some(&[])),
];

/// The crates that an application (a crate under `apps/` or `papers/`) may build on; `weft-apps` is
/// the one that they share.
const APP_ARROWS: &[&str] = &["weft-core", "weft", "weft-models", "weft-apps"];

/// Returns the place of a crate in the table above, in which lower ones come first; crates that are
/// not in it come last.
pub fn place(name: &str) -> usize {
    ARROWS.iter().position(|(n, _)| *n == name).unwrap_or(ARROWS.len())
}

/// Checks that crates depend on lower ones only.
pub fn crates(tree: &Tree, report: &mut Report) {
    for file in tree.files().filter(|f| f.path.ends_with("Cargo.toml")) {
        let Some(name) = super::manifest::package_name(&file.text) else { continue };
        let is_application = ["apps/", "papers/"].iter().any(|top| file.path.starts_with(top));
        let allowed = if let Some((_, allowed)) = ARROWS.iter().find(|(n, _)| *n == name) {
            *allowed
        } else if is_application {
            Some(APP_ARROWS)
        } else {
            report.add(&file.path, 0, format!("crate {name} has no place in tidy's arrows"));
            continue;
        };
        for (line, dependency) in super::manifest::dependencies(&file.text) {
            let ours =
                ["weft", "weftd"].contains(&dependency.as_str()) || dependency.starts_with("weft-");
            if ours && allowed.is_some_and(|a| !a.contains(&dependency.as_str())) {
                report.add(&file.path, line, format!("{name} must not build on {dependency}"));
            }
        }
    }
}

/// Checks that production code does not import the simulator.
pub fn simulator(tree: &Tree, report: &mut Report) {
    const MAY: [&str; 7] = [
        "crates/weft-sim/",
        "crates/weft-swarm/",
        "tools/cli/",
        "tools/simulate/",
        "papers/",
        "conformance/",
        "fuzz/",
    ];
    for file in tree.rust().filter(|f| !f.is_test() && !MAY.iter().any(|p| f.path.starts_with(p))) {
        for (i, token) in file.tokens.iter().enumerate() {
            if token.is("weft_sim") && !file.in_test_item(i) {
                report.add(&file.path, token.line, "production code imports the simulator");
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Vocabulary,
    Mechanism,
    Peer,
    Engine,
}

/// The engine's modules by layer. A module uses its own layer or lower ones; mechanisms never use
/// each other.
const LAYERS: &[(Layer, &[&str])] = &[
    (
        Layer::Vocabulary,
        &[
            "caps",
            "choices",
            "config",
            "error",
            "event",
            "exception",
            "id",
            "pool",
            "seq",
            "slab",
            "stats",
            "time",
            "timer",
            "wire",
        ],
    ),
    (
        Layer::Mechanism,
        &[
            "atomic",
            "credit",
            "group",
            "matching",
            "pull",
            "reliability",
            "rma",
            "budget",
            "rtt",
            "transfer",
            "window",
        ],
    ),
    (Layer::Peer, &["connection", "peer"]),
    (Layer::Engine, &["engine", "relay"]),
];

fn layer_of(module: &str) -> Option<Layer> {
    LAYERS.iter().find(|(_, names)| names.contains(&module)).map(|(layer, _)| *layer)
}

/// Checks the layers inside the engine: vocabulary <- mechanisms <- peer <- engine.
pub fn layers(tree: &Tree, report: &mut Report) {
    const SOURCE: &str = "crates/weft-core/src/";
    let in_core = |f: &&File| f.path.starts_with(SOURCE) && !f.is_test();
    let module_of = |f: &File| module_path(&f.path[SOURCE.len()..]);
    let modules: BTreeSet<String> =
        tree.rust().filter(in_core).filter_map(|f| module_of(f).into_iter().next()).collect();
    for module in modules.iter().filter(|m| layer_of(m).is_none()) {
        report.add(SOURCE, 0, format!("module {module} has no layer in tidy's table"));
    }
    for file in tree.rust().filter(in_core) {
        let path = module_of(file);
        let Some((own, layer)) = path.first().and_then(|m| Some((m, layer_of(m)?))) else {
            continue;
        };
        for (line, used) in uses(file, path.len()) {
            let Some(other) = layer_of(&used).filter(|_| used != *own) else { continue };
            let sibling = layer == Layer::Mechanism && other == Layer::Mechanism;
            if other > layer || sibling {
                report.add(&file.path, line, format!("{own} must not use {used}"));
            }
        }
    }
}

/// Returns the module of a file: `a/b.rs` and `a/b/mod.rs` are `a::b`; the crate root is the empty
/// path.
pub(super) fn module_path(file: &str) -> Vec<String> {
    let mut parts: Vec<String> =
        file.trim_end_matches(".rs").split('/').map(str::to_string).collect();
    if parts.last().is_some_and(|p| matches!(p.as_str(), "mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

/// Returns line and name of each top-level module that `file`, `depth` modules deep, names outside
/// tests.
fn uses(file: &File, depth: usize) -> Vec<(usize, String)> {
    let tokens = &file.tokens;
    let mut found = Vec::new();
    let mut inner: Vec<usize> = Vec::new();
    for i in 0..tokens.len() {
        inner.retain(|end| *end > i);
        if file.in_test_item(i) {
            continue;
        }
        if tokens[i].is("mod") {
            inner.extend(tokens.get(i + 2).and_then(|t| t.opens('{')));
        }
        if tokens[i].is("crate") {
            heads(tokens, i + 1, &mut found);
        } else if tokens[i].is("super") && !follows_path(tokens, i) {
            let (ups, next) = supers(tokens, i);
            if ups == depth + inner.len() {
                heads(tokens, next, &mut found);
            }
        }
    }
    found
}

fn follows_path(tokens: &[Token], i: usize) -> bool {
    i > 0 && tokens[i - 1].is_punct(':')
}

/// Returns the length of a chain `super::super`, and the index after it.
fn supers(tokens: &[Token], from: usize) -> (usize, usize) {
    let (mut n, mut i) = (0, from);
    while tokens.get(i).is_some_and(|t| t.is("super")) {
        n += 1;
        i += 1;
        if tokens.get(i + 2).is_some_and(|t| t.is("super")) {
            i += 2;
        }
    }
    (n, i)
}

/// Finds the first names after `::` at `at`: one name, or those of a `{...}` list.
fn heads(tokens: &[Token], at: usize, found: &mut Vec<(usize, String)>) {
    let colons = |i: usize| tokens.get(i).is_some_and(|t: &Token| t.is_punct(':'));
    if !colons(at) || !colons(at + 1) {
        return;
    }
    let Some(next) = tokens.get(at + 2) else { return };
    match &next.kind {
        Kind::Ident(name) => found.push((next.line, name.clone())),
        Kind::Open('{', mate) => {
            let mut i = at + 3;
            while i < *mate {
                if let Some(name) = tokens[i].ident() {
                    found.push((tokens[i].line, name.to_string()));
                }
                while i < *mate && !tokens[i].is_punct(',') {
                    i = tokens[i].opens('{').unwrap_or(i) + 1;
                }
                i += 1;
            }
        }
        _ => {}
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::testing::messages;
    use super::*;

    #[test]
    fn crates__links_do_not_know_the_endpoint() {
        let bad =
            "[package]\nname = \"weft-link\"\n[dependencies]\nweft-core = \"1\"\nweft = \"1\"\n";
        let found = messages(crates, &[("crates/weft-link/Cargo.toml", bad)]);
        assert_eq!(found, ["weft-link must not build on weft"]);
    }

    #[test]
    fn crates__the_command_builds_on_no_benchmark_and_no_paper() {
        for other in ["weft-bench", "weft-papers", "weft-platform", "weft-radix"] {
            let toml = format!("[package]\nname = \"weft-cli\"\n[dependencies]\n{other} = \"1\"\n");
            let found = messages(crates, &[("tools/cli/Cargo.toml", &toml)]);
            assert_eq!(found, [format!("weft-cli must not build on {other}")]);
        }
        let radix = "[package]\nname = \"weft-radix\"\n[dependencies]\nweft-bench = \"1\"\n";
        let found = messages(crates, &[("papers/radix/Cargo.toml", radix)]);
        assert_eq!(found, ["weft-radix must not build on weft-bench"]);
    }

    #[test]
    fn crates__an_unknown_crate_is_named() {
        assert_eq!(messages(crates, &[("x/Cargo.toml", "[package]\nname = \"new\"\n")]).len(), 1);
    }

    #[test]
    fn simulator__only_tests_and_the_command_line_may() {
        let text = "use weft_sim::Net;";
        assert_eq!(messages(simulator, &[("crates/weft/src/a.rs", text)]).len(), 1);
        assert_eq!(messages(simulator, &[("crates/weft/tests/a.rs", text)]).len(), 0);
        assert_eq!(messages(simulator, &[("tools/cli/src/a.rs", text)]).len(), 0);
        let inside = "#[cfg(test)] mod tests { use weft_sim::Net; }";
        assert_eq!(messages(simulator, &[("crates/weft/src/a.rs", inside)]).len(), 0);
    }

    #[test]
    fn layers__mechanisms_do_not_use_each_other() {
        let path = "crates/weft-core/src/matching/mod.rs";
        let other = ("crates/weft-core/src/reliability.rs", "");
        let bad = "use crate::{seq::Seq, reliability::{Window, seq}};";
        assert_eq!(messages(layers, &[(path, bad), other]), ["matching must not use reliability"]);
        assert!(messages(layers, &[(path, "use crate::matching::a; use crate::Seq;")]).is_empty());
    }

    #[test]
    fn layers__super_is_followed_to_the_crate_root() {
        let path = "crates/weft-core/src/matching/list.rs";
        let bad = "use super::super::engine::Engine;";
        assert_eq!(messages(layers, &[(path, bad)]), ["matching must not use engine"]);
        assert!(messages(layers, &[(path, "use super::engine::Engine;")]).is_empty());
        let nested = "mod a { use super::super::super::peer::P; }";
        assert_eq!(messages(layers, &[(path, nested)]), ["matching must not use peer"]);
    }

    #[test]
    fn layers__every_module_has_one() {
        let found = messages(layers, &[("crates/weft-core/src/novelty.rs", "")]);
        assert_eq!(found, ["module novelty has no layer in tidy's table"]);
    }
}
