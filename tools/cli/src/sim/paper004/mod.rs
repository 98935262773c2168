//! `weft sim paper004`: the paper's two clusters in virtual time, beside its numbers.

mod apps;
mod plot;
mod systems;

use anyhow::{Context, Result};
use apps::EFFICIENCIES;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use systems::{Row, SYSTEMS};
use weft_sim::platform::claims::{claims, Claim};
use weft_sim::platform::compare::{summary, Comparison, Lab, Summary, ORDERINGS, TABLES};

/// The clusters and choices of "Cluster Communication Protocols for Parallel-Programming Systems"
/// (2004), beside every number it states
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Numbers of one place in the paper: III, IV, V, VI, fig6, fig7, fig9; orderings; or all of
    /// these. Programs on the clusters: systems (rows of V and VI), VII (efficiencies)
    #[arg(long, value_name = "TABLE", default_value = "all", value_parser = parse_table)]
    table: String,
    /// Print one JSON object for each number, and for each ordering (1: kept), in place of the text
    #[arg(long)]
    json: bool,
    /// Seed of the placement of the ranks in the network; the same seed gives the same numbers
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Also plot the ratio of the simulated numbers to those of the paper
    #[arg(long, value_name = "FILE.svg|FILE.png")]
    plot: Option<PathBuf>,
}

fn parse_table(text: &str) -> Result<String, String> {
    let more = ["all", SYSTEMS, EFFICIENCIES];
    let known = TABLES.into_iter().chain(more).find(|name| name.eq_ignore_ascii_case(text));
    let wanted = || format!("one of {}, {} is wanted", TABLES.join(", "), more.join(", "));
    known.map(str::to_string).ok_or_else(wanted)
}

/// One line of JSON, its keys in this order.
#[derive(serde::Serialize)]
struct Line<'a> {
    table: &'a str,
    row: &'a str,
    platform: &'a str,
    unit: &'a str,
    paper: f64,
    simulated: f64,
    error: f64,
    calibrated: bool,
}

