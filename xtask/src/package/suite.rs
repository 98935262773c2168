//! The suite `package`: each package is installed in a system without the toolchain, used as its
//! reader would, and removed.

use super::{megabytes, package, Request, Scratch, KINDS, VERSION};
use crate::run::{output_of, succeeds, Outcome};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Promised sizes, in units of 10^6 bytes.
const WHEEL_MAX: f64 = 10.0;
/// Promised sizes of programs and libraries, below a prefix.
const FILES_MAX: [(&str, f64); 3] =
    [("bin/weft", 12.0), ("lib/weft/libweft-fi.so", 5.0), ("lib/weft/libweft-sockets.so", 1.5)];

/// The provider's path in a package of the system.
const PROVIDER: &str = "/usr/lib/weft/libweft-fi.so";

/// Checks that are counted and printed as they are made.
#[derive(Default)]
struct Checks(Outcome);

impl Checks {
    fn check(&mut self, what: &str, held: bool) -> bool {
        println!("{what}: {}", if held { "ok" } else { "FAILED" });
        self.0.add(Outcome::one(held));
        held
    }

    fn skip(&mut self, what: &str, why: &str) {
        self.0.add(Outcome::skip(format!("skipped package {what}: {why}")));
    }
}

/// Makes all packages and tries each.
pub fn suite() -> Outcome {
    let scratch = match Scratch::new("packages") {
        Ok(scratch) => scratch,
        Err(why) => return Outcome::one(false).note(why),
    };
    let out = scratch.0.join("out");
    let request = Request { out: out.clone(), kinds: KINDS.to_vec(), debug: false };
    let made = match package(&request) {
        Ok(made) => made,
        Err(why) => return Outcome::one(false).note(why),
    };
    let mut checks = Checks::default();
    let with_end = |end: &str| made.iter().find(|file| file.display().to_string().ends_with(end));
    let wheels: Vec<&PathBuf> =
        made.iter().filter(|file| file.extension().is_some_and(|e| e == "whl")).collect();
    match wheels[..] {
        [file, benches, library, torch] => {
            wheel(file, [benches, library], &scratch.0, &mut checks);
            torch_wheel(torch, &scratch.0, &mut checks);
        }
        _ => drop(checks.check("four wheels are made", false)),
    }
    let debs: Vec<&PathBuf> =
        made.iter().filter(|file| file.extension().is_some_and(|e| e == "deb")).collect();
    debian(&debs, &mut checks);
    living(&debs, &scratch.0, &mut checks);
    match with_end("-image.tar") {
        Some(file) => image(file, &scratch.0, &mut checks),
        None => drop(checks.check("an image is made", false)),
    }
    match with_end(&format!("weft-{VERSION}.tar.gz")) {
        Some(file) => source(file, &scratch.0, &mut checks),
        None => drop(checks.check("a source archive is made", false)),
    }
    let packed = crate::publish::main(&["--no-verify".to_owned()]);
    checks.check("the crates are packed for crates.io", packed == Ok(true));
    checks.0
}

/// Makes a command that finds programs in `path` only.
fn clean(program: &Path, path: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", path).env("HOME", "/tmp").env("LANG", "C.UTF-8");
    command.stdin(Stdio::null());
    command
}

/// Returns the line that a program of this build prints about its version.
fn version_of(program: &str) -> String {
    match crate::commit::commit(&crate::root()) {
        Some(commit) => format!("{program} {VERSION} ({commit})\n"),
        None => format!("{program} {VERSION}\n"),
    }
}

