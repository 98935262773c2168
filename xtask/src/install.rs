//! `cargo xtask install` and `uninstall`: the commands, the MPI provider, the C library with its
//! header, and the system files that belong to them.

use crate::run::{cargo, output_of, succeeds, Outcome};
use crate::{commit, documents, manual, mpi, mx, setup};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Names of all installed files, below the prefix; folders that were made for them end with `/`.
pub const MANIFEST: &str = "share/weft/manifest";
/// The file that makes the agent's user (sysusers.d(5)).
const SYSUSERS: &str = "lib/sysusers.d/weft.conf";
const USAGE: &str = "usage: cargo xtask install|uninstall [--prefix DIR] [--destdir DIR] [--debug]";

/// The destination and the build type.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// The prefix under which the files will be used.
    pub prefix: PathBuf,
    /// The folder in place of `/` while a package is made.
    pub destdir: Option<PathBuf>,
    /// True for a build without optimisation.
    pub debug: bool,
}

impl Options {
    fn parse(args: &[String]) -> Result<Options, String> {
        let absolute =
            |folder: &str| std::path::absolute(folder).map_err(|e| format!("{folder}: {e}"));
        let mut options =
            Options { prefix: PathBuf::from("/usr/local"), destdir: None, debug: false };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut folder = || absolute(args.next().ok_or(USAGE)?);
            match arg.as_str() {
                "--prefix" => options.prefix = folder()?,
                "--destdir" => options.destdir = Some(folder()?),
                "--debug" => options.debug = true,
                _ => return Err(USAGE.into()),
            }
        }
        Ok(options)
    }

    /// Returns the present folder of the prefix.
    pub fn root(&self) -> PathBuf {
        match &self.destdir {
            Some(stage) => stage.join(self.prefix.strip_prefix("/").unwrap_or(&self.prefix)),
            None => self.prefix.clone(),
        }
    }
}

/// An installation in progress.
struct Install {
    root: PathBuf,
    names: Vec<String>,
    /// Folders that did not exist before this or an earlier installation.
    made: Vec<String>,
}

impl Install {
    fn new(root: PathBuf) -> Install {
        let before = read(&root.join(MANIFEST)).unwrap_or_default();
        let made = before.lines().filter(|name| name.ends_with('/')).map(str::to_owned).collect();
        Install { root, names: Vec::new(), made }
    }

    /// Notes the folders of a name that have to be made.
    fn note_folders(&mut self, name: &str) {
        let folders = Path::new(name).ancestors().skip(1);
        for folder in folders.filter(|f| !f.as_os_str().is_empty()) {
            let text = format!("{}/", folder.display());
            if !self.root.join(folder).is_dir() && !self.made.contains(&text) {
                self.made.push(text);
            }
        }
    }

    fn finish(mut self) -> Result<(), String> {
        let to = self.path(MANIFEST)?;
        // The innermost first, to be removed in this order.
        self.made.sort_by_key(|name| std::cmp::Reverse(name.matches('/').count()));
        self.names.append(&mut self.made);
        let text = self.names.join("\n");
        fs::write(&to, format!("{text}\n")).map_err(|e| format!("{}: {e}", to.display()))
    }

    fn path(&mut self, name: &str) -> Result<PathBuf, String> {
        self.note_folders(name);
        let path = self.root.join(name);
        let folder = path.parent().unwrap_or(&path);
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        // A library in use is replaced, not overwritten: programs have it mapped.
        let _absent = fs::remove_file(&path);
        println!("{}", path.display());
        self.names.push(name.to_owned());
        Ok(path)
    }

    fn copy(&mut self, from: &Path, name: &str) -> Result<(), String> {
        let to = self.path(name)?;
        let failed = |e| format!("{} to {}: {e}", from.display(), to.display());
        fs::copy(from, &to).map(|_| ()).map_err(failed)
    }

    fn link(&mut self, name: &str, target: &str) -> Result<(), String> {
        let at = self.path(name)?;
        std::os::unix::fs::symlink(target, &at).map_err(|e| format!("{}: {e}", at.display()))
    }

    fn write(&mut self, name: &str, text: &str) -> Result<(), String> {
        let to = self.path(name)?;
        fs::write(&to, text).map_err(|e| format!("{}: {e}", to.display()))
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Returns the folder of built files.
pub fn target(debug: bool) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| crate::root().join("target"));
    target.join(if debug { "debug" } else { "dist" })
}

