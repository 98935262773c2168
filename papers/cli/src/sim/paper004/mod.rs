//! `weft sim paper004`: the paper's two clusters in virtual time, beside its numbers.

mod cases;
mod costs;
mod figures;
mod plot;
mod statements;
mod study;
mod systems;

use anyhow::{Context, Result};
use figures::FIGURES;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use study::Study;
use systems::{Row, SYSTEMS};
use weft_platform::claims::{claims, Claim};
use weft_platform::compare::{summary, Comparison, Lab, Summary, ORDERINGS, TABLES};
use weft_run::outputs;

/// Statements of the paper about systems and applications.
const CLAIMS: &str = "claims";

/// The clusters and choices of "Cluster Communication Protocols for Parallel-Programming Systems"
/// (2004), beside every number it states
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Numbers of one place in the paper: III, IV, V, VI, fig6, fig7, fig9; orderings; or all of
    /// these. Programs on the clusters: systems (rows of V and VI), VII (efficiencies), figures 11
    /// to 16, claims (what the paper says of all these)
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
    let more = ["all", SYSTEMS].into_iter().chain(FIGURES).chain([CLAIMS]);
    let known = TABLES.into_iter().chain(more.clone()).find(|name| name.eq_ignore_ascii_case(text));
    let wanted = || {
        format!("one of {}, {} is wanted", TABLES.join(", "), more.collect::<Vec<_>>().join(", "))
    };
    known.map(str::to_string).ok_or_else(wanted)
}

