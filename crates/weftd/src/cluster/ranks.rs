//! The ranks of this host, told to programs and agents that ask, and the ranks of other hosts,
//! asked for programs of this one.
//!
//! A rank's page is read when somebody asks, a few pages at a time. A user is told of its own
//! ranks, root and the user of this agent of all.

use super::callers::CallerId;
use super::{Cluster, NOBODY};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};
use weft_cluster::counters;
use weft_cluster::local::Say;
use weft_cluster::names::{HostId, Owner};
use weft_cluster::ranks::{Answer, Ask, Cursor, Entry, Message, OfHost};
use weft_cluster::session::class;
use weft_cluster::share;
use weft_core::Instant;
use weft_sys::{memory, Foreign};

/// Pages of a host; one user has at most half of what others leave.
const PAGES_MAX: usize = 1024;
/// Pages of one process, which has one for each endpoint.
const OF_PROCESS: usize = 16;
/// Pages looked at for one answer.
const AT_ONCE: usize = 16;
/// Attempts to read a page while its rank writes.
const TRIES: usize = 3;
/// Questions of programs under way; one user has at most half of what others leave.
const QUESTIONS: usize = 16;
/// Hosts that are asked at a time for one question.
const HOSTS_AT_ONCE: usize = 32;
/// Answers of one host to one question; more than the most pages with the most counters need.
const ANSWERS_MAX: u32 = 1 << 14;
/// Time after which a host is asked again, at first; it doubles.
const AGAIN: Duration = Duration::from_millis(50);
/// Attempts to get one answer.
const TRIES_OF_HOST: u32 = 6;
/// Longest time of a question.
const PATIENCE: Duration = Duration::from_secs(10);

/// A rank that handed over its page.
struct Page {
    owner: Owner,
    file: File,
}

/// A host that was asked.
struct Asked {
    from: Cursor,
    answers: u32,
    tries: u32,
    next: Instant,
    hidden: u32,
    at: SystemTime,
}

/// A question of a program.
struct Gather {
    caller: CallerId,
    serial: u32,
    user: u32,
    left: VecDeque<HostId>,
    asked: BTreeMap<HostId, Asked>,
    end: Instant,
}

/// Ranks of this host, and questions of its programs.
pub struct Ranks {
    /// By their connections.
    pages: BTreeMap<CallerId, Page>,
    gathers: BTreeMap<u64, Gather>,
    next: u64,
    /// The user who started this agent.
    owner: u32,
    unknown: Option<u32>,
    refused: u64,
    malformed: u64,
}

impl Ranks {
    pub fn open(owner: u32) -> Ranks {
        Ranks {
            pages: BTreeMap::new(),
            gathers: BTreeMap::new(),
            next: weft_link::random_u64() >> 1,
            owner,
            unknown: weft_link::user::unknown(),
            refused: 0,
            malformed: 0,
        }
    }

    pub fn counters(&self, show: &mut dyn FnMut(&str, u64)) {
        show("cluster_ranks", self.pages.len() as u64);
        show("cluster_ranks_refused", self.refused);
        show("cluster_rank_messages_malformed", self.malformed);
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        let of = |g: &Gather| g.asked.values().map(|a| a.next).chain([g.end]).min();
        self.gathers.values().filter_map(of).min()
    }

    pub fn remove_caller(&mut self, caller: CallerId) {
        self.pages.remove(&caller);
        self.gathers.retain(|_, g| g.caller != caller);
    }

    /// True if a user is told of a rank.
    fn sees(&self, user: u32, owner: Owner) -> bool {
        user != NOBODY && (user == 0 || user == self.owner || user == owner.user)
    }

    /// Keeps the page of a rank.
    fn keep(&mut self, id: CallerId, owner: Owner, page: Foreign) -> Result<(), String> {
        if !memory::is_steady(&page, counters::LEN) {
            return Err("the page of a rank is sealed memory of 8 KiB".into());
        }
        let others = || self.pages.iter().filter(|(other, _)| **other != id).map(|(_, p)| p.owner);
        let of_user = share::count(owner.user, others().map(|o| o.user));
        let of_process = others().filter(|o| o.process == owner.process).count();
        let is_admitted = share::admits(owner.user, of_user, others().count(), PAGES_MAX);
        if !is_admitted || of_process >= OF_PROCESS {
            return Err("the agent has the pages of too many ranks".into());
        }
        self.pages.insert(id, Page { owner, file: page.into_inner().into() });
        Ok(())
    }

    /// Returns the answer to a question: as many ranks as a datagram may hold, of few pages.
    fn answer(&self, ask: &Ask) -> Answer {
        let hidden = self.pages.values().filter(|p| !self.sees(ask.user, p.owner)).count();
        let mut answer = Answer::new(ask, hidden as u32, SystemTime::now());
        let mut seen = 0;
        for (&number, page) in self.pages.range(ask.from.entry..) {
            if !self.sees(ask.user, page.owner) {
                continue;
            }
            if seen == AT_ONCE {
                answer.next = Some(Cursor { entry: number, counter: 0 });
                break;
            }
            seen += 1;
            let Owner { user, process, .. } = page.owner;
            if let Some(mut snapshot) = counters::read(process, &page.file, TRIES) {
                snapshot.counters.retain(|_, value| *value > 0);
                answer.entries.push(Entry { number, user, snapshot });
            }
        }
        answer
    }
}

