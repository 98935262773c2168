//! The objects of a rank, and what the order of the group does to them.

use super::adapt::Better;
use super::class::is_known;
use super::directory::Directory;
use super::entry::{Blocked, Entry, Executed, Replica, Where};
use super::posts::Posts;
use super::strange::{Kept, Strange};
use super::wire::{note_message, parse, Note, Ordered, METHOD};
use super::{ObjectCause, ObjectId, Placement, BYTES_MAX};
use crate::net::Net;
use crate::order::{Delivered, Options, OrderError, OrderedGroup, View};
use crate::rpc::{Request, Rpc};
use crate::{park, HANDLERS};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};

/// The ordered group and the handler of calls that objects use.
const GROUP: u16 = 7;
const CALLS: u16 = HANDLERS + 17;

type Make = Rc<dyn Fn() -> Rc<dyn Replica>>;

#[derive(Clone)]
struct Known {
    name: &'static str,
    version: u32,
    make: Make,
}

/// The end of an operation that this rank has sent in the order.
#[derive(Clone, Debug)]
pub(super) enum Ended {
    Done(Vec<u8>),
    /// The object is elsewhere: look again.
    Moved,
    Failed(ObjectCause),
}

/// An operation of this rank in the order.
#[derive(Default)]
pub(super) struct Running {
    pub end: Option<Ended>,
    pub waker: Option<Waker>,
    /// True if nobody waits for it.
    pub posted: bool,
}

/// A call, its arguments, and the number of messages that have to be processed before it.
type Later<N> = (u64, Request<N>, Vec<u8>);

pub(super) struct Inner<N: Net> {
    pub net: N,
    pub order: OrderedGroup<N>,
    pub rpc: Rpc<N>,
    classes: RefCell<BTreeMap<u32, Known>>,
    pub directory: Directory<N>,
    /// Objects of classes that this rank has not registered yet.
    pub strange: RefCell<Strange<N>>,
    /// Messages of the order that this rank has processed.
    pub stamp: Cell<u64>,
    pub running: RefCell<BTreeMap<u64, Running>>,
    serial: Cell<u64>,
    objects: Cell<u64>,
    pub posts: Posts<N>,
    members: RefCell<Vec<usize>>,
    /// Calls that wait until so many messages are processed.
    pub later: RefCell<Vec<Later<N>>>,
    wakers: RefCell<Vec<Waker>>,
    /// Memory for the bytes of an operation, or of a result.
    pub spare: RefCell<Vec<u8>>,
}

/// The shared objects of a job, at this rank. Clones are the same.
#[derive(Clone)]
pub struct Objects<N: Net> {
    pub(super) inner: Rc<Inner<N>>,
}

impl<N: Net> Objects<N> {
    /// Opens the objects of all ranks of a net; all of them call this, once in a job.
    pub fn open(net: &N) -> Objects<N> {
        Objects::with_options(net, Options::default())
    }

    /// Does what [`open`](Objects::open) does, with options of the ordered group below.
    pub fn with_options(net: &N, options: Options) -> Objects<N> {
        let all: Vec<usize> = (0..net.size()).collect();
        let order = OrderedGroup::open(net, GROUP, &all, options);
        let inner = Rc::new(Inner {
            net: net.clone(),
            order,
            rpc: Rpc::with_handler(net, CALLS),
            classes: RefCell::default(),
            directory: Directory::default(),
            strange: RefCell::default(),
            stamp: Cell::new(0),
            running: RefCell::default(),
            serial: Cell::new(0),
            objects: Cell::new(0),
            posts: Posts::default(),
            members: RefCell::default(),
            later: RefCell::default(),
            wakers: RefCell::default(),
            spare: RefCell::default(),
        });
        let weak = Rc::downgrade(&inner);
        inner.order.on_deliver(move |message| {
            if let Some(inner) = weak.upgrade() {
                inner.delivered(message);
            }
        });
        let weak = Rc::downgrade(&inner);
        inner.order.on_view(move |view| {
            if let Some(inner) = weak.upgrade() {
                inner.viewed(&view);
            }
        });
        if let Some(view) = inner.order.view() {
            inner.viewed(&view);
        }
        let weak = Rc::downgrade(&inner);
        inner.rpc.serve(METHOD, move |request, args| {
            if let Some(inner) = weak.upgrade() {
                inner.called(request, args);
            }
        });
        net.spawn(end_with_group(Rc::downgrade(&inner)));
        Objects { inner }
    }