/// Builds a crate, and returns one of its files.
///
/// # Errors
/// The build failed, and printed its errors.
pub fn built(package: &str, file: &str, debug: bool) -> Result<PathBuf, String> {
    let is_built = match debug {
        true => mpi::programs(),
        false => succeeds(&mut cargo(&["build", "--package", package, "--profile", "dist"])),
    };
    match is_built {
        true => Ok(target(debug).join(file)),
        false => Err(format!("{package} does not build")),
    }
}

/// The packages whose files are installed.
const PACKAGES: [&str; 9] = [
    "weft-cli",
    "weft-bench",
    "weft-papers",
    "weftd",
    "weft-ofi",
    "weft-capi",
    "weft-via",
    "weft-mx",
    "weft-preload",
];

/// Builds and installs. `false` if the build failed and printed its errors.
pub fn install(options: &Options) -> Result<bool, String> {
    let mut build = vec!["build"];
    match options.debug {
        // The build of the tests.
        true => build.push("--workspace"),
        false => {
            PACKAGES.iter().for_each(|package| build.extend(["-p", package]));
            build.extend(["--profile", "dist"]);
        }
    }
    let source = crate::root();
    let mut build = cargo(&build);
    // An unoptimised build shares its folder with the tests, which would be built anew.
    let commit = commit::commit(&source).filter(|_| !options.debug);
    let commit = commit.map(|commit| (commit::VARIABLE, commit));
    build.envs(commit.clone());
    if !succeeds(&mut build) {
        return Ok(false);
    }
    let built = target(options.debug);
    let prefix = options.prefix.display().to_string();
    let mut to = Install::new(options.root());
    install_programs(&built, &mut to)?;
    to.copy(&built.join("libweft_capi.so"), &format!("lib/libweft.so.{VERSION}"))?;
    to.link("lib/libweft.so.0", &format!("libweft.so.{VERSION}"))?;
    to.link("lib/libweft.so", "libweft.so.0")?;
    to.copy(&built.join("libweft_capi.a"), "lib/libweft.a")?;
    slim(&to.root.join("lib/libweft.a"));
    let capi = source.join("faces/capi");
    install_headers(&capi, &prefix, &mut to)?;
    install_via(&built, &prefix, &mut to)?;
    let library = mx::library(&built, options.debug, commit)?;
    install_mx(&library, &prefix, &mut to)?;
    let unit = read(&source.join("dist/weftd.service"))?;
    to.write("lib/systemd/system/weftd.service", &unit.replace("/usr/local", &prefix))?;
    to.copy(&source.join("dist/weft.sysusers.conf"), SYSUSERS)?;
    for name in ["LICENSE-MIT", "LICENSE-APACHE", "docs/weft.lua", "docs/mxoe.lua"] {
        let base = name.rsplit('/').next().unwrap_or(name);
        to.copy(&source.join(name), &format!("share/doc/weft/{base}"))?;
    }
    let docs = source.join("docs");
    let names = documents::names(&docs)?;
    for name in &names {
        let to_name = format!("share/doc/weft/{name}");
        match name.ends_with(".md") {
            true => to.write(&to_name, &documents::page(&docs, name, &names)?)?,
            false => to.copy(&docs.join(name), &to_name)?,
        }
    }
    for (name, _) in EXAMPLES {
        let name = format!("{name}.c");
        to.copy(&capi.join("examples").join(&name), &format!("share/weft/examples/{name}"))?;
    }
    to.copy(&capi.join("examples/check.h"), "share/weft/examples/check.h")?;
    pages(&built.join("weft"), &mut to)?;
    for header in [&manual::WEFT, &manual::VIPL, &manual::MX] {
        let text = read(&source.join(header.path))?;
        for (name, text) in manual::of_header(header, &text) {
            to.write(&format!("share/man/{name}"), &text)?;
        }
    }
    agent_texts(&built.join("weftd-pages"), &mut to)?;
    to.finish()?;
    println!("{}", make_user(options));
    Ok(true)
}

/// The commands.
const PROGRAMS: [&str; 4] = ["weft", "weft-bench", "weft-papers", "weftd"];

