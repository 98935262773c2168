//! Counters as a table, as JSON and for Prometheus.

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, SystemTime};
use weft::counters::Snapshot;
use weft::Stats;

/// One rank.
#[derive(Debug, Serialize)]
pub struct Row {
    job: String,
    rank: u64,
    size: u64,
    pid: u32,
    host: String,
    /// Seconds since the rank started.
    seconds: f64,
    /// Messages sent and received a second.
    messages_per_s: f64,
    /// Payload bytes sent and received a second.
    bytes_per_s: f64,
    peers: u64,
    counters: BTreeMap<String, u64>,
}

fn host() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().into_owned()
}

fn messages(s: &Snapshot) -> u64 {
    s.get("messages_sent").saturating_add(s.get("messages_received"))
}

/// Bytes of direct copies go through no packet.
fn bytes(s: &Snapshot) -> u64 {
    let packets = s.get("bytes_sent").saturating_add(s.get("bytes_received"));
    packets.saturating_add(s.get("direct_bytes"))
}

fn between(from: SystemTime, to: SystemTime) -> Duration {
    to.duration_since(from).unwrap_or_default()
}

impl Row {
    /// A rank with its rates since `past`, or since it started.
    pub fn new(now: &Snapshot, past: Option<&Snapshot>) -> Row {
        let since = past.map_or(now.start, |past| past.updated);
        // A rank that writes nothing does nothing: time passes all the same.
        let seconds = between(since, SystemTime::now()).as_secs_f64().max(1e-3);
        let rate =
            |of: fn(&Snapshot) -> u64| of(now).saturating_sub(past.map_or(0, of)) as f64 / seconds;
        Row {
            job: now.job.clone(),
            rank: now.rank,
            size: now.size,
            pid: now.pid,
            host: host(),
            seconds: between(now.start, SystemTime::now()).as_secs_f64(),
            messages_per_s: rate(messages),
            bytes_per_s: rate(bytes),
            peers: now.peers,
            counters: now.counters.clone(),
        }
    }

    fn get(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }
}

/// A table for people.
pub fn table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "no ranks of this user run on this machine\n".to_string();
    }
    let mut out = format!(
        "{:<20} {:>9} {:>8} {:<12} {:>9} {:>11} {:>10} {:>8} {:>9} {:>6}\n",
        "JOB", "RANK", "PID", "HOST", "TIME", "MSGS/S", "MB/S", "RETRANS", "WAITS", "PEERS"
    );
    for row in rows {
        let cut = |text: &str, most: usize| text.chars().take(most).collect::<String>();
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{:<20} {:>9} {:>8} {:<12} {:>8.0}s {:>11.0} {:>10.1} {:>8} {:>9} {:>6}",
            cut(&row.job, 20),
            format!("{}/{}", row.rank, row.size),
            row.pid,
            cut(&row.host, 12),
            row.seconds,
            row.messages_per_s,
            row.bytes_per_s / 1e6,
            row.get("retransmitted"),
            row.get("waits"),
            row.peers,
        );
    }
    out
}

/// One object a line.
pub fn json(rows: &[Row]) -> serde_json::Result<String> {
    let mut out = String::new();
    for row in rows {
        out.push_str(&serde_json::to_string(row)?);
        out.push('\n');
    }
    Ok(out)
}

/// A label's value: backslash, quote and line end are escaped.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The Prometheus text exposition format, version 0.0.4.
pub fn prometheus(all: &[Snapshot]) -> String {
    let mut metrics: BTreeMap<&str, Vec<(&Snapshot, u64)>> = BTreeMap::new();
    for snapshot in all {
        for (name, value) in &snapshot.counters {
            metrics.entry(name).or_default().push((snapshot, *value));
        }
    }
    let mut out = String::new();
    let label = |s: &Snapshot| format!("job=\"{}\",rank=\"{}\"", escape(&s.job), s.rank);
    for (name, values) in &metrics {
        let what = Stats::NAMES.iter().find(|(known, _)| known == name);
        if let Some((_, help)) = what {
            let _ = writeln!(out, "# HELP weft_{name}_total {help}");
        }
        let _ = writeln!(out, "# TYPE weft_{name}_total counter");
        for (snapshot, value) in values {
            let _ = writeln!(out, "weft_{name}_total{{{}}} {value}", label(snapshot));
        }
    }
    let _ = writeln!(out, "# HELP weft_peers Peers of the endpoint.\n# TYPE weft_peers gauge");
    for snapshot in all {
        let _ = writeln!(out, "weft_peers{{{}}} {}", label(snapshot), snapshot.peers);
    }
    out
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn snapshot(sent: u64, at: u64) -> Snapshot {
        let start = SystemTime::now() - Duration::from_secs(10);
        Snapshot {
            pid: 1,
            job: "j\"x".into(),
            rank: 0,
            size: 1,
            start,
            updated: start + Duration::from_secs(at),
            peers: 3,
            counters: [("messages_sent".to_string(), sent)].into(),
        }
    }

    #[test]
    fn row__rates_since_the_past() {
        let row = Row::new(&snapshot(300, 10), Some(&snapshot(100, 8)));
        assert!(row.messages_per_s > 50.0 && row.messages_per_s < 101.0, "{}", row.messages_per_s);
        let fewer = Row::new(&snapshot(1, 10), Some(&snapshot(2, 8)));
        assert_eq!(fewer.messages_per_s, 0.0);
    }

    #[test]
    fn prometheus__labels_are_escaped() {
        let text = prometheus(&[snapshot(5, 1)]);
        assert!(text.contains("weft_messages_sent_total{job=\"j\\\"x\",rank=\"0\"} 5\n"), "{text}");
        assert!(text.contains("weft_peers{job=\"j\\\"x\",rank=\"0\"} 3\n"), "{text}");
    }
}
