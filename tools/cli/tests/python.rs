//! The package `weft` for Python: its tests, which pytest runs, programs of the guide, and its
//! benchmark.
#![allow(non_snake_case)]

mod clustered;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use weft_conformance::{are_built, skip};

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../faces/python")
}

/// Returns a Python that is new enough for the package: that of `WEFT_TEST_PYTHON`, the one that
/// `cargo xtask test` makes with the tests' packages, or the system's. `None`, with the reason
/// printed, without one.
fn python() -> Option<PathBuf> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let code = "import sys; print(sys.executable if sys.version_info >= (3, 11) else '')";
        let own = sources().join("../../target/python/bin/python");
        let usual = || if own.is_file() { own.into() } else { "python3".into() };
        let named = std::env::var_os("WEFT_TEST_PYTHON").unwrap_or_else(usual);
        let said = Command::new(named).args(["-c", code]).output().ok()?;
        let path = String::from_utf8_lossy(&said.stdout).trim().to_owned();
        (!path.is_empty()).then(|| path.into())
    });
    if found.is_none() {
        skip("no python3 of version 3.11 or newer");
    }
    found.clone()
}

/// Returns a Python that has these packages, too. `None`, with the reason printed, without one.
fn python_with(packages: &str) -> Option<PathBuf> {
    let python = python()?;
    let code = format!("import {packages}");
    let has = Command::new(&python).args(["-c", &code]).output().is_ok_and(|o| o.status.success());
    if !has {
        skip(&format!(
            "{} has not all of {packages}: `cargo xtask test` installs them below target/python, \
             or WEFT_TEST_PYTHON names a Python",
            python.display()
        ));
    }
    has.then_some(python)
}

/// Makes the package in a folder, of the sources and the library that cargo built for this test.
fn package() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
        let module = folder.join("weft");
        let _old = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&module).unwrap();
        let beside = std::env::current_exe().unwrap();
        let built = beside.parent().unwrap().join("libweft_python.so");
        assert!(built.is_file(), "no library at {}", built.display());
        std::os::unix::fs::symlink(built, module.join("_weft.abi3.so")).unwrap();
        for file in std::fs::read_dir(sources().join("weft")).unwrap().flatten() {
            let to = module.join(file.file_name());
            std::os::unix::fs::symlink(file.path().canonicalize().unwrap(), to).unwrap();
        }
        folder
    });
    made.clone()
}

/// Runs tests of the package by pytest, many at a time. Returns what it says.
fn pytest(agent: &str, words: &[&str]) -> Option<String> {
    let mut command = Command::new(python_with("pytest, xdist")?);
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let many = std::env::var("RUST_TEST_THREADS").unwrap_or_else(|_| cores.to_string());
    command.args(["-m", "pytest", "-p", "no:cacheprovider", "--numprocesses", &many]).args(words);
    command.current_dir(sources().join("tests"));
    let commands = Path::new(env!("CARGO_BIN_EXE_weft")).parent().unwrap().as_os_str();
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env("PATH", [commands, &path].join(OsStr::new(":")));
    command.env("PYTHONPATH", package()).env("PYTHONDONTWRITEBYTECODE", "1");
    let out = command.env("WEFT_TEST_AGENT", agent).output().unwrap();
    let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    println!("{said}");
    assert!(out.status.success(), "pytest found faults");
    Some(said)
}

#[test]
fn pytest__all_tests_of_the_package() {
    clustered::with_agent(|agent| pytest(agent, &["--ignore", "test_mpi4py.py"]));
}

#[test]
fn both__mpi4py_and_weft_in_one_program() {
    let Some(said) = pytest("", &["test_mpi4py.py"]) else { return };
    if let Some(why) = said.lines().find(|line| line.starts_with("SKIPPED")) {
        skip(why);
    }
}

/// Returns the programs in Python that a page shows.
fn shown(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let text = std::fs::read_to_string(&path).unwrap();
    let parts = text.split("```python\n").skip(1);
    parts.map(|part| part.split("```").next().unwrap().to_owned()).collect()
}

