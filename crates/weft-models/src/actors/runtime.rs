//! The objects of a rank, and the messages between them and those of other ranks.

use super::entry::Entry;
use super::loads::{Balanced, Reported};
use super::queue::{Item, Queue, Work};
use super::store::Ran;
use super::turn::{Action, Sink};
use super::wire::{kind, Broken, Content, Found, Head, Note};
use super::{ActorCause, ActorError, Index};
use crate::channel::{on_failure, receiver, Channel, MESSAGE_MAX};
use crate::jobs::Quiescence;
use crate::net::Net;
use crate::{park, HANDLERS};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};
use std::task::Waker;
use weft_core::Instant;

/// The handlers of messages, and of waves that look for the end of a run.
const MESSAGES: u16 = HANDLERS + 64;
const WAVES: u16 = HANDLERS + 65;

/// A message of a run that this rank has not begun: sender, kind, bytes.
type Early = (usize, u8, Vec<u8>);

/// The run of this rank.
#[derive(Default)]
pub(super) struct Run {
    /// The number of the run, or of the next one.
    pub number: Cell<u8>,
    pub is_on: Cell<bool>,
    /// True while this rank waits for messages, which then have their turns at once.
    pub is_idle: Cell<bool>,
    /// Turns so far.
    pub turns: Cell<u64>,
    /// A rank for which too much waits.
    pub full: Cell<Option<usize>>,
    pub early: RefCell<VecDeque<Early>>,
    /// Actions that wait for the end of a turn, or for time to pass.
    pub after: RefCell<VecDeque<Action>>,
    pub failure: RefCell<Option<ActorError>>,
    wakers: RefCell<Vec<Waker>>,
}

/// The things that rank 0 collects from all ranks.
#[derive(Default)]
pub(super) struct Collected {
    pub loads: RefCell<Vec<Reported>>,
    /// The last balance, on all ranks.
    pub balanced: Cell<Balanced>,
    pub saved: RefCell<BTreeMap<(u16, u32), Vec<u8>>>,
    /// The end of the last checkpoint, on all ranks.
    pub checkpoint: RefCell<Option<Option<String>>>,
}

pub(super) struct Inner<N: Net> {
    pub net: N,
    pub channel: Channel<N>,
    pub quiescence: Quiescence<N>,
    pub arrays: RefCell<BTreeMap<u16, Rc<Entry>>>,
    pub queue: RefCell<Queue>,
    pub run: Run,
    pub collected: Collected,
    pub measures: Cell<bool>,
    spare: RefCell<Vec<u8>>,
}

/// The objects of a job that messages drive, at this rank. Clones are the same.
pub struct Actors<N: Net> {
    pub(super) inner: Rc<Inner<N>>,
}

impl<N: Net> Clone for Actors<N> {
    fn clone(&self) -> Actors<N> {
        Actors { inner: Rc::clone(&self.inner) }
    }
}

impl<N: Net> Actors<N> {
    /// Opens the objects of all ranks, which call this; messages that came before have waited.
    ///
    /// # Panics
    /// This rank has objects: drop all handles of them first.
    pub fn open(net: &N) -> Actors<N> {
        let inner = Rc::new_cyclic(|weak: &Weak<Inner<N>>| {
            let receive =
                receiver(weak, |inner, from, kind, bytes| inner.receive(from, kind, bytes));
            Inner {
                net: net.clone(),
                channel: Channel::open_again(
                    net,
                    (MESSAGES, "objects that messages drive"),
                    receive,
                ),
                quiescence: Quiescence::with_handler(net, WAVES),
                arrays: RefCell::default(),
                queue: RefCell::default(),
                run: Run::default(),
                collected: Collected::default(),
                measures: Cell::new(false),
                spare: RefCell::default(),
            }
        });
        on_failure(net, &inner, |inner, failure| {
            // One that has left may have done so after the end of the run, which is still on its
            // way to this rank: the wave that waits for it finds out.
            if !inner.net.has_left(failure.rank) {
                inner.end_with(ActorError::failed(failure));
            }
        });
        Actors { inner }
    }

    /// Begins or ends the counting of loads and messages, by which objects are balanced.
    pub fn measure(&self, is_wanted: bool) {
        self.inner.measures.set(is_wanted);
    }

    /// Returns the packet interface below.
    pub fn net(&self) -> &N {
        &self.inner.net
    }

    /// Returns the number of turns that objects of this rank have had.
    pub fn turns(&self) -> u64 {
        self.inner.run.turns.get()
    }
}

impl<N: Net> Inner<N> {
    pub fn entry(&self, array: u16) -> Option<Rc<Entry>> {
        self.arrays.borrow().get(&array).cloned()
    }

