//! The launcher's side of PMI-1: the answer to each line of a rank.
//!
//! This module does no input or output; the launcher passes the lines.

use std::collections::BTreeMap;
use weft::launch::wire::{Line, LineError, MAX_LINE};

const KEYLEN_MAX: usize = 64;
const VALLEN_MAX: usize = 1024;
/// Bytes of keys and values that a job may store, per rank.
const STORE_PER_RANK: usize = 1 << 20;

/// The effect of a rank's line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write this text to the rank's connection.
    Reply { rank: usize, text: String },
    /// The rank leaves the job in good order.
    Left { rank: usize },
    /// The rank asks to end the job with this exit status.
    Abort { rank: usize, code: i32 },
    /// The rank violates the protocol.
    Violation { rank: usize, problem: String },
}

#[derive(Clone, Copy, Default)]
struct Rank {
    initialised: bool,
    waiting: bool,
    ended: bool,
    /// True inside a multi-line command whose end is still to come.
    multi: bool,
}

/// The key-value space and fence of one job.
pub struct Server {
    name: String,
    ranks: Vec<Rank>,
    store: BTreeMap<String, String>,
    stored: usize,
}

fn reply(rank: usize, line: Line) -> Vec<Effect> {
    vec![Effect::Reply { rank, text: format!("{line}\n") }]
}

fn result(cmd: &str, problem: Result<(), &str>) -> Line {
    match problem {
        Ok(()) => Line::new(cmd).with("rc", 0).with("msg", "success"),
        Err(text) => Line::new(cmd).with("rc", -1).with("msg", text),
    }
}

impl Server {
    /// Returns the server of a job named `name` with `size` ranks.
    pub fn new(name: String, size: usize) -> Self {
        let ranks = vec![Rank::default(); size];
        Server { name, ranks, store: BTreeMap::new(), stored: 0 }
    }

    /// Stores a value before any rank starts.
    pub fn seed(&mut self, key: &str, value: String) {
        self.store.insert(key.to_owned(), value);
    }

    /// True if a rank has joined.
    pub fn initialised(&self, rank: usize) -> bool {
        self.ranks[rank].initialised
    }

    /// Records that a rank's process ended.
    pub fn end(&mut self, rank: usize) {
        self.ranks[rank].ended = true;
        self.ranks[rank].waiting = false;
    }

    /// Returns a rank that ended, and the ranks that wait for it in a fence.
    pub fn stuck(&self) -> Option<(usize, Vec<usize>)> {
        let with = |test: fn(&Rank) -> bool| {
            (0..self.ranks.len()).filter(move |&rank| test(&self.ranks[rank]))
        };
        let waiting: Vec<usize> = with(|rank| rank.waiting).collect();
        if waiting.is_empty() {
            return None;
        }
        with(|rank| rank.ended).next().map(|ended| (ended, waiting))
    }

    /// Handles one line of a rank, newline excluded.
    pub fn handle(&mut self, rank: usize, bytes: &[u8]) -> Vec<Effect> {
        if self.ranks[rank].multi || bytes.starts_with(b"mcmd=") {
            return self.multi(rank, bytes);
        }
        match Line::parse(bytes) {
            Ok(line) => self.command(rank, &line),
            Err(error) => violation(rank, error, bytes),
        }
    }

    /// Multi-line commands start processes, which this launcher does not support.
    fn multi(&mut self, rank: usize, bytes: &[u8]) -> Vec<Effect> {
        let ends = bytes == b"endcmd";
        self.ranks[rank].multi = !ends;
        if bytes.len() > MAX_LINE {
            return violation(rank, LineError::TooLong, bytes);
        }
        if ends {
            return reply(rank, result("spawn_result", Err("weft_run_starts_no_more_ranks")));
        }
        Vec::new()
    }