    /// Returns the packet interface below.
    pub fn net(&self) -> &N {
        &self.inner.net
    }

    /// Returns the ordered group below: its members, and what holds it up.
    pub fn group(&self) -> &OrderedGroup<N> {
        &self.inner.order
    }

    /// Waits until the operations that this rank has posted are done.
    ///
    /// # Errors
    /// This rank's part in the group has ended.
    pub async fn flush(&self) -> Result<(), OrderError> {
        self.inner.settled().await
    }
}

impl<N: Net> Inner<N> {
    pub fn register(self: &Rc<Self>, number: u32, name: &'static str, version: u32, make: Make) {
        self.classes.borrow_mut().insert(number, Known { name, version, make });
        let mut calls = Vec::new();
        let kept = self.strange.borrow_mut().take(number);
        for kept in kept {
            match kept {
                Kept::Message(message) => self.handle(&message),
                Kept::Call(request, args) => calls.push((request, args)),
            }
        }
        let wanted = calls.into_iter().filter(|(request, _)| !request.is_cancelled());
        wanted.for_each(|(request, args)| self.called(request, &args));
        self.wake();
    }

    /// Keeps something for a class that is not registered here, while there is room.
    pub fn keep(&self, class: u32, kept: Kept<N>) {
        let dropped = self.strange.borrow_mut().keep(class, kept);
        let Some((class, calls)) = dropped else { return };
        let rank = self.net.rank();
        weft::telling::error!(
            "rank {rank} has not registered class {class} of objects, about which too many \
             messages have come: they are dropped"
        );
        calls.into_iter().for_each(|request| self.refuse_strange(request));
    }

    /// Refuses a call about an object that this rank does not know, though others do.
    pub fn refuse_strange(&self, request: Request<N>) {
        request.refuse("this rank has not registered the class of the object");
    }

    /// Refuses a call of a rank that is in the group no more. Nobody else may know what it has done
    /// before.
    pub fn refuse_excluded(&self, request: Request<N>) {
        request.refuse("the group of all ranks goes on without the caller, which was out of reach");
    }

    pub fn new_number(&self) -> u64 {
        self.objects.set(self.objects.get() + 1);
        (self.net.rank() as u64) << 40 | self.objects.get()
    }

    /// Waits until an object is known or refused here, or this is the lowest rank, which makes it:
    /// then true. The lowest rank may leave or fail before it does so; an object that it has made
    /// is known before the others see that it is gone.
    pub async fn has_to_make(&self, class: u32, object: u64) -> Result<bool, ObjectCause> {
        self.until(|| {
            let ends = self.directory.is_decided(object) || self.strange.borrow().is_dropped(class);
            let is_lowest = self.members.borrow().first() == Some(&self.net.rank());
            (ends || is_lowest).then_some(!ends)
        })
        .await
        .map_err(ObjectCause::Group)
    }

    /// Waits until an object is known here.
    pub async fn find(&self, class: u32, id: ObjectId) -> Result<Rc<Entry<N>>, ObjectCause> {
        self.until(|| {
            if let Some(entry) = self.directory.get(id.number) {
                return Some(Ok(entry));
            }
            if let Some(len) = self.directory.take_refused(id.number) {
                return Some(Err(ObjectCause::TooLong { len }));
            }
            let strange = self.strange.borrow();
            if strange.is_dropped(class) {
                return Some(Err(ObjectCause::Late { class }));
            }
            let is_late = id.after > 0 && self.stamp.get() >= id.after;
            let is_late = is_late || self.directory.is_deleted(id.number);
            (is_late && strange.class_of(id.number).is_none()).then_some(Err(ObjectCause::NoObject))
        })
        .await
        .map_err(ObjectCause::Group)?
    }

    /// Waits until this rank has processed so many messages of the order, as `rank` has.
    pub async fn reach(&self, stamp: u64, rank: usize) -> Result<(), ObjectCause> {
        if self.stamp.get() >= stamp {
            return Ok(());
        }
        let found = self.until(|| match self.members.borrow().contains(&rank) {
            _ if self.stamp.get() >= stamp => Some(Ok(())),
            true => None,
            false => Some(Err(ObjectCause::Lost { rank })),
        });
        found.await.map_err(ObjectCause::Group)?
    }

