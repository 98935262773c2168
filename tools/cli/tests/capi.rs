//! Programs in C over `weft.h`, compiled with the system's compiler and run by `weft run`.
#![allow(non_snake_case)]

mod clustered;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use weft_conformance::skip;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../faces/capi")
}

/// Makes a folder in which the library has the names that an installation gives it.
fn installed(library: &Path) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi-lib");
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["libweft.so", "libweft.so.0"] {
        let link = folder.join(name);
        let _old = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(library, &link).unwrap();
    }
    folder
}

/// Compiles an example, once, because another test may run it at this moment. `None`, with the
/// reason printed, without a compiler.
fn compile(name: &'static str) -> Option<PathBuf> {
    static DONE: Mutex<BTreeMap<&str, PathBuf>> = Mutex::new(BTreeMap::new());
    if Command::new("cc").arg("--version").output().is_err() {
        skip("no C compiler");
        return None;
    }
    // The library as cargo built it for this test.
    let beside = std::env::current_exe().unwrap();
    let built = beside.parent().unwrap().join("libweft_capi.so");
    assert!(built.is_file(), "no library at {}", built.display());
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = installed(&built);
    if let Some(program) = done.get(name) {
        return Some(program.clone());
    }
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("capi-{name}"));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-o"]).arg(&program);
    let of = |folder| sources().join(folder).join(name).with_extension("c");
    cc.arg(Some(of("examples")).filter(|it| it.is_file()).unwrap_or_else(|| of("tests")));
    cc.args(
        ["include", "examples"].map(|folder| format!("-I{}", sources().join(folder).display())),
    );
    cc.arg("-L").arg(&folder);
    // Before LD_LIBRARY_PATH, in which cargo puts a folder first that may hold an older library.
    let here = format!("-Wl,--disable-new-dtags,-rpath,{}", folder.display());
    cc.arg(here).arg("-lweft");
    let out = cc.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    done.insert(name, program.clone());
    Some(program)
}

/// Runs an example with these ranks and settings; returns its output.
fn run(name: &'static str, ranks: u32, settings: &[(&str, &str)]) -> Option<String> {
    run_with(name, &[], ranks, settings)
}

fn run_with(
    name: &'static str,
    arguments: &[&str],
    ranks: u32,
    settings: &[(&str, &str)],
) -> Option<String> {
    let program = compile(name)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.args(["run", "-n", &ranks.to_string()]).arg(program).args(arguments);
    let out = command.envs(settings.iter().copied()).output().unwrap();
    let (text, complaints) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{name} {settings:?}: {text} {complaints}");
    Some(text.into_owned())
}

/// Shared memory, UDP, and UDP with faults under each kind of retransmission.
const WAYS: [&[(&str, &str)]; 4] = [
    &[("WEFT_LINK", "shm")],
    &[("WEFT_LINK", "udp"), ("WEFT_MTU", "1K")],
    &[("WEFT_LINK", "udp"), ("WEFT_FAULTS", "loss=2%,dup=1%,reorder=1%,seed=5")],
    &[
        ("WEFT_LINK", "udp"),
        ("WEFT_FAULTS", "loss=2%,dup=1%,reorder=1%,seed=6"),
        ("WEFT_RELIABILITY", "gbn"),
        ("WEFT_TRANSFER", "gather"),
    ],
];

fn all(name: &'static str, ranks: u32, says: &str) {
    for way in WAYS {
        let Some(text) = run(name, ranks, way) else { return };
        assert!(text.contains(says), "{way:?}: {text:?}");
    }
}

#[test]
fn message__tags_lengths_requests_and_sets() {
    all("message", 3, "3 ranks: all messages came as they were sent");
}

#[test]
fn collective__of_all_ranks_and_of_some_with_and_without_waiting() {
    all("collective", 4, "4 ranks: all results are right");
    all("collective", 1, "1 ranks: all results are right");
}

#[test]
fn differ__each_rank_learns_what_differs() {
    for link in ["shm", "udp"] {
        let settings = [("WEFT_LINK", link), ("WEFT_WARN_AFTER_MS", "200")];
        let Some(told) = run("differ", 3, &settings) else { return };
        for part in [
            "3 ranks: each has learned what differs",
            "an allreduce, sum of 4 i64",
            "an allreduce, sum of 4 f64",
            "rank 0 broadcasts 16 bytes, and this rank expects 32",
            "in a group of other members or in another order",
        ] {
            assert!(told.contains(part), "{link}: no {part:?} in {told}");
        }
    }
}

/// Runs a case of `misuse.c`.
fn misuse(case: &str, settings: &[(&str, &str)]) {
    for link in ["shm", "udp"] {
        let settings = [settings, &[("WEFT_LINK", link)]].concat();
        let Some(said) = run_with("misuse", &[case], 2, &settings) else { return };
        let went_on = |rank| said.contains(&format!("rank {rank} went on after misuse: {case}"));
        assert!((0..2).all(went_on), "{link}: {said}");
    }
}

