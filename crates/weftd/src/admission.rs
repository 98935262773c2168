//! Callers and sessions, and the quotas of each user.

use crate::links::Pool;
use crate::options::Options;
use crate::session::Session;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use weft_agent::{version_text, Attach, Caller, Control, FromRank, InKernel, Served, VERSION};
use weft_cluster::share;
use weft_core::{Instant, PeerId};
use weft_link::secure::{JobKey, Security};
use weft_link::Bytes;
use weft_sys::user::payer;

/// Cost of all ranks together in a turn, in packets. Each rank has an equal share, but at least
/// `SHARE_MIN`.
const BUDGET: u32 = 256;
const SHARE_MIN: u32 = 32;
/// Time for which packets of a rank that ended are still retransmitted.
const LINGER: Duration = Duration::from_secs(5);
/// Longest time from connecting to the first message, if no others wait.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Most callers without a first message, of all users and of one; beyond, the oldest is refused.
const WAITING_MAX: usize = 32;
const WAITING_OF_USER: usize = 16;
/// Most connections beyond sessions, of all users and of one: callers without a first message,
/// callers not yet accepted, and callers that are being refused.
pub const CALLERS_MAX: usize = 64;
pub const CALLERS_OF_USER: usize = 32;

/// Counters that are also reported as sums over all ranks, including those that have ended.
pub const TOTALS: [&str; 5] = ["sent", "retransmitted", "counted", "multicast", "fault_lost"];

/// The ranks and their resources.
pub struct Admission {
    /// Callers that have sent no message yet, each with the end of its time.
    waiting: BTreeMap<u32, (Caller, Instant)>,
    pub sessions: BTreeMap<u32, Box<Session>>,
    /// Callers refused since the last [`turned_away`](Self::turned_away): no more than callers.
    turned_away: Vec<(u32, String)>,
    pub pool: Pool,
    pub options: Options,
    /// The user who started the agent.
    owner: u32,
    /// The user ID that stands for all users without an ID here (the overflow ID).
    unknown: Option<u32>,
    pub now: Instant,
    next: u32,
    /// True: no new ranks.
    pub draining: bool,
    pub served: u64,
    pub refused: u64,
    /// Sums over ranks that have ended: values of [`TOTALS`].
    pub past: [u64; TOTALS.len()],
}

impl FromRank for Admission {
    fn share(&mut self, rank: u32) -> u32 {
        match self.sessions.get(&rank) {
            Some(session) => session.share(),
            // The first message holds the whole request.
            None => self.waiting.contains_key(&rank).into(),
        }
    }

    #[inline]
    fn packet(&mut self, rank: u32, peer: PeerId, header: &[u8], payload: Bytes<'_>) -> u32 {
        match self.sessions.get_mut(&rank) {
            Some(session) => session.packet(peer, header, payload),
            None => 1,
        }
    }

    fn control(&mut self, rank: u32, message: Option<Control>) -> u32 {
        let Some(session) = self.sessions.get_mut(&rank) else {
            if let Some((caller, _)) = self.waiting.remove(&rank) {
                self.on_first(rank, caller, message);
            }
            return u32::MAX;
        };
        let cost = session.control(message);
        if let Some(why) = session.fault.take() {
            self.end(rank, why);
            return u32::MAX;
        }
        cost
    }
}

impl Admission {
    /// Returns an empty admission for an agent that `owner` has started.
    pub fn new(options: Options, pool: Pool, owner: u32, now: Instant) -> Admission {
        Admission {
            waiting: BTreeMap::new(),
            sessions: BTreeMap::new(),
            turned_away: Vec::new(),
            pool,
            options,
            owner,
            unknown: weft_link::user::unknown(),
            now,
            next: 0,
            draining: false,
            served: 0,
            refused: 0,
            past: [0; TOTALS.len()],
        }
    }

    /// True if a user may end the agent and see the ranks of all: root and the owner.
    pub fn commands(&self, user: u32) -> bool {
        self.is_known(user) && (user == 0 || user == self.owner)
    }

    /// True if the user ID stands for one user only.
    pub fn is_known(&self, user: u32) -> bool {
        self.unknown != Some(user)
    }

    /// Returns the number of ranks served.
    pub fn ranks(&self) -> usize {
        self.sessions.values().filter(|session| session.leaving.is_none()).count()
    }

