//! Runs of a consumer's programs, over weft or over the usual carrier, on one host or on two.

use super::site::Site;
use super::tally::Tally;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The hosts of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// This host.
    Host,
    /// Two hosts of a lab, each with half of the ranks.
    Lab,
    /// Four hosts of a lab that is made for the run, each with a quarter of the ranks.
    Four,
}

impl Place {
    /// Returns its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Place::Host => "one host",
            Place::Lab => "two hosts",
            Place::Four => "four hosts",
        }
    }

    /// Returns the number of hosts.
    pub fn hosts(self) -> usize {
        match self {
            Place::Host => 1,
            Place::Lab => 2,
            Place::Four => 4,
        }
    }
}

/// The carrier of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// weft's provider, between all ranks.
    Weft,
    /// The one that the MPI, or libfabric, takes without weft.
    Usual,
}

/// The program that starts the ranks.
#[derive(Clone, Debug)]
pub enum Launcher {
    /// `weft mpi` with this `mpiexec`.
    Mpi(PathBuf),
    /// `weft run`, for programs that use libfabric without an MPI.
    Run,
    /// The tests themselves, by the `mpirun` of this `mpiexec`.
    Tests(PathBuf),
}

/// A job: ranks of one program, and the way to read its results.
#[derive(Clone, Debug)]
pub struct Job {
    /// Name, which stands before those of its tests.
    pub name: String,
    /// The program that starts the ranks.
    pub launcher: Launcher,
    /// Number of ranks.
    pub ranks: usize,
    /// Program and arguments.
    pub words: Vec<String>,
    /// More arguments over the usual carrier, which some consumers need there.
    pub usual: Vec<String>,
    /// The provider of libfabric that is the usual carrier, of programs without an MPI.
    pub peer: &'static str,
    /// Working folder of the ranks.
    pub folder: PathBuf,
    /// Longest time that it may take.
    pub limit: Duration,
    /// Reads the output of a rank.
    pub read: fn(&str) -> Option<Tally>,
    /// True if each rank has a result of its own.
    pub each: bool,
    /// True if the last of its tests aborts the job, so that its exit code says nothing.
    pub aborts: bool,
    /// The signal that its last rank gets in the middle of its work: the others have to end.
    pub fault: Option<&'static str>,
}

/// Runs a program in the working folder, with its output in a file of its rank.
const RANK: &str = "cd \"$1\" && out=$0 && shift && exec \"$@\" \
     > \"$out/rank-${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}\" 2>&1";

/// Runs a program as `RANK`, and sends the rank of this number a signal after some seconds.
const FAULT: &str = "sig=$1 last=$2 && shift 2 && cd \"$1\" && out=$0 && shift && \
     file=\"$out/rank-${PMI_RANK:-0}\" && \
     if [ \"$PMI_RANK\" != \"$last\" ]; then exec \"$@\" > \"$file\" 2>&1; fi; \
     \"$@\" > \"$file\" 2>&1 & sleep 3; kill -\"$sig\" $!; wait $!";

/// Most seconds without an answer of a peer in runs with a fault.
const SILENCE: u64 = 5;

/// Runs a program whose output the launcher passes on: a file would lose what an abort leaves in
/// buffers.
const ABORTING: &str = "cd \"$1\" && shift && exec \"$@\"";

/// Sets the variables that make the MPI of a shell use weft, and starts a program.
const TESTS: &str = "vars=$(\"$0\" mpi-env --shell sh --mpi \"$1\" --all-through-weft) && \
     eval \"$vars\" && shift && exec \"$@\"";

impl Job {
    /// Makes a job of MPI ranks; each test is in the output of one rank.
    pub fn mpi(name: &str, mpiexec: &Path, ranks: usize, words: &[&str]) -> Job {
        Job {
            name: name.into(),
            launcher: Launcher::Mpi(mpiexec.into()),
            ranks,
            words: words.iter().map(|word| (*word).to_string()).collect(),
            usual: Vec::new(),
            peer: "tcp;ofi_rxm",
            folder: PathBuf::from("/tmp"),
            limit: Duration::from_secs(300),
            read: super::tally::exit_code,
            each: false,
            aborts: false,
            fault: None,
        }
    }

    /// Returns as many of it as runs in a row are wanted, with names of their own.
    pub fn in_a_row(&self, runs: usize) -> Vec<Job> {
        let named = |run| match runs {
            1 => self.clone(),
            _ => Job { name: format!("{}, run {run}", self.name), ..self.clone() },
        };
        (1..=runs).map(named).collect()
    }

    /// Runs the job; returns its results, and the seconds that it took.
    pub fn run(&self, site: &Site, place: Place, carrier: Carrier) -> (Tally, f64) {
        let start = Instant::now();
        let tally = match self.outputs(site, place, carrier) {
            Ok((ended, outputs)) => self.judge(&ended, &outputs),
            Err(why) => {
                let mut tally = Tally::default();
                tally.fails(&why);
                tally
            }
        };
        (tally.of(&self.name), start.elapsed().as_secs_f64())
    }

