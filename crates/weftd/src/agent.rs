//! The loop: rings of ranks on one side, links on the other.

use crate::links::Pool;
use crate::options::Options;
use crate::seat::Seat;
use crate::status::{Desk, Question};
use crate::sys;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use weft_core::{Instant, PeerId};
use weft_link::agent::{Attach, Caller, Control, FromRank, Hub, InKernel, Served, VERSION};
use weft_link::secure::{JobKey, Security};
use weft_link::{Bytes, LinkError, LinkEvent, Next, Turn, WaitFd};

/// Packets and messages taken from all ranks before the links are looked at.
const BUDGET: usize = 256;
/// Between two looks at quiet links that cost a system call.
const RARELY: Duration = Duration::from_micros(250);
/// Between two looks at what links have noticed.
const SELDOM: Duration = Duration::from_millis(1);
/// How long what an ended rank has sent is still sent again.
const LINGER: Duration = Duration::from_secs(5);
/// How long a rank may take from connecting to asking.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest sleep: signals and the desk are looked at as often.
const SLEEP_MAX: Duration = Duration::from_millis(500);
/// With `once`, how long nobody may be there.
const EMPTY_MAX: Duration = Duration::from_secs(60);

/// A rank, served or about to be.
enum Place {
    /// Connected; it has not asked yet.
    Waiting(Caller, Instant),
    Served(Box<Seat>),
}

impl Place {
    fn user(&self) -> u32 {
        match self {
            Place::Waiting(caller, _) => caller.user,
            Place::Served(seat) => seat.caller.user,
        }
    }
}

/// The agent of a host.
pub struct Agent {
    options: Options,
    hub: Hub,
    room: Room,
    desk: Desk,
    look_at: Instant,
    listen_at: Instant,
    empty_since: Option<Instant>,
    idle_since: Option<Instant>,
    turn: Turn,
    /// No new ranks: it ends when those that are here have left.
    draining: bool,
}

/// Counters that are also told for all ranks together, those that have ended included.
const TOTALS: [&str; 5] = ["sent", "retransmitted", "counted", "multicast", "fault_lost"];

/// The ranks and what they get.
struct Room {
    places: BTreeMap<u32, Place>,
    /// Those refused since they were last told: no more than callers.
    turned_away: Vec<(u32, String)>,
    pool: Pool,
    options: Options,
    /// The user who started the agent.
    owner: u32,
    now: Instant,
    next: u32,
    served: u64,
    refused: u64,
    /// What was done for ranks that have ended: values of [`TOTALS`].
    past: [u64; TOTALS.len()],
}

impl FromRank for Room {
    #[inline]
    fn packet(&mut self, rank: u32, peer: PeerId, header: &[u8], payload: Bytes<'_>) {
        if let Some(Place::Served(seat)) = self.places.get_mut(&rank) {
            seat.packet(peer, header, payload);
        }
    }

    fn control(&mut self, rank: u32, message: Option<Control>) {
        match (self.places.get_mut(&rank), message) {
            (Some(Place::Served(seat)), _) if seat.leaving.is_some() => {}
            (Some(Place::Served(seat)), Some(message)) => {
                seat.control(self.now, message);
                if let Some(why) = seat.fault.take() {
                    self.end(rank, why);
                }
            }
            (Some(Place::Waiting(caller, _)), message) => {
                let caller = *caller;
                self.on_first(rank, caller, message);
            }
            (Some(Place::Served(seat)), None) => {
                seat.say(Control::Notice("the agent did not understand a message".into()));
            }
            (None, _) => {}
        }
    }
}

impl Room {
    /// Whether a user may end the agent, and see the ranks of all: root, and who started it.
    fn commands(&self, user: u32) -> bool {
        user == 0 || user == self.owner
    }

