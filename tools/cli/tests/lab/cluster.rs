//! Two hosts that become one cluster by the commands of the guide, and programs that find each
//! other by name.

use super::*;

pub const AGENT: &str = "@weft-lab-cluster";

pub fn agent(lab: &Lab, host: &str, words: &[&str]) -> Running {
    let weftd = Path::new(WEFT).with_file_name("weftd");
    let weftd = weftd.to_str().expect("a path in UTF-8");
    let common = ["lab", "exec", host, weftd, "--name", AGENT, "--user=", "--links", "udp"];
    let command = lab.command(&[&common[..], &["--cluster", "lab"], words].concat());
    let mut agent = Job::of_marked(command, &lab.name).start();
    agent.lines(1, "serving at");
    agent
}

/// Returns the command `weft` with these words on a host.
pub fn weft(lab: &Lab, host: &str, words: &str) -> Command {
    // Signals come to the command itself.
    let line = format!("exec env WEFT_AGENT={AGENT} {WEFT} {words}");
    lab.command(&["lab", "exec", host, "sh", "-c", &line])
}

pub fn said(lab: &Lab, host: &str, words: &str) -> String {
    let output = weft(lab, host, words).output().expect("weft starts");
    assert!(output.status.success(), "{words}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs a command on the second host that fails with a text on stderr, and says nothing else.
fn refused(lab: &Lab, words: &str, why: &str) {
    let output = weft(lab, "h2", words).output().expect("weft starts");
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert!(!output.status.success() && told.contains(why), "{words}: {told}");
    assert_eq!(said, "", "{words}");
}

#[test]
fn cluster__two_hosts_and_two_programs_find_each_other_by_name() {
    if !Path::new(WEFT).with_file_name("weftd").is_file() {
        return weft_conformance::skip("weftd is not built beside weft (cargo build -p weftd)");
    }
    let Some(lab) = Lab::up(&["2"]) else { return };
    let folder = std::env::temp_dir().join(format!("weft-lab-cluster-{}", lab.name));
    let key = folder.join("cluster.key").display().to_string();
    let made = said(&lab, "h1", &format!("cluster init {key}"));
    assert!(made.contains("--cluster-key"), "{made}");
    let again = weft(&lab, "h1", &format!("cluster init {key}")).output().unwrap();
    assert!(text(&again.stderr).contains("exists already"), "{}", text(&again.stderr));
    let _one = agent(&lab, "h1", &["--cluster-key", &key]);
    let _two = agent(&lab, "h2", &["--cluster-key", &key, "--join", "h1"]);
    until(
        || said(&lab, "h2", "cluster status").contains("2 of 2 hosts are there"),
        || said(&lab, "h2", "cluster status --counters"),
    );
    // The program on h1 lives until the claimant ends.
    let claim = weft(&lab, "h1", "names claim web --at 10.1.2.3:80 --unique -- sleep 1000");
    let mut web = Job::of_marked(claim, &lab.name).start();
    web.lines(1, "claimed web");
    assert!(said(&lab, "h2", "names wait web").contains("10.1.2.3:80"));
    assert_eq!(said(&lab, "h2", "names resolve web"), "10.1.2.3:80\n");
    let listed = said(&lab, "h2", "names list --json");
    let row: Value = serde_json::from_str(listed.trim()).expect("one object");
    assert_eq!((&row["name"], &row["unique"]), (&Value::from("web"), &Value::from(true)));
    let second = weft(&lab, "h2", "names claim web --at 10.1.2.3:81 --unique").output().unwrap();
    assert!(text(&second.stderr).contains("has the name"), "{}", text(&second.stderr));
    assert!(!text(&second.stderr).contains(row["host"].as_str().unwrap()), "hosts have names");
    refused(&lab, "names send web hello", "takes no messages");
    refused(&lab, "names claim cmd -- ./no-such-command", "there is no command ./no-such-command");
    refused(&lab, "names claim 5:1", "below 64");
    refused(&lab, "names wait typo --timeout 6", "waiting for typo: 0 of 1 owners");
    let mut mark = Job::of_marked(weft(&lab, "h1", "names claim mark"), &lab.name).start();
    mark.lines(1, "claimed mark");
    assert!(said(&lab, "h2", "names wait mark").contains("no address"));
    refused(&lab, "names resolve mark", "gave no address");
    let claim = weft(&lab, "h1", "names claim ear:1 --messages");
    let mut ear = Job::of_marked(claim, &lab.name).start();
    ear.lines(1, "claimed ear:1");
    said(&lab, "h2", "names wait ear");
    said(&lab, "h2", "names send --all ear hello");
    ear.lines(1, "hello");
    let join = weft(&lab, "h1", "names group join chat:1 < /dev/null");
    let mut member = Job::of_marked(join, &lab.name).start();
    member.lines(1, "these are all");
    said(&lab, "h2", "names wait chat:1");
    said(&lab, "h2", "names group send chat 'to all' --all");
    member.lines(1, "to all");
    refused(&lab, "names group send chat:7 hello", "no member");
    jobs_are_seen_from_the_other_host(&lab);
    a_deadlock_between_hosts_is_called_one(&lab);
    let run = weft(&lab, "h1", "run --hosts name:nobody true").output().unwrap();
    assert!(text(&run.stderr).contains("nobody has the name"), "{}", text(&run.stderr));
    let _ = std::fs::remove_dir_all(folder);
}

/// A job of h1 is shown on h2, by `weft top` and by `weft cluster status`, as one of h1.
fn jobs_are_seen_from_the_other_host(lab: &Lab) {
    let app = "app sor --size 200 --tolerance 0 --iterations 1000000000";
    let job = Job::of_marked(weft(lab, "h1", &format!("run -n 2 {WEFT} {app}")), &lab.name).start();
    let rows = |words: &str| -> Vec<Value> {
        let said = said(lab, "h2", words);
        said.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
    };
    let ranks = |host: &str| {
        let all = rows("cluster status --json");
        let host = all.into_iter().find(|row| row["name"] == host).expect("a host of this name");
        (host["ranks"].as_u64(), host["jobs"][0]["ranks"].clone())
    };
    until(|| ranks("h1").0 == Some(2), || said(lab, "h2", "cluster status --counters"));
    assert_eq!(ranks("h1").1, serde_json::json!([0, 1]));
    assert_eq!(ranks("h2"), (Some(0), Value::Null));
    let seen: Vec<Value> =
        rows("top --once --json").into_iter().filter(|row| row["host"] == "h1").collect();
    assert_eq!(seen.len(), 2, "each once: {seen:?}");
    let status = said(lab, "h2", "cluster status");
    let line = status.lines().find(|line| line.contains(" 2/2 ")).expect("a line of the job");
    assert!(line.ends_with(" h1"), "{status}");
    // The agent has the ranks' pages too, and a lower number.
    for row in rows("top --once --json --here") {
        let line = std::fs::read_to_string(format!("/proc/{}/cmdline", row["pid"])).unwrap();
        assert!(line.contains("sor"), "{line:?} is no rank: {row}");
    }
    job.signal("TERM");
    until(|| ranks("h1").0 == Some(0), || said(lab, "h2", "cluster status"));
}

/// Ranks of two hosts wait for each other; `weft top` says so on both.
fn a_deadlock_between_hosts_is_called_one(lab: &Lab) {
    let words = ["lab", "run", "-n", "2", "--with=--env=WEFT_AGENT=@weft-lab-cluster"];
    let circle = lab.command(&[&words[..], &[WEFT, "selftest", "circle"]].concat());
    let job = Job::of_marked(circle, &lab.name).start();
    for host in ["h1", "h2"] {
        let all = "all 2 ranks wait: 0 for 1 (tag 0x7), 1 for 0 (tag 0x7)";
        let seen = || said(lab, host, "top --once");
        until(|| seen().contains("DEADLOCK in weft-") && seen().contains(all), seen);
    }
    job.signal("INT");
    job.finish();
}
