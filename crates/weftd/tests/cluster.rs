//! Agents that are one cluster, as processes: joining, refusals, deaths, partitions, quotas.
#![allow(non_snake_case)]

mod serving;

use serving::serving;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use weft_cluster::client::Event;
use weft_cluster::local::{Host, Say};
use weft_cluster::names::directory::Gone;
use weft_cluster::names::groups::Kind;
use weft_cluster::names::membership::Cause;
use weft_cluster::names::{BindingId, Mode, Notice, Pick};
use weft_cluster::{GroupMember, GroupNotice, GroupOptions, To};
use weft_cluster::{KeyFile, Name, Names, Spec, Watch};
use weft_conformance::{hosts, skip, Started};

/// Limit of every wait; reached only by a fault.
const LIMIT: Duration = Duration::from_secs(120);

/// A folder with the key of a cluster.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let name = format!("weft-cluster-{:016x}", weft_link::random_u64());
        let folder = Folder(std::env::temp_dir().join(name));
        KeyFile::init(&folder.key()).unwrap();
        folder
    }

    fn key(&self) -> PathBuf {
        self.0.join("key")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An agent; killed when this value is dropped.
struct Agent {
    child: Started,
    name: String,
    address: String,
}

impl Agent {
    fn start(key: &Path, words: &str) -> Agent {
        Agent::named("test", key, words)
    }

    fn named(cluster: &str, key: &Path, words: &str) -> Agent {
        Agent::logging(cluster, key, words, Stdio::inherit())
    }

    /// Starts an agent whose log goes to a file.
    fn logged(key: &Path, words: &str, log: &Path) -> Agent {
        let file = std::fs::File::create(log).unwrap();
        Agent::logging("test", key, words, file.into())
    }

    fn logging(cluster: &str, key: &Path, words: &str, log: Stdio) -> Agent {
        let name = format!("@weft-test-{:016x}", weft_link::random_u64());
        Agent::placed(name, cluster, key, words, log)
    }

    fn placed(name: String, cluster: &str, key: &Path, words: &str, log: Stdio) -> Agent {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weftd"));
        command.args(["--links", "udp", "--user=", "--name", &name, "--cluster", cluster]);
        command.arg("--cluster-key").arg(key).args(["--cluster-multicast", "off"]);
        command.args(words.split_whitespace()).stdin(Stdio::null()).stderr(log);
        let (child, _) = serving(&mut command);
        let mut agent = Agent { child, name, address: String::new() };
        agent.address = agent.reports("cluster_address");
        agent
    }

    fn names(&self) -> Names {
        Names::at(&self.name).unwrap()
    }

    fn reports(&self, what: &str) -> String {
        let text = self.names().report().unwrap();
        let value = |l: &str| l.strip_prefix(what)?.strip_prefix(' ').map(str::to_string);
        text.lines().find_map(value).unwrap_or_else(|| panic!("{what} is not in {text}"))
    }

    fn counts(&self, what: &str) -> u64 {
        self.reports(what).parse().unwrap()
    }

    fn hosts(&self) -> Vec<Host> {
        self.names().hosts().unwrap()
    }

    fn ups(&self) -> usize {
        self.hosts().iter().filter(|h| h.is_up).count()
    }

    fn end(mut self, signal: &str) {
        self.child.signal(signal);
        let _ = self.child.wait();
    }
}

/// Starts so many agents, which join the first.
fn cluster(folder: &Folder, n: usize, words: &str) -> Vec<Agent> {
    let mut agents = vec![Agent::start(&folder.key(), &format!("--cluster-port 0 {words}"))];
    for _ in 1..n {
        let join = format!("--cluster-port 0 --join {} {words}", agents[0].address);
        agents.push(Agent::start(&folder.key(), &join));
    }
    until("all are one cluster", || agents.iter().all(|a| a.ups() == n));
    agents
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "it never came: {what}");
        // tidy-allow(sleep): between two looks at other processes.
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn spec(text: &str, port: u16) -> Spec {
    Spec::new(&name(text)).address(([10, 0, 0, 1], port).into())
}

fn next(watch: &mut Watch) -> Notice {
    watch.next(LIMIT).unwrap().expect("an event").notice
}

/// Not a test: the process that others start to claim a name.
#[test]
fn child__claims_and_stays() {
    let Ok(agent) = std::env::var("WEFT_TEST_CLAIM_AT") else { return };
    let mut names = Names::at(&agent).unwrap();
    names.claim(&spec("child:1", 1)).unwrap();
    let _ = names.event(LIMIT);
}

fn claimant(agent: &Agent) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child__claims_and_stays"]).env("WEFT_TEST_CLAIM_AT", &agent.name);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn names__are_found_on_all_hosts_and_end_with_their_owner() {
    let folder = Folder::new();
    let agents = cluster(&folder, 3, "");
    let (mut here, mut there) = (agents[1].names(), agents[2].names());
    let claim = here.claim(&spec("pump:7", 80)).unwrap();
    let found = there.wait(&name("pump:7"), 1, LIMIT).unwrap();
    assert_eq!(found[0].name.address, Some(([10, 0, 0, 1], 80).into()));
    let found = there.resolve(&name("pump:7"), Pick::Turn).unwrap().cloned();
    assert_eq!(found.unwrap().id.host, here.host());
    assert!(there.resolve(&name("pump:8"), Pick::Turn).unwrap().is_none());
    let mut watch = there.watch(&name("pump"), Mode::Each, None).unwrap();
    assert!(matches!(next(&mut watch), Notice::Published(_)));
    assert_eq!(next(&mut watch), Notice::SnapshotEnd);
    here.withdraw(claim).unwrap();
    assert!(matches!(next(&mut watch), Notice::Withdrawn(_, Gone::Withdrawn)));
    let mut watch = there.watch(&name("child"), Mode::Each, None).unwrap();
    assert_eq!(next(&mut watch), Notice::SnapshotEnd);
    let mut child = claimant(&agents[1]);
    assert!(matches!(next(&mut watch), Notice::Published(b) if b.name.owner.process == child.id()));
    child.kill().unwrap();
    let cause = next(&mut watch);
    let is_end = |gone: &Gone| matches!(gone, Gone::Ended | Gone::Killed { signal: 9 });
    assert!(matches!(&cause, Notice::Withdrawn(_, gone) if is_end(gone)), "{cause:?}");
    child.wait().unwrap();
}