    /// Waits until this rank's posts are done.
    pub async fn settled(&self) -> Result<(), OrderError> {
        if self.posts.are_done() {
            return Ok(());
        }
        self.until(|| self.posts.are_done().then_some(())).await
    }

    /// Waits for a result that a message of the order, or the end of a post, brings.
    pub async fn until<T>(&self, find: impl Fn() -> Option<T>) -> Result<T, OrderError> {
        let _expecting = self.order.expecting();
        poll_fn(|cx| {
            if let Some(found) = find() {
                return Poll::Ready(Ok(found));
            }
            if let Some(error) = self.order.ended() {
                return Poll::Ready(Err(error));
            }
            self.park(cx.waker());
            Poll::Pending
        })
        .await
    }

    /// Wakes a future at the next message of the order, and at the end of this rank's part.
    pub fn park(&self, waker: &Waker) {
        park(&mut self.wakers.borrow_mut(), waker);
        self.order.wake_at_end(waker);
    }

    /// True if a rank is in the group, as far as this one knows.
    pub fn is_member(&self, rank: usize) -> bool {
        let members = self.members.borrow();
        members.is_empty() || members.contains(&rank)
    }

    pub fn wake(&self) {
        let wakers = self.wakers.take();
        wakers.into_iter().for_each(Waker::wake);
    }

    fn delivered(self: &Rc<Self>, message: Delivered) {
        self.handle(&message);
        self.stamp.set(message.place + 1);
        let due = {
            let mut later = self.later.borrow_mut();
            if later.is_empty() {
                Vec::new()
            } else {
                let all = std::mem::take(&mut *later);
                let (due, rest) = all.into_iter().partition(|(at, ..)| *at <= self.stamp.get());
                *later = rest;
                due
            }
        };
        due.into_iter().for_each(|(_, request, args)| self.do_called(request, &args));
        self.wake();
    }

    fn handle(self: &Rc<Self>, message: &Delivered) {
        let from = message.from;
        let Some(ordered) = parse(&message.bytes) else {
            return weft::telling::error!("rank {from} sent nonsense to the objects of all ranks");
        };
        let number = match &ordered {
            Ordered::Op { object, .. } => *object,
            Ordered::Note(Note::Create { object, class, version, placement, state }) => {
                if !self.classes.borrow().contains_key(class) {
                    self.strange.borrow_mut().add(*object, *class);
                    return self.keep(*class, Kept::Message(message.clone()));
                }
                self.strange.borrow_mut().remove(*object);
                return self.create(*object, *class, (from, *version), *placement, state);
            }
            Ordered::Note(Note::TooLong { object, len }) => {
                let len = usize::try_from(*len).unwrap_or(usize::MAX);
                self.directory.refuse(*object, len);
                return;
            }
            Ordered::Note(
                Note::Cancel { object, .. }
                | Note::Replicate { object, .. }
                | Note::Reads { object, .. }
                | Note::Take { object }
                | Note::Delete { object },
            ) => *object,
        };
        let entry = self.directory.get(number);
        let Some(entry) = entry else {
            let class = self.strange.borrow().class_of(number);
            match (class, ordered) {
                (Some(class), _) => self.keep(class, Kept::Message(message.clone())),
                (None, Ordered::Op { serial, .. }) if from == self.net.rank() => {
                    self.ended(serial, Ended::Failed(ObjectCause::NoObject));
                }
                _ => {}
            }
            return;
        };
        match ordered {
            Ordered::Op { serial, reads, op, .. } => {
                self.ordered_op(&entry, from, serial, reads, op);
            }
            Ordered::Note(Note::Cancel { serial, .. }) => {
                entry.blocked.borrow_mut().retain(|blocked| {
                    let Blocked::Ordered { from: of, serial: number, .. } = blocked else {
                        return true;
                    };
                    (*of, *number) != (from, serial)
                });
            }
            Ordered::Note(Note::Replicate { state, .. }) => self.replicate(&entry, from, &state),
            Ordered::Note(Note::Reads { reads, .. }) => self.adapt(&entry, from, reads, 0),
            Ordered::Note(Note::Take { .. }) => self.take(&entry, from),
            Ordered::Note(Note::Delete { .. }) => self.delete(&entry),
            Ordered::Note(Note::Create { .. } | Note::TooLong { .. }) => {}
        }
    }

