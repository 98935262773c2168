//! `weft migrate`: ranks of an MPI program go to another host of a lab and back, with real CRIU,
//! while their messages are checked.
#![allow(non_snake_case)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use weft_conformance::skip;

const WEFT: &str = env!("CARGO_BIN_EXE_weft");
/// Limit of every wait; reached only by a fault.
const LIMIT: Duration = Duration::from_secs(120);

/// A ring that checks each word of each message, until a file exists.
const PROGRAM: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
enum { LONG = 60000 };
static long out[LONG], in[LONG];
int main(int argc, char **argv) {
    int rank, size, i, n;
    long round, stop = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (round = 0; stop < size; round++) {
        int len = round % 20 == 7 ? LONG : 3;
        MPI_Request both[2];
        MPI_Status status[2];
        /* The wish to stop goes around once, so that all make the same number of rounds. */
        out[0] = stop > 0 ? stop + 1 : rank == 0 && access(argv[1], F_OK) == 0;
        if (rank != 0 && stop == 0) out[0] = 0;
        for (i = 1; i < len; i++) out[i] = round * 1000 + rank * 100 + i;
        MPI_Irecv(in, LONG, MPI_LONG, before, round % 50, MPI_COMM_WORLD, &both[0]);
        MPI_Isend(out, len, MPI_LONG, next, round % 50, MPI_COMM_WORLD, &both[1]);
        MPI_Waitall(2, both, status);
        MPI_Get_count(&status[0], MPI_LONG, &n);
        if (n != len) MPI_Abort(MPI_COMM_WORLD, 3);
        for (i = 1; i < len; i++)
            if (in[i] != round * 1000 + before * 100 + i) MPI_Abort(MPI_COMM_WORLD, 4);
        long most = out[0] > in[0] ? out[0] : in[0];
        MPI_Allreduce(&most, &stop, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
        stop = stop > 0 ? size : 0;
        if (round == 0) { printf("rank %d runs\n", rank); fflush(stdout); }
    }
    char host[64];
    gethostname(host, sizeof host);
    printf("rank %d is right on %s\n", rank, host);
    MPI_Finalize();
    return 0;
}
"#;

/// The means of a test: a lab of two hosts, and the program.
struct Stage {
    lab: String,
    folder: PathBuf,
    bin: PathBuf,
    criu: PathBuf,
}

impl Drop for Stage {
    fn drop(&mut self) {
        // A failed test must leave nothing behind either.
        let _ = Command::new(WEFT).args(["lab", "--name", &self.lab, "down"]).output();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Stage {
    /// Sets the stage; `None` if something is not here, which is said.
    fn set(name: &str) -> Option<Stage> {
        let named = |variable| std::env::var_os(variable).map(PathBuf::from);
        let Some(criu) = named("WEFT_TEST_CRIU") else {
            skip("WEFT_TEST_CRIU names no CRIU of version 4.2 or later");
            return None;
        };
        let bin = named("WEFT_TEST_MPIS").map(|folder| folder.join("v-mpich/bin"));
        let Some(bin) = bin.filter(|bin| bin.join("mpicc").is_file()) else {
            skip("WEFT_TEST_MPIS names no folder with v-mpich");
            return None;
        };
        let mut doctor = Command::new(WEFT);
        let doctor = doctor.args(["doctor", "--migrate"]).env("WEFT_CRIU", &criu).output();
        let doctor = doctor.unwrap();
        if !doctor.status.success() {
            skip(&text(&doctor.stdout));
            return None;
        }
        if !Path::new(WEFT).with_file_name("libweft_fi.so").is_file() {
            skip("the provider is not built (cargo build -p weft-ofi)");
            return None;
        }
        let lab = format!("{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(format!("weft-{lab}"));
        std::fs::create_dir_all(&folder).unwrap();
        let stage = Stage { lab, folder, bin, criu };
        let made = Command::new(WEFT).args(["lab", "--name", &stage.lab, "up", "2"]).output();
        let made = made.unwrap();
        if !made.status.success() {
            skip(&text(&made.stderr));
            return None;
        }
        stage.build();
        Some(stage)
    }

    fn build(&self) {
        std::fs::write(self.folder.join("ring.c"), PROGRAM).unwrap();
        let mut mpicc = Command::new(self.bin.join("mpicc"));
        mpicc.current_dir(&self.folder).args(["-O1", "-o", "ring", "ring.c"]);
        let built = mpicc.output().unwrap();
        assert!(built.status.success(), "{}", text(&built.stderr));
        // A CRIU that does not restore while a file is there.
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = restore ] && [ -e {0}/refuse ] && exit 1\nexec {1} \"$@\"\n",
            self.folder.display(),
            self.criu.display()
        );
        let criu = self.folder.join("criu");
        std::fs::write(&criu, script).unwrap();
        std::fs::set_permissions(&criu, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn weft(&self, words: &[&str]) -> Command {
        let mut command = Command::new(WEFT);
        command.args(words).env("XDG_RUNTIME_DIR", &self.folder);
        command.env("WEFT_CRIU", self.folder.join("criu"));
        command.env("WEFT_PROVIDER", Path::new(WEFT).with_file_name("libweft_fi.so"));
        command
    }

    /// Starts the ring on both hosts, and waits until all of its ranks run.
    fn start(&self) -> Job<'_> {
        self.start_by(&format!("{WEFT} lab exec --name {}", self.lab))
    }

    /// Makes a launch agent with which the second host has files in memory of its own.
    fn agent_apart(&self) -> String {
        let script = format!(
            "#!/bin/sh\nhost=$1; shift\n[ $host = h2 ] && set -- unshare -m sh -c \
             'mount -t tmpfs none /dev/shm && exec \"$@\"' sh \"$@\"\n\
             exec {WEFT} lab exec --name {} $host \"$@\"\n",
            self.lab
        );
        let path = self.folder.join("agent");
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }

    fn start_by(&self, agent: &str) -> Job<'_> {
        let mut command = self.weft(&["mpi", "--migratable", "--mpi"]);
        command.arg(self.bin.join("mpiexec"));
        command.args(["--hosts", "h1,h2", "-n", "3", "--launch-agent", agent]);
        command.arg(self.folder.join("ring")).arg(self.folder.join("stop"));
        let log = std::fs::File::create(self.folder.join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let job = Job { stage: self, child: command.spawn().unwrap() };
        job.wait_for("runs", 3);
        job
    }

    fn migrate(&self, words: &[&str]) -> Output {
        self.weft(&[&["migrate"], words].concat()).output().unwrap()
    }
}

struct Job<'a> {
    stage: &'a Stage,
    child: Child,
}

impl Job<'_> {
    fn log(&self) -> String {
        std::fs::read_to_string(self.stage.folder.join("log")).unwrap()
    }

    /// Waits until so many lines of output have a word.
    fn wait_for(&self, word: &str, lines: usize) {
        let end = Instant::now() + LIMIT;
        while self.log().lines().filter(|line| line.contains(word)).count() < lines {
            assert!(Instant::now() < end, "no {word}: {}", self.log());
            // tidy-allow(sleep): the job's output is a file, for which nothing waits.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the files in this host's memory that the ranks have mapped.
    fn files(&self) -> Vec<PathBuf> {
        let program = self.stage.folder.join("ring");
        let all = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let ranks = all.filter(|p| std::fs::read_link(p.join("exe")).is_ok_and(|e| e == program));
        let maps = ranks.filter_map(|path| std::fs::read_to_string(path.join("maps")).ok());
        let files: Vec<PathBuf> = maps
            .flat_map(|maps| {
                let of = |line: &str| Some(PathBuf::from(&line[line.find("/dev/shm/mpich_")?..]));
                maps.lines().filter_map(of).collect::<Vec<_>>()
            })
            .collect();
        files
    }

    /// Ends the ring; all ranks must have been right.
    fn finish(mut self) -> String {
        std::fs::write(self.stage.folder.join("stop"), b"").unwrap();
        self.wait_for("is right on", 3);
        let status = self.child.wait().unwrap();
        let log = self.log();
        assert!(status.success(), "{log}");
        log
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn mpich__ranks_move_there_and_back_and_each_message_is_right() {
    let Some(stage) = Stage::set("mv") else { return };
    let job = stage.start();
    for (rank, host) in [("0", "h2"), ("2", "h1"), ("0", "h1"), ("1", "h2"), ("2", "h2")] {
        let moved = stage.migrate(&[rank, host]);
        assert!(moved.status.success(), "{}{}", text(&moved.stderr), job.log());
        let line = text(&moved.stdout);
        assert!(line.contains(&format!("rank {rank} moved from")) && line.contains(host), "{line}");
    }
    let again = stage.migrate(&["1", "h2"]);
    assert!(text(&again.stderr).contains("runs there already"), "{}", text(&again.stderr));
    assert_eq!(again.status.code(), Some(3));
    let log = job.finish();
    for (rank, host) in [(0, "h1"), (1, "h2"), (2, "h2")] {
        let line = format!("rank {rank} is right on {host}");
        assert!(log.contains(&line), "{log}");
    }
}

#[test]
fn mpich__a_rank_that_cannot_be_restored_goes_on_where_it_was() {
    let Some(stage) = Stage::set("mvr") else { return };
    let job = stage.start();
    let could = stage.migrate(&["0", "h2", "--dry-run"]);
    assert!(text(&could.stdout).contains("could move"), "{}", text(&could.stderr));
    std::fs::write(stage.folder.join("refuse"), b"").unwrap();
    for _ in 0..2 {
        let stayed = stage.migrate(&["0", "h2"]);
        let why = text(&stayed.stderr);
        assert!(why.contains("CRIU cannot restore") && why.contains("goes on where"), "{why}");
        assert_eq!(stayed.status.code(), Some(3));
    }
    std::fs::remove_file(stage.folder.join("refuse")).unwrap();
    let moved = stage.migrate(&["0", "h2", "--json"]);
    assert!(moved.status.success(), "{}", text(&moved.stderr));
    assert!(text(&moved.stdout).contains("\"stopped_ms\""), "{}", text(&moved.stdout));
    let log = job.finish();
    assert!(log.contains("rank 0 is right on h2"), "{log}");
}

#[test]
fn mpich__no_file_in_memory_stays_on_a_host_that_a_rank_left() {
    let Some(stage) = Stage::set("mvf") else { return };
    let job = stage.start_by(&stage.agent_apart());
    let files = job.files();
    assert!(files.iter().any(|file| file.exists()), "{files:?}");
    for (rank, host) in [("0", "h2"), ("2", "h1"), ("1", "h2")] {
        let moved = stage.migrate(&[rank, host]);
        assert!(moved.status.success(), "{}{}", text(&moved.stderr), job.log());
    }
    job.finish();
    let left: Vec<_> = files.iter().filter(|file| file.exists()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn mpich__no_file_in_memory_stays_after_an_interrupt() {
    let Some(stage) = Stage::set("mvi") else { return };
    let mut job = stage.start();
    let moved = stage.migrate(&["0", "h2"]);
    assert!(moved.status.success(), "{}{}", text(&moved.stderr), job.log());
    let files = job.files();
    let launcher = job.child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &launcher]).status().unwrap().success());
    job.child.wait().unwrap();
    let left: Vec<_> = files.iter().filter(|file| file.exists()).collect();
    assert!(!files.is_empty() && left.is_empty(), "{files:?} {left:?}");
}

#[test]
fn weft_run__a_program_without_the_provider_is_not_moved() {
    let Some(stage) = Stage::set("mvn") else { return };
    let agent = format!("{WEFT} lab exec --name {}", stage.lab);
    let mut command = stage.weft(&["run", "--migratable", "--hosts", "h1,h2", "-n", "1"]);
    command.args(["--launch-agent", &agent, "sh", "-c", "echo rank runs; exec sleep 1000"]);
    let log = std::fs::File::create(stage.folder.join("log")).unwrap();
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    let job = Job { stage: &stage, child: command.spawn().unwrap() };
    job.wait_for("runs", 1);
    for words in [&["0", "h2", "--dry-run"][..], &["0", "h2"]] {
        let stayed = stage.migrate(words);
        let why = text(&stayed.stderr);
        assert!(why.contains("rank 0 has not opened weft's provider"), "{why}");
        assert_eq!(stayed.status.code(), Some(3));
    }
}
