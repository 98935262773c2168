//! The services of an agent for its rank, beside carrying packets.

use super::{Control, GroupRole};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use weft_core::wire::Atomic;
use weft_core::PeerFailure;
use weft_link::LinkEvent;

/// Highest number of messages that wait for room in the ring; further requests are refused.
const QUEUE_MAX: usize = 1024;
/// Highest number of packets of a group that wait for the program.
const GROUP_WINDOW: u32 = 64;

/// Groups with these upper 16 bits belong to the packet interface, which takes their packets.
pub const PACKET_GROUPS: u64 = 0x7770 << 48;

/// A packet of a group: group, number, bytes.
pub type GroupPacket = (u64, u32, Vec<u8>);
/// A member of a multicast group that blocks it (true) or is lost (false).
pub type MemberNews = (u64, u32, bool);

fn is_ours(group: u64) -> bool {
    group >> 48 == PACKET_GROUPS >> 48
}

/// The queues for the packet interface.
#[derive(Debug, Default)]
struct ForPackets {
    packets: VecDeque<GroupPacket>,
    members: VecDeque<MemberNews>,
    joined: VecDeque<(u64, bool)>,
    done: VecDeque<(u64, Option<u64>)>,
    news: bool,
}

/// The rank's requests to its agent and the answers. The link, which carries them, and the users of
/// the services share this object.
#[derive(Debug, Default)]
pub struct Services {
    out: VecDeque<Control>,
    counters: BTreeMap<(u64, u32), Option<u64>>,
    packets: VecDeque<GroupPacket>,
    grants: BTreeMap<u64, u32>,
    /// By group: number of packets that the program took, and the number reported to the agent.
    taken: BTreeMap<u64, (u32, u32)>,
    members: VecDeque<MemberNews>,
    ours: ForPackets,
    ended: Option<String>,
}

impl Services {
    fn ask(&mut self, message: Control) -> bool {
        let room = self.ended.is_none() && self.out.len() < QUEUE_MAX;
        if room {
            self.out.push_back(message);
        }
        room
    }

    /// Asks the agent to keep `words` words of this value for fetch-and-add under `key`; in the
    /// kernel if `kernel` is true and the kernel can. Others reach the words as a region of this
    /// endpoint, also while this rank computes. False: try again.
    pub fn open_counter(&mut self, key: u64, words: u32, value: u64, kernel: bool) -> bool {
        self.counters.remove(&(key, 0));
        self.ask(Control::CounterOpen(key, words, value, kernel))
    }

    /// Asks for the value of a word.
    pub fn read_counter(&mut self, key: u64, word: u32) -> bool {
        self.counters.remove(&(key, word));
        self.ask(Control::CounterRead(key, word))
    }

    /// Returns the answer to `open_counter` (for word 0) or `read_counter`, once. `Some(None)`
    /// means that the agent refused.
    pub fn counter(&mut self, key: u64, word: u32) -> Option<Option<u64>> {
        self.counters.remove(&(key, word))
    }

    /// Frees the words under `key`.
    pub fn close_counter(&mut self, key: u64) -> bool {
        self.ask(Control::CounterClose(key))
    }

    /// Asks for an operation on a word of this rank, on behalf of a peer that does not use the
    /// agent. [`next_done`](Self::next_done) returns the answer under `number`.
    pub fn counter_do(&mut self, number: u64, atomic: Atomic) -> bool {
        self.ask(Control::CounterDo(number, atomic))
    }

    /// Joins a multicast group; the peers in `role` must be connected, and their sessions open.
    pub fn join(&mut self, role: GroupRole) -> bool {
        self.grants.remove(&role.group);
        self.taken.remove(&role.group);
        self.ask(Control::GroupJoin(role))
    }

    /// Leaves a group.
    pub fn leave(&mut self, group: u64) -> bool {
        self.ask(Control::GroupLeave(group))
    }

    /// Sends packet `number` of a group to all members, from its root; numbers count from 0. False
    /// while the agent has no room ([`Services::granted`] is the limit).
    pub fn multicast(&mut self, group: u64, number: u32, bytes: &[u8]) -> bool {
        let granted = self.granted(group);
        if (granted.wrapping_sub(number) as i32) <= 0 {
            return false;
        }
        self.ask(Control::GroupPacket(group, number, bytes.to_vec()))
    }

    /// Returns the number before which packets of a group may be sent now.
    pub fn granted(&self, group: u64) -> u32 {
        self.grants.get(&group).copied().unwrap_or(0)
    }

    /// Returns the next received packet: group, number, bytes.
    pub fn poll_packet(&mut self) -> Option<GroupPacket> {
        let packet = self.packets.pop_front()?;
        self.release(packet.0);
        Some(packet)
    }

