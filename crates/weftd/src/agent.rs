//! The main loop: rings of ranks on one side, links on the other.

use crate::admission::{Admission, CALLERS_MAX, CALLERS_OF_USER, TOTALS};
use crate::cluster::Cluster;
use crate::links::Pool;
use crate::options::{Options, SHARING_MAX};
use crate::sockets::Sockets;
use crate::status::{Question, StatusServer};
use crate::sys;
use std::os::fd::AsRawFd;
use std::time::Duration;
use weft_agent::{Broker, BrokerLimits, Caller, Control, Hub};
use weft_core::Instant;
use weft_link::{LinkError, LinkEvent, Next, Turn, WaitFd};
use weft_sys::epoll::{Epoll, Interest};
use weft_sys::foreign;

/// Time between two polls of quiet links whose poll costs a system call.
const IDLE_EVERY: Duration = Duration::from_micros(250);
/// Time between two polls of links' events, callers and the status socket.
const SELDOM: Duration = Duration::from_millis(1);
/// Longest sleep, so that signals and the status socket are checked as often.
const SLEEP_MAX: Duration = Duration::from_millis(500);
/// Numbers of what rarely has something, in the set of descriptors that tells it.
const DESK: u64 = 0;
const BROKER: u64 = 1;
const DATAGRAMS: u64 = 2;
const PROGRAMS: u64 = 3;
const SOCKETS: u64 = 4;
/// Longest sleep while no connection is accepted: the listeners, which stay readable, end no sleep.
const SLEEP_FULL: Duration = Duration::from_millis(2);
/// Longest sleep while a rank that shares memory has to read before another one is joined to it.
const SLEEP_KEPT: Duration = Duration::from_millis(5);
/// With `once`: time without ranks after which the agent ends.
const EMPTY_MAX: Duration = Duration::from_secs(60);

/// The agent of a host.
pub struct Agent {
    options: Options,
    hub: Hub,
    admission: Admission,
    desk: StatusServer,
    broker: Broker,
    cluster: Option<Cluster>,
    sockets: Sockets,
    /// The listeners of desk, broker, cluster and socket programs.
    listeners: Epoll,
    ready: Vec<u64>,
    look_at: Instant,
    listen_at: Instant,
    empty_since: Option<Instant>,
    idle_since: Option<Instant>,
    turn: Turn,
}

impl Agent {
    /// Listens, and opens the sockets that need rights.
    ///
    /// # Errors
    /// Another process listens there, or no link can be opened.
    pub fn open(options: Options) -> Result<Agent, LinkError> {
        sys::prepare_socket_path(&options.name);
        // More callers than sessions, so that callers in excess can read the reason of their
        // refusal, and so that one user cannot take all connections.
        let sessions = options.sessions;
        let hub = Hub::listen(&options.name, sessions + CALLERS_MAX, sessions + CALLERS_OF_USER)?;
        sys::let_all_connect(&options.name);
        let desk = StatusServer::open(&options.name)?;
        let broker = open_broker(&options)?;
        let pool = Pool::open(&options)?;
        let now = sys::now();
        let cluster = match options.cluster.name.is_empty() {
            true => None,
            false => Some(Cluster::open(&options, now)?),
        };
        let sockets = Sockets::open(&options.name)?;
        let listeners = watch(&desk, &broker, cluster.as_ref(), &sockets).map_err(|source| {
            let (what, fix) = ("watching sockets".into(), "end other programs");
            LinkError::System { what, source, fix }
        })?;
        let admission = Admission::new(options.clone(), pool, sys::effective_user(), now);
        Ok(Agent {
            options,
            hub,
            admission,
            desk,
            broker,
            cluster,
            sockets,
            listeners,
            ready: Vec::new(),
            look_at: now,
            listen_at: now,
            empty_since: Some(now),
            idle_since: None,
            turn: Turn::default(),
        })
    }

    /// Returns the number of free raw sockets.
    pub fn raw_sockets(&self) -> usize {
        self.admission.pool.raw()
    }

    /// Returns the number of ranks served.
    pub fn ranks(&self) -> usize {
        self.admission.ranks()
    }

    /// Refuses new ranks; the agent ends when the present ones have left.
    pub fn drain(&mut self) {
        self.admission.draining = true;
    }

    /// Leaves the cluster in good order.
    pub fn leave(&mut self) {
        if let Some(mut cluster) = self.cluster.take() {
            cluster.leave(sys::now());
        }
    }

