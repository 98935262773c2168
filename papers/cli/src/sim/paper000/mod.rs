//! `weft sim paper000`: the speed-ups of the paper's semiconductor simulation on its cluster.

mod claims;
mod cluster;
mod costs;
mod programs;
mod study;

use crate::app::progress::Whole;
use anyhow::{Context, Result};
use claims::{claims, Claim};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use study::{Curve, Study, FIGURES};
use weft_plot::{plain, Chart, Picture, Point, Spacing};
use weft_run::outputs;

/// The share of statements that the model is to keep.
const GOAL: f64 = 0.85;

/// Speed-ups on the cluster of "Linux cluster communication software performance evaluation"
/// (paper 000): 1 to 111 processes or objects on 37 hosts, in Figures 5, 6 and 15, and what the
/// paper says of them
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Figure: 5 (versions of the program), 6 (the same with rows divided by their cost), 15
    /// (TCP and TIPC); or all, with the paper's statements
    #[arg(long, value_name = "FIGURE", default_value = "all", value_parser = parse_figure)]
    figure: String,
    /// Steps of each run
    #[arg(long, value_name = "N", default_value_t = 200,
        value_parser = clap::value_parser!(u32).range(4..=10_000))]
    steps: u32,
    /// Steps between two balances of objects
    #[arg(long, value_name = "N", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    every: u32,
    /// Time of an exponential on the cluster's processor, in nanoseconds: some 130 cycles of 2.1
    /// GHz
    #[arg(long, value_name = "NS", default_value_t = 60.0)]
    ns_per_unit: f64,
    /// Print one JSON object for each point and statement, in place of the text
    #[arg(long)]
    json: bool,
    /// Seed of the simulation
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Also plot the figures into this folder: paper000-5.png and so on
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn parse_figure(text: &str) -> Result<String, String> {
    let known = FIGURES.into_iter().chain(["all"]).any(|figure| figure == text);
    match known {
        true => Ok(text.to_string()),
        false => Err(format!("one of {}, all is wanted", FIGURES.join(", "))),
    }
}

/// Runs the figures, and prints them.
///
/// # Errors
/// A simulation failed, or a file cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    if !(1.0..=1e6).contains(&args.ns_per_unit) {
        misuse!("--ns-per-unit {}: nanoseconds from 1 to 1e6 are wanted", args.ns_per_unit);
    }
    if let Some(dir) = &args.out {
        std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        outputs::check_file("--out", &dir.join("paper000-5.png"))?;
    }
    let costs = costs::measure()?;
    let study = Study {
        times: Rc::new(costs.times(args.ns_per_unit)),
        steps: args.steps,
        every: args.every,
        seed: args.seed,
    };
    let figures: Vec<&str> = match args.figure.as_str() {
        "all" => FIGURES.to_vec(),
        figure => vec![figure],
    };
    let (bar, done, runs) = (Whole::new(0), Cell::new(0), Study::runs(&figures));
    let tell = |place: String| bar.at(place, done.replace(done.get() + 1) as f64 / runs as f64);
    let curves = study.curves(&figures, &tell).map_err(anyhow::Error::msg)?;
    drop(bar);
    let claims = if args.figure == "all" { claims(&curves) } else { Vec::new() };
    match args.json {
        true => print_json(&curves, &claims)?,
        false => {
            println!(
                "{} rows of {} sweeps a step; the most costs {:.1} x the mean; a step takes {:.1} \
                 ms on one host at {} ns an exponential ({:.1} ns here)",
                costs.units.len(),
                costs::SWEEPS,
                costs.steepness(),
                study.alone() * 1e3,
                args.ns_per_unit,
                costs.here_ns
            );
            figures.iter().for_each(|figure| print_figure(figure, &curves));
            print_claims(&claims);
        }
    }
    if let Some(dir) = &args.out {
        for figure in figures {
            draw(&dir.join(format!("paper000-{figure}.png")), figure, &curves)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print_figure(figure: &str, curves: &[Curve]) {
    let of: Vec<&Curve> = curves.iter().filter(|curve| curve.figure == figure).collect();
    let Some(first) = of.first() else { return };
    println!("\nFigure {figure}, speed-up by processes or objects on {} hosts", cluster::HOSTS);
    print!("{:>5}", "ranks");
    of.iter().for_each(|curve| print!("  {:>14}", curve.name.replace(", rows by cost", " +")));
    println!("");
    for ranks in first.points.keys() {
        print!("{ranks:>5}");
        let width = |curve: &Curve| curve.name.replace(", rows by cost", " +").len().max(14);
        of.iter().for_each(|curve| print!("  {:>1$.1}", curve.at(*ranks), width(curve)));
        println!("");
    }
}

fn print_claims(claims: &[Claim]) {
    if claims.is_empty() {
        return;
    }
    println!("\nStatements of the paper");
    for Claim { figure, text, holds, because } in claims {
        let word = match holds {
            Some(true) => "holds",
            Some(false) => "differs",
            None => "-",
        };
        println!("{word:<8} F{figure:<3} {text} ({because})");
    }
    let (kept, all) = counts(claims);
    println!("{kept} of {all} hold: {:.0} %, the goal is {:.0} %", share(claims), GOAL * 100.0);
}

fn counts(claims: &[Claim]) -> (usize, usize) {
    let of = |wanted| claims.iter().filter(|claim| claim.holds == wanted).count();
    (of(Some(true)), of(Some(true)) + of(Some(false)))
}

fn share(claims: &[Claim]) -> f64 {
    let (kept, all) = counts(claims);
    100.0 * kept as f64 / all.max(1) as f64
}

fn print_json(curves: &[Curve], claims: &[Claim]) -> Result<()> {
    for curve in curves {
        for (ranks, speed) in &curve.points {
            let line = serde_json::json!({
                "figure": curve.figure, "curve": curve.name, "ranks": ranks, "unit": "speed-up",
                "simulated": speed,
            });
            println!("{}", serde_json::to_string(&line)?);
        }
    }
    for Claim { figure, text, holds, because } in claims {
        let line = serde_json::json!({
            "figure": figure, "claim": text, "holds": holds, "because": because,
        });
        println!("{}", serde_json::to_string(&line)?);
    }
    if !claims.is_empty() {
        let share = share(claims) / 100.0;
        let line = serde_json::json!({
            "what": "share of the paper's statements that hold", "value": share, "target": GOAL,
            "met": share >= GOAL,
        });
        println!("{}", serde_json::to_string(&line)?);
    }
    Ok(())
}

fn picture(figure: &str, curves: &[Curve]) -> Option<Picture> {
    let point = |(ranks, speed): (&usize, &f64)| Point {
        size: *ranks,
        value: *speed,
        spread: (*speed, *speed),
    };
    let of = curves.iter().filter(|curve| curve.figure == figure).enumerate();
    let drawn = of.map(|(place, curve)| {
        weft_plot::Curve::new(&curve.name, place, curve.points.iter().map(point).collect())
    });
    let chart = Chart {
        title: format!("Paper 000, Figure {figure}, simulated"),
        unit: "speed-up".into(),
        sizes: "processes, or objects, on 37 hosts",
        size: |ranks| ranks.to_string(),
        spacing: Spacing::Even,
        number: &plain,
        by_powers: false,
        curves: drawn.collect(),
    };
    chart.picture()
}

fn draw(path: &Path, figure: &str, curves: &[Curve]) -> Result<()> {
    let Some(picture) = picture(figure, curves) else { return Ok(()) };
    std::fs::write(path, picture.png()?).with_context(|| format!("writing {}", path.display()))
}