/// Checks the README's commands that need no rights; `command` starts `weft`, whose provider is
/// `provider`.
fn uses(
    what: &str,
    provider: &str,
    checks: &mut Checks,
    mut command: impl FnMut(&[&str]) -> Command,
) {
    let mut said = |args: &[&str]| output_of(&mut command(args)).unwrap_or_default();
    let version = said(&["--version"]);
    checks.check(&format!("{what}: version and commit"), version == version_of("weft"));
    let ranks = said(&["run", "-n", "2", "weft", "info", "--config"]);
    checks.check(&format!("{what}: two ranks"), ranks.contains("WEFT_LINK"));
    let asp = said(&["run", "-n", "4", "weft", "app", "asp", "--nodes", "64", "--check"]);
    checks.check(&format!("{what}: an application on four ranks"), !asp.is_empty());
    // The doctor may find faults of this machine, and then fails.
    let doctor = command(&["doctor", "--mpi"]).output();
    let found = doctor.is_ok_and(|d| String::from_utf8_lossy(&d.stdout).contains(provider));
    checks.check(&format!("{what}: doctor finds the provider"), found);
    let demo = succeeds(command(&["demo"]).stdout(Stdio::null()));
    checks.check(&format!("{what}: demo"), demo);
}

/// A program of MPI whose first rank prints the number of ranks.
const MPI4PY: &str = "from mpi4py import MPI; world = MPI.COMM_WORLD; \
                      total = world.allreduce(1); world.rank or print('sum', total)";

/// Returns true if a program of two ranks has printed its sum.
fn is_sum(said: Option<String>) -> bool {
    said.is_some_and(|said| said.trim() == "sum 2")
}

/// Checks the size of a file, and prints it.
fn is_small(what: &str, file: &Path, most: f64, checks: &mut Checks) {
    let size = megabytes(file);
    checks.check(&format!("{what}: {size:.2} MB, under {most}"), size < most && file.is_file());
}

fn wheel(file: &Path, others: [&PathBuf; 2], scratch: &Path, checks: &mut Checks) {
    is_small("the wheel", file, WHEEL_MAX, checks);
    let place = scratch.join("venv");
    let mut venv = Command::new("python3");
    if !succeeds(venv.args(["-m", "venv"]).arg(&place)) {
        return checks.skip("wheel", "python3 -m venv does not work (Debian: python3-venv)");
    }
    let bin = place.join("bin");
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let pip = |args: &[&str]| {
        let mut pip = clean(&bin.join("pip"), &path);
        succeeds(pip.args(["--quiet", "--disable-pip-version-check"]).args(args))
    };
    let name = file.display().to_string();
    if !checks.check("wheel: pip installs it", pip(&["install", "--no-index", &name])) {
        return;
    }
    FILES_MAX.iter().for_each(|(name, most)| is_small(name, &place.join(name), *most, checks));
    let provider = place.join("lib/weft/libweft-fi.so");
    uses("wheel", &provider.display().to_string(), checks, |args| {
        let mut command = clean(&bin.join("weft"), &path);
        command.args(args);
        command
    });
    let python = |code: &str| output_of(clean(&bin.join("python"), &path).args(["-c", code]));
    let said = python("import weft; print(weft.__version__, weft.provider_dir())");
    let wanted = format!("{VERSION} {}", place.join("lib/weft").display());
    checks.check("wheel: the module names its folders", said.is_some_and(|s| s.trim() == wanted));
    let module = output_of(clean(&bin.join("python"), &path).args(["-m", "weft", "--version"]));
    checks.check("wheel: python -m weft", module.is_some_and(|s| s.starts_with("weft ")));
    match pip(&["install", "mpich", "mpi4py"]) {
        true => {
            let mut mpi = clean(&bin.join("weft"), &path);
            mpi.args(["mpi", "--all-through-weft", "-n", "2", "python", "-c", MPI4PY]);
            checks.check("wheel: a program of MPICH", is_sum(output_of(&mut mpi)));
        }
        false => checks.skip("wheel: MPI", "pip installs no MPICH: the index cannot be reached"),
    }
    let mut bench = clean(&bin.join("weft"), &path);
    let said = bench.args(BENCH).output().map(|out| String::from_utf8_lossy(&out.stderr).into());
    let names = said.is_ok_and(|said: String| said.contains("package weft-bench"));
    checks.check("wheel: a benchmark names its package", names);
    let [benches, library] = others.map(|other| other.display().to_string());
    let others = pip(&["install", "--no-index", &benches, &library]);
    checks.check("wheel: pip installs weft_bench and weft_dev", others);
    checks.check("wheel: pkg-config and cc", compiles(&place));
    let table = output_of(clean(&bin.join("weft"), &path).args(BENCH)).unwrap_or_default();
    checks.check("wheel: a benchmark", table.contains("cache line"));
    pip(&["uninstall", "--yes", "weft", "weft-bench", "weft-dev"]);
    let left =
        ["bin/weft", "bin/weftd", "bin/weft-bench", "include/weft.h", "lib/weft/libweft-fi.so"];
    checks.check("wheel: nothing is left", !left.iter().any(|name| place.join(name).exists()));
}