    /// Does one round. True if there was work.
    pub fn progress(&mut self) -> bool {
        let now = sys::now();
        self.admission.now = now;
        self.admission.begin_turn();
        let mut did = self.hub.recv(&mut self.admission) > 0;
        self.tell_refused();
        let rarely = now >= self.look_at;
        if rarely {
            self.look_at = now + IDLE_EVERY;
        }
        for (&rank, session) in &mut self.admission.sessions {
            did |= session.flush(now);
            did |= session.look(now, &mut self.hub, rarely);
            if session.next_timeout().is_some_and(|at| at <= now) {
                session.on_time(now);
            }
            did |= session.flush(now);
            did |= session.pump(&mut self.hub);
            // The rank is served again when its balance is positive.
            did |= session.share() == 0;
            let muted = !session.has_room();
            if muted != session.muted {
                session.muted = muted;
                self.hub.mute(rank, muted);
            }
        }
        if now >= self.listen_at {
            self.listen_at = now + SELDOM;
            self.attend(now);
        }
        did
    }

    /// Handles rare events: callers, ends of ranks, the status socket.
    fn attend(&mut self, now: Instant) {
        self.hub.poll_sockets();
        for caller in self.hub.callers() {
            self.admit(&caller);
        }
        while let Some(event) = self.hub.poll_event() {
            match event {
                LinkEvent::PeerGone(rank)
                | LinkEvent::PeerRefused(rank, _)
                | LinkEvent::PeerFailed(rank, _) => {
                    self.admission.on_gone(rank.0);
                }
                LinkEvent::Warning(text) => log::warn!("{text}; that rank is ended"),
                _ => {}
            }
        }
        self.admission.sessions.values_mut().for_each(|session| session.listen(now));
        self.admission.check_waiting();
        self.tell_refused();
        self.admission.clear();
        self.listeners.ready(&mut self.ready);
        let has = |listener| self.ready.contains(&listener);
        let sharing = &self.options.sharing;
        if has(BROKER) || !self.broker.is_idle() {
            self.broker.serve(&|one, other| sharing.may(one, other));
        }
        if let Some(cluster) = &mut self.cluster {
            cluster.serve(now, has(DATAGRAMS), has(PROGRAMS));
        }
        if has(SOCKETS) || !self.sockets.is_idle() {
            self.sockets.serve(now, &|one, other| sharing.may(one, other).is_ok());
        }
        if has(DESK) || !self.desk.is_idle() {
            self.answer(now);
        }
        match self.admission.is_empty() {
            true => {
                self.empty_since.get_or_insert(now);
            }
            false => self.empty_since = None,
        }
    }

    /// Answers at the status socket. To end the agent takes its owner or root, and no attached
    /// ranks.
    fn answer(&mut self, now: Instant) {
        let (hub, admission, broker, mut stop) = (&self.hub, &self.admission, &self.broker, false);
        let sockets = &self.sockets;
        let cluster = self.cluster.as_ref();
        self.desk.serve(now, |question, user| {
            let is_owner = admission.commands(user);
            let ranks = admission.ranks();
            match question {
                Question::Status => {
                    let mut text = report(hub, admission, broker, user);
                    sockets.counters(&mut |n, value| text.push_str(&format!("{n} {value}\n")));
                    if let Some(cluster) = cluster {
                        cluster.report(&mut |n, value| text.push_str(&format!("{n} {value}\n")));
                    }
                    text
                }
                Question::Stop if !is_owner => "refused: not its owner\n".to_string(),
                Question::Stop if ranks > 0 => format!(
                    "refused: {ranks} ranks are attached; try again when their jobs have ended, \
                     or end it by SIGTERM, twice to lose them\n"
                ),
                Question::Stop => {
                    stop = true;
                    format!("{}\n", weft_cluster::desk::ENDING)
                }
            }
        });
        self.admission.draining |= stop;
    }

    /// Accepts a caller: its messages are read from now on.
    fn admit(&mut self, caller: &Caller) {
        let rank = self.admission.number();
        if self.hub.admit(caller.endpoint, rank) {
            self.admission.admit(rank, *caller);
        }
    }

    /// Sends the reason to refused callers and ends their connections. The message can still be
    /// read then, and no connection is held for a caller that is not served.
    fn tell_refused(&mut self) {
        for (rank, why) in self.admission.turned_away() {
            self.hub.say(rank, &Control::Refused(why));
            self.hub.dismiss(rank);
        }
    }

    /// True if the agent is to end: draining and empty, or with `once` no rank came or all have
    /// left.
    pub fn is_done(&self) -> bool {
        let now = self.admission.now;
        let empty = self.admission.is_empty();
        let long = self.empty_since.is_some_and(|at| now.since(at) >= EMPTY_MAX);
        let left = self.options.once && (self.admission.served > 0 || long);
        empty && (self.admission.draining || (left && self.empty_since.is_some_and(|at| now > at)))
    }