impl Cluster {
    /// Takes the page of a rank, which came with its request.
    pub(super) fn show_rank(&mut self, id: CallerId) -> Say {
        let Some(caller) = self.callers.get_mut(id) else { return Say::Done(0) };
        let (owner, passed) = (caller.owner, caller.passed.take());
        let kept = match passed {
            Some(passed) => self.ranks.keep(id, owner, passed),
            None => Err("no descriptor came with the request".into()),
        };
        match kept {
            Ok(()) => Say::Done(0),
            Err(why) => {
                self.ranks.refused += 1;
                Say::Refused(why)
            }
        }
    }

    /// Begins to ask all hosts for their ranks, for a program.
    pub(super) fn gather(&mut self, now: Instant, id: CallerId, serial: u32) -> Option<Say> {
        let user = self.callers.get_mut(id)?.owner.user;
        let all = &self.ranks.gathers;
        let of_user = share::count(user, all.values().map(|g| g.user));
        let is_busy = !share::admits(user, of_user, all.len(), QUESTIONS)
            || all.values().any(|g| g.caller == id);
        if is_busy {
            return Some(Say::Refused("too many questions for ranks are under way".into()));
        }
        let me = self.node.me().host;
        let ups = self.node.members().iter().filter(|m| m.is_up() && m.record.host != me);
        let others: Vec<HostId> = ups.map(|m| m.record.host).collect();
        let others = if self.is_cut_off { Vec::new() } else { others };
        // Of a user without a number nobody knows which ranks are its own.
        let user = if self.ranks.unknown == Some(user) { NOBODY } else { user };
        let left = [me].into_iter().chain(others).collect();
        let end = now + PATIENCE;
        let gather = Gather { caller: id, serial, user, left, asked: BTreeMap::new(), end };
        self.ranks.next += 1;
        let number = self.ranks.next;
        self.ranks.gathers.insert(number, gather);
        self.ask_hosts(now, number);
        None
    }

    /// Asks the next hosts, and ends a question that all have answered.
    fn ask_hosts(&mut self, now: Instant, id: u64) {
        let Some(gather) = self.ranks.gathers.get_mut(&id) else { return };
        while gather.asked.len() < HOSTS_AT_ONCE {
            let Some(host) = gather.left.pop_front() else { break };
            let (from, at) = (Cursor::default(), SystemTime::now());
            let asked = Asked { from, answers: 0, tries: 0, next: now, hidden: 0, at };
            gather.asked.insert(host, asked);
        }
        if !gather.asked.is_empty() {
            return self.ask_again(now, id);
        }
        let Some(gather) = self.ranks.gathers.remove(&id) else { return };
        let (host, at, entries) = (self.node.me().host, SystemTime::now(), Vec::new());
        let hidden = 0;
        let last = OfHost { host, is_whole: true, hidden, at, entries };
        if let Some(caller) = self.callers.get_mut(gather.caller) {
            caller.say(gather.serial, &Say::Ranks(false, last));
        }
    }

    /// Asks the hosts of a question whose answers are due, and gives up those that are silent.
    fn ask_again(&mut self, now: Instant, id: u64) {
        let me = self.node.me().host;
        let Some(gather) = self.ranks.gathers.get_mut(&id) else { return };
        let has_room = self.callers.get_mut(gather.caller).is_some_and(|c| c.has_room());
        let is_over = now >= gather.end;
        let mut silent = Vec::new();
        for (&host, asked) in &mut gather.asked {
            let member = self.node.members().get(host).filter(|m| m.is_up());
            match member.map(|m| m.record.address) {
                _ if host == me => {}
                _ if is_over || asked.tries >= TRIES_OF_HOST && asked.next <= now => {
                    silent.push(host);
                }
                None => silent.push(host),
                // A program that does not read what it asked for is told no more.
                Some(_) if !has_room => asked.next = asked.next.max(now + AGAIN),
                Some(address) if asked.next <= now => {
                    asked.next = now + AGAIN * (1 << asked.tries.min(4));
                    asked.tries += 1;
                    let ask = Ask { id, user: gather.user, from: asked.from };
                    self.sessions.send(now, address, class::RANKS, &ask.encode());
                }
                Some(_) => {}
            }
        }
        let (caller, serial) = (gather.caller, gather.serial);
        if is_over {
            silent.extend(gather.left.drain(..));
        }
        for host in &silent {
            let asked = gather.asked.remove(host);
            let (hidden, at) = asked.map_or((0, SystemTime::now()), |a| (a.hidden, a.at));
            let (is_whole, entries) = (false, Vec::new());
            let of_host = OfHost { host: *host, is_whole, hidden, at, entries };
            if let Some(caller) = self.callers.get_mut(caller) {
                caller.say(serial, &Say::Ranks(true, of_host));
            }
        }
        if !silent.is_empty() {
            self.ask_hosts(now, id);
        }
    }