    /// Returns the rank at which an object is, as far as this rank knows.
    pub fn route(&self, array: u16, element: u32) -> usize {
        let arrays = self.arrays.borrow();
        let of = |entry: &Rc<Entry>| entry.rank_of(element, self.net.size());
        arrays.get(&array).map_or(self.net.rank(), of)
    }

    /// Returns an array that a message of another rank names; a missing one ends the run.
    fn named(&self, array: u16, from: usize) -> Option<Rc<Entry>> {
        let entry = self.entry(array);
        if entry.is_none() {
            let text = format!("rank {from} sends to array {array}, which this rank has not made");
            self.fault(None, text);
        }
        entry
    }

    pub fn wake(&self) {
        if !self.run.wakers.borrow().is_empty() {
            self.run.wakers.take().into_iter().for_each(Waker::wake);
        }
    }

    pub fn park(&self, waker: &Waker) {
        park(&mut self.run.wakers.borrow_mut(), waker);
    }

    /// Ends the run of this rank.
    pub fn end_with(&self, error: ActorError) {
        self.run.failure.borrow_mut().get_or_insert(error);
        self.wake();
    }

    /// Ends the runs of all ranks by a fault of an object, or of this rank.
    pub fn fault(&self, object: Option<(u16, u32)>, text: String) {
        self.broken(object, false, text);
    }

    fn broken(&self, object: Option<(u16, u32)>, panicked: bool, text: String) {
        if self.run.failure.borrow().is_some() {
            return;
        }
        let named = |(array, element)| {
            let entry = self.entry(array)?;
            Some((entry.store.name().to_string(), entry.shape.index(element)))
        };
        let rank = self.net.rank() as u32;
        let broken = Broken { rank, object: object.and_then(named), panicked, text };
        if let Ok(bytes) = postcard::to_allocvec(&broken) {
            for to in (0..self.net.size()).filter(|to| *to != self.net.rank()) {
                // A rank that has failed needs no notice.
                _ = self.channel.post(to, kind::BROKEN, &[&bytes]);
            }
        }
        self.end_with(error_of(broken));
    }

    /// Sends a counted message about something less frequent than a message for an object.
    pub fn note(&self, to: usize, note: &Note<'_>) {
        self.quiescence.sent(1);
        match postcard::to_extend(note, vec![self.run.number.get()]) {
            Ok(bytes) => self.post_whole(to, kind::NOTE, &bytes),
            Err(why) => self.fault(None, format!("a message has no bytes: {why}")),
        }
    }

    fn post_whole(&self, to: usize, kind: u8, bytes: &[u8]) {
        if bytes.len() > MESSAGE_MAX {
            let len = bytes.len();
            return self
                .fault(None, format!("a message of {len} bytes is longer than {MESSAGE_MAX}"));
        }
        if let Err(failure) = self.channel.post(to, kind, &[bytes]) {
            return self.end_with(ActorError::failed(failure));
        }
        if self.channel.is_full(to) {
            self.run.full.set(Some(to));
        }
    }

    fn receive(self: &Rc<Self>, from: usize, kind: u8, bytes: &[u8]) {
        match kind {
            kind::BROKEN => {
                if let Ok(broken) = postcard::from_bytes(bytes) {
                    self.end_with(error_of(broken));
                }
            }
            kind::FOUND => {
                if let Ok(found) = postcard::from_bytes(bytes) {
                    self.found(found);
                }
            }
            _ if !self.run.is_on.get() || bytes.first() != Some(&self.run.number.get()) => {
                self.run.early.borrow_mut().push_back((from, kind, bytes.to_vec()));
            }
            _ => self.take(from, kind, bytes),
        }
    }

    /// Takes a message of this run.
    pub fn take(&self, from: usize, kind: u8, bytes: &[u8]) {
        self.quiescence.received(1);
        match kind {
            kind::MESSAGE => self.take_message(from, bytes),
            kind::NOTE => match postcard::from_bytes(bytes.get(1..).unwrap_or_default()) {
                Ok(note) => self.take_note(from, note),
                Err(why) => self.fault(None, format!("a message of rank {from}: {why}")),
            },
            other => self.fault(None, format!("a message of rank {from} is of kind {other}")),
        }
        self.drain();
        // Also after a turn at once: a wait whose messages come spins for the next one.
        self.wake();
    }

    /// True if the program of this rank has something to do in its run.
    pub fn has_work(&self) -> bool {
        let run = &self.run;
        let waits = !self.queue.borrow().is_empty() || !run.after.borrow().is_empty();
        waits || run.full.get().is_some() || run.failure.borrow().is_some()
    }

