//! Answers to the requests of programs about their sockets.

use super::groups::{Cast, Group};
use super::route::{packet_of, MARK};
use super::{node_of, AskerId, Bound, Far, State};
use crate::cluster::Cluster;
use crate::sys::pairs;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use weft_cluster::names::{Claim, ClaimError};
use weft_core::Instant;
use weft_streams::tipc::address::{self, RESERVED, TOP_SRV};
use weft_streams::tipc::control::DONT_WAIT;
use weft_streams::tipc::{
    kind, option, reason, Address, Answer, Op, Request, SockAddr, What, MESSAGE_MAX,
};
use weft_sys::Foreign;

/// Names of one socket.
const NAMES_MAX: usize = 256;
/// Connections that a listener's program has not taken.
const CALLS_MAX: u32 = 128;
/// Messages that wait for an earlier one of their socket.
const WAITING_MAX: usize = 64;

/// The answer to a request; an error is that of the C library. `Later`: it comes later.
enum Reply {
    Now(Answer),
    With(Answer, OwnedFd),
    Later,
}

type Replied = Result<Reply, i32>;

fn done(value: u32) -> Replied {
    Ok(Reply::Now(Answer::done(value)))
}

impl Cluster {
    /// Carries a request out.
    pub(super) fn on_request(
        &mut self,
        now: Instant,
        asker: AskerId,
        request: Request,
        passed: Option<Foreign>,
        data: &[u8],
    ) {
        let of = passed.as_deref().and_then(pairs::cookie);
        let port = of.and_then(|cookie| self.tipc.ports.of_cookie(cookie));
        // A copy of the program's descriptor would keep its socket open.
        drop(passed);
        // The answer may come before this returns.
        if let Some(asker) = self.tipc.askers.get_mut(&asker) {
            asker.waits = port;
        }
        let replied = match (request.op, port) {
            (Op::Socket, None) => self.make_port(asker, request.value),
            (Op::Socket, Some(_)) => Err(libc::EINVAL),
            (_, None) => Err(libc::EBADF),
            (_, Some(port)) => self.carry_out(now, (asker, port), request, data),
        };
        match replied {
            Ok(Reply::Now(answer)) => self.tipc.answer(asker, &answer, None),
            Ok(Reply::With(answer, fd)) => self.tipc.answer(asker, &answer, Some(&fd)),
            Ok(Reply::Later) => {}
            Err(error) => self.tipc.answer(asker, &Answer::error(error), None),
        }
        self.tipc.changed.extend(port);
    }

    fn make_port(&mut self, asker: AskerId, type_of: u32) -> Replied {
        let Some(of) = self.tipc.askers.get(&asker) else { return Err(libc::EBADF) };
        let kinds = [kind::STREAM, kind::DGRAM, kind::RDM, kind::SEQPACKET];
        let found = kinds.into_iter().find(|kind| u32::from(*kind) == type_of);
        let (user, process) = (of.user, of.process);
        let made = self.tipc.make(found.ok_or(libc::EPROTOTYPE)?, user, process);
        let (id, fd) = made.map_err(|e| e.raw_os_error().unwrap_or(libc::ENOBUFS))?;
        Ok(Reply::With(Answer::done(id), fd))
    }

    fn carry_out(
        &mut self,
        now: Instant,
        (asker, id): (AskerId, u32),
        request: Request,
        data: &[u8],
    ) -> Replied {
        match request.op {
            Op::Socket => Err(libc::EINVAL),
            Op::Bind => self.bind(now, id, request.place()),
            Op::Own => {
                let node = node_of(self.node.me().host);
                Ok(Reply::Now(Answer::place(SockAddr::socket(id, node))))
            }
            Op::Peer => self.peer(id),
            Op::Connect => self.connect(now, (asker, id), &request),
            Op::Listen => self.listen(id, request.value),
            Op::Accept => self.take_call(now, id),
            Op::Send => self.send_from(now, (asker, id), request, data.to_vec()),
            Op::Set => self.set_option(now, id, &request),
            Op::Get => self.get_option(id, request.value),
            Op::Shutdown => self.shut_down(now, id),
            Op::Node => {
                let host = self.host_of(request.value).ok_or(libc::EADDRNOTAVAIL)?;
                let mut field = [0; address::LEN];
                field[..8].copy_from_slice(&host.0.to_be_bytes());
                Ok(Reply::Now(Answer { field, ..Answer::default() }))
            }
        }
    }