/// Not a test: a rank that others start, which sends messages to itself.
#[test]
fn child__is_a_rank() {
    let Ok(rank) = std::env::var("WEFT_TEST_RANK") else { return };
    let links = weft::Links::parse("udp").unwrap();
    let endpoint = weft::job::open_endpoint(weft::Config::default(), links, [3; 32]).unwrap();
    let (job, rank) = ("test-job".to_string(), rank.parse().unwrap());
    endpoint.counters().publish(&weft::counters::RankId { job, rank, size: 2 }).unwrap();
    let me = endpoint.connect(&endpoint.address()).unwrap();
    let end = Instant::now() + 2 * LIMIT;
    while Instant::now() < end {
        endpoint.send_blocking(me, 1, b"x").unwrap();
        endpoint.recv_blocking(Some(me), 1, 0, &mut [0; 1]).unwrap();
        // tidy-allow(sleep): so that it does not take a core.
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn rank(agent: &Agent, number: u32) -> Started {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child__is_a_rank"]).env("WEFT_TEST_RANK", number.to_string());
    command.env("WEFT_AGENT", &agent.name).stdout(Stdio::null());
    Started(command.spawn().unwrap())
}

#[test]
fn ranks__of_all_hosts_are_known_until_they_end_and_to_an_agent_that_starts_again() {
    let folder = Folder::new();
    let mut agents = cluster(&folder, 3, "--tolerance-ms 30000");
    let there = [rank(&agents[1], 0), rank(&agents[2], 1)];
    let ids: Vec<_> = agents.iter().map(|a| a.names().host()).collect();
    let (mut names, mut found) = (agents[0].names(), Vec::new());
    until("both ranks are told, with what they sent", || {
        found = names.ranks().unwrap().ranks;
        found.len() == 2 && found.iter().all(|r| r.snapshot.get("messages_sent") > 3)
    });
    found.sort_by_key(|r| r.snapshot.rank);
    for (at, rank) in found.iter().enumerate() {
        assert_eq!((rank.host, rank.snapshot.pid), (ids[at + 1], there[at].id()));
        assert_eq!(rank.user, weftd::sys::effective_user());
        assert_eq!((rank.snapshot.job.as_str(), rank.snapshot.size), ("test-job", 2));
    }
    // A host that is stopped is named, and the others are told.
    agents[1].child.signal("STOP");
    let told = names.ranks().unwrap();
    assert_eq!((told.silent, told.ranks.len()), (vec![ids[1]], 1));
    agents[1].child.signal("CONT");
    // An agent that starts again gets the pages of ranks that go on.
    let (old, words) = (agents.remove(1), format!("--cluster-port 0 --join {}", agents[0].address));
    let name = old.name.clone();
    old.end("KILL");
    let again = Agent::placed(name, "test", &folder.key(), &words, Stdio::inherit());
    until("its rank is told again", || {
        let told = again.names().ranks().unwrap().ranks;
        told.iter().any(|r| r.host == again.names().host() && r.snapshot.rank == 0)
    });
    drop(there);
    until("none is left", || names.ranks().unwrap().ranks.is_empty());
}

#[test]
fn ranks__that_publish_false_counters_do_so_about_themselves_alone() {
    use rustix::fs::{fcntl_add_seals, memfd_create, MemfdFlags, SealFlags};
    use std::fs::File;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::fs::FileExt;
    use weft_cluster::counters::{LEN, MAGIC};
    let folder = Folder::new();
    let agents = cluster(&folder, 2, "");
    let show = |pages: &[BorrowedFd<'_>]| shown(&agents[1], pages);
    let memory = |seals: SealFlags, words: &[(usize, u64)]| -> File {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("any", flags).unwrap());
        file.set_len(LEN as u64).unwrap();
        words.iter().for_each(|(at, n)| {
            file.write_all_at(&n.to_le_bytes(), 8 * *at as u64).unwrap();
        });
        fcntl_add_seals(&file, seals).unwrap();
        file
    };
    let (sealed, none) = (SealFlags::SHRINK | SealFlags::GROW, SealFlags::empty());
    // A pipe would have its reader wait, and a file in a folder of the user's making as well.
    let (pipe, _writer) = std::io::pipe().unwrap();
    assert!(show(&[]).1.is_err());
    assert!(show(&[pipe.as_fd()]).1.is_err());
    assert!(show(&[memory(none, &[]).as_fd()]).1.is_err());
    assert!(show(&[memory(SealFlags::SHRINK, &[]).as_fd()]).1.is_err());
    // One that says that it is always being changed, and one that is no page.
    let busy = memory(sealed, &[(0, MAGIC), (1, 1), (2, 1)]);
    let none = memory(sealed, &[(0, 7)]);
    // One that says that it is process 1, and has more counters than a page, and one with any text.
    let job = u64::from_le_bytes(*b"root\n\x1b[2");
    let liar = memory(sealed, &[(0, MAGIC), (1, 1), (3, 1), (4, 9), (5, 10), (16, job)]);
    let many = memory(sealed, &[(0, MAGIC), (1, 1), (8, u64::MAX)]);
    let pages = [&busy, &none, &liar, &many].map(|page| show(&[page.as_fd(), pipe.as_fd()]));
    assert!(pages.iter().all(|(_, said)| said.is_ok()));
    let told = agents[0].names().ranks().unwrap();
    assert_eq!((told.ranks.len(), told.silent.len()), (1, 0), "{told:?}");
    let one = &told.ranks[0];
    assert_eq!((one.snapshot.pid, one.user), (std::process::id(), weftd::sys::effective_user()));
    assert_eq!((one.snapshot.job.as_str(), one.snapshot.rank), ("root??[2", 9));
    // The pages of a process are bounded, and those that it gives up leave room.
    let more: Vec<_> = (0..16).map(|_| show(&[busy.as_fd()])).collect();
    assert_eq!(more.iter().filter(|(_, said)| said.is_err()).count(), 4);
    assert_eq!(agents[1].counts("cluster_ranks"), 16);
    drop((pages, more));
    until("all pages are given up", || agents[1].counts("cluster_ranks") == 0);
}

/// Hands an agent descriptors as the page of a rank; returns the connection, and what it said.
fn shown(
    agent: &Agent,
    pages: &[std::os::fd::BorrowedFd<'_>],
) -> (std::os::unix::net::UnixStream, Result<(), String>) {
    use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
    use std::io::Read;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};
    use weft_cluster::local::{said, Frame, Request, VERSION};
    let socket = weft_cluster::socket_name(&agent.name);
    let address = SocketAddr::from_abstract_name(&socket[1..]).unwrap();
    let mut stream = UnixStream::connect_addr(&address).unwrap();
    let bytes = [Request::Hello(VERSION).encode(1), Request::Show.encode(2)].concat();
    let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !pages.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(pages));
    }
    let parts = [std::io::IoSlice::new(&bytes)];
    sendmsg(&stream, &parts, &mut control, SendFlags::empty()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut heard = Vec::new();
    loop {
        let mut part = [0; 4096];
        let len = stream.read(&mut part).unwrap();
        assert!(len > 0, "ended");
        heard.extend(&part[..len]);
        while let Frame::Whole(len, serial, say) = said(&heard) {
            heard.drain(..len);
            match say {
                Say::Done(_) if serial == 2 => return (stream, Ok(())),
                Say::Refused(why) if serial == 2 => return (stream, Err(why)),
                _ => {}
            }
        }
    }
}

#[test]
fn unique__a_second_claimant_is_refused_and_learns_the_owner() {
    let folder = Folder::new();
    let agents = cluster(&folder, 2, "");
    let (mut one, mut other) = (agents[0].names(), agents[1].names());
    let (claim, host) = (one.claim(&spec("boss", 1).unique()).unwrap(), one.host().to_string());
    for names in [&mut one, &mut other] {
        let why = names.claim(&spec("boss", 2).unique()).unwrap_err().to_string();
        assert!(why.contains("has the name"), "{why}");
        assert!(!why.contains(&host), "a host is called by its name: {why}");
    }
    one.withdraw(claim).unwrap();
    until("it is free", || other.claim(&spec("boss", 2).unique()).is_ok());
}

#[test]
fn agents__of_another_key_or_cluster_are_refused_and_named() {
    let (folder, other) = (Folder::new(), Folder::new());
    let agent = Agent::start(&folder.key(), "--cluster-port 0");
    let join = format!("--cluster-port 0 --join {}", agent.address);
    let strangers = [
        (Agent::named("test", &other.key(), &join), "cluster_wrong_key"),
        (Agent::named("toast", &folder.key(), &join), "cluster_other_cluster"),
    ];
    for (stranger, counter) in &strangers {
        until(counter, || agent.reports(counter) != "0");
        assert_eq!((agent.ups(), stranger.ups()), (1, 1));
    }
    assert_eq!(agent.reports("cluster_sessions"), "0");
}

/// Returns how many lines of a log have a text.
fn lines(log: &Path, text: &str) -> usize {
    std::fs::read_to_string(log).unwrap().lines().filter(|line| line.contains(text)).count()
}

#[test]
fn refusals__are_logged_once_for_each_source_and_cause() {
    let (folder, other) = (Folder::new(), Folder::new());
    let log = |name: &str| folder.0.join(name);
    // A copy of the key that is rotated out.
    let old = other.0.join("old");
    std::fs::copy(folder.key(), &old).unwrap();
    let user = weftd::sys::effective_user();
    (0..2).for_each(|_| drop(KeyFile::rotate(&folder.key(), user).unwrap()));
    let agent = Agent::logged(&folder.key(), "--cluster-port 0", &log("agent"));
    let join = format!("--cluster-port 0 --join {}", agent.address);
    let _strangers = [
        Agent::logged(&other.key(), &join, &log("wrong")),
        Agent::logged(&old, &join, &log("old")),
    ];
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    for (counter, text) in [
        ("cluster_wrong_key", "is dropped: the keys differ"),
        ("cluster_old_key", "is dropped: its key was rotated out"),
        ("cluster_other_version", "is dropped: agents of two versions"),
    ] {
        until(counter, || {
            socket.send_to(&[7; 64], &agent.address).unwrap();
            agent.counts(counter) >= 4
        });
        assert_eq!(lines(&log("agent"), text), 1, "{text}");
    }
    let told = "drops what this one sends";
    until("both know", || ["wrong", "old"].iter().all(|name| lines(&log(name), told) > 0));
    assert_eq!((lines(&log("wrong"), told), lines(&log("old"), told)), (1, 1));
}

#[test]
fn tolerance__of_50_ms_reports_a_loss_and_the_others_stay() {
    let folder = Folder::new();
    let mut agents = cluster(&folder, 4, "--tolerance-ms 50");
    let killed = agents[3].address.clone();
    let mut names = agents[0].names();
    let mut watch = names.watch(&name("last"), Mode::Each, None).unwrap();
    assert_eq!(next(&mut watch), Notice::SnapshotEnd);
    let mut last = agents[3].names();
    last.claim(&spec("last:1", 1)).unwrap();
    names.wait(&name("last"), 1, LIMIT).unwrap();
    agents.pop().unwrap().end("KILL");
    let is_lost = |h: &Host| h.address.to_string() == killed && !h.is_up;
    for agent in &agents {
        until("it is lost", || agent.hosts().iter().any(is_lost));
    }
    // A machine that is busy for 50 ms loses others, too; they come back.
    until("the others are there", || agents.iter().all(|a| a.ups() == 3));
    until("its names are gone", || names.resolve_all(&name("last")).unwrap().is_empty());
}

#[test]
fn agent__killed_in_the_middle_of_a_claim_leaves_no_name_and_its_caller_gets_an_error() {
    let folder = Folder::new();
    // One arbiter waits for a tolerance after its cluster has changed, the other one is stopped.
    let mut agents = cluster(&folder, 2, "--tolerance-ms 30000");
    agents[0].child.signal("STOP");
    let mut names = agents[1].names();
    let (ask, asked) = channel();
    let claimant = std::thread::spawn(move || {
        ask.send(()).unwrap();
        names.claim(&spec("boss", 1).unique())
    });
    asked.recv().unwrap();
    agents.pop().unwrap().end("KILL");
    let why = claimant.join().unwrap().unwrap_err().to_string();
    assert!(why.contains("agent"), "{why}");
    agents[0].child.signal("CONT");
    assert!(agents[0].names().resolve_all(&name("boss")).unwrap().is_empty());
}

#[test]
fn programs__that_send_nonsense_or_all_at_once_hold_up_no_other() {
    use std::io::{Read, Write};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};
    use weft_cluster::local::{said, Frame, Request, VERSION};
    let folder = Folder::new();
    let agent = Agent::start(&folder.key(), "--cluster-port 0");
    let socket = weft_cluster::socket_name(&agent.name);
    let address = SocketAddr::from_abstract_name(&socket[1..]).unwrap();
    let connect = || UnixStream::connect_addr(&address).unwrap();
    for n in 0..200u32 {
        let bytes: Vec<u8> = (0..n).map(|at| (at.wrapping_mul(n * 2_654_435) >> 9) as u8).collect();
        // The agent may have ended the connection already.
        let _ = connect().write_all(&bytes);
    }
    // More requests at once than are served in a round, none of which comes alone.
    const REQUESTS: u32 = 500;
    let mut bytes = Request::Hello(VERSION).encode(1);
    (2..=REQUESTS).for_each(|n| bytes.extend(Request::Withdraw(9).encode(n)));
    let mut stream = connect();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(&bytes).unwrap();
    let (mut heard, mut answers) = (Vec::new(), 0);
    while answers < REQUESTS {
        let mut part = [0; 4096];
        let len = stream.read(&mut part).unwrap();
        assert!(len > 0, "ended after {answers} answers");
        heard.extend(&part[..len]);
        while let Frame::Whole(len, serial, _) = said(&heard) {
            answers += 1;
            assert_eq!(serial, answers);
            heard.drain(..len);
        }
    }
    agent.names().claim(&spec("alive", 1)).unwrap();
    drop(stream);
    until("all are gone", || agent.counts("cluster_callers") == 1);
}