/// Checks programs by `mypy --strict`, all in one run: most of its time goes to what they import.
fn check_types(python: &Path, files: &[PathBuf]) {
    let words = ["-m", "mypy", "--strict", "--ignore-missing-imports", "--cache-dir=/dev/null"];
    let mut command = Command::new(python);
    let out = command.args(words).args(files).env("MYPYPATH", package()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
}

#[test]
fn shown__programs_have_types_that_mypy_accepts() {
    let Some(python) = python_with("mypy, numpy") else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("typed");
    std::fs::create_dir_all(&folder).unwrap();
    let file = |(at, program)| {
        let file = folder.join(format!("shown_{at}.py"));
        std::fs::write(&file, program).unwrap();
        file
    };
    let mut files: Vec<PathBuf> =
        shown("docs/guide/python.md").into_iter().enumerate().map(file).collect();
    assert!(files.len() > 5, "{files:?}");
    files.push(sources().join("tests/programs/typed.py"));
    check_types(&python, &files);
}

/// Runs a program of a page under `weft run`, or under a launcher of an MPI; returns its output.
fn run_shown(program: &str, launcher: &[&Path], python: &Path, agent: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shown");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(format!("{:016x}.py", weft_link::random_u64()));
    std::fs::write(&file, program).unwrap();
    let mut command = Command::new("timeout");
    command.arg("60").args(launcher).args(["-n", "2"]).arg(python).arg(&file);
    if program.contains("weft.names") {
        command.env("WEFT_AGENT", agent);
    }
    command.env("PYTHONPATH", package()).env("PYTHONDONTWRITEBYTECODE", "1");
    set_for_mpis(&mut command, launcher[0]);
    let out = command.output().unwrap();
    std::fs::remove_file(&file).unwrap();
    let (said, complaints) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{program}\n{said} {complaints}");
    said.into_owned()
}

/// Returns launchers of MPIs in `WEFT_TEST_MPIS`, with the Python of mpi4py beside each.
fn mpis() -> Vec<(PathBuf, PathBuf)> {
    let Some(folder) = std::env::var_os("WEFT_TEST_MPIS") else {
        skip("no MPI: WEFT_TEST_MPIS names no folder");
        return Vec::new();
    };
    let entries = std::fs::read_dir(&folder).unwrap().flatten();
    let both = entries.map(|entry| entry.path().join("bin"));
    let both = both.map(|bin| (bin.join("mpiexec"), bin.join("python")));
    let mut found: Vec<_> =
        both.filter(|(mpi, python)| mpi.is_file() && python.is_file()).collect();
    found.sort();
    assert!(!found.is_empty(), "WEFT_TEST_MPIS={folder:?} holds no bin/mpiexec");
    found
}

/// Open MPI refuses root and more ranks than cores; Intel's launcher looks for its files.
fn set_for_mpis(command: &mut Command, launcher: &Path) {
    for word in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
        command.env(word, "1");
    }
    command.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
    if let Some(root) = launcher.ancestors().nth(2).filter(|root| root.join("opt/mpi").is_dir()) {
        command.env("I_MPI_ROOT", root);
    }
}

/// Text that the output of each program of the guide has, in their order.
const SAID: [&str; 9] = [
    "Status(source=0, tag=0, length=8000) 499500.0",
    "0.5",
    "0",
    "all replicas are equal: True",
    "1.0",
    "499",
    "withdrawn <weft.names.Owner pump:7",
    "",
    "100 4 Balanced(moved=",
];

#[test]
fn guide__each_program_runs_as_it_is_shown() {
    let programs = shown("docs/guide/python.md");
    assert_eq!(programs.len(), SAID.len(), "{programs:#?}");
    let (Some(plain), Some(numpy)) = (python(), python_with("numpy")) else { return };
    let (weft, run) = (Path::new(env!("CARGO_BIN_EXE_weft")), Path::new("run"));
    clustered::with_agent(|agent| {
        for (program, wanted) in programs.iter().zip(SAID) {
            if program.contains("mpi4py") {
                for (launcher, python) in mpis() {
                    run_shown(program, &[&launcher], &python, agent);
                }
                continue;
            }
            let python = if program.contains("import numpy") { &numpy } else { &plain };
            let said = run_shown(program, &[weft, run], python, agent);
            assert!(said.contains(wanted), "{program}\n{said}");
        }
    });
}

