//! `weft mpi`, `weft mpi-env` and `weft doctor --mpi` with the installed MPIs: those in the folders
//! below `WEFT_TEST_MPIS` and those on PATH. The provider is one of the tests' own: every libfabric
//! lists it and none can open it, so that no test here needs the real one.
#![allow(non_snake_case)]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use weft_conformance::skip;

const WEFT: &str = env!("CARGO_BIN_EXE_weft");
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns a folder for files that the tests build.
fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mpi-{}", std::process::id()));
    let dir = dir.join(name);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Builds the tests' provider with a version and options for the compiler.
fn build(name: &str, version: &str, options: &[&str]) -> PathBuf {
    let file = scratch(name).join("libweft-fi.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mpi/provider.rs.in");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(rustc);
    command.args(["--crate-name", "provider", "--edition", "2021", "-A", "warnings"]).args(options);
    let status = command.arg("-o").arg(&file).arg(source).env("VERSION", version).status();
    assert!(status.unwrap().success());
    file
}

fn provider() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| build("good", VERSION, &[]))
}

/// Returns the command with settings that no other test and no user shares.
fn weft(args: &[&str]) -> Command {
    let mut command = Command::new(WEFT);
    command.args(args).stdin(Stdio::null());
    command.env("WEFT_PROVIDER", provider()).env("XDG_CONFIG_HOME", scratch("config"));
    command.env("XDG_CACHE_HOME", scratch("cache")).env_remove("WEFT_KEY").env("SHELL", "sh");
    command
}

fn output(command: &mut Command) -> (bool, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.success(), text(stdout), text(stderr))
}

/// Returns the launchers of all MPIs to test with.
fn launchers() -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Some(folder) = std::env::var_os("WEFT_TEST_MPIS") {
        let entries = std::fs::read_dir(&folder).unwrap().flatten();
        found.extend(entries.map(|e| e.path().join("bin/mpiexec")).filter(|p| p.is_file()));
        found.sort();
        assert!(!found.is_empty(), "WEFT_TEST_MPIS={folder:?} holds no bin/mpiexec");
    }
    found.extend([PathBuf::from("/usr/bin/mpiexec.openmpi")].into_iter().filter(|p| p.is_file()));
    if found.is_empty() {
        skip("no MPI: WEFT_TEST_MPIS names no folder, and Debian's openmpi-bin is not installed");
    }
    found
}

