//! Watching: when a host is probed, asked about, and held for lost.
//!
//! Probes of hosts that answer go together, a quarter of the tolerance apart, with those of the
//! hosts that they come to: an idle cluster sleeps in between. Two hosts that watch each other take
//! turns, so that an idle cluster sends half as much: a probe of one says to the other what an
//! answer would.
//!
//! A host counts as heard when it answers a probe: then it hears, too. It also does when it probes
//! and does not hurry, as a host does that gets no answers. Silence of one watched host
//! has two steps. After 0.7 of the tolerance its watcher asks other
//! watchers of the host (SUSPECT); one that has heard the host lately says so (VOUCH), and a
//! loss in one direction or between two hosts alone changes nothing. If nobody vouches for 0.2 of
//! the tolerance, the host is lost. A watcher that hears none of the hosts that it watches takes
//! that for its own fault: it is cut off, and declares nobody lost.

use crate::config::Config;
use crate::id::HostId;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;
use weft_core::Instant;

/// A watched host.
#[derive(Clone, Debug)]
pub struct WatchedHost {
    /// Hosts behind it on the ring that it covers.
    pub covers: u16,
    /// The time when it answered last, or watching began.
    pub heard: Instant,
    /// Until this time another watcher's word counts.
    vouched: Instant,
    /// The time when other watchers were asked.
    asked: Option<Instant>,
    /// The time of the next probe.
    next: Instant,
    /// True if the host itself probes before that time, if it is there.
    is_its_turn: bool,
    /// The time when it probed this host last.
    probed: Option<Instant>,
    /// Number and time of the last probe.
    probe: (u64, Instant),
    /// Number of the last probe that was answered.
    answered: u64,
    /// Round-trip time of the last probe that was answered.
    pub round_trip: Option<Duration>,
    /// Probes sent.
    pub probes: u64,
    /// Probes answered.
    pub answers: u64,
}

impl WatchedHost {
    /// Notes that it is there and hears. Returns the time of the next probe.
    fn hear(&mut self, now: Instant, is_first: bool, config: &Config) -> Instant {
        self.heard = now;
        self.asked = None;
        let (mine, every) = (self.probe.1, config.probe_every());
        // If the other host does not take its turn, this one does before it is hushed.
        let others = every / 8 * 11;
        let (since, is_its_turn) = match self.probed.filter(|at| now.since(*at) < 2 * every) {
            None => (mine, false),
            Some(at) if at.since(mine) + mine.since(at) < every / 2 => (at.max(mine), !is_first),
            Some(at) => (at.max(mine), at < mine),
        };
        self.is_its_turn = is_its_turn;
        self.next = (since + if is_its_turn { others } else { every }).max(now);
        self.next
    }
}

/// A watched host's need at this time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Send a probe of this number.
    pub probe: Option<u64>,
    /// Ask other watchers, for the first time.
    pub suspect: bool,
    /// Ask other watchers, maybe again.
    pub ask: bool,
    /// Nobody vouched for it.
    pub lost: bool,
}

/// The hosts that a host watches.
#[derive(Debug, Default)]
pub struct Watch {
    links: BTreeMap<HostId, WatchedHost>,
    serial: u64,
}

impl Watch {
    /// Watches these hosts. Of others that were watched before, and are there, those that are
    /// silent stay until they answer or are lost: when many hosts go at once, the ring changes
    /// faster than silence is judged. Returns those that are new.
    pub fn set(
        &mut self,
        now: Instant,
        hosts: &[(HostId, u16)],
        is_there: impl Fn(HostId) -> bool,
        config: &Config,
    ) -> Vec<HostId> {
        let mut before = core::mem::take(&mut self.links);
        let mut added = Vec::new();
        for &(host, covers) in hosts {
            let link = before.remove(&host).unwrap_or_else(|| {
                added.push(host);
                WatchedHost {
                    covers,
                    heard: now,
                    vouched: Instant(0),
                    asked: None,
                    next: now,
                    is_its_turn: false,
                    probed: None,
                    probe: (0, now),
                    answered: 0,
                    round_trip: None,
                    probes: 0,
                    answers: 0,
                }
            });
            self.links.insert(host, WatchedHost { covers, ..link });
        }
        for (host, link) in before {
            if now.since(link.heard) >= config.hushed() && is_there(host) {
                self.links.insert(host, WatchedHost { covers: 0, ..link });
            }
        }
        added
    }

