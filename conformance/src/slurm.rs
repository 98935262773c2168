//! A Slurm cluster of two hosts that lasts as long as a test.

use crate::hosts::Host;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Bound of the start; reached only when it fails.
const LIMIT: Duration = Duration::from_secs(60);
const NODES: [&str; 2] = ["n1", "n2"];

/// A running cluster: its nodes `n1` and `n2` are the hosts of [`crate::hosts::run`], with as many
/// processors each as this machine has.
pub struct Cluster {
    folder: PathBuf,
    spaces: [String; 2],
    daemons: Vec<Child>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _gone = daemon.kill();
            let _reaped = daemon.wait();
        }
        let _gone = std::fs::remove_dir_all(&self.folder);
    }
}

/// Finds a program, also in the folders of daemons, which are not in users' `PATH`.
fn find(program: &str) -> Result<PathBuf, String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut folders = path.split(':').chain(["/usr/sbin", "/sbin"]);
    let found = folders.find_map(|f| Some(Path::new(f).join(program)).filter(|p| p.is_file()));
    found.ok_or(format!("needs {program} (Debian: slurmctld, slurmd, slurm-client)"))
}

fn configuration(folder: &str, cores: usize) -> String {
    let mut text = format!(
        "ClusterName=weft\nSlurmctldHost=n1(10.9.0.1)\nSlurmUser=root\nSlurmdUser=root\n\
         AuthType=auth/none\nCredType=cred/none\nProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\nSelectType=select/linear\n\
         SchedulerType=sched/builtin\nMpiDefault=none\nReturnToService=2\nKillWait=5\n\
         StateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool.%n\n\
         SlurmctldPidFile={folder}/slurmctld.pid\nSlurmdPidFile={folder}/slurmd.%n.pid\n\
         SlurmctldLogFile={folder}/slurmctld.log\nSlurmdLogFile={folder}/slurmd.%n.log\n\
         TmpFS={folder}/%n\n"
    );
    for (at, node) in NODES.iter().enumerate() {
        let address = format!("10.9.0.{}", at + 1);
        text += &format!("NodeName={node} NodeAddr={address} CPUs={cores} State=UNKNOWN\n");
    }
    text + "PartitionName=all Nodes=n1,n2 Default=YES State=UP OverSubscribe=FORCE:8\n"
}

impl Cluster {
    /// Starts Slurm on both hosts, which a cable joins.
    ///
    /// # Errors
    /// Slurm is not installed, or its output if it does not start.
    pub fn start(host: &Host) -> Result<Cluster, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let daemons = [find("slurmctld")?, find("slurmd")?];
        find("srun")?;
        // Not below the build folder: paths of sockets must be short.
        let name =
            format!("weft-slurm-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        let made = ["state", "n1", "n2"].map(|part| std::fs::create_dir_all(folder.join(part)));
        let mut cluster = Cluster { folder, spaces: host.spaces().clone(), daemons: Vec::new() };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let text = configuration(&cluster.folder.display().to_string(), cores);
        let written = std::fs::write(cluster.configured(), text);
        made.into_iter().chain([written]).collect::<Result<(), _>>().map_err(|e| e.to_string())?;
        for (program, side) in [(&daemons[0], 0), (&daemons[1], 0), (&daemons[1], 1)] {
            let mut command = cluster.command(side, program);
            command.arg("-D").stdout(Stdio::null()).stderr(Stdio::null());
            cluster.daemons.push(command.spawn().map_err(|e| format!("{program:?}: {e}"))?);
        }
        cluster.await_nodes()?;
        Ok(cluster)
    }

    /// Returns `srun` on the first host.
    pub fn srun(&self) -> Command {
        let mut command = self.command(0, Path::new("srun"));
        command.args(["--immediate=30", "--overcommit", "--nodes=2"]);
        command
    }

    /// Returns `salloc` on the first host, for both; the command in the allocation follows.
    pub fn salloc(&self) -> Command {
        let mut command = self.command(0, Path::new("salloc"));
        command.args(["--immediate=30", "--overcommit", "--nodes=2", "--quiet"]);
        command
    }

    /// Returns true if Slurm has this plugin for MPI.
    pub fn offers(&self, plugin: &str) -> bool {
        let listed = self.command(0, Path::new("srun")).arg("--mpi=list").output();
        // Older versions print the list on the error stream.
        let text = listed.map(|done| [done.stdout, done.stderr].concat()).unwrap_or_default();
        String::from_utf8_lossy(&text).split_whitespace().any(|word| word == plugin)
    }

    fn configured(&self) -> PathBuf {
        self.folder.join("slurm.conf")
    }

    /// Returns a command on a host, which has the name of its node there.
    fn command(&self, side: usize, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.spaces[side]));
        command.args(["unshare", "--uts", "sh", "-c"]);
        command.arg("echo $0 > /proc/sys/kernel/hostname; exec \"$@\"");
        command.arg(NODES[side]).arg(program).env("SLURM_CONF", self.configured());
        command.stdin(Stdio::null());
        command
    }

    fn await_nodes(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let mut ask = self.command(0, Path::new("sinfo"));
            let answer = ask.args(["--noheader", "--states=idle", "--format=%D"]).output();
            let answer = answer.map_err(|e| format!("sinfo: {e}"))?;
            if answer.stdout.trim_ascii() == b"2" {
                return Ok(());
            }
            let ended = self.daemons.iter_mut().any(|d| !matches!(d.try_wait(), Ok(None)));
            if ended || Instant::now() > deadline {
                let log = std::fs::read_to_string(self.folder.join("slurmctld.log"));
                let log = log.unwrap_or_default();
                let fatal = log.lines().find(|line| line.contains("fatal")).unwrap_or_default();
                return Err(format!("Slurm does not start here: {fatal}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
