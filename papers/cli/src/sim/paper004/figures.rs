//! Table VII and Figures 11 to 16: the applications with each implementation of the packet
//! interface.

use super::cases::{App, Case};
use super::costs::PLATFORMS;
use super::study::Study;
use super::systems::Row;
use weft_core::group::tree::Tree;
use weft_platform::choice::Choice;

/// The table and the figures.
pub const FIGURES: [&str; 7] = ["VII", "11", "12", "13", "14", "15", "16"];

/// Columns of SOR's matrix in Figure 14.
pub const COLUMNS: [usize; 4] = [1536, 3072, 6144, 12288];

/// The applications of Figure 16.
pub const CASTERS: [App; 4] = [App::Asp, App::Leq, App::Qr, App::Radix];

/// Returns the implementations of a figure for an application, beside the usual one, with their
/// names.
pub fn variants(figure: &str, app: App, platform: usize) -> Vec<(String, Case)> {
    let usual = Case::usual(app, platform);
    let named = |choice: Choice| (choice.to_string(), usual.with(choice));
    match figure {
        "12" => vec![named(Choice::NIRX), named(Choice::HRX)],
        "13" => vec![named(Choice::PIO)],
        "15" => [1024, 4096].map(|mtu| named(Choice::SDMA.with_mtu(mtu))).to_vec(),
        "16" => forwarders(app, usual),
        _ => Vec::new(),
    }
}

fn forwarders(app: App, usual: Case) -> Vec<(String, Case)> {
    let hmc = |tree| usual.with(Choice::HMC.with_tree(tree));
    let mpimc = |tree| usual.with_message_tree(tree);
    match app {
        App::Asp => vec![
            ("l-sdma-hmc".to_string(), hmc(Tree::Binary)),
            ("l-sdma-mpimc".to_string(), mpimc(Tree::Binary)),
            ("l-sdma-mpimc, binomial".to_string(), mpimc(Tree::Binomial)),
        ],
        App::Qr => vec![
            ("l-sdma-hmc".to_string(), hmc(Tree::Binomial)),
            ("l-sdma-mpimc".to_string(), mpimc(Tree::Binomial)),
        ],
        App::Leq | App::Radix => vec![("l-sdma-hmc".to_string(), hmc(Tree::Binary))],
        _ => Vec::new(),
    }
}

/// Returns the runs of Figure 14 for a number of columns, the usual one first.
pub fn columns(cols: usize, platform: usize) -> [(&'static str, Case); 4] {
    let case = |early, choice| Case::usual(App::Sor { cols, early }, platform).with(choice);
    [
        ("l-sdma", case(false, Choice::SDMA)),
        ("l-sdma + async", case(true, Choice::SDMA)),
        ("l-rcpy", case(false, Choice::RCPY)),
        ("l-rcpy + async", case(true, Choice::RCPY)),
    ]
}

/// Returns all runs of a table or figure.
pub fn cases(figure: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for platform in [0, 1] {
        if figure == "14" {
            for cols in COLUMNS {
                cases.extend(columns(cols, platform).map(|(_, case)| case));
            }
            continue;
        }
        for app in App::ALL {
            let others = variants(figure, app, platform);
            if !others.is_empty() || matches!(figure, "VII" | "11") {
                cases.push(Case::usual(app, platform));
            }
            cases.extend(others.into_iter().map(|(_, case)| case));
        }
    }
    cases
}

/// The numbers that the text states for a run of a figure: its time over that of l-sdma.
fn stated(figure: &str, app: App, name: &str, platform: usize) -> Option<f64> {
    match (figure, app, name, platform) {
        // "Barnes and Radix ... up to 15 %"; "for LEQ, this slowdown is even 23 %": which platform
        // is not said, and the largest one is meant.
        ("12", App::Leq, "l-nirx", 0) => Some(1.23),
        // "Similar to" l-sdma-hmc.
        ("16", App::Qr, _, 0) => Some(1.34),
        ("16", App::Qr, _, 1) => Some(1.51),
        _ => None,
    }
}

/// Returns the rows of a table or figure. The paper prints no numbers in its figures: rows have
/// one where the text states it.
pub fn rows(figure: &'static str, study: &Study) -> Vec<Row> {
    let mut rows = Vec::new();
    for (at, platform) in PLATFORMS.into_iter().enumerate() {
        let mut add = |row: String, unit: &'static str, paper: Option<f64>, simulated: f64| {
            // The number of positions is that which explains these two.
            let calibrated = (figure, at) == ("VII", 0) && row.starts_with("Puzzle");
            let table = figure;
            rows.push(Row { table, row, platform, unit, paper, simulated, calibrated });
        };
        match figure {
            "VII" => {
                for app in App::ALL {
                    let of = study.of(&Case::usual(app, at));
                    let paper = app.efficiencies()[at];
                    let row = format!("{}, {}", app.name(), app.part());
                    add(row, "of 1", Some(paper), of.efficiency);
                }
            }
            "11" => App::ALL.into_iter().for_each(|app| rates(app, at, study, &mut add)),
            "14" => {
                for cols in COLUMNS {
                    let [(_, usual), others @ ..] = columns(cols, at);
                    for (name, case) in others {
                        let times = study.slowdown(&case, &usual);
                        add(format!("SOR, {cols} columns, {name}"), "times", None, times);
                    }
                }
            }
            _ => {
                for app in App::ALL {
                    for (name, case) in variants(figure, app, at) {
                        let times = study.slowdown(&case, &Case::usual(app, at));
                        let paper = stated(figure, app, &name, at);
                        add(format!("{}, {name}", app.name()), "times", paper, times);
                    }
                }
            }
        }
    }
    rows
}

/// Adds the rates of an application that Figure 11 shows.
fn rates(
    app: App,
    platform: usize,
    study: &Study,
    add: &mut impl FnMut(String, &'static str, Option<f64>, f64),
) {
    let of = study.of(&Case::usual(app, platform));
    let kinds = ["messages", "broadcasts", "acknowledgements"];
    for (kind, rate) in kinds.iter().zip(of.packets) {
        // "Packet rate ... is high (about 10,000 packets/s/processor)"
        let stated = (app, platform, *kind) == (App::Barnes, 0, "messages");
        let paper = stated.then_some(10_000.0);
        add(format!("{}: packets of {kind}", app.name()), "1/s", paper, rate);
    }
    for (kind, rate) in kinds.iter().zip(of.bytes) {
        add(format!("{}: bytes of {kind}", app.name()), "Mbyte/s", None, rate / 1_048_576.0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn cases__of_all_figures_have_names_of_their_own() {
        let mut all: Vec<String> =
            FIGURES.iter().flat_map(|figure| cases(figure)).map(|case| case.key()).collect();
        all.sort();
        all.dedup();
        // 18 usual ones; 12: 36, 13: 18, 14: 32 with two usual ones, 15: 36, 16: 14.
        assert_eq!(all.len(), 18 + 36 + 18 + 30 + 36 + 14);
    }
}