    /// The program ends the connection of a socket. The other end gets what was sent before: also
    /// what the socket still holds, and what was sent before the connection is there.
    fn shut_down(&mut self, now: Instant, id: u32) -> Replied {
        let own = (self.node.me().host, id);
        let port = self.tipc.ports.get_mut(&id).ok_or(libc::EBADF)?;
        match &mut port.state {
            State::Connected { .. } if !port.is_shut => {}
            State::Connecting { asker, .. } if !port.is_shut => {
                if let Some(asker) = asker.take() {
                    self.tipc.answer(asker, &Answer::error(libc::ECONNABORTED), None);
                }
            }
            _ => return Err(libc::ENOTCONN),
        }
        let port = self.tipc.ports.get_mut(&id).ok_or(libc::EBADF)?;
        port.is_shut = true;
        port.say_end(own, reason::SHUTDOWN, &[]);
        self.read_port(now, id);
        done(0)
    }

    fn bind(&mut self, now: Instant, id: u32, place: Option<Option<SockAddr>>) -> Replied {
        let Some(place) = place else {
            let port = self.tipc.ports.get_mut(&id).ok_or(libc::EBADF)?;
            let names = std::mem::take(&mut port.names);
            names.iter().for_each(|name| self.node.withdraw(now, name.claim));
            return done(0);
        };
        let SockAddr { address, scope } = place.ok_or(libc::EAFNOSUPPORT)?;
        let range = match address {
            Address::Range { kind, lower, upper } => (kind, lower, upper),
            Address::Service { kind, instance, .. } => (kind, instance, instance),
            Address::Socket { .. } => return Err(libc::EAFNOSUPPORT),
        };
        let is_of_host = match scope.unsigned_abs() {
            0..=2 => false,
            3 => true,
            _ => return Err(libc::EINVAL),
        };
        let port = self.tipc.ports.get_mut(&id).ok_or(libc::EBADF)?;
        match port.state {
            State::Connected { .. } | State::Connecting { .. } => return Err(libc::EINVAL),
            _ if port.group.is_some() => return Err(libc::EACCES),
            _ if range.0 < RESERVED => return Err(libc::EACCES),
            _ if range.1 > range.2 => return Err(libc::EINVAL),
            _ => {}
        }
        let is_same = |name: &Bound| name.range == range && name.is_of_host == is_of_host;
        let found = port.names.iter().position(is_same);
        if scope < 0 {
            let name = port.names.remove(found.ok_or(libc::EINVAL)?);
            self.node.withdraw(now, name.claim);
            return done(0);
        }
        if port.names.len() >= NAMES_MAX {
            return Err(libc::ENOBUFS);
        }
        let claim = Claim::new(port.owner, range.0, range.1..=range.2);
        let claim = claim.endpoint(MARK | u64::from(id));
        let claim = if is_of_host { claim.on_host() } else { claim };
        let (claim, _) = self.node.claim(now, claim).map_err(|why| match why {
            ClaimError::Taken { .. } => libc::EADDRINUSE,
            ClaimError::Forbidden | ClaimError::Reserved => libc::EACCES,
            ClaimError::TooMany { .. } => libc::ENOBUFS,
            ClaimError::Ended => libc::ENETDOWN,
            _ => libc::EINVAL,
        })?;
        if let Some(port) = self.tipc.ports.get_mut(&id) {
            port.names.push(Bound { range, is_of_host, claim });
        }
        done(0)
    }

    fn peer(&self, id: u32) -> Replied {
        let port = self.tipc.ports.get(&id).ok_or(libc::EBADF)?;
        match (&port.state, port.peer) {
            (State::Connected { peer: (host, port) }, _) => {
                Ok(Reply::Now(Answer::place(SockAddr::socket(*port, node_of(*host)))))
            }
            (State::Connecting { .. }, _) => Err(libc::EINPROGRESS),
            (State::Topology(_), _) => {
                let node = node_of(self.node.me().host);
                Ok(Reply::Now(Answer::place(SockAddr::socket(TOP_SRV, node))))
            }
            (State::Over, _) => Err(libc::EPIPE),
            _ => Err(libc::ENOTCONN),
        }
    }

    fn listen(&mut self, id: u32, backlog: u32) -> Replied {
        let port = self.tipc.ports.get_mut(&id).ok_or(libc::EBADF)?;
        if port.is_connectionless() {
            return Err(libc::EOPNOTSUPP);
        }
        let backlog = (backlog.clamp(1, CALLS_MAX)) as usize;
        match &mut port.state {
            State::Idle => {
                port.state = State::Listening { most: backlog, calls: VecDeque::new() };
            }
            State::Listening { most, .. } => *most = backlog,
            _ => return Err(libc::EINVAL),
        }
        done(0)
    }