    /// Returns a watched host.
    pub fn get(&self, host: HostId) -> Option<&WatchedHost> {
        self.links.get(&host)
    }

    /// Returns the watched hosts.
    pub fn iter(&self) -> impl Iterator<Item = (HostId, &WatchedHost)> {
        self.links.iter().map(|(host, link)| (*host, link))
    }

    /// Returns how many hosts are watched.
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Returns true if no host is watched.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Notes the answer to a probe. Returns the time of the next one, if this is the first answer
    /// of late: the host hears and is heard. `is_first` says that this host stands before the other
    /// one: if both have probed at once, it takes the next turn.
    pub fn answered(
        &mut self,
        now: Instant,
        host: HostId,
        serial: u64,
        is_first: bool,
        config: &Config,
    ) -> Option<Instant> {
        let fresh = |l: &&mut WatchedHost| serial > l.answered && serial <= l.probe.0;
        let link = self.links.get_mut(&host).filter(fresh)?;
        if link.probe.0 == serial {
            link.round_trip = Some(now.since(link.probe.1));
        }
        link.answered = serial;
        link.answers += 1;
        Some(link.hear(now, is_first, config))
    }

    /// Notes a probe of a watched host. Returns the time of the next one to it, if it shows that
    /// the host hears.
    pub fn probed(
        &mut self,
        now: Instant,
        host: HostId,
        is_first: bool,
        config: &Config,
    ) -> Option<Instant> {
        let link = self.links.get_mut(&host)?;
        let before = link.probed.replace(now)?;
        let hurries = now.since(before) < config.probe_every() / 4 * 3;
        (!hurries).then(|| link.hear(now, is_first, config))
    }

    /// Notes that another watcher has heard a host.
    pub fn vouched(&mut self, now: Instant, host: HostId, config: &Config) {
        if let Some(link) = self.links.get_mut(&host) {
            link.vouched = now + config.hushed();
            link.asked = None;
        }
    }

    /// Returns true if the host was heard lately.
    pub fn has_heard(&self, now: Instant, host: HostId, config: &Config) -> bool {
        // A host that was only just watched was not heard.
        let link = self.links.get(&host).filter(|link| link.answers > 0);
        link.is_some_and(|link| now.since(link.heard) < config.hushed())
    }

    /// Returns true if none of several watched hosts was heard for most of the tolerance.
    pub fn is_deaf(&self, now: Instant, config: &Config) -> bool {
        let quiet = config.silent() - config.probe_fast();
        self.links.len() > 1 && self.links.values().all(|link| now.since(link.heard) >= quiet)
    }

    /// Begins to watch all anew, as if all had been heard.
    pub fn restart(&mut self, now: Instant) {
        for link in self.links.values_mut() {
            link.heard = now;
            link.asked = None;
        }
    }

    /// Makes the probes of hosts that answer, and are due for one soon, due now; returns the hosts.
    /// One probe takes others along, so that many links cost few wake-ups: of this host, and of
    /// those that it probes, which take theirs along. Of any two times of a round one comes within
    /// half a round after the other, so all probes of a cluster come together in the end.
    pub fn take_along(&mut self, now: Instant, config: &Config) -> Vec<HostId> {
        let soon = now + config.probe_every() / 2;
        let is_soon = |l: &WatchedHost| {
            // One that has not answered the last probe may still do.
            l.answered == l.probe.0 && !l.is_its_turn && l.next > now && l.next <= soon
        };
        let mut hosts = Vec::new();
        for (host, link) in self.links.iter_mut().filter(|(_, link)| is_soon(link)) {
            link.next = now;
            hosts.push(*host);
        }
        hosts
    }