    /// Returns true if ranks run over the usual carrier, so that a failure there says something.
    pub fn is_comparable(&self, site: &Site, place: Place) -> bool {
        let nothing = Job {
            name: format!("{}-true", self.name),
            words: vec!["true".into()],
            usual: Vec::new(),
            read: super::tally::exit_code,
            each: true,
            aborts: false,
            fault: None,
            ..self.clone()
        };
        nothing.run(site, place, Carrier::Usual).0.failed.is_empty()
    }

    /// Runs the ranks; returns the end of the job and their outputs.
    fn outputs(
        &self,
        site: &Site,
        place: Place,
        carrier: Carrier,
    ) -> Result<(Ended, Vec<String>), String> {
        let out = site.outputs(&format!("{}-{place:?}-{carrier:?}", self.name))?;
        let mut command = self.command(site, place, carrier, &out);
        let said = out.join("launcher");
        let file = std::fs::File::create(&said).map_err(|e| format!("{}: {e}", said.display()))?;
        let errors = file.try_clone().map_err(|e| e.to_string())?;
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let status = command.status().map_err(|e| format!("does not start: {e}"))?;
        let ended = match status.code() {
            Some(0) => Ended::Well,
            // The exit codes of timeout(1).
            Some(124 | 137) => Ended::Late,
            _ => Ended::Badly,
        };
        let read = |rank| std::fs::read(out.join(format!("rank-{rank}"))).ok();
        let outputs: Vec<Vec<u8>> = match self.aborts {
            true => std::fs::read(&said).into_iter().collect(),
            false => (0..self.ranks).filter_map(read).collect(),
        };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok((ended, outputs.into_iter().map(text).collect()))
    }

    /// Returns the results that the outputs state, and failures that no test states.
    fn judge(&self, ended: &Ended, outputs: &[String]) -> Tally {
        if self.fault.is_some() {
            return match ended {
                Ended::Badly => Tally::one("program", true),
                Ended::Well => Tally::one("ends well without a rank", false),
                Ended::Late => Tally::one("does not end without a rank", false),
            };
        }
        let mut results = outputs.iter().filter_map(|output| (self.read)(output));
        let expected = if self.each { self.ranks } else { 1 };
        let found = results.by_ref().count();
        let results = outputs.iter().filter_map(|output| (self.read)(output));
        let mut tally = results.reduce(Tally::join).unwrap_or_default();
        match ended {
            Ended::Late => tally.fails(&format!("does not end in {} s", self.limit.as_secs())),
            _ if found < expected => tally.fails("ranks end without a result"),
            Ended::Badly if !self.aborts && tally.failed.is_empty() => {
                tally.fails("ends with an error");
            }
            _ => {}
        }
        tally
    }

