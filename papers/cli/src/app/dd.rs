//! `weft app dd`.

mod pictures;

use super::progress::Whole;
use super::{open, prepare_out, Measured, Ran, Report};
use anyhow::{ensure, Context, Result};
use clap::ValueEnum;
use serde_json::{json, Value};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use weft::{Group, Job};
use weft_apps::Memory;
use weft_dd::{
    bytes_needed, report, run_on, sequential, write_curve, write_rows, write_steps, write_summary,
    write_vtk, Device, End, Method, Objects, Outcome, Params, Sockets, Step,
};
use weft_models::actors::balance::{Costs, Strategy};
use weft_models::net::Live;
use weft_run::misuse;

/// The options.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    measured: Measured<Input>,
    /// Print the description of the example, as a start of one's own, and end
    #[arg(long)]
    print: bool,
}

/// The devices that the program has.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Example {
    /// A p-n diode of silicon.
    Diode,
    /// A laser's stack: a degenerate active layer between doped ones, under a stripe.
    Laser,
}

/// The orders of points.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Order {
    /// Points of two colours in turn, over-relaxed.
    RedBlack,
    /// Each point from the values before the sweep, as in paper 000: many more sweeps.
    Jacobi,
}

/// The forms of the parallel program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// A block of rows on each rank, and messages between ranks.
    Messages,
    /// Blocks of rows that are objects which messages drive, several on each rank.
    Objects,
    /// A block of rows on each rank, and TCP sockets between ranks: `weft sockets run` carries
    /// them.
    Sockets,
}

/// The rules by which objects move.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Rule {
    /// Objects stay.
    None,
    /// The greatest to the rank with the least load.
    Greedy,
    /// Few, from ranks above the mean to those below it.
    Refine,
    /// Each to the next rank: a test.
    Rotate,
    /// Few, and messages between ranks count as load.
    RefineComm,
}

/// The device, and the end of the iteration.
#[derive(Debug, clap::Args)]
pub struct Input {
    /// Read the device from this file
    #[arg(long, value_name = "FILE", conflicts_with = "example")]
    device: Option<PathBuf>,
    /// Take a device that the program has
    #[arg(long, value_enum, default_value = "diode")]
    example: Example,
    /// Order in which points get new values
    #[arg(long, value_enum, default_value = "red-black")]
    method: Order,
    /// A solution is found when an iteration changes no potential by more than this
    #[arg(long, value_name = "VOLTS", default_value = "1e-9")]
    tolerance: f64,
    /// Most iterations for a voltage
    #[arg(long, value_name = "N", default_value_t = 300)]
    iterations: u64,
    /// Keep the same number of rows on each rank; otherwise rows move by their measured cost
    #[arg(long)]
    unbalanced: bool,
    /// Form of the parallel program
    #[arg(long, value_enum, default_value = "messages")]
    by: By,
    /// Objects for each rank, if objects solve
    #[arg(long, value_name = "N", default_value_t = 4,
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    per_rank: u16,
    /// Rule by which objects move between ranks after each iteration
    #[arg(long, value_enum, default_value = "refine")]
    strategy: Rule,
}

impl Input {
    fn example(&self) -> &'static str {
        match self.example {
            Example::Diode => weft_dd::DIODE,
            Example::Laser => weft_dd::LASER,
        }
    }

    /// # Errors
    /// The program is one of sockets, which the simulator does not have.
    pub fn check_simulated(&self) -> Result<()> {
        ensure!(self.by != By::Sockets, "--by sockets: sockets of the kernel are not simulated");
        Ok(())
    }

    /// Returns the objects, if they are to solve.
    pub fn objects(&self) -> Option<Objects> {
        let strategy = match self.strategy {
            Rule::None => None,
            Rule::Greedy => Some(Strategy::Greedy),
            Rule::Refine => Some(Strategy::Refine),
            Rule::Rotate => Some(Strategy::Rotate),
            Rule::RefineComm => Some(Strategy::RefineComm(Costs::default())),
        };
        (self.by == By::Objects).then(|| Objects { per_rank: self.per_rank.into(), strategy })
    }

    fn device(&self) -> Result<Device> {
        let Some(path) = &self.device else {
            return Ok(Device::read(&mut self.example().as_bytes())?);
        };
        let name = || path.display().to_string();
        Device::read(&mut open(path)?).with_context(name)
    }

    /// Returns the parameters for rows that are divided among so many ranks.
    pub fn params(&self, ranks: usize, memory: Memory) -> Result<Params> {
        let device = self.device()?;
        let (rows, cols) = (device.rows(), device.cols());
        let what = format!("a device of {rows} x {cols} nodes");
        let blocks = self.objects().map_or(1, |objects| objects.per_rank);
        // An object has fields of the whole grid, and some that are right.
        memory.check(what, bytes_needed(rows, cols) * blocks as u128).map_err(misuse::of)?;
        let method = match self.method {
            Order::RedBlack => Method::RedBlack,
            Order::Jacobi => Method::Jacobi,
        };
        let params = Params {
            method,
            tolerance: self.tolerance,
            max_iterations: self.iterations,
            balance: !self.unbalanced,
            ..Params::new(device)
        };
        params.check(ranks * blocks).map_err(misuse::of)?;
        Ok(params)
    }
}

