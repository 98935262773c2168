//! Links of several processes: this test binary, run again, is a child.

use super::*;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

/// A child process: this test binary, run again as `role`. It prints its address first.
struct Process {
    child: Child,
    address: Address,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Address {
    let bytes: Vec<u8> = (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
        .collect();
    Address::decode(&bytes).unwrap()
}

impl Process {
    fn start(role: &str, peer: &Address) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "shm::tests::processes::child__process",
                "--nocapture",
                "--test-threads=1",
            ])
            .env("WEFT_SHM_TEST_ROLE", role)
            .env("WEFT_SHM_TEST_PEER", hex(&peer.encode()))
            .stdout(Stdio::piped());
        let mut child = crate::testing::start(&mut command).unwrap();
        let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        let line = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|l| l.split_once("ADDRESS ").map(|(_, hex)| hex.to_string()));
        Process { address: unhex(&line.expect("the child printed its address")), child }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The main function of a child; does nothing if the binary was not started as one.
#[test]
fn child__process() {
    let Ok(role) = std::env::var("WEFT_SHM_TEST_ROLE") else { return };
    let parent = unhex(&std::env::var("WEFT_SHM_TEST_PEER").unwrap());
    let mut link = ShmLink::new(config(u64::from(std::process::id()) + 1000)).unwrap();
    println!("ADDRESS {}", hex(&address_of(&link).encode()));
    std::io::stdout().flush().unwrap();
    match role.as_str() {
        "echo" => child_echo(&mut link, &parent),
        "flood" => child_flood(&mut link, &parent),
        "idle" => child_idle(&mut link, &parent),
        "starved" => child_starved(&mut link, &parent),
        "full" => child_full(&mut link, 1),
        "fuller" => child_full(&mut link, 0),
        _ => panic!("role {role}"),
    }
}

/// Echoes packets until the parent is gone.
fn child_echo(link: &mut ShmLink, parent: &Address) {
    link.connect(&info(0, parent)).unwrap();
    let mut log = Log::default();
    loop {
        recv_until(link, &mut log, |log, link| {
            !log.0.is_empty() || link.peers.find(PEER).is_none()
        });
        if log.0.is_empty() {
            return;
        }
        for (_, header, payload) in log.0.drain(..) {
            while link.send(&[frame(&header, &payload)]) == 0 {}
        }
    }
}

/// Sends numbered packets as fast as it can, without end.
fn child_flood(link: &mut ShmLink, parent: &Address) {
    link.connect(&info(0, parent)).unwrap();
    for n in 0_usize.. {
        let header = [&n.to_le_bytes()[..], &[0; 24]].concat();
        let payload = pattern(n, n % 5000);
        while link.send(&[frame(&header, &payload)]) == 0 {
            std::thread::yield_now();
        }
    }
}

/// Connects and then takes no packets, without end.
fn child_idle(link: &mut ShmLink, parent: &Address) {
    link.connect(&info(0, parent)).unwrap();
    loop {
        std::thread::park();
    }
}

/// Uses up all descriptors, prints that, recovers, and echoes packets.
fn child_starved(link: &mut ShmLink, parent: &Address) {
    // Standard input, output and error; a limit of less than one would also forbid to poll.
    let before = sys::misc::limit_files(3);
    let Err(error) = ShmLink::new(config(3)) else { panic!("no descriptor is left") };
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    let error = link.connect(&info(0, parent)).unwrap_err();
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    while link.events.is_empty() {
        wait(link);
        link.finish_wait(true);
    }
    assert!(matches!(events(link)[..], [LinkEvent::Warning(_)]));
    let mut fds = Vec::new();
    link.wait_fds(&mut fds);
    assert!(!sys::misc::wait_readable(fds[0].fd, 0), "waiting would spin");
    sys::misc::limit_files(before);
    link.service();
    child_echo(link, parent);
}

/// Limits descriptors so that `connections` can be accepted, but no descriptor in a message.
fn child_full(link: &mut ShmLink, connections: u64) -> ! {
    sys::misc::limit_files(sys::misc::next_file() + connections);
    loop {
        wait(link);
        link.finish_wait(true);
    }
}

