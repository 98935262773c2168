//! The agent's part in a cluster: one UDP socket towards other agents, one Unix socket towards the
//! programs of this host, and the state machine of `weft-names` between them.
//!
//! This part runs in the loop of the agent, a bounded piece of work at a time, beside the rings of
//! ranks.

mod answers;
mod callers;
mod complaints;
mod finding;
mod groups;
pub mod options;
mod post;
mod ranks;
mod refused;
mod tipc;

pub use options::ClusterOptions;
pub use tipc::socket_name as tipc_socket_name;

use crate::options::Options;
use crate::sys;
use callers::{CallerId, Callers};
use complaints::{Cause, Complaints};
use finding::{own_address, Finder};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;
use weft_cluster::key::{ClusterKeys, KeyError, KeyFile};
use weft_cluster::local::Say;
use weft_cluster::names::directory::See;
use weft_cluster::names::node::ClaimId;
use weft_cluster::names::{
    Claim, Config, Event, HostId, Life, Node, Owner, Policy, Rule, SubscriptionId,
};
use weft_cluster::session::{class, cluster_id, Notice, Sessions};
use weft_core::Instant;
use weft_link::LinkError;

/// Datagrams taken in a round.
const AT_ONCE: usize = 64;
/// Longest time between two looks at the key file, and the time from which on a look costs no
/// wake-up of its own.
const KEY_AGAIN: Duration = Duration::from_secs(1);
const KEY_EARLY: Duration = Duration::from_millis(500);
/// Longest datagram that is read; longer ones are cut, and forged then.
const DATAGRAM_MAX: usize = 2048;
/// The type under which each agent publishes the name of its host.
pub const HOSTS: u32 = 0;
/// The number that no user has.
const NOBODY: u32 = u32::MAX;

/// A claim of a program of this host.
struct Claimed {
    /// The connection that made it.
    caller: CallerId,
    /// The request that waits for the outcome, until it is decided.
    asked: Option<u32>,
    /// Messages to the name go to the program.
    takes_mail: bool,
    /// The program becomes a member of a group when the claim holds.
    joins: Option<weft_cluster::names::groups::GroupConfig>,
}

/// The file of the cluster's key, which an administrator may change.
struct Keys {
    file: KeyFile,
    /// Time of the next look at the file.
    check_at: Instant,
}

impl Keys {
    /// Reads the file again if it is time and the file has changed.
    fn check(&mut self, now: Instant) -> Option<Result<ClusterKeys, KeyError>> {
        if now + KEY_EARLY < self.check_at {
            return None;
        }
        self.check_at = now + KEY_AGAIN;
        self.file.reread(sys::effective_user())
    }
}

/// The socket of datagrams from and to other agents.
struct Wire {
    socket: UdpSocket,
    buffer: Box<[u8]>,
    refused: refused::Refused,
    /// Datagrams that the system did not send.
    unsendable: u64,
}

impl Wire {
    fn new(socket: UdpSocket) -> Wire {
        let buffer = vec![0; DATAGRAM_MAX].into();
        Wire { socket, buffer, refused: refused::Refused::default(), unsendable: 0 }
    }

    /// Receives a datagram into the buffer. Returns its length and its sender.
    fn receive(&mut self) -> io::Result<(usize, SocketAddr)> {
        let (len, from) = self.socket.recv_from(&mut self.buffer)?;
        let from = plain(from);
        self.refused.heard(from);
        Ok((len, from))
    }

    fn send(&mut self, to: SocketAddr, bytes: &[u8]) {
        // The first error may be that of an earlier datagram.
        let send = || self.socket.send_to(bytes, to);
        let sent = send().or_else(|_| send());
        self.unsendable += u64::from(sent.is_err());
    }
}

