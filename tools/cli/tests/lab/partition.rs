//! Clusters whose network is cut and mended, and whose agents are stopped and killed meanwhile: no
//! event comes twice or not at all, and all agents agree in the end.

use super::cluster::{agent, said, weft, AGENT};
use super::*;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Agents on the hosts of a lab, whose network can be cut.
struct Cluster {
    lab: Lab,
    key: String,
    agents: BTreeMap<&'static str, Running>,
}

/// A program that watches names and hosts.
struct Watcher {
    host: &'static str,
    names: Running,
    hosts: Running,
}

impl Cluster {
    /// Starts an agent on each host. `None`, with a note, if labs or cuts are not possible here.
    fn up(hosts: &[&'static str]) -> Option<Cluster> {
        if !Path::new(WEFT).with_file_name("weftd").is_file() {
            weft_conformance::skip("weftd is not built beside weft (cargo build -p weftd)");
            return None;
        }
        let lab = Lab::up(&[&hosts.len().to_string()])?;
        for host in hosts {
            // Rules come before the table of local addresses then.
            let script = "ip rule add pref 100 lookup local && ip rule del pref 0 && echo ready";
            let ready = lab.weft(&["lab", "exec", host, "sh", "-c", script]);
            if !ready.stdout.starts_with(b"ready") {
                weft_conformance::skip(&format!("no ip rules here: {}", text(&ready.stderr)));
                return None;
            }
        }
        let key = std::env::temp_dir().join(format!("weft-lab-partition-{}.key", lab.name));
        let key = key.display().to_string();
        said(&lab, hosts[0], &format!("cluster init {key}"));
        let mut cluster = Cluster { lab, key, agents: BTreeMap::new() };
        for &host in hosts {
            cluster.start(host, hosts.len());
        }
        let all = format!("{0} of {0} hosts are there", hosts.len());
        for host in hosts {
            let status = || said(&cluster.lab, host, "cluster status");
            until(|| status().contains(&all), status);
        }
        Some(cluster)
    }

    fn start(&mut self, host: &'static str, hosts: usize) {
        let join = format!("h[1-{hosts}]");
        let words = ["--cluster-key", &self.key, "--join", &join, "--cluster-multicast", "off"];
        self.agents.insert(host, agent(&self.lab, host, &words));
    }

    /// Sends a signal to the agent of a host.
    fn signal(&self, host: &str, signal: &str) {
        let pids = "for p in /proc/[0-9]*; do [ \"$(readlink $p/exe)\" = \"$0\" ] && \
                    echo ${p#/proc/}; done";
        let weftd = Path::new(WEFT).with_file_name("weftd").canonicalize().expect("a file");
        let weftd = weftd.display().to_string();
        let found = self.lab.weft(&["lab", "exec", host, "sh", "-c", pids, &weftd]);
        let pid = text(&found.stdout);
        self.lab.sh(host, &format!("kill -{signal} {}", pid.trim()));
    }

    fn kill(&mut self, host: &str) {
        self.signal(host, "KILL");
        self.agents.remove(host).expect("an agent").finish();
    }

    /// Has the packets of a host not arrive at another one.
    fn cut(&self, from: &str, to: &str) {
        let status = self.lab.status();
        let hosts = status["hosts"].as_array().expect("hosts");
        let address = hosts.iter().find(|host| host["name"] == from).expect("a host")["v4"].clone();
        let address = address.as_str().expect("an address");
        self.lab.sh(to, &format!("ip rule add pref 10 from {address} iif eth0 blackhole"));
    }

    fn heal(&self) {
        for host in self.agents.keys() {
            self.lab.sh(host, "while ip rule del pref 10 2>/dev/null; do :; done");
        }
    }

    fn watch(&self, host: &'static str) -> Watcher {
        let start = |words: &str| Job::of_marked(weft(&self.lab, host, words), &self.lab.name);
        let mut names = start("names watch svc --json").start();
        names.lines(1, "snapshot_end");
        Watcher { host, names, hosts: start("cluster watch --json").start() }
    }

    fn claim(&self, host: &'static str, words: &str) -> Running {
        let words = format!("names claim {words}");
        let mut claim = Job::of_marked(weft(&self.lab, host, &words), &self.lab.name).start();
        claim.lines(1, "claimed");
        claim
    }

    fn rows(&self, host: &str) -> Vec<Value> {
        let list = said(&self.lab, host, "names list --json");
        list.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
    }

    /// Returns the names that a host knows, each with the name of its owner's host.
    fn names(&self, host: &str) -> BTreeSet<(String, String)> {
        self.rows(host).iter().map(|row| (word(row, "name"), word(row, "host_name"))).collect()
    }

    /// Returns the names that a host knows, each with its owner.
    fn owners(&self, host: &str) -> BTreeSet<String> {
        self.rows(host).iter().map(owner).collect()
    }

    fn until_names(&self, host: &str, expected: &[(&str, &str)]) {
        let expected: BTreeSet<(String, String)> =
            expected.iter().map(|(n, h)| ((*n).to_string(), (*h).to_string())).collect();
        until(|| self.names(host) == expected, || format!("{host}: {:?}", self.names(host)));
    }

    /// Waits until all hosts say the same of all hosts.
    fn until_agreed(&self) {
        let rows = |host: &str| -> BTreeSet<String> {
            let status = said(&self.lab, host, "cluster status --json");
            let row = |line: &str| {
                let row: Value = serde_json::from_str(line).expect("an object");
                json!([row["name"], row["incarnation"], row["step"], row["up"]]).to_string()
            };
            status.lines().map(row).collect()
        };
        let all = || self.agents.keys().map(|host| rows(host)).collect::<Vec<_>>();
        let is_up = |row: &String| row.ends_with("true]");
        let agreed = || all().windows(2).all(|two| two[0] == two[1] && two[0].iter().all(is_up));
        until(agreed, || format!("{:?}", all()));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.key);
    }
}

