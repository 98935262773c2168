//! The state of one member, without I/O: submitting, placing and delivering slots in a view.

use super::change::Change;
use super::pack::{Incoming, Message, Outgoing};
use super::penalty::Penalties;
use super::places::Places;
use super::safe::Safe;
use super::wire::{cast, put_view, Control, Placed, Reader, Slot, ViewId, HEAD};
use super::{Options, OrderError, Style};
use crate::channel::MESSAGE_MAX;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weft_core::Instant;

/// Most slots for which one fetch-and-add asks, if a quarter of the window is not more.
const BATCH: usize = 32;

/// Something that the core wants done.
#[derive(Debug)]
pub(super) enum Action {
    /// Send a control to a rank.
    Post { to: u32, control: Control },
    /// Send a cast to all other members of the view.
    Cast { kind: u8, bytes: Vec<u8> },
    /// Add to the counter of the view, and call `ticket`.
    Ask { view: ViewId, at: u32, key: u64, count: u64 },
    /// Give a message to the program.
    Deliver { from: u32, place: u64, bytes: Vec<u8> },
    /// Give a message without order to the program.
    Loose { from: u32, bytes: Vec<u8> },
    /// One of the program's own messages has been delivered.
    Done { token: u64, place: u64 },
    /// There is a new view: make its multicast group, and call `opened`.
    View { view: ViewId, members: Vec<u32>, joined: Vec<u32>, left: Vec<u32> },
    /// Make a counter, and call `counter_made`.
    MakeCounter,
    /// Take the state of the program now, and call `snapshot_taken`.
    TakeSnapshot,
    /// Give the state to the program.
    Restore { snapshot: Vec<u8> },
    /// Notice the silence of these ranks from now on, and of no other.
    Watch { ranks: Vec<u32> },
    /// A wait is long.
    Say { text: String },
    /// This member has ended.
    End { error: OrderError },
}

/// A slot of this member that has not been delivered.
pub(super) struct Own {
    pub number: u64,
    /// Empty once it has been sent with its place.
    pub data: Vec<u8>,
    /// Number of messages that end in it.
    pub ends: usize,
    pub place: Option<u64>,
    pub sent: bool,
}

/// A message of a later view, kept until this member has that view.
pub(super) enum Early {
    Control(u32, Control),
    Cast(u32, u8, Vec<u8>),
}

/// A wait: its start, and the answers of others about it.
#[derive(Default)]
pub(super) struct Wait {
    /// Progress at the start of the wait.
    pub mark: (u64, u64, ViewId, u32),
    pub since: Option<Instant>,
    pub watches: bool,
    pub said: bool,
    /// Ranks that have answered the question about the place, and those that hold it back.
    pub innocent: Vec<u32>,
    pub holders: Vec<u32>,
}

impl Early {
    /// Returns the number of the view that the message is of.
    pub fn epoch(&self) -> u32 {
        let view = match self {
            Early::Control(_, control) => control.view(),
            Early::Cast(_, _, bytes) => Reader(bytes).view(),
        };
        view.unwrap_or_default().epoch
    }
}

pub(super) struct Core {
    pub me: u32,
    /// The number of this life of the rank (see [`Control::Join`]).
    pub life: u64,
    pub style: Style,
    /// Slots that may be on their way beyond those that all have delivered.
    pub window: u64,
    pub actions: VecDeque<Action>,
    pub view: ViewId,
    pub members: Vec<u32>,
    /// Rank and key of the counter of places.
    pub counter: Option<(u32, u64)>,
    /// Key of a counter of this member for a later view.
    pub spare: Option<u64>,
    /// Bytes of data in a slot; `None` until the view has its multicast group.
    pub room: Option<usize>,
    /// First place of this view: that of the counter's zero.
    pub base: u64,
    /// The next place to deliver.
    pub next: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// All members have delivered what is below.
    pub stable: u64,
    /// Slots from `stable` on.
    pub slots: Places,
    /// Data without a place, and places without data, if senders cast before they are placed.
    pub unplaced: BTreeMap<(u32, u64), Vec<u8>>,
    pub accepted: BTreeMap<u64, (u32, u64)>,
    /// The sequencer's next place, and the slots that wait for the window.
    pub place: u64,
    pub backlog: VecDeque<Slot>,
    /// Places given since the last cast that tells them, and the first of them.
    accepts: Vec<(u32, u64)>,
    pub incoming: Incoming,
    pub outgoing: Outgoing,
    pub own: VecDeque<Own>,
    pub number: u64,
    /// True while a ticket is on its way.
    pub asking: bool,
    /// The places up to which members have delivered, at the keeper.
    pub next_of: BTreeMap<u32, u64>,
    pub reported: u64,
    /// Begun messages without order: packets that follow, and the bytes so far.
    loose: BTreeMap<u32, (u32, Vec<u8>)>,
    pub change: Change,
    pub early: BTreeMap<u32, Vec<Early>>,
    pub wait: Wait,
    pub slow: Vec<u32>,
    /// True while the program waits for messages of others.
    pub expects: bool,
    pub ended: Option<OrderError>,
    pub safe: bool,
    pub accounts: Safe,
    pub penalties: Penalties,
    /// Ranks that live, as far as is known, and that the network below has given up for ever.
    pub lost: BTreeSet<u32>,
    /// The time of the last message or check.
    pub now: Instant,
    /// Slots that came twice or with nonsense, dropped.
    pub dropped: u64,
    holds_back: bool,
    filling: bool,
    /// True while the program has too many messages that it has not received.
    pub paused: bool,
}