/// Installs the commands, and the libraries that they have other programs load.
fn install_programs(built: &Path, to: &mut Install) -> Result<(), String> {
    for name in PROGRAMS {
        to.copy(&built.join(name), &format!("bin/{name}"))?;
    }
    for name in ["fi", "sockets"] {
        let from = built.join(format!("libweft_{name}.so"));
        to.copy(&from, &format!("lib/weft/libweft-{name}.so"))?;
    }
    Ok(())
}

/// Installs the headers of the C library, and what pkg-config and CMake know of it.
fn install_headers(capi: &Path, prefix: &str, to: &mut Install) -> Result<(), String> {
    for name in ["weft.h", "crl.h"] {
        to.copy(&capi.join("include").join(name), &format!("include/{name}"))?;
    }
    for name in ["weft.pc", "weft-static.pc"] {
        let text = read(&capi.join(format!("{name}.in")))?;
        let text = text.replace("@PREFIX@", prefix).replace("@VERSION@", VERSION);
        to.write(&format!("lib/pkgconfig/{name}"), &text)?;
    }
    for name in ["weft-config.cmake", "weft-config-version.cmake"] {
        let text = read(&capi.join(format!("{name}.in")))?.replace("@VERSION@", VERSION);
        to.write(&format!("lib/cmake/weft/{name}"), &text)?;
    }
    Ok(())
}

/// Installs the library of virtual interfaces, its header and its example.
fn install_via(built: &Path, prefix: &str, to: &mut Install) -> Result<(), String> {
    let via = crate::root().join("faces/via");
    to.copy(&built.join("libweft_via.so"), &format!("lib/libvipl.so.{VERSION}"))?;
    to.link("lib/libvipl.so.0", &format!("libvipl.so.{VERSION}"))?;
    to.link("lib/libvipl.so", "libvipl.so.0")?;
    to.copy(&via.join("include/vipl.h"), "include/vipl.h")?;
    install_old(to, "via", prefix, "vipl.pc", ["hello.c", "check.h"])
}

/// Installs the file for pkg-config and the example of an interface of old.
fn install_old(
    to: &mut Install,
    name: &str,
    prefix: &str,
    pc: &str,
    example: [&str; 2],
) -> Result<(), String> {
    let face = crate::root().join("faces").join(name);
    let text = read(&face.join(format!("{pc}.in")))?;
    let text = text.replace("@PREFIX@", prefix).replace("@VERSION@", VERSION);
    to.write(&format!("lib/pkgconfig/{pc}"), &text)?;
    for file in example {
        to.copy(&face.join("examples").join(file), &format!("share/weft/examples/{name}/{file}"))?;
    }
    Ok(())
}

/// Installs the library of MX under both names that programs of the time load, its headers and its
/// example.
fn install_mx(library: &Path, prefix: &str, to: &mut Install) -> Result<(), String> {
    let mx = crate::root().join("faces/mx");
    to.copy(library, "lib/libmyriexpress.so")?;
    to.link("lib/libopen-mx.so.0", "libmyriexpress.so")?;
    for name in ["myriexpress.h", "mx_extensions.h", "mx_io.h"] {
        to.copy(&mx.join("include").join(name), &format!("include/{name}"))?;
    }
    install_old(to, "mx", prefix, "myriexpress.pc", ["hello.c", "mx_check.h"])
}

/// Makes the agent's user in an installation of the system; returns a description for people. In a
/// staged package the package's own installation does it.
fn make_user(options: &Options) -> String {
    const BY_HAND: &str = "useradd --system --no-create-home --shell /usr/sbin/nologin weft";
    let has =
        || read(Path::new("/etc/passwd")).is_ok_and(|p| p.lines().any(|l| l.starts_with("weft:")));
    let of_system = ["/usr", "/usr/local"].map(Path::new).contains(&options.prefix.as_path());
    if options.destdir.is_some() || !of_system || has() {
        return format!("the agent's user is weft, if that is there ({BY_HAND})");
    }
    let sysusers = options.root().join(SYSUSERS);
    let mut useradd = Command::new("useradd");
    useradd.args(BY_HAND.split(' ').skip(1));
    match succeeds(Command::new("systemd-sysusers").arg(sysusers)) || succeeds(&mut useradd) {
        true => "the agent's user weft was made".into(),
        false => format!("the agent's user could not be made; as root: {BY_HAND}"),
    }
}

