//! The provider under libfabric itself: C programs that use it as MPI libraries do.
//!
//! `tests/c/provider.c` has a case for most tests here, `tests/c/registration.c` versions of the
//! interface, `tests/c/signals.c` handlers of signals, `tests/c/collective.c` groups of processes;
//! they are compiled with gcc against the installed libfabric, which loads the provider just built.
#![allow(non_snake_case)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use weft_conformance::skip;

/// The folder of this test: the programs, and the provider under a name that libfabric takes.
struct Built {
    dir: PathBuf,
}

fn build() -> Result<Built, String> {
    let gcc = |args: &[&str]| Command::new("gcc").args(args).output();
    if gcc(&["--version"]).is_err() {
        return Err("no gcc".to_owned());
    }
    if !Path::new("/usr/include/rdma/fi_tagged.h").exists() {
        return Err("libfabric's headers are not installed".to_owned());
    }
    let here = std::env::current_exe().unwrap();
    let provider = here.with_file_name("libweft_fi.so");
    assert!(provider.exists(), "no provider beside {}", here.display());
    let dir = here.with_file_name("ofi-provider-test");
    std::fs::create_dir_all(&dir).unwrap();
    let link = dir.join("libweft-fi.so");
    let _absent = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(&provider, &link).unwrap();
    for name in ["provider", "registration", "signals", "collective", "peers"] {
        let source = format!("{}/tests/c/{name}.c", env!("CARGO_MANIFEST_DIR"));
        let program = dir.join(name);
        let args = ["-Wall", "-Wextra", "-Werror", "-g", "-o", program.to_str().unwrap(), &source];
        let out = gcc(&[&args[..], &["-lfabric", "-ldl", "-lpthread"]].concat()).unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    Ok(Built { dir })
}

/// Returns the programs, built once.
fn built() -> &'static Result<Built, String> {
    static BUILT: OnceLock<Result<Built, String>> = OnceLock::new();
    BUILT.get_or_init(build)
}

/// Runs one case of the program.
fn case(name: &str) {
    case_of("provider", name);
}

