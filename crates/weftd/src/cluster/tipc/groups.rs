//! Memberships of sockets in groups: those of `crate::cluster::groups`, told as records.

use super::route::MARK;
use super::{is_port, node_of, AskerId, Far, OWNER};
use crate::cluster::Cluster;
use std::collections::BTreeMap;
use std::time::Duration;
use weft_cluster::group::{GroupNotice, NotSent, Sending, To};
use weft_cluster::local::Say;
use weft_cluster::names::groups::SendError;
use weft_cluster::names::node::ClaimId;
use weft_cluster::names::{BindingId, Claim, Owner};
use weft_core::Instant;
use weft_streams::tipc::address::{CLUSTER_SCOPE, NODE_SCOPE, RESERVED};
use weft_streams::tipc::{Address, Answer, Kind, RecordHead};

/// Flag of a membership: the sender is a receiver, too.
const LOOPBACK: u32 = 1;
/// Flag: members that come and go are told.
const EVENTS: u32 = 2;
/// Longest time that a message waits for its receivers.
const WAIT: Duration = Duration::from_secs(3600);
/// Time after which a member that takes nothing is named in the agent's state.
const SLOW: Duration = Duration::from_secs(1);

/// The membership of a socket.
pub struct Group {
    claim: u64,
    kind: u32,
    instance: u32,
    flags: u32,
    /// Sockets and instances of the other members.
    members: BTreeMap<BindingId, (Far, u32)>,
    /// The program whose message waits, and its length.
    waits: Option<(AskerId, u32)>,
}

impl Group {
    /// A program waits no more. Its message is on its way all the same.
    pub fn gives_up(&mut self, asker: AskerId) {
        self.waits = self.waits.filter(|(of, _)| *of != asker);
    }

    /// Returns the type.
    pub fn kind(&self) -> u32 {
        self.kind
    }
}

/// The outcome of a message to a group.
pub enum Cast {
    /// The message is sent.
    Sent(u32),
    /// The program waits.
    Waits,
}

impl Cluster {
    /// Returns the owner of a claim: a connection to names, or a socket.
    pub(in crate::cluster) fn owner_of(&mut self, caller: u64) -> Option<Owner> {
        match is_port(caller) {
            true => self.tipc.ports.get(&(caller as u32)).map(|port| port.owner),
            false => self.callers.get_mut(caller).map(|caller| caller.owner),
        }
    }

    /// A socket's program may have read: its group may have more for it.
    pub(super) fn groups_of_port(&mut self, id: u32) {
        let group = self.tipc.ports.get(&id).and_then(|port| port.group.as_ref());
        if let Some(claim) = group.map(|group| group.claim) {
            self.groups.is_busy(claim);
        }
    }

    /// Makes a socket a member of a group.
    pub(super) fn join_tipc(&mut self, now: Instant, id: u32, field: [u32; 4]) -> Result<(), i32> {
        let [kind, instance, scope, flags] = field;
        let port = self.tipc.ports.get(&id).ok_or(libc::EBADF)?;
        if !port.is_connectionless() {
            return Err(libc::EOPNOTSUPP);
        }
        if kind < RESERVED || port.group.is_some() {
            return Err(libc::EACCES);
        }
        if scope > NODE_SCOPE as u32 || flags & !(LOOPBACK | EVENTS) != 0 {
            return Err(libc::EINVAL);
        }
        let name = Claim::new(Owner::default(), kind, instance..=instance);
        let name = name.endpoint(MARK | u64::from(id));
        let name = if scope > CLUSTER_SCOPE as u32 { name.on_host() } else { name };
        let (caller, times) = (OWNER | u64::from(id), (SLOW.as_millis() as u64, 0));
        match self.join_group(now, caller, 0, name, times) {
            Some(Say::Done(claim)) => {
                let (members, waits) = (BTreeMap::new(), None);
                let port = self.tipc.ports.get_mut(&id).ok_or(libc::EBADF)?;
                port.group = Some(Group { claim, kind, instance, flags, members, waits });
                Ok(())
            }
            _ => Err(libc::EACCES),
        }
    }

    /// Ends the membership of a socket.
    pub(super) fn leave_tipc(&mut self, now: Instant, id: u32) -> Result<(), i32> {
        let port = self.tipc.ports.get_mut(&id).ok_or(libc::EBADF)?;
        let group = port.group.take().ok_or(libc::EINVAL)?;
        if let Some((asker, _)) = group.waits {
            self.tipc.answer(asker, &Answer::error(libc::EHOSTUNREACH), None);
        }
        self.claims.remove(&group.claim);
        self.end_group(group.claim);
        self.node.withdraw(now, ClaimId(group.claim));
        Ok(())
    }