    fn take_message(&self, from: usize, bytes: &[u8]) {
        let Some((head, rest)) = Head::split(bytes) else {
            return self.fault(None, format!("a message of rank {from} has no head"));
        };
        let Head { array, element, .. } = head;
        if self.run.is_idle.get() && !self.has_work() {
            let Some(entry) = self.named(array, from) else { return };
            if let Some(ran) = entry.store.run_bytes(element, rest, self) {
                self.run.turns.set(self.run.turns.get() + 1);
                return self.ran((array, element, 0), ran, &entry);
            }
        }
        let work = Work::Bytes(rest.to_vec());
        let origin = Some(from as u32);
        self.queue.borrow_mut().push(Item { array, element, priority: 0, origin, work });
    }

    fn take_note(&self, from: usize, note: Note<'_>) {
        match note {
            Note::Message { array, element, priority, origin, content, bytes } => {
                let work = work_of(content, bytes.into());
                let item = Item { array, element, priority, origin, work };
                self.queue.borrow_mut().push(item);
            }
            Note::Broadcast { array, section, priority, bytes } => {
                self.cast(array, section, priority, (Content::Message, bytes));
            }
            Note::Cast { array, number, section, priority, content, bytes } => {
                let Some(entry) = self.named(array, from) else { return };
                self.take_cast(&entry, array, (number, section, priority), (content, bytes));
            }
            Note::Partial { array, section, round, count, value } => {
                let Some(entry) = self.named(array, from) else { return };
                self.take_partial(&entry, (array, section, round), count, value);
            }
            Note::Move(packed) => {
                let Some(entry) = self.named(packed.array, from) else { return };
                self.arrive(&entry, from, &packed);
            }
            Note::Moved { array, element, moves, heard } => {
                let Some(entry) = self.named(array, from) else { return };
                self.settle(&entry, array, (element, moves), heard);
            }
            Note::Loads(loads) => self.collected.loads.borrow_mut().extend(loads),
            Note::Plan(moves, before, after) => self.take_plan(&moves, (before, after)),
            Note::Saved(objects) => self.take_saved(from, objects),
            Note::Checkpoint(end) => drop(self.collected.checkpoint.replace(Some(end))),
        }
    }

    /// Does an item of the queue.
    pub fn execute(&self, item: Item) {
        let Item { array, element, priority, origin, work } = item;
        let Some(entry) = self.named(array, self.net.rank()) else { return };
        self.run.turns.set(self.run.turns.get() + 1);
        match entry.store.run(element, work, self) {
            Ran::Absent(work) => {
                self.forward(&entry, Item { array, element, priority, origin, work })
            }
            ran => self.ran((array, element, priority), ran, &entry),
        }
        self.drain();
    }

    /// Notes the end of a turn.
    fn ran(&self, (array, element, _): (u16, u32, i32), ran: Ran, _: &Entry) {
        match ran {
            Ran::Done | Ran::Absent(_) => {}
            Ran::Panicked(text) => self.broken(Some((array, element)), true, text),
            Ran::Unreadable(text) => self.fault(Some((array, element)), text),
        }
    }

    /// Sends a message after its object.
    fn forward(&self, entry: &Entry, item: Item) {
        let Item { array, element, priority, origin, work } = item;
        let rank = self.route(array, element);
        if rank == self.net.rank() {
            return self.fault(Some((array, element)), "the object is lost".to_string());
        }
        let (content, bytes) = match work {
            Work::Own(message) => match entry.store.encode(&*message) {
                Ok(bytes) => (Content::Message, bytes),
                Err(text) => return self.fault(Some((array, element)), text),
            },
            Work::Bytes(bytes) => (Content::Message, bytes),
            Work::Shared(bytes) => (Content::Message, bytes.to_vec()),
            Work::Reduced(section, bytes) => (Content::Reduced(section), bytes.to_vec()),
        };
        if let Some(origin) = origin.filter(|origin| *origin as usize != self.net.rank()) {
            self.tell_place(origin as usize, entry, array, element);
        }
        let bytes = &bytes[..];
        self.note(rank, &Note::Message { array, element, priority, origin, content, bytes });
    }

    /// Tells a rank where an object is, as far as this rank knows.
    pub fn tell_place(&self, to: usize, entry: &Entry, array: u16, element: u32) {
        let place = entry.places.borrow().get(&element).copied();
        let Some((rank, moves)) = place else { return };
        let found = Found { array, element, rank, moves };
        if let (Ok(bytes), true) = (postcard::to_allocvec(&found), to != self.net.rank()) {
            // A rank that has failed needs no notice.
            _ = self.channel.post(to, kind::FOUND, &[&bytes]);
        }
    }

