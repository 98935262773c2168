//! Tools that the tests need beyond the Rust toolchain.

use crate::environment::{self, Base, Missing};
use crate::run::{output_of, succeeds, succeeds_within};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A program, a file by its whole path, or a module of Python; its Debian package; and the tests
/// skipped without it.
type Tool = (&'static str, &'static str, &'static str);

/// One of ScaLAPACK's test programs.
const SCALAPACK: &str = if cfg!(target_arch = "aarch64") {
    "/usr/lib/aarch64-linux-gnu/scalapack/openmpi-tests/xdinv"
} else {
    "/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests/xdinv"
};

/// The linear algebra that devsim loads.
const LAPACK: &str = if cfg!(target_arch = "aarch64") {
    "/usr/lib/aarch64-linux-gnu/liblapack.so.3"
} else {
    "/usr/lib/x86_64-linux-gnu/liblapack.so.3"
};

const TOOLS: &[Tool] = &[
    ("ip", "iproute2", "tests over network namespaces"),
    ("iperf3", "iperf3", "the comparison with kernel TCP"),
    ("cc", "gcc", "C programs"),
    ("c++", "g++", "the fuzz targets"),
    ("pkg-config", "pkg-config", "the C library once installed"),
    ("cmake", "cmake", "the C library in a project of CMake"),
    ("gfortran", "gfortran", "Fortran programs"),
    ("/usr/include/rdma/fabric.h", "libfabric-dev", "programs on the libfabric provider"),
    ("module ensurepip", "python3-venv", "the Python package, and MPIs from PyPI"),
    ("mpiexec.openmpi", "openmpi-bin", "MPI programs with the system's Open MPI"),
    ("mpicc.openmpi", "libopenmpi-dev", "C programs with the system's Open MPI"),
    ("mpiexec.hydra", "mpich", "programs under MPICH's launcher"),
    ("slurmctld", "slurmctld", "ranks that Slurm starts"),
    ("slurmd", "slurmd", "ranks that Slurm starts"),
    ("srun", "slurm-client", "ranks that Slurm starts"),
    ("podman", "podman", "ranks in containers of Podman"),
    ("tshark", "tshark", "Wireshark's dissector on captures"),
    ("hpcc", "hpcc", "HPCC with its verification"),
    ("NPopenmpi", "netpipe-openmpi", "NetPIPE"),
    ("/usr/lib/mumps/dsimpletest", "mumps-test", "MUMPS"),
    (SCALAPACK, "scalapack-mpi-test", "ScaLAPACK"),
    (LAPACK, "liblapack3", "devsim, beside drift and diffusion"),
    ("nginx", "nginx-light", "nginx over shared memory"),
    ("wrk", "wrk", "nginx in `weft bench sockets`"),
    ("haproxy", "haproxy", "haproxy over shared memory"),
    ("stunnel", "stunnel4", "stunnel over shared memory"),
    ("memcached", "memcached", "memcached over shared memory"),
    ("memcaslap", "libmemcached-tools", "memcached over shared memory"),
    ("redis-server", "redis-server", "redis over shared memory"),
    ("redis-benchmark", "redis-tools", "redis over shared memory"),
    ("pg_createcluster", "postgresql", "PostgreSQL over shared memory"),
    ("gunicorn", "gunicorn", "gunicorn over shared memory"),
    ("uvicorn", "uvicorn", "uvicorn over shared memory"),
    ("sshd", "openssh-server", "SSH over shared memory"),
    ("ssh", "openssh-client", "SSH over shared memory"),
    ("vsftpd", "vsftpd", "FTP over shared memory"),
    ("lftp", "lftp", "FTP over shared memory"),
    ("stress-ng", "stress-ng", "stress-ng's sockets over shared memory"),
    ("socat", "socat", "socat over shared memory"),
    ("curl", "curl", "HTTP over shared memory"),
    ("openssl", "openssl", "TLS over shared memory"),
    ("debootstrap", "debootstrap", "packages in a clean system"),
    ("node", "nodejs", "Node over shared memory"),
    ("javac", "default-jdk-headless", "Java over shared memory"),
];

/// The program that packages ask if they may start their services.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Keeps packages from starting their services while this value lives: tests start their own.
struct Quiet {
    is_own: bool,
}

impl Quiet {
    fn begin() -> Quiet {
        let is_own = !Path::new(POLICY).exists() && no_services(Path::new(POLICY)).is_ok();
        Quiet { is_own }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if self.is_own {
            // The file stays if it cannot be removed: services then wait for somebody to start
            // them.
            let _ = std::fs::remove_file(POLICY);
        }
    }
}

/// Makes a program that forbids all services to start.
fn no_services(at: &Path) -> std::io::Result<()> {
    std::fs::write(at, "#!/bin/sh\nexit 101\n")?;
    std::fs::set_permissions(at, std::fs::Permissions::from_mode(0o755))
}

/// A compilation target without an operating system: code that builds for it does not use one.
pub const BARE_TARGET: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-none" } else { "x86_64-unknown-none" };

/// Returns true if `program` is in `PATH` or the system's own folders; for a whole path, if it
/// exists; for a module, if Python has it.
pub fn has(program: &str) -> bool {
    if let Some(module) = program.strip_prefix("module ") {
        let code = format!("import {module}");
        return output_of(Command::new("python3").args(["-c", &code])).is_some();
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let mut folders = path.split(':').chain(["/usr/sbin", "/sbin"]);
    folders.any(|folder| Path::new(folder).join(program).is_file())
}

/// Returns true if this process has the rights of root.
pub fn is_root() -> bool {
    output_of(Command::new("id").arg("-u")).is_some_and(|id| id.trim() == "0")
}

/// Installs packages of Debian; false if that fails, for one of them or for all.
pub fn install_debian(packages: &[&str]) -> bool {
    if !has("apt-get") || !is_root() {
        return false;
    }
    println!("installing {}", packages.join(" "));
    install_quietly(packages) || succeeds(&mut apt(&["update"])) && install_quietly(packages)
}

fn install_quietly(packages: &[&str]) -> bool {
    let _quiet = Quiet::begin();
    succeeds(apt(&["install", "-y", "--no-install-recommends"]).args(packages))
}

/// Installs missing tools where that is possible. Returns the tests that will be skipped, with
/// reasons.
pub fn install_tools() -> Vec<String> {
    let missing = |tool: &&Tool| !has(tool.0);
    let packages: Vec<&str> =
        TOOLS.iter().filter(missing).map(|(_, package, _)| *package).collect();
    if packages.is_empty() {
        return Vec::new();
    }
    if has("apt-get") && is_root() && !install_debian(&packages) {
        // A distribution that lacks one of them may have the others.
        for package in packages {
            install_quietly(&[package]);
        }
    }
    let skipped = |(program, package, what): &Tool| {
        format!("without `{program}` (package {package}) these are skipped: {what}")
    };
    TOOLS.iter().filter(missing).map(skipped).collect()
}

/// The packages of the tests of the package `weft` for Python.
const OF_PYTHON: &str = include_str!("../../faces/python/tests/requirements.txt");

/// Installs packages of Python in environments below `target`, once. Returns the tests that will be
/// skipped without.
pub fn install_packages() -> Vec<String> {
    let schemas = "kubernetes-validate";
    let target = crate::root().join("target");
    let tests: Vec<&str> = OF_PYTHON.lines().collect();
    let mut skipped = Vec::new();
    let mut wants = |name: &str, packages: &[&str], what: &str| {
        if let Err(Missing::Means(why) | Missing::Refused(why)) =
            environment::install(Base::Alone, &target.join(name), packages)
        {
            let packages = packages.join(", ");
            skipped.push(format!("without {packages} (from pip) {what}: {why}"));
        }
    };
    wants("python", &tests, "tests of the Python package are skipped");
    wants("devsim", &["devsim==2.11.2"], "drift and diffusion is not compared with devsim");
    wants("grpc", &["grpcio"], "gRPC of Python over shared memory is not tried");
    if !has(schemas) {
        wants("kubernetes", &[schemas], "manifests for Kubernetes are not checked by its schemas");
    }
    skipped
}

fn apt(args: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.args(args).arg("-qq").env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
    command
}

/// Makes [`BARE_TARGET`] available, if rustup is installed and answers within a minute.
pub fn bare_target() -> bool {
    let sysroot = output_of(Command::new("rustc").args(["--print", "sysroot"]));
    let installed = || {
        let root = sysroot.as_deref().map(|s| Path::new(s.trim()).join("lib/rustlib"));
        root.is_some_and(|r| r.join(BARE_TARGET).join("lib").is_dir())
    };
    if installed() {
        return true;
    }
    let mut add = Command::new("rustup");
    add.args(["target", "add", BARE_TARGET]).stdout(Stdio::null()).stderr(Stdio::null());
    succeeds_within(&mut add, Duration::from_secs(60)) && installed()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn no_services__forbids_what_packages_ask() {
        let at = std::env::temp_dir().join(format!("weft-policy-{}", std::process::id()));
        no_services(&at).unwrap();
        let asked = Command::new(&at).args(["nginx", "start"]).status().unwrap();
        assert_eq!(asked.code(), Some(101));
        std::fs::remove_file(at).unwrap();
    }

    #[test]
    fn tools__no_program_is_listed_twice() {
        let mut programs: Vec<&str> = TOOLS.iter().map(|(program, _, _)| *program).collect();
        programs.sort_unstable();
        assert!(programs.windows(2).all(|pair| pair[0] != pair[1]), "{programs:?}");
    }
}
