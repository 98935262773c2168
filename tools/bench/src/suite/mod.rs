//! `weft bench suite`: pipes, sockets and links side by side, as paper 000 evaluates the layers of
//! communication. Its report shows the best channel for each use.
//!
//! | module | content |
//! | --- | --- |
//! | `plan` | situations, channels, message sizes |
//! | `measure`, `load` | the measurements; other work for the processor |
//! | `advice` | the best channel for each size |
//! | `plot`, `draw`, `report` | plots, their files, the report |

mod advice;
mod measure;
mod plan;
pub mod plot;
mod report;

use super::date;
use super::load::Load;
use super::netns::{Mode, Place};
use super::progress::bar;
use super::Options;
use anyhow::{Context, Result};
use measure::{Absence, Effort, Measure, Results};
use plan::Situation;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};
use weft_run::idle;
use weft_run::interrupt::Interrupt;
use weft_run::words;

/// Facts about the run that the report shows.
pub struct Run {
    /// Date of the run.
    pub date: String,
    /// A warning, if the machine had other work.
    pub busy: Option<String>,
    /// Description of the machine.
    pub machine: String,
    /// The command.
    pub command: String,
    /// Description of the measurement: time and repetitions.
    pub effort: String,
    /// Sizes of messages.
    pub sizes: Vec<usize>,
    /// Duration of the run.
    pub took: Duration,
}

/// Folder and content of the report.
#[derive(Debug, clap::Args)]
pub struct Wanted {
    /// Folder of the report of suite and choices, and of the plots of sovia, mx, via, mxoe and
    /// models; made if it does not exist. A suite that is stopped leaves its figures in
    /// results.csv
    #[arg(long, value_name = "DIR", required_if_eq("what", "suite"))]
    pub out: Option<PathBuf>,
    /// Situations of the suite [default: all]: inside-idle, between-1500-loaded, ...
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = situation)]
    situations: Vec<Situation>,
}

impl Wanted {
    /// True if situations were named.
    pub fn has_situations(&self) -> bool {
        !self.situations.is_empty()
    }
}

fn situation(text: &str) -> Result<Situation, String> {
    let keys: Vec<String> = Situation::ALL.iter().map(|s| s.key()).collect();
    let found = keys.iter().position(|key| key == text);
    found.map(|at| Situation::ALL[at]).ok_or_else(|| format!("not one of {}", keys.join(", ")))
}

/// Returns a warning if the machine has other work, which makes figures worse.
fn busy() -> Option<String> {
    idle::busy().map(|cores| {
        format!(
            "The machine was not idle: {cores:.1} cores were in use when this run started. Figures \
             vary more and are worse than on an idle machine."
        )
    })
}

fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let (memory, cpu) = (read("/proc/meminfo"), read("/proc/cpuinfo"));
    let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|t| t.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
    let flags = cpu.lines().find(|line| line.starts_with("flags"));
    let guest = flags.is_some_and(|line| line.contains(" hypervisor"));
    let kind = if guest { "; a virtual machine" } else { "" };
    format!("{}; {:.0} GiB of memory{kind}", super::machine(), kib as f64 / 1048576.0)
}

fn effort(options: &Options) -> Effort {
    match options.quick {
        true => Effort { repeat: 3, turn: Duration::from_millis(6), labs: true },
        false => Effort { repeat: options.repeat, turn: Duration::from_millis(60), labs: true },
    }
}

/// Checks if hosts of a lab are used; the inner error is the reason why not.
fn labs(mode: Mode) -> Result<Result<(), String>> {
    if mode == Mode::Off {
        return Ok(Err("--netns off: there are no hosts".into()));
    }
    let works = measure::place_works(Place::Between(1500));
    match mode {
        Mode::On => works.map(Ok).context("hosts of a lab (--netns auto does without)"),
        _ => Ok(works.map_err(|e| format!("{e:#}"))),
    }
}

/// The CSV table in the folder. It is written again as figures come, so that a stopped run leaves
/// them.
struct Stored {
    file: PathBuf,
    /// Number of figures in the table; locked while it is written.
    figures: Arc<Mutex<usize>>,
}

