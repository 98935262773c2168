//! A rank whose process is stopped: every wait for it ends. When it goes on, after the others have
//! excluded it and ended, it does nothing more in the name of all.

use crate::ranks::{group_of, open, LINKS};
use rustix::process::{getpid, kill_process, waitpid, Pid, Signal, WaitOptions};
use std::cell::Cell;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use weft::launch::wire::{from_hex, to_hex};
use weft::{Address, Config};
use weft_models::jobs::Jobs;
use weft_models::net::{Blocking, Live, Net, RankFailure};
use weft_models::regions::{Region, RegionCause, RegionError, Regions};
use weft_models::rpc::{threads, Cause, Rpc};
use weft_models::together::Together;

/// The bound of waits in tests.
const LIMIT: Duration = Duration::from_secs(120);
/// The address of rank 0, and the number of the run, in the environment of rank 1.
const ROOT: &str = "WEFT_TEST_ROOT";
const RUN: &str = "WEFT_TEST_RUN";

thread_local! {
    /// Runs of this test so far.
    static RUNS: Cell<usize> = const { Cell::new(0) };
}

/// The process of rank 1, and what it prints.
struct Other {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ended_before = self.process.kill();
        self.process.wait().expect("it is a child");
    }
}

impl Other {
    /// Starts this test once more as rank 1 of a run.
    fn start(run: usize, mine: &Address) -> Other {
        let mut command = Command::new(std::env::current_exe().expect("a path"));
        let test = std::thread::current().name().expect("the test's name").to_string();
        command.args(["--exact", &test, "--nocapture"]).stdout(Stdio::piped());
        command.stdin(Stdio::piped());
        command.env(ROOT, to_hex(&mine.encode())).env(RUN, run.to_string());
        let mut process = command.spawn().expect("this test");
        let out = process.stdout.take().expect("a pipe");
        Other { process, lines: BufReader::new(out).lines() }
    }

