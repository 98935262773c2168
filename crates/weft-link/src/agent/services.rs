//! What a rank asks of its agent besides carrying packets.

use super::{Control, GroupRole};
use crate::LinkEvent;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use weft_core::wire::Atomic;
use weft_core::PeerFailure;

/// Messages that wait for room in the ring; the services refuse what is beyond.
const QUEUE_MAX: usize = 1024;
/// Packets of a group that wait for the program at most.
const GROUP_WINDOW: u32 = 64;

/// Groups with these upper 16 bits belong to the packet interface, which takes what comes for them.
pub const PACKET_GROUPS: u64 = 0x7770 << 48;

/// A packet of a group: group, number, bytes.
pub type GroupPacket = (u64, u32, Vec<u8>);
/// A member of a multicast group that holds it up (true) or is lost (false).
pub type MemberNews = (u64, u32, bool);

fn is_ours(group: u64) -> bool {
    group >> 48 == PACKET_GROUPS >> 48
}

/// What is for the packet interface.
#[derive(Debug, Default)]
struct ForPackets {
    packets: VecDeque<GroupPacket>,
    members: VecDeque<MemberNews>,
    joined: VecDeque<(u64, bool)>,
    done: VecDeque<(u64, Option<u64>)>,
    news: bool,
}

/// What the rank asks of its agent besides carrying packets: shared by the link, which moves it,
/// and by those who ask.
#[derive(Debug, Default)]
pub struct Services {
    out: VecDeque<Control>,
    counters: BTreeMap<(u64, u32), Option<u64>>,
    packets: VecDeque<GroupPacket>,
    grants: BTreeMap<u64, u32>,
    /// Packets taken, by group, and how many the agent knows of.
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

    /// Asks the agent to keep `words` words of this value for fetch-and-add under `key`, in the
    /// kernel if `kernel` says so and that can be; others reach them as a region of this endpoint,
    /// whatever this rank does meanwhile. False: try again.
    pub fn open_counter(&mut self, key: u64, words: u32, value: u64, kernel: bool) -> bool {
        self.counters.remove(&(key, 0));
        self.ask(Control::CounterOpen(key, words, value, kernel))
    }

    /// Asks for the value of a word.
    pub fn read_counter(&mut self, key: u64, word: u32) -> bool {
        self.counters.remove(&(key, word));
        self.ask(Control::CounterRead(key, word))
    }

    /// The answer to `open_counter` (for word 0) or `read_counter`, once: `Some(None)` if the agent
    /// refuses.
    pub fn counter(&mut self, key: u64, word: u32) -> Option<Option<u64>> {
        self.counters.remove(&(key, word))
    }

    /// Ends the words under `key`.
    pub fn close_counter(&mut self, key: u64) -> bool {
        self.ask(Control::CounterClose(key))
    }

    /// Asks for an operation on a word of this rank's, on behalf of a peer that does not pass the
    /// agent; [`next_done`](Self::next_done) has the answer under `number`.
    pub fn counter_do(&mut self, number: u64, atomic: Atomic) -> bool {
        self.ask(Control::CounterDo(number, atomic))
    }

    /// Joins a multicast group; the peers named must be connected, and their sessions open.
    pub fn join(&mut self, role: GroupRole) -> bool {
        self.grants.remove(&role.group);
        self.taken.remove(&role.group);
        self.ask(Control::GroupJoin(role))
    }

    /// Leaves a group.
    pub fn leave(&mut self, group: u64) -> bool {
        self.ask(Control::GroupLeave(group))
    }

    /// The root sends packet `number` of a group (they count from 0) to all members. False while
    /// the agent has no room: [`Services::granted`] says how far it goes.
    pub fn multicast(&mut self, group: u64, number: u32, bytes: &[u8]) -> bool {
        let granted = self.granted(group);
        if (granted.wrapping_sub(number) as i32) <= 0 {
            return false;
        }
        self.ask(Control::GroupPacket(group, number, bytes.to_vec()))
    }

    /// The number before which packets of a group may be sent now.
    pub fn granted(&self, group: u64) -> u32 {
        self.grants.get(&group).copied().unwrap_or(0)
    }

    /// The next packet that came: group, number, bytes.
    pub fn poll_packet(&mut self) -> Option<GroupPacket> {
        let packet = self.packets.pop_front()?;
        self.release(packet.0);
        Some(packet)
    }

    /// The program is done with the oldest packet of a group: the agent may give it another.
    pub fn release(&mut self, group: u64) {
        let (taken, told) = self.taken.entry(group).or_default();
        *taken = taken.wrapping_add(1);
        if taken.wrapping_sub(*told) >= GROUP_WINDOW / 4 {
            *told = *taken;
            let granted = taken.wrapping_add(GROUP_WINDOW);
            // Not bounded by the queue's limit: it would never be said again.
            self.out.push_back(Control::GroupGrant(group, granted));
        }
    }

    /// The next news of a slow or lost member.
    pub fn poll_member(&mut self) -> Option<MemberNews> {
        self.members.pop_front()
    }

    /// What was asked and has not gone to the agent: it goes with the next progress.
    pub fn pending(&self) -> usize {
        self.out.len()
    }

    /// Why the agent serves no more, if so.
    pub fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    /// Whether anything came for the packet interface that it has not taken note of.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.ours.news
    }

    /// As [`has_news`](Self::has_news), and it is taken note of.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.ours.news)
    }

    /// As [`poll_packet`](Self::poll_packet), for the packet interface, which says itself when it
    /// is done with one ([`release`](Self::release)).
    pub fn next_packet(&mut self) -> Option<GroupPacket> {
        self.ours.packets.pop_front()
    }

    /// The next answer to a `join` of the packet interface.
    pub fn next_joined(&mut self) -> Option<(u64, bool)> {
        self.ours.joined.pop_front()
    }

    /// As [`poll_member`](Self::poll_member), for the packet interface.
    pub fn next_member(&mut self) -> Option<MemberNews> {
        self.ours.members.pop_front()
    }

    /// The next answer to [`counter_do`](Self::counter_do); `None` in it: refused.
    pub fn next_done(&mut self) -> Option<(u64, Option<u64>)> {
        self.ours.done.pop_front()
    }

    /// The next message to the agent, for the link.
    pub fn say_next(&mut self) -> Option<Control> {
        self.out.pop_front()
    }

    pub(super) fn say_again(&mut self, message: Control) {
        self.out.push_front(message);
    }

    /// Something that is said whatever waits already.
    pub(super) fn say(&mut self, message: Control) {
        self.out.push_back(message);
    }

    /// Whether no message to the agent waits.
    pub fn is_silent(&self) -> bool {
        self.out.is_empty()
    }

    pub(super) fn end(&mut self, why: String) {
        (self.ended, self.ours.news) = (Some(why), true);
    }

    /// What an answer of the agent means; the link hands it in.
    pub fn take(&mut self, message: Control, events: &mut VecDeque<LinkEvent>) {
        match message {
            Control::CounterIs(key, word, value) => {
                self.counters.insert((key, word), value);
            }
            Control::CounterDone(number, value) => {
                self.ours.done.push_back((number, value));
                self.ours.news = true;
            }
            // At most a window for each group: what is granted.
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

/// A handle to the services; it lives on when the link is given to an endpoint.
pub type ServicesHandle = Rc<RefCell<Services>>;