impl<'a> Line<'a> {
    fn of_row(row: &'a Comparison) -> Line<'a> {
        let number = &row.number;
        Line {
            table: number.table,
            row: &number.row,
            platform: number.platform,
            unit: number.unit,
            paper: number.paper,
            simulated: row.simulated,
            error: row.error(),
            calibrated: number.calibrated,
        }
    }

    /// A statement of the paper: 1 if the model agrees, else 0.
    fn of_claim(claim: &'a Claim) -> Line<'a> {
        let simulated = f64::from(u8::from(claim.kept));
        Line {
            table: ORDERINGS,
            row: &claim.text,
            platform: claim.platform,
            unit: "kept",
            paper: 1.0,
            simulated,
            error: simulated - 1.0,
            calibrated: false,
        }
    }
}

fn print_rows(rows: &[Comparison]) {
    println!(
        "{:<5} {:<52} {:<5} {:>8} {:>9} {:<8} {:>7}",
        "table", "number", "on", "paper", "simulated", "unit", "error"
    );
    for row in rows {
        let number = &row.number;
        let note = if number.calibrated { "calibrated" } else { "" };
        let line = format!(
            "{:<5} {:<52} {:<5} {:>8.1} {:>9.2} {:<8} {:>+6.1}% {note}",
            number.table,
            number.row,
            number.platform,
            number.paper,
            row.simulated,
            number.unit,
            row.error() * 100.0,
        );
        println!("{}", line.trim_end());
    }
}

fn print_summary(what: &str, sum: Summary) {
    if sum.count == 0 {
        return;
    }
    println!(
        "{what}: {} numbers, median error {:.1} %, {:.1} % of them within 25 %",
        sum.count,
        sum.median * 100.0,
        sum.within_quarter * 100.0
    );
}

fn print_summaries(rows: &[Comparison]) {
    let of = |calibrated: bool| rows.iter().filter(move |r| r.number.calibrated == calibrated);
    println!("");
    print_summary("predicted", summary(of(false).map(Comparison::error)));
    print_summary(
        "predicted, to the paper's decimals",
        summary(of(false).map(Comparison::rounded_error)),
    );
    print_summary("calibrated", summary(of(true).map(Comparison::error)));
    print_summary("all", summary(rows.iter().map(Comparison::error)));
    println!("");
}

fn print_claims(list: &[Claim]) {
    let kept = list.iter().filter(|claim| claim.kept).count();
    println!("orderings the paper states: {kept} of {} kept", list.len());
    for claim in list {
        let word = if claim.kept { "kept" } else { "BROKEN" };
        let figures: Vec<String> = claim.figures.iter().map(|x| format!("{x:.2}")).collect();
        println!(
            "{word:<6} {:<5} {:<4} {} ({})",
            claim.section,
            claim.platform,
            claim.text,
            figures.join(", ")
        );
    }
}

fn write_plot(path: &Path, rows: &[Comparison]) -> Result<()> {
    let picture = plot::plot(rows);
    let bytes = match path.extension().and_then(|e| e.to_str()) {
        Some("png") => picture.png()?,
        Some("svg") => picture.svg("simulated against the paper").into_bytes(),
        _ => misuse!("{}: the plot's file is to end in .svg or .png", path.display()),
    };
    std::fs::write(path, bytes).with_context(|| format!("writing {}", path.display()))
}

/// Prints the numbers of programs on the clusters.
fn print_programs(args: &Args, rows: Result<Vec<Row>, String>) -> Result<ExitCode> {
    let rows = rows.map_err(anyhow::Error::msg)?;
    if args.plot.is_some() {
        misuse!("--plot shows the tables of the communication interface");
    }
    if args.json {
        for row in &rows {
            println!("{}", serde_json::to_string(&row.line())?);
        }
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "{:<5} {:<40} {:<5} {:>8} {:>9} {:<5} {:>10}",
        "table", "number", "on", "paper", "simulated", "unit", "difference"
    );
    for row in &rows {
        let line = row.line();
        println!(
            "{:<5} {:<40} {:<5} {:>8.2} {:>9.2} {:<5} {:>+9.1}%",
            line.table,
            line.row,
            line.platform,
            line.paper,
            line.simulated,
            line.unit,
            line.error * 100.0
        );
    }
    println!("the models' own processor time is not charged");
    print_summary("predicted", summary(rows.iter().map(|row| row.line().error)));
    Ok(ExitCode::SUCCESS)
}

/// Simulates the requested tables and prints each number beside that of the paper.
pub fn run(args: &Args) -> Result<ExitCode> {
    match args.table.as_str() {
        SYSTEMS => return print_programs(args, systems::systems(args.seed)),
        EFFICIENCIES => return print_programs(args, apps::efficiencies(args.seed)),
        _ => {}
    }
    let lab = Lab::new(args.seed);
    let rows = lab.rows(&args.table);
    if let Some(path) = &args.plot {
        write_plot(path, &rows)?;
    }
    let orderings = match args.table.as_str() {
        "all" | ORDERINGS => claims(&lab),
        _ => Vec::new(),
    };
    if args.json {
        for line in rows.iter().map(Line::of_row).chain(orderings.iter().map(Line::of_claim)) {
            println!("{}", serde_json::to_string(&line)?);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !rows.is_empty() {
        print_rows(&rows);
        print_summaries(&rows);
    }
    if !orderings.is_empty() {
        print_claims(&orderings);
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn parse_table__names_of_the_paper_in_any_case() {
        assert_eq!(parse_table("iii").as_deref(), Ok("III"));
        assert_eq!(parse_table("Fig9").as_deref(), Ok("fig9"));
        assert_eq!(parse_table("ALL").as_deref(), Ok("all"));
        assert_eq!(parse_table("vii").as_deref(), Ok("VII"));
        assert!(parse_table("VIII").is_err());
    }

    #[test]
    fn write_plot__svg_and_png_and_nothing_else() {
        let rows = Lab::new(1).rows("fig6");
        let dir = std::env::temp_dir().join(format!("weft-paper004-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        for (name, start) in [("a.svg", &b"<svg "[..]), ("a.png", &b"\x89PNG"[..])] {
            write_plot(&dir.join(name), &rows).unwrap();
            assert!(std::fs::read(dir.join(name)).unwrap().starts_with(start), "{name}");
        }
        let error = write_plot(&dir.join("a.gif"), &rows).unwrap_err();
        assert!(error.to_string().contains(".svg or .png"), "{error}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