/// Removes the parts of a static library that linkers do not use: the compiler's own form of the
/// code, and debugging data, which are most of it. Without binutils it stays unchanged.
fn slim(library: &Path) {
    let mut objcopy = Command::new("objcopy");
    objcopy.args(["--strip-debug", "-R", ".llvmbc", "-R", ".llvmcmd"]).arg(library);
    if !succeeds(&mut objcopy) {
        println!("{} is larger than need be", library.display());
    }
}

/// Installs the manual page of the agent, and its completions for shells.
fn agent_texts(pages: &Path, to: &mut Install) -> Result<(), String> {
    let texts = [
        "share/man/man8/weftd.8",
        "share/bash-completion/completions/weftd",
        "share/zsh/site-functions/_weftd",
        "share/fish/vendor_completions.d/weftd.fish",
    ];
    texts.iter().for_each(|name| to.note_folders(name));
    to.names.extend(texts.map(String::from));
    match succeeds(Command::new(pages).arg(to.root.join("share"))) {
        true => Ok(()),
        false => Err("`weftd-pages` failed".into()),
    }
}

/// Installs the texts that the command prints: completions for shells and pages for `man`.
fn pages(weft: &Path, to: &mut Install) -> Result<(), String> {
    let folders = [
        ("bash", "share/bash-completion/completions/weft"),
        ("zsh", "share/zsh/site-functions/_weft"),
        ("fish", "share/fish/vendor_completions.d/weft.fish"),
    ];
    for (shell, name) in folders {
        let script = output_of(Command::new(weft).args(["completions", shell]));
        to.write(name, &script.ok_or_else(|| format!("`weft completions {shell}` failed"))?)?;
    }
    to.note_folders("share/man/man1/weft.1");
    let folder = to.root.join("share/man/man1");
    if !succeeds(Command::new(weft).arg("man").arg(&folder)) {
        return Err("`weft man` failed".into());
    }
    let pages = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut pages: Vec<String> =
        pages.flatten().filter_map(|page| page.file_name().into_string().ok()).collect();
    pages.retain(|page| page == "weft.1" || page.starts_with("weft-"));
    pages.sort();
    to.names.extend(pages.iter().map(|page| format!("share/man/man1/{page}")));
    println!("{} ({} pages)", folder.display(), pages.len());
    Ok(())
}

fn uninstall(root: &Path) -> Result<(), String> {
    let names = read(&root.join(MANIFEST))?;
    for name in names.lines() {
        let path = root.join(name);
        match name.ends_with('/') {
            // A folder that others use as well is not empty, and stays.
            true => drop(fs::remove_dir(&path)),
            false => match fs::remove_file(&path) {
                Ok(()) => println!("removed {}", path.display()),
                Err(e) => println!("{}: {e}", path.display()),
            },
        }
    }
    Ok(())
}

/// Runs the task.
pub fn main(task: &str, args: &[String]) -> Result<bool, String> {
    let options = Options::parse(args)?;
    match task {
        "install" => install(&options),
        _ => uninstall(&options.root()).map(|()| true),
    }
}

