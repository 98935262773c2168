//! `weft lab` called as by a user: hosts that reach each other, and no process or interface left
//! after its end.
#![allow(non_snake_case)]

mod between;
mod choices;
mod cluster;
mod dissector;
mod firewall;
#[allow(dead_code)]
#[path = "../run/harness.rs"]
mod harness;
mod inside;
mod partition;
mod vanish;

use harness::{left_behind, Job, Running, MARK};
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const WEFT: &str = env!("CARGO_BIN_EXE_weft");
/// Limit of every wait; reached only by a fault.
const LIMIT: Duration = Duration::from_secs(300);

/// The lab of one test; all its processes carry a mark.
struct Lab {
    name: String,
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A failed test must leave nothing behind either.
        self.weft(&["lab", "down"]);
    }
}

impl Lab {
    /// Returns a name for a lab that does not exist yet.
    fn unmade() -> Lab {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Lab { name: format!("t{}-{number}", std::process::id()) }
    }

    /// Makes a lab; `None` if labs are not allowed.
    fn up(args: &[&str]) -> Option<Lab> {
        let lab = Lab::unmade();
        let made = lab.weft(&[&["lab", "up"], args].concat());
        let why = text(&made.stderr);
        if !made.status.success() && why.contains("CAP_SYS_ADMIN") {
            weft_conformance::skip(&why);
            return None;
        }
        assert!(made.status.success(), "{why}");
        Some(lab)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(WEFT);
        command.args(words).env("WEFT_LAB", &self.name).env(MARK, &self.name);
        command
    }

    fn weft(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("weft starts")
    }