impl Core {
    pub fn new(me: u32, members: Vec<u32>, options: Options) -> Core {
        Core {
            me,
            life: 0,
            style: options.style,
            window: u64::from(options.window).max(4),
            actions: VecDeque::new(),
            view: ViewId::default(),
            members,
            counter: None,
            spare: None,
            room: None,
            base: 0,
            next: 0,
            delivered: 0,
            stable: 0,
            slots: Places::default(),
            unplaced: BTreeMap::new(),
            accepted: BTreeMap::new(),
            place: 0,
            backlog: VecDeque::new(),
            accepts: Vec::new(),
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
            own: VecDeque::new(),
            number: 0,
            asking: false,
            next_of: BTreeMap::new(),
            reported: 0,
            loose: BTreeMap::new(),
            change: Change::default(),
            early: BTreeMap::new(),
            wait: Wait::default(),
            slow: Vec::new(),
            expects: false,
            ended: None,
            safe: options.safe,
            accounts: Safe::default(),
            penalties: Penalties::default(),
            lost: BTreeSet::new(),
            now: Instant::default(),
            dropped: 0,
            holds_back: false,
            filling: false,
            paused: false,
        }
    }

    pub fn post(&mut self, to: u32, control: Control) {
        self.actions.push_back(Action::Post { to, control });
    }

    /// Sends a control to all other members.
    pub fn post_all(&mut self, control: &Control) {
        for to in self.members.clone() {
            if to != self.me {
                self.post(to, control.clone());
            }
        }
    }

    /// Sends a cast of some `len` bytes after its head.
    fn cast(&mut self, kind: u8, len: usize, fill: impl FnOnce(&mut Vec<u8>)) {
        if self.members.len() < 2 {
            return;
        }
        let mut bytes = Vec::with_capacity(HEAD + len);
        put_view(self.view, &mut bytes);
        fill(&mut bytes);
        self.actions.push_back(Action::Cast { kind, bytes });
    }

    /// The member that places slots, counts places and keeps the account of what is stable.
    pub fn keeper(&self) -> u32 {
        self.members.first().copied().unwrap_or(self.me)
    }

    /// True if slots may be sent and delivered.
    pub fn is_open(&self) -> bool {
        self.room.is_some() && !self.change.is_frozen() && self.ended.is_none()
    }

    /// Takes a message of the program.
    pub fn submit(&mut self, token: u64, bytes: Vec<u8>) {
        self.outgoing.push(Message { token, bytes });
        self.fill();
    }

    /// Sends a message without order to the other members. False if there is no view now.
    pub fn submit_loose(&mut self, bytes: &[u8]) -> bool {
        let Some(room) = self.room.filter(|_| self.is_open()) else { return false };
        let most = (bytes.len().saturating_sub(1) / room) as u32;
        let chunks = bytes.chunks(room).chain(bytes.is_empty().then_some(&[][..]));
        for (left, chunk) in (0..=most).rev().zip(chunks) {
            let head = left | if left == most { cast::FIRST } else { 0 };
            self.cast(cast::LOOSE, chunk.len(), |to| {
                to.extend_from_slice(&head.to_le_bytes());
                to.extend_from_slice(chunk);
            });
        }
        true
    }

    /// Packs messages into slots as far as the window lets them go.
    pub fn fill(&mut self) {
        // A slot that is delivered at once lets the next ones go: a loop, not a recursion.
        if self.filling {
            return;
        }
        self.filling = true;
        while self.is_open() && self.fill_some() {}
        self.filling = false;
    }

