//! Long waits of the program, which are shown to other processes and logged.
//!
//! Short waits are not recorded. A wait that sleeps checks at each sleep, and a wait that polls
//! checks beside the rare polls of quiet links, since when the program has neither sent nor
//! received a message, nor done anything else for long.

use super::{Handle, Reactor};
use crate::counters::{AwaitedOp, Waiting};
use std::collections::BTreeMap;
use std::time::Duration;
use weft_core::engine::types::{Claimed, OpKind, Probed};
use weft_core::engine::Wait;
use weft_core::{Instant, OpId, PeerId};

/// A wait of this length is shown to other processes.
const SHOWN: Duration = Duration::from_secs(1);
/// A program that makes no progress for this time, and does not sleep, computes.
const COMPUTES: Duration = Duration::from_secs(1);
/// Number of operations that are named.
const NAMED: usize = crate::counters::AWAITED_MAX;
/// The text about a peer whose process a signal has stopped.
const STOPPED: &str = "whose process is stopped (SIGCONT lets it go on)";
/// The second line comes after `AGAIN[0]` times the time of the first, later ones every `AGAIN[1]`
/// times.
const REPEAT_EVERY: [u32; 2] = [12, 120];

/// Returns the time of the next line about a wait of `waited`, from its start. `None`: never.
pub(crate) fn next_line(waited: Duration, first: Duration) -> Option<Duration> {
    let [second, each] = REPEAT_EVERY.map(|times| first.saturating_mul(times));
    match waited {
        _ if first.is_zero() => None,
        _ if waited < first => Some(first),
        _ if waited < second => Some(second),
        _ => Some(waited + each),
    }
}

/// A function that formats match bits and ignore mask for people.
pub(crate) type TagText = fn(u64, u64) -> String;

fn plain(tag: u64, ignore: u64) -> String {
    match ignore {
        0 => format!("with tag {tag:#x}"),
        u64::MAX => "with any tag".to_string(),
        _ => format!("with tag {tag:#x} but for the bits {ignore:#x}"),
    }
}

/// The object of a wait without an operation of the endpoint, for
/// [`Waiting::wait_for`](crate::endpoint::Waiting::wait_for).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaits {
    /// Anything that arrives; named only if no other object is.
    Anything,
    /// A packet from a peer, or from any.
    Packet(Option<PeerId>),
    /// Room for packets to send, or the acknowledgement of sent packets, at a peer or at several.
    Room(Option<PeerId>),
}

/// A named wait, and its object if it has no operation.
type NamedWait = (Wait, Option<Awaits>);

/// A probe of the program without success: source, match bits, ignore mask, time.
type Probe = (Option<PeerId>, u64, u64, Instant);

/// The state of the current wait.
pub(crate) struct Waits {
    /// Messages of the program when the wait began.
    activity: u64,
    since: Instant,
    last: Instant,
    /// True if since the last check the program slept, or computed while another thread polls for
    /// it.
    slept: bool,
    pub computes: bool,
    /// Time of the next action about the wait.
    due: Instant,
    shown: bool,
    /// True if threads wait for their own operations, and log their waits themselves.
    pub apart: bool,
    pub tag_text: TagText,
    /// Waits by probes, without an operation.
    probes: BTreeMap<u64, (Option<PeerId>, u64, u64)>,
    probe: u64,
    /// The last probe of a program that probes repeatedly.
    glance: Option<Probe>,
    /// The object of the current wait, if it has no operation.
    awaits: Option<Awaits>,
}

impl Default for Waits {
    fn default() -> Waits {
        Waits {
            activity: u64::MAX,
            since: Instant(0),
            last: Instant(0),
            slept: false,
            computes: false,
            due: Instant::FAR,
            shown: false,
            apart: false,
            tag_text: plain,
            probes: BTreeMap::new(),
            probe: 0,
            glance: None,
            awaits: None,
        }
    }
}