/// Sends one packet and waits for its echo.
fn round_trip(link: &mut ShmLink, n: usize) {
    let (header, payload) = (pattern(n, 32), pattern(n, n * 100));
    assert_eq!(link.send(&[frame(&header, &payload)]), 1);
    let mut log = Log::default();
    recv_until(link, &mut log, |log, link| !log.0.is_empty() || !link.events.is_empty());
    assert_eq!(log.0, [(Some(PEER), header, payload)]);
}

#[test]
fn processes__out_of_descriptors_is_said_and_recovered_from() {
    let mut link = ShmLink::new(config(1)).unwrap();
    let child = Process::start("starved", &address_of(&link));
    link.connect(&info(0, &child.address)).unwrap();
    round_trip(&mut link, 5);
}

#[test]
fn processes__without_a_descriptor_for_the_segment_refuse() {
    refused_by("full");
}

#[test]
fn processes__without_a_descriptor_for_the_connection_refuse() {
    refused_by("fuller");
}

fn refused_by(role: &str) {
    let mut link = ShmLink::new(config(1)).unwrap();
    let child = Process::start(role, &address_of(&link));
    // The child hangs up before or after the segment was passed.
    match link.connect(&info(0, &child.address)) {
        Err(error) => assert!(matches!(error, LinkError::Unreachable(_)), "{error}"),
        Ok(_) => {
            let why = refusal(&mut link);
            assert!(why.contains("no descriptor is left"), "{why}");
        }
    }
}

#[test]
fn processes__death_frees_a_full_sender() {
    let mut link = ShmLink::new(config(1)).unwrap();
    let mut child = Process::start("idle", &address_of(&link));
    link.connect(&info(0, &child.address)).unwrap();
    while link.send(&[frame(&header(0), &[0; 999])]) == 1 {}
    child.child.kill().unwrap();
    // The failure of a direct copy from its memory may be reported first.
    let gone = LinkEvent::PeerGone(PEER);
    recv_until(&mut link, &mut Log::default(), |_, link| link.events.contains(&gone));
    assert!(events(&mut link).contains(&gone));
    assert_eq!(link.send(&[frame(&header(0), &[]); 3]), 3);
    assert_eq!(counter(&link, "shm_dropped"), 3);
}

#[test]
fn processes__exchange_packets() {
    let mut link = ShmLink::new(config(1)).unwrap();
    let child = Process::start("echo", &address_of(&link));
    link.connect(&info(0, &child.address)).unwrap();
    for n in 0..200 {
        round_trip(&mut link, n);
    }
}

#[test]
fn processes__death_is_reported_after_what_was_sent() {
    let mut link = ShmLink::new(config(1)).unwrap();
    let mut child = Process::start("flood", &address_of(&link));
    link.connect(&info(0, &child.address)).unwrap();
    let mut log = Log::default();
    recv_until(&mut link, &mut log, |log, _| log.0.len() > 3000);
    child.child.kill().unwrap();
    child.child.wait().unwrap();
    recv_until(&mut link, &mut log, |_, link| !link.events.is_empty());
    assert_eq!(link.poll_event(), Some(LinkEvent::PeerGone(PEER)));
    for (n, (from, header, payload)) in log.0.iter().enumerate() {
        assert_eq!(*from, Some(PEER));
        assert_eq!(header[..8], n.to_le_bytes());
        assert_eq!(*payload, pattern(n, n % 5000));
    }
    assert_eq!(link.send(&[frame(&[0; 24], b"lost")]), 1);
    assert_eq!(counter(&link, "shm_dropped"), 1);
}

/// The variable that tells a child process of the test below its role.
const ROLE: &str = "WEFT_TEST_UNMAPPED";

/// Accepts connections until one was admitted or two were refused, and prints the result.
fn accept_some() {
    let mut link = ShmLink::new(config(1)).unwrap();
    let address = address_of(&link);
    let hex: String = address.encode().iter().map(|b| format!("{b:02x}")).collect();
    // The test harness may have printed on this line.
    println!("\naddress {hex}");
    while link.peers.is_empty() && counter(&link, "shm_refused") < 2 {
        sys::misc::wait_readable(link.listeners.epoll.as_raw_fd(), 1_000);
        link.service();
    }
    println!("admitted {}", link.peers.len());
}

