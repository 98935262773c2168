//! Without root there are no lab hosts: each MPI between two ranks of this host, all messages over
//! weft, beside the same MPI over TCP.

use super::{over_tcp, over_weft, Run, SIZES};
use crate::pair::Sample;
use crate::table::{Better, Other};
use crate::target::Aim;
use anyhow::Result;
use weft_run::mpi::detect::{Family, Mpi};

/// The first note of the results.
pub const NOTE: &str =
    "two ranks of this host: without root there are no lab hosts, between which \
                        `sudo weft bench mpi` measures; peers: the same MPIs over TCP, here";

/// Returns the names of the rows: half round trip, bandwidth.
fn names(family: Family) -> [&'static str; 2] {
    match family {
        Family::Mpich => ["mpich, here, half round trip", "mpich, here, bandwidth"],
        Family::OpenMpi4 => ["open mpi 4, here, half round trip", "open mpi 4, here, bandwidth"],
        Family::OpenMpi5 => ["open mpi 5, here, half round trip", "open mpi 5, here, bandwidth"],
        Family::Intel => ["intel, here, half round trip", "intel, here, bandwidth"],
    }
}

impl Run<'_> {
    /// Returns the number of jobs, for the progress bar.
    pub(super) fn jobs_here(&self) -> u64 {
        let of = |mpi: &Mpi| 1 + over_tcp(mpi, false).len() as u64;
        let each: u64 = self.mpis.iter().map(|i| of(&i.mpi)).sum();
        u64::from(self.turns()) * each
    }

    /// Measures half round trips inside this host.
    pub(super) fn here(&mut self) -> Result<()> {
        let sizes = self.sizes(&SIZES);
        let mpis: Vec<Mpi> = self.mpis.iter().map(|i| i.mpi.clone()).collect();
        for mpi in mpis.iter().filter(|_| !sizes.is_empty()) {
            let mut subjects = vec![over_weft(mpi, &self.provider, None, true)];
            subjects.extend(over_tcp(mpi, false));
            let got = self.measure(None, 2, ("pingpong", &sizes), &subjects);
            for &size in &sizes {
                let bulk = size >= 64 << 10;
                let of = |at: usize| {
                    let sample = Sample::of(got[at].get(&size)?.clone())?;
                    Some(match bulk {
                        true => sample.map(|s| size as f64 / s / 1e9),
                        false => sample.map(|s| s * 1e6),
                    })
                };
                let unit = if bulk { ("GB/s", Better::Higher) } else { ("us", Better::Lower) };
                let what = names(mpi.family)[usize::from(bulk)];
                let peers = (1..subjects.len())
                    .map(|at| Other { name: subjects[at].name, sample: of(at) })
                    .collect();
                let aim = Aim { floor: None, peer: None };
                self.push((what, "auto", size), unit, of(0), [vec![], peers], aim);
            }
        }
        Ok(())
    }
}