impl Stored {
    /// Makes the folder. A folder made by this run is deleted if the run ends without a figure.
    fn start(folder: &Path, interrupt: &Interrupt) -> Result<Stored> {
        let made = !folder.exists();
        let make = || std::fs::create_dir_all(folder);
        make().with_context(|| format!("the folder {}", folder.display()))?;
        let stored = Stored { file: folder.join("results.csv"), figures: Arc::default() };
        let (file, folder) = (stored.file.clone(), folder.to_owned());
        let figures = stored.figures.clone();
        interrupt.leaves(move || {
            let figures = *figures.lock().unwrap_or_else(PoisonError::into_inner);
            if figures > 0 {
                return format!("{figures} figures are in {}, no report", file.display());
            }
            if made {
                // An error means that the folder is not empty: it stays.
                let _ = std::fs::remove_dir(folder);
            }
            "nothing stored".into()
        });
        Ok(stored)
    }

    fn put(&self, results: &Results) -> Result<()> {
        let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        if results.points.len() > *figures {
            replace(&self.file, report::csv(results).as_bytes())?;
            *figures = results.points.len();
        }
        Ok(())
    }
}

/// Measures everything and writes the report into `folder`.
///
/// # Errors
/// The folder cannot be written, or nothing could be measured.
pub fn run(args: &Wanted, options: &Options, interrupt: &Interrupt) -> Result<ExitCode> {
    let folder = args.out.as_deref().context("--out DIR: where the report goes")?;
    let wanted = |s: &Situation| args.situations.is_empty() || args.situations.contains(s);
    let situations: Vec<Situation> = Situation::ALL.into_iter().filter(wanted).collect();
    let (date, busy) = (date(UNIX_EPOCH.elapsed().unwrap_or_default()), busy());
    if let Some(busy) = &busy {
        eprintln!("weft bench: {busy}");
    }
    let stored = Stored::start(folder, interrupt)?;
    let (start, effort, sizes) = (Instant::now(), effort(options), plan::sizes(options));
    let mut results = Results::default();
    let bar = bar(situations.len() * sizes.len() * 2);
    let labs = labs(options.netns)?;
    let effort = Effort { labs: labs.is_ok(), ..effort };
    for situation in situations {
        if let (Err(why), Place::Between(_)) = (&labs, situation.place) {
            let (situation, why) = (situation.title(), why.clone());
            results.absent.push(Absence { situation, carrier: "everything", why });
            bar.inc(sizes.len() as u64 * 2);
            continue;
        }
        let load = situation.loaded.then(|| Load::start(1)).transpose()?;
        measure::situation(situation, &sizes, effort, &mut results, |what, results| {
            bar.set_message(what.to_owned());
            bar.inc(1);
            stored.put(results)
        })?;
        drop(load);
        stored.put(&results)?;
    }
    bar.finish_and_clear();
    let context = Run {
        date,
        busy,
        machine: machine(),
        command: format!("weft {}", words::own()),
        effort: format!(
            "{} repetitions of about {} ms for each figure, all channels in turn",
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

/// Writes a whole file or leaves the old one, because an interrupt may come at any moment.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    std::fs::write(&new, bytes)
        .and_then(|()| std::fs::rename(&new, path))
        .with_context(|| format!("writing {}", path.display()))
}

fn write(folder: &Path, context: &Run, results: &Results) -> Result<()> {
    let put = |name: &str, bytes: &[u8]| replace(&folder.join(name), bytes);
    put("results.csv", report::csv(results).as_bytes())?;
    let mut plots = 0;
    for situation in Situation::ALL {
        for measure in Measure::ALL {
            let Some(picture) = plot::plot(results, situation, measure) else { continue };
            let name = format!("{}-{}.png", situation.key(), measure.name());
            put(&name, &picture.png()?)?;
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
        println!("  not measured: {}, {}: {}", absence.situation, absence.carrier, absence.why);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn situation__is_found_by_its_key() {
        assert_eq!(situation("between-9000-loaded"), Ok(Situation::ALL[5]));
        assert!(situation("outside").unwrap_err().contains("inside-idle"));
    }
}