    /// Returns the rest of the next line that has these words.
    fn line(&mut self, words: &str) -> String {
        let mut lines = self.lines.by_ref().map(|line| line.expect("text"));
        lines.find_map(|line| Some(line.split_once(words)?.1.to_string())).expect("it says so")
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Waits until it has stopped itself.
    fn wait_until_stopped(&self) {
        let ended = waitpid(Some(self.pid()), WaitOptions::UNTRACED).expect("it is a child");
        assert!(ended.is_some_and(|(_, status)| status.stopped()), "{ended:?}");
    }
}

fn config(rank: u32) -> Config {
    let (timeout, keepalive) = (1_000, 50);
    Config {
        rank: Some(rank),
        peer_timeout_ms: timeout,
        keepalive_ms: keepalive,
        ..Config::default()
    }
}

fn address(hex: &str) -> Address {
    Address::decode(&from_hex(hex).expect("hex")).expect("an address")
}

/// Runs two ranks, each a process, over each link: when both have opened, rank 1 stops itself, and
/// rank 0 does its part.
fn stopped<T>(opens: impl Fn(&Live) -> T, part: impl Fn(&Live, &T)) {
    run(opens, part, None, false);
}

/// Does what [`stopped`] does. Rank 0 leaves in good order after its part. Then rank 1 goes on and
/// does its own, which must end with an error.
fn stopped_and_back<T>(
    opens: impl Fn(&Live) -> T,
    part: impl Fn(&Live, &T),
    back: impl Fn(&Live, &T) -> Result<(), String>,
) {
    run(opens, part, Some(&back), false);
}

/// Does what [`stopped_and_back`] does; a thread of rank 1 sleeps on the descriptor all the time.
fn stopped_and_back_beside_a_sleeper<T>(
    opens: impl Fn(&Live) -> T,
    part: impl Fn(&Live, &T),
    back: impl Fn(&Live, &T) -> Result<(), String>,
) {
    run(opens, part, Some(&back), true);
}

/// The part of a rank that goes on.
type Back<'a, T> = &'a dyn Fn(&Live, &T) -> Result<(), String>;

fn run<T>(
    opens: impl Fn(&Live) -> T,
    part: impl Fn(&Live, &T),
    back: Option<Back<'_, T>>,
    sleeps: bool,
) {
    for link in LINKS {
        let run = RUNS.replace(RUNS.get() + 1);
        let wanted = std::env::var(RUN).ok();
        if wanted.as_ref().is_some_and(|wanted| *wanted != run.to_string()) {
            continue;
        }
        let rank = usize::from(wanted.is_some());
        let endpoint = open(link, config(rank as u32));
        let mine = endpoint.address();
        println!("address {}", to_hex(&mine.encode()));
        let mut other = (rank == 0).then(|| Other::start(run, &mine));
        let addresses = match &mut other {
            Some(other) => vec![mine, address(&other.line("address "))],
            None => vec![address(&std::env::var(ROOT).expect("it is set")), mine],
        };
        let world = group_of(endpoint, addresses, rank);
        let net = Live::new(&world).expect("a packet interface");
        let opened = opens(&net);
        world.barrier_blocking().expect("both live");
        let Some(mut other) = other else {
            while sleeps && !world.endpoint().waiting().prepare() {
                world.endpoint().progress();
            }
            kill_process(getpid(), Signal::STOP).expect("this process");
            // This thread may run for a moment before all are stopped: rank 0 says when to go on.
            std::io::stdin().read_line(&mut String::new()).expect("a line");
            match back.map(|back| back(&net, &opened)) {
                Some(Err(why)) => println!("result error: {why}"),
                _ => println!("result fine"),
            }
            return;
        };
        other.wait_until_stopped();
        part(&net, &opened);
        if back.is_some() {
            drop(opened);
            world.endpoint().close(Duration::from_millis(10));
            kill_process(other.pid(), Signal::CONT).expect("it is a child");
            let mut input = other.process.stdin.take().expect("a pipe");
            input.write_all(b"go on\n").expect("it reads");
            let result = other.line("result ");
            assert!(result.starts_with("error: "), "it goes on alone over {link}: {result}");
        }
    }
}

#[test]
fn call__by_a_desk_ends_when_the_rank_is_stopped() {
    stopped(Rpc::open, |_, rpc| {
        let (desk, caller) = threads::open(rpc).expect("a descriptor");
        std::thread::scope(|scope| {
            let waits = scope.spawn(move || {
                let answer = caller.call(1, 1, b"x");
                caller.close();
                answer
            });
            desk.run();
            let error = waits.join().expect("no panic").unwrap_err();
            assert!(matches!(error.cause, Cause::Failed(_)), "{error}");
        });
    });
}

#[test]
fn take__of_a_call_that_is_asked_for_again_and_again_ends_when_the_rank_is_stopped() {
    stopped(Rpc::open, |net, rpc| {
        let (mut call, start) = (rpc.call(1, 1, b"x"), Instant::now());
        let error = loop {
            if let Some(answer) = call.take() {
                break answer.unwrap_err();
            }
            net.wait(Some(Duration::from_millis(10)));
            assert!(start.elapsed() < LIMIT, "the call does not end");
        };
        assert!(matches!(error.cause, Cause::Failed(_)), "{error}");
    });
}

#[test]
fn room__for_casts_to_a_stopped_rank_ends() {
    stopped(Rpc::open, |net, rpc| {
        let start = Instant::now();
        let error = loop {
            match rpc.cast(1, 1, &[7; 5_000]) {
                Ok(()) => {}
                Err(error) if error.cause == Cause::Busy => net.block_on(rpc.room(1)),
                Err(error) => break error,
            }
            assert!(start.elapsed() < LIMIT, "there is always room");
        };
        assert!(matches!(error.cause, Cause::Failed(_)), "{error}");
        net.block_on(rpc.flush());
    });
}

#[test]
fn barrier__and_results_by_multicast_end_when_a_rank_is_stopped() {
    stopped(
        |net| Together::open(net, 0),
        |_, together| is_of_rank_1(together.barrier_blocking().unwrap_err()),
    );
    stopped(
        |net| Together::with_multicast(net, 1),
        |_, together| is_of_rank_1(together.barrier_blocking().unwrap_err()),
    );
}

#[test]
fn run__of_jobs_for_a_stopped_rank_ends() {
    stopped(
        |net| Jobs::<_, u64>::open(net, 0, 64),
        |_, jobs| {
            jobs.push(1, &7);
            let error = jobs.run_blocking(|_, _| {}).unwrap_err();
            assert_eq!(error.rank, 1, "{error}");
        },
    );
}

/// The regions of both ranks, as each has them mapped: first that of rank 0.
type Mapped = (Regions<Live>, Region<Live, u64>, [Region<Live, u64>; 2]);

/// Maps the regions of both ranks. Rank 1 has the only copy of each.
fn mapped(net: &Live) -> Mapped {
    let regions = Regions::open(net);
    let mine = regions.create(vec![0u64; 4]).expect("it is small");
    let names = net.block_on(regions.gather(&[mine.id()])).expect("both live");
    let all = [0, 1].map(|at| net.block_on(regions.map::<u64>(names[at])).expect("both live"));
    if net.rank() == 1 {
        all[0].write_blocking().expect("both live")[0] = 1;
    }
    (regions, mine, all)
}

#[test]
fn write__of_a_region_whose_home_or_holder_is_stopped_ends() {
    stopped(mapped, |_, (_, _, all)| {
        let home = all[1].write_blocking().err().expect("its home is stopped");
        assert!(matches!(home.cause, RegionCause::Home(ref why) if why.rank == 1), "{home}");
        let holder = all[0].write_blocking().err().expect("its holder is stopped");
        assert!(matches!(holder.cause, RegionCause::Holder(ref why) if why.rank == 1), "{holder}");
    });
}

fn is_of_rank_1(failure: RankFailure) {
    assert_eq!(failure.rank, 1, "{failure}");
}

#[test]
fn back__a_rank_that_was_excluded_writes_no_copy_that_its_home_has_given_away() {
    let text = |error: RegionError| error.to_string();
    stopped_and_back(
        mapped,
        |_, (_, _, all)| drop(all[0].write_blocking().err().expect("its holder is stopped")),
        |_, (_, _, all)| all[0].write_blocking().map(drop).map_err(text),
    );
    stopped_and_back(
        mapped,
        |_, (_, _, all)| drop(all[0].write_blocking().err().expect("its holder is stopped")),
        |_, (_, _, all)| all[0].read_blocking().map(drop).map_err(text),
    );
}

#[test]
fn back__a_rank_that_was_excluded_reads_no_old_copy_while_a_thread_sleeps_on_the_descriptor() {
    stopped_and_back_beside_a_sleeper(
        mapped,
        |_, (_, _, all)| drop(all[0].write_blocking().err().expect("its holder is stopped")),
        |_, (_, _, all)| all[0].read_blocking().map(drop).map_err(|error| error.to_string()),
    );
}

#[test]
fn back__a_rank_that_was_excluded_ends_its_runs_of_jobs_with_an_error() {
    stopped_and_back(
        |net| Jobs::<_, u64>::open(net, 0, 64),
        |_, jobs| is_of_rank_1(jobs.run_blocking(|_, _| {}).unwrap_err()),
        |net, jobs| {
            jobs.push(net.rank(), &7);
            jobs.run_blocking(|_, _| {}).map(drop).map_err(|failure| failure.to_string())
        },
    );
}

#[test]
fn back__a_rank_that_was_excluded_is_alone_in_no_operation_of_all_ranks() {
    for open in [Together::open, Together::with_exchange, Together::with_multicast] {
        stopped_and_back(
            |net| open(net, 0),
            |_, together| is_of_rank_1(together.barrier_blocking().unwrap_err()),
            // The others have called the first barrier too, and some may have told this rank.
            |_, together| {
                let both = together.barrier_blocking().and_then(|()| together.barrier_blocking());
                both.map_err(|failure| failure.to_string())
            },
        );
    }
}

#[test]
fn back__calls_of_a_rank_that_was_excluded_end_with_an_error() {
    stopped_and_back(
        |net| {
            let rpc = Rpc::open(net);
            rpc.serve(1, |request, args| request.answer(args));
            rpc
        },
        |_, rpc| drop(rpc.call_blocking(1, 1, b"x").unwrap_err()),
        |_, rpc| rpc.call_blocking(0, 1, b"x").map(drop).map_err(|error| error.to_string()),
    );
}