#[test]
fn key__is_refused_if_others_may_read_it_and_is_rotated_while_all_go_on() {
    let folder = Folder::new();
    let agents = cluster(&folder, 2, "");
    let keys = KeyFile::rotate(&folder.key(), weftd::sys::effective_user()).unwrap();
    let new = keys.all()[0].public_id();
    let uses = |a: &Agent| a.hosts().iter().filter(|h| h.key == new).count();
    until("the new key is in use", || agents.iter().all(|a| uses(a) == 2));
    assert!(agents.iter().all(|a| a.ups() == 2));
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(folder.key(), open).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weftd"));
    command.args(["--links", "udp", "--name", "@weft-test-open", "--cluster", "c"]);
    let refused = command.arg("--cluster-key").arg(folder.key()).output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("chmod 600"), "{why}");
}

#[test]
fn agents__that_die_leave_or_return_are_reported_with_the_cause() {
    let folder = Folder::new();
    let mut agents = cluster(&folder, 3, "--tolerance-ms 30000");
    let watcher = agents[0].names();
    let of = |agents: &[Agent], address: &str| {
        agents[0].hosts().into_iter().find(|h| h.address.to_string() == address).unwrap()
    };
    let mut names = agents[2].names();
    names.claim(&spec("last:1", 1)).unwrap();
    let mut watch = watcher.watch(&name("last"), Mode::Each, None).unwrap();
    while !matches!(next(&mut watch), Notice::Published(_)) {}
    assert_eq!(of(&agents, &agents[2].address).names, 1);
    let (left, killed) = (agents[1].address.clone(), agents[2].address.clone());
    agents.pop().unwrap().end("KILL");
    // Its kernel says so: silence is tolerated for longer than any test lasts.
    until("it has ended", || matches!(of(&agents, &killed).cause, Cause::Ended { .. }));
    let lost = of(&agents, &killed);
    assert_eq!((lost.names, lost.key), (0, 0), "nothing of it is there");
    let gone = loop {
        if let Notice::Withdrawn(_, gone) = next(&mut watch) {
            break gone;
        }
    };
    assert!(matches!(gone, Gone::Host(Cause::Ended { .. })), "{gone:?}");
    assert!(names.claim(&spec("last:2", 1)).is_err(), "its agent is gone");
    agents.pop().unwrap().end("TERM");
    until("it left", || of(&agents, &left).cause == Cause::Left);
    let before = of(&agents, &killed);
    let port = killed.rsplit_once(':').unwrap().1;
    let again = format!("--cluster-port {port} --tolerance-ms 30000 --join {}", agents[0].address);
    agents.push(Agent::start(&folder.key(), &again));
    until("it is back in a later life", || {
        let now = of(&agents, &killed);
        now.is_up && now.life > before.life && now.host == before.host
    });
    assert_eq!(of(&agents, &left).cause, Cause::Left);
}