impl Waits {
    /// Records that the program waits now. True if an action about the wait is due.
    fn look(&mut self, now: Instant, activity: u64, first: Duration) -> bool {
        let absence = !self.slept && now.since(self.last) > COMPUTES || self.computes;
        (self.slept, self.computes, self.last) = (false, false, now);
        if activity != self.activity || absence {
            let shown = if first.is_zero() { SHOWN } else { SHOWN.min(first) };
            (self.activity, self.since, self.due) = (activity, now, now + shown);
            self.shown = false;
        }
        now >= self.due
    }

    /// True if the program has waited for nearly as long as `first`.
    fn is_long(&self, now: Instant, first: Duration) -> bool {
        now.since(self.last) <= COMPUTES && now.since(self.since) >= first / 2
    }
}

impl Reactor {
    /// Returns the number of messages that the program has begun or received, and of failures
    /// reported to it.
    fn activity(&self) -> u64 {
        let stats = self.receiver.engine.stats();
        stats.messages_sent + stats.messages_received + stats.peers_failed
    }

    /// Returns the time after which a wait is examined and logged; zero: never.
    pub fn first_line(&self) -> Duration {
        Duration::from_millis(u64::from(self.receiver.engine.config().warn_after_ms))
    }

    /// Checks the program's wait. True if it was shown or logged.
    #[inline]
    pub(super) fn check_wait(&mut self, now: Instant) -> bool {
        let (activity, first) = (self.activity(), self.first_line());
        self.waits.look(now, activity, first) && self.on_long_wait(now)
    }

    /// Returns the latest end of the program's sleep, for an action about its wait.
    pub(super) fn wait_due(&self) -> Option<Instant> {
        let own = !self.waits.probes.is_empty() || self.waits.awaits.is_some();
        let any = self.receiver.engine.ops().has_waits() || own;
        Some(self.waits.due).filter(|_| any && !self.polling.exact)
    }

    #[cold]
    fn on_long_wait(&mut self, now: Instant) -> bool {
        let (waits, count) = self.waits_now();
        if waits.is_empty() {
            self.waits.due = now + SHOWN;
            return false;
        }
        let (waited, first) = (now.since(self.waits.since), self.first_line());
        if !self.waits.apart && !first.is_zero() && waited >= first {
            self.log_wait(waited, &waits, count);
        }
        let next = next_line(waited, first).map(|next| self.waits.since + next);
        self.waits.due = next.unwrap_or(Instant::FAR);
        self.waits.shown = true;
        true
    }

    /// Returns the program's waits, as far as they are named, and their total number.
    fn waits_now(&self) -> (Vec<NamedWait>, usize) {
        let (engine, waits) = (&self.receiver.engine, &self.waits);
        let (of_engine, mut count) = engine.ops().waits(NAMED);
        let mut all: Vec<NamedWait> = of_engine.into_iter().map(|wait| (wait, None)).collect();
        let probes = waits.probes.values().copied();
        // A program that no longer probes does something else.
        let glance = waits.glance.filter(|&(.., at)| self.receiver.time.now.since(at) <= COMPUTES);
        let probes = probes.chain(glance.map(|(peer, tag, ignore, _)| (peer, tag, ignore)));
        let mut add = |named: NamedWait| {
            count += 1;
            if all.len() < NAMED {
                all.push(named);
            }
        };
        probes.for_each(|(peer, tag, ignore)| add((engine.ops().probing(peer, tag, ignore), None)));
        match waits.awaits {
            None | Some(Awaits::Anything) => {}
            Some(Awaits::Packet(peer)) => {
                add((engine.ops().awaiting(peer, OpKind::Recv), waits.awaits))
            }
            Some(Awaits::Room(peer)) => {
                add((engine.ops().awaiting(peer, OpKind::Send), waits.awaits))
            }
        }
        if all.is_empty() && waits.awaits.is_some() {
            return (vec![(engine.ops().awaiting(None, OpKind::Recv), waits.awaits)], 1);
        }
        (all, count)
    }

