//! Jobs of `weft mpi` between two hosts of a lab, each a PID, mount, network and UTS namespace.

use super::harness::{run, weft, Mpi};
use super::hosts::is_root;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use weft_conformance::skip;

const LIMIT: Duration = Duration::from_secs(120);

/// A lab of two hosts; taken down when dropped.
struct Lab {
    name: String,
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A failed test takes the lab down too.
        if let Ok(mut command) = self.command(&["lab", "down"]) {
            let _gone = command.output();
        }
    }
}

impl Lab {
    fn up() -> Result<Lab, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !is_root() {
            return Err("needs root: launchers of MPIs start processes on hosts of a lab".into());
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let lab = Lab { name: format!("mpi{}-{number}", std::process::id()) };
        let up = lab.command(&["lab", "up", "2"])?.output().map_err(|e| e.to_string())?;
        let why = String::from_utf8_lossy(&up.stderr).into_owned();
        if why.contains("CAP_SYS_ADMIN") {
            return Err(why);
        }
        assert!(up.status.success(), "{why}");
        Ok(lab)
    }

    fn command(&self, words: &[&str]) -> Result<Command, String> {
        let mut command = Command::new(weft()?);
        command.args(words).env("WEFT_LAB", &self.name);
        Ok(command)
    }

    /// Returns `weft mpi` on the first host with these options, for two ranks on each host.
    fn job(&self, mpi: Mpi, options: &[&str], program: &Path) -> Result<Command, String> {
        let inner = mpi.weft("mpi")?;
        let mut command = self.command(&["lab", "exec", "h1"])?;
        command.arg(inner.get_program()).args(inner.get_args());
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let agent = format!("'{}' lab exec", weft()?.display());
        command.args(["--hosts", "h1:2,h2:2", "--launch-agent", &agent, "--all-through-weft"]);
        command.args(options).arg(program).arg("2");
        Ok(command)
    }
}

fn between_hosts(mpi: Mpi, options: &[&str]) {
    let job = || {
        let lab = Lab::up()?;
        let command = lab.job(mpi, options, &mpi.build("collectives")?)?;
        Ok::<_, String>((lab, command))
    };
    match job() {
        Ok((_lab, command)) => run(command, LIMIT).expect("collectives: passed"),
        Err(why) => skip(&why),
    }
}

macro_rules! hosts {
    ($($name:ident: $mpi:expr, $options:expr;)*) => {$(
        #[test]
        fn $name() {
            between_hosts($mpi, &$options);
        }
    )*};
}

hosts! {
    lab__mpich_over_the_links_chosen: Mpi::Mpich, ["--link", "auto"];
    lab__mpich_over_packet_sockets: Mpi::Mpich, ["--link", "packet"];
    lab__mpich_over_agents: Mpi::Mpich, ["--agent"];
    lab__open_mpi_over_the_links_chosen: Mpi::Open, ["--link", "auto"];
    lab__open_mpi_over_packet_sockets: Mpi::Open, ["--link", "packet"];
    lab__open_mpi_over_agents: Mpi::Open, ["--agent"];
    lab__system_over_packet_sockets: Mpi::System, ["--link", "packet"];
    lab__intel_over_packet_sockets: Mpi::Intel, ["--link", "packet"];
}