    fn create(
        &self,
        object: u64,
        class: u32,
        (from, version): (usize, u32),
        placement: Placement,
        state: &[u8],
    ) {
        let known = self.classes.borrow().get(&class).cloned();
        let (Some(known), false) = (known, self.directory.contains(object)) else {
            return;
        };
        let replica = (known.make)();
        let (place, adaptive) = match placement {
            Placement::Replicated => (Where::Everywhere, false),
            Placement::At(rank) => (Where::At(rank), false),
            Placement::Adaptive => (Where::Everywhere, true),
        };
        let mut broken = None;
        if version != known.version {
            let cause = ObjectCause::Version { here: known.version, there: version, rank: from };
            broken = Some(cause);
        } else if place == Where::Everywhere || place == Where::At(self.net.rank()) {
            broken = replica.load(state).err().map(ObjectCause::Unreadable);
        }
        let is_gone = |rank: usize| !self.members.borrow().contains(&rank);
        let place = match place {
            Where::At(rank) if is_gone(rank) => Where::Lost(rank),
            other => other,
        };
        let entry = Entry {
            number: object,
            name: known.name,
            adaptive,
            place: Cell::new(place),
            replica,
            blocked: RefCell::default(),
            version: Cell::new(0),
            wakers: RefCell::default(),
            uses: RefCell::default(),
            reads: Cell::new(0),
            taking: Cell::new(false),
            broken: RefCell::new(broken),
        };
        self.directory.insert(entry);
    }

    /// Deletes an object at its place in the order: its memory is free, and operations on it fail.
    fn delete(&self, entry: &Rc<Entry<N>>) {
        self.directory.delete(entry.number, is_known(entry.number));
        entry.broken.replace(Some(ObjectCause::NoObject));
        entry.replica.clear();
        for blocked in entry.blocked.take() {
            match blocked {
                Blocked::Ordered { from, serial, .. } if from == self.net.rank() => {
                    self.ended(serial, Ended::Failed(ObjectCause::NoObject));
                }
                Blocked::Ordered { .. } => {}
                Blocked::Called { request, .. } => self.refuse_deleted(request),
            }
        }
        entry.wake();
    }

    /// Does an operation at its place in the order.
    fn ordered_op(
        self: &Rc<Self>,
        entry: &Rc<Entry<N>>,
        from: usize,
        serial: u64,
        reads: u32,
        op: &[u8],
    ) {
        let mine = from == self.net.rank();
        let end = match entry.place.get() {
            _ if entry.broken.borrow().is_some() => {
                let cause = entry.broken.borrow().clone();
                cause.map(Ended::Failed)
            }
            Where::Everywhere => match entry.replica.execute(op, Vec::new()) {
                Executed::Done(reply, changed) => {
                    if changed {
                        self.changed(entry);
                    }
                    Some(Ended::Done(reply))
                }
                Executed::Blocked => {
                    let blocked = Blocked::Ordered { from, serial, op: op.to_vec() };
                    entry.blocked.borrow_mut().push_back(blocked);
                    None
                }
                Executed::Broken(text) => {
                    self.broke(entry, &text);
                    Some(Ended::Failed(ObjectCause::Broken(text)))
                }
                Executed::Panicked(text) => Some(Ended::Failed(ObjectCause::Panicked(text))),
                Executed::Unreadable(why) => Some(Ended::Failed(ObjectCause::Unreadable(why))),
            },
            Where::At(_) | Where::Leaving => Some(Ended::Moved),
            Where::Lost(rank) => Some(Ended::Failed(ObjectCause::Lost { rank })),
        };
        if let (true, Some(end)) = (mine, end) {
            self.ended(serial, end);
        }
        if entry.place.get() == Where::Everywhere {
            self.adapt(entry, from, reads, 1);
        }
    }