/// Shows an iteration: the share is that of the solutions, and in one that of the logarithm of its
/// change.
fn show(bar: &Whole, what: &str, tolerance: f64, step: Step) {
    let Step { solution, solutions, iteration, .. } = step;
    let change = step.change().clamp(tolerance, 0.1);
    let fallen = (0.1 / change).ln() / (0.1 / tolerance).ln().max(1.0);
    let share = (solution as f64 + fallen) / solutions as f64;
    let place = format!("{what}: voltage {} of {solutions}, iteration {iteration}", solution + 1);
    bar.at(place, share);
}

/// Returns the figures of a result.
pub fn result(outcome: &Outcome) -> Value {
    let solution = |s: &weft_dd::Solution| {
        json!({
            "voltages": s.voltages, "currents": s.currents, "iterations": s.iterations,
            "sweeps": s.sweeps, "end": s.end.name(),
        })
    };
    let stuck = outcome.end().stuck().map(|stuck| {
        json!({
            "equation": stuck.equation.name(), "row": stuck.row, "column": stuck.col,
            "layer": stuck.layer,
            "change": if stuck.change.is_finite() { json!(stuck.change) } else { json!(null) },
        })
    });
    json!({
        "rows": outcome.rows.len(), "columns": outcome.columns, "contacts": outcome.contacts,
        "end": outcome.end().name(), "stuck": stuck, "moved": outcome.moved,
        "imbalance": outcome.imbalance,
        "solutions": outcome.solutions.iter().map(solution).collect::<Vec<Value>>(),
    })
}

/// Writes the files of a result.
fn write_files(end: &mut Report<'_>, device: &Device, outcome: &Outcome) -> Result<()> {
    end.file("dd.csv", |to| write_summary(to, device, outcome))?;
    end.file("dd-curve.csv", |to| write_curve(to, device, outcome))?;
    end.file("dd-convergence.csv", |to| write_steps(to, outcome))?;
    end.file("dd-rows.csv", |to| write_rows(to, device, outcome))?;
    end.file("dd.vtr", |to| write_vtk(to, device, outcome))?;
    for (name, picture) in pictures::all(device, outcome) {
        let png = picture.png()?;
        end.file(&format!("dd-{name}.png"), |to| to.write_all(&png))?;
    }
    Ok(())
}

/// Joins the ranks by sockets. The job tells them their ports and a secret, and nothing else.
fn sockets(world: &Group) -> Result<Sockets> {
    let listener = TcpListener::bind(("0.0.0.0", 0)).context("a socket that listens")?;
    let port = listener.local_addr()?.port().to_le_bytes().to_vec();
    let ports = world.allgather_blocking(port)?;
    let secret = world.broadcast_blocking(0, weft_link::random_u64().to_le_bytes().to_vec())?;
    let secret = u64::from_le_bytes(secret[..].try_into().context("a secret of 8 bytes")?);
    let mut addresses = Vec::new();
    for (rank, port) in ports.iter().enumerate() {
        let port = u16::from_le_bytes(port[..].try_into().context("a port of 2 bytes")?);
        let host = world.host_of(rank).unwrap_or_else(|| "127.0.0.1".to_string());
        let found = (host.as_str(), port).to_socket_addrs();
        let found = found.with_context(|| format!("the address of rank {rank} on {host}"))?;
        let address = { found }.find(SocketAddr::is_ipv4);
        addresses.push(address.with_context(|| format!("{host} has no address of IPv4"))?);
    }
    Ok(Sockets::join(world.rank(), &listener, &addresses, secret)?)
}

/// Runs the part of this rank; rank 0 reports the result.
pub fn run(job: &Job, args: &Args) -> Result<ExitCode> {
    let Measured { input, room, common } = &args.measured;
    let (world, rank) = (job.world(), job.world().rank());
    if args.print {
        if rank == 0 {
            print!("{}", input.example());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let params = input.params(world.size(), room.of(world)?)?;
    if rank == 0 {
        prepare_out(common.out.as_deref())?;
    }
    let bar = Whole::new(rank);
    let tell = |step: Step| show(&bar, "DD", params.tolerance, step);
    let outcome = match input.objects() {
        None if input.by == By::Sockets => run_on(&sockets(world)?, &params, &tell)?,
        None => job.block_on(weft_dd::run(world, &params, &tell))?,
        Some(objects) => {
            let net = Live::new(world)?;
            job.block_on(weft_dd::run_objects(&net, &params, objects, &tell))?
        }
    };
    drop(bar);
    let Outcome { ranks, elapsed, checksum, .. } = outcome;
    let ran = Ran { app: "dd", ranks, elapsed, checksum };
    let Some(mut end) = Report::begin(world, common, ran)? else { return Ok(ExitCode::SUCCESS) };
    if common.out.is_some() {
        write_files(&mut end, &params.device, &outcome).context("writing results")?;
    }
    end.check(|| {
        let bar = Whole::new(0);
        let tell = |step: Step| show(&bar, "sequential DD", params.tolerance, step);
        let alone = sequential(&params, &tell);
        Ok((outcome.agrees_with(&alone), alone.elapsed, alone.checksum))
    })?;
    let device = &params.device;
    let code = end.print(result(&outcome), &report(device, &outcome))?;
    // Files and report have the last state, but a state that did not come to rest is no solution.
    Ok(if *outcome.end() == End::Converged { code } else { ExitCode::FAILURE })
}
