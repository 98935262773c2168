//! Programs that the library cannot be put before, started by programs that have it.

use crate::harness::{library, Served};
use std::path::{Path, PathBuf};
use std::process::Command;
use weft_conformance::skip;

/// Builds a program with a compiler, which a machine may not have.
fn build(compiler: &str, more: &[&str], name: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (folder.join(format!("{name}.c")), folder.join(name));
    let text = "#include <stdio.h>\n#include <stdlib.h>\nint main() {\n\
                char *is = getenv(\"LD_PRELOAD\"); puts(is ? is : \"ran\"); return 0; }\n";
    std::fs::write(&source, text).unwrap();
    let built = Command::new(compiler).args(more).arg("-o").args([&program, &source]).output();
    match built {
        Ok(output) if output.status.success() => Some(program),
        _ => {
            skip(&format!("{compiler} {more:?} builds nothing here"));
            None
        }
    }
}

/// Starts the program from others, in each way, and looks at its words.
fn starts(program: &Path, says: impl Fn(&str) -> String) {
    let agent = Served::start();
    let (path, name) = (program.to_str().unwrap(), program.file_name().unwrap().to_str().unwrap());
    let folder = program.parent().unwrap().to_str().unwrap();
    let script = program.with_extension("sh");
    std::fs::write(&script, format!("#!{path}\n")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).unwrap();
    // Neither a folder of this name is a program, nor a file that nobody may run.
    let (first, second) = (program.with_extension("first"), program.with_extension("second"));
    std::fs::create_dir_all(first.join(name)).unwrap();
    std::fs::create_dir_all(&second).unwrap();
    std::fs::write(second.join(name), "no program").unwrap();
    let folders_before = format!("{}:{}", first.display(), second.display());
    let python = |call: &str| format!("import os, subprocess\n{call}");
    let at = |folder: &str, path: &str, flags: u32| {
        let begin = "import ctypes\nc = ctypes.CDLL(None)\nn = ctypes.c_long\n\
                     words = lambda all: (ctypes.c_char_p * (len(all) + 1))(*all, None)\n\
                     env = words([k + b'=' + v for k, v in os.environb.items()])\n";
        let call = format!("n(os.open('{folder}', 0)), b'{path}', words([b'x']), env, n({flags})");
        let number = libc::SYS_execveat;
        [format!("c.execveat({call})"), format!("c.syscall(n({number}), {call})")]
            .map(|call| ("python3", vec!["-c".to_string(), python(&format!("{begin}{call}"))]))
    };
    let mut ways = vec![
        ("sh", vec!["-c".to_string(), path.to_string()]),
        ("sh", vec!["-c".to_string(), format!("exec {}", script.display())]),
        ("env", vec![path.to_string()]),
        ("env", vec![name.to_string()]),
        ("python3", vec!["-c".into(), python(&format!("subprocess.run(['{name}'], check=True)"))]),
        ("python3", vec!["-c".into(), python(&format!("os.execv('{path}', ['{path}'])"))]),
        ("python3", vec!["-c".into(), python(&format!("os.execlp('{name}', '{name}')"))]),
        (
            "python3",
            vec![
                "-c".into(),
                python(&format!("os.wait4(os.posix_spawn('{path}', ['x'], os.environ), 0)")),
            ],
        ),
    ];
    ways.extend(listed(path, name).map(|call| ("python3", vec!["-c".into(), python(&call)])));
    ways.extend(at(folder, name, 0));
    ways.extend(at(folder, path, libc::AT_EMPTY_PATH as u32));
    ways.extend(at(path, "", libc::AT_EMPTY_PATH as u32));
    let folders = std::env::var("PATH").unwrap_or_default();
    for other in ["", ":/nothing/other.so"] {
        let preload = format!("{}{other}", library().display());
        for (starter, args) in &ways {
            let mut command = Command::new(starter);
            command.args(args).env("PATH", format!("{folders_before}:{folder}:{folders}"));
            command.env("LD_PRELOAD", &preload).env("WEFT_AGENT", &agent.name);
            let Ok(output) = command.output() else {
                skip(&format!("{starter} is not installed"));
                continue;
            };
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let wrong = String::from_utf8_lossy(&output.stderr);
            assert_eq!(said.trim(), says(other), "{starter} {args:?}: {wrong}");
        }
    }
}

/// Calls of the functions that take their words one by one.
fn listed(path: &str, name: &str) -> [String; 4] {
    let begin = "import ctypes\nc = ctypes.CDLL(None)\n\
                 words = [k + b'=' + v for k, v in os.environb.items()] + [None]\n\
                 env = (ctypes.c_char_p * len(words))(*words)\n";
    let many = "b'x', b'1', b'2', b'3', b'4', b'5', b'6', None";
    [
        format!("c.execl(b'{path}', {many})"),
        format!("c.execlp(b'{name}', b'x', None)"),
        format!("c.execle(b'{path}', b'x', None, env)"),
        format!("c.execle(b'{path}', {many}, env)"),
    ]
    .map(|call| format!("{begin}{call}"))
}

#[test]
fn exec__programs_with_the_address_sanitizer_start_without_the_library() {
    if let Some(program) = build("cc", &["-fsanitize=address"], "target-address") {
        starts(&program, |other| match other {
            "" => "ran".into(),
            other => format!("{}:", &other[1..]),
        });
    }
}

#[test]
fn exec__programs_of_musl_start_without_the_library() {
    // Its loader takes no library that is not there.
    if let Some(program) = build("musl-gcc", &[], "target-musl") {
        starts_alone(&program);
    }
}

/// Checks that a program starts without the library where `LD_PRELOAD` names no other one.
fn starts_alone(program: &Path) {
    let (agent, path) = (Served::start(), program.to_str().unwrap());
    let mut command = Command::new("sh");
    command.args(["-c", path]).env("LD_PRELOAD", library()).env("WEFT_AGENT", &agent.name);
    let output = command.output().unwrap();
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "ran", "{wrong}");
}

#[test]
fn exec__other_programs_keep_the_library() {
    if let Some(program) = build("cc", &[], "target-plain") {
        starts(&program, |other| format!("{}{other}", library().display()));
    }
}

/// Programs that a child with a small stack becomes, with the library and without it.
pub fn small() -> Vec<String> {
    let built = [build("cc", &[], "target-small"), build("musl-gcc", &[], "target-small-musl")];
    let built = built.into_iter().flatten().map(|program| program.to_str().unwrap().to_string());
    built.chain(["true".to_string()]).collect()
}