/// One line of JSON, its keys in this order.
#[derive(serde::Serialize)]
struct Line<'a> {
    table: &'a str,
    row: &'a str,
    platform: &'a str,
    unit: &'a str,
    paper: Option<f64>,
    simulated: f64,
    error: Option<f64>,
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
            paper: Some(number.paper),
            simulated: row.simulated,
            error: Some(row.error()),
            calibrated: number.calibrated,
        }
    }

    /// A statement of the paper: 1 if the model agrees, else 0.
    fn of_claim(table: &'a str, claim: &'a Claim) -> Line<'a> {
        let simulated = f64::from(u8::from(claim.kept));
        Line {
            table,
            row: &claim.text,
            platform: claim.platform,
            unit: "kept",
            paper: Some(1.0),
            simulated,
            error: Some(simulated - 1.0),
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

fn print_claims(what: &str, list: &[Claim]) {
    let kept = list.iter().filter(|claim| claim.kept).count();
    println!("{what} the paper states: {kept} of {} kept", list.len());
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

/// Returns the ending of a plot's file, which names its format.
fn ending(path: &Path) -> Result<&str> {
    match path.extension().and_then(|e| e.to_str()) {
        Some(known @ ("png" | "svg")) => Ok(known),
        _ => misuse!("{}: the plot's file is to end in .svg or .png", path.display()),
    }
}

fn write_plot(path: &Path, picture: &weft_plot::Picture) -> Result<()> {
    let bytes = match ending(path)? {
        "png" => picture.png()?,
        _ => picture.svg("simulated against the paper").into_bytes(),
    };
    std::fs::write(path, bytes).with_context(|| format!("writing {}", path.display()))
}

/// Prints the numbers of programs on the clusters.
fn print_programs(args: &Args, rows: &[Row]) -> Result<()> {
    if args.json {
        for row in rows {
            println!("{}", serde_json::to_string(&row.line())?);
        }
        return Ok(());
    }
    println!(
        "{:<5} {:<52} {:<5} {:>8} {:>9} {:<8} {:>7}",
        "table", "number", "on", "paper", "simulated", "unit", "error"
    );
    for row in rows {
        let line = row.line();
        let paper = line.paper.map_or(String::new(), |paper| format!("{paper:.2}"));
        let error = line.error.map_or(String::new(), |error| format!("{:+.1}%", error * 100.0));
        let note = if line.calibrated { "calibrated" } else { "" };
        let text = format!(
            "{:<5} {:<52} {:<5} {:>8} {:>9.2} {:<8} {:>7} {note}",
            line.table, line.row, line.platform, paper, line.simulated, line.unit, error
        );
        println!("{}", text.trim_end());
    }
    let of = |calibrated| rows.iter().filter(move |row| row.calibrated == calibrated);
    let error = |row: &Row| row.line().error;
    print_summary("predicted", summary(of(false).filter_map(error)));
    print_summary("calibrated", summary(of(true).filter_map(error)));
    print_summary("all", summary(rows.iter().filter_map(error)));
    Ok(())
}

/// Simulates applications, and prints a table, a figure, or all that the paper says of them.
fn run_programs(args: &Args) -> Result<ExitCode> {
    let table = args.table.as_str();
    let figure = FIGURES.into_iter().find(|figure| *figure == table);
    if args.plot.is_some() && figure.is_none() {
        misuse!("--plot shows the tables of the communication interface, table VII or a figure");
    }
    if table == SYSTEMS {
        let rows = systems::systems(table, args.seed).map_err(anyhow::Error::msg)?;
        print_programs(args, &rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut study = Study::new(args.seed);
    let wanted = figure.map_or_else(|| FIGURES.to_vec(), |figure| vec![figure]);
    let cases: Vec<_> = wanted.iter().flat_map(|figure| figures::cases(figure)).collect();
    study.run(&cases).map_err(anyhow::Error::msg)?;
    if let Some(figure) = figure {
        let rows = figures::rows(figure, &study);
        print_programs(args, &rows)?;
        if let Some(path) = &args.plot {
            write_plot(path, &plot::bars(figure, &rows))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let rows = systems::systems(SYSTEMS, args.seed).map_err(anyhow::Error::msg)?;
    let claims = statements::statements(&study, &rows);
    if args.json {
        for claim in &claims {
            println!("{}", serde_json::to_string(&Line::of_claim(CLAIMS, claim))?);
        }
    } else {
        print_claims(CLAIMS, &claims);
    }
    Ok(ExitCode::SUCCESS)
}

/// Simulates the requested tables and prints each number beside that of the paper.
pub fn run(args: &Args) -> Result<ExitCode> {
    // Before what takes minutes.
    if let Some(path) = &args.plot {
        ending(path)?;
        outputs::check_file("--plot", path)?;
    }
    if !TABLES.contains(&args.table.as_str()) && args.table != "all" {
        return run_programs(args);
    }
    let lab = Lab::new(args.seed);
    let rows = lab.rows(&args.table);
    // Tables V and VI have the systems above the communication interface as well.
    let above = systems::systems(&args.table, args.seed).map_err(anyhow::Error::msg)?;
    if let Some(path) = &args.plot {
        let systems = match args.table.as_str() {
            "all" => systems::systems(SYSTEMS, args.seed).map_err(anyhow::Error::msg)?,
            _ => above.clone(),
        };
        let lines = rows.iter().map(Line::of_row).chain(systems.iter().map(Row::line));
        write_plot(path, &plot::plot(&lines.collect::<Vec<_>>()))?;
    }
    let orderings = match args.table.as_str() {
        "all" | ORDERINGS => claims(&lab),
        _ => Vec::new(),
    };
    if args.json {
        let orderings = orderings.iter().map(|claim| Line::of_claim(ORDERINGS, claim));
        let all = rows.iter().map(Line::of_row).chain(above.iter().map(Row::line)).chain(orderings);
        for line in all {
            println!("{}", serde_json::to_string(&line)?);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !rows.is_empty() {
        print_rows(&rows);
        print_summaries(&rows);
    }
    if !above.is_empty() {
        print_programs(args, &above)?;
    }
    if !orderings.is_empty() {
        print_claims(ORDERINGS, &orderings);
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
        assert_eq!(parse_table("16").as_deref(), Ok("16"));
        assert_eq!(parse_table("Claims").as_deref(), Ok("claims"));
        assert!(parse_table("VIII").is_err());
    }

    #[test]
    fn write_plot__svg_and_png_and_nothing_else() {
        let rows = Lab::new(1).rows("fig6");
        let rows: Vec<_> = rows.iter().map(Line::of_row).collect();
        let dir = std::env::temp_dir().join(format!("weft-paper004-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        for (name, start) in [("a.svg", &b"<svg "[..]), ("a.png", &b"\x89PNG"[..])] {
            write_plot(&dir.join(name), &plot::plot(&rows)).unwrap();
            assert!(std::fs::read(dir.join(name)).unwrap().starts_with(start), "{name}");
        }
        let error = write_plot(&dir.join("a.gif"), &plot::plot(&rows)).unwrap_err();
        assert!(error.to_string().contains(".svg or .png"), "{error}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
