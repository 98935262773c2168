//! The state of one member, without I/O: submitting, placing and delivering slots in a view.

mod aside;
mod change;
mod keeping;
mod lives;
mod own;
mod safe;
mod store;
mod waits;

use super::pack::Message;
use super::wire::{cast, put_view, Control, Reader, Slot, ViewId, HEAD};
use super::{Options, OrderError, Style};
use crate::channel::MESSAGE_MAX;
use aside::{Earlies, Early, Loose};
use change::Change;
use keeping::Keeping;
use own::Owned;
use safe::Safe;
use std::collections::VecDeque;
use store::{Store, Taken};
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

/// The waits of a member for others.
#[derive(Default)]
pub(super) struct Patience {
    pub wait: Wait,
    /// Ranks that hold up the message that is awaited.
    pub slow: Vec<u32>,
    /// True while the program waits for messages of others.
    pub expects: bool,
    /// The time of the last message or check.
    pub now: Instant,
}

pub(super) struct Core {
    pub me: u32,
    style: Style,
    /// Slots that may be on their way beyond those that all have delivered.
    window: u64,
    pub actions: VecDeque<Action>,
    pub view: ViewId,
    pub members: Vec<u32>,
    pub store: Store,
    keeping: Keeping,
    pub own: Owned,
    loose: Loose,
    pub change: Change,
    early: Earlies,
    pub patience: Patience,
    pub ended: Option<OrderError>,
    safe: Safe,
}

impl Core {
    pub fn new(me: u32, members: Vec<u32>, options: Options) -> Core {
        Core {
            me,
            style: options.style,
            window: u64::from(options.window).max(4),
            actions: VecDeque::new(),
            view: ViewId::default(),
            members,
            store: Store::default(),
            keeping: Keeping::default(),
            own: Owned::default(),
            loose: Loose::default(),
            change: Change::default(),
            early: Earlies::default(),
            patience: Patience::default(),
            ended: None,
            safe: Safe::new(options.safe),
        }
    }

    fn post(&mut self, to: u32, control: Control) {
        self.actions.push_back(Action::Post { to, control });
    }