    /// Does a round, and sleeps if there is no work.
    pub fn step(&mut self) {
        if self.progress() {
            self.idle_since = None;
            return;
        }
        let now = self.admission.now;
        let since = *self.idle_since.get_or_insert(now);
        let late = now.since(since) >= self.options.spin;
        // Only work of ranks is followed by more within the time that it yields the core: datagrams
        // of other agents and requests of programs end a sleep, and the next one begins.
        if late || self.turn.hand_over(now, sys::now) == Next::Sleep {
            self.sleep(now);
        }
    }

    /// Prepares a sleep; returns its end and adds the descriptors that end it. `None`: there is
    /// work.
    fn prepare_sleep(
        &mut self,
        now: Instant,
        has_room: bool,
        fds: &mut Vec<WaitFd>,
    ) -> Option<Instant> {
        if has_room {
            self.hub.wait_fds(fds);
            self.desk.wait_fds(fds);
            fds.push(WaitFd { fd: self.listeners.as_raw_fd() });
        }
        let keeps = self.broker.keeps() || self.sockets.holds();
        // A caller not yet accepted may have sent everything: no descriptor would end the sleep.
        let mut idle = self.hub.prepare_wait() && !self.hub.has_callers();
        let mut until = match keeps {
            _ if !has_room => now + SLEEP_FULL,
            true => now + SLEEP_KEPT,
            false => now + SLEEP_MAX,
        };
        until = self.cluster.as_ref().map_or(until, |c| until.min(c.next_timeout()));
        for session in self.admission.sessions.values_mut() {
            until = session.next_timeout().map_or(until, |at| until.min(at));
            for carrier in session.carriers() {
                idle &= carrier.link().prepare_wait();
                carrier.link().wait_fds(fds);
            }
        }
        idle.then_some(until)
    }

    fn sleep(&mut self, now: Instant) {
        let mut fds: Vec<WaitFd> = Vec::new();
        if let Some(until) = self.prepare_sleep(now, foreign::has_room(), &mut fds) {
            sys::wait(&fds, until.since(now));
        }
        self.hub.finish_wait();
        for session in self.admission.sessions.values_mut() {
            session.carriers().for_each(|c| c.link().finish_wait(true));
        }
        // After a sleep everything is polled, also links whose poll costs a system call.
        (self.look_at, self.listen_at) = (Instant(0), Instant(0));
    }
}

/// Makes the set of descriptors that tells what rarely has something.
fn watch(
    desk: &StatusServer,
    broker: &Broker,
    cluster: Option<&Cluster>,
    sockets: &Sockets,
) -> std::io::Result<Epoll> {
    let set = Epoll::new()?;
    set.add(&desk.listener_fd(), DESK, Interest::READ)?;
    set.add(&sockets.listener_fd(), SOCKETS, Interest::READ)?;
    let mut fds = Vec::new();
    broker.wait_fds(&mut fds);
    fds.iter().try_for_each(|one| set.add(&one.fd, BROKER, Interest::READ))?;
    if let Some((datagrams, programs)) = cluster.map(Cluster::listener_fds) {
        set.add(&datagrams, DATAGRAMS, Interest::READ)?;
        programs.iter().try_for_each(|one| set.add(one, PROGRAMS, Interest::READ))?;
    }
    Ok(set)
}

/// Listens for ranks of containers that share memory.
fn open_broker(options: &Options) -> Result<Broker, LinkError> {
    let name = Broker::socket_name(&options.name);
    sys::prepare_socket_path(&name);
    let of_user = options.quotas.sharing.unwrap_or(SHARING_MAX / 4 * 3);
    let limits = BrokerLimits { ranks: SHARING_MAX, of_user: of_user.min(SHARING_MAX) };
    let broker = Broker::listen(&options.name, limits)?;
    sys::let_all_connect(&name);
    sys::raise_files();
    Ok(broker)
}