    /// True if slots were handed in, so that there may be room for more.
    fn fill_some(&mut self) -> bool {
        let most = (self.window / 2) as usize;
        if self.style == Style::Ticket {
            if self.asking {
                return false;
            }
            let Some((at, key)) = self.counter else {
                self.end(OrderError::NoCounter);
                return false;
            };
            // Where ranks share processors, the counter's rank has its turn seldom: much goes then.
            let batch = BATCH.max(most / 2);
            let count = self.pack(most.saturating_sub(self.own.len()).min(batch));
            if count > 0 {
                self.asking = true;
                let view = self.view;
                self.actions.push_back(Action::Ask { view, at, key, count });
            }
            return false;
        }
        let first = self.own.len();
        let count = self.pack(most.saturating_sub(first));
        for at in first..self.own.len() {
            self.hand_in(at);
        }
        self.tell_places();
        self.advance();
        count > 0
    }

    /// Packs at most `most` slots; returns their number.
    fn pack(&mut self, most: usize) -> u64 {
        let room = self.room.unwrap_or(0);
        let mut count = 0;
        while count < most as u64 {
            let Some((data, ends)) = self.outgoing.pack(room) else { break };
            let number = self.number;
            self.number += 1;
            self.own.push_back(Own { number, data, ends, place: None, sent: false });
            count += 1;
        }
        count
    }

    /// Gives a slot of this member to the sequencer.
    fn hand_in(&mut self, at: usize) {
        let (number, data) = (self.own[at].number, self.own[at].data.clone());
        self.own[at].sent = true;
        let (me, keeper, view) = (self.me, self.keeper(), self.view);
        if self.style == Style::Broadcast {
            self.cast(cast::DATA, data.len(), |to| {
                to.extend_from_slice(&number.to_le_bytes());
                to.extend_from_slice(&data);
            });
            self.unplaced.insert((me, number), data.clone());
        }
        if keeper == me {
            self.place(Slot { sender: me, number, data });
        } else if self.style == Style::Sequencer {
            self.post(keeper, Control::Submit { view, number, data });
        }
    }

    /// Gives the next place to a slot, at the sequencer.
    pub fn place(&mut self, slot: Slot) {
        if !self.backlog.is_empty() || self.place >= self.stable + self.window {
            self.backlog.push_back(slot);
            return;
        }
        let place = self.place;
        self.place += 1;
        if self.style == Style::Broadcast {
            self.accepts.push((slot.sender, slot.number));
            self.unplaced.remove(&(slot.sender, slot.number));
        } else {
            self.cast_slot(place, &slot);
        }
        self.slots.insert(place, slot);
    }

    /// Casts the places that were given, so that members know the order of data that they have.
    pub fn tell_places(&mut self) {
        if self.accepts.is_empty() {
            return;
        }
        let accepts = std::mem::take(&mut self.accepts);
        let first = self.place - accepts.len() as u64;
        let each = (self.room.unwrap_or(0) / 12).max(1);
        for (at, some) in accepts.chunks(each).enumerate() {
            let first = first + (at * each) as u64;
            self.cast(cast::ACCEPT, 12 * some.len(), |to| {
                to.extend_from_slice(&first.to_le_bytes());
                for (sender, number) in some {
                    to.extend_from_slice(&sender.to_le_bytes());
                    to.extend_from_slice(&number.to_le_bytes());
                }
            });
        }
    }

    fn cast_slot(&mut self, place: u64, slot: &Slot) {
        self.cast(cast::SLOT, slot.data.len(), |to| {
            to.extend_from_slice(&place.to_le_bytes());
            to.extend_from_slice(&slot.sender.to_le_bytes());
            to.extend_from_slice(&slot.number.to_le_bytes());
            to.extend_from_slice(&slot.data);
        });
    }

    /// Takes the value of the counter before an addition.
    pub fn ticket(&mut self, view: ViewId, first: u64, count: u64) {
        if view != self.view || !self.is_open() || !self.asking {
            // The places belong to nobody, and the view ends before them.
            return;
        }
        let base = self.base + first;
        let waiting = self.own.iter_mut().filter(|own| own.place.is_none());
        for (place, own) in (base..base + count).zip(waiting) {
            own.place = Some(place);
        }
        self.send_own();
    }

    /// Lets this member ask for its next ticket, after that of a view has come.
    pub fn may_ask(&mut self, view: ViewId) {
        if view == self.view {
            self.asking = false;
            self.fill();
        }
    }