    /// Does what is due: a part of the own ranks, and questions to others.
    pub(super) fn ranks_in_time(&mut self, now: Instant) {
        let due = self
            .ranks
            .gathers
            .iter()
            .filter(|(_, g)| now >= g.end || g.asked.values().any(|asked| asked.next <= now));
        let due: Vec<u64> = due.map(|(id, _)| *id).collect();
        let me = self.node.me().host;
        for id in due {
            let Some(gather) = self.ranks.gathers.get_mut(&id) else { continue };
            let is_read = self.callers.get_mut(gather.caller).is_some_and(|c| c.has_room());
            let own = gather.asked.get_mut(&me);
            match own {
                Some(own) if is_read => {
                    let ask = Ask { id, user: gather.user, from: own.from };
                    // Its own answer is parsed as that of another host, so that one datagram's
                    // worth goes at a time.
                    let bytes = self.ranks.answer(&ask).encode();
                    if let Ok(Message::Answer(answer)) = Message::parse(&bytes) {
                        self.on_answer(now, me, answer);
                    }
                }
                Some(own) if now < gather.end => own.next = now + AGAIN,
                Some(_) => drop(gather.asked.remove(&me)),
                None => {}
            }
            self.ask_hosts(now, id);
        }
    }

    /// Takes a message of another agent about ranks.
    pub(super) fn on_rank_message(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) {
        let sender = self.node.members().iter().find(|m| m.record.address == from);
        let Some(host) = sender.map(|m| m.record.host) else { return };
        match Message::parse(bytes) {
            Ok(Message::Ask(ask)) => {
                let answer = self.ranks.answer(&ask).encode();
                self.sessions.send(now, from, class::RANKS, &answer);
            }
            Ok(Message::Answer(answer)) => self.on_answer(now, host, answer),
            Err(_) => self.ranks.malformed += 1,
        }
    }

    /// Passes an answer on to the program that asked.
    fn on_answer(&mut self, now: Instant, host: HostId, answer: Answer) {
        let Some(gather) = self.ranks.gathers.get_mut(&answer.id) else { return };
        let Some(asked) = gather.asked.get_mut(&host).filter(|a| a.from == answer.from) else {
            return;
        };
        asked.answers += 1;
        asked.hidden = answer.hidden;
        asked.at = answer.at;
        (asked.tries, asked.next) = (0, now);
        let next = answer.next.filter(|_| asked.answers < ANSWERS_MAX);
        asked.from = next.unwrap_or_default();
        let Answer { hidden, at, entries, .. } = answer;
        let is_whole = next.is_some() || answer.next.is_none();
        let of_host = OfHost { host, is_whole, hidden, at, entries };
        if next.is_none() {
            gather.asked.remove(&host);
        }
        let (caller, serial) = (gather.caller, gather.serial);
        if let Some(caller) = self.callers.get_mut(caller) {
            caller.say(serial, &Say::Ranks(true, of_host));
        }
        self.ask_hosts(now, answer.id);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn page(ranks: &mut Ranks, number: CallerId, user: u32) {
        let name = format!("weft-page-{:016x}", weft_link::random_u64());
        let path = std::env::temp_dir().join(name);
        let options = || std::fs::File::options().read(true).write(true).create_new(true).clone();
        let file = options().open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_len(counters::LEN as u64).unwrap();
        let words = [counters::MAGIC, counters::VERSION];
        words.iter().zip([0, 8]).for_each(|(w, at)| {
            file.write_all_at(&w.to_le_bytes(), at).unwrap();
        });
        let owner = Owner { user, process: number as u32, serial: number };
        ranks.pages.insert(number, Page { owner, file });
    }

    #[test]
    fn answer__users_get_their_own_ranks_and_root_and_the_agents_get_all() {
        let mut ranks = Ranks::open(500);
        (1..=40).for_each(|n| page(&mut ranks, n, 1000 + n as u32 % 4));
        let told = |user: u32| {
            let (mut seen, mut from, mut hidden) = (Vec::new(), Cursor::default(), 0);
            loop {
                let answer = ranks.answer(&Ask { id: 1, user, from });
                assert!(answer.entries.len() <= AT_ONCE);
                seen.extend(answer.entries.iter().map(|e| (e.number, e.user)));
                hidden = answer.hidden.max(hidden);
                match answer.next {
                    Some(next) => from = next,
                    None => return (seen, hidden),
                }
            }
        };
        assert_eq!((told(0).0.len(), told(500).0.len(), told(500).1), (40, 40, 0));
        let (own, hidden) = told(1001);
        assert!(own.len() == 10 && own.iter().all(|(_, user)| *user == 1001) && hidden == 30);
        assert_eq!((told(1999).0.len(), told(NOBODY).0.len(), told(NOBODY).1), (0, 0, 40));
    }
}