    /// Runs a shell command on a host; returns its standard output.
    fn sh(&self, host: &str, script: &str) -> String {
        let output = self.weft(&["lab", "exec", host, "sh", "-c", script]);
        assert!(output.status.success(), "{script}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn code(&self, words: &[&str]) -> Option<i32> {
        self.weft(&[&["lab", "exec"], words].concat()).status.code()
    }

    fn status(&self) -> Value {
        let output = self.weft(&["lab", "status", "--json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Starts a command on a host that runs until it is killed, and waits until it runs.
    fn sleeper(&self, host: &str) -> Running {
        let script = "echo asleep; exec sleep 1000";
        let command = self.command(&["lab", "exec", host, "sh", "-c", script]);
        // The job's own mark would replace that of the lab.
        let mut running = Job::of_marked(command, &self.name).start();
        running.lines(1, "asleep");
        running
    }

    fn wait_until_nothing_left(&self) {
        until(|| left_behind(&self.name).is_empty(), || format!("{:?}", left_behind(&self.name)));
        let list = text(&self.weft(&["lab", "list"]).stdout);
        assert!(!list.contains(&self.name), "{list}");
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn until(done: impl Fn() -> bool, what: impl Fn() -> String) {
    let deadline = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < deadline, "still: {}", what());
        std::thread::yield_now();
    }
}

fn kill(pid: &Value) {
    let pid = pid.as_i64().expect("a process").to_string();
    assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
}

#[test]
fn keeper__whose_starter_is_gone_ends_without_a_word() {
    let Some(lab) = Lab::up(&["1"]) else { return };
    let mut spec = lab.status()["spec"].clone();
    let orphan = Lab::unmade();
    spec["name"] = orphan.name.as_str().into();
    let words = ["lab-keeper", "--spec", &spec.to_string(), "--attached"];
    let keeper = || {
        let mut keeper = orphan.command(&words);
        keeper.stdin(Stdio::null());
        keeper
    };
    let heard = keeper().output().expect("weft starts");
    assert!(text(&heard.stdout).contains("Ready"), "{}", text(&heard.stdout));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let done = keeper().stdout(writer).output().expect("weft starts");
    assert!(!done.status.success());
    assert_eq!(text(&done.stderr), "");
    orphan.wait_until_nothing_left();
}

#[test]
fn exec__runs_in_the_host_and_passes_the_exit_status_on() {
    let Some(lab) = Lab::up(&["2"]) else { return };
    assert_eq!(lab.sh("h2", "hostname").trim(), "h2");
    assert_eq!(lab.sh("h1", "echo $HOSTNAME $WEFT_LAB").trim(), format!("h1 {}", lab.name));
    assert_eq!(lab.sh("h1", "pwd").trim(), std::env::current_dir().unwrap().to_str().unwrap());
    assert_eq!(
        lab.sh("h1", "cat /proc/1/cmdline | tr '\\0' ' '").split(' ').nth(1),
        Some("lab-host")
    );
    assert_eq!(lab.code(&["h1", "sh", "-c", "exit 7"]), Some(7));
    assert_eq!(lab.code(&["h1", "sh", "-c", "kill -9 $$"]), Some(137));
    assert_eq!(lab.code(&["h1", "/nonexistent"]), Some(127));
    assert_eq!(lab.code(&["h1", "/etc/hosts"]), Some(126));
    assert_eq!(lab.code(&["h3", "true"]), Some(1), "there is no h3");
}

#[test]
fn hosts__reach_each_other_by_name_and_nothing_else() {
    let Some(lab) = Lab::up(&["3"]) else { return };
    for name in ["h1", "h2", "h3"] {
        assert!(lab.sh("h2", &format!("getent ahosts {name}")).contains("STREAM"), "{name}");
    }
    assert!(lab.sh("h1", "ls /sys/class/net").split_whitespace().eq(["eth0", "lo"]));
    if !Path::new("/bin/bash").exists() {
        return weft_conformance::skip("no bash to open a connection with");
    }
    // Nobody listens there: the refusal takes one packet in each direction.
    let status = lab.status();
    for family in ["v4", "v6"] {
        let Some(to) = status["hosts"][1][family].as_str() else {
            assert_eq!(family, "v6", "this kernel may lack IPv6");
            continue;
        };
        let script = format!("exec 3<>/dev/tcp/{to}/9");
        let output = lab.weft(&["lab", "exec", "h1", "bash", "-c", &script]);
        assert!(text(&output.stderr).contains("refused"), "{to}: {}", text(&output.stderr));
    }
    let output = lab.weft(&["lab", "exec", "h1", "bash", "-c", "exec 3<>/dev/tcp/192.0.2.1/9"]);
    assert!(text(&output.stderr).contains("unreachable"), "{}", text(&output.stderr));
}

#[test]
fn run__spreads_ranks_over_hosts_that_exchange_messages() {
    let Some(lab) = Lab::up(&["2"]) else { return };
    let place = lab.weft(&["lab", "run", "-n", "4", "sh", "-c", "echo $PMI_RANK on $(hostname)"]);
    let mut lines: Vec<String> = text(&place.stdout).lines().map(String::from).collect();
    lines.sort();
    assert_eq!(lines, ["0 on h1", "1 on h1", "2 on h2", "3 on h2"]);
    let per_host = lab.weft(&["lab", "run", "--per-host", "3", "hostname"]);
    assert_eq!(text(&per_host.stdout).matches("h2").count(), 3);
    let asp = lab.weft(&["lab", "run", "-n", "3", WEFT, "app", "asp", "--nodes", "64"]);
    assert!(asp.status.success(), "{}", text(&asp.stderr));
    // The end of ranks is no failure for ranks that still send to others.
    for _ in 0..3 {
        let sor = lab.weft(&["lab", "run", "-n", "4", WEFT, "app", "sor", "--size", "20"]);
        assert!(sor.status.success() && sor.stderr.is_empty(), "{}", text(&sor.stderr));
    }
    let failed = lab.weft(&["lab", "run", "-n", "2", "sh", "-c", "exit 9"]);
    assert_eq!(failed.status.code(), Some(9));
}

#[test]
fn run__messages_survive_loss_delay_and_a_rate() {
    // The MTU is too small for IPv6.
    let args = ["2", "--loss", "5%", "--delay", "1ms", "--rate", "100mbit", "--mtu", "1000"];
    let Some(lab) = Lab::up(&args) else { return };
    let asp = lab.weft(&["lab", "run", "-n", "2", WEFT, "app", "asp", "--nodes", "64"]);
    assert!(asp.status.success(), "{}", text(&asp.stderr));
    assert_eq!(lab.sh("h1", "cat /sys/class/net/eth0/mtu").trim(), "1000");
}

/// Returns the output of `selftest incast`: bytes per second, fairness of the shares, and the share
/// of the time in which the receiver waited for a processor.
fn incast(lab: &Lab, senders: u32, messages: u32) -> [f64; 3] {
    let (hosts, messages) = ((senders + 1).to_string(), messages.to_string());
    let words = ["lab", "run", "-n", &hosts, WEFT, "selftest", "incast", "--messages", &messages];
    let ran = lab.weft(&words);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let out = text(&ran.stdout);
    let mut figures = out.split_whitespace().filter_map(|word| word.parse().ok());
    ["a rate", "shares", "a wait"].map(|what| figures.next().expect(what))
}

/// Runs a command in the network of the lab's switch; `None`, with a note, if that is not allowed.
fn at_switch(lab: &Lab, words: &str) -> Option<String> {
    let keeper = lab.status()["keeper"].to_string();
    let words = ["-t", &keeper, "-n"].into_iter().chain(words.split(' '));
    let why = match Command::new("nsenter").args(words).output() {
        Ok(output) if output.status.success() => return Some(text(&output.stdout)),
        Ok(output) => text(&output.stderr),
        Err(e) => format!("nsenter: {e}"),
    };
    weft_conformance::skip(&why);
    None
}

/// Returns the packets that the switch sent to the first host, and those for which its queue had no
/// room.
fn through_queue(lab: &Lab) -> Option<[u64; 2]> {
    let said = at_switch(lab, "tc -s qdisc show dev p1 root")?;
    let after = |mark: &str| {
        let rest = said.split_once(mark).unwrap_or_else(|| panic!("no {mark}: {said}")).1;
        let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
        number.parse().unwrap_or_else(|e| panic!("{mark}: {e}: {said}"))
    };
    let packets = said.split_once(" bytes ").expect("counts").1;
    let packets = packets.split_once(" pkt").expect("packets").0.parse().expect("a number");
    Some([packets, after("dropped ")])
}

/// Checks that senders share a bottleneck fairly and keep it full, and that its queue drops at most
/// this share of their packets.
fn share(senders: u32, messages: u32, full: f64, most_lost: f64) {
    let Some(lab) = Lab::up(&[&(senders + 1).to_string(), "--rate", "100mbit"]) else { return };
    // Message bytes per second at the rate of the wire: 1424 of the 1514 bytes of a full packet.
    let wire = 100e6 / 8.0 * 1424.0 / 1514.0;
    // While other programs use the processors, the link is idle.
    let mut turns = Vec::new();
    let (mut good, mut calm) = (false, 0);
    while !good && calm < 5 && turns.len() < 10 {
        let Some(before) = through_queue(&lab) else { return };
        let [rate, jain, waited] = incast(&lab, senders, messages);
        let Some(after) = through_queue(&lab) else { return };
        let [passed, dropped] = [0, 1].map(|i| (after[i] - before[i]) as f64);
        let lost = dropped / (passed + dropped);
        turns.push([rate, jain, waited, lost]);
        good = rate >= full * wire && jain >= 0.9 && lost <= most_lost;
        calm += usize::from(waited < 0.05);
    }
    assert!(turns.iter().all(|[rate, ..]| *rate <= 1.1 * wire), "no bottleneck: {turns:?}");
    if !good && calm < 5 {
        let why = "other programs hold the processors: nothing can be said of rates";
        return weft_conformance::skip(&format!("{why}: {turns:?}"));
    }
    assert!(good, "of {wire} bytes a second, shares and losses: {turns:?}");
}

#[test]
fn run__many_senders_share_a_bottleneck_and_keep_it_full() {
    // With 16 messages each, chance affects shares as much as control: an index of 0.76 to 0.97.
    share(32, 64, 0.9, 0.2);
}

#[test]
fn run__two_senders_share_a_bottleneck() {
    share(2, 128, 0.8, 0.02);
}

/// Runs `selftest incast` on a lab, with options of `weft run`; returns its standard error. `None`,
/// with a note: the machine has no AF_XDP.
fn raw(lab: &Lab, ranks: &str, options: &[&str], command: &[String]) -> Option<String> {
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let with = options.iter().map(|o| format!("--with={o}")).collect::<Vec<_>>();
    let with: Vec<&str> = with.iter().map(String::as_str).collect();
    let incast = [WEFT, "selftest", "incast", "--bytes", "20000", "--messages", "40"];
    let head = ["lab", "run", "-n", ranks];
    let ran = lab.weft(&[&head[..], &with, &command, &incast].concat());
    let said = text(&ran.stderr);
    if said.contains("link xdp is not available") && said.contains("this kernel has no") {
        weft_conformance::skip(&said);
        return None;
    }
    assert!(ran.status.success(), "{said}");
    Some(said)
}

#[test]
fn run__several_ranks_a_host_over_xdp() {
    let Some(lab) = Lab::up(&["2"]) else { return };
    let Some(said) = raw(&lab, "6", &["--link=xdp"], &[]) else { return };
    assert_eq!(said.matches("another rank has its queue").count(), 2, "once a host: {said}");
    // No program stays attached.
    for host in ["h1", "h2"] {
        until(|| !lab.sh(host, "ip -d link show eth0").contains("xdp"), || "a program".into());
    }
}

#[test]
fn run__two_jobs_on_one_wire_do_not_disturb_each_other() {
    let Some(lab) = Lab::up(&["2"]) else { return };
    for link in ["--link=packet", "--link=xdp"] {
        let both = std::thread::scope(|scope| {
            let jobs = [(); 2].map(|()| scope.spawn(|| raw(&lab, "4", &[link], &[])));
            jobs.map(|job| job.join().expect("it passes"))
        });
        if both.iter().any(Option::is_none) {
            return;
        }
    }
}

#[test]
fn run__without_the_right_to_raw_sockets_takes_udp_and_says_so_once() {
    let Some(lab) = Lab::up(&["2"]) else { return };
    let Some(without) = without(&lab, "-net_raw,-net_admin") else { return };
    for link in ["packet", "xdp"] {
        let options = [format!("--link={link},udp")];
        let options = options.each_ref().map(String::as_str);
        let Some(said) = raw(&lab, "2", &options, &without) else { continue };
        let line = format!("link {link} is not available");
        assert_eq!(said.matches(&line).count(), 2, "once a rank: {said}");
        assert!(said.contains("CAP_NET_RAW"), "{said}");
    }
}

/// Returns the first words of a command that lacks these rights.
fn without(lab: &Lab, rights: &str) -> Option<[String; 3]> {
    if lab.code(&["h1", "setpriv", "--version"]) == Some(0) {
        let bounds = format!("--bounding-set={rights}");
        return Some(["setpriv".into(), bounds, "--inh-caps=-all".into()]);
    }
    weft_conformance::skip("no setpriv (util-linux) to give up rights with");
    None
}

#[test]
fn run__by_default_without_the_right_to_raw_sockets_doctor_says_so_and_no_job() {
    let Some(lab) = Lab::up(&["2"]) else { return };
    let Some(without) = without(&lab, "-net_raw") else { return };
    // Several ranks on each host.
    let Some(said) = raw(&lab, "6", &[], &without) else { return };
    assert_eq!(said, "", "nobody asked for more");
    let words = without.iter().map(String::as_str);
    let words: Vec<&str> = ["lab", "exec", "h1"].into_iter().chain(words).collect();
    let doctor = text(&lab.weft(&[&words[..], &[WEFT, "doctor"]].concat()).stdout);
    assert!(doctor.contains("CAP_NET_RAW") || doctor.contains("cap_net_raw"), "{doctor}");
}

#[test]
fn run__without_the_right_to_change_interfaces_only_xdp_is_missing() {
    let Some(lab) = Lab::up(&["2"]) else { return };
    // A process with all rights to BPF needs no other right for it.
    let Some(without) = without(&lab, "-net_admin,-sys_admin") else { return };
    for links in ["packet", "gso", "shm,packet,gso,udp"] {
        let Some(said) = raw(&lab, "2", &[&format!("--link={links}")], &without) else { return };
        assert!(!said.contains("is not available"), "{links}: {said}");
    }
    let Some(said) = raw(&lab, "2", &["--link=xdp,packet"], &without) else { return };
    assert_eq!(said.matches("link xdp is not available").count(), 2, "once a rank: {said}");
    assert!(said.contains("CAP_NET_ADMIN"), "{said}");
}

#[test]
fn run__a_card_that_refuses_af_xdp_is_named_and_the_next_link_taken() {
    let Some(lab) = Lab::up(&["2"]) else { return };
    // A mode that a veth interface does not have.
    let options = ["--link=xdp,packet,udp", "--env=WEFT_XDP_MODE=zerocopy"];
    let Some(said) = raw(&lab, "2", &options, &[]) else { return };
    assert_eq!(said.matches("link xdp is not available").count(), 2, "once a rank: {said}");
    assert!(said.contains("zerocopy") && said.contains("WEFT_XDP_MODE=generic"), "{said}");
}

#[test]
fn run__a_bridge_that_floods_disturbs_no_job() {
    let Some(lab) = Lab::up(&["4"]) else { return };
    // The switch forgets at once which port a station is at.
    if at_switch(&lab, "ip link set sw0 type bridge ageing_time 0").is_none() {
        return;
    }
    for link in ["packet", "gso", "xdp", "packet,udp", "packet,gso,udp"] {
        raw(&lab, "8", &[&format!("--link={link}")], &[]);
    }
}

/// Returns the datagrams that came to a port of h2 where nobody listens.
fn arrived(lab: &Lab) -> u64 {
    arrived_at(lab, "h2")
}

/// Counts the datagrams that came to a host for a port that nobody has.
fn arrived_at(lab: &Lab, host: &str) -> u64 {
    let table = lab.sh(host, "grep ^Udp: /proc/net/snmp");
    let mut lines = table.lines().map(|line| line.split_whitespace());
    let (mut names, mut values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.position(|name| name == "NoPorts").expect("the counter");
    values.nth(at).unwrap().parse::<u64>().unwrap()
}

/// Sends datagrams from h1 to such a port.
fn send_datagrams(lab: &Lab, count: u32) {
    let to = lab.status()["hosts"][1]["v4"].as_str().unwrap().to_owned();
    let script = format!("for i in $(seq {count}); do echo x > /dev/udp/{to}/9; done");
    let sent = lab.weft(&["lab", "exec", "h1", "bash", "-c", &script]);
    assert!(sent.status.success(), "{}", text(&sent.stderr));
}

#[test]
fn loss__takes_some_packets_and_not_all() {
    if !Path::new("/bin/bash").exists() {
        return weft_conformance::skip("no bash to send datagrams with");
    }
    let Some(whole) = Lab::up(&["2"]) else { return };
    send_datagrams(&whole, 50);
    until(|| arrived(&whole) >= 50, || format!("{} of 50 have arrived", arrived(&whole)));
    assert_eq!(arrived(&whole), 50);
    let Some(lossy) = Lab::up(&["2", "--loss", "50%"]) else { return };
    // The first packets ask for an Ethernet address, and may be lost as well.
    let mut sent = 0;
    while arrived(&lossy) == 0 {
        sent += 10;
        send_datagrams(&lossy, 10);
        assert!(sent < 10_000, "nothing arrives");
    }
    // 200 random decisions are not all equal.
    send_datagrams(&lossy, 200);
    let got = arrived(&lossy);
    assert!(0 < got && got < sent + 200, "{got}");
}

#[test]
fn loss__meets_single_packets_also_of_long_frames() {
    let Some(lab) = Lab::up(&["2", "--loss", "0.1%"]) else { return };
    let count = |what: &str| {
        let file = format!("cat /sys/class/net/eth0/statistics/rx_{what}");
        lab.sh("h1", &file).trim().parse::<u64>().expect("a number")
    };
    for link in ["udp", "packet,gso,udp"] {
        let (packets, bytes) = (count("packets"), count("bytes"));
        let incast = [WEFT, "selftest", "incast", "--bytes", "1000000", "--messages", "4"];
        let link = format!("--with=--link={link}");
        let ran = lab.weft(&[&["lab", "run", "-n", "2", &link][..], &incast].concat());
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        let (packets, bytes) = (count("packets") - packets, count("bytes") - bytes);
        assert!(bytes > 4_000_000 && bytes / packets <= 1514, "{link}: {bytes} in {packets}");
    }
}

#[test]
fn delay__is_as_long_as_asked_for() {
    let Some(lab) = Lab::up(&["2", "--delay", "20ms"]) else { return };
    if !Path::new("/bin/bash").exists() {
        return weft_conformance::skip("no bash to measure a round trip with");
    }
    // Nobody listens: one packet in each direction. The first asks for an Ethernet address, too.
    let to = lab.status()["hosts"][1]["v4"].as_str().unwrap().to_owned();
    let script = format!(
        "for i in $(seq 10); do a=${{EPOCHREALTIME/[.,]/}}; (exec 3<>/dev/tcp/{to}/9) 2>&-; \
         b=${{EPOCHREALTIME/[.,]/}}; echo $((b - a)); done"
    );
    let mut all = Vec::new();
    while all.len() < 5 {
        let ran = lab.weft(&["lab", "exec", "h1", "bash", "-c", &script]);
        let said = text(&ran.stdout);
        let took = said.lines().map(|line| line.parse::<u64>().expect("microseconds"));
        let least = took.min().unwrap_or_else(|| panic!("{}", text(&ran.stderr)));
        assert!(least >= 40_000, "sooner than asked for: {said}");
        if least < 50_000 {
            return;
        }
        all.push(least);
    }
    panic!("round trips of twice 20 ms took at least {all:?} us");
}

#[test]
fn queue__has_room_for_as_much_as_asked_for() {
    if !Path::new("/bin/bash").exists() {
        return weft_conformance::skip("no bash to send datagrams with");
    }
    const EACH: u64 = 100;
    for (queue, room) in [("5K", false), ("1M", true)] {
        let Some(lab) = Lab::up(&["3", "--rate", "1mbit", "--queue", queue]) else { return };
        // Twice the rate of the receiver, after the first bytes of each stream have arrived.
        std::thread::scope(|scope| {
            for host in ["h2", "h3"] {
                let script = format!(
                    "printf -v x %1000s; \
                     for i in $(seq {EACH}); do echo \"$x\" > /dev/udp/h1/9; done"
                );
                let lab = &lab;
                scope.spawn(move || {
                    let sent = lab.weft(&["lab", "exec", host, "bash", "-c", &script]);
                    assert!(sent.status.success(), "{}", text(&sent.stderr));
                });
            }
        });
        let dropped = || through_queue(&lab).map(|[_, dropped]| dropped);
        if dropped().is_none() {
            return;
        }
        match room {
            true => {
                let all = || arrived_at(&lab, "h1") == 2 * EACH;
                until(all, || format!("{} have arrived", arrived_at(&lab, "h1")));
                assert_eq!(dropped(), Some(0), "there is room for all");
            }
            false => until(|| dropped() > Some(0), || "no loss".into()),
        }
    }
}

#[test]
fn up__labs_side_by_side_have_their_own_networks() {
    let (Some(a), Some(b)) = (Lab::up(&["1"]), Lab::up(&["2", "--direct"])) else { return };
    assert_ne!(a.status()["hosts"][0]["v4"], b.status()["hosts"][0]["v4"]);
    let list = text(&a.weft(&["lab", "list"]).stdout);
    assert!(list.contains(&a.name) && list.contains(&b.name), "{list}");
    let again = a.weft(&["lab", "up", "1"]);
    assert!(!again.status.success() && text(&again.stderr).contains("lab down"));
}

#[test]
fn down__ends_what_runs_on_the_hosts() {
    let Some(lab) = Lab::up(&["2"]) else { return };
    let running = lab.sleeper("h2");
    assert!(lab.weft(&["lab", "down"]).status.success());
    running.finish().assert_code(137);
    lab.wait_until_nothing_left();
    let again = lab.weft(&["lab", "down"]);
    assert!(text(&again.stderr).contains("no lab named"), "{}", text(&again.stderr));
}

#[test]
fn kill__of_the_keeper_leaves_nothing_and_the_name_is_free() {
    let Some(lab) = Lab::up(&["2", "--delay", "1ms"]) else { return };
    let running = lab.sleeper("h1");
    kill(&lab.status()["keeper"]);
    running.finish().assert_code(137);
    lab.wait_until_nothing_left();
    assert!(lab.weft(&["lab", "up", "1"]).status.success());
}

#[test]
fn kill__of_a_host_is_seen_and_named() {
    let Some(lab) = Lab::up(&["2"]) else { return };
    let running = lab.sleeper("h2");
    kill(&lab.status()["hosts"][1]["pid"]);
    running.finish().assert_code(137);
    until(|| lab.status()["hosts"][1]["up"] == false, || "up".into());
    let exec = lab.weft(&["lab", "exec", "h2", "true"]);
    assert!(text(&exec.stderr).contains("h2 has ended"), "{}", text(&exec.stderr));
    assert_eq!(lab.code(&["h1", "true"]), Some(0));
    assert!(lab.weft(&["lab", "down"]).status.success());
    lab.wait_until_nothing_left();
}

#[test]
fn kill__of_exec_ends_its_command() {
    let Some(lab) = Lab::up(&["1"]) else { return };
    let running = lab.sleeper("h1");
    let asleep = || lab.sh("h1", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").contains("sleep 1000");
    assert!(asleep());
    running.signal("KILL");
    until(|| !asleep(), || "the command runs".into());
}

#[test]
fn exec__passes_signals_on() {
    let Some(lab) = Lab::up(&["1"]) else { return };
    let script = "trap 'exit 5' TERM; echo asleep; sleep 1000 & wait";
    let command = lab.command(&["lab", "exec", "h1", "sh", "-c", script]);
    let mut running = Job::of_marked(command, &lab.name).start();
    running.lines(1, "asleep");
    running.signal("TERM");
    // A sleeping child of the shell holds the output open until the lab ends.
    until(
        || !lab.sh("h1", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").contains("trap"),
        || "the shell runs".into(),
    );
    assert!(lab.weft(&["lab", "down"]).status.success());
    running.finish().assert_code(5);
}

#[test]
fn kill__of_a_job_with_its_own_lab_leaves_nothing() {
    for signal in ["KILL", "INT", "TERM"] {
        let lab = Lab::unmade();
        let args = ["lab", "run", "--up", "2", "sh", "-c", "echo asleep; exec sleep 1000"];
        if Lab::up(&["1"]).is_none() {
            return;
        }
        let mut running = Job::of_marked(lab.command(&args), &lab.name).start();
        running.lines(2, "asleep");
        running.signal(signal);
        assert_ne!(running.finish().code, Some(0), "{signal}");
        lab.wait_until_nothing_left();
    }
}

/// Runs a benchmark between hosts of labs of its own; `at`: kills it when a process of that name
/// exists.
fn bench(link: &str, at: Option<&str>) {
    let lab = Lab::unmade();
    let effort = if at.is_some() { "--repeat=1000" } else { "--quick" };
    let mut command = lab.command(&["bench", "pingpong", "--link", link, "--size", "16", effort]);
    let mut bench = command.stdout(Stdio::null()).spawn().expect("weft starts");
    if let Some(name) = at {
        let there = || left_behind(&lab.name).iter().any(|line| line.contains(name));
        until(there, || format!("no {name}: {:?}", left_behind(&lab.name)));
        bench.kill().expect("it runs");
    }
    assert_eq!(bench.wait().expect("a status").success(), at.is_none(), "{link}, {at:?}");
    lab.wait_until_nothing_left();
    let list = text(&lab.weft(&["lab", "list"]).stdout);
    assert!(!list.contains(&format!("bench-{}-", bench.id())), "{list}");
}

#[test]
fn bench__leaves_no_hosts_when_it_ends_or_is_killed() {
    if !weft_conformance::are_built(WEFT, &["weft-bench"]) || Lab::up(&["1"]).is_none() {
        return;
    }
    for at in [None, Some("lab-keeper"), Some("lab-host"), Some("bench-rank")] {
        bench("packet", at);
    }
    if !Path::new(WEFT).with_file_name("weftd").is_file() {
        return weft_conformance::skip("no weftd beside weft: not with agents");
    }
    for at in [None, Some("weftd"), Some("bench-rank")] {
        bench("agent", at);
    }
}

#[test]
fn up__without_root_works_or_says_what_it_takes() {
    let lab = Lab::unmade();
    let nobody = |words: &[&str]| {
        let mut command = lab.command(words);
        command.uid(65534).gid(65534).current_dir("/").output()
    };
    if !is_root() {
        return weft_conformance::skip("only root can become another user; see the other tests");
    }
    let up = match nobody(&["lab", "up", "2"]) {
        Ok(up) => up,
        Err(e) => return weft_conformance::skip(&format!("{WEFT} as another user: {e}")),
    };
    if !up.status.success() {
        let why = text(&up.stderr);
        assert!(why.contains("CAP_SYS_ADMIN") && why.contains("user namespaces"), "{why}");
        return weft_conformance::skip(&why);
    }
    assert!(text(&up.stdout).contains("without root"), "{}", text(&up.stdout));
    let id = nobody(&["lab", "exec", "h1", "id", "-u"]).unwrap();
    assert_eq!(text(&id.stdout).trim(), "0", "{}", text(&id.stderr));
    assert!(nobody(&["lab", "down"]).unwrap().status.success());
    lab.wait_until_nothing_left();
}

fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line.starts_with("Uid:\t0\t0")))
}

#[test]
fn args__bad_ones_are_refused() {
    for words in [
        &["up", "0"][..],
        &["up", "251"],
        &["up", "2", "--loss", "1"],
        &["up", "2", "--rate", "fast"],
        &["up", "3", "--direct"],
        &["up", "2", "--direct", "--loss", "1%"],
        &["up", "2", "--name", "A b"],
        &["exec", "--name", "../x", "h1", "true"],
    ] {
        let output = Lab::unmade().weft(&[&["lab"], words].concat());
        assert!(!output.status.success(), "{words:?} was accepted");
        assert!(!output.stderr.is_empty(), "{words:?} was refused without a word");
    }
}