/// Installs into a new folder, uses the files as a stranger would, and removes them.
pub fn suite() -> Outcome {
    let prefix = crate::root().join(format!("target/tmp/installed-{}", std::process::id()));
    let options = Options { prefix: prefix.clone(), destdir: None, debug: true };
    let mut outcome = Outcome::one(install(&options) == Ok(true));
    if outcome.failed > 0 {
        return outcome.note("install failed");
    }
    let weft = prefix.join("bin/weft");
    let mut check = |what: &str, held: bool| {
        println!("{what}: {}", if held { "ok" } else { "FAILED" });
        outcome.add(Outcome::one(held));
    };
    let said = |program: &Path, args: &[&str]| output_of(Command::new(program).args(args));
    let version = |name: &str| said(&prefix.join("bin").join(name), &["--version"]);
    let of = |name: &str| version(name).is_some_and(|v| v.trim() == format!("{name} {VERSION}"));
    check("versions", PROGRAMS.into_iter().all(of));
    let bench = ["bench", "pingpong", "--link", "shm", "--size", "8", "--quick"];
    check("a benchmark", said(&weft, &bench).is_some_and(|table| table.contains("cache line")));
    let sorted = said(&weft, &["app", "radix", "--keys", "1000"]);
    check("an application of a paper", sorted.is_some_and(|said| said.contains("sorted")));
    let provider = prefix.join("lib/weft/libweft-fi.so").display().to_string();
    // The doctor may find faults of this machine.
    let doctor = Command::new(&weft).args(["doctor", "--mpi"]).output();
    let seen = doctor.is_ok_and(|d| String::from_utf8_lossy(&d.stdout).contains(&provider));
    check("the provider is found", seen);
    let library = prefix.join("lib/weft/libweft-sockets.so").display().to_string();
    let found = said(&weft, &["sockets", "library"]).unwrap_or_default();
    check("the library of socket programs is found", found.trim() == library);
    let loaded =
        said(&weft, &["sockets", "run", "grep", "-c", "libweft-sockets", "/proc/self/maps"]);
    check("a socket program loads it", loaded.is_some_and(|lines| lines.trim() != "0"));
    let ranks = said(&weft, &["run", "-n", "2", "echo", "here"]).unwrap_or_default();
    check("two ranks", ranks == "here\nhere\n");
    let programs = c_programs();
    check("all programs in C are known", programs.is_some());
    for (name, ranks) in programs.unwrap_or_default() {
        check(&format!("{name} in C"), c_program(&prefix, "weft", name, *ranks));
    }
    check("a program with the static library", c_program(&prefix, "weft-static", "collective", 3));
    if setup::has("cmake") {
        check("find_package(weft)", found_by_cmake(&prefix));
    }
    check("hello over virtual interfaces", hello(&prefix, "vipl", "via/hello"));
    check("hello over MX", hello(&prefix, "myriexpress", "mx/hello"));
    let library = prefix.join("lib/libmyriexpress.so").display().to_string();
    let symbols = said(Path::new("readelf"), &["-W", "--dyn-syms", &library]);
    let nodes = symbols.map_or(Err("no readelf".into()), |symbols| mx::check(&symbols));
    if let Err(why) = &nodes {
        println!("{library}: {why}");
    }
    check("the version nodes of MX", nodes.is_ok());
    check("the guide to C", prefix.join("share/doc/weft/guide/c.md").is_file());
    let page = |name: &str| read(&prefix.join("share/man").join(name)).unwrap_or_default();
    let command = page("man1/weft-run.1");
    check("a manual page", command.starts_with(".ie") && command.contains("\\-\\-hosts"));
    check("a page of the benchmarks", page("man1/weft-bench.1").contains("\\-\\-netns"));
    check("a page of a paper", page("man1/weft-papers-sim-paper004.1").contains("\\-\\-table"));
    check("a page of the agent", page("man8/weftd.8").contains("\\-\\-sessions"));
    check("a page of a C function", page("man3/weft_send.3").contains("int weft_send("));
    check("a page of vipl.h", page("man3/VipOpenNic.3").contains("VIP_RETURN VipOpenNic("));
    check("a page of MX", page("man3/mx_isend.3").contains("mx_return_t mx_isend("));
    let scripts = prefix.join("share/bash-completion/completions");
    let holds = |name| said(Path::new("bash"), &["-n", &scripts.join(name).display().to_string()]);
    check("completions", ["weft", "weftd"].map(holds).iter().all(Option::is_some));
    check("removed", uninstall(&prefix).is_ok());
    let left = fs::read_dir(&prefix).map(|folder| folder.count());
    check("nothing is left", left.is_ok_and(|left| left == 0));
    let _ = fs::remove_dir(&prefix);
    outcome
}

/// Examples in C with the number of ranks of each; 0: not run, because it is made to fail or needs
/// an agent of a cluster.
const EXAMPLES: &[(&str, u32)] = &[
    ("choose", 3),
    ("collective", 3),
    ("differ", 3),
    ("expect", 0),
    ("failed", 0),
    ("fetch_add", 3),
    ("gather", 3),
    ("group", 0),
    ("heat", 3),
    ("mailbox", 2),
    ("message", 3),
    ("multicast", 3),
    ("names", 0),
    ("pingpong", 2),
    ("poll", 3),
    ("rcpy", 2),
    ("slow", 3),
    ("watchdog", 3),
];