    fn command(&mut self, rank: usize, line: &Line) -> Vec<Effect> {
        match line.cmd() {
            "init" => self.init(rank, line),
            "get_maxes" => {
                let maxes = Line::new("maxes").with("kvsname_max", 256);
                reply(rank, maxes.with("keylen_max", KEYLEN_MAX).with("vallen_max", VALLEN_MAX))
            }
            "get_appnum" => reply(rank, Line::new("appnum").with("appnum", 0)),
            "get_universe_size" => {
                reply(rank, Line::new("universe_size").with("size", self.ranks.len()))
            }
            "get_my_kvsname" => reply(rank, Line::new("my_kvsname").with("kvsname", &self.name)),
            "put" => {
                let done = self.put(line);
                reply(rank, result("put_result", done))
            }
            "get" => reply(rank, self.get(line)),
            "barrier_in" => self.barrier(rank),
            "finalize" => {
                let mut effects = reply(rank, Line::new("finalize_ack").with("rc", 0));
                effects.push(Effect::Left { rank });
                effects
            }
            "abort" => vec![Effect::Abort { rank, code: line.number("exitcode").unwrap_or(1) }],
            "getbyidx" => reply(
                rank,
                Line::new("getbyidx_results").with("rc", -1).with("reason", "not_supported"),
            ),
            "publish_name" => reply(rank, result("publish_result", Err("not_supported"))),
            "unpublish_name" => reply(rank, result("unpublish_result", Err("not_supported"))),
            "lookup_name" => reply(rank, result("lookup_result", Err("not_supported"))),
            other => {
                let answer = format!("{}_result", other.chars().take(64).collect::<String>());
                reply(rank, result(&answer, Err("not_supported")))
            }
        }
    }

    fn init(&mut self, rank: usize, line: &Line) -> Vec<Effect> {
        let version: u32 = line.number("pmi_version").unwrap_or(1);
        self.ranks[rank].initialised = true;
        let rc = if version == 1 { 0 } else { -1 };
        let answer = Line::new("response_to_init").with("pmi_version", 1);
        reply(rank, answer.with("pmi_subversion", 1).with("rc", rc))
    }

    fn put(&mut self, line: &Line) -> Result<(), &'static str> {
        let key = line.get("key").unwrap_or_default();
        let value = line.get("value").unwrap_or_default();
        if line.get("kvsname").is_some_and(|name| name != self.name) {
            return Err("kvs_not_found");
        }
        if key.is_empty() || key.len() >= KEYLEN_MAX || value.len() >= VALLEN_MAX {
            return Err("key_or_value_too_long");
        }
        let cost = key.len() + value.len();
        if self.stored + cost > self.ranks.len() * STORE_PER_RANK {
            return Err("key_value_space_full");
        }
        if self.store.contains_key(key) {
            return Err("duplicate_key");
        }
        self.store.insert(key.to_owned(), value.to_owned());
        self.stored += cost;
        Ok(())
    }

    fn get(&self, line: &Line) -> Line {
        let known = line.get("kvsname").is_none_or(|name| name == self.name);
        match line.get("key").and_then(|key| self.store.get(key)) {
            Some(value) if known => result("get_result", Ok(())).with("value", value),
            _ => result("get_result", Err("key_not_found")).with("value", "unknown"),
        }
    }

    fn barrier(&mut self, rank: usize) -> Vec<Effect> {
        self.ranks[rank].waiting = true;
        if !self.ranks.iter().all(|rank| rank.waiting) {
            return Vec::new();
        }
        for rank in &mut self.ranks {
            rank.waiting = false;
        }
        let text = format!("{}\n", Line::new("barrier_out").with("rc", 0));
        (0..self.ranks.len()).map(|rank| Effect::Reply { rank, text: text.clone() }).collect()
    }
}