#[test]
fn agents__that_stop_and_go_on_again_and_again_are_reported_each_time_once() {
    let folder = Folder::new();
    let agents = cluster(&folder, 3, "--tolerance-ms 300");
    let host = agents[2].names().host();
    let mut watch = agents[0].names().watch_hosts().unwrap();
    let mut steps: Vec<(u64, u32, bool)> = Vec::new();
    let mut told = |is_wanted: bool| loop {
        match watch.next(LIMIT).unwrap().expect("an event") {
            Say::Member(seq, of, _, _, step, is_up, _) if of == host => {
                steps.push((seq, step, is_up));
                if is_up == is_wanted {
                    return;
                }
            }
            _ => {}
        }
    };
    for _ in 0..3 {
        agents[2].child.signal("STOP");
        told(false);
        agents[2].child.signal("CONT");
        told(true);
    }
    for pair in steps.windows(2) {
        let [(seq, step, is_up), (next_seq, next_step, next_is_up)] = [pair[0], pair[1]];
        assert!(next_seq > seq && next_step == step + 1 && next_is_up != is_up, "{steps:?}");
    }
}

#[test]
fn clock__only_the_incarnation_of_an_agent_comes_from_the_one_that_people_set() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders: Vec<PathBuf> =
        ["src", "../weft-names/src", "../weft-cluster/src"].map(|f| root.join(f)).into();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            // The times of ranks are shown to people, and nothing is decided by them.
            let is_shown = ["counters", "ranks.rs"].iter().any(|name| path.ends_with(name));
            if path.is_dir() && !is_shown {
                folders.push(path);
                continue;
            }
            if is_shown {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let is_set = |line: &&str| {
                ["UNIX_EPOCH", "SystemTime::now", "CLOCK_REALTIME"].iter().any(|c| line.contains(c))
            };
            found.extend(text.lines().filter(is_set).map(|line| line.trim().to_string()));
        }
    }
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("let since = std::time::UNIX_EPOCH.elapsed()"), "{found:?}");
}

#[test]
fn claims__of_one_user_are_bounded_and_others_see_no_more() {
    let folder = Folder::new();
    let agents = cluster(&folder, 2, "--names-quota 100");
    let mut greedy = agents[0].names();
    let granted = (0..10_000).filter(|n| greedy.claim(&spec(&format!("many:{n}"), 1)).is_ok());
    assert_eq!(granted.count(), 100);
    let why = greedy.claim(&spec("more", 1)).unwrap_err().to_string();
    assert!(why.contains("100 claims"), "{why}");
    let mut other = agents[1].names();
    assert_eq!(other.wait(&name("many"), 100, LIMIT).unwrap().len(), 100);
    drop(greedy);
    until("they end with the connection", || other.resolve_all(&name("many")).unwrap().is_empty());
}