    fn log_wait(&self, waited: Duration, waits: &[NamedWait], count: usize) {
        let text = self.waits_text(waits, count);
        weft_link::warn!("waiting for {:.1} s {text}", waited.as_secs_f64());
    }

    /// Returns the text about waits: their objects and their peers.
    fn waits_text(&self, waits: &[NamedWait], count: usize) -> String {
        let each: Vec<String> = waits.iter().map(|wait| self.wait_text(wait)).collect();
        let more = match count - waits.len() {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        format!("{}{more}", each.join("; "))
    }

    /// Returns the text about a wait: its object and its peer.
    fn wait_text(&self, (wait, awaits): &NamedWait) -> String {
        let who = wait.peer.map_or("anybody".to_string(), |peer| self.describe(peer));
        let tag = wait.tag.map(|(tag, ignore)| format!(" {}", (self.waits.tag_text)(tag, ignore)));
        let tag = tag.unwrap_or_default();
        let text = match wait.kind {
            _ if *awaits == Some(Awaits::Anything) => format!("for anything from {who}"),
            _ if *awaits == Some(Awaits::Room(None)) => {
                "until earlier sends are accepted".to_owned()
            }
            OpKind::Recv if awaits.is_some() => format!("for a packet from {who}"),
            OpKind::Send if awaits.is_some() => {
                format!("until earlier sends are accepted by {who}")
            }
            OpKind::Recv => format!("for a message{tag} from {who}"),
            OpKind::Send => format!("until a message{tag} is taken by {who}"),
            OpKind::Put => format!("for a put to {who}"),
            OpKind::Get => format!("for a get from {who}"),
            OpKind::Atomic => format!("for an atomic operation at {who}"),
        };
        match wait.peer {
            _ if wait.opening => format!("{text}, which has not answered yet"),
            Some(peer) if self.receiver.engine.peer(peer).is_stopped() => {
                format!("{text}, {STOPPED}")
            }
            _ => text,
        }
    }

    /// Logs that a peer is silent, if no other line about the wait will come.
    pub(super) fn log_silent(&self, peer: PeerId, waited: Duration) {
        let (now, first) = (self.receiver.time.now, self.first_line());
        if self.polling.exact || !self.waits.is_long(now, first) || self.waits_now().0.is_empty() {
            let (what, waited) = (self.describe(peer), waited.as_secs_f64());
            let why = if self.receiver.engine.peer(peer).is_stopped() { STOPPED } else { "" };
            let comma = if why.is_empty() { "" } else { ", " };
            weft_link::warn!(
                "waiting for {what}, of which nothing was heard for {waited:.1} s{comma}{why}"
            );
        }
    }

    /// Returns the wait as other processes see it, if it goes on.
    pub(super) fn waiting(&self) -> Option<Waiting> {
        let still = self.waits.shown && self.activity() == self.waits.activity;
        let (waits, count) = if still { self.waits_now() } else { (Vec::new(), 0) };
        let rank = |peer: PeerId| self.known.address_of(peer)?.rank;
        let awaited = |(wait, _): &NamedWait| AwaitedOp {
            kind: wait.kind,
            anybody: wait.peer.is_none(),
            rank: wait.peer.and_then(rank),
            tag: wait.tag.map_or(0, |(tag, _)| tag),
        };
        (count > 0).then(|| Waiting {
            ago: self.receiver.time.now.since(self.waits.since),
            count: count as u64,
            awaited: waits.iter().map(awaited).collect(),
        })
    }
}

/// A wait by probes, until this is dropped.
pub(crate) struct Probing<'a>(&'a Handle, u64);

impl Drop for Probing<'_> {
    fn drop(&mut self) {
        self.0.borrow_mut().waits.probes.remove(&self.1);
    }
}