fn violation(rank: usize, error: LineError, bytes: &[u8]) -> Vec<Effect> {
    let shown: String = String::from_utf8_lossy(bytes).chars().take(80).collect();
    vec![Effect::Violation { rank, problem: format!("{error}: {shown:?}") }]
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn text(effects: Vec<Effect>) -> String {
        match effects.as_slice() {
            [Effect::Reply { text, .. }] => text.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn handle__answers_what_a_client_asks_first() {
        let mut server = Server::new("job".into(), 2);
        let init = text(server.handle(0, b"cmd=init pmi_version=1 pmi_subversion=1"));
        assert_eq!(init, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
        assert!(text(server.handle(0, b"cmd=get_maxes")).contains("vallen_max=1024"));
        assert!(text(server.handle(0, b"cmd=get_universe_size")).contains("size=2"));
        assert!(server.initialised(0) && !server.initialised(1));
        assert!(text(server.handle(1, b"cmd=init pmi_version=2")).contains("rc=-1"));
    }

    #[test]
    fn handle__stores_once_and_within_bounds() {
        let mut server = Server::new("job".into(), 1);
        let put = |server: &mut Server, rest: &str| {
            text(server.handle(0, format!("cmd=put kvsname=job {rest}").as_bytes()))
        };
        assert!(put(&mut server, "key=a value=1").contains("rc=0"));
        assert!(put(&mut server, "key=a value=2").contains("duplicate_key"));
        assert!(put(&mut server, "value=2").contains("rc=-1"));
        assert!(put(&mut server, &format!("key=b value={}", "x".repeat(1024))).contains("rc=-1"));
        let got = text(server.handle(0, b"cmd=get kvsname=job key=a"));
        assert_eq!(got, "cmd=get_result rc=0 msg=success value=1\n");
        assert!(text(server.handle(0, b"cmd=get kvsname=x key=a")).contains("rc=-1"));
        let mut refused = false;
        for i in 0..2000 {
            let value = "x".repeat(1000);
            refused |= put(&mut server, &format!("key=k{i} value={value}")).contains("full");
        }
        assert!(refused);
    }

    #[test]
    fn barrier__ends_when_the_last_rank_arrives() {
        let mut server = Server::new("job".into(), 3);
        for rank in [0, 0, 2] {
            assert!(server.handle(rank, b"cmd=barrier_in").is_empty());
        }
        assert_eq!(server.handle(1, b"cmd=barrier_in").len(), 3);
        assert_eq!(server.stuck(), None);
    }

    #[test]
    fn stuck__names_the_rank_that_ended_and_those_that_wait() {
        let mut server = Server::new("job".into(), 3);
        server.end(1);
        assert_eq!(server.stuck(), None);
        server.handle(2, b"cmd=barrier_in");
        assert_eq!(server.stuck(), Some((1, vec![2])));
    }

    #[test]
    fn handle__refuses_spawn_and_unknown_commands_cleanly() {
        let mut server = Server::new("job".into(), 1);
        assert!(server.handle(0, b"mcmd=spawn").is_empty());
        assert!(server.handle(0, b"nprocs=1").is_empty());
        assert!(server.handle(0, b"execname=a b c").is_empty());
        assert!(text(server.handle(0, b"endcmd")).contains("cmd=spawn_result rc=-1"));
        assert!(text(server.handle(0, b"cmd=getbyidx idx=0")).contains("rc=-1"));
        assert!(text(server.handle(0, b"cmd=dance")).contains("rc=-1"));
        let left = server.handle(0, b"cmd=finalize");
        assert_eq!(left[1..], [Effect::Left { rank: 0 }]);
        assert!(text(left[..1].to_vec()).contains("finalize_ack"));
    }

    #[test]
    fn handle__reports_hostile_lines() {
        let mut server = Server::new("job".into(), 1);
        for bytes in [&b""[..], b"\xff\xfe", b"get / http", &[b'x'; MAX_LINE + 1]] {
            let effects = server.handle(0, bytes);
            assert!(matches!(effects[..], [Effect::Violation { .. }]), "{effects:?}");
        }
        let abort = server.handle(0, b"cmd=abort exitcode=7");
        assert_eq!(abort, [Effect::Abort { rank: 0, code: 7 }]);
    }
}