#[test]
fn readme__its_program_runs_as_it_is_shown() {
    let programs = shown("dist/README-wheel.md");
    let Some(python) = python() else { return };
    let (weft, run) = (Path::new(env!("CARGO_BIN_EXE_weft")), Path::new("run"));
    let said: Vec<String> =
        programs.iter().map(|it| run_shown(it, &[weft, run], &python, "")).collect();
    assert_eq!(said.len(), 1);
    assert!(said[0].contains("b'hello from rank 0'"), "{said:?}");
}

#[test]
fn package__an_older_python_has_the_places_and_is_told_what_jobs_need() {
    let code = "import sys; print(sys.executable if (3, 9) <= sys.version_info < (3, 11) else '')";
    let executable = |name: &str| {
        let said = Command::new(name).args(["-c", code]).output().ok()?;
        let path = String::from_utf8_lossy(&said.stdout).trim().to_owned();
        (!path.is_empty()).then_some(path)
    };
    let all: Vec<String> = ["python3.9", "python3.10"].into_iter().filter_map(executable).collect();
    if all.is_empty() {
        return skip("no python3.9 or python3.10");
    }
    let code = "import weft\n\
                print(weft.command().name, weft.library_dir().name)\n\
                for wanted in 'weft.init', 'weft.shared', 'weft.names.connect':\n\
                \x20   try:\n\
                \x20       exec(f'import weft.names; {wanted}' if 'names' in wanted else wanted)\n\
                \x20   except ImportError as error: print(error)\n";
    for python in all {
        let mut command = Command::new(&python);
        command.env("PYTHONPATH", package()).env("PYTHONDONTWRITEBYTECODE", "1");
        let out = command.args(["-c", code]).output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout);
        let told = ["weft.init", "weft.shared", "weft.names"]
            .map(|part| format!("{part} needs Python 3.11 or newer; this is 3."));
        let all = said.contains("weft lib") && told.iter().all(|part| said.contains(part));
        assert!(out.status.success() && all, "{said} {}", String::from_utf8_lossy(&out.stderr));
    }
}

/// Returns a command that runs the benchmark with this Python.
fn bench(python: &Path, modules: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.args(["bench", "python", "--quick", "--json", "--python"]).arg(python);
    command.env("PYTHONPATH", modules).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

#[test]
fn bench__every_part_has_its_row_with_its_target() {
    if !are_built(env!("CARGO_BIN_EXE_weft"), &["weft-bench"]) {
        return;
    }
    let Some(python) = python() else { return };
    let out = bench(&python, &package()).output().unwrap();
    let (said, complaints) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{said} {complaints}");
    let rows: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let numpy = Command::new(&python).args(["-c", "import numpy"]).output().unwrap();
    let arrays = if numpy.status.success() { 4 } else { 0 };
    assert_eq!(rows.len(), 4 + arrays, "{said}");
    let row = |part: &str| {
        let found = rows.iter().find(|row| row["what"].as_str().unwrap().contains(part));
        found.unwrap_or_else(|| panic!("no row of {part}: {said}"))
    };
    for row in &rows {
        assert_eq!((&row["bench"], &row["unit"]), (&"python".into(), &"us".into()));
        assert!(row["value"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert_eq!(row("read of a replicated")["target"], 1.0);
    let call = row("call of a remote");
    let rust = call["floor"].as_f64().unwrap();
    assert!((call["target"].as_f64().unwrap() - 1.5 * rust - 5.0).abs() < 0.001, "{call}");
    assert_eq!(row("region")["peer_name"], "shared_memory");
    assert!(row("change of a replicated")["target"].is_null());
}

#[test]
fn bench__a_python_without_the_package_is_told_how_to_get_it() {
    if !are_built(env!("CARGO_BIN_EXE_weft"), &["weft-bench"]) {
        return;
    }
    let Some(python) = python() else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-without");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("weft.py"), "raise ImportError('not here')\n").unwrap();
    let out = bench(&python, &folder).output().unwrap();
    let complaints = String::from_utf8_lossy(&out.stderr);
    let told = ["does not import the package weft", "not here", "install the wheel"];
    let all = told.iter().all(|part| complaints.contains(part));
    assert!(!out.status.success() && all, "{complaints}");
}