/// A wait without an operation, until this is dropped.
pub(crate) struct Awaiting<'a>(&'a Handle);

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.0.borrow_mut().waits.awaits = None;
    }
}

impl Handle {
    /// Records that the program polls repeatedly for a message, without an operation.
    pub fn probing(&self, from: Option<PeerId>, tag: u64, ignore: u64) -> Probing<'_> {
        let waits = &mut self.borrow_mut().waits;
        waits.probe += 1;
        waits.probes.insert(waits.probe, (from, tag, ignore));
        Probing(self, waits.probe)
    }

    /// Sets the object of the program's wait until the result is dropped.
    pub fn awaiting(&self, awaits: Option<Awaits>) -> Awaiting<'_> {
        self.borrow_mut().waits.awaits = awaits;
        Awaiting(self)
    }
}

impl Reactor {
    /// Looks for a message without receiving it. A program that probes repeatedly without success
    /// counts as waiting for the message.
    pub fn probe(&mut self, from: Option<PeerId>, tag: u64, ignore: u64) -> Option<Probed> {
        let found = self.receiver.engine.matching().probe(from, tag, ignore);
        if found.is_none() {
            self.waits.glance = Some((from, tag, ignore, self.receiver.time.now));
        }
        found
    }

    /// Takes the oldest matching message out of matching. Repeated claims count as a wait, as with
    /// [`probe`](Self::probe).
    pub fn claim(
        &mut self,
        from: Option<PeerId>,
        tag: u64,
        ignore: u64,
    ) -> Option<(Claimed, Probed)> {
        let found = self.receiver.engine.matching_mut().claim(from, tag, ignore);
        if found.is_none() {
            self.waits.glance = Some((from, tag, ignore, self.receiver.time.now));
        }
        found
    }

    /// Returns the operations that the program waits for now, with their peers, for people. `None`
    /// if there is none.
    pub fn awaited(&self) -> Option<String> {
        let (waits, count) = self.waits_now();
        (!waits.is_empty()).then(|| self.waits_text(&waits, count))
    }

    /// Logs that a thread has waited for an operation for `waited`.
    pub fn log_wait_of(&self, op: OpId, waited: Duration) {
        if let Some(wait) = self.receiver.engine.ops().wait_of(op) {
            self.log_wait(waited, &[(wait, None)], 1);
        }
    }

    /// Records that the program is about to sleep.
    pub(super) fn note_sleep(&mut self) {
        if !self.polling.exact {
            let now = self.receiver.time.clock.now();
            self.check_wait(now);
            self.waits.slept = true;
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const FIRST: Duration = Duration::from_secs(5);

    #[test]
    fn note__counts_from_the_last_message_while_the_program_waits() {
        let mut waits = Waits::default();
        assert!(!waits.look(Instant(0), 5, FIRST));
        assert!((1..10).all(|n| !waits.look(Instant(n * 100 * MS), 5, FIRST)));
        assert!(waits.look(Instant(1_000 * MS), 5, FIRST));
        assert!(!waits.look(Instant(1_001 * MS), 6, FIRST), "a message came");
        assert_eq!(waits.since, Instant(1_001 * MS));
        waits.slept = true;
        assert!(waits.look(Instant(9_000 * MS), 6, FIRST), "asleep it waits");
        assert!(!waits.look(Instant(20_000 * MS), 6, FIRST), "it computed");
        assert!(!waits.look(Instant(20_900 * MS), 6, FIRST));
        waits.computes = true;
        assert!(!waits.look(Instant(21_100 * MS), 6, FIRST), "somebody else looks for it");
    }

    #[test]
    fn next_line__once_and_then_rarely() {
        let s = Duration::from_secs;
        assert_eq!(next_line(s(1), s(5)), Some(s(5)));
        assert_eq!(next_line(s(5), s(5)), Some(s(60)));
        assert_eq!(next_line(s(61), s(5)), Some(s(661)));
        assert_eq!(next_line(s(661), s(0)), None);
    }
}