    /// Does what waits for the end of a turn, up to time that has to pass.
    pub fn drain(&self) {
        loop {
            let next = {
                let mut after = self.run.after.borrow_mut();
                match after.front() {
                    None | Some(Action::Pass { .. }) => return,
                    Some(_) => after.pop_front(),
                }
            };
            if let Some(action) = next {
                self.perform(action);
            }
        }
    }

    /// Does an action outside a turn.
    pub fn perform(&self, action: Action) {
        match action {
            Action::Message { array, element, priority, message } => {
                let rank = self.route(array, element);
                let work = Work::Own(message);
                let item = Item { array, element, priority, origin: None, work };
                if rank == self.net.rank() {
                    self.queue.borrow_mut().push(item);
                } else if let Some(entry) = self.entry(array) {
                    self.send(&entry, rank, item);
                }
            }
            Action::Broadcast { array, section, priority, bytes } => {
                self.cast(array, section, priority, (Content::Message, &bytes));
            }
            Action::Contribute { array, section, round, value } => {
                if let Some(entry) = self.entry(array) {
                    self.contribute(&entry, (array, section, round), value);
                }
            }
            Action::Move { array, element, to } => {
                if let Some(entry) = self.entry(array) {
                    self.depart(&entry, array, element, to);
                }
            }
            Action::Fault { array, element, text } => self.fault(Some((array, element)), text),
            Action::Pass { .. } => {}
        }
    }

    /// Sends a message of this rank to the rank of its object.
    fn send(&self, entry: &Entry, rank: usize, item: Item) {
        let Item { array, element, priority, work, .. } = item;
        let Work::Own(message) = work else { return };
        let bytes = match entry.store.encode(&*message) {
            Ok(bytes) => bytes,
            Err(text) => return self.fault(Some((array, element)), text),
        };
        if priority == 0 {
            let head = self.head(array, element).to_bytes();
            return self.post(rank, &[&head[..], &bytes].concat());
        }
        let (content, bytes, origin) = (Content::Message, &bytes[..], None);
        self.note(rank, &Note::Message { array, element, priority, origin, content, bytes });
    }
}

/// Returns the work of a content.
pub(super) fn work_of(content: Content, bytes: Rc<[u8]>) -> Work {
    match content {
        Content::Message => Work::Shared(bytes),
        Content::Reduced(section) => Work::Reduced(section, bytes),
    }
}

fn error_of(broken: Broken) -> ActorError {
    let cause = match broken.panicked {
        true => ActorCause::Panicked(broken.text),
        false => ActorCause::Fault(broken.text),
    };
    ActorError { rank: broken.rank as usize, object: broken.object, cause }
}

impl<N: Net> Sink for Inner<N> {
    fn rank(&self) -> usize {
        self.net.rank()
    }

    fn ranks(&self) -> usize {
        self.net.size()
    }

    fn now(&self) -> Instant {
        self.net.now()
    }

    fn find(&self, array: u16, index: Index) -> Result<(u32, usize), String> {
        let arrays = self.arrays.borrow();
        let none = || format!("it sends to array {array}, which this rank has not made");
        let entry = arrays.get(&array).ok_or_else(none)?;
        let shape = entry.shape;
        let none = || format!("it sends to index {index} of an array of shape {shape}");
        let element = shape.number(index).ok_or_else(none)?;
        Ok((element, entry.rank_of(element, self.net.size())))
    }

    fn head(&self, array: u16, element: u32) -> Head {
        Head { run: self.run.number.get(), array, element }
    }

    fn is_direct(&self) -> bool {
        self.run.after.borrow().is_empty()
    }

    fn time_is_virtual(&self) -> bool {
        self.net.time_is_virtual()
    }

    fn measures(&self) -> bool {
        self.measures.get()
    }

    fn post(&self, to: usize, whole: &[u8]) {
        self.quiescence.sent(1);
        self.post_whole(to, kind::MESSAGE, whole);
    }

    fn take_spare(&self) -> Vec<u8> {
        self.spare.take()
    }

    fn set_spare(&self, mut memory: Vec<u8>) {
        if memory.capacity() <= 1 << 16 {
            memory.clear();
            self.spare.replace(memory);
        }
    }

    /// Does an action at once that touches no object, unless others wait; the others after the
    /// turn.
    fn act(&self, action: Action) {
        match action {
            Action::Message { .. } if self.is_direct() => self.perform(action),
            _ => self.run.after.borrow_mut().push_back(action),
        }
    }
}