#[test]
fn handlers__that_call_inside_a_call_get_a_code_and_the_call_goes_on() {
    misuse("handlers", &[]);
}

#[test]
fn export__of_memory_that_vanishes_is_refused_at_the_rank_that_copies() {
    misuse("vanished", &[]);
}

#[test]
fn mailbox__packets_that_wait_do_not_block_another_mailbox() {
    misuse("boxes", &[]);
}

#[test]
fn mailbox__a_full_room_is_an_error_that_counts_what_waits() {
    misuse("full", &[("WEFT_UNEXPECTED_MAX", "1M"), ("WEFT_PEER_TIMEOUT_MS", "1500")]);
}

#[test]
fn child__every_call_says_that_it_is_a_copy() {
    misuse("child", &[]);
}

#[test]
fn upcalls__what_waits_is_refused_and_all_else_works() {
    misuse("upcalls", &[]);
}

#[test]
fn finish__a_job_that_has_ended_is_refused_and_so_are_its_objects() {
    misuse("finished", &[]);
}

#[test]
fn places__that_are_misaligned_are_refused_before_anything_is_done() {
    misuse("places", &[]);
}

#[test]
fn thread__calls_of_another_one_are_refused() {
    misuse("thread", &[]);
}

#[test]
fn huge__lengths_and_counts_that_no_machine_has_are_refused() {
    misuse("huge", &[]);
}

#[test]
fn pingpong__packets_to_and_fro() {
    all("pingpong", 2, "us one way");
}

#[test]
fn mailbox__packets_to_and_fro_without_upcalls() {
    all("mailbox", 2, "us one way");
}

#[test]
fn poll__ranks_sleep_on_the_job_beside_their_own_descriptors() {
    all("poll", 3, "100 rounds, slept");
}

#[test]
fn poll__a_watchdog_waits_itself() {
    let Some(program) = compile("poll") else { return };
    let out = Command::new(program).env("WEFT_RECEIPT", "watchdog").output().unwrap();
    let complaints = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success());
    assert!(complaints.contains("the watchdog waits for this job"), "{complaints}");
}

#[test]
fn gather__memory_comes_back_and_is_used_again() {
    all("gather", 3, "from memory lent");
}

#[test]
fn choose__each_rank_has_what_is_chosen_for_it() {
    all("choose", 3, "200 packets to each of two ranks");
}

/// Runs an example whose ranks are served by an agent with all services.
fn served(name: &'static str, ranks: u32, says: &str) {
    // The agent waits for ranks, but not as long as a compiler may take on a crowded machine.
    if compile(name).is_none() {
        return;
    }
    let agent = format!("@weft-capi-{:016x}", weft_link::random_u64());
    let words = ["--name", &agent, "--links", "udp", "--once"].map(String::from);
    let options = weftd::options::Options::parse(words).unwrap();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut agent = weftd::Agent::open(options).unwrap();
        ready.send(()).unwrap();
        while !agent.is_done() {
            agent.step();
        }
    });
    is_ready.recv().unwrap();
    let settings = [
        ("WEFT_LINK", "agent"),
        ("WEFT_AGENT", agent.as_str()),
        ("WEFT_RELIABILITY", "agent"),
        ("WEFT_MULTICAST", "agent"),
        ("WEFT_FETCH_ADD", "agent"),
    ];
    let text = run(name, ranks, &settings);
    thread.join().unwrap();
    assert!(text.is_none_or(|text| text.contains(says)));
}

#[test]
fn names__ranks_find_each_other_in_groups_too_and_learn_when_one_goes() {
    if compile("names").is_none() {
        return;
    }
    let (name, texts) = clustered::with_agent(|name| {
        let settings = [("WEFT_LINK", "udp"), ("WEFT_AGENT", name)];
        (name.to_string(), ["names", "group"].map(|example| run(example, 3, &settings)))
    });
    let says = ["3 ranks: all were found by their names", "3 members: all heard each other"];
    for (text, says) in texts.into_iter().zip(says) {
        assert!(text.is_some_and(|text| text.contains(says)), "{says}");
    }
    // Without an agent of a cluster the first call says so.
    let program = compile("names").expect("compiled above");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.args(["run", "-n", "1"]).arg(program).env("WEFT_AGENT", &name);
    let out = command.output().unwrap();
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && told.contains("no agent of a cluster serves here"), "{told}");
}

#[test]
fn agent__does_what_is_chosen_for_it() {
    served("pingpong", 2, "us one way");
    served("multicast", 5, "100 packets to 4 ranks, forwarded by agents");
    served("fetch_add", 4, "4 ranks drew 400 tickets");
    served("choose", 3, "200 packets to each of two ranks");
}