    /// Seats of ranks that are served or about to be.
    fn taken(&self) -> impl Iterator<Item = Caller> + '_ {
        self.places.values().filter_map(|place| match place {
            Place::Waiting(caller, _) => Some(*caller),
            Place::Served(seat) if seat.leaving.is_none() => Some(seat.caller),
            Place::Served(_) => None,
        })
    }

    /// Why a caller is not served, if so.
    fn refusal(&self, caller: &Caller, draining: bool) -> Option<String> {
        let seats = self.options.seats;
        let most = self.options.ranks_of(caller.user, self.owner);
        let all = self.places.len();
        // Those that have ended and still deliver have a seat too.
        let own = self.places.values().filter(|p| p.user() == caller.user).count();
        if draining {
            Some("it is about to end (SIGTERM, or weftd --stop)".into())
        } else if all >= seats {
            Some(format!("all its {seats} seats are taken (weftd --seats N)"))
        } else if own >= most {
            let user = caller.user;
            Some(format!("user {user} has {own} ranks, the quota (weftd --quota ranks=N)"))
        } else {
            None
        }
    }

    /// A caller's first message: it is served, or told why not.
    fn on_first(&mut self, rank: u32, caller: Caller, message: Option<Control>) {
        let served = match message {
            Some(Control::Attach(attach)) => self.attach(rank, caller, &attach),
            Some(Control::Foreign(theirs, _)) => Err(format!(
                "it speaks version {VERSION} of the agent's protocol, this program {theirs}: use \
                 the weftd of this program's release"
            )),
            _ => Err("it does not understand how this program asks to be served: use the weftd \
                      of this program's release"
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
        let security = Security { mode: attach.mode, job_key, me: endpoint };
        let carriers = match self.pool.take(&security) {
            Err(_) if self.give_up(|_, seat, _| seat.has_told()) => self.pool.take(&security),
            taken => taken,
        };
        let carriers = carriers.map_err(|e| e.to_string())?;
        let mut seat = Box::new(Seat::new(rank, caller, attach, carriers, self.options.quotas));
        if let Some(counters) = self.pool.kernel() {
            seat.use_kernel(InKernel {
                counters: Rc::clone(counters),
                key: security.job_key,
                me: endpoint,
                user: caller.user,
            });
        }
        let (address, mtu, latency_ns, bytes_per_us) = seat.offer();
        let pid = std::process::id();
        let address = address.encode();
        let served = Served { version: VERSION, pid, mtu, latency_ns, bytes_per_us, address };
        seat.say(Control::Attached(served));
        let (process, user) = (caller.pid, caller.user);
        log::info!("serving process {process} of user {user}, endpoint {endpoint}");
        self.served += 1;
        self.places.insert(rank, Place::Served(seat));
        Ok(())
    }

    /// A caller is not served: it is told why, and its connection ends.
    fn refuse(&mut self, rank: u32, caller: &Caller, why: String) {
        log::warn!("process {} of user {} is refused: {why}", caller.pid, caller.user);
        self.refused += 1;
        self.places.remove(&rank);
        self.turned_away.push((rank, why));
    }

    /// A rank is not served any more: it is told why, and its connection ends.
    fn end(&mut self, rank: u32, why: String) {
        if let Some(Place::Served(seat)) = self.places.get_mut(&rank) {
            let Caller { pid, user, .. } = seat.caller;
            log::warn!("process {pid} of user {user} is not served any more: {why}");
            seat.end(self.now + LINGER);
            self.refused += 1;
            self.turned_away.push((rank, why));
        }
    }

    /// A rank's connection has ended.
    fn on_gone(&mut self, rank: u32) {
        match self.places.get_mut(&rank) {
            Some(Place::Served(seat)) => seat.end(self.now + LINGER),
            Some(_) => {
                self.places.remove(&rank);
            }
            None => {}
        }
    }

    /// Gives up seats of ranks whose last words have arrived.
    fn clear(&mut self) {
        let now = self.now;
        self.give_up(|_, seat, until| seat.is_quiet() || now >= until);
    }

    /// Gives up seats of ranks that only repeat their last words, for one of `user` who comes next:
    /// of everybody when all seats are taken, else of this user. Whether there were any.
    fn make_room(&mut self, user: u32) -> bool {
        let full = self.places.len() >= self.options.seats;
        self.give_up(|place_of, seat, _| (full || place_of == user) && seat.has_told())
    }

    /// Gives up those of the seats of ranks that have ended of which `done`, given their users, is
    /// true; whether there were any.
    fn give_up(&mut self, done: impl Fn(u32, &Seat, Instant) -> bool) -> bool {
        let done = |place: &Place| match place {
            Place::Served(s) => s.leaving.is_some_and(|until| done(place.user(), s, until)),
            _ => false,
        };
        let gone: Vec<u32> = self.places.iter().filter(|(_, p)| done(p)).map(|(r, _)| *r).collect();
        for rank in &gone {
            if let Some(Place::Served(seat)) = self.places.remove(rank) {
                self.past = add_totals(self.past, &seat);
                self.pool.give_back(seat.into_carriers());
            }
        }
        !gone.is_empty()
    }
}

impl Agent {
    /// Listens, and opens what takes rights.
    ///
    /// # Errors
    /// Somebody else listens there, or no link can be opened.
    pub fn open(options: Options) -> Result<Agent, LinkError> {
        sys::make_way(&options.name);
        // More callers than seats, so that those in excess are told why, and room for others
        // whatever one user does.
        let hub = Hub::listen(&options.name, options.seats + 64, options.seats + 16)?;
        sys::let_all_connect(&options.name);
        let desk = Desk::open(&options.name)?;
        let pool = Pool::open(&options)?;
        let now = sys::now();
        let room = Room {
            places: BTreeMap::new(),
            turned_away: Vec::new(),
            pool,
            options: options.clone(),
            owner: sys::effective_user(),
            now,
            next: 0,
            served: 0,
            refused: 0,
            past: [0; TOTALS.len()],
        };
        Ok(Agent {
            options,
            hub,
            room,
            desk,
            look_at: now,
            listen_at: now,
            empty_since: Some(now),
            idle_since: None,
            turn: Turn::default(),
            draining: false,
        })
    }

    /// Raw sockets that are free.
    pub fn raw_sockets(&self) -> usize {
        self.room.pool.raw()
    }

    /// Ranks that are served.
    pub fn ranks(&self) -> usize {
        self.room.taken().count()
    }

    /// Takes no new ranks, and ends when those that are here have left.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// One round. True if anything happened.
    pub fn progress(&mut self) -> bool {
        let now = sys::now();
        self.room.now = now;
        let mut did = self.hub.recv(BUDGET, &mut self.room) > 0;
        self.tell_refused();
        let rarely = now >= self.look_at;
        if rarely {
            self.look_at = now + RARELY;
        }
        for (&rank, place) in &mut self.room.places {
            let Place::Served(seat) = place else { continue };
            did |= seat.flush(now);
            did |= seat.look(now, &mut self.hub, rarely);
            if seat.next_timeout().is_some_and(|at| at <= now) {
                seat.on_time(now);
            }
            did |= seat.flush(now);
            did |= seat.pump(&mut self.hub);
            let muted = !seat.has_room();
            if muted != seat.muted {
                seat.muted = muted;
                self.hub.mute(rank, muted);
            }
        }
        if now >= self.listen_at {
            self.listen_at = now + SELDOM;
            self.attend(now);
        }
        did
    }

    /// What is looked at now and then: callers, ends, the desk.
    fn attend(&mut self, now: Instant) {
        self.hub.look_at_sockets();
        for caller in self.hub.callers() {
            self.meet(caller, now);
        }
        while let Some(event) = self.hub.poll_event() {
            match event {
                LinkEvent::PeerGone(rank) | LinkEvent::PeerRefused(rank) => {
                    self.room.on_gone(rank.0);
                }
                LinkEvent::Warning(text) => log::warn!("{text}; that rank is ended"),
                _ => {}
            }
        }
        for place in self.room.places.values_mut() {
            if let Place::Served(seat) = place {
                seat.listen();
            }
        }
        let late = |(&rank, place): (&u32, &Place)| match place {
            Place::Waiting(caller, until) if now >= *until => Some((rank, *caller)),
            _ => None,
        };
        let late: Vec<(u32, Caller)> = self.room.places.iter().filter_map(late).collect();
        for (rank, caller) in late {
            let why = format!("the program asked for nothing within {} s", PATIENCE.as_secs());
            self.room.refuse(rank, &caller, why);
        }
        self.tell_refused();
        self.room.clear();
        self.answer(now);
        match self.room.places.is_empty() {
            true => {
                self.empty_since.get_or_insert(now);
            }
            false => self.empty_since = None,
        }
    }

    /// Answers at the desk. To end it takes the same user or root, and nobody who needs it.
    fn answer(&mut self, now: Instant) {
        let (hub, room, draining) = (&self.hub, &self.room, &mut self.draining);
        self.desk.serve(now, |question, user| {
            let is_owner = room.commands(user);
            let ranks = room.taken().count();
            match question {
                Question::Status => report(hub, room, user),
                Question::Stop if !is_owner => "refused: not its owner\n".to_string(),
                Question::Stop if ranks > 0 => format!(
                    "refused: {ranks} ranks are attached; try again when their jobs have ended, \
                     or end it by SIGTERM, twice to lose them\n"
                ),
                Question::Stop => {
                    *draining = true;
                    "ending\n".to_string()
                }
            }
        });
    }

    fn meet(&mut self, caller: Caller, now: Instant) {
        let rank = self.room.next;
        self.room.next = self.room.next.wrapping_add(1) & 0xffff;
        if self.room.places.contains_key(&rank) {
            return;
        }
        let mut why = self.room.refusal(&caller, self.draining);
        if why.is_some() && !self.draining && self.room.make_room(caller.user) {
            why = self.room.refusal(&caller, self.draining);
        }
        if !self.hub.admit(caller.endpoint, rank) {
            return;
        }
        match why {
            None => {
                self.room.places.insert(rank, Place::Waiting(caller, now + PATIENCE));
            }
            Some(why) => self.room.refuse(rank, &caller, why),
        }
    }

    /// Tells those who are refused why, and ends their connections: what was said can be read
    /// still, and nobody holds a connection that serves nobody.
    fn tell_refused(&mut self) {
        for (rank, why) in self.room.turned_away.drain(..) {
            self.hub.say(rank, &Control::Refused(why));
            self.hub.dismiss(rank);
        }
    }

    /// Whether it is to end: drained, or with `once` nobody came or all have left.
    pub fn is_done(&self) -> bool {
        let now = self.room.now;
        let empty = self.room.places.is_empty();
        let long = self.empty_since.is_some_and(|at| now.since(at) >= EMPTY_MAX);
        let left = self.options.once && (self.room.served > 0 || long);
        empty && (self.draining || (left && self.empty_since.is_some_and(|at| now > at)))
    }

    /// Rounds of progress, with sleep in between when there is nothing to do.
    pub fn step(&mut self) {
        if self.progress() {
            self.idle_since = None;
            return;
        }
        let now = self.room.now;
        let since = *self.idle_since.get_or_insert(now);
        let late = now.since(since) >= self.options.spin;
        if late || self.turn.hand_over(now, sys::now) == Next::Sleep {
            self.sleep(now);
            self.idle_since = None;
        }
    }

    /// How long to sleep, and on what. `None`: there is something.
    fn prepare_sleep(&mut self, now: Instant, fds: &mut Vec<WaitFd>) -> Option<Instant> {
        self.hub.wait_fds(fds);
        self.desk.wait_fds(fds);
        // A caller who came a moment ago has said all it will.
        let mut idle = self.hub.prepare_wait() && !self.hub.has_callers();
        let mut until = now + SLEEP_MAX;
        for place in self.room.places.values_mut() {
            let Place::Served(seat) = place else { continue };
            until = seat.next_timeout().map_or(until, |at| until.min(at));
            for carrier in seat.carriers() {
                idle &= carrier.link().prepare_wait();
                carrier.link().wait_fds(fds);
            }
        }
        idle.then_some(until)
    }

    fn sleep(&mut self, now: Instant) {
        let mut fds: Vec<WaitFd> = Vec::new();
        if let Some(until) = self.prepare_sleep(now, &mut fds) {
            sys::wait(&fds, until.since(now));
        }
        self.hub.finish_wait();
        for place in self.room.places.values_mut() {
            let Place::Served(seat) = place else { continue };
            seat.carriers().for_each(|c| c.link().finish_wait());
        }
        // A look at everything, the links that cost a system call too.
        (self.look_at, self.listen_at) = (Instant(0), Instant(0));
    }
}

/// Adds what was done for one rank to values of [`TOTALS`].
fn add_totals(mut totals: [u64; TOTALS.len()], seat: &Seat) -> [u64; TOTALS.len()] {
    for (name, value) in seat.state().into_iter().chain([("fault_lost", seat.lost())]) {
        if let Some(at) = TOTALS.iter().position(|total| *total == name) {
            totals[at] += value;
        }
    }
    totals
}

/// What the agent says of itself: a line each, `name value`; of each rank that the user may know of
/// one line.
fn report(hub: &Hub, room: &Room, asking: u32) -> String {
    let mut out = format!(
        "weftd {}\nprotocol {VERSION}\nprocess {}\nname {}\nranks {}\nseats {}\nraw_free {}\n\
         served {}\nrefused {}\n",
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
        hub.name(),
        room.taken().count(),
        room.options.seats,
        room.pool.raw(),
        room.served,
        room.refused,
    );
    if let Some(kernel) = room.pool.kernel() {
        let (words, clients) = kernel.in_use();
        out.push_str(&format!("kernel_words {words}\nkernel_clients {clients}\n"));
    }
    let served = room.places.values().filter_map(|place| match place {
        Place::Served(seat) => Some(&**seat),
        Place::Waiting(..) => None,
    });
    let totals = served.fold(room.past, add_totals);
    for (name, value) in TOTALS.iter().zip(totals) {
        out.push_str(&format!("{name} {value}\n"));
    }
    // Of others a user learns how many there are.
    let (all, mut others) = (room.commands(asking), 0);
    for place in room.places.values() {
        let Place::Served(seat) = place else { continue };
        let Caller { endpoint, user, pid } = seat.caller;
        if !all && user != asking {
            others += 1;
            continue;
        }
        out.push_str(&format!("rank {endpoint} user {user} process {pid}"));
        for (name, value) in seat.state() {
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
    use weft_core::EndpointId;

    #[test]
    fn refusal__whatever_one_user_takes_another_finds_a_seat() {
        let words = ["--links", "udp"].map(String::from);
        let options = Options::parse(words).unwrap();
        let pool = Pool::open(&options).unwrap();
        let mut room = Room {
            places: BTreeMap::new(),
            turned_away: Vec::new(),
            pool,
            options,
            owner: 0,
            now: Instant(0),
            next: 0,
            served: 0,
            refused: 0,
            past: [0; TOTALS.len()],
        };
        let caller = |user| Caller { endpoint: EndpointId(1), user, pid: 1 };
        let mut rank = 0;
        while room.refusal(&caller(1000), false).is_none() {
            room.places.insert(rank, Place::Waiting(caller(1000), Instant(1)));
            rank += 1;
        }
        let why = room.refusal(&caller(1000), false).unwrap();
        assert!(why.contains("user 1000 has 12 ranks, the quota"), "{why}");
        assert_eq!(room.refusal(&caller(1001), false), None);
        assert_eq!(room.refusal(&caller(0), false), None);
    }

    #[test]
    fn sleep__not_while_a_caller_waits_to_be_met() {
        let name = format!("@weft-agent-test-{:016x}", weft_link::random_u64());
        let words = ["--links", "udp", "--name", &name].map(String::from);
        let mut agent = Agent::open(Options::parse(words).unwrap()).unwrap();
        let now = sys::now();
        agent.progress();
        assert!(agent.prepare_sleep(now, &mut Vec::new()).is_some());
        agent.hub.finish_wait();
        let _caller = weft_link::agent::BareRank::connect(&name, EndpointId(5)).unwrap();
        // As when it is noticed between two looks at callers.
        agent.hub.look_at_sockets();
        assert!(agent.prepare_sleep(now, &mut Vec::new()).is_none());
        agent.hub.finish_wait();
        agent.attend(now);
        assert!(agent.prepare_sleep(now, &mut Vec::new()).is_some());
    }
}