    /// Sends the slots that have a place within the window.
    pub fn send_own(&mut self) {
        if !self.is_open() || self.style != Style::Ticket || self.holds_back {
            return;
        }
        let end = self.stable + self.window;
        for at in 0..self.own.len() {
            let own = &mut self.own[at];
            let Some(place) = own.place.filter(|&place| place < end && !own.sent) else { continue };
            own.sent = true;
            let data = std::mem::take(&mut own.data);
            let slot = Slot { sender: self.me, number: own.number, data };
            self.cast_slot(place, &slot);
            self.slots.insert(place, slot);
        }
        self.advance();
    }

    pub fn hold_back(&mut self, on: bool) {
        self.holds_back = on;
        self.send_own();
    }

    /// Handles a cast of a member.
    pub fn handle_cast(&mut self, from: u32, kind: u8, bytes: &[u8]) {
        let mut reader = Reader(bytes);
        let Some(view) = reader.view().filter(|_| self.ended.is_none()) else { return };
        if view != self.view || self.room.is_none() {
            if self.is_early(view) {
                self.keep_early(Early::Cast(from, kind, bytes.to_vec()));
            }
            return;
        }
        if kind == cast::LOOSE {
            return self.on_loose(from, reader);
        }
        // The state that this member has told the author of a change must not grow.
        if self.change.is_frozen() {
            return;
        }
        let known = match kind {
            cast::SLOT => self.on_slot(from, reader),
            cast::DATA => self.on_data(from, reader),
            cast::ACCEPT => self.on_accept(from, reader),
            cast::STABLE => reader.u64().map(|stable| self.set_stable(stable)),
            _ => None,
        };
        if known.is_none() {
            self.dropped += 1;
        }
        self.advance();
    }

    /// True for a view that this member may come to have.
    pub fn is_early(&self, view: ViewId) -> bool {
        view == self.view || view.epoch > self.view.epoch.max(self.change.joining.refused)
    }

    /// Keeps a message of a later view. A sender has at most a window of slots and acknowledgements
    /// there; of messages without order beyond that some are missing.
    pub fn keep_early(&mut self, early: Early) {
        let (from, most) = match &early {
            Early::Control(from, _) => (*from, 8),
            Early::Cast(from, cast::LOOSE, _) => (*from, 4),
            Early::Cast(from, ..) => (*from, 8),
        };
        let kept = self.early.entry(from).or_default();
        if kept.len() < most * self.window as usize {
            kept.push(early);
        } else {
            self.dropped += 1;
        }
    }

    fn on_slot(&mut self, from: u32, mut reader: Reader<'_>) -> Option<()> {
        let (place, sender, number) = (reader.u64()?, reader.u32()?, reader.u64()?);
        let may_send = if self.style == Style::Ticket { sender } else { self.keeper() };
        self.fits(place).filter(|()| from == may_send)?;
        let data = reader.0.to_vec();
        self.slots.insert_new(place, Slot { sender, number, data });
        Some(())
    }

    /// `None` for a place that is delivered, or beyond what any member may send.
    fn fits(&self, place: u64) -> Option<()> {
        (self.next..self.next + 4 * self.window).contains(&place).then_some(())
    }

    fn on_data(&mut self, sender: u32, mut reader: Reader<'_>) -> Option<()> {
        let number = reader.u64()?;
        let data = reader.0.to_vec();
        if self.keeper() == self.me {
            self.place(Slot { sender, number, data });
            self.tell_places();
            return Some(());
        }
        let place = self.accepted.iter().find(|(_, &of)| of == (sender, number));
        match place.map(|(&place, _)| place) {
            Some(place) => {
                self.accepted.remove(&place);
                self.slots.insert(place, Slot { sender, number, data });
            }
            None => {
                // Places go as far as the window, and each member has half of one beyond.
                let most = (self.members.len() as u64 + 1) * self.window;
                if self.unplaced.len() as u64 >= most {
                    return None;
                }
                self.unplaced.insert((sender, number), data);
            }
        }
        Some(())
    }

    fn on_accept(&mut self, from: u32, mut reader: Reader<'_>) -> Option<()> {
        let first = reader.u64().filter(|_| from == self.keeper())?;
        for place in first.. {
            if reader.0.is_empty() {
                break;
            }
            let (sender, number) = (reader.u32()?, reader.u64()?);
            self.fits(place)?;
            match self.unplaced.remove(&(sender, number)) {
                Some(data) => self.slots.insert(place, Slot { sender, number, data }),
                None => drop(self.accepted.insert(place, (sender, number))),
            }
        }
        Some(())
    }

