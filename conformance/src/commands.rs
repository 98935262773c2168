//! Commands of this repository, called as by users and scripts.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A subcommand that tests call.
#[derive(Clone, Copy, Debug)]
pub struct Called {
    /// The program.
    pub program: &'static str,
    /// Its first word.
    pub first: &'static str,
    /// Variables of the environment that it does not inherit from the test.
    pub without: &'static [&'static str],
}

impl Called {
    /// Runs the command to its end.
    ///
    /// # Panics
    /// The command does not start.
    pub fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(self.program);
        self.without.iter().for_each(|name| {
            command.env_remove(name);
        });
        command.arg(self.first).args(words).output().expect("the command starts")
    }

    /// Returns the output of a command that succeeds.
    ///
    /// # Panics
    /// The command fails.
    pub fn text(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {words:?}: {why}", self.first);
        String::from_utf8(output.stdout).expect("text")
    }

    /// Returns the objects that a command prints with `--json`, one a line.
    ///
    /// # Panics
    /// The command fails, or prints something else.
    pub fn lines(&self, words: &[&str]) -> Vec<Value> {
        let words = [words, &["--json"]].concat();
        let parse =
            |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        self.text(&words).lines().map(parse).collect()
    }

    /// Returns the standard error of a command that is refused.
    ///
    /// # Panics
    /// The command is accepted.
    pub fn refused(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(!output.status.success(), "{words:?} was accepted");
        String::from_utf8(output.stderr).expect("text")
    }

    /// Returns the standard error of a command that is refused as a wrong command line.
    ///
    /// # Panics
    /// The command ends in another way.
    pub fn misused(&self, words: &[&str]) -> String {
        let done = self.run(words);
        let err = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{words:?}: {err}");
        assert!(done.stdout.is_empty(), "{words:?}");
        err
    }

    /// Checks values of the results of an application, each named by its JSON pointer.
    ///
    /// # Panics
    /// One is another.
    pub fn assert_results(&self, words: &str, expected: &[(&str, &str)]) {
        let report = self.lines(&words.split(' ').collect::<Vec<_>>());
        for (name, value) in expected {
            let found = report[0]["result"].pointer(name).map(Value::to_string);
            assert_eq!(found.as_deref(), Some(*value), "{words}: {name} in {report:?}");
        }
    }

    /// Checks that an input above the memory is refused, in one line with need and limit.
    ///
    /// # Panics
    /// The command is accepted, or the line says something else.
    pub fn assert_too_large(&self, words: &[&str]) {
        let err = self.misused(words);
        let says = err.contains(" takes ") && err.contains(" above the limit of ");
        assert!(says && err.lines().count() == 1, "{words:?}: {err}");
    }

    /// Checks that applications draw pictures with these words: name, options, words.
    ///
    /// # Panics
    /// One fails, or its picture is another.
    pub fn assert_pictures(&self, out: &Folder, all: &[(&str, &[&str], [&str; 2])]) {
        for (name, args, words) in all {
            self.text(&[&[*name, "--out", out.path()], *args].concat());
            let svg = std::fs::read_to_string(out.file(&format!("{name}.svg"))).expect("a picture");
            assert!(words.iter().all(|word| svg.contains(word)), "{name}: {svg}");
        }
    }

    /// Checks that input which is a folder or is not there is named, for applications with the
    /// option of their input, and so is a place of results that is a file or below one. `runs` are
    /// the words of a run that would do.
    ///
    /// # Panics
    /// A command is accepted, or the error has other words.
    pub fn assert_bad_files(&self, inputs: &[[&str; 2]], runs: &[&str], file: &Path) {
        let dir = file.parent().and_then(Path::to_str).expect("a plain path");
        for &[app, option] in inputs {
            let err = self.misused(&[app, option, dir]);
            assert_eq!(err, format!("weft: the input {dir} is a directory: name a file\n"));
            let err = self.misused(&[app, option, "/nonexistent"]);
            assert!(err.contains("cannot be opened: No such"), "{err}");
        }
        let file = file.display();
        let err = self.misused(&[runs, &["--out", &file.to_string()]].concat());
        let expected = "this is a file, and results need a directory";
        assert_eq!(err, format!("weft: --out {file}: {expected}\n"));
        let err = self.misused(&[runs, &["--out", &format!("{file}/below")]].concat());
        let expected = format!("weft: --out {file}/below: the directory cannot be made: ");
        assert!(err.starts_with(&expected), "{err}");
    }

    /// Checks that a wrong command line is refused with these words, and that no job is aborted.
    ///
    /// # Panics
    /// The command is accepted, or the error has other words.
    pub fn assert_misused(&self, words: &str, expected: &str) {
        let err = self.misused(&words.split(' ').collect::<Vec<_>>());
        assert!(err.contains(expected) && !err.contains("aborts the job"), "{words}: {err}");
    }
}

/// A folder of a test, removed when this value is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes a folder below another one, which is cargo's for files of tests.
    ///
    /// # Panics
    /// The folder cannot be made.
    pub fn new(below: &str, name: &str) -> Folder {
        let path = Path::new(below).join(format!("{name}-{}", std::process::id()));
        let _of_a_process_before = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a new folder");
        Folder(path)
    }

    /// Returns its path.
    ///
    /// # Panics
    /// The path is not text.
    pub fn path(&self) -> &str {
        self.0.to_str().expect("a plain path")
    }

    /// Returns the path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

/// A file of a test, removed when this value is dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Names a file in a folder, which is cargo's for files of tests.
    pub fn new(folder: &str, name: &str) -> Scratch {
        Scratch(Path::new(folder).join(name))
    }

    /// Returns its path.
    ///
    /// # Panics
    /// The path is not text.
    pub fn path(&self) -> &str {
        self.0.to_str().expect("a plain path")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.0);
    }
}