    fn take_call(&mut self, now: Instant, id: u32) -> Replied {
        let port = self.tipc.ports.get_mut(&id).ok_or(libc::EBADF)?;
        let (kind, owner) = (port.kind, port.owner);
        let State::Listening { calls, .. } = &mut port.state else { return Err(libc::EINVAL) };
        let call = calls.pop_front().ok_or(libc::EAGAIN)?;
        let made = self.tipc.make(kind, owner.user, owner.process);
        let (new, fd) = made.map_err(|e| e.raw_os_error().unwrap_or(libc::ENOBUFS))?;
        let port = self.tipc.ports.get_mut(&new).ok_or(libc::EBADF)?;
        (port.state, port.name) = (State::Connected { peer: call.from }, call.name);
        if !call.data.is_empty() {
            port.take_data(call.from, &call.data);
        }
        if let Some(why) = call.over {
            port.end(call.from, why, &[]);
        }
        let (owner, packet) =
            (port.owner, packet_of(new, port, What::Taken, call.from, Vec::new()));
        self.dispatch(now, call.from.0, owner, packet);
        self.tipc.changed.insert(new);
        let answer = Answer::place(SockAddr::socket(call.from.1, node_of(call.from.0)));
        Ok(Reply::With(answer, fd))
    }

    fn connect(&mut self, now: Instant, of: (AskerId, u32), request: &Request) -> Replied {
        let (asker, id) = of;
        let port = self.tipc.ports.get_mut(&id).ok_or(libc::EBADF)?;
        let Some(place) = request.place() else {
            port.peer = None;
            return if port.is_connectionless() { done(0) } else { Err(libc::EINVAL) };
        };
        let place = place.ok_or(libc::EINVAL)?;
        if port.is_connectionless() {
            port.peer = Some(place);
            return done(0);
        }
        match port.state {
            State::Idle => {}
            State::Connecting { .. } => return Err(libc::EALREADY),
            State::Connected { .. } | State::Topology(_) => return Err(libc::EISCONN),
            State::Listening { .. } | State::Over => return Err(libc::EINVAL),
        }
        let asker = (request.flags & DONT_WAIT == 0).then_some(asker);
        if self.call(now, id, place, Vec::new(), asker)? {
            return done(0);
        }
        match asker {
            Some(_) => Ok(Reply::Later),
            None => Err(libc::EINPROGRESS),
        }
    }

    /// Calls the other end of a connection, with the first data. True if the connection is there.
    fn call(
        &mut self,
        now: Instant,
        id: u32,
        place: SockAddr,
        data: Vec<u8>,
        asker: Option<AskerId>,
    ) -> Result<bool, i32> {
        let name = match place.address {
            Address::Range { .. } => return Err(libc::EINVAL),
            Address::Service { kind: TOP_SRV, instance: TOP_SRV, .. } => {
                let port = self.tipc.ports.get_mut(&id).ok_or(libc::EBADF)?;
                port.state = State::Topology(Vec::new());
                if !data.is_empty() {
                    self.on_subscription(now, id, &data);
                }
                return Ok(true);
            }
            Address::Service { kind, instance, .. } => Some((kind, instance, instance)),
            Address::Socket { .. } => None,
        };
        let user = self.tipc.ports.get(&id).ok_or(libc::EBADF)?.owner.user;
        let to = self.sockets_of(user, place.address).first().copied();
        let to: Far = to.ok_or(libc::EHOSTUNREACH)?;
        let port = self.tipc.ports.get_mut(&id).ok_or(libc::EBADF)?;
        port.state = State::Connecting { to, until: now + port.settings.timeout, asker };
        let (owner, packet) = (port.owner, packet_of(id, port, What::Call, to, data));
        self.dispatch(now, to.0, owner, weft_streams::tipc::Packet { name, ..packet });
        Ok(false)
    }

    fn send_from(
        &mut self,
        now: Instant,
        (asker, id): (AskerId, u32),
        request: Request,
        data: Vec<u8>,
    ) -> Replied {
        if data.len() > MESSAGE_MAX {
            return Err(libc::EMSGSIZE);
        }
        let port = self.tipc.ports.get_mut(&id).ok_or(libc::EBADF)?;
        let place = match request.place() {
            Some(place) => Some(place.ok_or(libc::EINVAL)?),
            None => None,
        };
        if port.group.is_some() {
            let may_wait = request.flags & DONT_WAIT == 0;
            let to = place.map(|place| place.address);
            return Ok(match self.cast_tipc(now, (asker, id), to, may_wait, data)? {
                Cast::Sent(len) => Reply::Now(Answer::done(len)),
                Cast::Waits => Reply::Later,
            });
        }
        if !port.is_connectionless() {
            return self.send_on_connection(now, id, place, data);
        }
        let place = place.or(port.peer).ok_or(libc::EDESTADDRREQ)?;
        if port.outbound.is_full() || !port.outbound.waiting.is_empty() {
            if request.flags & DONT_WAIT != 0 || port.outbound.waiting.len() >= WAITING_MAX {
                return Err(libc::EAGAIN);
            }
            port.outbound.waiting.push_back((asker, request, data));
            return Ok(Reply::Later);
        }
        self.send_message(now, id, place, data)
    }