#[test]
fn multicast__every_tree_with_packets_kept() {
    all("multicast", 5, "100 packets to 4 ranks, forwarded by ranks");
}

/// Runs an example, started by these words, on four lab hosts that lose packets, with agents that
/// offer all services; returns its output. `None`, with the reason printed, if no lab can be made.
fn in_a_lab(by: &[&str], name: &'static str, fetch_add: &str) -> Option<String> {
    let weft = Path::new(env!("CARGO_BIN_EXE_weft"));
    if !weft.with_file_name("weftd").is_file() {
        skip("weftd is not built beside weft (cargo build -p weftd)");
        return None;
    }
    let program = compile(name)?;
    let mut command = Command::new(weft);
    command.args(["lab", "run", "--up", "4", "--loss", "2%"]);
    // Without shared memory in the list.
    command.args(["--with=--agent", "--with=--env=WEFT_LINK=agent"]).args(by).arg(program);
    command.envs([("WEFT_RELIABILITY", "agent"), ("WEFT_MULTICAST", "agent")]);
    command.env("WEFT_FETCH_ADD", fetch_add);
    let out = command.output().unwrap();
    let said = [&out.stdout[..], &out.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    if !out.status.success() && said.contains("CAP_SYS_ADMIN") {
        skip(&said);
        return None;
    }
    assert!(out.status.success(), "{name}, {fetch_add}: {said}");
    Some(said)
}

/// Checks that all ranks drew tickets, another rank from rank 0's counter in its kernel. Where a
/// host's request for the Ethernet address is lost, agents serve its rank until it is repeated.
fn drew_in_the_kernel(said: &str) {
    let by = |rank| format!("rank {rank} drew 100 of them in a kernel");
    let one = (1..4).any(|rank| said.contains(&by(rank)));
    assert!(one && said.contains("4 ranks drew 400 tickets"), "{said}");
}

#[test]
fn agent__does_what_is_chosen_for_it_between_hosts_that_lose_packets() {
    let Some(said) = in_a_lab(&[], "multicast", "agent") else { return };
    assert!(said.contains("100 packets to 3 ranks, forwarded by agents"), "{said}");
    let Some(said) = in_a_lab(&[], "fetch_add", "agent") else { return };
    assert!(said.contains("4 ranks drew 400 tickets"), "{said}");
    let Some(said) = in_a_lab(&[], "fetch_add", "kernel") else { return };
    drew_in_the_kernel(&said);
}

#[test]
fn kernel__serves_ranks_of_a_user_without_rights() {
    let setpriv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let Some(program) = compile("fetch_add") else { return };
    let mut may = Command::new(setpriv[0]);
    match may.args(&setpriv[1..]).args(["test", "-x"]).arg(program).output() {
        Ok(done) if done.status.success() => {}
        Ok(_) => return skip("another user cannot be taken on, or cannot read the build folder"),
        Err(e) => return skip(&format!("needs setpriv (Debian: util-linux): {e}")),
    }
    let Some(said) = in_a_lab(&setpriv, "fetch_add", "kernel") else { return };
    assert!(said.contains("of user 65534"), "{said}");
    drew_in_the_kernel(&said);
}

#[test]
fn slow__its_parent_names_a_member_that_keeps_what_it_gets() {
    let quick = ("WEFT_WARN_AFTER_MS", "50");
    for link in ["shm", "udp"] {
        let Some(text) = run("slow", 3, &[("WEFT_LINK", link), quick]) else { return };
        assert_eq!(text, "rank 2 is slow\n", "{link}");
    }
}

#[test]
fn fetch_add__tickets_are_different() {
    all("fetch_add", 4, "4 ranks drew 400 tickets");
}

#[test]
fn rcpy__bytes_are_there() {
    all("rcpy", 2, "bytes are there");
    all("rcpy", 2, "34 misses, 98 hits");
}

/// Runs `failed` with an argument, and checks that the error of each of its calls about rank 1 has
/// all parts.
fn names_the_rank(link: &str, argument: &str, parts: &[&str]) {
    let Some(program) = compile("failed") else { return };
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.args(["run", "-n", "3", "--link", link]).arg(program).arg(argument);
    // Longer than a rank of a busy machine waits for its core.
    command.envs([("WEFT_PEER_TIMEOUT_MS", "2000"), ("WEFT_KEEPALIVE_MS", "100")]);
    let out = command.output().unwrap();
    let told = String::from_utf8_lossy(&out.stdout);
    let complaints = String::from_utf8_lossy(&out.stderr);
    let lines: Vec<_> = told.lines().collect();
    let calls = [
        "receive",
        "send",
        "send_from",
        "multicast",
        "fetch_add",
        "barrier",
        "allreduce",
        "igather",
    ];
    assert_eq!(lines.len(), calls.len(), "{told} {complaints}");
    for (call, line) in calls.iter().zip(lines) {
        assert!(line.starts_with(&format!("{call}: a rank failed: ")), "{line}");
        assert!(parts.iter().all(|part| line.contains(part)), "not all of {parts:?}: {line}");
    }
}

#[test]
fn last_error__names_rank_host_link_process_and_what_to_do() {
    let parts = ["rank 1 on this host over shm (process ", "its process ended", "its launcher"];
    names_the_rank("shm", "dies", &parts);
}

#[test]
fn last_error__names_addresses_of_a_rank_that_is_silent() {
    let parts = ["rank 1 on this host over udp (from ", " to ", "nothing heard", "weft doctor"];
    names_the_rank("udp", "stops", &parts);
}

#[test]
fn last_error__names_a_rank_of_this_host_that_is_stopped() {
    let parts = ["rank 1 on this host over shm (process ", "has been stopped for ", "SIGCONT"];
    names_the_rank("shm", "stops", &parts);
}

#[test]
fn expect__ranks_that_wait_for_a_multicast_learn_that_its_root_is_gone() {
    let Some(program) = compile("expect") else { return };
    for (link, how, why) in [("udp", "stops", "nothing heard"), ("shm", "dies", "process ended")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command.args(["run", "-n", "3", "--link", link]).arg(&program).arg(how);
        command.envs([("WEFT_PEER_TIMEOUT_MS", "600"), ("WEFT_KEEPALIVE_MS", "100")]);
        let out = command.output().unwrap();
        let told = String::from_utf8_lossy(&out.stdout);
        let complaints = String::from_utf8_lossy(&out.stderr);
        let line = |rank| {
            let start = format!("rank {rank}: a rank failed: member 0 of the multicast group");
            let line = told.lines().find(|line| line.starts_with(&start));
            line.unwrap_or_else(|| panic!("{link}, rank {rank}: {told} {complaints}"))
        };
        // One rank notices the failure, the other may only be notified.
        let lines = [line(1), line(2)];
        assert!(lines.iter().all(|line| line.contains("rank 0 on this host over ")), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains(why)), "{lines:?}");
    }
}