    fn on_loose(&mut self, from: u32, mut reader: Reader<'_>) {
        let Some(head) = reader.u32() else { return };
        let left = head & !cast::FIRST;
        let begun = self.loose.remove(&from).filter(|(follow, _)| *follow == left + 1);
        let mut whole = match (head & cast::FIRST, begun) {
            (0, Some((_, bytes))) => bytes,
            // The packets before have not come: the message is lost here.
            (0, None) => return self.dropped += 1,
            _ => Vec::new(),
        };
        whole.extend_from_slice(reader.0);
        match left {
            0 => self.actions.push_back(Action::Loose { from, bytes: whole }),
            _ if whole.len() > MESSAGE_MAX => self.dropped += 1,
            _ => drop(self.loose.insert(from, (left, whole))),
        }
    }

    /// Forgets messages without order of which a part is missing.
    pub fn forget_loose(&mut self) {
        self.loose.clear();
    }

    /// Delivers all slots that are next.
    pub fn advance(&mut self) {
        if !self.is_open() {
            return;
        }
        self.tell_held();
        let before = self.next;
        while !self.paused && self.may_deliver() && self.deliver() {}
        if self.next > before {
            self.report();
            self.fill();
        }
    }

    /// Stops or resumes deliveries, for a program that does not receive.
    pub fn pause(&mut self, on: bool) {
        if self.paused != on {
            self.paused = on;
            self.advance();
        }
    }

    /// Delivers the content of the next place, which stays in the store. False if it is not here.
    pub fn deliver(&mut self) -> bool {
        let Core { slots, next, incoming, actions, delivered, .. } = self;
        let Some(slot) = slots.get(*next) else { return false };
        *next += 1;
        self.slow.clear();
        let (sender, number, first) = (slot.sender, slot.number, *delivered);
        let whole = incoming.unpack(sender, &slot.data, |bytes| {
            actions.push_back(Action::Deliver { from: sender, place: *delivered, bytes });
            *delivered += 1;
        });
        if !whole {
            weft::telling::error!("rank {sender} has sent a malformed slot in an ordered group");
            self.dropped += 1;
        }
        if sender == self.me {
            self.delivered_own(number, first);
        }
        true
    }

    fn delivered_own(&mut self, number: u64, mut place: u64) {
        let Some(ends) = self.own.front().filter(|own| own.number == number).map(|own| own.ends)
        else {
            return;
        };
        self.own.pop_front();
        for _ in 0..ends {
            if let Some(token) = self.outgoing.pop() {
                self.actions.push_back(Action::Done { token, place });
            }
            place += 1;
        }
    }

    /// Tells the keeper what this member has delivered, now and then.
    fn report(&mut self) {
        if self.next - self.reported < self.window / 4 {
            return;
        }
        self.report_now();
    }

    pub fn report_now(&mut self) {
        self.reported = self.next;
        let (view, next, keeper) = (self.view, self.next, self.keeper());
        match keeper == self.me {
            true => self.note_next(keeper, next),
            false => self.post(keeper, Control::Ack { view, next }),
        }
    }

    /// Notes what a member has delivered, at the keeper.
    pub fn note_next(&mut self, rank: u32, next: u64) {
        let known = self.next_of.entry(rank).or_default();
        *known = (*known).max(next);
        let all = self.members.iter().map(|member| self.next_of.get(member).copied().unwrap_or(0));
        let stable = all.min().unwrap_or(0);
        if stable >= self.stable + (self.window / 8).max(1) {
            self.cast(cast::STABLE, 8, |to| to.extend_from_slice(&stable.to_le_bytes()));
            self.set_stable(stable);
        }
    }

    fn set_stable(&mut self, stable: u64) {
        if stable <= self.stable || stable > self.next {
            return;
        }
        self.stable = stable;
        self.slots.forget_below(stable);
        while self.place < stable + self.window {
            let Some(slot) = self.backlog.pop_front() else { break };
            let rest = std::mem::take(&mut self.backlog);
            self.place(slot);
            self.backlog = rest;
        }
        self.tell_places();
        self.send_own();
        self.advance();
    }

    /// Returns the slots of this member's store from a place on, but for those that are known.
    pub fn slots_from(&self, from: u64, known: &[u64]) -> Vec<Placed> {
        let all = self.slots.range(from..u64::MAX).filter(|(place, _)| !known.contains(place));
        all.map(|(place, slot)| (place, slot.clone())).collect()
    }

    /// Ends this member; all its messages on their way are lost.
    pub fn end(&mut self, error: OrderError) {
        if self.ended.is_some() {
            return;
        }
        if error != OrderError::Left {
            // Others must not wait for this member.
            let gone = self.last_word();
            for to in self.heirs() {
                self.post(to, Control::Gone(gone.clone()));
            }
        }
        self.ended = Some(error.clone());
        self.actions.push_back(Action::Watch { ranks: Vec::new() });
        self.actions.push_back(Action::End { error });
    }
}