/// Installs the wheel of the backend of torch.distributed without torch: its core needs none.
fn torch_wheel(file: &Path, scratch: &Path, checks: &mut Checks) {
    let bin = scratch.join("venv/bin");
    let mut pip = clean(&bin.join("pip"), "/usr/bin:/bin");
    let words = ["--quiet", "--disable-pip-version-check", "install", "--no-index", "--no-deps"];
    if !bin.is_dir()
        || !checks.check("torch_weft: pip installs it", succeeds(pip.args(words).arg(file)))
    {
        return;
    }
    let code =
        "from importlib.metadata import entry_points as points; from torch_weft import _core; \
                print([p.value for p in points(group='torch.distributed.backends')])";
    let said = output_of(clean(&bin.join("python"), "/usr/bin:/bin").args(["-c", code]));
    let found = said.is_some_and(|said| said.contains("torch_weft:register"));
    checks.check("torch_weft: its core loads, and torch finds it", found);
}

/// A short benchmark.
const BENCH: [&str; 7] = ["bench", "pingpong", "--link", "shm", "--size", "8", "--quick"];

/// Returns true if a C program is built with pkg-config's options for `prefix`, and runs.
fn compiles(prefix: &Path) -> bool {
    let mut config = Command::new("pkg-config");
    config.args(["--cflags", "--libs", "weft"]);
    config.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let flags = output_of(&mut config).and_then(|line| shlex::split(&line));
    let Some(flags) = flags else { return false };
    let program = prefix.join("pingpong");
    let source = crate::root().join("faces/capi/examples/pingpong.c");
    let mut cc = Command::new("cc");
    succeeds(cc.arg("-o").arg(&program).arg(source).args(flags))
        && succeeds(Command::new(prefix.join("bin/weft")).args(["run", "-n", "2"]).arg(&program))
}

/// Returns repository and release of this system's packages, as apt has them.
fn repository() -> Option<(String, String)> {
    let mut apt = Command::new("apt-get");
    apt.args(["indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Identifier: Packages"]);
    let text = output_of(&mut apt)?;
    let (uri, release) = text.lines().next()?.split_once(' ')?;
    Some((uri.to_owned(), release.to_owned()))
}

/// Makes a minimal Debian with these packages, once, and keeps it under this name.
fn clean_root(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let root = crate::root().join("target").join(name);
    let stamp = root.join("whole");
    if stamp.is_file() {
        return Ok(root);
    }
    let (uri, release) = repository().ok_or("apt-get names no repository")?;
    let _old = fs::remove_dir_all(&root);
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.arg("--variant=minbase");
    if !packages.is_empty() {
        debootstrap.arg(format!("--include={}", packages.join(",")));
    }
    debootstrap.arg(&release).arg(&root).arg(&uri);
    let made = succeeds(debootstrap.stdout(Stdio::null()));
    if !made {
        return Err("debootstrap made no root; it takes root and Debian's packages".into());
    }
    fs::write(&stamp, &release).map_err(|e| format!("{}: {e}", stamp.display()))?;
    Ok(root)
}

/// Makes a command inside `root`, with the kernel's file systems.
fn inside(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    // Mounts end with the command; a process id namespace of its own ends all processes it started.
    let script = "mount -t proc proc \"$0/proc\" && mount --rbind /sys \"$0/sys\" && \
                  mount --rbind /dev \"$0/dev\" && exec chroot \"$0\" \"$@\"";
    command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]);
    command.arg(root).args(args).env_clear().stdin(Stdio::null());
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", "/tmp");
    command
}