    /// Says what is to be done about a host, and when to ask again. `rank` is the place of this
    /// watcher among those of the host: the first ones decide earlier and spare the others the
    /// verdict.
    pub fn due(
        &mut self,
        now: Instant,
        host: HostId,
        rank: usize,
        config: &Config,
    ) -> Option<(Due, Instant)> {
        let link = self.links.get_mut(&host)?;
        let silence = now.since(link.heard);
        let mut due = Due::default();
        if now >= link.next {
            self.serial += 1;
            link.probe = (self.serial, now);
            link.probes += 1;
            due.probe = Some(self.serial);
            let is_hushed = silence >= config.hushed();
            // If there is no answer; the answer puts it off.
            link.next = match is_hushed {
                true => now + config.probe_fast(),
                false => (now + config.probe_every()).min(link.heard + config.hushed()),
            };
        }
        let mut wake = link.next;
        if silence >= config.silent() && now >= link.vouched {
            due.suspect = link.asked.is_none();
            due.ask = due.suspect || due.probe.is_some();
            let asked = *link.asked.get_or_insert(now);
            let later = config.tolerance / 400 * rank.min(20) as u32;
            let verdict = asked + config.grace() + later;
            due.lost = now >= verdict;
            wake = wake.min(verdict.max(now + config.probe_fast() / 8));
        } else {
            wake = wake.min((link.heard + config.silent()).max(link.vouched));
        }
        Some((due, wake.max(now + Duration::from_nanos(1))))
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const HOST: HostId = HostId(1);

    fn watch(hosts: &[(HostId, u16)]) -> (Watch, Config) {
        let mut watch = Watch::default();
        let config = Config::default();
        watch.set(Instant(0), hosts, |_| true, &config);
        (watch, config)
    }

    #[test]
    fn due__a_silent_host_is_lost_within_the_tolerance() {
        let (mut watch, config) = watch(&[(HOST, 0)]);
        let (mut now, mut asked) = (Instant(0), None);
        loop {
            let (due, next) = watch.due(now, HOST, 40, &config).unwrap();
            asked = asked.or(due.ask.then_some(now));
            if due.lost {
                break;
            }
            assert!(next > now);
            now = next;
        }
        assert!(now < Instant(0) + config.tolerance, "{now}");
        assert!(asked.unwrap() >= Instant(0) + config.silent());
    }

    #[test]
    fn due__a_word_of_another_watcher_puts_the_verdict_off() {
        let (mut watch, config) = watch(&[(HOST, 0)]);
        let late = Instant(0) + config.silent();
        assert!(watch.due(late, HOST, 0, &config).unwrap().0.ask);
        watch.vouched(late, HOST, &config);
        let later = late + config.grace() + config.grace() / 2;
        assert!(!watch.due(later, HOST, 0, &config).unwrap().0.lost);
        let again = late + config.hushed();
        let (due, _) = watch.due(again, HOST, 0, &config).unwrap();
        assert!(due.ask && !due.lost);
    }

    #[test]
    fn take_along__probes_come_together_and_no_more_often() {
        let (mut watch, config) = watch(&[(HOST, 0), (HostId(2), 0)]);
        let every = config.probe_every();
        let probe = |watch: &mut Watch, now, host| {
            let due = watch.due(now, host, 0, &config).unwrap().0;
            let answered = |serial| watch.answered(now, host, serial, true, &config).is_some();
            due.probe.is_some_and(answered)
        };
        let (mut one, other) = (Instant(1), Instant(1) + every / 4 * 3);
        assert!(probe(&mut watch, one, HOST) && probe(&mut watch, other, HostId(2)));
        // The first comes again before the other one is due soon.
        assert!(watch.take_along(one + every / 4, &config).is_empty());
        one = one + every;
        assert!(probe(&mut watch, one, HOST) && watch.take_along(one, &config).is_empty());
        let both = other + every;
        assert!(probe(&mut watch, both, HostId(2)));
        assert_eq!(watch.take_along(both, &config), [HOST]);
        assert!(probe(&mut watch, both, HOST) && watch.take_along(both, &config).is_empty());
    }

    #[test]
    fn probed__two_hosts_that_watch_each_other_take_turns() {
        let (mut one, config) = watch(&[(HostId(2), 0)]);
        let (mut two, _) = watch(&[(HOST, 0)]);
        let end = Instant(0) + config.tolerance * 20;
        let (mut now, mut times) = (Instant(0), [0u32; 2]);
        while now < end {
            let serials = [
                one.due(now, HostId(2), 0, &config).unwrap().0.probe,
                two.due(now, HOST, 0, &config).unwrap().0.probe,
            ];
            // Probes that cross come before the answers.
            if serials[0].is_some() {
                two.probed(now, HOST, false, &config);
            }
            if serials[1].is_some() {
                one.probed(now, HostId(2), true, &config);
            }
            let heard = [
                serials[0].map(|serial| one.answered(now, HostId(2), serial, true, &config)),
                serials[1].map(|serial| two.answered(now, HOST, serial, false, &config)),
            ];
            for (times, heard) in times.iter_mut().zip(heard) {
                *times += u32::from(heard.is_some());
            }
            let due = [one.get(HostId(2)).unwrap().next, two.get(HOST).unwrap().next];
            now = due[0].min(due[1]);
            assert!(!one.is_deaf(now, &config) && !two.is_deaf(now, &config));
        }
        let all = times[0] + times[1];
        assert!((78..=86).contains(&all), "{times:?}: one for each quarter of the tolerance");
        assert!(times[0].abs_diff(times[1]) <= 3, "{times:?}");
    }

    #[test]
    fn probed__a_host_that_hears_nothing_is_not_heard() {
        let (mut watch, config) = watch(&[(HOST, 0)]);
        let mut now = Instant(0);
        let (due, _) = watch.due(now, HOST, 0, &config).unwrap();
        assert!(watch.answered(now, HOST, due.probe.unwrap(), true, &config).is_some());
        // The host hurries, since it hears no answers, and does not answer either.
        let mut lost = false;
        while !lost && now < Instant(0) + config.tolerance * 2 {
            now = now + config.probe_fast();
            watch.probed(now, HOST, true, &config);
            lost = watch.due(now, HOST, 0, &config).unwrap().0.lost;
        }
        assert!(lost && now <= Instant(0) + config.tolerance, "{now}");
    }

    #[test]
    fn take_along__silent_hosts_keep_their_times() {
        let (mut watch, config) = watch(&[(HOST, 0)]);
        let every = config.probe_every();
        let (due, _) = watch.due(Instant(0), HOST, 0, &config).unwrap();
        // An answer is under way.
        assert!(watch.take_along(Instant(0) + every / 2, &config).is_empty());
        let next = watch.answered(Instant(9), HOST, due.probe.unwrap(), true, &config);
        assert_eq!(next, Some(Instant(0) + every));
        assert!(watch.due(Instant(0) + every, HOST, 0, &config).unwrap().0.probe.is_some());
        let late = Instant(9) + config.hushed();
        assert!(watch.due(late, HOST, 0, &config).unwrap().0.probe.is_some());
        assert!(watch.take_along(late + config.probe_fast() / 2, &config).is_empty());
    }

    #[test]
    fn set__a_silent_host_that_is_there_stays_watched() {
        let (mut watch, config) = watch(&[(HOST, 3), (HostId(2), 0), (HostId(3), 0)]);
        let late = Instant(0) + config.silent();
        let (due, _) = watch.due(late, HostId(2), 0, &config).unwrap();
        watch.answered(late, HostId(2), due.probe.unwrap(), true, &config);
        let added = watch.set(late, &[(HostId(4), 1)], |host| host != HostId(3), &config);
        assert_eq!(added, [HostId(4)]);
        assert_eq!(watch.iter().map(|(host, _)| host.0).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(watch.get(HOST).unwrap().covers, 0);
    }

    #[test]
    fn is_deaf__only_if_no_host_is_heard() {
        let (mut watch, config) = watch(&[(HOST, 0), (HostId(2), 0)]);
        let late = Instant(0) + config.silent();
        assert!(watch.is_deaf(late, &config));
        let (due, _) = watch.due(late, HostId(2), 0, &config).unwrap();
        assert!(watch.answered(late, HostId(2), due.probe.unwrap(), true, &config).is_some());
        assert!(watch.answered(late, HostId(2), due.probe.unwrap(), true, &config).is_none());
        assert!(!watch.is_deaf(late, &config));
    }
}
