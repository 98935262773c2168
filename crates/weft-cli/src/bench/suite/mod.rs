//! `weft bench suite`: pipes, sockets and links side by side, as paper 000 evaluates the layers of
//! communication, with a report in which a person sees what to use when.
//!
//! | module | what |
//! | --- | --- |
//! | `plan` | situations, ways of passing bytes, sizes |
//! | `measure`, `load` | taking the figures; other work for the processor |
//! | `advice` | what to use when |
//! | `plot`, `draw`, `report` | plots, their files, the report |

mod advice;
mod draw;
mod load;
mod measure;
mod plan;
mod plot;
mod report;

use super::netns::Place;
use super::Options;
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use load::Load;
use measure::{Absence, Effort, Measure, Results};
use plan::Situation;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What the report tells about the run.
pub struct Run {
    /// The machine in words.
    pub machine: String,
    /// The command.
    pub command: String,
    /// How the figures were taken, in words.
    pub effort: String,
    /// Sizes of messages.
    pub sizes: Vec<usize>,
    /// How long it took.
    pub took: Duration,
}

fn effort(options: &Options) -> Effort {
    match options.quick {
        true => Effort { repeat: 3, turn: Duration::from_millis(6), labs: true },
        false => Effort { repeat: options.repeat, turn: Duration::from_millis(60), labs: true },
    }
}

fn bar(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} (about {eta} left)");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// Measures everything and writes the report into `folder`.
///
/// # Errors
/// The folder cannot be written, or nothing could be measured.
pub fn run(folder: &Path, options: &Options) -> Result<ExitCode> {
    let make = || std::fs::create_dir_all(folder);
    make().with_context(|| format!("the folder {}", folder.display()))?;
    let (start, effort, sizes) = (Instant::now(), effort(options), plan::sizes(options));
    let mut results = Results::default();
    let bar = bar(Situation::ALL.len() * sizes.len() * 2);
    let labs = measure::place_works(Place::Between(1500)).map_err(|e| format!("{e:#}"));
    let effort = Effort { labs: labs.is_ok(), ..effort };
    for situation in Situation::ALL {
        if let (Err(why), Place::Between(_)) = (&labs, situation.place) {
            let (situation, why) = (situation.title(), why.clone());
            results.absent.push(Absence { situation, way: "everything", why });
            bar.inc(sizes.len() as u64 * 2);
            continue;
        }
        let load = situation.loaded.then(Load::start).transpose()?;
        measure::situation(situation, &sizes, effort, &mut results, |what| {
            bar.set_message(what.to_owned());
            bar.inc(1);
        });
        drop(load);
    }
    bar.finish_and_clear();
    let context = Run {
        machine: super::machine(),
        command: command(),
        effort: format!(
            "{} repetitions of about {} ms for each figure, all ways in turn",
            effort.repeat,
            effort.turn.as_millis()
        ),
        sizes,
        took: start.elapsed(),
    };
    write(folder, &context, &results)?;
    anyhow::ensure!(!results.points.is_empty(), "nothing could be measured: see the report");
    Ok(ExitCode::SUCCESS)
}

fn command() -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    format!("weft {}", words.join(" "))
}

fn write(folder: &Path, context: &Run, results: &Results) -> Result<()> {
    let put = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))
    };
    put("results.csv", report::csv(results).as_bytes())?;
    let mut plots = 0;
    for situation in Situation::ALL {
        for measure in Measure::ALL {
            let Some(shapes) = plot::plot(results, situation, measure) else { continue };
            let name = format!("{}-{}.png", situation.key(), measure.name());
            put(&name, &draw::png(&shapes)?)?;
            plots += 1;
        }
    }
    put("report.html", report::html(context, results).as_bytes())?;
    println!(
        "{}: report.html, results.csv ({} figures), {plots} plots; {:.0} s",
        folder.display(),
        results.points.len(),
        context.took.as_secs_f64()
    );
    for absence in &results.absent {
        println!("  not measured: {}, {}: {}", absence.situation, absence.way, absence.why);
    }
    Ok(())
}
