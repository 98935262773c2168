//! The counters of one rank with their rates, as JSON and for Prometheus.

use super::look::Seen;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, SystemTime};
use weft::counters::{Snapshot, Waiting};
use weft::Stats;

/// One rank.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Job it belongs to.
    pub job: String,
    /// Its number.
    pub rank: u64,
    /// Ranks of the job.
    pub size: u64,
    /// Its process ID.
    pub pid: u32,
    /// Its user, by number.
    pub user: u32,
    /// Its host.
    pub host: String,
    /// True if that is another one than this.
    #[serde(skip)]
    pub is_away: bool,
    /// Seconds since the rank started.
    pub seconds: f64,
    /// Messages sent and received per second.
    pub messages_per_s: f64,
    /// Payload bytes sent and received per second.
    pub bytes_per_s: f64,
    /// Peers of its endpoint.
    pub peers: u64,
    /// Its wait, if it waits for long.
    #[serde(serialize_with = "wait")]
    pub waiting: Option<Waiting>,
    counters: BTreeMap<String, u64>,
}

/// Serializes a wait: seconds, operations, and the peers that the first of them wait for.
fn wait<S: Serializer>(waiting: &Option<Waiting>, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Wait {
        seconds: f64,
        operations: u64,
        whom: String,
    }
    let wait = waiting.as_ref().map(|waiting| Wait {
        seconds: waiting.ago.as_secs_f64(),
        operations: waiting.count,
        whom: super::waits::whom(waiting),
    });
    wait.serialize(to)
}

fn messages(s: &Snapshot) -> u64 {
    s.get("messages_sent").saturating_add(s.get("messages_received"))
}

/// Bytes of direct copies are in no packet.
fn bytes(s: &Snapshot) -> u64 {
    let packets = s.get("bytes_sent").saturating_add(s.get("bytes_received"));
    packets.saturating_add(s.get("direct_bytes"))
}

fn between(from: SystemTime, to: SystemTime) -> Duration {
    to.duration_since(from).unwrap_or_default()
}

impl Row {
    /// Returns a rank with its rates since `past`, or since it started.
    pub fn new(seen: &Seen, past: Option<&Snapshot>) -> Row {
        let Seen { host, is_away, user, at, snapshot: now } = seen;
        let since = past.map_or(now.start, |past| past.updated);
        // A rank that writes no snapshot is idle, but its time passes.
        let seconds = between(since, *at).as_secs_f64().max(1e-3);
        let rate =
            |of: fn(&Snapshot) -> u64| of(now).saturating_sub(past.map_or(0, of)) as f64 / seconds;
        Row {
            job: now.job.clone(),
            rank: now.rank,
            size: now.size,
            pid: now.pid,
            user: *user,
            host: host.clone(),
            is_away: *is_away,
            seconds: between(now.start, *at).as_secs_f64(),
            messages_per_s: rate(messages),
            bytes_per_s: rate(bytes),
            peers: now.peers,
            waiting: now.waiting.clone(),
            counters: now.counters.clone(),
        }
    }

    /// Returns a counter; 0 if the rank has none of this name.
    pub fn get(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }
}

/// Returns one JSON object per line.
pub fn json(rows: &[Row]) -> serde_json::Result<String> {
    let mut out = String::new();
    for row in rows {
        out.push_str(&serde_json::to_string(row)?);
        out.push('\n');
    }
    Ok(out)
}

/// Escapes the value of a label: backslash, quote and line end.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Returns the help text of a metric: engines declare their counters, links only name theirs.
fn help(name: &str) -> String {
    if let Some((_, help)) = Stats::NAMES.iter().find(|(known, _)| *known == name) {
        return (*help).to_owned();
    }
    match name.split_once('_') {
        Some((link, what)) => format!("Counter {what} of the link {link}."),
        None => "Times the rank went to sleep until something happens.".to_owned(),
    }
}

/// True if a value of a link is a state, which may fall.
fn is_gauge(name: &str) -> bool {
    name.ends_with("_fault_held") || name.starts_with("xdp_interfaces_")
}