fn debian(debs: &[&PathBuf], checks: &mut Checks) {
    let root = match clean_root("debian-root", &[]) {
        Ok(root) => root,
        Err(why) => return checks.skip("deb", &why),
    };
    let mut names = Vec::new();
    for deb in debs {
        let Some(name) = deb.file_name() else { continue };
        let to = root.join("tmp").join(name);
        checks.check(&format!("{}: copied", deb.display()), fs::copy(deb, &to).is_ok());
        names.push(format!("/tmp/{}", name.to_string_lossy()));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let apt = |args: &[&str], names: &[&str]| {
        let mut apt = inside(&root, &[&["apt-get", "--quiet", "--yes"], args, names].concat());
        succeeds(apt.env("DEBIAN_FRONTEND", "noninteractive"))
    };
    if checks.check("deb: apt installs them", apt(&["install", "--no-install-recommends"], &names))
    {
        uses("deb", PROVIDER, checks, |args| inside(&root, &[&["/usr/bin/weft"], args].concat()));
        agent(&root, checks);
        let mpi = &["install", "--no-install-recommends", "openmpi-bin"];
        match apt(&["update"], &[]) && apt(mpi, &[]) {
            true => open_mpi(&root, checks),
            false => checks.skip("deb: MPI", "apt-get installs no Open MPI"),
        }
        let table = output_of(&mut inside(&root, &[&["/usr/bin/weft"], &BENCH[..]].concat()));
        checks.check("deb: a benchmark", table.is_some_and(|table| table.contains("cache line")));
        let files = ["include/weft.h", "share/man/man1/weft-run.1", "share/man/man8/weftd.8"];
        for name in files.iter().chain(&["share/man/man3/weft_send.3", "share/doc/weft/guide.md"]) {
            checks.check(&format!("deb: {name}"), root.join("usr").join(name).is_file());
        }
    }
    let packages = ["libweft-dev", "weft-agent", "weft-bench", "weft"];
    checks.check("deb: apt removes them", apt(&["purge"], &packages));
    let find = ["find", "/etc", "/lib", "/run", "/usr", "-name", "*weft*"];
    let left = output_of(&mut inside(&root, &find));
    checks.check("deb: nothing is left", left.is_some_and(|names| names.is_empty()));
    let user = output_of(&mut inside(&root, &["getent", "passwd", "weft"]));
    checks.check("deb: its user is gone", user.is_none());
}

/// Boots a Debian with systemd, which installs the packages: the service is started, enabled,
/// restarted, upgraded and removed.
fn living(debs: &[&PathBuf], scratch: &Path, checks: &mut Checks) {
    let root = match clean_root("debian-living", &["systemd-sysv"]) {
        Ok(root) => root,
        Err(why) => return checks.skip("deb: systemd", &why),
    };
    // Not /tmp, which systemd empties.
    let folder = root.join("packages");
    let _there = fs::create_dir(&folder);
    let copied = debs
        .iter()
        .all(|deb| deb.file_name().is_some_and(|name| fs::copy(deb, folder.join(name)).is_ok()));
    let boot = scratch.join("boot.sh");
    let written = fs::write(&boot, include_str!("boot.sh")).is_ok()
        && fs::write(root.join("checks.sh"), include_str!("checks.sh")).is_ok();
    let out = root.join("checks.out");
    let _old = fs::remove_file(&out);
    let ran = copied && written && succeeds(Command::new("sh").arg(&boot).arg(&root));
    let Ok(said) = fs::read_to_string(&out) else {
        return checks.skip("deb: systemd", &format!("it does not boot here ({ran})"));
    };
    let words = [
        "started",
        "enabled",
        "own-user",
        "ran",
        "restarted",
        "came-back",
        "upgraded",
        "joined",
        "found",
        "removed",
        "clean",
    ];
    let mut held = true;
    for word in &words {
        held &= checks.check(
            &format!("deb: under systemd, the agent: {word}"),
            said.lines().any(|line| line == *word),
        );
    }
    if !held {
        println!("{said}");
    }
}

/// Starts the agent as its unit does, sees its user and rights, and runs ranks of a user without
/// rights over it. The sessions of ranks that have just ended are free a moment later: until then
/// the agent refuses to end.
fn agent(root: &Path, checks: &mut Checks) {
    let version = output_of(&mut inside(root, &["weftd", "--version"]));
    checks.check("deb: the agent's version", version.is_some_and(|v| v == version_of("weftd")));
    let user = output_of(&mut inside(root, &["id", "-u", "weft"])).unwrap_or_default();
    checks.check("deb: the agent has a user of its own", !user.is_empty());
    let unit = root.join("usr/lib/systemd/system/weftd.service");
    let unit = fs::read_to_string(unit).unwrap_or_default();
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart="));
    checks.check("deb: the unit names a command", start.is_some());
    let script = format!(
        "mkdir -p /run/weft; {} 2>/tmp/weftd.log & pid=$!\n\
         timeout 60 sh -c 'until weftd --status >/dev/null 2>&1; do sleep 0.1; done'\n\
         grep -E '^(Uid|CapEff)' /proc/$pid/status\n\
         setpriv --reuid 65534 --regid 65534 --clear-groups \
         weft run -n 2 --env WEFT_LINK=agent weft app asp --nodes 64 --check && echo ran\n\
         timeout 60 sh -c 'until weftd --stop; do sleep 0.2; done' || kill -9 $pid\n\
         {{ sleep 60; kill -9 $pid; }} >/dev/null 2>&1 & guard=$!\n\
         wait $pid; echo ended $?; kill $guard; rm -r /run/weft /tmp/weftd.log",
        start.unwrap_or("weftd"),
    );
    let said = output_of(&mut inside(root, &["sh", "-c", &script])).unwrap_or_default();
    let words = |start: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(start)).unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let own = words("Uid:").iter().all(|id| *id == user.trim()) && !words("Uid:").is_empty();
    checks.check("deb: the agent runs as its user", own);
    let none = words("CapEff:").iter().all(|rights| rights.bytes().all(|digit| digit == b'0'));
    checks.check("deb: the agent has given up its rights", none);
    let lines = |line: &str| said.lines().any(|l| l == line);
    if !checks.check(
        "deb: two ranks of a user over the agent, which ends",
        lines("ran") && lines("ended 0"),
    ) {
        println!("{said}");
    }
}