    /// Carries out what waited for messages on their way.
    pub(super) fn serve_waiting(&mut self, now: Instant, id: u32) {
        while let Some(port) = self.tipc.ports.get_mut(&id) {
            if port.outbound.is_full() {
                return;
            }
            let Some((asker, request, data)) = port.outbound.waiting.pop_front() else { return };
            let place = request.place().flatten().or(port.peer);
            let replied = match place {
                Some(place) => self.send_message(now, id, place, data),
                None => Err(libc::EDESTADDRREQ),
            };
            let answer = match replied {
                Ok(Reply::Now(answer)) => answer,
                Ok(_) => Answer::default(),
                Err(error) => Answer::error(error),
            };
            self.tipc.answer(asker, &answer, None);
        }
    }

    /// Sends a message without connection.
    fn send_message(&mut self, now: Instant, id: u32, place: SockAddr, data: Vec<u8>) -> Replied {
        let port = self.tipc.ports.get(&id).ok_or(libc::EBADF)?;
        let owner = port.owner;
        let name = match place.address {
            Address::Range { lower, upper, .. } if lower > upper => return Err(libc::EINVAL),
            Address::Range { kind, lower, upper } => Some((kind, lower, upper)),
            Address::Service { kind, instance, .. } => Some((kind, instance, instance)),
            Address::Socket { .. } => None,
        };
        let to = self.sockets_of(owner.user, place.address);
        if to.is_empty() {
            return Err(libc::EHOSTUNREACH);
        }
        let len = data.len() as u32;
        for one in to {
            let Some(port) = self.tipc.ports.get(&id) else { break };
            let packet = packet_of(id, port, What::Message, one, data.clone());
            self.dispatch(now, one.0, owner, weft_streams::tipc::Packet { name, ..packet });
        }
        done(len)
    }

    fn send_on_connection(
        &mut self,
        now: Instant,
        id: u32,
        place: Option<SockAddr>,
        data: Vec<u8>,
    ) -> Replied {
        let port = self.tipc.ports.get(&id).ok_or(libc::EBADF)?;
        match (&port.state, place) {
            (State::Idle, Some(place)) => {
                let len = data.len() as u32;
                self.call(now, id, place, data, None)?;
                done(len)
            }
            (State::Idle | State::Listening { .. }, None) => Err(libc::ENOTCONN),
            (State::Listening { .. }, Some(_)) => Err(libc::EPIPE),
            (State::Over, _) => Err(libc::EPIPE),
            // On a connection the program sends by the socket itself.
            _ => Err(libc::EISCONN),
        }
    }

    fn set_option(&mut self, now: Instant, id: u32, request: &Request) -> Replied {
        let value = request.number(0);
        match request.value {
            option::GROUP_JOIN => {
                let field = std::array::from_fn(|at| request.number(at));
                return self.join_tipc(now, id, field).and(done(0));
            }
            option::GROUP_LEAVE => return self.leave_tipc(now, id).and(done(0)),
            _ => {}
        }
        let port = self.tipc.ports.get_mut(&id).ok_or(libc::EBADF)?;
        port.settings.set(request.value, value)?;
        done(0)
    }

    fn get_option(&mut self, id: u32, name: u32) -> Replied {
        let depth = self.tipc.depth();
        let port = self.tipc.ports.get_mut(&id).ok_or(libc::EBADF)?;
        let waiting = port.out.bytes();
        done(match name {
            // SO_ERROR of a connection that nobody waited for.
            0 => std::mem::take(&mut port.error) as u32,
            1 => u32::from(matches!(port.state, State::Listening { .. })),
            option::GROUP_JOIN => port.group.as_ref().map_or(0, Group::kind),
            option::NODE_RECVQ_DEPTH => depth,
            option::SOCK_RECVQ_DEPTH => port.out.len() as u32,
            option::SOCK_RECVQ_USED => waiting as u32,
            name => port.settings.get(name).ok_or(libc::ENOPROTOOPT)?,
        })
    }
}
