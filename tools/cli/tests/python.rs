//! Programs in Python over the package `weft`, run by `weft run`.
#![allow(non_snake_case)]

mod clustered;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use weft_conformance::skip;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../faces/python")
}

/// Returns a Python that is new enough for the package. `None`, with the reason printed, without
/// one.
fn python() -> Option<PathBuf> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let code = "import sys; print(sys.executable if sys.version_info >= (3, 11) else '')";
        let named = std::env::var("WEFT_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
        let said = Command::new(named).args(["-c", code]).output().ok()?;
        let path = String::from_utf8_lossy(&said.stdout).trim().to_owned();
        (!path.is_empty()).then(|| path.into())
    });
    if found.is_none() {
        skip("no python3 of version 3.11 or newer");
    }
    found.clone()
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

/// Returns a command that runs a program of the tests with as many ranks. `None` without Python.
fn ranks(count: u32, program: &str, arguments: &[&str]) -> Option<Command> {
    Some(ranks_of(&python()?, count, program, arguments))
}

/// As [`ranks`], with a Python.
fn ranks_of(python: &Path, count: u32, program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.args(["run", "-n", &count.to_string()]).arg(python);
    command.arg(sources().join("tests").join(program)).args(arguments);
    command.env("PYTHONPATH", package()).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Returns a Python that has numpy, too: that of the tests, or one beside an MPI. `None`, with the
/// reason printed, without one.
fn python_with_numpy() -> Option<PathBuf> {
    let all = python().into_iter().chain(mpis().into_iter().map(|(_, python)| python));
    let has = |python: &PathBuf| {
        Command::new(python).args(["-c", "import numpy"]).output().is_ok_and(|o| o.status.success())
    };
    let found = all.into_iter().find(has);
    if found.is_none() {
        skip("no Python has numpy: WEFT_TEST_PYTHON names none");
    }
    found
}

/// Returns the programs in Python that a page shows.
fn shown(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let text = std::fs::read_to_string(&path).unwrap();
    let parts = text.split("```python\n").skip(1);
    parts.map(|part| part.split("```").next().unwrap().to_owned()).collect()
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

/// Runs a case of `ranks.py`.
fn case(name: &str, count: u32, settings: &[(&str, &str)]) {
    case_of("ranks.py", name, count, settings);
}

/// Runs a case of a program.
fn case_of(program: &str, name: &str, count: u32, settings: &[(&str, &str)]) {
    if let Some(command) = ranks(count, program, &[name]) {
        check(command, name, count, settings);
    }
}

/// Runs a command of a case, and checks that each rank has found everything right.
fn check(mut command: Command, name: &str, count: u32, settings: &[(&str, &str)]) {
    let out = command.envs(settings.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    let all = (0..count).all(|rank| said.contains(&format!("rank {rank} of {count} is right")));
    let complaints = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && all, "{name} {settings:?}: {said} {complaints}");
}

/// Shared memory, and UDP with faults.
const WAYS: [&[(&str, &str)]; 2] = [
    &[("WEFT_LINK", "shm")],
    &[("WEFT_LINK", "udp"), ("WEFT_FAULTS", "loss=2%,dup=1%,reorder=1%,seed=5")],
];

#[test]
fn messages__of_all_lengths_and_kinds() {
    for count in [2, 4] {
        WAYS.iter().for_each(|way| case("messages", count, way));
    }
}

#[test]
fn misuse__locked_buffers_signals_threads_and_forks() {
    WAYS.iter().for_each(|way| case("misuse", 2, way));
}

#[test]
fn collectives__with_bytes_buffers_and_numbers() {
    for count in [1, 2, 5] {
        case("collectives", count, WAYS[0]);
    }
    case("collectives", 4, WAYS[1]);
}

#[test]
fn awaits__many_requests_and_one_that_is_cancelled() {
    WAYS.iter().for_each(|way| case("awaits", 2, way));
}

#[test]
fn leaves__receives_from_any_rank_end() {
    let soon = ("WEFT_WARN_AFTER_MS", "200");
    for way in WAYS {
        case("leaves", 3, &[way, &[soon][..]].concat());
    }
}

#[test]
fn stubs__name_what_is_there() {
    case("stubs", 1, WAYS[0]);
}

#[test]
fn signatures__show_the_defaults_of_arguments() {
    case("signatures", 1, WAYS[0]);
}

#[test]
fn copied__objects_of_values_are_equal_and_pickled() {
    case("copied", 1, WAYS[0]);
}

#[test]
fn regions__of_all_types_and_their_memory_stays() {
    WAYS.iter().for_each(|way| case("regions", 3, way));
}

#[test]
fn queues__jobs_go_to_their_owners_until_none_is_left() {
    for (count, way) in [(1, WAYS[0]), (3, WAYS[0]), (3, WAYS[1])] {
        case("queues", count, way);
    }
}

#[test]
fn objects__replicated_and_at_a_rank_with_guards_and_exceptions() {
    for (count, way) in [(1, WAYS[0]), (3, WAYS[0]), (3, WAYS[1])] {
        case("objects", count, way);
    }
}

#[test]
fn placed__values_of_all_kinds_arrive_as_they_were() {
    for (count, way) in [(1, WAYS[0]), (2, WAYS[0]), (2, WAYS[1])] {
        case_of("placed.py", "values", count, way);
    }
}

#[test]
fn placed__failures_of_posts_and_of_arguments_are_told() {
    for (count, way) in [(1, WAYS[0]), (3, WAYS[0]), (2, WAYS[1])] {
        case_of("placed.py", "failures", count, way);
    }
}

#[test]
fn placed__operations_are_consistent_with_those_of_replicated_objects() {
    for (count, way) in [(1, WAYS[0]), (3, WAYS[0]), (2, WAYS[1])] {
        case_of("placed.py", "order", count, way);
    }
}

#[test]
fn placed__threads_call_at_once_and_lose_no_call() {
    WAYS.iter().for_each(|way| case_of("placed.py", "threads", 2, way));
}

#[test]
fn placed__an_interrupt_waits_for_the_end_of_an_operation() {
    WAYS.iter().for_each(|way| case_of("placed.py", "interrupts", 2, way));
}

#[test]
fn placed__calls_of_a_rank_that_has_left_end() {
    WAYS.iter().for_each(|way| case_of("placed.py", "leaves", 2, way));
}

#[test]
fn faulty__each_call_is_answered_whatever_its_method_raises() {
    case_of("faulty.py", "answers", 2, WAYS[0]);
}

#[test]
fn faulty__operations_of_base_classes_are_there_or_replaced() {
    case_of("faulty.py", "bases", 2, WAYS[0]);
}

#[test]
fn faulty__an_interrupt_of_another_thread_waits_for_the_end_of_an_operation() {
    case_of("faulty.py", "interrupts", 2, WAYS[0]);
}

#[test]
fn faulty__handlers_of_all_signals_wait_for_the_end_of_an_operation() {
    case_of("faulty.py", "handlers", 2, WAYS[0]);
}

#[test]
fn faulty__copies_of_the_process_end_also_while_an_operation_is_executed() {
    case_of("faulty.py", "copies", 2, WAYS[0]);
}

#[test]
fn faulty__ranks_with_other_programs_are_told() {
    case_of("faulty.py", "programs", 2, WAYS[0]);
}

#[test]
fn faulty__an_operation_that_would_wait_is_refused() {
    case_of("faulty.py", "waiting", 2, WAYS[0]);
}

#[test]
fn faulty__a_stack_that_is_too_deep_at_one_rank_is_told() {
    case_of("faulty.py", "deep", 2, WAYS[0]);
}

#[test]
fn faulty__any_element_of_a_set_is_the_same_on_all_ranks() {
    case_of("faulty.py", "sets", 2, WAYS[0]);
}

#[test]
fn faulty__operations_come_behind_the_posts_of_their_rank() {
    WAYS.iter().for_each(|way| case_of("faulty.py", "posts", 2, way));
}

#[test]
fn faulty__a_rank_that_tests_requests_executes_operations_of_others() {
    case_of("faulty.py", "awaits", 2, WAYS[0]);
}

#[test]
fn shared__a_class_inside_a_function_is_refused() {
    case_of("placed.py", "local", 2, WAYS[0]);
}

#[test]
fn adaptive__objects_move_and_lose_no_operation() {
    for (count, way) in [(1, WAYS[0]), (3, WAYS[0]), (3, WAYS[1])] {
        case("adaptive", count, way);
    }
}

#[test]
fn limits__what_is_too_long_and_numbers_out_of_range() {
    case("limits", 2, WAYS[0]);
}

#[test]
fn buffers__with_addresses_are_refused() {
    case("buffers", 1, WAYS[0]);
}

#[test]
fn scalars__of_numpy_are_combined_and_sent() {
    if let Some(python) = python_with_numpy() {
        check(ranks_of(&python, 2, "ranks.py", &["scalars"]), "scalars", 2, WAYS[0]);
    }
}

#[test]
fn marks__of_what_is_no_plain_function_and_attributes_are_refused() {
    case("marks", 2, WAYS[0]);
}

#[test]
fn names__claims_look_ups_events_and_messages() {
    clustered::with_agent(|name| {
        case("names", 3, &[("WEFT_LINK", "udp"), ("WEFT_AGENT", name)]);
    });
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
const SAID: [&str; 7] = [
    "Status(source=0, tag=0, length=8000) 499500.0",
    "0.5",
    "0",
    "1.0",
    "499",
    "withdrawn <weft.names.Owner pump:7",
    "",
];

#[test]
fn guide__each_program_runs_as_it_is_shown() {
    let programs = shown("docs/guide/python.md");
    assert_eq!(programs.len(), SAID.len(), "{programs:#?}");
    let (Some(plain), Some(numpy)) = (python(), python_with_numpy()) else { return };
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

#[test]
fn both__mpi4py_and_weft_in_one_program() {
    let all = mpis();
    let orders = ["weft", "mpi"].map(|first| all.iter().map(move |mpi| (mpi, first)));
    for ((launcher, python), first) in orders.into_iter().flatten() {
        let mut command = Command::new("timeout");
        command.arg("60").arg(launcher).args(["-n", "2"]).arg(python);
        command.arg(sources().join("tests/both.py")).arg(first);
        command.env("PYTHONPATH", package()).env("PYTHONDONTWRITEBYTECODE", "1");
        set_for_mpis(&mut command, launcher);
        let out = command.output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout);
        let all = (0..2).all(|rank| said.contains(&format!("rank {rank} of 2 is right: both")));
        let complaints = String::from_utf8_lossy(&out.stderr);
        let quiet = !["leaving the job", "PMI"].iter().any(|word| complaints.contains(word));
        let right = out.status.success() && all && quiet;
        assert!(right, "{}, {first} left first: {said} {complaints}", launcher.display());
    }
}

#[test]
fn waits__a_guard_that_nobody_makes_true_is_told() {
    let Some(mut command) = ranks(2, "ranks.py", &["waits"]) else { return };
    command.envs([("WEFT_LINK", "shm"), ("WEFT_WARN_AFTER_MS", "200")]);
    let out = command.output().unwrap();
    let said = String::from_utf8_lossy(&[&out.stdout[..], &out.stderr].concat()).into_owned();
    let right = (0..2).all(|rank| said.contains(&format!("rank {rank} of 2 is right")));
    assert!(out.status.success() && right, "{said}");
    assert!(said.contains("rank 0 waits for 0."), "{said}");
    assert!(said.contains("Stack.at_least of 'empty', whose guard may not be true"), "{said}");
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