    /// Does the operations that wait and may go on after a change, in their order, and wakes the
    /// futures of this rank that wait for a change.
    pub fn changed(self: &Rc<Self>, entry: &Rc<Entry<N>>) {
        entry.forget_given_up();
        let mut at = 0;
        loop {
            let next = {
                let blocked = entry.blocked.borrow();
                blocked.get(at).map(|blocked| match blocked {
                    Blocked::Ordered { op, .. } | Blocked::Called { op, .. } => op.clone(),
                })
            };
            let Some(op) = next else { break };
            let (executed, before) = (entry.replica.execute(&op, Vec::new()), at);
            match &executed {
                Executed::Blocked => at += 1,
                // From the first one again, if the state may be another.
                Executed::Done(_, changed) => at = if *changed { 0 } else { at },
                _ => {}
            }
            if matches!(executed, Executed::Blocked) {
                continue;
            }
            let Some(blocked) = entry.blocked.borrow_mut().remove(before) else { break };
            if let Executed::Broken(text) = &executed {
                self.broke(entry, text);
            }
            self.end_blocked(blocked, executed);
        }
        entry.wake();
    }

    fn end_blocked(&self, blocked: Blocked<N>, executed: Executed) {
        match blocked {
            Blocked::Ordered { from, serial, .. } if from == self.net.rank() => {
                self.ended(
                    serial,
                    match executed {
                        Executed::Done(reply, _) => Ended::Done(reply),
                        Executed::Broken(text) => Ended::Failed(ObjectCause::Broken(text)),
                        Executed::Panicked(text) => Ended::Failed(ObjectCause::Panicked(text)),
                        Executed::Unreadable(why) => Ended::Failed(ObjectCause::Unreadable(why)),
                        Executed::Blocked => Ended::Moved,
                    },
                );
            }
            Blocked::Ordered { .. } => {}
            Blocked::Called { request, .. } => self.answer(request, executed),
        }
    }

    /// Marks an object as broken, and ends all operations that wait for it.
    pub fn broke(&self, entry: &Entry<N>, text: &str) {
        weft::telling::error!(
            "an operation on object {:#x} ({}) panicked: {text}",
            entry.number,
            entry.name
        );
        entry.broken.replace(Some(ObjectCause::Broken(text.to_string())));
        let waiting = entry.blocked.take();
        for blocked in waiting {
            self.end_blocked(blocked, Executed::Broken(text.to_string()));
        }
        entry.wake();
    }

    /// Ends an operation of this rank in the order.
    fn ended(&self, serial: u64, end: Ended) {
        let waker = {
            let mut running = self.running.borrow_mut();
            let Some(op) = running.get_mut(&serial) else { return };
            if !op.posted {
                op.end = Some(end);
                op.waker.take()
            } else {
                running.remove(&serial);
                if let Ended::Failed(cause) = end {
                    weft::telling::error!(
                        "an operation that was posted to an object failed: {cause:?}"
                    );
                }
                self.posts.end_piped();
                None
            }
        };
        waker.into_iter().for_each(Waker::wake);
    }

    pub fn new_serial(&self) -> u64 {
        self.serial.set(self.serial.get() + 1);
        self.serial.get()
    }

    /// Notes accesses to an adaptive object on every rank. If the object is better at this rank,
    /// this rank takes it: one that has failed unseen gets no object that others have.
    fn adapt(self: &Rc<Self>, entry: &Rc<Entry<N>>, from: usize, reads: u32, writes: u32) {
        if !entry.adaptive || entry.place.get() != Where::Everywhere {
            return;
        }
        let ranks = self.members.borrow().len();
        let better = entry.uses.borrow_mut().note(from, reads, writes, ranks);
        let is_mine = better == Some(Better::At(self.net.rank()));
        // Where there is no room, it moves after other accesses.
        if is_mine && self.order.has_room() && !entry.taking.replace(true) {
            drop(self.order.send(note_message(&Note::Take { object: entry.number })));
        }
    }

    /// Moves an object that is on every rank to the one that takes it.
    fn take(self: &Rc<Self>, entry: &Rc<Entry<N>>, rank: usize) {
        let me = self.net.rank();
        if rank == me {
            entry.taking.set(false);
        }
        if !entry.adaptive || entry.place.get() != Where::Everywhere {
            return;
        }
        entry.place.set(Where::At(rank));
        if rank != me {
            entry.replica.clear();
        }
        // Each rank does its own operations that wait at the new place.
        for blocked in entry.blocked.take() {
            self.end_blocked(blocked, Executed::Blocked);
        }
        entry.wake();
    }