fn json(text: &str) -> Value {
    serde_json::from_str(text.trim()).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn mpi_env__a_shell_gets_the_variables_and_a_key_is_there() {
    for launcher in launchers() {
        let mut shell = Command::new("sh");
        let script = "out=$(\"$0\" mpi-env --mpi \"$1\" --link udp --all-through-weft) || exit 1; \
                      eval \"$out\"; env";
        shell.args(["-c", script, WEFT]).arg(&launcher);
        shell.env("WEFT_PROVIDER", provider()).env("XDG_CONFIG_HOME", scratch("config-env"));
        shell.env_remove("WEFT_KEY").env("SHELL", "/bin/bash");
        let (done, out, err) = output(&mut shell);
        assert!(done, "{}: {out}{err}", launcher.display());
        assert!(err.contains("will use weft"), "{err}");
        let folder = provider().parent().unwrap().display();
        for line in ["FI_PROVIDER=weft", "WEFT_LINK=udp", &format!("FI_PROVIDER_PATH={folder}")] {
            assert!(out.lines().any(|l| l == line), "{line}: {out}");
        }
        let own = ["MPIR_CVAR_NOLOCAL=1", "OMPI_MCA_coll=^sm", "I_MPI_FABRICS=ofi"];
        assert_eq!(own.iter().filter(|own| out.lines().any(|l| l == **own)).count(), 1, "{out}");
        let key = std::fs::read_to_string(scratch("config-env").join("weft/key")).unwrap();
        assert!(!out.contains(key.trim()) && !err.contains(key.trim()), "the key is not shown");
    }
}

/// Returns a script that Open MPI calls in place of ssh: it starts commands with an empty
/// environment, and with a folder for each host.
fn empty_host(folder: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    for host in ["h1", "h2"] {
        std::fs::create_dir_all(folder.join(host)).unwrap();
    }
    let path = folder.join("agent");
    let set = format!("PATH=/usr/bin:/bin HOME=/tmp TMPDIR={}/$host", folder.display());
    let words = "while [ \"${1#-}\" != \"$1\" ]; do shift; done; host=$1; shift";
    std::fs::write(&path, format!("#!/bin/sh\n{words}\nexec env -i {set} sh -c \"$*\"\n")).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}

#[test]
fn mpi_env__ranks_of_other_hosts_get_what_the_user_set() {
    // Of the launchers that use only the variables of `weft mpi-env`, Hydra passes on everything.
    let of_5 = |launcher: &&PathBuf| {
        let path = launcher.to_str().unwrap();
        let (_, out, _) = output(&mut weft(&["mpi-env", "--shell", "json", "--mpi", path]));
        json(&out)["env"].get("OMPI_MCA_mca_base_env_list").is_some()
    };
    let all = launchers();
    let Some(launcher) = all.iter().find(of_5) else { return skip("no Open MPI 5") };
    let folder = std::env::temp_dir().join(format!("weft-mpi-env-{}", std::process::id()));
    let agent = empty_host(&folder);
    let script = "out=$(\"$0\" mpi-env --mpi \"$1\") || exit 1; eval \"$out\"; exec \"$1\" \
                  --allow-run-as-root --host h1:1,h2:1 --bind-to none --prtemca plm_ssh_agent \
                  \"$2\" --prtemca plm_ssh_no_tree_spawn 1 -n 2 \
                  sh -c 'echo $FI_PROVIDER $WEFT_WINDOW $WEFT_KEY'";
    let mut shell = Command::new("timeout");
    shell.args(["60", "sh", "-c", script, WEFT]).arg(launcher).arg(agent);
    let key = "c0ffee00".repeat(8);
    shell.env("WEFT_PROVIDER", provider()).env("SHELL", "sh").stdin(Stdio::null());
    shell.env("WEFT_KEY", &key).env("WEFT_WINDOW", "77");
    // The end of the launcher is not checked: it was seen to stay after its ranks had ended.
    let (_, out, err) = output(&mut shell);
    let wanted = format!("weft 77 {key}");
    assert_eq!(out.lines().filter(|l| **l == wanted).count(), 2, "{out}{err}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn mpi__ranks_get_variables_and_one_key_that_no_command_line_shows() {
    for launcher in launchers() {
        let script = "echo $FI_PROVIDER $WEFT_LINK $WEFT_WINDOW $EXTRA $WEFT_KEY";
        let path = launcher.to_str().unwrap();
        let args = ["mpi", "--mpi", path, "--link", "udp", "--env", "EXTRA=x", "--timeout", "300"];
        let mut command = weft(&args);
        command.args(["-n", "3", "sh", "-c", script]).env("WEFT_WINDOW", "77");
        let (done, out, err) = output(&mut command);
        assert!(done, "{path}: {out}{err}");
        let lines: Vec<&str> = out.lines().filter(|l| l.starts_with("weft udp 77 x ")).collect();
        assert_eq!(lines.len(), 3, "{path}: {out}{err}");
        let key = lines[0].rsplit(' ').next().unwrap();
        assert!(key.len() == 64 && lines.iter().all(|line| *line == lines[0]), "{out}");
        let (_, line, _) = output(weft(&args).args(["--dry-run", "a.out"]).env("WEFT_KEY", key));
        assert!(line.contains(path) && line.contains("a.out") && !line.contains(key), "{line}");
    }
}

#[test]
fn mpi__what_the_user_set_for_open_mpi_stays() {
    for launcher in launchers() {
        let path = launcher.to_str().unwrap();
        for subcommand in [&["mpi", "--dry-run"][..], &["mpi-env"]] {
            let mut command = weft(&[subcommand, &["--mpi", path]].concat());
            if subcommand[0] == "mpi" {
                command.arg("a.out");
            }
            command.env("OMPI_MCA_osc", "^mine").env("OMPI_MCA_pml", "ob1");
            let (done, out, err) = output(&mut command);
            assert!(done, "{path}: {out}{err}");
            if !out.contains("OMPI_MCA_") {
                continue;
            }
            let osc = out.split_once("OMPI_MCA_osc=").unwrap().1.trim_start_matches('\'');
            assert!(osc.starts_with("^mine"), "{path}: {out}");
            let pml = out.split_once("OMPI_MCA_pml=").unwrap().1.trim_start_matches('\'');
            assert!(pml.starts_with("cm"), "without it there is no weft: {out}");
            assert!(err.contains("note: OMPI_MCA_osc=^mine stays"), "{path}: {err}");
        }
    }
}

/// The program prints the status of the agent that the ranks find; no agent answers after the job.
#[test]
fn mpi__an_agent_for_the_time_of_the_job() {
    let Some(launcher) = launchers().into_iter().next() else { return };
    let weftd = Path::new(WEFT).with_file_name("weftd");
    if !weftd.is_file() {
        return skip("no weftd beside weft");
    }
    let mpi = ["mpi", "--mpi", launcher.to_str().unwrap(), "--agent", "-n", "1"];
    let status = "\"$0\" --status --name \"$WEFT_AGENT\" || exit 1; echo $WEFT_LINK $WEFT_AGENT";
    let script = ["sh", "-c", status, weftd.to_str().unwrap()];
    for (link, expected) in [(None, "shm,agent "), (Some("udp"), "udp ")] {
        let mut command = weft(&mpi);
        command.args(link.map(|link| ["--link", link]).iter().flatten()).args(script);
        let (done, out, err) = output(&mut command);
        assert!(done && out.contains("ranks 0"), "{out}{err}");
        let name = out.lines().find_map(|line| line.strip_prefix(expected));
        let name = name.unwrap_or_else(|| panic!("{out}{err}"));
        let after = Command::new(&weftd).args(["--status", "--name", name]).output().unwrap();
        assert!(!after.status.success(), "the agent outlives its job");
    }
    let (_, line, err) = output(weft(&mpi).args(["--dry-run", "a.out"]));
    assert!(line.contains("WEFT_LINK='shm,agent'") && line.contains("WEFT_AGENT=@"), "{line}");
    assert!(err.contains("has an agent on each host"), "{err}");
}

#[test]
fn mpi__ranks_of_other_hosts_get_them_too() {
    // In place of ssh: an empty environment. Each host has its own folder for temporary files,
    // because two daemons of Open MPI that start in one folder at times wait forever. The path is
    // short, for sockets.
    let folder = std::env::temp_dir().join(format!("weft-mpi-{}", std::process::id()));
    for host in ["h1", "h2"] {
        std::fs::create_dir_all(folder.join(host)).unwrap();
    }
    let set = format!("PATH=/usr/bin:/bin HOME=/tmp TMPDIR={}", folder.display());
    let agent =
        format!("env -i {set} sh -c 'export TMPDIR=\"$TMPDIR/$1\"; shift; exec \"$@\"' agent");
    for launcher in launchers() {
        let path = launcher.to_str().unwrap();
        let args = ["mpi", "--mpi", path, "--hosts", "h1:1,h2:1", "--timeout", "300"];
        let mut command = weft(&args);
        command.args(["--launch-agent", &agent, "sh", "-c", "echo $FI_PROVIDER ${#WEFT_KEY}"]);
        let (done, out, err) = output(&mut command);
        assert!(done, "{path}: {out}{err}");
        assert_eq!(out.lines().filter(|l| *l == "weft 64").count(), 2, "{path}: {out}{err}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

const NOT_BUILT: &str = "the provider is not built: cargo build -p weft-ofi";

/// Returns launchers with the Python of mpi4py in the same folder; `None` without the real
/// provider.
fn pythons() -> Option<Vec<(String, PathBuf)>> {
    if !Path::new(WEFT).with_file_name("libweft_fi.so").is_file() {
        return None;
    }
    let beside = |launcher: PathBuf| {
        let python = launcher.with_file_name("python");
        python.is_file().then(|| (launcher.to_str().unwrap().to_owned(), python))
    };
    Some(launchers().into_iter().filter_map(beside).collect())
}

/// Sums over all ranks, and prints the sum in one write: pieces from several ranks may mix.
const SUM: &str = "import sys; from mpi4py import MPI; c = MPI.COMM_WORLD; \
                   sys.stdout.write(f'sum {c.allreduce(c.rank)}\\n')";

#[test]
fn mpi__a_program_runs_on_the_real_provider() {
    let Some(pythons) = pythons() else { return skip(NOT_BUILT) };
    for (path, python) in &pythons {
        for link in ["shm", "udp"] {
            let args = ["mpi", "-v", "--mpi", path, "--link", link, "--all-through-weft"];
            let mut command = weft(&args);
            command.args(["-n", "3", "--timeout", "300"]).arg(python).args(["-c", SUM]);
            let (done, out, err) = output(command.env_remove("WEFT_PROVIDER"));
            assert!(done, "{path} {link}: {out}{err}");
            assert_eq!(out.lines().filter(|l| *l == "sum 3").count(), 3, "{path}: {out}{err}");
            assert!(!err.contains("hint:"), "{err}");
        }
    }
}

/// Prints the library of rank 0's `sched_yield`, and the number of loaded files named like the
/// provider.
const YIELD: &str = "from mpi4py import MPI
import ctypes
at = ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value
maps = [line.split() for line in open('/proc/self/maps')]
spans = [[int(end, 16) for end in m[0].split('-')] + [m[4], m[-1]] for m in maps]
file = [name for start, end, _, name in spans if start <= at < end][0]
weft = {inode for _, _, inode, name in spans if 'weft' in name and 'fi.so' in name}
if MPI.COMM_WORLD.rank == 0:
    print('yields by', 'weft' if 'weft' in file else 'libc', 'of', len(weft))";

#[test]
fn mpi__mpich_yields_by_the_provider_which_is_loaded_once() {
    let Some(pythons) = pythons() else { return skip(NOT_BUILT) };
    for (path, python) in &pythons {
        let says = |option: &[&str]| {
            let mut command = weft(&["mpi", "--mpi", path, "--all-through-weft", "-n", "2"]);
            command.args(option).args(["--timeout", "300"]).arg(python).args(["-c", YIELD]);
            let (done, out, err) = output(command.env_remove("WEFT_PROVIDER"));
            assert!(done, "{path}: {out}{err}");
            let line = out.lines().find(|l| l.starts_with("yields")).unwrap_or_default();
            (line.to_owned(), out.clone() + &err)
        };
        let mpich = path.contains("mpich");
        let (line, all) = says(&[]);
        let by = if mpich { "weft" } else { "libc" };
        assert_eq!(line, format!("yields by {by} of 1"), "{path}: {all}");
        if mpich {
            let (line, all) = says(&["--env", "LD_PRELOAD="]);
            assert_eq!(line, "yields by libc of 1", "{path}: {all}");
        }
    }
}

#[test]
fn mpi_env__a_program_runs_by_its_launcher_alone() {
    if !Path::new(WEFT).with_file_name("libweft_fi.so").is_file() {
        return skip(NOT_BUILT);
    }
    // Sums, with the provider mapped.
    let mapped = "from mpi4py import MPI; assert 'libweft' in open('/proc/self/maps').read()";
    let program = format!("{mapped}; {SUM}");
    let script = "out=$(\"$0\" mpi-env --mpi \"$1\" --link \"$3\" --all-through-weft) || exit 1; \
                  eval \"$out\"; exec timeout 300 \"$1\" -n 2 \"$2\" -c \"$4\"";
    for launcher in launchers().into_iter().filter(|l| l.with_file_name("python").is_file()) {
        for link in ["shm", "udp"] {
            let mut shell = Command::new("sh");
            shell.args(["-c", script, WEFT]).arg(&launcher);
            shell.arg(launcher.with_file_name("python")).args([link, &program]);
            shell.stdin(Stdio::null()).env("SHELL", "sh").env_remove("WEFT_KEY");
            shell.env("XDG_CONFIG_HOME", scratch("config")).env("XDG_CACHE_HOME", scratch("cache"));
            // The variables do what the options of `weft mpi` do.
            shell.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            let (done, out, err) = output(&mut shell);
            let name = launcher.display();
            assert!(done, "{name} {link}: {out}{err}");
            assert_eq!(out.lines().filter(|l| *l == "sum 1").count(), 2, "{name}: {out}{err}");
        }
    }
}

/// Runs barriers with the other ranks until a file `end` exists; writes its process ID to a file of
/// its own. The pause leaves a core to `weft top`; no test waits for it.
const MEET: &str = "import os, sys, time
from mpi4py import MPI
world, folder = MPI.COMM_WORLD, sys.argv[1]
with open(f'{folder}/{world.rank}.new', 'w') as file: file.write(str(os.getpid()))
os.rename(f'{folder}/{world.rank}.new', f'{folder}/{world.rank}')
while not world.bcast(os.path.exists(f'{folder}/end')): time.sleep(0.01)
";

#[test]
fn top__shows_the_ranks_of_an_mpi_program() {
    if !Path::new(WEFT).with_file_name("libweft_fi.so").is_file() {
        return skip(NOT_BUILT);
    }
    for launcher in launchers().into_iter().filter(|l| l.with_file_name("python").is_file()) {
        let path = launcher.to_str().unwrap();
        let folder = scratch("top").join(path.replace('/', "-"));
        std::fs::create_dir_all(&folder).unwrap();
        let mut command = weft(&["mpi", "--mpi", path, "--all-through-weft", "-n", "2"]);
        command.arg(launcher.with_file_name("python")).args(["-c", MEET]).arg(&folder);
        let mut job = command.env_remove("WEFT_PROVIDER").spawn().unwrap();
        let process = |rank: &str| std::fs::read_to_string(folder.join(rank)).ok()?.parse().ok();
        let rows = loop {
            assert!(job.try_wait().unwrap().is_none(), "{path} ended early");
            let (done, out, err) = output(&mut weft(&["top", "--once", "--json"]));
            assert!(done, "{err}");
            let ranks: Vec<u64> = ["0", "1"].into_iter().filter_map(process).collect();
            let of_job = |row: &Value| ranks.contains(&row["pid"].as_u64().unwrap());
            let rows: Vec<Value> = out.lines().map(json).filter(of_job).collect();
            let busy = |row: &Value| row["counters"]["messages_sent"].as_u64() > Some(0);
            if rows.len() == 2 && rows.iter().all(busy) {
                break rows;
            }
        };
        std::fs::write(folder.join("end"), "").unwrap();
        assert!(job.wait().unwrap().success(), "{path}");
        assert_eq!(rows[0]["job"], rows[1]["job"], "{path}");
        assert!(rows[0]["job"].as_str().is_some_and(|job| !job.is_empty()));
        for (rank, row) in rows.iter().enumerate() {
            assert_eq!((&row["rank"], &row["size"]), (&rank.into(), &2.into()), "{path}");
        }
    }
}

#[test]
fn mpi__the_exit_code_is_that_of_the_launcher() {
    for launcher in launchers() {
        let path = launcher.to_str().unwrap();
        let args = ["mpi", "--mpi", path, "-n", "2", "--timeout", "300", "sh", "-c", "exit 7"];
        assert_eq!(weft(&args).output().unwrap().status.code(), Some(7), "{path}");
    }
}

#[test]
fn mpi__a_signal_ends_launcher_and_ranks() {
    for launcher in launchers() {
        let path = launcher.to_str().unwrap();
        let folder = scratch("signal");
        let script = format!("echo $$ > {}/$$; exec sleep 600", folder.display());
        let mut command = weft(&["mpi", "--mpi", path, "-n", "2", "sh", "-c", &script]);
        let told = folder.with_extension("stderr");
        let stderr = std::fs::File::create(&told).unwrap();
        let mut job = command.stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
        let ranks = || std::fs::read_dir(&folder).unwrap().flatten().count();
        while ranks() < 2 {
            assert!(job.try_wait().unwrap().is_none(), "{path} ended early");
            std::thread::yield_now();
        }
        let kill = Command::new("kill").arg(job.id().to_string()).status().unwrap();
        assert!(kill.success());
        let status = job.wait().unwrap();
        assert!(!status.success(), "{path}: {status}");
        let told = std::fs::read_to_string(told).unwrap();
        assert!(!told.contains("does not end"), "{path}: the launcher got no signal: {told}");
        for rank in std::fs::read_dir(&folder).unwrap().flatten() {
            let stat = format!("/proc/{}/stat", rank.file_name().to_str().unwrap());
            // Ended, or a zombie that its parent has not reaped yet.
            let running = || std::fs::read_to_string(&stat).is_ok_and(|s| !s.contains(") Z"));
            while running() {
                std::thread::yield_now();
            }
            std::fs::remove_file(rank.path()).unwrap();
        }
    }
}

#[test]
fn doctor__shows_which_mpi_can_and_how() {
    for launcher in launchers() {
        let folder = launcher.parent().unwrap();
        let mut command = weft(&["doctor", "--mpi", "--json"]);
        let (done, out, err) = output(command.env("PATH", folder).env_remove("VIRTUAL_ENV"));
        assert!(done, "{out}{err}");
        let checks: Vec<Value> = out.lines().map(json).collect();
        let real = launcher.canonicalize().unwrap();
        let of = |check: &&Value| {
            let path = check["mpi"]["launcher"].as_str().map(PathBuf::from);
            path.is_some_and(|p| p.parent() == Some(folder) || p.canonicalize().unwrap() == real)
        };
        let check = checks.iter().find(of).unwrap_or_else(|| panic!("{out}"));
        assert_eq!(check["mpi"]["usable"], true, "{check}");
        assert!(check["mpi"]["command"].as_str().unwrap().starts_with("weft mpi"), "{check}");
        let version = check["mpi"]["libfabric_version"].as_str().unwrap();
        assert!(version.split('.').count() == 2, "{version}");
    }
}

#[test]
fn doctor__a_provider_that_does_not_fit_is_refused_with_the_reason() {
    let folder = scratch("wrong");
    let no_library = folder.join("libweft-fi.so");
    std::fs::write(&no_library, "this is no library").unwrap();
    for (file, why) in [
        (build("old", "0.0.9", &[]), "it is of weft 0.0.9"),
        (build("crash", VERSION, &["--cfg", "crash"]), "it crashes when it is loaded"),
        (no_library, "file too short"),
        (folder.join("absent"), "there is no file"),
    ] {
        let mut command = weft(&["doctor", "--mpi", "--json"]);
        command.env("WEFT_PROVIDER", file).env("PATH", "/nonexistent").env_remove("VIRTUAL_ENV");
        let (done, out, _) = output(&mut command);
        assert!(!done, "no MPI can use it");
        let checks: Vec<Value> = out.lines().map(json).collect();
        let check = checks.iter().find(|c| c["topic"] == "provider").unwrap();
        assert!(check["finding"].as_str().unwrap().contains(why), "{why}: {check}");
        assert!(check["remedy"].as_str().unwrap().contains("weft-ofi"), "{check}");
    }
}

#[test]
fn mpi__a_provider_that_offers_nothing_is_reported_before_the_start() {
    let silent = build("silent", VERSION, &["--cfg", "silent"]);
    for launcher in launchers() {
        let args = ["mpi", "--mpi", launcher.to_str().unwrap(), "-n", "1", "true"];
        let (done, _, err) = output(weft(&args).env("WEFT_PROVIDER", &silent));
        assert!(!done && err.contains("does not take the provider"), "{err}");
    }
}

#[test]
fn mpi__without_an_mpi_says_how_to_get_one() {
    let (done, _, err) = output(&mut weft(&["mpi", "--mpi", "/nonexistent/mpiexec", "a.out"]));
    assert!(!done && err.contains("no such file"), "{err}");
    let empty = scratch("empty");
    let path = empty.to_str().unwrap();
    let (done, out, err) = output(&mut weft(&["mpi-env", "--mpi", path]));
    assert!(!done && out.is_empty() && err.contains("holds no mpiexec"), "{out}{err}");
}

#[test]
fn mpi__options_of_mpiexec_are_understood_or_refused_with_the_reason() {
    for launcher in launchers() {
        let path = launcher.to_str().unwrap();
        let typed =
            ["-np", "2", "-genv", "A", "5", "-x", "B=6", "-wdir", "/tmp", "--oversubscribe"];
        let mut command = weft(&["mpi", "--mpi", path, "--timeout", "300"]);
        command.args(typed).args(["sh", "-c", "echo $PWD $A $B"]);
        let (done, out, err) = output(&mut command);
        assert!(done, "{path}: {out}{err}");
        assert_eq!(out.lines().filter(|l| *l == "/tmp 5 6").count(), 2, "{path}: {out}{err}");
        let args = ["mpi", "--mpi", path, "--dry-run", "--mca", "btl", "self", "./a.out"];
        let (done, out, err) = output(&mut weft(&args));
        match done {
            true => assert!(out.contains("mpirun") || out.contains("--mca btl self"), "{out}"),
            false => assert!(err.contains("is an option of Open MPI, and this MPI is"), "{err}"),
        }
        let (done, _, err) = output(&mut weft(&["mpi", "--mpi", path, "-nonsense", "./a.out"]));
        assert!(!done && err.contains("-nonsense is not understood"), "{err}");
        assert!(err.contains("--launcher-args '-nonsense ...'"), "{err}");
    }
}

/// Returns each MPI that has a compiler: its launcher, and a program of it.
fn compiled() -> Vec<(PathBuf, PathBuf)> {
    let source = scratch("compiled").join("alone.c");
    let text = "#include <mpi.h>\nint main(int c, char **v) { MPI_Init(&c, &v); return \
                MPI_Finalize(); }\n";
    std::fs::write(&source, text).unwrap();
    let build = |(at, launcher): (usize, PathBuf)| {
        let program = scratch("compiled").join(format!("alone-{at}"));
        let mut mpicc = Command::new(launcher.with_file_name("mpicc"));
        let done = mpicc.arg("-o").arg(&program).arg(&source).output().ok()?;
        done.status.success().then_some((launcher, program))
    };
    launchers().into_iter().enumerate().filter_map(build).collect()
}

#[test]
fn mpi__a_program_of_another_mpi_is_always_told() {
    let all = compiled();
    let is_open = |launcher: &Path| launcher.to_str().is_some_and(|path| path.contains("openmpi"));
    let one = |open: bool| all.iter().find(|(launcher, _)| is_open(launcher) == open);
    let (Some((open, of_open)), Some((mpich, of_mpich))) = (one(true), one(false)) else {
        return skip("no two MPIs with compilers (WEFT_TEST_MPIS with v-mpich, v-openmpi)");
    };
    for (launcher, program) in [(open, of_mpich), (mpich, of_open)] {
        let (path, program) = (launcher.to_str().unwrap(), program.to_str().unwrap());
        for _ in 0..5 {
            let args = ["mpi", "--mpi", path, "-n", "2", "--timeout", "60", program];
            let (_, out, err) = output(&mut weft(&args));
            assert!(err.contains("hint:") && err.contains("which is not of"), "{path}: {out}{err}");
        }
    }
}

#[test]
fn mpi__input_that_mpichs_launcher_cannot_take_is_explained() {
    let mpich = launchers().into_iter().find(|launcher| {
        let path = launcher.to_str().unwrap().to_owned();
        path.contains("mpich")
    });
    let Some(launcher) = mpich else { return skip("no MPICH (WEFT_TEST_MPIS with v-mpich)") };
    let input = scratch("input").join("long");
    std::fs::write(&input, vec![b'x'; 4 << 20]).unwrap();
    // Rank 0 reads nothing: the launcher ends the job long before the limit of time.
    let args = ["mpi", "--mpi", launcher.to_str().unwrap(), "-n", "1", "--timeout", "60"];
    let mut command = weft(&args);
    command.args(["sleep", "600"]).stdin(std::fs::File::open(&input).unwrap());
    let (done, out, err) = output(&mut command);
    assert!(!done && err.contains("hint: with more than 64 KiB of standard input"), "{out}{err}");
}