/// The agent's part in a cluster.
pub struct Cluster {
    options: ClusterOptions,
    node: Node,
    sessions: Sessions,
    wire: Wire,
    finder: Finder,
    keys: Keys,
    callers: Callers,
    /// Claims that hold or are being decided.
    claims: BTreeMap<u64, Claimed>,
    subscriptions: BTreeMap<SubscriptionId, CallerId>,
    mail: post::Mail,
    groups: groups::Groups,
    ranks: ranks::Ranks,
    tipc: tipc::Tipc,
    is_cut_off: bool,
    complaints: Complaints,
}

fn fail(what: String, fix: &'static str) -> impl FnOnce(io::Error) -> LinkError {
    move |source| LinkError::System { what, source, fix }
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    let fits = (1..=63).contains(&name.len()) && !name.chars().any(char::is_control);
    if fits {
        name.to_string()
    } else {
        "host".into()
    }
}

/// Binds the socket of agents, for the family of the address that others reach.
fn bind(address: IpAddr, port: u16) -> Result<UdpSocket, LinkError> {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let what = format!("taking UDP port {port} for the cluster");
    let fix = "another agent may have it: `--cluster-port N` on all hosts takes another";
    let socket = UdpSocket::bind((any, port)).map_err(fail(what, fix))?;
    let what = "making the cluster's socket not wait".to_string();
    socket.set_nonblocking(true).map_err(fail(what, "end other programs"))?;
    // Without it the end of an agent is known by its silence.
    if let Err(why) = sys::refused::keep(&socket) {
        log::info!("the kernel does not tell which agents have ended: {why}");
    }
    Ok(socket)
}

/// Returns IPv4 addresses as such, also where an IPv6 socket shows them.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Publishes the name of this host, in the name of no user: it counts against nobody's quota.
fn publish_host(node: &mut Node, now: Instant) {
    let (host, address) = (node.me().host, node.me().address);
    let users = NOBODY..=NOBODY;
    let own = Rule { users, kinds: HOSTS..=HOSTS, claim: true, see: See::All };
    node.set_policy(Policy::new(vec![own]));
    let owner = Owner { user: NOBODY, process: std::process::id(), serial: 0 };
    let instance = host.0 as u32;
    let name = Claim::new(owner, HOSTS, instance..=instance).alias(&host_name());
    if let Err(why) = node.claim(now, name.endpoint(host.0.max(1)).address(address)) {
        log::warn!("the name of this host is not published: {why}");
    }
}