/// Runs one case of a program.
fn case_of(program: &str, name: &str) {
    let built = match built() {
        Ok(built) => built,
        Err(why) => return skip(why),
    };
    let out = Command::new(built.dir.join(program))
        .arg(name)
        .env("FI_PROVIDER_PATH", &built.dir)
        .env("FI_PROVIDER", "weft")
        .output()
        .unwrap();
    assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Returns the output of a case under limits of a shell, and true if it ended well.
fn limited(limits: &str, name: &str) -> Option<(bool, String)> {
    let built = match built() {
        Ok(built) => built,
        Err(why) => {
            skip(why);
            return None;
        }
    };
    let out = Command::new("sh")
        .args(["-c", &format!("{limits}; exec \"$0\" {name}")])
        .arg(built.dir.join("provider"))
        .env("FI_PROVIDER_PATH", &built.dir)
        .env("FI_PROVIDER", "weft")
        .output()
        .unwrap();
    assert!(out.status.code().is_some(), "{limits}: ended by a signal: {:?}", out.status);
    Some((out.status.success(), String::from_utf8_lossy(&out.stderr).into_owned()))
}

#[test]
fn open__too_few_descriptors_are_an_error_that_says_so() {
    for most in [6, 8, 12] {
        let Some((well, said)) = limited(&format!("ulimit -n {most}"), "waiting") else { return };
        assert!(!well && said.contains("ulimit -n"), "{most}: {said}");
    }
}

#[test]
fn send__no_memory_is_locked() {
    if let Some((well, said)) = limited("ulimit -l 0", "many_in_one_buffer") {
        assert!(well, "{said}");
    }
}

/// A caller that looks at the queue of one endpoint only waits for what another one of its domain
/// does, as OpenSHMEM programs do.
#[test]
fn progress__is_made_on_endpoints_whose_queue_nobody_looks_at() {
    let built = match built() {
        Ok(built) => built,
        Err(why) => return skip(why),
    };
    for link in ["shm", "udp"] {
        let out = Command::new(built.dir.join("provider"))
            .arg("unpolled")
            .env("FI_PROVIDER_PATH", &built.dir)
            .env("FI_PROVIDER", "weft")
            .env("WEFT_KEY", "0123456789abcdef".repeat(4))
            .env("WEFT_LINK", link)
            .output()
            .unwrap();
        assert!(out.status.success(), "{link}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

/// Over a network a completion without a level does not wait for the peer's acknowledgement.
#[test]
fn send__is_complete_as_soon_as_its_level_says() {
    let built = match built() {
        Ok(built) => built,
        Err(why) => return skip(why),
    };
    let out = Command::new(built.dir.join("provider"))
        .arg("levels")
        .env("FI_PROVIDER_PATH", &built.dir)
        .env("FI_PROVIDER", "weft")
        .env("WEFT_KEY", "0123456789abcdef".repeat(4))
        .env("WEFT_LINK", "udp")
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// Peers over a network cost memory, and no descriptors.
#[test]
fn av__many_peers_cost_no_descriptors_and_some_kilobytes_each() {
    let built = match built() {
        Ok(built) => built,
        Err(why) => return skip(why),
    };
    const PEERS: u32 = 200;
    let out = Command::new(built.dir.join("peers"))
        .arg(PEERS.to_string())
        .env("FI_PROVIDER_PATH", &built.dir)
        .env("FI_PROVIDER", "weft")
        .env("WEFT_KEY", "0123456789abcdef".repeat(4))
        .env("WEFT_LINK", "udp")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let number = |name: &str| -> u32 {
        let line = said.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| panic!("{said}"))
    };
    assert_eq!(number("descriptors"), 0);
    assert!(number("memory") < 8 * PEERS, "{said}");
}

/// Callers of each version get an offer that they understand, and registered memory has the keys
/// and addresses that they expect.
#[test]
fn mr__each_version_of_the_interface_has_its_ways() {
    for version in ["1.0", "1.4", "1.5", "1.9", "1.17", "1.20", "newest"] {
        case_of("registration", version);
    }
}

/// A call from a signal handler inside another call is refused silently, and the interrupted call
/// goes on; the watchdog thread does not enter meanwhile.
#[test]
fn lock__a_signal_handler_inside_of_a_call_is_refused() {
    let built = match built() {
        Ok(built) => built,
        Err(why) => return skip(why),
    };
    // Over a network the watchdog thread makes progress too; here at the shortest interval.
    let links = [("WEFT_LINK", "shm"), ("WEFT_LINK", "udp")];
    for (threads, link) in ["one", "many"].iter().flat_map(|t| links.map(|link| (t, link))) {
        let out = Command::new(built.dir.join("signals"))
            .arg(threads)
            .env("FI_PROVIDER_PATH", &built.dir)
            .env("FI_PROVIDER", "weft")
            .env("WEFT_KEY", "0123456789abcdef".repeat(4))
            .envs([link, ("WEFT_WATCHDOG_MS", "1")])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{threads} {link:?}: {said}");
        assert!(said.contains("ended inside of a call"), "{said}");
        let told = said.lines().filter(|line| line.contains("signal handler")).count();
        assert!(told == 1 && !said.contains("panicked"), "{said}");
    }
}

/// Runs a case of collective operations with so many processes; returns what they said.
fn members(case: &str, members: usize, settings: &[(&str, &str)]) -> Option<String> {
    let built = match built() {
        Ok(built) => built,
        Err(why) => {
            skip(why);
            return None;
        }
    };
    let out = Command::new(built.dir.join("collective"))
        .args([case, &members.to_string()])
        .env("FI_PROVIDER_PATH", &built.dir)
        .env("FI_PROVIDER", "weft")
        .env("WEFT_KEY", "0123456789abcdef".repeat(4))
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    let (said, errors) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{case}, {members} members, {settings:?}: {said}{errors}");
    Some(said.into_owned())
}

const LOSSY: [(&str, &str); 2] =
    [("WEFT_LINK", "udp"), ("WEFT_FAULTS", "loss=1%,dup=0.5%,reorder=1%,seed=7")];

#[test]
fn collective__every_operation_by_groups_of_each_size() {
    for size in [1, 2, 3, 5, 8] {
        members("all", size, &[]);
    }
    members("all", 4, &LOSSY[..1]);
    members("all", 3, &LOSSY);
}

#[test]
fn collective__many_at_a_time() {
    members("many", 5, &[]);
    members("many", 3, &LOSSY);
}

#[test]
fn collective__what_no_group_can_do_is_refused() {
    members("refused", 2, &[]);
}

#[test]
fn collective__members_that_disagree_fail_together() {
    for size in [2, 5] {
        let Some(said) = members("differs", size, &[]) else { return };
        assert!(said.contains("other lengths"), "{said}");
        assert_eq!(said.lines().count(), 2 * size, "{said}");
    }
}

#[test]
fn collective__a_member_that_dies_or_stops_ends_the_operation_at_all_others() {
    let short = [("WEFT_PEER_TIMEOUT_MS", "2000")];
    for (case, settings) in [("killed", &[][..]), ("killed", &LOSSY[..1]), ("stopped", &[])] {
        let Some(said) = members(case, 6, &[settings, &short].concat()) else { return };
        assert_eq!(said.matches("survived").count(), 5, "{case} {settings:?}: {said}");
        let named = |line: &&str| {
            line.contains("member 5 of the group") || line.starts_with("member 4: peer")
        };
        assert_eq!(said.lines().filter(named).count(), 5, "{said}");
    }
}

macro_rules! cases {
    ($( $test:ident = $case:literal; )*) => { $(
        #[test]
        fn $test() {
            case($case);
        }
    )* };
}

cases! {
    getinfo__offers_no_more_operations_than_callers_make_room_for = "depth";
    getinfo__each_part_names_capabilities_of_its_kind = "capabilities";
    getinfo__known_callers = "callers";
    close__in_the_wrong_order = "disorder";
    send__a_caller_that_takes_eagain_for_success = "ignored";
    av__numbers_last_until_the_last_removal = "vector";
    av__asynchronous_insertions_report_to_the_event_queue = "vector_events";
    recv__peek_claim_and_discard = "peek";
    recv__a_program_that_only_peeks_says_for_what_it_waits = "peek_waits";
    cancel__completes_once = "cancel";
    recv__a_message_too_long_is_cut_and_the_next_is_not = "truncated";
    recv__one_buffer_for_many_messages = "many_in_one_buffer";
    recv__several_buffers_for_many_messages = "several_buffers";
    recv__a_buffer_for_one_sender_keeps_nothing_from_others = "directed_buffer";
    recv__waits_for_room_for_an_operation = "no_room";
    recv__an_unknown_sender_is_known_once_inserted = "source";
    calls__refuse_lengths_and_counts_that_no_machine_has = "huge_counts";
    cq__waiting_and_its_descriptor = "waiting";
    cq__waiting_where_a_filter_refuses_eventfd = "confined";
    cntr__counts_what_ends = "counters";
    cntr__counts_what_fails_at_once = "counted_failures";
    domain__events_that_never_come_are_refused = "domain_events";
    mr__what_peers_may_use_has_a_key = "keys";
    ep__options_names_and_what_is_in_use = "options";
    recv__the_only_one_ends_in_every_way = "alone";
}
