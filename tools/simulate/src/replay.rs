//! The report of a failure, with the command that reproduces it.

use anyhow::{Context, Result};
use serde_json::json;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::iter;
use std::path::PathBuf;
use std::process::ExitCode;
use weft_run::{outputs, words};
use weft_sim::{Failure, Trace};

/// Returns the command line of this process, with the default seed added.
pub fn command(seed: u64) -> String {
    again(std::env::args().skip(1), seed)
}

fn again(words: impl Iterator<Item = String>, seed: u64) -> String {
    let mut words: Vec<String> = words.collect();
    if !words.iter().any(|word| word == "--seed" || word.starts_with("--seed=")) {
        words.extend(["--seed".to_owned(), seed.to_string()]);
    }
    words::join(iter::once("weft").chain(words.iter().map(String::as_str)))
}

/// Prints the failure, with the seed and the command `replay` that reproduces it.
pub fn tell(failure: &Failure, replay: &str, json: bool) -> ExitCode {
    let (name, seed, what) = (&failure.name, failure.seed, &failure.what);
    if json {
        let line = json!({
            "scenario": name, "seed": seed, "pass": false, "what": what, "replay": replay,
        });
        println!("{line}");
    }
    eprintln!("FAIL {name}: {what}\nseed {seed}; replay: {replay}");
    ExitCode::FAILURE
}

/// Number of packets kept for the files: the latest, some 100 MB of them.
const KEEP: usize = 1 << 20;

/// Files to which the packets of a simulation are written.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Packets")]
pub struct Files {
    /// Write the packets as trace events, for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE.json")]
    trace: Option<PathBuf>,
    /// Write the packets as text, one line each
    #[arg(long, value_name = "FILE.txt")]
    log: Option<PathBuf>,
}

impl Files {
    /// Returns the number of packets to keep.
    pub fn keep(&self) -> usize {
        if self.trace.is_some() || self.log.is_some() {
            KEEP
        } else {
            0
        }
    }

    /// Checks that the requested files can be written, before a simulation.
    ///
    /// # Errors
    /// A folder is not there, or refuses.
    pub fn check(&self) -> Result<()> {
        let named = [("--trace", &self.trace), ("--log", &self.log)];
        let mut files = named.into_iter().filter_map(|(name, path)| Some((name, path.as_ref()?)));
        files.try_for_each(|(name, path)| outputs::check_file(name, path))
    }

    /// Writes the requested files, after a simulation that ended well or not.
    pub fn write(&self, trace: &Trace) -> Result<()> {
        if self.keep() > 0 && trace.events().next().is_none() {
            eprintln!("weft sim: no packets were kept: tables of many simulations have none");
        }
        type Write1 = fn(&Trace, &mut dyn Write) -> std::io::Result<()>;
        let formats: [(_, Write1); 2] =
            [(&self.trace, |t, out| t.write_json(out)), (&self.log, |t, out| t.write_text(out))];
        for (path, write) in formats {
            let Some(path) = path else { continue };
            let file = File::create(path).with_context(|| format!("writing {}", path.display()))?;
            let mut out = BufWriter::new(file);
            write(trace, &mut out)
                .and_then(|()| out.flush())
                .with_context(|| format!("writing {}", path.display()))?;
            eprintln!("written {}", path.display());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn line(words: &[&str]) -> String {
        again(words.iter().map(ToString::to_string), 7)
    }

    #[test]
    fn again__adds_the_seed_once_and_quotes() {
        assert_eq!(line(&["sim", "loss"]), "weft sim loss --seed 7");
        assert_eq!(line(&["sim", "loss", "--seed", "3"]), "weft sim loss --seed 3");
        assert_eq!(line(&["sim", "loss", "--seed=3"]), "weft sim loss '--seed=3'");
        let odd = line(&["sim", "loss", "--loss", "1%", "--log", "it's a.txt"]);
        assert_eq!(odd, "weft sim loss --loss '1%' --log \"it's a.txt\" --seed 7");
    }
}