    /// Frees the oldest packet of a group: the agent may deliver another one.
    pub fn release(&mut self, group: u64) {
        let (taken, told) = self.taken.entry(group).or_default();
        *taken = taken.wrapping_add(1);
        if taken.wrapping_sub(*told) >= GROUP_WINDOW / 4 {
            *told = *taken;
            let granted = taken.wrapping_add(GROUP_WINDOW);
            // This message is not bound by the queue's limit, because nothing would send it again.
            self.out.push_back(Control::GroupGrant(group, granted));
        }
    }

    /// Returns the next report of a slow or lost member.
    pub fn poll_member(&mut self) -> Option<MemberNews> {
        self.members.pop_front()
    }

    /// Returns the number of messages that the link has not sent to the agent yet.
    pub fn pending(&self) -> usize {
        self.out.len()
    }

    /// Returns the reason why the agent serves no more, if it ended.
    pub fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    /// True if something arrived for the packet interface since the last
    /// [`take_news`](Self::take_news).
    #[inline]
    pub fn has_events(&self) -> bool {
        self.ours.news
    }

    /// Returns the value of [`has_events`](Self::has_events), and resets the flag.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.ours.news)
    }

    /// Returns the next packet for the packet interface, which frees each packet itself
    /// ([`release`](Self::release)); see [`poll_packet`](Self::poll_packet) for other callers.
    pub fn next_packet(&mut self) -> Option<GroupPacket> {
        self.ours.packets.pop_front()
    }

    /// Returns the next answer to a `join` of the packet interface.
    pub fn next_joined(&mut self) -> Option<(u64, bool)> {
        self.ours.joined.pop_front()
    }

    /// Returns the next report of a member for the packet interface; see
    /// [`poll_member`](Self::poll_member) for other callers.
    pub fn next_member(&mut self) -> Option<MemberNews> {
        self.ours.members.pop_front()
    }

    /// Returns the next answer to [`counter_do`](Self::counter_do); `None` in it: refused.
    pub fn next_done(&mut self) -> Option<(u64, Option<u64>)> {
        self.ours.done.pop_front()
    }

    /// Returns the next message to the agent, for the link.
    pub fn say_next(&mut self) -> Option<Control> {
        self.out.pop_front()
    }

    pub(super) fn say_again(&mut self, message: Control) {
        self.out.push_front(message);
    }

    /// Queues a message, also beyond the queue's limit.
    pub(super) fn say(&mut self, message: Control) {
        self.out.push_back(message);
    }

    /// True if no message to the agent waits.
    pub fn is_silent(&self) -> bool {
        self.out.is_empty()
    }

    pub(super) fn end(&mut self, why: String) {
        (self.ended, self.ours.news) = (Some(why), true);
    }

    /// Takes a message of the agent; called by the link.
    pub fn take(&mut self, message: Control, events: &mut VecDeque<LinkEvent>) {
        match message {
            Control::CounterIs(key, word, value) => {
                self.counters.insert((key, word), value);
            }
            Control::CounterDone(number, value) => {
                self.ours.done.push_back((number, value));
                self.ours.news = true;
            }
            // The agent sends at most the granted window of packets for each group.
            Control::GroupPacket(group, number, bytes) if is_ours(group) => {
                self.ours.packets.push_back((group, number, bytes));
                self.ours.news = true;
            }
            Control::GroupPacket(group, number, bytes) => {
                self.packets.push_back((group, number, bytes));
            }
            Control::GroupGrant(group, number) => {
                self.grants.insert(group, number);
                self.ours.news |= is_ours(group);
            }
            Control::GroupJoined(group, joined) if is_ours(group) => {
                self.ours.joined.push_back((group, joined));
                self.ours.news = true;
            }
            Control::GroupMember(group, member, slow) => {
                let (members, ours) = match is_ours(group) {
                    true => (&mut self.ours.members, true),
                    false => (&mut self.members, false),
                };
                if members.len() < QUEUE_MAX {
                    members.push_back((group, member, slow));
                }
                self.ours.news |= ours;
            }
            Control::Path(peer, mtu) => events.push_back(LinkEvent::Mtu(peer, mtu)),
            Control::Lost(peer, why) => {
                events.push_back(LinkEvent::Warning(format!("{peer}: {why}")));
                events.push_back(LinkEvent::PeerGone(peer));
            }
            Control::Stuck(peer, after_ms, kind, len) => {
                let failure = PeerFailure::Stuck { after_ms, kind, len };
                events.push_back(LinkEvent::PeerFailed(peer, failure));
            }
            Control::Notice(text) => events.push_back(LinkEvent::Warning(text)),
            _ => {}
        }
    }
}

/// A shared handle to the services; it stays valid when the link is moved into an endpoint.
pub type ServicesHandle = Rc<RefCell<Services>>;
