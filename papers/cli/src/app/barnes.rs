//! `weft app barnes`.

use super::pictures::Frames;
use super::progress::Progress;
use super::{open, prepare_out, write_file, Common, Ran, Report, Room};
use anyhow::{Context, Result};
use serde_json::{json, Value};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft::Job;
use weft_apps::Memory;
use weft_barnes::{
    bytes_needed, read_bodies, report, sequential, two_clusters, write_bodies, write_energy, Body,
    Energy, Gravity, Outcome, Params, Step, SEED,
};
use weft_models::net::{Blocking, Live};
use weft_run::misuse;

/// Gravitation of many bodies by the method of Barnes and Hut, in coherent regions (Barnes)
#[derive(Debug, clap::Args)]
#[command(mut_args(super::numbers))]
pub struct Args {
    #[command(flatten)]
    input: Input,
    /// Squares of a side of the frames that --out writes [default: the root of the bodies]
    #[arg(long, value_name = "N", value_parser = squares(), requires = "out")]
    squares: Option<u16>,
    #[command(flatten)]
    room: Room,
    #[command(flatten)]
    common: Common,
}

impl Args {
    /// The squares of a side of a frame of so many bodies.
    fn side(&self, bodies: usize) -> usize {
        self.squares.map_or((bodies as f64).sqrt().clamp(16.0, 256.0) as usize, usize::from)
    }
}

fn squares() -> clap::builder::RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(16..=1024)
}

/// Most bodies that are read.
const MOST: usize = 1 << 26;

/// The bodies, their steps, and the accuracy of gravitation.
#[derive(Debug, clap::Args)]
pub struct Input {
    /// Read bodies from this file, one a line: mass, place and velocity, seven numbers
    #[arg(long, value_name = "FILE", conflicts_with = "bodies")]
    input: Option<PathBuf>,
    /// Number of bodies of the Splash benchmark: two clusters
    #[arg(long, value_name = "N", default_value_t = 16_384)]
    bodies: usize,
    /// Time steps
    #[arg(long, value_name = "N", default_value_t = 11)]
    steps: u64,
    /// Length of a time step
    #[arg(long, value_name = "TIME", default_value_t = 0.025)]
    time_step: f64,
    /// A cell counts as one mass if its side is at most this times its distance; 0: every body
    /// counts
    #[arg(long, value_name = "X", default_value_t = Gravity::default().opening)]
    opening: f64,
}

impl Input {
    /// Returns the parameters; each rank has all bodies.
    pub fn params(&self, memory: Memory) -> Result<Params> {
        let bodies = match &self.input {
            Some(path) => {
                let most = memory.most(bytes_needed(1) as u64).min(MOST);
                read_bodies(&mut open(path)?, most).with_context(|| path.display().to_string())?
            }
            None => {
                let what = format!("the motion of {} bodies", self.bodies);
                memory.check(what, bytes_needed(self.bodies)).map_err(misuse::of)?;
                two_clusters(self.bodies, SEED)
            }
        };
        let gravity = Gravity { opening: self.opening, ..Gravity::default() };
        let params = Params { bodies, gravity, time_step: self.time_step, steps: self.steps };
        params.check().map_err(misuse::of)?;
        Ok(params)
    }
}

/// The frames of a film, a file for each step.
struct Film<'a> {
    dir: &'a Path,
    frames: Frames,
    number: Cell<u64>,
    files: RefCell<Vec<PathBuf>>,
    /// The first fault.
    fault: RefCell<Option<anyhow::Error>>,
}

impl Film<'_> {
    fn add(&self, bodies: &[Body]) {
        if self.fault.borrow().is_some() {
            return;
        }
        let number = self.number.replace(self.number.get() + 1);
        let write = || -> Result<Option<PathBuf>> {
            let Some(picture) = self.frames.picture(bodies, number) else { return Ok(None) };
            let png = picture.png()?;
            let name = format!("barnes-{number:04}.png");
            write_file(self.dir, &name, |to| to.write_all(&png)).map(Some)
        };
        match write() {
            Ok(file) => self.files.borrow_mut().extend(file),
            Err(fault) => drop(self.fault.replace(Some(fault))),
        }
    }
}

/// Returns the figures of a result.
pub fn result(outcome: &Outcome) -> Value {
    let energy = |energy: Option<&Energy>| energy.map(Energy::whole);
    json!({
        "bodies": outcome.bodies.len(), "steps": outcome.energies.len(),
        "interactions": outcome.interactions, "energy_first": energy(outcome.energies.first()),
        "energy_last": energy(outcome.energies.last()), "drift": outcome.drift(),
    })
}

/// Runs the part of this rank; rank 0 reports the result.
pub fn run(job: &Job, args: &Args) -> Result<ExitCode> {
    let (world, common) = (job.world(), &args.common);
    let rank = world.rank();
    let params = args.input.params(args.room.of(world)?)?;
    if rank == 0 {
        prepare_out(common.out.as_deref())?;
    }
    let film = common.out.as_deref().filter(|_| rank == 0).map(|dir| Film {
        dir,
        frames: Frames::new(&params.bodies, args.side(params.bodies.len())),
        number: Cell::new(0),
        files: RefCell::default(),
        fault: RefCell::default(),
    });
    let net = Live::new(world).context("the packet interface")?;
    let progress = Progress::new(rank, "Barnes");
    let tell = |s: Step<'_>| {
        progress.at(s.steps, s.of);
        if let (Some(film), Some(bodies)) = (&film, s.bodies) {
            film.add(bodies);
        }
    };
    let outcome = net.block_on(weft_barnes::run(&net, &params, 0.0, &tell))?;
    drop(progress);
    let Outcome { ranks, elapsed, checksum, .. } = outcome;
    let ran = Ran { app: "barnes", ranks, elapsed, checksum };
    let Some(mut end) = Report::begin(world, common, ran)? else { return Ok(ExitCode::SUCCESS) };
    if let Some(film) = film {
        film.fault.into_inner().map_or(Ok(()), Err)?;
        end.file("barnes.csv", |to| write_energy(to, &outcome))?;
        end.file("barnes-bodies.csv", |to| write_bodies(to, &outcome.bodies))?;
        end.written(film.files.into_inner());
    }
    end.check(|| {
        let progress = Progress::new(0, "sequential Barnes");
        let alone = sequential(&params, &|s| {
            progress.at(s.steps, s.of);
            Ok(())
        })?;
        let pass = outcome.agrees_with(&alone);
        Ok((pass, alone.elapsed, alone.checksum))
    })?;
    end.print(result(&outcome), &report(&outcome))
}