fn word(row: &Value, key: &str) -> String {
    row[key].as_str().expect("a text").to_string()
}

/// Returns a name with its owner: host and process.
fn owner(row: &Value) -> String {
    json!([row["name"], row["host"], row["process"]]).to_string()
}

fn events(watch: &mut Running) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    watch.said().lines().map(parse).collect()
}

impl Watcher {
    /// Checks that each name came and went by turns, each time with a cause, and waits until these
    /// are there; returns the causes.
    fn check_names(&mut self, expected: &BTreeSet<String>) -> Vec<String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let (mut there, mut causes) = (BTreeSet::new(), Vec::new());
            for event in events(&mut self.names) {
                let row = owner(&event["binding"]);
                match event["event"].as_str() {
                    Some("published") => {
                        assert!(there.insert(row), "{} twice: {event}", self.host);
                    }
                    Some("withdrawn") => {
                        assert!(there.remove(&row), "{} twice: {event}", self.host);
                        causes.push(word(&event, "cause"));
                    }
                    _ => {}
                }
            }
            if there == *expected {
                return causes;
            }
            assert!(Instant::now() < deadline, "{}: {there:?}", self.host);
            std::thread::yield_now();
        }
    }

    /// Checks that the steps of each host were reported in order, one loss and one return by turns;
    /// returns host and cause of each loss.
    fn check_hosts(&mut self) -> Vec<(String, String)> {
        let (mut last, mut losses) = (BTreeMap::new(), Vec::new());
        for event in events(&mut self.hosts) {
            let number = |key: &str| event[key].as_u64().expect("a number");
            let step = (number("incarnation"), number("step"));
            let up = event["up"].as_bool().expect("a state");
            assert_eq!(up, step.1 % 2 == 1, "{event}");
            if let Some((before, was_up)) = last.insert(word(&event, "host"), (step, up)) {
                assert!(before < step && was_up != up, "{}: {event}", self.host);
            }
            if !up {
                losses.push((word(&event, "name"), word(&event, "cause")));
            }
        }
        losses
    }
}