    /// Returns the command of the job.
    fn command(&self, site: &Site, place: Place, carrier: Carrier, out: &Path) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=20", &self.limit.as_secs().to_string()]);
        command.envs(site.variables());
        // Ranks warn of variables that nothing in weft reads.
        super::VARIABLES.iter().for_each(|name| {
            command.env_remove(name);
        });
        if place == Place::Lab && !matches!(self.launcher, Launcher::Run) {
            command.arg(&site.weft).args(["lab", "exec", "h1"]);
        }
        match &self.launcher {
            Launcher::Mpi(mpiexec) => match carrier {
                Carrier::Weft => self.by_weft_mpi(site, place, mpiexec, &mut command),
                Carrier::Usual => self.by_mpiexec(site, place, mpiexec, &mut command),
            },
            Launcher::Run => self.by_weft_run(site, place, carrier, &mut command),
            Launcher::Tests(mpiexec) => {
                command.env("OMPI_ALLOW_RUN_AS_ROOT", "1");
                command.env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
                command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
                if carrier == Carrier::Weft {
                    command.args(["sh", "-c", TESTS]).arg(&site.weft).arg(mpiexec);
                }
            }
        }
        let script = match (self.fault, self.aborts) {
            (Some(_), _) => FAULT,
            (None, true) => ABORTING,
            (None, false) => RANK,
        };
        command.args(["sh", "-c", script]).arg(out);
        if let Some(signal) = self.fault {
            command.env("WEFT_PEER_TIMEOUT_MS", (SILENCE * 1000).to_string());
            command.args([signal, &(self.ranks - 1).to_string()]);
        }
        command.arg(&self.folder).args(&self.words);
        if carrier == Carrier::Usual {
            command.args(&self.usual);
        }
        command
    }

    fn by_weft_mpi(&self, site: &Site, place: Place, mpiexec: &Path, command: &mut Command) {
        command.arg(&site.weft).arg("mpi").arg("--mpi").arg(mpiexec).arg("--all-through-weft");
        command.args(["-n", &self.ranks.to_string()]);
        if place == Place::Lab {
            let agent = format!("'{}' lab exec", site.weft.display());
            command.args(["--hosts", &self.hosts(), "--launch-agent", &agent]);
        }
    }

    fn by_mpiexec(&self, site: &Site, place: Place, mpiexec: &Path, command: &mut Command) {
        command.arg(mpiexec).args(["-n", &self.ranks.to_string()]);
        // Debian has both launchers in one folder.
        let is_open = mpiexec.extension().is_some_and(|of| of == "openmpi");
        let is_hydra = !is_open && mpiexec.with_file_name("mpiexec.hydra").is_file();
        if !is_hydra {
            command.args(["--allow-run-as-root", "--oversubscribe"]);
        }
        if place == Place::Host {
            return;
        }
        let each = self.ranks.div_ceil(2).to_string();
        if is_hydra {
            command.args(["-hosts", "h1,h2", "-ppn", &each, "-launcher", "ssh"]);
            command.arg("-launcher-exec").arg(site.lab_agent());
        } else {
            command.args(["--host", &self.hosts(), "--mca", "plm_rsh_no_tree_spawn", "1"]);
            command.args(["--mca", "plm_rsh_agent"]).arg(site.lab_agent());
        }
    }

    fn by_weft_run(&self, site: &Site, place: Place, carrier: Carrier, command: &mut Command) {
        command.arg(&site.weft);
        match place {
            Place::Host => command.arg("run"),
            Place::Lab => command.args(["lab", "run"]),
            Place::Four => {
                command.env_remove("WEFT_LAB");
                let name = format!("four{}", std::process::id());
                command.args(["lab", "run", "--up", "4", "--name", &name])
            }
        };
        command.args(["-n", &self.ranks.to_string()]);
        if self.fault.is_some() {
            // The launcher ends no rank: each has to see by itself that one is gone.
            command.arg(if place == Place::Host { "--keep-going" } else { "--with=--keep-going" });
        }
        command.arg("--");
        match carrier {
            Carrier::Weft => {
                command.env("FI_PROVIDER", "weft").env("FI_PROVIDER_PATH", site.provider())
            }
            Carrier::Usual => command.env("FI_PROVIDER", self.peer),
        };
    }

    /// Returns the hosts of a lab with half of the ranks each.
    fn hosts(&self) -> String {
        format!("h1:{each},h2:{each}", each = self.ranks.div_ceil(2))
    }
}

/// The end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Well,
    Badly,
    Late,
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::consumers::tally;

    fn job(each: bool, aborts: bool) -> Job {
        let job = Job::mpi("job", Path::new("/usr/bin/mpiexec"), 2, &["true"]);
        Job { read: tally::pytest, each, aborts, ..job }
    }

    fn failures(tally: &Tally) -> Vec<&str> {
        tally.failed.iter().map(String::as_str).collect()
    }

    #[test]
    fn judge__a_rank_without_a_result_is_a_failure() {
        let outputs = ["4 passed in 1.0s\n".to_string(), "Segmentation fault\n".into()];
        let lost = job(true, false).judge(&Ended::Badly, &outputs);
        assert_eq!((lost.tests, failures(&lost)), (5, vec!["ranks end without a result"]));
        let one = job(false, false).judge(&Ended::Well, &outputs);
        assert_eq!((one.tests, failures(&one)), (4, vec![]));
    }

    #[test]
    fn judge__a_job_that_loses_a_rank_has_to_end_badly() {
        let lost = Job { fault: Some("KILL"), ..job(true, false) };
        assert_eq!(failures(&lost.judge(&Ended::Badly, &[])), [""; 0]);
        assert_eq!(failures(&lost.judge(&Ended::Late, &[])), ["does not end without a rank"]);
        assert_eq!(failures(&lost.judge(&Ended::Well, &[])), ["ends well without a rank"]);
    }

    #[test]
    fn in_a_row__each_run_has_a_name() {
        let names = |runs| {
            let all = job(true, false).in_a_row(runs);
            all.into_iter().map(|job| job.name).collect::<Vec<String>>()
        };
        assert_eq!(names(1), ["job"]);
        assert_eq!(names(2), ["job, run 1", "job, run 2"]);
    }

    #[test]
    fn judge__an_exit_code_counts_unless_a_test_aborts_the_job() {
        let outputs = ["4 passed in 1.0s\n".to_string()];
        let badly = job(false, false).judge(&Ended::Badly, &outputs);
        assert_eq!(failures(&badly), ["ends with an error"]);
        assert_eq!(failures(&job(false, true).judge(&Ended::Badly, &outputs)), [""; 0]);
        let failed = ["FAILED a::b\n1 failed, 3 passed in 1.0s\n".to_string()];
        assert_eq!(failures(&job(false, false).judge(&Ended::Badly, &failed)), ["a::b"]);
        let late = job(false, true).judge(&Ended::Late, &outputs);
        assert_eq!(failures(&late), ["does not end in 300 s"]);
    }
}