    /// True if there are no sessions and no callers. Callers without a first message count only if
    /// they are of root or the owner.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && !self.waiting.values().any(|(c, _)| self.commands(c.user))
    }

    /// Returns the number of sessions kept for root and the owner.
    fn kept(&self) -> usize {
        self.options.sessions / 8
    }

    /// Returns the reason why a caller is not served, if there is one.
    fn refusal(&self, caller: &Caller) -> Option<String> {
        let (sessions, kept) = (self.options.sessions, self.kept());
        let owner = self.owner == caller.user && self.is_known(caller.user);
        let most = self.options.ranks_of(owner);
        // Ranks that have ended and still retransmit have a session too.
        let all = self.sessions.len();
        let own =
            share::count(caller.user, self.sessions.values().map(|session| session.caller.user));
        if self.draining {
            Some("it is about to end (SIGTERM, or weftd --stop)".into())
        } else if all >= sessions {
            Some(format!("all its {sessions} sessions are taken (weftd --sessions N)"))
        } else if own >= most {
            let user = caller.user;
            Some(format!("user {user} has {own} ranks, the quota (weftd --quota ranks=N)"))
        } else if all >= sessions - kept && !self.commands(caller.user) {
            let owner = self.owner;
            Some(format!(
                "all its {sessions} sessions are taken but {kept} for root and user {owner} \
                 (weftd --sessions N)"
            ))
        } else {
            None
        }
    }

    /// Returns a number that no rank has.
    pub fn number(&mut self) -> u32 {
        loop {
            let rank = self.next;
            self.next = self.next.wrapping_add(1) & 0xffff;
            if !self.sessions.contains_key(&rank) && !self.waiting.contains_key(&rank) {
                return rank;
            }
        }
    }

    /// Adds a caller under the number `rank`.
    pub fn admit(&mut self, rank: u32, caller: Caller) {
        self.waiting.insert(rank, (caller, self.now + TIMEOUT));
        let of = |user| share::count(user, self.waiting.values().map(|(c, _)| c.user));
        let own = of(caller.user);
        let mut most = (caller.user, own);
        if own <= WAITING_OF_USER {
            if self.waiting.len() <= WAITING_MAX {
                return;
            }
            for (other, _) in self.waiting.values() {
                let n = of(other.user);
                most = if n > most.1 { (other.user, n) } else { most };
            }
        }
        let oldest = self.waiting.iter().filter(|(_, (c, _))| payer(c.user) == payer(most.0));
        if let Some((&rank, _)) = oldest.min_by_key(|(_, (_, until))| *until) {
            self.give_up_caller(rank, "it has asked for nothing, and others wait".into());
        }
    }

    /// Refuses callers that have sent no message in time, and all callers while draining.
    pub fn check_waiting(&mut self) {
        let late = |(&rank, (_, until)): (&u32, &(Caller, Instant))| {
            (self.draining || self.now >= *until).then_some(rank)
        };
        let late: Vec<u32> = self.waiting.iter().filter_map(late).collect();
        for rank in late {
            let why = match self.draining {
                true => "it is about to end (SIGTERM, or weftd --stop)".into(),
                false => format!("it has asked for nothing within {} s", TIMEOUT.as_secs()),
            };
            self.give_up_caller(rank, why);
        }
    }

    fn give_up_caller(&mut self, rank: u32, why: String) {
        if let Some((caller, _)) = self.waiting.remove(&rank) {
            self.refuse(rank, &caller, why);
        }
    }

    /// Begins a turn: adds its share to the balance of each rank.
    pub fn begin_turn(&mut self) {
        let sessions = self.sessions.len().max(1) as u32;
        let share = (BUDGET / sessions).max(SHARE_MIN);
        self.sessions.values_mut().for_each(|session| session.begin_turn(share));
    }

    /// Handles a caller's first message: serves or refuses it.
    fn on_first(&mut self, rank: u32, caller: Caller, message: Option<Control>) {
        let served = match message {
            Some(Control::Attach(attach)) => self.attach(rank, caller, &attach),
            Some(Control::Foreign(theirs, _)) => Err(format!(
                "it speaks version {} of the agent's protocol, this program {}: use the weftd of \
                 this program's build",
                version_text(VERSION),
                version_text(theirs)
            )),
            _ => Err("it does not understand how this program asks to be served: use the weftd \
                      of this program's build"
                .into()),
        };
        if let Err(why) = served {
            self.refuse(rank, &caller, why);
        }
    }

    fn attach(&mut self, rank: u32, caller: Caller, attach: &Attach) -> Result<(), String> {
        let (endpoint, other) = (caller.endpoint, attach.endpoint);
        if other != endpoint {
            return Err(format!(
                "the program connected as endpoint {endpoint} and asks as {other}"
            ));
        }
        let Some(job_key) = JobKey::from_bytes(&attach.key) else {
            return Err("the program's job has no key: start it by weft run, or with a key file \
                        that has one"
                .into());
        };
        let mut why = self.refusal(&caller);
        if why.is_some() && !self.draining && self.make_room(caller.user) {
            why = self.refusal(&caller);
        }
        why.map_or(Ok(()), Err)?;
        let security = Security { mode: attach.mode, job_key, me: endpoint };
        let carriers = match self.pool.take(&security) {
            Err(_) if self.give_up(|_, session, _| session.has_told()) => self.pool.take(&security),
            taken => taken,
        };
        let carriers = carriers.map_err(|e| e.to_string())?;
        let mut session =
            Box::new(Session::new(rank, caller, attach, carriers, self.options.quotas));
        if let Some(counters) = self.pool.kernel() {
            session.use_kernel(InKernel {
                counters: Rc::clone(counters),
                key: security.job_key,
                me: endpoint,
                user: payer(caller.user),
            });
        }
        let (address, mtu, latency_ns, bytes_per_us) = session.offer();
        let pid = std::process::id();
        let address = address.encode();
        let served = Served { version: VERSION, pid, mtu, latency_ns, bytes_per_us, address };
        session.say(Control::Attached(served));
        let (process, user) = (caller.pid, caller.user);
        log::info!("serving process {process} of user {user}, endpoint {endpoint}");
        self.served += 1;
        self.sessions.insert(rank, session);
        Ok(())
    }

    /// Refuses a caller: it gets the reason, and its connection ends.
    pub fn refuse(&mut self, rank: u32, caller: &Caller, why: String) {
        log::warn!("process {} of user {} is refused: {why}", caller.pid, caller.user);
        self.refused += 1;
        self.turned_away.push((rank, why));
    }

    /// Ends the service of a rank: it gets the reason, and its connection ends.
    fn end(&mut self, rank: u32, why: String) {
        let Some(session) = self.sessions.get_mut(&rank) else { return };
        let Caller { pid, user, .. } = session.caller;
        log::warn!("process {pid} of user {user} is not served any more: {why}");
        session.end(self.now + LINGER);
        self.refused += 1;
        self.turned_away.push((rank, why));
    }

    /// Returns the callers refused since the last call, and the reasons.
    pub fn turned_away(&mut self) -> Vec<(u32, String)> {
        std::mem::take(&mut self.turned_away)
    }

    /// Handles the end of a rank's connection.
    pub fn on_gone(&mut self, rank: u32) {
        self.waiting.remove(&rank);
        if let Some(session) = self.sessions.get_mut(&rank) {
            session.end(self.now + LINGER);
        }
    }

    /// Frees sessions of ranks that have ended and whose last packets have arrived.
    pub fn clear(&mut self) {
        let now = self.now;
        self.give_up(|_, session, until| session.is_quiet() || now >= until);
    }

    /// Frees sessions of ended ranks that only repeat their last packets, for a new rank of `user`:
    /// sessions of all users if no session is left for it, else those of this user. True if there
    /// were any.
    fn make_room(&mut self, user: u32) -> bool {
        let kept = if self.commands(user) { 0 } else { self.kept() };
        let full = self.sessions.len() >= self.options.sessions - kept;
        self.give_up(|of, session, _| (full || payer(of) == payer(user)) && session.has_told())
    }

    /// Frees sessions of ended ranks for which `done(user, session, until)` is true. True if there
    /// were any.
    fn give_up(&mut self, done: impl Fn(u32, &Session, Instant) -> bool) -> bool {
        let done = |session: &Session| {
            session.leaving.is_some_and(|at| done(session.caller.user, session, at))
        };
        let gone: Vec<u32> =
            self.sessions.iter().filter(|(_, s)| done(s)).map(|(r, _)| *r).collect();
        for rank in &gone {
            if let Some(session) = self.sessions.remove(rank) {
                self.past = add_totals(self.past, &session);
                self.pool.give_back(session.into_carriers());
            }
        }
        !gone.is_empty()
    }

    /// Returns sums over all ranks: values of [`TOTALS`].
    pub fn totals(&self) -> [u64; TOTALS.len()] {
        self.sessions.values().fold(self.past, |totals, session| add_totals(totals, session))
    }
}