    /// Sends a control to all other members.
    fn post_all(&mut self, control: &Control) {
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
    fn keeper(&self) -> u32 {
        self.members.first().copied().unwrap_or(self.me)
    }

    /// True if slots may be sent and delivered.
    pub fn is_open(&self) -> bool {
        self.own.room.is_some() && !self.change.is_frozen() && self.ended.is_none()
    }

    /// Takes a message of the program.
    pub fn submit(&mut self, token: u64, bytes: Vec<u8>) {
        self.own.outgoing.push(Message { token, bytes });
        self.fill();
    }

    /// Sends a message without order to the other members. False if there is no view now.
    pub fn submit_loose(&mut self, bytes: &[u8]) -> bool {
        let Some(room) = self.own.room.filter(|_| self.is_open()) else { return false };
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
    fn fill(&mut self) {
        // A slot that is delivered at once lets the next ones go: a loop, not a recursion.
        if self.own.filling {
            return;
        }
        self.own.filling = true;
        while self.is_open() && self.fill_some() {}
        self.own.filling = false;
    }

    /// True if slots were handed in, so that there may be room for more.
    fn fill_some(&mut self) -> bool {
        let most = (self.window / 2) as usize;
        if self.style == Style::Ticket {
            if self.own.asking {
                return false;
            }
            let Some((at, key)) = self.own.counter else {
                self.end(OrderError::NoCounter);
                return false;
            };
            // Where ranks share processors, the counter's rank has its turn seldom: much goes then.
            let batch = BATCH.max(most / 2);
            let count = self.own.pack(most.saturating_sub(self.own.len()).min(batch));
            if count > 0 {
                self.own.asking = true;
                let view = self.view;
                self.actions.push_back(Action::Ask { view, at, key, count });
            }
            return false;
        }
        let first = self.own.len();
        let count = self.own.pack(most.saturating_sub(first));
        for at in first..self.own.len() {
            self.hand_in(at);
        }
        self.tell_places();
        self.advance();
        count > 0
    }

    /// Gives a slot of this member to the sequencer.
    fn hand_in(&mut self, at: usize) {
        let Some((number, data)) = self.own.hand_in(at) else { return };
        let (me, keeper, view) = (self.me, self.keeper(), self.view);
        if self.style == Style::Broadcast {
            self.cast(cast::DATA, data.len(), |to| {
                to.extend_from_slice(&number.to_le_bytes());
                to.extend_from_slice(&data);
            });
            self.store.unplaced.keep(me, number, data.clone());
        }
        if keeper == me {
            self.place(Slot { sender: me, number, data });
        } else if self.style == Style::Sequencer {
            self.post(keeper, Control::Submit { view, number, data });
        }
    }

    /// Gives the next place to a slot, at the sequencer, once the window lets it go.
    fn place(&mut self, slot: Slot) {
        self.keeping.add(slot);
        self.place_waiting();
    }

    fn place_waiting(&mut self) {
        while let Some((place, slot)) = self.keeping.next_placed(self.store.stable + self.window) {
            if self.style == Style::Broadcast {
                self.keeping.tell(slot.sender, slot.number);
                self.store.unplaced.forget(slot.sender, slot.number);
            } else {
                self.cast_slot(place, &slot);
            }
            self.store.slots.insert(place, slot);
        }
    }

    /// Casts the places that were given, so that members know the order of data that they have.
    fn tell_places(&mut self) {
        let (first, untold) = self.keeping.take_untold();
        let each = (self.own.room.unwrap_or(0) / 12).max(1);
        for (at, some) in untold.chunks(each).enumerate() {
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
        if view != self.view || !self.is_open() || !self.own.asking {
            // The places belong to nobody, and the view ends before them.
            return;
        }
        let base = self.store.base + first;
        self.own.take_places(base..base + count);
        self.send_own();
    }

    /// Lets this member ask for its next ticket, after that of a view has come.
    pub fn may_ask(&mut self, view: ViewId) {
        if view == self.view {
            self.own.asking = false;
            self.fill();
        }
    }

    /// Sends the slots that have a place within the window.
    fn send_own(&mut self) {
        if !self.is_open() || self.style != Style::Ticket || self.own.holds_back {
            return;
        }
        let end = self.store.stable + self.window;
        for at in 0..self.own.len() {
            let Some((place, slot)) = self.own.placed(at, self.me, end) else { continue };
            self.cast_slot(place, &slot);
            self.store.slots.insert(place, slot);
        }
        self.advance();
    }

    pub fn hold_back(&mut self, on: bool) {
        self.own.holds_back = on;
        self.send_own();
    }

    /// Handles a cast of a member.
    pub fn handle_cast(&mut self, from: u32, kind: u8, bytes: &[u8]) {
        let mut reader = Reader(bytes);
        let Some(view) = reader.view().filter(|_| self.ended.is_none()) else { return };
        if view != self.view || self.own.room.is_none() {
            if self.is_early(view) {
                self.early.keep(Early::Cast(from, kind, bytes.to_vec()), self.window);
            }
            return;
        }
        if kind == cast::LOOSE {
            let whole = self.loose.take(from, reader);
            self.actions.extend(whole.map(|bytes| Action::Loose { from, bytes }));
            return;
        }
        // The state that this member has told the author of a change must not grow.
        if self.change.is_frozen() {
            return;
        }
        // One that came twice, or makes no sense, is dropped.
        _ = match kind {
            cast::SLOT => self.on_slot(from, reader),
            cast::DATA => self.on_data(from, reader),
            cast::ACCEPT => self.on_accept(from, reader),
            cast::STABLE => reader.u64().map(|stable| self.set_stable(stable)),
            _ => None,
        };
        self.advance();
    }

    /// True for a view that this member may come to have.
    fn is_early(&self, view: ViewId) -> bool {
        view == self.view || view.epoch > self.view.epoch.max(self.change.joining.refused)
    }

    fn on_slot(&mut self, from: u32, mut reader: Reader<'_>) -> Option<()> {
        let (place, sender, number) = (reader.u64()?, reader.u32()?, reader.u64()?);
        let may_send = if self.style == Style::Ticket { sender } else { self.keeper() };
        self.store.fits(place, self.window).filter(|()| from == may_send)?;
        let data = reader.0.to_vec();
        self.store.slots.insert_new(place, Slot { sender, number, data });
        Some(())
    }

    fn on_data(&mut self, sender: u32, mut reader: Reader<'_>) -> Option<()> {
        let number = reader.u64()?;
        let data = reader.0.to_vec();
        if self.keeper() == self.me {
            self.place(Slot { sender, number, data });
            self.tell_places();
            return Some(());
        }
        // Places go as far as the window, and each member has half of one beyond.
        let most = (self.members.len() as u64 + 1) * self.window;
        let slot = Slot { sender, number, data };
        if let Some((place, slot)) = self.store.unplaced.take_data(slot, most) {
            self.store.slots.insert(place, slot);
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
            self.store.fits(place, self.window)?;
            if let Some(slot) = self.store.unplaced.take_place(place, sender, number) {
                self.store.slots.insert(place, slot);
            }
        }
        Some(())
    }

    /// Delivers all slots that are next.
    fn advance(&mut self) {
        if !self.is_open() {
            return;
        }
        self.tell_held();
        let before = self.store.next;
        while !self.store.paused && self.may_deliver() && self.deliver() {}
        if self.store.next > before {
            self.report();
            self.fill();
        }
    }

    /// Stops or resumes deliveries, for a program that does not receive.
    pub fn pause(&mut self, on: bool) {
        if self.store.paused != on {
            self.store.paused = on;
            self.advance();
        }
    }

    /// Delivers the content of the next place, which stays in the store. False if it is not here.
    fn deliver(&mut self) -> bool {
        let Core { store, actions, .. } = self;
        let taken = store.deliver(|from, place, bytes| {
            actions.push_back(Action::Deliver { from, place, bytes });
        });
        let Some(Taken { sender, number, first, is_whole }) = taken else { return false };
        self.patience.slow.clear();
        if !is_whole {
            weft::telling::error!("rank {sender} has sent a malformed slot in an ordered group");
        }
        if sender == self.me {
            self.delivered_own(number, first);
        }
        true
    }

    fn delivered_own(&mut self, number: u64, first: u64) {
        for place in (first..).take(self.own.delivered(number)) {
            if let Some(token) = self.own.outgoing.pop() {
                self.actions.push_back(Action::Done { token, place });
            }
        }
    }

    /// Tells the keeper what this member has delivered, now and then.
    fn report(&mut self) {
        if self.store.is_report_due(self.window) {
            self.report_now();
        }
    }

    fn report_now(&mut self) {
        let (view, next, keeper) = (self.view, self.store.report(), self.keeper());
        match keeper == self.me {
            true => self.note_next(keeper, next),
            false => self.post(keeper, Control::Ack { view, next }),
        }
    }

    /// Notes what a member has delivered, at the keeper.
    fn note_next(&mut self, rank: u32, next: u64) {
        let stable = self.keeping.note(rank, next, &self.members);
        if stable >= self.store.stable + (self.window / 8).max(1) {
            self.cast(cast::STABLE, 8, |to| to.extend_from_slice(&stable.to_le_bytes()));
            self.set_stable(stable);
        }
    }

    fn set_stable(&mut self, stable: u64) {
        if !self.store.set_stable(stable) {
            return;
        }
        self.place_waiting();
        self.tell_places();
        self.send_own();
        self.advance();
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