    /// Sends a message of a member. The address chooses the receivers; none: all.
    pub(super) fn cast_tipc(
        &mut self,
        now: Instant,
        (asker, id): (AskerId, u32),
        to: Option<Address>,
        may_wait: bool,
        data: Vec<u8>,
    ) -> Result<Cast, i32> {
        let me = self.node.me().host;
        let port = self.tipc.ports.get_mut(&id).ok_or(libc::EBADF)?;
        let group = port.group.as_mut().ok_or(libc::EINVAL)?;
        let own = group.instance;
        let (to, is_own) = match to {
            None => (To::All, true),
            Some(Address::Range { kind, .. } | Address::Service { kind, .. })
                if kind != group.kind =>
            {
                return Err(libc::EHOSTUNREACH);
            }
            Some(Address::Range { lower, upper, .. }) if lower > upper => {
                return Err(libc::EINVAL);
            }
            Some(Address::Range { lower, upper, .. }) => {
                (To::Each(lower..=upper), (lower..=upper).contains(&own))
            }
            Some(Address::Service { instance, .. }) => (To::One(instance..=instance), false),
            Some(Address::Socket { port, node }) => {
                let is_it = |((host, of), _): &(Far, u32)| *of == port && node_of(*host) == node;
                let found = group.members.iter().find(|(_, member)| is_it(member));
                (To::Member(*found.ok_or(libc::EHOSTUNREACH)?.0), false)
            }
        };
        let is_own = is_own && group.flags & LOOPBACK != 0;
        let claim = group.claim;
        let Some(membership) = self.groups.membership(claim) else {
            // Another member put it out.
            return Err(libc::EHOSTUNREACH);
        };
        let len = data.len() as u32;
        let wait = if may_wait { WAIT } else { Duration::ZERO };
        let sent = membership.send(now, to, data.clone(), wait);
        self.groups.is_busy(claim);
        let port = self.tipc.ports.get_mut(&id).ok_or(libc::EBADF)?;
        match sent {
            Sending::Refused(NotSent::Group(SendError::Nobody)) if !is_own => {
                return Err(libc::EHOSTUNREACH);
            }
            Sending::Refused(NotSent::Long) => return Err(libc::EMSGSIZE),
            Sending::Refused(NotSent::Group(SendError::Nobody)) | Sending::Sent(_) => {}
            Sending::Refused(_) => return Err(libc::EAGAIN),
            Sending::Waits => {}
        }
        if is_own {
            let head = RecordHead::new(Kind::Message, (id, node_of(me)), data.len());
            let member = port.group.as_ref().map(|group| (group.kind, group.instance));
            port.record(&RecordHead { member, ..head }, &data);
        }
        match sent {
            Sending::Waits => {
                port.group.iter_mut().for_each(|group| group.waits = Some((asker, len)));
                Ok(Cast::Waits)
            }
            _ => {
                // Before the end of the socket, which may come next.
                self.work_groups(now);
                Ok(Cast::Sent(len))
            }
        }
    }

    /// Tells a socket what its membership has for it. True if its program does not read.
    pub(in crate::cluster) fn tell_port(&mut self, now: Instant, claim: u64, caller: u64) -> bool {
        let id = caller as u32;
        let sent = self.groups.membership(claim).and_then(|membership| membership.poll_sent());
        let Some(port) = self.tipc.ports.get_mut(&id) else { return false };
        let Some(group) = &mut port.group else { return false };
        if let Some((sent, (asker, len))) = sent.and_then(|sent| Some((sent, group.waits.take()?)))
        {
            let answer = match sent {
                Ok(_) => Answer::done(len),
                Err(NotSent::Group(SendError::Nobody)) => Answer::error(libc::EHOSTUNREACH),
                Err(_) => Answer::error(libc::EAGAIN),
            };
            self.tipc.answer(asker, &answer, None);
        }
        self.tipc.changed.insert(id);
        loop {
            let Some(port) = self.tipc.ports.get_mut(&id) else { return false };
            // A program has taken what the kernel has for it.
            if !port.out.is_empty() {
                return true;
            }
            let Some(membership) = self.groups.membership(claim) else { return false };
            let Some((_, notice)) = membership.poll_event() else { return false };
            if matches!(notice, GroupNotice::Message { .. }) {
                membership.took(now, 1);
                self.groups.is_busy(claim);
            }
            tell(port, notice);
        }
    }
}

/// Tells a socket one thing of its group.
fn tell(port: &mut super::Port, notice: GroupNotice) {
    let Some(group) = &mut port.group else { return };
    let (kind, wants) = (group.kind, group.flags & EVENTS != 0);
    let event = |(far, instance): (Far, u32), ends: bool| RecordHead {
        out_of_band: true,
        ends,
        member: Some((kind, instance)),
        ..RecordHead::new(Kind::Message, (far.1, node_of(far.0)), 0)
    };
    match notice {
        GroupNotice::Joined(one) => {
            // A member that is no socket has number 0.
            let is_socket = one.name.endpoint >> 32 == MARK >> 32;
            let number = if is_socket { one.name.endpoint as u32 } else { 0 };
            let member = ((one.id.host, number), one.name.lower);
            group.members.insert(one.id, member);
            if wants {
                port.record(&event(member, false), &[]);
            }
        }
        GroupNotice::Left(one, _) => {
            if let Some(member) = group.members.remove(&one).filter(|_| wants) {
                port.record(&event(member, true), &[]);
            }
        }
        GroupNotice::Message { from, payload, .. } => {
            let unknown = ((from.host, 0), 0);
            let (far, instance) = group.members.get(&from).copied().unwrap_or(unknown);
            let head = RecordHead::new(Kind::Message, (far.1, node_of(far.0)), payload.len());
            let member = Some((kind, instance));
            port.record(&RecordHead { member, ..head }, &payload);
        }
        _ => {}
    }
}
