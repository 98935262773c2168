//! The backend of torch.distributed: tests of its core, which need no torch, and those of the
//! package where the Python of `WEFT_TEST_TORCH` has torch.
#![allow(non_snake_case)]

use std::path::{Path, PathBuf};
use std::process::Command;
use weft_conformance::skip;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../faces/torch")
}

/// Returns a Python with these modules: that of a variable, or else the one that `cargo xtask test`
/// makes, or the system's. `None`, with the reason printed, without one.
fn python_with(modules: &str, variable: &str) -> Option<PathBuf> {
    let code = format!("import sys, {modules}\nassert sys.version_info >= (3, 11)");
    let own = sources().join("../../target/python/bin/python");
    let usual = || if own.is_file() { own.clone() } else { "python3".into() };
    let python = std::env::var_os(variable).map_or_else(usual, PathBuf::from);
    let has = Command::new(&python).args(["-c", &code]).output().is_ok_and(|o| o.status.success());
    if !has {
        skip(&format!(
            "{} is no Python 3.11 with {modules}: {variable} names one",
            python.display()
        ));
    }
    has.then_some(python)
}

/// Makes the package in a folder, of the sources and the library that cargo built for this test.
fn package(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let module = folder.join("torch_weft");
    let _old = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&module).unwrap();
    let beside = std::env::current_exe().unwrap();
    let built = beside.parent().unwrap().join("libweft_torch.so");
    assert!(built.is_file(), "no library at {}", built.display());
    std::os::unix::fs::symlink(built, module.join("_core.abi3.so")).unwrap();
    for file in std::fs::read_dir(sources().join("torch_weft")).unwrap().flatten() {
        let to = module.join(file.file_name());
        std::os::unix::fs::symlink(file.path().canonicalize().unwrap(), to).unwrap();
    }
    // torch finds the backend by what an installation says of it.
    let info = folder.join("torch_weft-0.dist-info");
    std::fs::create_dir_all(&info).unwrap();
    let about = "Metadata-Version: 2.1\nName: torch-weft\nVersion: 0\n";
    std::fs::write(info.join("METADATA"), about).unwrap();
    std::fs::copy(sources().join("entry_points.txt"), info.join("entry_points.txt")).unwrap();
    folder
}

/// Runs a file of tests by pytest.
fn pytest(python: &Path, package: &Path, file: &str) {
    let mut command = Command::new(python);
    command.args(["-m", "pytest", "-p", "no:cacheprovider", file]);
    command.current_dir(sources().join("tests"));
    command.env("PYTHONPATH", package).env("PYTHONDONTWRITEBYTECODE", "1");
    let out = command.output().unwrap();
    println!("{}", String::from_utf8_lossy(&[out.stdout, out.stderr].concat()));
    assert!(out.status.success(), "pytest found faults in {file}");
}

#[test]
fn core__threads_without_torch_are_ranks() {
    if let Some(python) = python_with("pytest", "WEFT_TEST_PYTHON") {
        pytest(&python, &package("torch-core"), "test_core.py");
    }
}

#[test]
fn distributed__tests_of_torch_itself() {
    if std::env::var_os("WEFT_TEST_TORCH_OWN").is_none() {
        return skip("torch's own tests take minutes: `cargo xtask test --suite torch` runs them");
    }
    if let Some(python) = python_with("pytest, expecttest, numpy, torch", "WEFT_TEST_TORCH") {
        pytest(&python, &package("torch-own"), "test_distributed.py");
    }
}

#[test]
fn package__programs_with_torch_are_ranks() {
    if let Some(python) = python_with("pytest, torch", "WEFT_TEST_TORCH") {
        pytest(&python, &package("torch-package"), "test_torch.py");
    }
}