#[test]
fn partition__parts_go_on_and_agree_when_it_heals() {
    let Some(mut cluster) = Cluster::up(&["h1", "h2", "h3", "h4"]) else { return };
    let mut watchers: Vec<Watcher> = ["h1", "h3", "h4"].map(|host| cluster.watch(host)).into();
    let first =
        ["h1", "h2", "h3", "h4"].map(|host| cluster.claim(host, &format!("svc:{}", &host[1..])));
    for (from, to) in [("h1", "h3"), ("h1", "h4"), ("h2", "h3"), ("h2", "h4")] {
        cluster.cut(from, to);
        cluster.cut(to, from);
    }
    let _one = ["h1", "h3"].map(|host| cluster.claim(host, &format!("svc:1{}", &host[1..])));
    cluster.until_names("h2", &[("svc:1", "h1"), ("svc:11", "h1"), ("svc:2", "h2")]);
    cluster.until_names("h4", &[("svc:13", "h3"), ("svc:3", "h3"), ("svc:4", "h4")]);
    // Each part has one owner of the unique name.
    let _unique = ["h1", "h3"].map(|host| cluster.claim(host, "svc:99 --unique"));
    // An agent ends and begins within the cut; its programs claim again.
    cluster.kill("h2");
    cluster.start("h2", 4);
    let _again = cluster.claim("h2", "svc:22");
    cluster.until_names(
        "h1",
        &[("svc:1", "h1"), ("svc:11", "h1"), ("svc:22", "h2"), ("svc:99", "h1")],
    );
    cluster.heal();
    cluster.until_agreed();
    let winner = {
        let of = |names: BTreeSet<(String, String)>| -> Vec<String> {
            names.into_iter().filter(|(name, _)| name == "svc:99").map(|(_, host)| host).collect()
        };
        let owners = || ["h1", "h2", "h3", "h4"].map(|host| of(cluster.names(host)));
        until(
            || owners().iter().all(|one| one.len() == 1 && *one == owners()[0]),
            || format!("{:?}", owners()),
        );
        owners()[0][0].clone()
    };
    let all = [
        ("svc:1", "h1"),
        ("svc:11", "h1"),
        ("svc:13", "h3"),
        ("svc:22", "h2"),
        ("svc:3", "h3"),
        ("svc:4", "h4"),
        ("svc:99", winner.as_str()),
    ];
    ["h1", "h2", "h3", "h4"].iter().for_each(|host| cluster.until_names(host, &all));
    let expected = cluster.owners("h1");
    for watcher in &mut watchers {
        let causes = watcher.check_names(&expected);
        assert!(causes.iter().any(|cause| cause.contains("its host: ")), "{causes:?}");
        let losses = watcher.check_hosts();
        let others = if watcher.host == "h1" { ["h3", "h4"] } else { ["h1", "h2"] };
        for other in others {
            let silent =
                |(host, cause): &(String, String)| host == other && cause.contains("silent");
            assert!(losses.iter().any(silent), "{}: {losses:?}", watcher.host);
        }
    }
    drop(first);
}

#[test]
fn partition__a_cut_in_one_direction_loses_no_host_and_no_name() {
    let Some(cluster) = Cluster::up(&["h1", "h2", "h3"]) else { return };
    let mut watchers = ["h1", "h2", "h3"].map(|host| cluster.watch(host));
    cluster.cut("h1", "h2");
    let _one = cluster.claim("h1", "svc:1");
    let _two = cluster.claim("h2", "svc:2");
    let both = [("svc:1", "h1"), ("svc:2", "h2")];
    ["h1", "h2", "h3"].iter().for_each(|host| cluster.until_names(host, &both));
    // Several tolerances pass until so many more probes have gone.
    let probes = || -> u64 {
        let status = said(&cluster.lab, "h3", "cluster status --json");
        let of = |line: &str| {
            let row: Value = serde_json::from_str(line).expect("an object");
            row["probes"].as_u64().unwrap_or(0)
        };
        status.lines().map(of).sum()
    };
    let before = probes();
    until(|| probes() > before + 20, || format!("{} of {before} probes", probes()));
    for watcher in &mut watchers {
        let (lost, gone) = (watcher.check_hosts(), watcher.check_names(&cluster.owners("h3")));
        assert!(lost.is_empty() && gone.is_empty(), "{}: {lost:?} {gone:?}", watcher.host);
    }
    cluster.heal();
    cluster.until_agreed();
}

#[test]
fn stopped__an_agent_goes_on_with_its_programs_whether_it_was_missed_or_not() {
    let Some(cluster) = Cluster::up(&["h1", "h2"]) else { return };
    let mut watchers = ["h1", "h2"].map(|host| cluster.watch(host));
    let _own = cluster.claim("h2", "svc:2");
    cluster.until_names("h1", &[("svc:2", "h2")]);
    // Shorter than the tolerance: the stop ends as soon as it is seen.
    cluster.signal("h2", "STOP");
    cluster.signal("h2", "CONT");
    // Longer: until the other host has given it up.
    cluster.signal("h2", "STOP");
    let waits = weft(&cluster.lab, "h2", "names wait svc:1 --timeout 100");
    let refused = Job::of_marked(waits, &cluster.lab.name).start();
    cluster.until_names("h1", &[]);
    let _one = cluster.claim("h1", "svc:1");
    let done = refused.finish();
    let told = done.err;
    assert!(told.contains(AGENT) && told.contains("does not answer within 2 s"), "{told}");
    cluster.signal("h2", "CONT");
    cluster.until_agreed();
    let both = [("svc:1", "h1"), ("svc:2", "h2")];
    ["h1", "h2"].iter().for_each(|host| cluster.until_names(host, &both));
    let expected = cluster.owners("h1");
    for watcher in &mut watchers {
        let causes = watcher.check_names(&expected);
        // Its own host saw the stop only as the loss of the other.
        let named = causes.iter().all(|cause| cause.starts_with("its host: "));
        assert!(named && (watcher.host == "h2" || !causes.is_empty()), "{causes:?}");
        watcher.check_hosts();
    }
}
