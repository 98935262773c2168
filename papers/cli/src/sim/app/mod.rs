//! `weft sim app`: the applications of `weft app`, on simulated hosts.

mod about;
mod asp;
mod awari;
mod bar;
mod barnes;
mod case;
mod dd;
mod hosts;
mod leq;
mod puzzle;
mod qr;
mod radix;
mod report;
mod sor;

use super::network::{Hosts, Network};
use super::replay::Files;
use anyhow::Result;
use case::Options;
use std::process::ExitCode;

/// Run an application on simulated hosts, against the sequential program
#[derive(Debug, clap::Subcommand)]
pub enum Which {
    /// All-pairs shortest paths by pipelined broadcast (ASP)
    Asp(Options<asp::Asp>),
    /// Endgame databases of Awari, positions at their owners (Awari)
    Awari(Options<awari::Awari>),
    /// Gravitation of many bodies by the method of Barnes and Hut, in coherent regions (Barnes)
    Barnes(Options<barnes::Barnes>),
    /// Drift and diffusion of electrons and holes in a semiconductor, by rows (DD)
    Dd(Options<dd::Dd>),
    /// Linear equations by Jacobi's iteration, the vector a replicated object (LEQ)
    Leq(Options<leq::Leq>),
    /// Shortest solutions of the 15-puzzle, jobs pushed to the owners of positions (Puzzle)
    Puzzle(Options<puzzle::Puzzle>),
    /// QR factorisation with pivoted columns, by reductions and broadcasts (QR)
    Qr(Options<qr::Qr>),
    /// Radix sort, the keys in coherent regions (Radix)
    Radix(Options<radix::Radix>),
    /// Red-black successive over-relaxation of a heated plate (SOR)
    Sor(Options<sor::Sor>),
}

/// Options of every application.
#[derive(Debug, clap::Args)]
struct Common {
    /// Number of hosts, one rank each
    #[arg(long, value_name = "N", default_value_t = 8,
        value_parser = clap::value_parser!(u32).range(1..=16384))]
    hosts: u32,
    /// Print one JSON object in place of the text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    network: Network,
    #[command(flatten)]
    fates: Hosts,
    #[command(flatten)]
    files: Files,
}

/// Most nanoseconds of computing for one thing: a millisecond.
const MOST_NS: f64 = 1e6;

/// Parses the computing time of one thing.
fn nanoseconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|ns| (0.0..=MOST_NS).contains(ns));
    number.ok_or_else(|| format!("nanoseconds from 0 to {MOST_NS} are wanted"))
}

/// Runs the application.
pub fn run(which: &Which) -> Result<ExitCode> {
    match which {
        Which::Asp(asp) => case::play(asp),
        Which::Awari(awari) => case::play(awari),
        Which::Barnes(barnes) => case::play(barnes),
        Which::Dd(dd) => case::play(dd),
        Which::Leq(leq) => case::play(leq),
        Which::Puzzle(puzzle) => case::play(puzzle),
        Which::Qr(qr) => case::play(qr),
        Which::Radix(radix) => case::play(radix),
        Which::Sor(sor) => case::play(sor),
    }
}