/// Returns the memory of an agent in bytes.
fn memory(agent: &Agent) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/statm", agent.child.id())).unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn programs__that_ask_for_all_names_and_read_nothing_are_bounded_and_hold_up_no_other() {
    use std::io::Write;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};
    use weft_cluster::local::{Request, VERSION};
    let folder = Folder::new();
    let agents = cluster(&folder, 2, "--names-quota 4000");
    let mut names = agents[0].names();
    for n in 0..3000 {
        names.claim(&spec(&format!("many-names-of-one:{n}"), 1)).unwrap();
    }
    let before = memory(&agents[0]);
    let socket = weft_cluster::socket_name(&agents[0].name);
    let address = SocketAddr::from_abstract_name(&socket[1..]).unwrap();
    let mut bytes = Request::Hello(VERSION).encode(1);
    (2..100).for_each(|n| bytes.extend(Request::List(0, u32::MAX).encode(n)));
    let greedy: Vec<UnixStream> = (0..200)
        .map(|_| {
            let mut stream = UnixStream::connect_addr(&address).unwrap();
            stream.write_all(&bytes).unwrap();
            stream
        })
        .collect();
    // Another program is served meanwhile, and agents are heard: none is taken for lost.
    for n in 0..50 {
        let claim = names.claim(&spec(&format!("other:{n}"), 1)).unwrap();
        names.withdraw(claim).unwrap();
    }
    assert!(agents[1].hosts().iter().all(|host| host.is_up && host.step == 1));
    until("all were answered or refused", || {
        names.list().is_err() || memory(&agents[0]) > before + (1 << 24)
    });
    let more = memory(&agents[0]) - before;
    assert!(more < 1 << 27, "{more} bytes more");
    drop(greedy);
    until("their answers are dropped", || names.list().is_ok_and(|all| all.len() >= 3000));
}

#[test]
fn send__reaches_one_owner_or_all_and_comes_back_if_the_name_has_no_owner() {
    let folder = Folder::new();
    let agents = cluster(&folder, 2, "");
    let (mut here, mut there) = (agents[0].names(), agents[1].names());
    let ear = spec("ear:1", 1).messages();
    let claims = [&mut here, &mut there].map(|names| names.claim(&ear).unwrap());
    let mut sender = agents[0].names();
    sender.wait(&name("ear:1"), 2, LIMIT).unwrap();
    let long: Vec<u8> = (0..66_000).map(|n| n as u8).collect();
    sender.send(&name("ear:1"), true, &long).unwrap();
    for (names, claim) in [(&mut here, claims[0]), (&mut there, claims[1])] {
        match names.event(LIMIT).unwrap() {
            Some(Event::Mail { claim: to, host, from, payload }) => {
                assert_eq!((to, host, payload == long), (claim, sender.host(), true));
                assert_eq!(from.process, std::process::id());
            }
            other => panic!("{other:?}"),
        }
    }
    // By turns.
    // A name without an instance stands for all.
    for ear in ["ear:1", "ear"] {
        sender.send(&name(ear), false, b"a").unwrap();
        sender.send(&name(ear), false, b"b").unwrap();
        sender.send(&name(ear), true, b"c").unwrap();
        for names in [&mut here, &mut there] {
            for _ in 0..2 {
                assert!(matches!(names.event(LIMIT).unwrap(), Some(Event::Mail { .. })));
            }
        }
    }
    let why = sender.send(&name("ear:2"), false, b"x").unwrap_err().to_string();
    assert!(why.contains("nobody has the name"), "{why}");
    let mut deaf = agents[1].names();
    deaf.claim(&spec("deaf:1", 1).messages()).unwrap();
    sender.wait(&name("deaf:1"), 1, LIMIT).unwrap();
    let mut why = String::new();
    until("it is full", || match sender.send(&name("deaf:1"), false, &long) {
        Ok(_) => false,
        Err(e) => {
            why = e.to_string();
            true
        }
    });
    assert!(why.contains("does not read"), "{why}");
}

#[test]
fn send__comes_back_if_the_owner_or_its_host_ends_before_the_message_is_taken() {
    let folder = Folder::new();
    let mut agents = cluster(&folder, 3, "--tolerance-ms 30000");
    let mut sender = agents[0].names();
    let mut owners: Vec<Names> = agents.iter().map(Agent::names).collect();
    for (at, names) in owners.iter_mut().enumerate() {
        names.claim(&spec(&format!("late:{at}"), 1).messages()).unwrap();
    }
    sender.wait(&name("late"), 3, LIMIT).unwrap();
    let mut send = |to: &str, all| sender.send(&name(to), all, b"x").unwrap();
    // Each owner takes the first message, and no other.
    for at in 0..3 {
        send(&format!("late:{at}"), false);
    }
    for names in &mut owners {
        assert!(matches!(names.event(LIMIT).unwrap(), Some(Event::Mail { .. })));
    }
    let one = [0, 1, 2].map(|at| send(&format!("late:{at}"), false));
    let all = send("late", true);
    let mut back = |message: u64, text: &str| match sender.event(LIMIT).unwrap() {
        Some(Event::Returned { message: of, why }) => {
            assert_eq!(of, message, "{why}");
            assert!(why.contains(text) && why.contains("host"), "{why}");
        }
        other => panic!("{other:?}"),
    };
    // The program of this host, that of another host, and the third one with its host.
    drop(owners.remove(0));
    back(one[0], "ended before it had the message");
    back(all, "ended before it had the message");
    drop(owners.remove(0));
    back(one[1], "ended before it had the message");
    agents.pop().unwrap().end("KILL");
    back(one[2], "does not answer");
    assert_eq!(sender.event(Duration::ZERO).unwrap(), None, "each comes back once");
}

#[test]
fn send__a_burst_to_a_program_that_does_other_things_is_bounded_and_no_message_is_lost() {
    let folder = Folder::new();
    let agents = cluster(&folder, 2, "");
    let mut owner = agents[1].names();
    owner.claim(&spec("busy:1", 1).messages()).unwrap();
    let mut senders = [agents[0].names(), agents[0].names()];
    senders[0].wait(&name("busy:1"), 1, LIMIT).unwrap();
    let mut sent = 0u32;
    let mut why = [String::new(), String::new()];
    for (at, most) in [(0, 200), (1, 300)] {
        for _ in 0..most {
            match senders[at].send(&name("busy:1"), false, &sent.to_le_bytes()) {
                Ok(_) => sent += 1,
                Err(e) => why[at] = e.to_string(),
            }
        }
    }
    assert_eq!(sent, 256, "what a program has not taken is bounded: {why:?}");
    assert!(why[0].is_empty() && why[1].contains("does not read"), "{why:?}");
    // The program asks for other things; the messages come to its memory, and stay there.
    assert!(owner.list().unwrap().iter().any(|b| b.name.alias == "busy"));
    for n in 0..sent {
        match owner.event(LIMIT).unwrap() {
            Some(Event::Mail { payload, .. }) => assert_eq!(payload, n.to_le_bytes()),
            other => panic!("{n}: {other:?}"),
        }
    }
    until("there is room again", || senders[1].send(&name("busy:1"), false, b"x").is_ok());
    assert!(matches!(owner.event(LIMIT).unwrap(), Some(Event::Mail { .. })));
    for sender in &mut senders {
        assert_eq!(sender.event(Duration::ZERO).unwrap(), None, "nothing came back");
    }
}