/// Returns all examples; `None` if they differ from those in the folder.
fn c_programs() -> Option<&'static [(&'static str, u32)]> {
    let folder = fs::read_dir(crate::root().join("faces/capi/examples")).ok()?;
    let names = folder.flatten().filter_map(|file| file.file_name().into_string().ok());
    let mut names: Vec<String> =
        names.filter_map(|name| name.strip_suffix(".c").map(str::to_owned)).collect();
    names.sort();
    names.iter().eq(EXAMPLES.iter().map(|(name, _)| name)).then_some(EXAMPLES)
}

/// Compiles an example with the options of pkg-config; returns the program.
fn c_compile(prefix: &Path, library: &str, name: &str) -> Option<PathBuf> {
    let mut config = Command::new("pkg-config");
    config.args(["--cflags", "--libs", library]);
    config.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let flags = output_of(&mut config).and_then(|line| shlex::split(&line))?;
    let source = prefix.join(format!("share/weft/examples/{name}.c"));
    let program = prefix.join("example");
    let mut cc = Command::new("cc");
    cc.arg("-o").arg(&program).arg(source).args(flags);
    succeeds(&mut cc).then_some(program)
}

/// Builds an example with both libraries by CMake, and runs it.
fn found_by_cmake(prefix: &Path) -> bool {
    let folder = prefix.join("by-cmake");
    let project = format!(
        "cmake_minimum_required(VERSION 3.16)\nproject(message C)\nfind_package(weft {VERSION} \
         REQUIRED)\nforeach(of weft static)\nadd_executable(${{of}} \
         ../share/weft/examples/message.c)\ntarget_link_libraries(${{of}} weft::${{of}})\n\
         endforeach()\n"
    );
    let build = folder.join("build");
    let cmake = |args: &[&Path]| {
        let mut cmake = Command::new("cmake");
        cmake.env("CMAKE_PREFIX_PATH", prefix).args(args).stdout(std::process::Stdio::null());
        succeeds(&mut cmake)
    };
    let run = |program: &str| {
        let mut run = Command::new(prefix.join("bin/weft"));
        succeeds(run.args(["run", "-n", "3"]).arg(build.join(program)))
    };
    let written = fs::create_dir_all(&folder)
        .and_then(|()| fs::write(folder.join("CMakeLists.txt"), project))
        .is_ok();
    let ran = written
        && cmake(&[Path::new("-S"), &folder, Path::new("-B"), &build])
        && cmake(&[Path::new("--build"), &build])
        && ["weft", "static"].into_iter().all(run);
    let _ = fs::remove_dir_all(&folder);
    ran
}

/// Compiles an example that says hello, and runs its two sides.
fn hello(prefix: &Path, library: &str, name: &str) -> bool {
    let Some(program) = c_compile(prefix, library, name) else { return false };
    let of = |words: &[&str]| {
        let mut side = Command::new(&program);
        side.args(words).env("WEFT_KEY", format!("{:064x}", std::process::id())).spawn()
    };
    let sides = [of(&["server"]), of(&["client", "localhost"])];
    let ran = sides.map(|side| side.and_then(|mut side| side.wait()));
    let _ = fs::remove_file(&program);
    ran.iter().all(|ran| ran.as_ref().is_ok_and(ExitStatus::success))
}

/// Compiles an example, and runs it.
fn c_program(prefix: &Path, library: &str, name: &str, ranks: u32) -> bool {
    let Some(program) = c_compile(prefix, library, name) else { return false };
    let mut run = Command::new(prefix.join("bin/weft"));
    run.args(["run", "-n", &ranks.to_string()]).arg(&program).env("WEFT_WARN_AFTER_MS", "50");
    if name == "watchdog" {
        run.env("WEFT_RECEIPT", "watchdog");
    }
    let ran = ranks == 0 || succeeds(&mut run);
    let _ = fs::remove_file(&program);
    ran
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn c_programs__every_example_is_listed() {
        assert!(c_programs().is_some(), "EXAMPLES differs from faces/capi/examples");
    }

    #[test]
    fn parse__a_package_is_staged_below_its_destdir() {
        let parse = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            Options::parse(&words)
        };
        assert_eq!(parse("").unwrap().root(), Path::new("/usr/local"));
        let staged = parse("--prefix /usr --destdir /tmp/p").unwrap();
        assert_eq!(
            (staged.prefix.to_str(), staged.root().to_str()),
            (Some("/usr"), Some("/tmp/p/usr"))
        );
        assert!(parse("--prefix").is_err() && parse("/usr").is_err());
    }
}