/// Adds the counters of one rank to values of [`TOTALS`].
fn add_totals(mut totals: [u64; TOTALS.len()], session: &Session) -> [u64; TOTALS.len()] {
    for (name, value) in session.state().into_iter().chain([("fault_lost", session.lost())]) {
        if let Some(at) = TOTALS.iter().position(|total| *total == name) {
            totals[at] += value;
        }
    }
    totals
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use weft_core::{Config, EndpointId};
    use weft_link::secure::Mode;

    fn admission(owner: u32) -> Admission {
        let options = Options::parse(["--links", "udp"].map(String::from)).unwrap();
        let pool = Pool::open(&options).unwrap();
        Admission::new(options, pool, owner, Instant(1))
    }

    fn caller(user: u32) -> Caller {
        Caller { endpoint: EndpointId(1), user, pid: 1 }
    }

    /// A caller of this user asks to be served; returns the reason of a refusal.
    fn ask(admission: &mut Admission, user: u32) -> Option<String> {
        let rank = admission.number();
        admission.admit(rank, caller(user));
        let attach = Attach::new(EndpointId(1), Mode::Auth, [7; 32], &Config::default());
        assert_eq!(admission.share(rank), 1);
        admission.control(rank, Some(Control::Attach(attach)));
        admission.turned_away().into_iter().find(|(of, _)| *of == rank).map(|(_, why)| why)
    }

    #[test]
    fn refusal__whatever_some_take_others_find_a_session() {
        let mut admission = admission(0);
        let served = (0..16).take_while(|_| ask(&mut admission, 1000).is_none()).count();
        assert_eq!(served, 12);
        let why = ask(&mut admission, 1000).unwrap();
        assert!(why.contains("user 1000 has 12 ranks, the quota"), "{why}");
        assert_eq!((ask(&mut admission, 1001), ask(&mut admission, 1002)), (None, None));
        let why = ask(&mut admission, 1003).unwrap();
        assert!(why.contains("but 2 for root and user 0") && why.contains("--sessions"), "{why}");
        assert_eq!((ask(&mut admission, 0), ask(&mut admission, 0)), (None, None));
        assert!(ask(&mut admission, 0).unwrap().contains("all its 16 sessions are taken"));
        assert_eq!(admission.ranks(), 16);
    }

    #[test]
    fn admit__callers_that_ask_for_nothing_take_no_session_and_give_way() {
        let mut admission = admission(1000);
        // Many users, as a user has who may map other users' IDs.
        let mut gone = 0;
        for n in 0..500 {
            let rank = admission.number();
            admission.admit(rank, caller(2000 + n % 3));
            assert!(admission.waiting.len() <= WAITING_MAX);
            assert!(admission.waiting.contains_key(&rank), "the newest stays");
            let told = admission.turned_away();
            assert!(told.iter().all(|(_, why)| why.contains("asked for nothing")));
            gone += told.len();
        }
        assert_eq!(gone, 500 - WAITING_MAX);
        assert!(admission.is_empty(), "nobody who matters");
        for user in [0, 1000, 3000] {
            assert_eq!(ask(&mut admission, user), None);
        }
        // Callers of a user with many are refused before those of other users.
        for _ in 0..100 {
            let rank = admission.number();
            admission.admit(rank, caller(5));
            assert!(
                admission.waiting.values().filter(|(c, _)| c.user == 5).count() <= WAITING_OF_USER
            );
        }
        admission.turned_away();
        admission.now = admission.now + TIMEOUT;
        admission.check_waiting();
        assert!(admission.waiting.is_empty());
        assert!(admission.turned_away().iter().all(|(_, why)| why.contains("within 20 s")));
    }

    #[test]
    fn begin_turn__a_rank_that_costs_more_than_its_share_is_not_served_until_it_is_paid() {
        let mut admission = admission(0);
        (0..4).for_each(|_| assert_eq!(ask(&mut admission, 0), None));
        admission.begin_turn();
        let ranks: Vec<u32> = admission.sessions.keys().copied().collect();
        assert!(ranks.iter().all(|&rank| admission.share(rank) == BUDGET / 4));
        let leave =
            |admission: &mut Admission| admission.control(ranks[0], Some(Control::GroupLeave(1)));
        while admission.share(ranks[0]) > 0 {
            leave(&mut admission);
        }
        let words = Control::CounterOpen(1, 4096, 0, false);
        let cost = admission.control(ranks[0], Some(words));
        assert!(cost > BUDGET / 4, "{cost}");
        let mut turns = 0;
        while admission.share(ranks[0]) == 0 {
            admission.begin_turn();
            turns += 1;
            assert!(ranks[1..].iter().all(|&rank| admission.share(rank) == BUDGET / 4));
        }
        assert!(turns > 1 && turns <= 2 + cost / (BUDGET / 4), "{turns} for {cost}");
    }
}