impl Cluster {
    /// Takes port and key, and looks for other agents.
    ///
    /// # Errors
    /// The key is missing or open to others, the port is taken, or another agent serves there.
    pub fn open(all: &Options, now: Instant) -> Result<Cluster, LinkError> {
        let options = all.cluster.clone();
        let user = sys::effective_user();
        let path = options.key.clone().unwrap_or_else(|| KeyFile::usual(sys::is_root()));
        let (file, keys) = KeyFile::open(&path, user).map_err(|e| LinkError::System {
            what: "reading the key of the cluster".into(),
            source: io::Error::other(e.to_string()),
            fix: "`weft cluster --help` shows the steps",
        })?;
        let mut finder = Finder::new(&options.join, options.port, now);
        let ip = options.address.unwrap_or_else(|| own_address(&finder.given().collect()));
        let socket = bind(ip, options.port)?;
        let port = socket.local_addr().map_or(options.port, |a| a.port());
        if options.multicast && ip.is_ipv4() {
            finder.listen(&socket);
        }
        let address = SocketAddr::new(ip, port);
        let host = HostId(cluster_id(&format!("{} at {address}", options.name)));
        let since = std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_micros() as u64);
        let life = Life { incarnation: since, nonce: weft_link::random_u64() };
        let config = Config {
            tolerance: options.tolerance,
            claims_per_user: options.claims,
            ..Config::default()
        };
        let mut node = Node::new(config, host, life, address, now);
        publish_host(&mut node, now);
        node.set_policy(Policy::new(options.rules.clone()).counting(weft_sys::user::payer));
        let sessions = Sessions::new(&options.name, keys, now);
        let named = host_name();
        log::info!("cluster {}: this host is {named} (number {host}), at {address}", options.name);
        Ok(Cluster {
            options,
            node,
            sessions,
            wire: Wire::new(socket),
            finder,
            keys: Keys { file, check_at: now + KEY_AGAIN },
            callers: Callers::open(&all.name)?,
            claims: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            mail: post::Mail::new(),
            groups: groups::Groups::default(),
            ranks: ranks::Ranks::open(user),
            tipc: tipc::Tipc::open(&all.name, host)?,
            is_cut_off: false,
            complaints: Complaints::default(),
        })
    }

    /// Does what there is to do, a bounded piece of it. `has_come`: there are datagrams;
    /// `is_called`: programs want something.
    pub fn serve(&mut self, now: Instant, has_come: bool, is_called: bool) {
        let news = self.finder.news();
        if !news.is_empty() {
            self.node.join(now, news);
        }
        self.check_keys(now);
        let is_alone = self.node.members().ring().len() < 2;
        let sessions = &mut self.sessions;
        self.finder.call(now, &self.wire.socket, is_alone, || sessions.call());
        if has_come {
            self.receive(now);
        }
        if self.node.next_timeout().is_some_and(|at| at <= now) {
            self.node.handle_timeout(now);
        }
        if self.sessions.next_timeout().is_some_and(|at| at <= now) {
            self.sessions.handle_timeout(now);
        }
        self.mail_in_time(now);
        if is_called || self.callers.next_timeout().is_some_and(|at| at <= now) {
            self.attend(now);
        }
        self.tipc_in_time(now);
        if is_called {
            self.serve_tipc(now);
        }
        self.groups_in_time(now);
        self.ranks_in_time(now);
        self.flush(now);
    }

    fn receive(&mut self, now: Instant) {
        self.take_refusals(now);
        for _ in 0..AT_ONCE {
            let (len, from) = match self.wire.receive() {
                Ok(got) => got,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // An earlier datagram did not come to its receiver: others may have come.
                Err(_) => continue,
            };
            match self.sessions.receive(now, from, &self.wire.buffer[..len]) {
                Some((class::NAMES, message)) => self.node.handle_message(now, from, message),
                Some((class, message)) => {
                    let message = message.to_vec();
                    match class {
                        class::MAIL => self.on_mail(now, from, &message),
                        class::GROUP => self.on_group_message(now, from, &message),
                        class::RANKS => self.on_rank_message(now, from, &message),
                        class::TIPC => self.on_tipc(now, from, &message),
                        _ => {}
                    }
                }
                None => {}
            }
            // Answers go before more comes.
            self.flush(now);
        }
    }

    /// Reads the key file again if it has changed.
    fn check_keys(&mut self, now: Instant) {
        match self.keys.check(now) {
            None => {}
            Some(Ok(keys)) => {
                self.sessions.set_keys(keys);
                log::info!("cluster {}: the key file has changed", self.options.name);
            }
            Some(Err(why)) => self.complain(now, None, Cause::Keys, &why.to_string()),
        }
    }

    /// Sends what is to be sent, and handles events.
    fn flush(&mut self, now: Instant) {
        loop {
            self.flush_once(now);
            if self.groups.is_idle() {
                break;
            }
        }
        self.send_watchers();
    }

    fn flush_once(&mut self, now: Instant) {
        self.work_groups(now);
        while let Some(t) = self.node.poll_transmit() {
            self.sessions.send(now, t.to, class::NAMES, &t.bytes);
        }
        self.send_mail(now);
        while let Some((to, bytes)) = self.sessions.poll_transmit() {
            self.wire.send(to, &bytes);
        }
        while let Some(notice) = self.sessions.poll_notice() {
            self.on_notice(now, notice);
        }
        while let Some(event) = self.node.poll_event() {
            self.on_event(now, event);
        }
    }

    fn on_notice(&mut self, now: Instant, notice: Notice) {
        let name = &self.options.name;
        match notice {
            Notice::Found(at) => self.node.join(now, [at]),
            Notice::Behind(at) => log::info!(
                "cluster {name}: host {} does not have the new key yet; the old one is in use",
                self.host_at(at)
            ),
            Notice::Dropped(from, why) => {
                let text = format!("what the agent at {from} sends is dropped: {}", why.text());
                self.complain(now, Some(from), Cause::Dropped(why as u8), &text);
            }
            Notice::DroppedBy(by, why, version) => {
                let text = format!(
                    "the agent at {by} (version {version}) drops what this one sends: {}",
                    why.text()
                );
                self.complain(now, Some(by), Cause::DroppedBy(why as u8), &text);
            }
        }
    }

    /// Logs a complaint, unless it was logged of late.
    fn complain(&mut self, now: Instant, from: Option<SocketAddr>, cause: Cause, text: &str) {
        if let Some(before) = self.complaints.note(now, from, cause) {
            log::warn!("cluster {}: {text}{before}", self.options.name);
        }
    }

    /// Returns the name of the host whose agent has an address.
    fn host_at(&self, address: SocketAddr) -> String {
        let member = self.node.members().iter().find(|m| m.record.address == address);
        member.map_or_else(|| address.to_string(), |m| self.name_of(m.record.host))
    }

    /// Returns the name of a host; its address as long as the name has not come.
    fn name_of(&self, host: HostId) -> String {
        let (directory, _) = self.node.directory();
        let origin = directory.origin(host);
        let own = origin.and_then(|o| o.bindings().find(|b| b.name.kind == HOSTS));
        let address = || self.node.members().get(host).map(|m| m.record.address.to_string());
        let name = own.map(|b| b.name.alias.clone()).or_else(address);
        name.unwrap_or_else(|| host.to_string())
    }

    fn on_event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Member(e) => {
                let name = self.name_of(e.host);
                let cause = e.cause.text(|host| self.name_of(host));
                log::info!(
                    "cluster {}: host {name} {} (incarnation {}, step {}): {cause}",
                    self.options.name,
                    if e.is_up() { "joined" } else { "gone" },
                    e.life.incarnation,
                    e.number,
                );
                let is_up = e.is_up();
                let say = Say::Member(e.seq, e.host, name, e.life, e.number, is_up, e.cause);
                self.send_hosts(&say);
                if !is_up && !e.passed {
                    self.mail_to_gone(now, e.host);
                    self.tipc_to_gone(now, e.host);
                }
            }
            Event::CutOff | Event::Back => {
                self.is_cut_off = event == Event::CutOff;
                match self.is_cut_off {
                    true => log::warn!(
                        "cluster {}: this host hears no other; their names are hidden",
                        self.options.name
                    ),
                    false => log::info!("cluster {}: others are heard again", self.options.name),
                }
                self.send_hosts(&Say::Hears(!self.is_cut_off));
            }
            Event::Superseded { by, address } => log::error!(
                "cluster {}: another agent of this host, at {address}, took its place \
                 (incarnation {}): this one is no member any more; end one of the two",
                self.options.name,
                by.incarnation
            ),
            Event::OtherVersion { from, version } => {
                let text = format!("the agent at {from} speaks version {version} of names");
                self.complain(now, Some(from), Cause::Version(version), &text);
            }
            Event::Crowded { host } => {
                let host = self.name_of(host);
                let text = format!("host {host} is not taken in: the table is full");
                self.complain(now, None, Cause::Crowded, &text);
            }
            Event::Claimed(ClaimId(claim)) => self.decided(now, claim, Ok(())),
            Event::Refused { claim, holder } => {
                let why = format!("host {} has the name", self.name_of(holder));
                self.decided(now, claim.0, Err(why));
            }
            Event::Undecided { claim, arbiter } => {
                let arbiter = arbiter.map_or("no host".into(), |host| self.name_of(host));
                let why = format!("nobody decided about the name in time; {arbiter} was asked");
                self.decided(now, claim.0, Err(why));
            }
            Event::ClaimLost { claim, gone } => self.lost(claim.0, gone),
            Event::Readable(id) if self.groups.on_readable(id) => {}
            Event::Readable(id) if self.tell_topology(id) => {}
            Event::Readable(id) => {
                let caller = self.subscriptions.get(&id).copied();
                if let Some(caller) = caller.and_then(|c| self.callers.get_mut(c)) {
                    caller.readable.insert(id.0);
                }
            }
            _ => {}
        }
    }

    fn send_hosts(&mut self, say: &Say) {
        let (mut slow, watchers) = (Vec::new(), self.callers.iter_mut());
        for (id, caller) in watchers.filter(|(_, c)| c.watches_hosts) {
            match caller.has_room() {
                true => caller.say(0, say),
                false => slow.push(id),
            }
        }
        // A watcher that does not read would miss events: its end says so.
        slow.into_iter().for_each(|id| self.callers.dismiss(id));
    }

    /// Returns the descriptors that become readable when datagrams have come, and when programs
    /// want something.
    pub fn listener_fds(&self) -> (RawFd, [RawFd; 2]) {
        (self.wire.socket.as_raw_fd(), [self.callers.as_raw_fd(), self.tipc.listener_fd()])
    }

    /// Returns the time of the next deadline.
    pub fn next_timeout(&self) -> Instant {
        let times = [self.node.next_timeout(), self.sessions.next_timeout()];
        let others = [self.finder.next_timeout(), self.mail.next_timeout()];
        let others = others.into_iter().chain([self.callers.next_timeout()]);
        let others = others.chain([self.groups.next_timeout(), self.ranks.next_timeout()]);
        let others = others.chain([self.tipc.next_timeout()]);
        let times = times.into_iter().chain(others).flatten();
        times.chain([self.keys.check_at]).min().unwrap_or(self.keys.check_at)
    }

    /// Leaves in good order.
    pub fn leave(&mut self, now: Instant) {
        self.node.leave(now);
        self.flush(now);
    }

    /// Passes the state of the cluster on, as names and values.
    pub fn report(&self, show: &mut dyn FnMut(&str, &dyn std::fmt::Display)) {
        let node = &self.node;
        let (me, footprint) = (node.me(), node.footprint());
        show("cluster", &self.options.name);
        show("cluster_host", &me.host);
        show("cluster_address", &me.address);
        show("cluster_hosts", &node.members().ring().len());
        show("cluster_watched", &footprint.links);
        show("cluster_names", &footprint.names);
        show("cluster_callers", &self.callers.len());
        show("cluster_callers_refused", &self.callers.turned_away);
        show("cluster_subscriptions", &node.subscriptions().len());
        show("cluster_groups", &self.groups.len());
        show("cluster_group_parts_dropped", &self.groups.dropped());
        show("cluster_group_parts_malformed", &self.groups.malformed);
        self.ranks.counters(&mut |name, value| show(name, &value));
        show("cluster_mail_sent", &self.mail.begun());
        self.tipc.counters(show);
        show("cluster_sessions", &self.sessions.len());
        let ids: Vec<String> =
            self.sessions.key_ids().iter().map(|k| format!("{k:016x}")).collect();
        show("cluster_keys", &ids.join(","));
        show("cluster_cut_off", &u8::from(node.is_cut_off()));
        show("cluster_over", &u8::from(node.is_over()));
        show("cluster_unsendable", &self.wire.unsendable);
        self.sessions.counters().each(&mut |name, value| show(&format!("cluster_{name}"), &value));
        let stats = node.stats();
        let names = weft_cluster::names::Stats::NAMES.iter().map(|(name, _)| *name);
        for (name, value) in names.zip(stats.values()) {
            show(&format!("names_{name}"), &value);
        }
        for slow in node.subscriptions().slow() {
            let (id, owner, missed) = (slow.id.0, slow.owner, slow.missed);
            show("names_slow", &format_args!("subscription {id} {owner} missed {missed}"));
        }
    }
}