/// Connects as a link does; if its own side refuses, connects without the check.
fn connect_twice(hex: &str) {
    let bytes =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
    let address = Address::decode(&bytes.collect::<Vec<u8>>()).unwrap();
    let mut link = ShmLink::new(config(2)).unwrap();
    match link.connect(&info(1, &address)) {
        Ok(_) => {
            println!("\nconnected");
            // Wait until the other process has seen the connection and ended.
            while events(&mut link).is_empty() {
                sys::misc::wait_readable(link.listeners.epoll.as_raw_fd(), 1_000);
                link.service();
                link.recv(1, &mut Log::default());
            }
        }
        Err(why) => {
            println!("\nrefused {why}");
            let socket = sys::socket::connect(sys::socket::Name::Key(address.shm)).unwrap();
            let sizes = link.config.sizes();
            let offer = link.hello(Kind::Offer, EndpointId(1), sizes).encode();
            let segment = sys::map::create(sizes.segment_len()).unwrap();
            // The other process may have ended already.
            let _ = sys::socket::send(&socket, &offer, Some(segment.as_fd()));
        }
    }
}

/// Runs this test once more in another process, with the command `words` before it and one of the
/// two roles above; returns its output.
fn child(
    words: &str,
    role: &str,
) -> (std::process::Child, std::io::BufReader<std::process::ChildStdout>) {
    let own = std::env::current_exe().unwrap();
    let mut words = words.split(' ');
    let mut command = std::process::Command::new(words.next().unwrap());
    command.args(words).arg(own).env(ROLE, role).stdout(std::process::Stdio::piped());
    command.args([
        "--exact",
        "shm::tests::processes::connect__the_overflow_user_proves_nothing",
        "--nocapture",
    ]);
    let mut child = crate::testing::start(&mut command).unwrap();
    let out = std::io::BufReader::new(child.stdout.take().unwrap());
    (child, out)
}

/// Finds the next line with this beginning; returns the rest of the line.
fn said(out: &mut impl std::io::BufRead, what: &str) -> String {
    let mut lines = out.lines().map_while(Result::ok);
    let found = lines.find_map(|line| Some(line.strip_prefix(what)?.trim().to_string()));
    found.unwrap_or_else(|| panic!("it did not say {what}"))
}

#[test]
fn connect__the_overflow_user_proves_nothing() {
    match std::env::var(ROLE) {
        Ok(role) if role == "accept" => return accept_some(),
        Ok(address) => return connect_twice(&address),
        Err(_) => {}
    }
    let root = sys::misc::effective_user() == 0;
    let by = |user: u32, how: &str| match root {
        true => format!("setpriv --reuid={user} --regid={user} --clear-groups unshare {how}"),
        false => format!("unshare {how}"),
    };
    // Root runs the programs as two different users; the kernel shows both as the overflow user.
    let unmapped = [by(12_345, "--user"), by(12_346, "--user")];
    let mapped = [by(12_345, "--user --map-current-user"), by(12_345, "--user --map-current-user")];
    if let Err(why) = crate::testing::run(&format!("{} true", unmapped[0])) {
        return crate::testing::skip(&format!("no user namespaces: {why}"));
    }
    for ([first, second], are_admitted) in [(unmapped, false), (mapped, true)] {
        let (mut listener, mut heard) = child(&first, "accept");
        let address = said(&mut heard, "address ");
        let (mut dialer, mut told) = child(&second, &address);
        match are_admitted {
            true => drop(said(&mut told, "connected")),
            false => {
                let why = said(&mut told, "refused ");
                assert!(
                    why.contains("without a number") && why.contains("--map-current-user"),
                    "{why}"
                );
            }
        }
        assert_eq!(said(&mut heard, "admitted "), if are_admitted { "1" } else { "0" });
        assert!(dialer.wait().unwrap().success() && listener.wait().unwrap().success());
    }
}