#[test]
fn send__to_all_reaches_the_living_and_names_the_host_that_died() {
    let folder = Folder::new();
    let agents = cluster(&folder, 4, "--tolerance-ms 500");
    let mut ears: Vec<Names> = agents.iter().map(Agent::names).collect();
    for names in &mut ears {
        names.claim(&spec("ear", 1).messages()).unwrap();
        names.claim(&spec("ear:1", 1).messages()).unwrap();
    }
    let mut sender = agents[0].names();
    sender.wait(&name("ear"), 8, LIMIT).unwrap();
    let before: u64 = agents[0].reports("cluster_mail_sent").parse().unwrap();
    sender.send(&name("ear"), true, b"all").unwrap();
    let after: u64 = agents[0].reports("cluster_mail_sent").parse().unwrap();
    assert_eq!(after - before, 3, "one message a host, not a claim");
    agents[3].child.signal("STOP");
    let sent = sender.send(&name("ear"), true, b"living");
    // The host may have been lost before, and its names with it.
    if let Err(why) = sent {
        let why = why.to_string();
        assert!(why.contains("does not answer (host"), "{why}");
    }
    for names in &mut ears[..3] {
        for payload in [b"all".to_vec(), b"all".to_vec(), b"living".to_vec(), b"living".to_vec()] {
            match names.event(LIMIT).unwrap() {
                Some(Event::Mail { payload: got, .. }) => assert_eq!(got, payload),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn send__comes_back_from_an_owner_that_takes_no_messages() {
    let folder = Folder::new();
    let agents = cluster(&folder, 2, "");
    for owner in &agents {
        let mut mute = owner.names();
        mute.claim(&spec("mute", 1)).unwrap();
        let mut sender = agents[0].names();
        sender.wait(&name("mute"), 1, LIMIT).unwrap();
        for all in [false, true] {
            let why = sender.send(&name("mute"), all, b"x").unwrap_err().to_string();
            assert!(why.contains("takes no messages"), "{why}");
        }
        // One that takes them gets those to one owner.
        let mut ear = agents[1].names();
        ear.claim(&spec("mute", 1).messages()).unwrap();
        sender.wait(&name("mute"), 2, LIMIT).unwrap();
        for _ in 0..4 {
            sender.send(&name("mute"), false, b"x").unwrap();
            assert!(matches!(ear.event(LIMIT).unwrap(), Some(Event::Mail { .. })));
        }
        drop((mute, ear));
        until("all are gone", || sender.resolve_all(&name("mute")).unwrap().is_empty());
    }
}

/// A member of a group, with what it was told.
struct Member {
    group: GroupMember,
    there: std::collections::BTreeSet<BindingId>,
}

impl Member {
    fn join(agent: &Agent, text: &str, options: &GroupOptions) -> Member {
        let group = agent.names().join(&Spec::new(&name(text)), options).unwrap();
        Member { group, there: std::collections::BTreeSet::new() }
    }

    fn next(&mut self) -> GroupNotice {
        let notice = self.group.next(LIMIT).unwrap().expect("an event");
        match &notice {
            GroupNotice::Joined(b) => assert!(self.there.insert(b.id), "joined twice"),
            GroupNotice::Left(id, _) => assert!(self.there.remove(id), "left twice"),
            _ => {}
        }
        notice
    }

    fn until_there(&mut self, n: usize) {
        while self.there.len() != n {
            self.next();
        }
    }

    fn message(&mut self) -> (Kind, Vec<u8>) {
        loop {
            if let GroupNotice::Message { kind, payload, .. } = self.next() {
                return (kind, payload);
            }
        }
    }
}

#[test]
fn group__members_get_all_modes_in_order_and_learn_of_each_other() {
    let folder = Folder::new();
    let agents = cluster(&folder, 2, "");
    let options = GroupOptions::default();
    let places = [(0, "team:1"), (0, "team:2"), (1, "team:2")];
    let mut all = places.map(|(at, text)| Member::join(&agents[at], text, &options));
    all.iter_mut().for_each(|m| m.until_there(2));
    let long: Vec<u8> = (0..66_000).map(|n| n as u8).collect();
    let [first, others @ ..] = &mut all;
    std::thread::scope(|scope| {
        // Members without credit have the sender wait, so they take meanwhile.
        scope.spawn(|| {
            let mut send = |to, payload: &[u8]| first.group.send(to, payload, LIMIT).unwrap();
            for n in 0..100u8 {
                send(To::All, &[n]);
                send(To::Each(2..=2), &[n]);
            }
            send(To::All, &long);
        });
        for member in others {
            let long = &long;
            scope.spawn(move || {
                for n in 0..100 {
                    assert_eq!(member.message(), (Kind::Broadcast, vec![n]));
                    assert_eq!(member.message(), (Kind::Multicast, vec![n]));
                }
                assert_eq!(member.message(), (Kind::Broadcast, long.clone()));
            });
        }
    });
    // By turns, and to one that was named.
    for _ in 0..2 {
        all[0].group.send(To::One(2..=2), b"one", LIMIT).unwrap();
    }
    let far = *all[0].there.iter().find(|id| id.host != agents[0].names().host()).unwrap();
    all[0].group.send(To::Member(far), b"you", LIMIT).unwrap();
    assert_eq!(all[1].message(), (Kind::Anycast, b"one".to_vec()));
    assert_eq!(all[2].message(), (Kind::Anycast, b"one".to_vec()));
    assert_eq!(all[2].message(), (Kind::Unicast, b"you".to_vec()));
    all[0].group.flush(LIMIT).unwrap();
    let why = all[0].group.send(To::One(7..=7), b"x", LIMIT).unwrap_err().to_string();
    assert!(why.contains("no member"), "{why}");
    let [mut first, _, last] = all;
    drop(last);
    let gone = loop {
        if let GroupNotice::Left(id, gone) = first.next() {
            assert_eq!(id, far);
            break gone;
        }
    };
    assert_eq!(gone, Gone::Withdrawn);
}

#[test]
fn group__a_slow_member_is_named_and_evicted() {
    let folder = Folder::new();
    let agents = cluster(&folder, 2, "");
    let fast = Duration::from_millis(100);
    let options = GroupOptions { slow_after: fast, evict_after: Some(3 * fast) };
    let mut sender = Member::join(&agents[0], "slow:1", &options);
    let mut slow = Member::join(&agents[1], "slow:2", &GroupOptions::default());
    sender.until_there(1);
    // The slow member takes as many messages as its window and the memory for it hold, and none
    // after that.
    let mut why = String::new();
    until("it holds up the sender", || match sender.group.send(To::All, b"x", Duration::ZERO) {
        Ok(_) => false,
        Err(e) => {
            why = e.to_string();
            true
        }
    });
    assert!(why.contains("takes no messages") && why.contains("process"), "{why}");
    let mut told = Vec::new();
    while sender.there.len() == 1 {
        match sender.next() {
            GroupNotice::Slow(id, _) | GroupNotice::Evicted(id) => told.push(id),
            _ => {}
        }
    }
    assert_eq!(told.len(), 2);
    let end = loop {
        match slow.group.next(LIMIT) {
            Ok(event) => assert!(event.is_some()),
            Err(why) => break why.to_string(),
        }
    };
    assert!(end.contains("evicted the slow member"), "{end}");
    until("its name is gone", || {
        agents[0].names().resolve_all(&name("slow:2")).unwrap().is_empty()
    });
}

#[test]
fn group__messages_to_a_member_that_died_come_back() {
    let folder = Folder::new();
    let agents = cluster(&folder, 2, "--tolerance-ms 500");
    let mut sender = Member::join(&agents[0], "part:1", &GroupOptions::default());
    let _other = Member::join(&agents[1], "part:2", &GroupOptions::default());
    sender.until_there(1);
    let mut agents = agents;
    let (dies, stays) = (agents.pop().unwrap(), agents.pop().unwrap());
    dies.end("KILL");
    let number = sender.group.send(To::All, b"x", LIMIT);
    // The loss may have been told before.
    if let Ok(number) = number {
        let mut is_back = false;
        while !sender.there.is_empty() {
            is_back |= matches!(sender.next(), GroupNotice::Returned(n, ..) if n == number);
        }
        assert!(is_back);
        sender.group.flush(LIMIT).unwrap();
    }
    let why = stays.names().claim(&Spec::new(&name("part:3")).unique());
    assert!(why.is_ok(), "{why:?}");
}

#[test]
fn group__policy_and_quota_hold_for_members() {
    let folder = Folder::new();
    let user = weftd::sys::effective_user();
    let rules = format!("--cluster-port 0 --names-rule {user}:closed:no-claim");
    let agent = Agent::start(&folder.key(), &rules);
    let names = agent.names();
    let join = |text: &str| names.join(&Spec::new(&name(text)), &GroupOptions::default());
    let why = join("closed:1").err().unwrap().to_string();
    assert!(why.contains("policy"), "{why}");
    let members: Vec<_> = (0..64).map(|n| join(&format!("open:{n}")).unwrap()).collect();
    let why = join("open:64").err().unwrap().to_string();
    assert!(why.contains("64 groups"), "{why}");
    drop(members);
    until("there is room again", || join("open:64").is_ok());
}

#[test]
fn names__of_two_words_with_one_hash_are_told_apart() {
    let folder = Folder::new();
    let agents = cluster(&folder, 2, "");
    let (one, other) = (name("gzwl:1"), name("hldt:1"));
    assert_eq!(one.kind, other.kind, "the words have one hash");
    let mut owner = agents[1].names();
    owner.claim(&spec("gzwl:1", 1).messages()).unwrap();
    let mut names = agents[0].names();
    names.wait(&one, 1, LIMIT).unwrap();
    assert!(names.resolve(&other, Pick::Turn).unwrap().is_none());
    assert!(names.resolve_all(&other).unwrap().is_empty());
    for all in [false, true] {
        let why = names.send(&other, all, b"x").unwrap_err().to_string();
        assert!(why.contains("nobody has the name"), "{why}");
    }
    let mut both = agents[1].names();
    both.claim(&spec("hldt:1", 2).messages()).unwrap();
    names.wait(&other, 1, LIMIT).unwrap();
    for _ in 0..2 {
        names.send(&one, false, b"one").unwrap();
        names.send(&other, true, b"other").unwrap();
        for (of, word) in [(&mut owner, &b"one"[..]), (&mut both, b"other")] {
            match of.event(LIMIT).unwrap() {
                Some(Event::Mail { payload, .. }) => assert_eq!(payload, word),
                told => panic!("{told:?}"),
            }
        }
    }
    // The arbiter goes by the type, so a unique name is refused, and its owner named.
    let why = names.claim(&spec("gzwl:1", 3).unique()).unwrap_err().to_string();
    assert!(why.contains("has the name"), "{why}");
    let why = names.claim(&spec("hldt:7", 3).unique());
    assert!(why.is_ok(), "{why:?}");
}

#[test]
fn resolve__of_new_processes_comes_to_all_owners() {
    let folder = Folder::new();
    let agent = Agent::start(&folder.key(), "--cluster-port 0");
    let mut owner = agent.names();
    for port in [1, 2] {
        owner.claim(&spec("many", port)).unwrap();
    }
    for pick in [Pick::Turn, Pick::Nearest] {
        let mut found = std::collections::BTreeSet::new();
        until("both were found", || {
            let mut names = agent.names();
            found.insert(names.resolve(&name("many"), pick).unwrap().unwrap().name.address);
            found.len() == 2
        });
    }
}

#[test]
fn claim__of_a_mark_has_no_address_and_types_of_agents_are_refused_to_all() {
    let folder = Folder::new();
    let agent = Agent::start(&folder.key(), "--cluster-port 0 --names-rule all:all:claim");
    let mut names = agent.names();
    names.claim(&Spec::new(&name("mark"))).unwrap();
    let found = names.resolve(&name("mark"), Pick::Turn).unwrap().unwrap();
    assert_eq!((found.name.address, found.name.endpoint), (None, 0));
    let why = names.claim(&spec("5:1", 1)).unwrap_err().to_string();
    assert!(why.contains("below 64") && why.contains("64 to 4294967295"), "{why}");
}

#[test]
fn connect_names__endpoints_find_each_other_and_send() {
    let folder = Folder::new();
    let agents = cluster(&folder, 2, "");
    let links = weft::Links::parse("udp").unwrap();
    let side = |at: usize| {
        let endpoint = weft::job::open_endpoint(weft::Config::default(), links, [3; 32]).unwrap();
        let mut names = agents[at].names();
        let own = name(&format!("rank:{at}"));
        let claim = weft::names::claim_of(&endpoint, &own).unwrap();
        names.claim(&claim).unwrap();
        let peers =
            weft::names::connect_all(&endpoint, &mut names, &name("rank"), 2, LIMIT).unwrap();
        let other = name(&format!("rank:{}", 1 - at));
        let by_name = weft::names::connect(&endpoint, &mut names, &other, Pick::Turn).unwrap();
        assert_eq!((peers.len(), peers[1 - at]), (2, by_name));
        assert!(weft::names::connect(&endpoint, &mut names, &name("rank:7"), Pick::Turn).is_err());
        let text = format!("from {at}");
        let (mut heard, from) = ([0; 6], Some(peers[1 - at]));
        endpoint.send_blocking(peers[1 - at], 1, text.as_bytes()).unwrap();
        endpoint.recv_blocking(from, 1, 0, &mut heard).unwrap();
        assert_eq!(heard, *format!("from {}", 1 - at).as_bytes());
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| side(1));
        side(0);
        other.join().unwrap();
    });
}

#[test]
fn policy__forbids_claims_and_hides_names() {
    let folder = Folder::new();
    let user = weftd::sys::effective_user();
    let rules = format!(
        "--cluster-port 0 --names-rule {user}:secret:see-none --names-rule {user}:mine:no-claim"
    );
    let agent = Agent::start(&folder.key(), &rules);
    let mut names = agent.names();
    let why = names.claim(&spec("mine", 1)).unwrap_err().to_string();
    assert!(why.contains("policy"), "{why}");
    names.claim(&spec("secret", 1)).unwrap();
    names.claim(&spec("plain", 1)).unwrap();
    assert!(names.resolve_all(&name("secret")).unwrap().is_empty());
    let listed = names.list().unwrap();
    assert!(listed.iter().any(|b| b.name.alias == "plain"));
    assert!(!listed.iter().any(|b| b.name.alias == "secret"));
}

#[test]
fn subscriber__that_does_not_read_is_bounded_and_catches_up() {
    let folder = Folder::new();
    let agent = Agent::start(&folder.key(), "--cluster-port 0");
    let mut names = agent.names();
    let mut watch = names.watch(&name("busy"), Mode::Each, None).unwrap();
    names.claim(&spec("busy:0", 1)).unwrap();
    // More than sockets and queues hold.
    for _ in 0..6000 {
        let claim = names.claim(&spec("busy:1", 1)).unwrap();
        names.withdraw(claim).unwrap();
    }
    names.claim(&spec("busy:2", 1)).unwrap();
    let (mut seq, mut missed, mut there) = (0, 0, std::collections::BTreeSet::new());
    while !there.contains(&2) {
        let event = watch.next(LIMIT).unwrap().expect("an event");
        seq += 1;
        assert_eq!(event.seq, seq);
        match event.notice {
            Notice::Published(b) => assert!(there.insert(b.name.lower)),
            Notice::Withdrawn(b, _) => assert!(there.remove(&b.name.lower)),
            Notice::Missed { events } => missed += events,
            _ => {}
        }
    }
    assert!(missed > 0 && there.contains(&0), "{missed} missed, {there:?} there");
}

#[test]
fn port__survives_hostile_bytes() {
    let folder = Folder::new();
    let agents = cluster(&folder, 2, "");
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let mut state = 7u64;
    for n in 0..20_000 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let mut bytes: Vec<u8> =
            (0..state >> 33 & 127).map(|at| (state >> (at % 56)) as u8 ^ at as u8).collect();
        if let [version, kind, ..] = &mut bytes[..] {
            (*version, *kind) = (1 + (n % 16 == 0) as u8, (n % 7) as u8);
        }
        let _ = socket.send_to(&bytes, &agents[0].address);
    }
    until("they are counted", || agents[0].reports("cluster_malformed") != "0");
    assert_eq!((agents[0].ups(), agents[1].ups()), (2, 2));
    let mut names = agents[0].names();
    names.claim(&spec("alive", 1)).unwrap();
    agents[1].names().wait(&name("alive"), 1, LIMIT).unwrap();
}

/// Claims a unique name on both sides of a cable that is cut, and joins the sides again. Returns
/// the outcome for one side: true if it lost the name.
fn parted(host: &hosts::Host, key: &Path, step: &std::sync::Barrier) -> bool {
    let other = 2 - host.side;
    let join = format!("--tolerance-ms 500 --cluster-port 7119 --join 10.9.0.{other}:7119");
    let agent = Agent::start(key, &join);
    until("both are one cluster", || agent.ups() == 2);
    step.wait();
    if host.side == 0 {
        host.ip("link set cable0 down");
    }
    until("each is alone", || agent.ups() == 1);
    let mut names = agent.names();
    until("it is granted", || names.claim(&spec("boss", 1).unique()).is_ok());
    // The second claim has a later number than the other claim of this host: where it is known,
    // both are.
    names.claim(&spec("side", 1)).unwrap();
    step.wait();
    if host.side == 0 {
        host.ip("link set cable0 up");
    }
    until("both are one cluster again", || agent.ups() == 2);
    names.wait(&name("side"), 2, LIMIT).unwrap();
    until("one is left", || names.resolve_all(&name("boss")).unwrap().len() == 1);
    let owner = names.resolve_all(&name("boss")).unwrap()[0].id.host;
    let lost = owner != names.host();
    if lost {
        let event = names.event(LIMIT).unwrap();
        let is_told = matches!(event, Some(Event::Lost { gone: Gone::Conflict { .. }, .. }));
        assert!(is_told, "{event:?}");
    }
    step.wait();
    lost
}

#[test]
fn partition__one_of_two_owners_loses_at_the_heal_and_learns_of_it() {
    let folder = Folder::new();
    let (key, step) = (folder.key(), std::sync::Barrier::new(2));
    match hosts::run(1, |a| parted(a, &key, &step), |b| parted(b, &key, &step)) {
        Ok((a, b)) => assert!(a != b, "one has it: {a} {b}"),
        Err(why) => skip(&why),
    }
}

#[test]
fn multicast__agents_of_one_network_find_each_other() {
    let folder = Folder::new();
    let (key, step) = (folder.key(), std::sync::Barrier::new(2));
    let (to, from) = channel();
    let body = |to: std::sync::mpsc::Sender<usize>| {
        let (key, step) = (&key, &step);
        move |_: &hosts::Host| {
            let agent = Agent::start(key, "--cluster-multicast on");
            until("both are one cluster", || agent.ups() == 2);
            step.wait();
            to.send(agent.ups()).unwrap();
        }
    };
    match hosts::run(1, body(to.clone()), body(to)) {
        Ok(_) => assert_eq!(from.iter().count(), 2),
        Err(why) => skip(&why),
    }
}