/// Runs a program of Open MPI, compiled outside of the root for lack of a compiler in it.
fn open_mpi(root: &Path, checks: &mut Checks) {
    let source = crate::root().join("xtask/src/package/sum.c");
    let program = root.join("tmp/sum");
    let mut mpicc = Command::new("mpicc.openmpi");
    if output_of(mpicc.arg("-o").arg(&program).arg(source)).is_none() {
        return checks.skip("deb: MPI", "mpicc.openmpi is not here (Debian: libopenmpi-dev)");
    }
    let doctor = inside(root, &["weft", "doctor", "--mpi"]).output();
    let said = doctor.map(|d| String::from_utf8_lossy(&d.stdout).into_owned()).unwrap_or_default();
    let can = said.lines().any(|l| l.contains("Open MPI") && l.contains(" can use weft"));
    checks.check("deb: Open MPI can use weft", can);
    let args = ["weft", "mpi", "--mpi", "openmpi", "-n", "2", "/tmp/sum"];
    checks.check("deb: a program of Open MPI", is_sum(output_of(&mut inside(root, &args))));
    let _removed = fs::remove_file(&program);
}

/// Unpacks the image's layer, and runs it with a container runtime if one runs here.
fn image(file: &Path, scratch: &Path, checks: &mut Checks) {
    let folder = scratch.join("image");
    let root = folder.join("root");
    let unpack = |from: &Path, to: &Path| {
        fs::create_dir_all(to).is_ok()
            && succeeds(Command::new("tar").arg("-xf").arg(from).arg("-C").arg(to))
    };
    if !checks.check("image: unpacks", unpack(file, &folder)) {
        return;
    }
    let manifest = fs::read_to_string(folder.join("manifest.json")).unwrap_or_default();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap_or_default();
    let layer = manifest[0]["Layers"][0].as_str().unwrap_or_default();
    if !checks.check("image: its layer unpacks", unpack(&folder.join(layer), &root)) {
        return;
    }
    for name in ["proc", "sys", "dev"] {
        let _made = fs::create_dir_all(root.join(name));
    }
    if output_of(Command::new("id").arg("-u")).is_some_and(|id| id.trim() == "0") {
        uses("image", PROVIDER, checks, |args| inside(&root, &[&["/usr/bin/weft"], args].concat()));
    } else {
        checks.skip("image", "chroot takes root");
    }
    container(file, checks);
}