/// Returns the status as lines `name value`, and one line for each rank that the user may see.
fn report(hub: &Hub, admission: &Admission, broker: &Broker, asking: u32) -> String {
    let mut out = format!(
        "weftd {}\nprotocol {}\nprocess {}\nname {}\nranks {}\nsessions {}\nraw_free {}\n\
         served {}\nrefused {}\n",
        crate::version(),
        crate::protocol(),
        std::process::id(),
        hub.name(),
        admission.ranks(),
        admission.options.sessions,
        admission.pool.raw(),
        admission.served,
        admission.refused,
    );
    out.push_str(&format!("share {}\n", admission.options.sharing));
    broker.counters(&mut |name, value| out.push_str(&format!("{name} {value}\n")));
    if let Some(kernel) = admission.pool.kernel() {
        let (words, clients) = kernel.in_use();
        out.push_str(&format!("kernel_words {words}\nkernel_clients {clients}\n"));
    }
    for (name, value) in TOTALS.iter().zip(admission.totals()) {
        out.push_str(&format!("{name} {value}\n"));
    }
    // A user learns only the number of other users' ranks.
    let (all, mut others) = (admission.commands(asking), 0);
    for session in admission.sessions.values() {
        let Caller { endpoint, user, pid } = session.caller;
        if !all && (user != asking || !admission.is_known(user)) {
            others += 1;
            continue;
        }
        out.push_str(&format!("rank {endpoint} user {user} process {pid}"));
        for (name, value) in session.state() {
            out.push_str(&format!(" {name} {value}"));
        }
        out.push('\n');
    }
    if !all {
        out.push_str(&format!("others {others}\n"));
    }
    out
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use weft_agent::{Attach, BareRank, GroupRole};
    use weft_core::group::tree::Tree;
    use weft_core::{Config, EndpointId, PeerId};
    use weft_link::secure::Mode;

    #[test]
    fn sleep__not_while_a_caller_waits_to_be_admitted() {
        let (mut agent, name) = agent("");
        let now = sys::now();
        agent.progress();
        assert!(agent.prepare_sleep(now, true, &mut Vec::new()).is_some());
        agent.hub.finish_wait();
        let _caller = BareRank::connect(&name, EndpointId(5)).unwrap();
        // A caller that is noticed between two polls of callers.
        agent.hub.poll_sockets();
        assert!(agent.prepare_sleep(now, true, &mut Vec::new()).is_none());
        agent.hub.finish_wait();
        agent.attend(now);
        assert!(agent.prepare_sleep(now, true, &mut Vec::new()).is_some());
    }

    #[test]
    fn sleep__a_listener_does_not_end_it_while_no_connection_is_accepted() {
        let (mut agent, name) = agent("");
        let now = sys::now();
        agent.progress();
        let _caller = BareRank::connect(&name, EndpointId(5)).unwrap();
        let mut fds = Vec::new();
        let until = agent.prepare_sleep(now, false, &mut fds).unwrap();
        agent.hub.finish_wait();
        assert!(fds.is_empty() && until == now + SLEEP_FULL);
        agent.prepare_sleep(now, true, &mut fds);
        agent.hub.finish_wait();
        assert!(fds.len() > 1);
    }

    /// Returns an agent and its name.
    fn agent(words: &str) -> (Agent, String) {
        let name = format!("@weft-agent-test-{:016x}", weft_link::random_u64());
        let words = format!("--links udp --name {name} {words}");
        let options = Options::parse(words.split_whitespace()).unwrap();
        (Agent::open(options).unwrap(), name)
    }

    fn served(agent: &mut Agent, name: &str, id: u64) -> BareRank {
        let me = EndpointId(id);
        let mut rank = BareRank::connect(name, me).unwrap();
        let attach = Attach::new(me, Mode::Auth, [5; 32], &Config::default());
        assert!(rank.say(&Control::Attach(attach).encode()));
        while !rank.heard().iter().any(|m| matches!(m, Control::Attached(_))) {
            agent.progress();
        }
        rank
    }

    #[test]
    fn progress__ranks_that_take_all_they_can_hold_up_another_by_no_turn() {
        const GREEDY: u64 = 12;
        let (mut agent, name) = agent("");
        let role = |group| GroupRole {
            group,
            tree: Tree::Flat,
            size: 1025,
            me: 0,
            parent: PeerId(u32::MAX),
            children: (0..1024).map(PeerId).collect(),
        };
        let mut greedy: Vec<BareRank> =
            (1..=GREEDY).map(|id| served(&mut agent, &name, id)).collect();
        let mut polite = served(&mut agent, &name, 100);
        for rank in &mut greedy {
            for group in 0..64 {
                while !rank.say(&Control::GroupJoin(role(group)).encode()) {
                    agent.progress();
                    rank.heard();
                }
            }
        }
        let work = |agent: &Agent| {
            let of = |session: &crate::session::Session| session.group_work();
            agent.admission.sessions.values().map(|session| of(session)).collect::<Vec<u64>>()
        };
        let (mut turns, mut most) = (0, 0);
        for round in 0..200 {
            assert!(polite.say(&Control::CounterRead(1, round).encode()));
            let answer = Control::CounterIs(1, round, None);
            loop {
                for rank in &mut greedy {
                    rank.heard();
                    let mut n = 0;
                    // Each such message concerns all children of a group.
                    while rank.say(&Control::GroupGrant(n % 64, n as u32 % 64).encode()) {
                        n += 1;
                    }
                }
                let before = work(&agent);
                agent.progress();
                turns += 1;
                let after = work(&agent);
                let each = after.iter().zip(&before).map(|(a, b)| a - b);
                most = each.max().unwrap().max(most);
                if polite.heard().contains(&answer) {
                    break;
                }
            }
        }
        assert!(turns <= 220, "{turns} turns for 200 rounds");
        // Visiting all groups after each message would take 65,536 visits per message.
        assert!(most <= 2 * 5_000, "{most} visits of children for one rank in a turn");
    }
}