/// Returns the Prometheus text exposition format, version 0.0.4. The process is a label, because
/// all programs without a launcher are rank 0 of a job without a name.
pub fn prometheus(all: &[Seen]) -> String {
    let mut metrics: BTreeMap<&str, Vec<(&Snapshot, u64)>> = BTreeMap::new();
    for Seen { snapshot, .. } in all {
        for (name, value) in &snapshot.counters {
            metrics.entry(name).or_default().push((snapshot, *value));
        }
    }
    let mut out = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, values: &[(&Snapshot, u64)]| {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (s, value) in values {
            let (job, rank, pid) = (escape(&s.job), s.rank, s.pid);
            let _ = writeln!(out, "{name}{{job=\"{job}\",rank=\"{rank}\",pid=\"{pid}\"}} {value}");
        }
    };
    for (name, values) in &metrics {
        match is_gauge(name) {
            true => metric(&format!("weft_{name}"), "gauge", &help(name), values),
            false => metric(&format!("weft_{name}_total"), "counter", &help(name), values),
        }
    }
    let peers: Vec<_> = all.iter().map(|s| (&s.snapshot, s.snapshot.peers)).collect();
    metric("weft_peers", "gauge", "Peers of the endpoint.", &peers);
    let seconds = |s: &Snapshot| s.waiting.as_ref().map_or(0, |waiting| waiting.ago.as_secs());
    let waits: Vec<_> = all.iter().map(|s| (&s.snapshot, seconds(&s.snapshot))).collect();
    let help = "Seconds that the rank has waited for others; 0: it does not, or not for long.";
    metric("weft_waiting_seconds", "gauge", help, &waits);
    out
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn snapshot(sent: u64, at: u64) -> Seen {
        let start = SystemTime::now() - Duration::from_secs(10);
        Seen::here(Snapshot {
            pid: 1,
            job: "j\"x".into(),
            rank: 0,
            size: 1,
            start,
            updated: start + Duration::from_secs(at),
            peers: 3,
            waiting: None,
            counters: [("messages_sent".to_string(), sent)].into(),
        })
    }

    #[test]
    fn row__rates_since_the_past() {
        let row = Row::new(&snapshot(300, 10), Some(&snapshot(100, 8).snapshot));
        assert!(row.messages_per_s > 50.0 && row.messages_per_s < 101.0, "{}", row.messages_per_s);
        let fewer = Row::new(&snapshot(1, 10), Some(&snapshot(2, 8).snapshot));
        assert_eq!(fewer.messages_per_s, 0.0);
    }

    #[test]
    fn prometheus__labels_are_escaped() {
        let text = prometheus(&[snapshot(5, 1)]);
        let labels = "{job=\"j\\\"x\",rank=\"0\",pid=\"1\"}";
        assert!(text.contains(&format!("weft_messages_sent_total{labels} 5\n")), "{text}");
        assert!(text.contains(&format!("weft_peers{labels} 3\n")), "{text}");
    }

    #[test]
    fn prometheus__passes_its_own_rules() {
        // Two programs without a launcher, with counters that no engine declares.
        let mut all = [snapshot(1, 1), snapshot(2, 2)];
        all[1].snapshot.pid = 2;
        for counter in ["waits", "udp_send_full", "udp_fault_held", "xdp_interfaces_native"] {
            all[1].snapshot.counters.insert(counter.into(), 7);
        }
        let metrics = weft_conformance::exposition::check(&prometheus(&all)).unwrap();
        assert_eq!(metrics["weft_messages_sent_total"], 2);
        assert_eq!(metrics["weft_udp_fault_held"], 1);
        for (name, _) in Stats::NAMES {
            all[0].snapshot.counters.insert((*name).into(), 1);
        }
        weft_conformance::exposition::check(&prometheus(&all)).unwrap();
        weft_conformance::exposition::check(&prometheus(&[])).unwrap();
    }
}