/// Makes a command of Podman. Its runtime refuses a machine with both versions of cgroups: root's
/// command sees the first alone.
fn podman(args: &[&str]) -> Command {
    const BOTH: &str = "/sys/fs/cgroup/unified";
    let mut command = Command::new("podman");
    if Path::new(BOTH).exists() {
        command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "umount \"$0\" && exec podman \"$@\"", BOTH]);
    }
    command.args(args).stdin(Stdio::null());
    command
}

/// Loads the image with Podman and runs its example job, as root of the container and as a user.
fn container(file: &Path, checks: &mut Checks) {
    if output_of(&mut podman(&["info"])).is_none() {
        return checks.skip("container", "Podman is not here or does not run");
    }
    let load = output_of(podman(&["load", "--input"]).arg(file));
    checks.check("image: Podman loads it", load.is_some());
    let name = format!("localhost/weft:{VERSION}");
    for user in ["root", "nobody"] {
        let mut run = podman(&["run", "--rm", "--network=none", "--cgroups=disabled"]);
        // Its own limits may be above those of this process.
        run.args(["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", "--user", user]);
        let ran = run.arg(&name).output();
        let held = ran.as_ref().is_ok_and(|o| o.status.success());
        if !checks.check(&format!("image: Podman runs its example job as {user}"), held) {
            let said = ran.map(|o| String::from_utf8_lossy(&o.stderr).into_owned());
            println!("{}", said.unwrap_or_default());
        }
    }
    let _removed = output_of(&mut podman(&["rmi", "--force", &name]));
}

/// Checks that the archive holds the files of the commit and its name, and that its tasks start.
fn source(file: &Path, scratch: &Path, checks: &mut Checks) {
    let folder = scratch.join("source");
    let unpacked = fs::create_dir_all(&folder).is_ok()
        && succeeds(Command::new("tar").arg("-xzf").arg(file).arg("-C").arg(&folder));
    checks.check("source: unpacks", unpacked);
    let root = folder.join(format!("weft-{VERSION}"));
    let head =
        output_of(Command::new("git").current_dir(crate::root()).args(["rev-parse", "HEAD"]));
    let commit = crate::commit::of_sources(&root).filter(|commit| commit.len() >= 7);
    let named = head.zip(commit).is_some_and(|(head, commit)| head.starts_with(&commit));
    checks.check("source: it names its commit", named);
    let cargo = |args: &[&str]| {
        let mut cargo = crate::run::cargo(args);
        // The crates that this build has made are used again: only the tasks are built.
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let target = target.unwrap_or_else(|| crate::root().join("target"));
        cargo.current_dir(&root).env("CARGO_TARGET_DIR", target);
        output_of(&mut cargo).unwrap_or_default()
    };
    let read = cargo(&["metadata", "--locked", "--no-deps", "--format-version=1"]);
    checks.check("source: Cargo reads it", read.contains("weft-cli"));
    let suites = cargo(&["xtask", "test", "--list"]);
    checks.check("source: its tasks start", suites.contains("house rules"));
}