#[test]
fn last_error__names_the_settings_that_leave_no_link() {
    let Some(program) = compile("pingpong") else { return };
    // Rank 1 fails as well, but does not end: the launcher would end rank 0 before it has printed.
    let apart = "[ $PMI_RANK = 0 ] && WEFT_LINK=shm exec $PROGRAM
                 WEFT_LINK=udp $PROGRAM; exec tail -f /dev/null";
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.args(["run", "-n", "2", "sh", "-c", apart]).env("PROGRAM", program);
    let out = command.output().unwrap();
    let complaints = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success());
    // Printed by the program, beside the log.
    let own = complaints.lines().find(|line| line.contains("a rank failed: rank 1"));
    let line = own.unwrap_or_else(|| panic!("{complaints}"));
    for part in ["rank 0 has WEFT_LINK=shm, rank 1 has udp", "no link between them"] {
        assert!(line.contains(part), "no {part:?}: {complaints}");
    }
}

#[test]
fn init__an_agent_is_chosen_and_there_is_none() {
    complains("WEFT_FETCH_ADD", "agent");
}

#[test]
fn watchdog__serves_the_others_while_a_rank_computes() {
    for link in ["shm", "udp"] {
        let settings = [("WEFT_LINK", link)];
        let Some(told) = run("watchdog", 3, &settings) else { return };
        assert!(told.contains("100 tickets were drawn while rank 0 computed"), "{link}: {told}");
    }
}

/// All functions pass the watchdog's gate, those that wait and upcalls too.
#[test]
fn watchdog__every_other_program_works_as_without() {
    for (name, word) in [
        ("pingpong", "us one way"),
        ("mailbox", "us one way"),
        ("fetch_add", "2 ranks drew 200 tickets"),
        ("multicast", "100 packets to 1 ranks"),
        ("gather", "from memory lent"),
        ("rcpy", "bytes are there"),
        ("collective", "2 ranks: all results are right"),
    ] {
        let ranks = if name == "gather" { 3 } else { 2 };
        let settings = [("WEFT_RECEIPT", "watchdog"), ("WEFT_WATCHDOG_US", "20")];
        let Some(told) = run(name, ranks, &settings) else { return };
        assert!(told.contains(word), "{name}: {told}");
    }
}

/// Checks that an example does not start with a setting, and names that setting.
fn complains(name: &str, value: &str) {
    let Some(program) = compile("pingpong") else { return };
    let out = Command::new(program).env(name, value).output().unwrap();
    let complaints = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success());
    assert!(complaints.contains(&format!("{name}={value}")), "{complaints}");
}