    /// Notes an access at the rank that has an adaptive object, and sends it to all if that is
    /// better.
    pub fn adapt_here(&self, entry: &Rc<Entry<N>>, by: usize, changed: bool) {
        if !entry.adaptive || entry.place.get() != Where::At(self.net.rank()) {
            return;
        }
        let ranks = self.members.borrow().len();
        let (reads, writes) = if changed { (0, 1) } else { (1, 0) };
        let better = entry.uses.borrow_mut().note(by, reads, writes, ranks);
        if better != Some(Better::Everywhere) {
            return;
        }
        // Where there is no room, it moves after another access; where its state is too long for a
        // message, it stays.
        let may_go = |state: &Vec<u8>| state.len() <= BYTES_MAX && self.order.has_room();
        let Some(state) = entry.replica.save().filter(may_go) else { return };
        entry.place.set(Where::Leaving);
        let note = Note::Replicate { object: entry.number, state };
        drop(self.order.send(note_message(&note)));
    }

    fn replicate(self: &Rc<Self>, entry: &Rc<Entry<N>>, from: usize, state: &[u8]) {
        let owner = from == self.net.rank();
        let is_due = match entry.place.get() {
            Where::At(rank) => rank == from,
            Where::Leaving => owner,
            _ => false,
        };
        if !is_due {
            return;
        }
        if !owner {
            if let Err(why) = entry.replica.load(state) {
                entry.broken.replace(Some(ObjectCause::Unreadable(why)));
            }
        }
        entry.place.set(Where::Everywhere);
        entry.uses.take();
        for blocked in entry.blocked.take() {
            self.end_blocked(blocked, Executed::Blocked);
        }
        entry.wake();
    }

    /// Forgets members that are gone, at the same place of the order on all ranks.
    fn viewed(self: &Rc<Self>, view: &View) {
        self.members.replace(view.members.clone());
        let lives = |rank: &usize| view.members.contains(rank);
        for entry in self.directory.all() {
            entry.blocked.borrow_mut().retain(|blocked| match blocked {
                Blocked::Ordered { from, .. } => lives(from),
                Blocked::Called { request, .. } => lives(&request.from()),
            });
            entry.uses.borrow_mut().retain(lives);
            if let Where::At(rank) = entry.place.get() {
                if !lives(&rank) {
                    entry.place.set(Where::Lost(rank));
                    entry.wake();
                }
            }
        }
        let (later, gone) =
            self.later.take().into_iter().partition(|(_, request, _)| lives(&request.from()));
        self.later.replace(later);
        let gone: Vec<Later<N>> = gone;
        gone.into_iter().for_each(|(_, request, _)| self.refuse_excluded(request));
        self.wake();
    }

    /// Ends all operations at this rank: the others go on without it, or may do so.
    fn end(&self, error: &OrderError) {
        for entry in self.directory.all() {
            entry.broken.borrow_mut().get_or_insert(ObjectCause::Group(error.clone()));
            let blocked = entry.blocked.take();
            blocked.into_iter().for_each(|blocked| self.refuse_ended(blocked, error));
            entry.wake();
        }
        let later = self.later.take();
        later.into_iter().for_each(|(_, request, _)| refuse_after(request, error));
        self.wake();
    }

    fn refuse_ended(&self, blocked: Blocked<N>, error: &OrderError) {
        if let Blocked::Called { request, .. } = blocked {
            refuse_after(request, error);
        }
    }
}

/// Refuses a call, since this rank's part in the group has ended.
pub(super) fn refuse_after<N: Net>(request: Request<N>, error: &OrderError) {
    request.refuse(&format!("the rank has no part in the objects any more: {error}"));
}

/// Ends the objects of this rank when its part in the group ends.
async fn end_with_group<N: Net>(inner: Weak<Inner<N>>) {
    let error = poll_fn(|cx| {
        let Some(inner) = inner.upgrade() else { return Poll::Ready(None) };
        let ended = inner.order.ended();
        if ended.is_none() {
            inner.order.wake_at_end(cx.waker());
            return Poll::Pending;
        }
        Poll::Ready(ended)
    });
    if let (Some(error), Some(inner)) = (error.await, inner.upgrade()) {
        inner.end(&error);
    }
}
