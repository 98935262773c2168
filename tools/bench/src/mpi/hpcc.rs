//! HPCC (Debian's package `hpcc`): figures of random access and latency.

use super::job::{Hosts, Job, Subject};
use anyhow::{bail, Context, Result};
use std::path::PathBuf;
use weft_run::folder::Folder;

/// One-dimensional problem size. It is small because only two figures of HPCC count.
const ORDER: u32 = 1000;

/// Returns the input file of HPCC.
fn input() -> String {
    let lines = [
        "HPLinpack benchmark input file".to_owned(),
        "weft bench mpi".to_owned(),
        "HPL.out output file name (if any)".to_owned(),
        "8 device out (6=stdout,7=stderr,file)".to_owned(),
        "1 # of problems sizes (N)".to_owned(),
        format!("{ORDER} Ns"),
        "1 # of NBs".to_owned(),
        "80 NBs".to_owned(),
        "0 PMAP process mapping (0=Row-,1=Column-major)".to_owned(),
        "1 # of process grids (P x Q)".to_owned(),
        "1 Ps".to_owned(),
        "2 Qs".to_owned(),
        "16.0 threshold".to_owned(),
        "1 # of panel fact".to_owned(),
        "2 PFACTs (0=left, 1=Crout, 2=Right)".to_owned(),
        "1 # of recursive stopping criterium".to_owned(),
        "4 NBMINs (>= 1)".to_owned(),
        "1 # of panels in recursion".to_owned(),
        "2 NDIVs".to_owned(),
        "1 # of recursive panel fact.".to_owned(),
        "1 RFACTs (0=left, 1=Crout, 2=Right)".to_owned(),
        "1 # of broadcast".to_owned(),
        "1 BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)".to_owned(),
        "1 # of lookahead depth".to_owned(),
        "1 DEPTHs (>=0)".to_owned(),
        "2 SWAP (0=bin-exch,1=long,2=mix)".to_owned(),
        "64 swapping threshold".to_owned(),
        "0 L1 in (0=transposed,1=no-transposed) form".to_owned(),
        "0 U in (0=transposed,1=no-transposed) form".to_owned(),
        "1 Equilibration (0=no,1=yes)".to_owned(),
        "8 memory alignment in double (> 0)".to_owned(),
        "##### ".to_owned(),
        "0 Number of additional problem sizes for PTRANS".to_owned(),
        "1200 values of N".to_owned(),
        "0 number of additional blocking sizes for PTRANS".to_owned(),
        "40 values of NB".to_owned(),
    ];
    lines.join("\n") + "\n"
}

/// Returns the path of the program, if it is installed.
pub fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join("hpcc")).find(|file| file.is_file())
}

/// Runs HPCC once; returns updates per second in millions, and seconds of latency.
///
/// # Errors
/// The run failed, or HPCC's own verification did.
pub fn run(program: &std::path::Path, hosts: &Hosts, subject: &Subject) -> Result<[f64; 2]> {
    let folder = Folder::new()?;
    std::fs::write(folder.0.join("hpccinf.txt"), input()).context("writing hpccinf.txt")?;
    let command = [program.display().to_string()];
    let job =
        Job { hosts: Some(hosts), each: 1, command: &command, folder: &folder.0, within: &[] };
    job.run(subject)?;
    let report = std::fs::read_to_string(folder.0.join("hpccoutf.txt"));
    figures(&report.context("reading hpccoutf.txt")?)
}

fn figures(report: &str) -> Result<[f64; 2]> {
    let value = |name: &str| {
        let line = report.lines().find_map(|l| l.trim().strip_prefix(name)?.strip_prefix('='));
        line.and_then(|text| text.trim().parse::<f64>().ok())
    };
    if value("Success") != Some(1.0) {
        bail!("hpcc's own verification failed");
    }
    match (value("MPIRandomAccess_GUPs"), value("AvgPingPongLatency_usec")) {
        (Some(gups), Some(latency)) => Ok([gups * 1e3, latency * 1e-6]),
        _ => bail!("hpcc's report lacks MPIRandomAccess_GUPs or AvgPingPongLatency_usec"),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn figures__only_of_a_verified_run() {
        let report = "Success=1\nMPIRandomAccess_GUPs=0.002\nAvgPingPongLatency_usec=5.5\n";
        let [rate, latency] = figures(report).unwrap();
        assert!((rate - 2.0).abs() < 1e-9 && (latency - 5.5e-6).abs() < 1e-12);
        assert!(figures(&report.replace("Success=1", "Success=0")).is_err());
        assert!(figures("Success=1\n").is_err());
    }
}
