//! Remote memory and atomic operations through libfabric: `remote.c`, a program of two processes,
//! over each link, and over a network that loses and reorders packets.
#![allow(non_snake_case)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use weft_conformance::skip;

/// Returns the compiled program, or the reason why it cannot be compiled.
fn program() -> &'static Result<PathBuf, String> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/remote.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("remote");
        let includes = Command::new("cc")
            .args(["-E", "-include", "rdma/fi_atomic.h", "-x", "c", "/dev/null"])
            .output()
            .map_err(|_| "there is no C compiler".to_string())?;
        if !includes.status.success() {
            return Err("libfabric's headers are not installed (libfabric-dev)".to_string());
        }
        let built = Command::new("cc")
            .args(["-Wall", "-Wextra", "-Werror", "-O1", "-g", "-o"])
            .args([&program, &source])
            .arg("-lfabric")
            .output()
            .map_err(|e| e.to_string())?;
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Ok(program)
    })
}

/// Returns the folder of the provider: that of this test, or its parent.
fn provider() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let has = |folder: &&Path| folder.join("libweft_fi.so").is_file();
    let found = own.ancestors().skip(1).take(2).find(has).expect("the provider is not built");
    found.to_path_buf()
}

/// Runs a case of the program.
fn run(case: &str, settings: &[(&str, &str)]) {
    let program = match program() {
        Ok(program) => program,
        Err(why) => return skip(why),
    };
    let out = Command::new(program)
        .arg(case)
        .env("FI_PROVIDER_PATH", provider())
        .env("FI_PROVIDER", "weft")
        .env("WEFT_KEY", "0123456789abcdef".repeat(4))
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{case} {settings:?}: {:?}\n{said}{errors}", out.status);
}

const LOSSY: [(&str, &str); 2] =
    [("WEFT_LINK", "udp"), ("WEFT_FAULTS", "loss=1%,dup=0.5%,reorder=1%,seed=7")];

macro_rules! cases {
    ($( $test:ident $case:literal; )*) => { $(
        #[test]
        fn $test() {
            run($case, &[]);
            run($case, &[("WEFT_LINK", "udp")]);
            run($case, &LOSSY);
        }
    )* };
}

cases! {
    write__bytes_are_there_when_it_completes "write";
    write__reaches_every_endpoint_of_a_domain_and_oneself "everywhere";
    writemsg__pieces_here_and_there_are_one_operation "pieces";
    writedata__data_comes_behind_the_bytes "data";
    senddata__eight_bytes_come_with_each_form_of_message "message_data";
    write__what_is_not_allowed_is_an_error_and_nothing_is_done "refused";
    read__ends_when_its_region_is_closed "closed";
    mr__the_same_memory_under_two_keys "twice";
    mr__memory_that_vanished_is_an_error "vanished";
    atomic__each_type_each_form "atomic";
    atomicmsg__pieces_here_and_there_are_one_operation "atomic_pieces";
    order__writes_and_atomic_operations_are_done_as_posted "order";
    fence__what_was_posted_before_is_done "fence";
    close__leaves_time_to_fetch_what_was_announced "left";
    atomic__many_at_a_time_both_ways "many";
}

#[test]
fn counters__of_what_peers_do_to_memory() {
    run("events", &[("EVENTS", "1")]);
    run("events", &[("EVENTS", "1"), LOSSY[0], LOSSY[1]]);
}

#[test]
fn progress__is_made_for_an_absent_caller() {
    let lossy = [("WEFT_LINK", "udp"), ("WEFT_FAULTS", "loss=20%,reorder=5%,seed=7")];
    run("away", &lossy);
    // This run takes no lock.
    run("away", &[lossy[0], lossy[1], ("ONE_THREAD", "1")]);
}

#[test]
fn progress__of_a_rank_that_computes_is_that_of_a_thread_or_none() {
    for threads in [&[][..], &[("ONE_THREAD", "1")]] {
        run("computes", &[&[LOSSY[0], ("SERVED", "1")][..], threads].concat());
        run("computes", &[&[LOSSY[0], ("WEFT_WATCHDOG_MS", "0")][..], threads].concat());
    }
}

/// Progress that a caller asks for is made inside a host too, and whatever the watchdog's setting.
#[test]
fn progress__without_calls_for_those_that_ask() {
    let auto = [("AUTO", "1"), ("SERVED", "1"), ("WEFT_WATCHDOG_MS", "0")];
    for link in [&[][..], &[LOSSY[0]]] {
        run("computes", &[&auto[..], link].concat());
        run("computes", &[&auto[..], link, &[("ONE_THREAD", "1")]].concat());
    }
}

#[test]
fn atomicvalid__agrees_with_query_atomic() {
    run("valid", &[]);
}

#[test]
fn atomic__a_target_that_dies_is_an_error() {
    run("death", &[]);
    run("death", &[("WEFT_LINK", "udp"), ("WEFT_PEER_TIMEOUT_MS", "2000")]);
}

/// Settings without the watchdog: of a link that detects the end of a process, and of one that does
/// not.
const AWAY: [&[(&str, &str)]; 2] = [
    &[("WEFT_WATCHDOG_MS", "0")],
    &[("WEFT_WATCHDOG_MS", "0"), ("WEFT_LINK", "udp"), ("WEFT_PEER_TIMEOUT_MS", "2000")],
];

#[test]
fn atomic__a_rank_that_sleeps_learns_of_a_target_that_dies() {
    AWAY.iter().for_each(|settings| run("asleep", settings));
}

#[test]
fn recv__a_sender_that_dies_ends_what_waits_behind_a_buffer_for_many() {
    AWAY.iter().for_each(|settings| run("behind", settings));
}

#[test]
fn delivery__is_reported_when_the_target_has_looked() {
    run("taken", AWAY[0]);
    run("taken", &[AWAY[0], &LOSSY[..1]].concat());
    run("taken", &[AWAY[0], &LOSSY[..]].concat());
}

#[test]
fn delivery__of_data_with_a_write() {
    run("notified", AWAY[0]);
    run(
        "notified",
        &[AWAY[0], &[LOSSY[0], ("WEFT_FAULTS", "loss=20%,reorder=5%,seed=7")]].concat(),
    );
}

#[test]
fn delivery__what_was_reported_outlives_the_sender_and_errors_name_the_rank() {
    // No thread makes progress for an absent caller. Over a network too a process of this host is
    // seen to have ended, by its sockets.
    let ended = [("FAILURE", "process ended"), ("WEFT_WATCHDOG_MS", "0")];
    for network in [&[][..], &LOSSY[..1], &LOSSY[..]] {
        run("delivered", &[&ended[..], network].concat());
    }
}
