//! An ordered group over a net: it does what the core wants.

mod casts;
mod rounds;

use super::core::{Action, Core};
use super::grave::{answer_for_dead, Grave};
use super::sent::{Sent, State, Waiters};
use super::wire::{Control, ViewId, HEAD};
use super::{Delivered, Options, OrderError, Style, View};
use crate::channel::{on_failure, was_opened, Channel, Pauses, MESSAGE_MAX};
use crate::net::{Incoming, Net, RankFailure, Unsent};
use crate::{park, HANDLERS};
use casts::Casts;
use rounds::{retry, tick};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use weft::telling;
use weft_core::Instant;
use weft_packets::Counter;

/// Number of groups that a rank may be a member of.
pub(crate) const GROUPS: u16 = 8;
/// Handlers of group 0: its controls, then its casts.
const FIRST: u16 = HANDLERS + 1;
/// The first multicast group; each ordered group has 256, one for each view in turn. After those
/// they come again, with another generation.
const CASTS: u16 = 0xf000;
/// Messages that a program sends within this time of each other go together.
const BURST: Duration = Duration::from_micros(10);
/// Interval of checks during waits.
const TICK: Duration = Duration::from_millis(10);
/// Bytes and number of messages on their way from which on a sender has to wait.
const OUTGOING_BYTES: usize = 1 << 20;
const OUTGOING: usize = 1 << 16;
/// Bytes and number of messages that the program has not received, from which on no more come.
const INBOX_BYTES: usize = 16 << 20;
const INBOX: usize = 1 << 16;
/// Packets without order that may wait for room.
const CASTS_MAX: usize = 1 << 12;
/// Longest packet in a group of one member, which sends none.
const ALONE: usize = 64 << 10;
/// The kind of messages of the channel.
pub(super) const CONTROL: u8 = 1;

type Call<T> = Rc<RefCell<dyn FnMut(T)>>;
type TakeState = Rc<RefCell<dyn FnMut() -> Vec<u8>>>;

/// The program's side.
struct Program<N: Net> {
    deliver: Option<Call<Delivered>>,
    loose: Option<Call<(usize, Vec<u8>)>>,
    views: Option<Call<View>>,
    snapshot: Option<TakeState>,
    restore: Option<Call<Vec<u8>>>,
    /// Messages that no call has taken, and their bytes.
    inbox: VecDeque<Delivered>,
    inbox_bytes: usize,
    view: Option<View>,
    /// Messages on their way.
    sent: Waiters,
    /// Futures that wait for a message, a view, room or the end.
    wakers: Vec<Waker>,
    /// The wait that the program has declared.
    expects: Option<Expecting<N>>,
}

impl<N: Net> Default for Program<N> {
    fn default() -> Program<N> {
        Program {
            deliver: None,
            loose: None,
            views: None,
            snapshot: None,
            restore: None,
            inbox: VecDeque::new(),
            inbox_bytes: 0,
            view: None,
            sent: Waiters::default(),
            wakers: Vec::new(),
            expects: None,
        }
    }
}

pub(super) struct Inner<N: Net> {
    net: N,
    number: u16,
    channel: Channel<N>,
    grave: Rc<RefCell<Option<Grave>>>,
    core: RefCell<Core>,
    casts: Casts<N>,
    program: RefCell<Program<N>>,
    watched: RefCell<Vec<u32>>,
    /// Counters made here: the one in use, and the next.
    counters: RefCell<Vec<Counter>>,
    /// The time of the last ticket that came at once.
    asked: Cell<Instant>,
    /// Number of waits for messages of others.
    expecting: Cell<usize>,
    retrying: Cell<bool>,
    ticking: Cell<bool>,
    pumping: Cell<bool>,
}

/// A member's handle of an ordered group. Clones are the same; dropping the last one is a failure
/// of this member for the others, unless it has left.
#[derive(Clone)]
pub struct OrderedGroup<N: Net> {
    inner: Rc<Inner<N>>,
}

impl<N: Net> OrderedGroup<N> {
    /// Opens a group of some ranks, this one among them. All of them call this with the same
    /// arguments; the first view is there when all have. `number` (0 to 7) tells groups apart.
    ///
    /// # Panics
    /// The number is too large, or this rank is not among the members; or this rank has opened or
    /// joined a group of the number before, of which late messages would reach this one.
    pub fn open(net: &N, number: u16, members: &[usize], options: Options) -> OrderedGroup<N> {
        let mut ranks: Vec<u32> = members.iter().map(|&rank| rank as u32).collect();
        ranks.sort_unstable();
        ranks.dedup();
        assert!(members.contains(&net.rank()), "rank {} is no member: join", net.rank());
        let was_opened = was_opened(net, FIRST + 2 * number);
        assert!(!was_opened, "ordered group {number} was opened before: join, or take another");
        let group = OrderedGroup::make(net, number, ranks, options);
        group.inner.with(Core::form);
        group
    }

    /// Joins a group that has been opened, by way of any of the ranks `contacts`. The first view is
    /// there when the members have let this rank in. `restore` gets the state that a member has
    /// taken for this rank ([`on_snapshot`](Self::on_snapshot)), before the first message.
    ///
    /// # Panics
    /// The number is too large, or this rank has a handle of the group.
    pub fn join(
        net: &N,
        number: u16,
        contacts: &[usize],
        options: Options,
        restore: impl FnMut(Vec<u8>) + 'static,
    ) -> OrderedGroup<N> {
        let group = OrderedGroup::make(net, number, Vec::new(), options);
        was_opened(net, FIRST + 2 * number);
        group.inner.program.borrow_mut().restore = Some(Rc::new(RefCell::new(restore)));
        let contacts = contacts.iter().map(|&rank| rank as u32);
        let contacts = contacts.filter(|&rank| rank as usize != net.rank()).collect();
        group.inner.with(|core| core.join(group.inner.channel.number(), contacts));
        group
    }

    fn make(net: &N, number: u16, members: Vec<u32>, options: Options) -> OrderedGroup<N> {
        assert!(number < GROUPS, "ordered groups have numbers below {GROUPS}");
        let me = net.rank() as u32;
        let core = Core::new(me, members.clone(), options);
        let grave = Rc::default();
        let after = answer_for_dead(net, FIRST + 2 * number, &grave);
        let inner = Rc::new_cyclic(|weak: &Weak<Inner<N>>| {
            let receiver = Weak::clone(weak);
            let receive = move |from: usize, _: u8, bytes: &[u8]| {
                if let Some(inner) = receiver.upgrade() {
                    inner.control(from, bytes);
                }
            };
            Inner {
                net: net.clone(),
                number,
                channel: Channel::open_with_end(
                    net,
                    (FIRST + 2 * number, &format!("messages of ordered group {number}")),
                    Rc::new(receive),
                    after,
                ),
                grave,
                core: RefCell::new(core),
                casts: Casts::default(),
                program: RefCell::default(),
                watched: RefCell::default(),
                counters: RefCell::default(),
                asked: Cell::default(),
                expecting: Cell::new(0),
                retrying: Cell::new(false),
                ticking: Cell::new(false),
                pumping: Cell::new(false),
            }
        });
        if options.style == Style::Ticket {
            inner.make_counter();
        }
        let weak = Rc::downgrade(&inner);
        net.handle(FIRST + 2 * number + 1, move |packet: Incoming<'_>| {
            if let Some(inner) = weak.upgrade() {
                let (from, kind) = (packet.from as u32, packet.argument as u8);
                inner.with(|core| core.handle_cast(from, kind, packet.data));
            }
        });
        on_failure(net, &inner, |inner, failure| inner.failed(&failure));
        // Failures before this were told to nobody.
        for failure in members.iter().filter_map(|&rank| net.failure(rank as usize)) {
            inner.failed(&failure);
        }
        OrderedGroup { inner }
    }

    /// Returns the packet interface below.
    pub fn net(&self) -> &N {
        &self.inner.net
    }

    /// Sends a message to all members, this one included. It is on its way when this returns, also
    /// if the result is dropped, which is the message's place once it has been delivered here.
    pub fn send(&self, bytes: impl Into<Vec<u8>>) -> Sent<N> {
        let inner = &self.inner;
        let bytes = bytes.into();
        let too_long = (bytes.len() > MESSAGE_MAX).then_some(OrderError::TooLong);
        let busy = (!self.has_room()).then_some(OrderError::Busy);
        let refused = inner.core.borrow().ended.clone().or(too_long).or(busy);
        if let Some(error) = refused {
            return Sent { inner: Rc::clone(inner), state: State::Refused(error) };
        }
        let token = inner.program.borrow_mut().sent.push();
        let Some(token) = token else {
            return Sent { inner: Rc::clone(inner), state: State::Refused(OrderError::Busy) };
        };
        inner.with(|core| core.submit(token, bytes));
        Sent { inner: Rc::clone(inner), state: State::Sent(token) }
    }

    /// Waits until there is room for more messages of this member.
    ///
    /// # Errors
    /// This member's part has ended.
    pub async fn room(&self) -> Result<(), OrderError> {
        self.until(|inner| {
            let core = inner.core.borrow();
            let bytes = core.own.outgoing.bytes();
            (bytes < OUTGOING_BYTES / 2 && core.own.outgoing.len() < OUTGOING / 2).then_some(())
        })
        .await
    }

    /// Sends a message to all other members without a place in the order. A member that is reached
    /// gets the messages of one sender in the order in which they were sent; if a member fails,
    /// some members may miss some of them.
    ///
    /// # Errors
    /// There is no view now, too many packets wait for room, or this member's part has ended.
    pub fn cast(&self, bytes: &[u8]) -> Result<(), OrderError> {
        if let Some(error) = self.inner.core.borrow().ended.clone() {
            return Err(error);
        }
        if bytes.len() > MESSAGE_MAX {
            return Err(OrderError::TooLong);
        }
        if self.inner.casts.len() >= CASTS_MAX {
            return Err(OrderError::Busy);
        }
        match self.inner.with(|core| core.submit_loose(bytes)) {
            true => Ok(()),
            false => Err(OrderError::NoView),
        }
    }

    /// Calls `call` with each message from now on, in place of [`recv`](Self::recv), and first with
    /// those that nobody has received. It is called inside progress, and must not wait.
    pub fn on_deliver(&self, call: impl FnMut(Delivered) + 'static) {
        let call: Call<Delivered> = Rc::new(RefCell::new(call));
        let waiting = {
            let mut program = self.inner.program.borrow_mut();
            program.deliver = Some(Rc::clone(&call));
            program.inbox_bytes = 0;
            std::mem::take(&mut program.inbox)
        };
        waiting.into_iter().for_each(|message| (call.borrow_mut())(message));
        self.inner.with(|core| core.pause(false));
    }

    /// Calls `call` with sender and bytes of each message without order. Before this call they are
    /// dropped.
    pub fn on_cast(&self, call: impl FnMut((usize, Vec<u8>)) + 'static) {
        self.inner.program.borrow_mut().loose = Some(Rc::new(RefCell::new(call)));
    }

    /// Calls `call` with each view from now on, between the last message of the view before and the
    /// first of the new one.
    pub fn on_view(&self, call: impl FnMut(View) + 'static) {
        self.inner.program.borrow_mut().views = Some(Rc::new(RefCell::new(call)));
    }

    /// Calls `call` for the state that new members begin with: all that the messages delivered so
    /// far have led to. Any member may be asked. Use it with [`on_deliver`](Self::on_deliver): a
    /// program that receives has not seen all that is delivered.
    pub fn on_snapshot(&self, call: impl FnMut() -> Vec<u8> + 'static) {
        self.inner.program.borrow_mut().snapshot = Some(Rc::new(RefCell::new(call)));
    }

    /// Receives the next message.
    ///
    /// # Errors
    /// This member's part has ended, and all its messages have been received.
    pub async fn recv(&self) -> Result<Delivered, OrderError> {
        self.until(|inner| {
            let mut program = inner.program.borrow_mut();
            let message = program.inbox.pop_front()?;
            program.inbox_bytes -= message.bytes.len();
            let is_low = program.inbox.len() < INBOX / 2 && program.inbox_bytes < INBOX_BYTES / 2;
            drop(program);
            if is_low && inner.core.borrow().store.paused {
                inner.with(|core| core.pause(false));
            }
            Some(message)
        })
        .await
    }

    /// Waits for a view that is as wanted, and returns it.
    ///
    /// # Errors
    /// This member's part has ended.
    pub async fn view_when(&self, is_wanted: impl Fn(&View) -> bool) -> Result<View, OrderError> {
        self.until(|inner| inner.program.borrow().view.clone().filter(&is_wanted)).await
    }

    /// Returns the view; `None` before the first.
    pub fn view(&self) -> Option<View> {
        self.inner.program.borrow().view.clone()
    }

    /// Leaves the group: after this member's messages, at the same place for all others.
    ///
    /// # Errors
    /// This member's part has ended in another way.
    pub async fn leave(&self) -> Result<(), OrderError> {
        self.until(|inner| inner.core.borrow().own.outgoing.is_empty().then_some(())).await?;
        self.inner.with(Core::leave);
        match self.until(|_| None::<()>).await {
            Err(OrderError::Left) => Ok(()),
            other => other,
        }
    }

    /// Returns the ranks that hold up a message that has been awaited for long.
    pub fn slow(&self) -> Vec<usize> {
        self.inner.core.borrow().patience.slow.iter().map(|&rank| rank as usize).collect()
    }

    /// Describes the state of this member in a line, for people.
    pub fn describe(&self) -> String {
        self.inner.core.borrow().describe()
    }

    /// Returns the reason why this member's part has ended, if it has.
    pub fn ended(&self) -> Option<OrderError> {
        self.inner.core.borrow().ended.clone()
    }

    /// Notices the silence of members until the result is dropped.
    pub(crate) fn expecting(&self) -> Expecting<N> {
        self.inner.expecting.set(self.inner.expecting.get() + 1);
        self.inner.with(|core| core.expect(true));
        Expecting(Rc::downgrade(&self.inner))
    }

    /// Wakes a future when this member's part ends, and now and then before.
    pub(crate) fn wake_at_end(&self, waker: &Waker) {
        park(&mut self.inner.program.borrow_mut().wakers, waker);
    }

    /// True if another message of this member would be taken.
    pub(crate) fn has_room(&self) -> bool {
        let core = self.inner.core.borrow();
        core.own.outgoing.bytes() < OUTGOING_BYTES && core.own.outgoing.len() < OUTGOING
    }

    /// Keeps the packets whose places this member has fetched, or sends them again, for tests.
    #[doc(hidden)]
    pub fn hold_back(&self, on: bool) {
        self.inner.with(|core| core.hold_back(on));
    }

    /// Declares that the program waits for messages of other members, or waits no more. While it
    /// waits, the silence of members is noticed. [`recv`](Self::recv) and the other calls that wait
    /// do this by themselves; a program with [`on_deliver`](Self::on_deliver) has to say so.
    pub fn expect(&self, on: bool) {
        let held = on.then(|| self.expecting());
        let before = self.inner.program.borrow_mut().expects.take();
        drop(before);
        self.inner.program.borrow_mut().expects = held;
    }

    /// Waits for a result that a change of this member brings.
    async fn until<T>(&self, find: impl Fn(&Rc<Inner<N>>) -> Option<T>) -> Result<T, OrderError> {
        poll_fn(|cx| self.inner.poll_attend(cx)).await;
        if let Some(found) = find(&self.inner) {
            return Ok(found);
        }
        let before = self.expecting();
        let result = poll_fn(|cx| {
            if let Some(found) = find(&self.inner) {
                return Poll::Ready(Ok(found));
            }
            if let Some(error) = self.inner.core.borrow().ended.clone() {
                return Poll::Ready(Err(error));
            }
            park(&mut self.inner.program.borrow_mut().wakers, cx.waker());
            Poll::Pending
        })
        .await;
        drop(before);
        result
    }
}

impl<N: Net> Inner<N> {
    /// Changes the core, and does what it wants then.
    fn with<R>(self: &Rc<Self>, change: impl FnOnce(&mut Core) -> R) -> R {
        let result = change(&mut self.core.borrow_mut());
        self.pump();
        result
    }

    fn pump(self: &Rc<Self>) {
        if self.pumping.replace(true) {
            // The call that is under way goes on with what was added.
            return;
        }
        let end = Pumped(&self.pumping);
        loop {
            let action = self.core.borrow_mut().actions.pop_front();
            let Some(action) = action else { break };
            self.act(action);
        }
        drop(end);
        let waits = self.core.borrow().waits();
        if waits && !self.ticking.replace(true) {
            self.net.spawn(tick(Rc::downgrade(self), self.net.clone()));
        }
    }

    fn act(self: &Rc<Self>, action: Action) {
        match action {
            Action::Post { to, control } => self.post(to, &control),
            Action::Cast { kind, bytes } => {
                self.casts.push(kind, bytes);
                if !self.send_casts() && !self.retrying.replace(true) {
                    self.net.spawn(retry(Rc::downgrade(self), self.net.clone()));
                }
            }
            Action::Ask { view, at, key, count } => self.ask(view, at, key, count),
            Action::Deliver { from, place, bytes } => {
                self.deliver(Delivered { from: from as usize, place, bytes });
            }
            Action::Loose { from, bytes } => {
                let call = self.program.borrow().loose.clone();
                if let Some(call) = call {
                    (call.borrow_mut())((from as usize, bytes));
                }
            }
            Action::Done { token, place } => self.done(token, place),
            Action::View { view, members, joined, left } => {
                self.open_view(view, &members, &joined, &left);
            }
            Action::MakeCounter => self.make_counter(),
            Action::TakeSnapshot => {
                let call = self.program.borrow().snapshot.clone();
                let snapshot = call.map(|call| (call.borrow_mut())()).unwrap_or_default();
                self.core.borrow_mut().snapshot_taken(&snapshot);
            }
            Action::Restore { snapshot } => {
                let call = self.program.borrow().restore.clone();
                if let Some(call) = call {
                    (call.borrow_mut())(snapshot);
                }
            }
            Action::Watch { ranks } => self.watch(ranks),
            Action::Say { text } => telling::warn!("{text}"),
            Action::End { error } => self.end(&error),
        }
    }

    fn post(self: &Rc<Self>, to: u32, control: &Control) {
        let Ok(bytes) = postcard::to_allocvec(control) else { return };
        if let Err(failure) = self.channel.post(to as usize, CONTROL, &[&bytes]) {
            self.core.borrow_mut().lose(to, failure.certain);
        }
    }

    fn control(self: &Rc<Self>, from: usize, bytes: &[u8]) {
        match Control::read(bytes, self.net.size()) {
            Ok(control) => {
                let now = self.net.now();
                self.with(|core| {
                    core.patience.now = now;
                    core.handle(from as u32, control);
                });
            }
            Err(why) => telling::error!("rank {from} sent nonsense to an ordered group: {why}"),
        }
    }

    fn failed(self: &Rc<Self>, failure: &RankFailure) {
        self.with(|core| core.lose(failure.rank as u32, failure.certain));
    }

    /// Sends casts as far as there is room. True if none is left.
    fn send_casts(&self) -> bool {
        loop {
            let handler = FIRST + 2 * self.number + 1;
            let Some(sent) = self.casts.send_next(&self.net, handler) else { return true };
            match sent {
                Ok(()) => {}
                Err(Unsent::Busy) => return false,
                Err(Unsent::Failed(failure)) => {
                    // The next view has what this one leaves behind.
                    self.casts.clear();
                    let rank = failure.rank as u32;
                    self.core.borrow_mut().lose(rank, failure.certain);
                }
                Err(error) => {
                    telling::error!("a packet of an ordered group is not sent: {error}");
                    self.core.borrow_mut().end(OrderError::Broken);
                    self.casts.clear();
                }
            }
        }
    }

    fn ask(self: &Rc<Self>, view: ViewId, at: u32, key: u64, count: u64) {
        if let Some(first) = self.net.add_at_once(at as usize, Counter { key }, count) {
            return self.ticket_at_once(view, first, count);
        }
        let (weak, net) = (Rc::downgrade(self), self.net.clone());
        let asked = net.fetch_add(at as usize, Counter { key }, count);
        self.net.spawn(async move {
            let first = match asked.await {
                Ok(first) => first,
                Err(_) => {
                    // The view changes if the rank has failed; if its counter has ended, too.
                    net.sleep(TICK).await;
                    let Some(inner) = weak.upgrade() else { return };
                    if inner.core.borrow().view == view && net.failure(at as usize).is_none() {
                        inner.ask(view, at, key, count);
                    }
                    return;
                }
            };
            if let Some(inner) = weak.upgrade() {
                inner.with(|core| core.ticket(view, first, count));
                inner.with(|core| core.may_ask(view));
            }
        });
    }

    /// Takes a ticket that needed no message. If the one before came a moment ago, what the program
    /// sends before its next wait goes together.
    fn ticket_at_once(self: &Rc<Self>, view: ViewId, first: u64, count: u64) {
        self.core.borrow_mut().ticket(view, first, count);
        let now = self.net.now();
        if now.since(self.asked.replace(now)) > BURST {
            return self.core.borrow_mut().may_ask(view);
        }
        let (weak, next_round) = (Rc::downgrade(self), self.net.yield_now());
        self.net.spawn(async move {
            next_round.await;
            if let Some(inner) = weak.upgrade() {
                inner.with(|core| core.may_ask(view));
            }
        });
    }

    fn make_counter(&self) {
        let counter = self.net.counter(0);
        let mut counters = self.counters.borrow_mut();
        // The one of the view before the last is not asked any more.
        if counters.len() > 1 {
            self.net.end_counter(counters.remove(0));
        }
        counters.extend(counter);
        self.core.borrow_mut().counter_made(counter.map(|counter| counter.key));
    }

    fn deliver(&self, message: Delivered) {
        let call = self.program.borrow().deliver.clone();
        match call {
            Some(call) => (call.borrow_mut())(message),
            None => {
                let mut program = self.program.borrow_mut();
                program.inbox_bytes += message.bytes.len();
                program.inbox.push_back(message);
                let full = program.inbox.len() >= INBOX || program.inbox_bytes >= INBOX_BYTES;
                drop(program);
                self.core.borrow_mut().store.paused |= full;
                self.wake();
            }
        }
    }

    fn done(&self, token: u64, place: u64) {
        // Nobody waits for a message whose future was dropped.
        let waker = self.program.borrow_mut().sent.get_mut(token).and_then(|waiter| {
            waiter.place = Some(place);
            waiter.waker.take()
        });
        waker.into_iter().for_each(Waker::wake);
        if self.core.borrow().own.outgoing.bytes() < OUTGOING_BYTES / 2 {
            self.wake();
        }
    }

    /// See [`Net::poll_attend`].
    pub(super) fn poll_attend(&self, cx: &Context<'_>) -> Poll<()> {
        self.net.poll_attend(cx)
    }

    /// Returns the result of a message, which is over then, or keeps the waker.
    pub(super) fn poll_sent(&self, token: u64, waker: &Waker) -> Option<Result<u64, OrderError>> {
        let mut program = self.program.borrow_mut();
        let waiter = program.sent.get_mut(token).expect("it is there until it is over");
        let ended = || self.core.borrow().ended.clone();
        let result = waiter.place.map(Ok).or_else(|| ended().map(Err));
        match result {
            Some(_) => program.sent.remove(token),
            None => waiter.waker = Some(waker.clone()),
        }
        result
    }

    /// Forgets a message that nobody waits for.
    pub(super) fn forget_sent(&self, token: u64) {
        self.program.borrow_mut().sent.remove(token);
    }

    fn open_view(&self, id: ViewId, members: &[u32], joined: &[u32], left: &[u32]) {
        self.casts.clear();
        let all = |ranks: &[u32]| ranks.iter().map(|&rank| rank as usize).collect::<Vec<_>>();
        let (group, room) = match members.len() {
            0 | 1 => (None, ALONE),
            _ => {
                let [low, generation, ..] = id.epoch.to_le_bytes();
                let number = CASTS | self.number << 8 | u16::from(low);
                let group = self.net.group(number, generation, &all(members));
                self.casts.keep(&self.net, group.as_ref());
                let room = group.as_ref().map_or(0, |group| self.net.group_max(group));
                (group, room)
            }
        };
        if room <= HEAD + super::pack::ROOM_MIN {
            return self.core.borrow_mut().end(OrderError::NoMulticast);
        }
        self.casts.send_to(group);
        let (joined, left) = (all(joined), all(left));
        let view = View { number: id.epoch, members: all(members), joined, left };
        let call = {
            let mut program = self.program.borrow_mut();
            program.view = Some(view.clone());
            program.views.clone()
        };
        if let Some(call) = call {
            (call.borrow_mut())(view);
        }
        self.core.borrow_mut().opened(id, room - HEAD);
        self.wake();
    }

    fn watch(&self, ranks: Vec<u32>) {
        let before = self.watched.take();
        for &rank in before.iter().filter(|rank| !ranks.contains(rank)) {
            self.net.unexpect(rank as usize);
        }
        let mut now = Vec::new();
        for rank in ranks {
            if before.contains(&rank) || self.net.expect(rank as usize) {
                now.push(rank);
            } else if let Some(failure) = self.net.failure(rank as usize) {
                self.core.borrow_mut().lose(rank, failure.certain);
            }
        }
        self.watched.replace(now);
    }

    fn end(&self, error: &OrderError) {
        if *error != OrderError::Left {
            telling::warn!("rank {}: {error}", self.net.rank());
        }
        self.casts.clear();
        self.wake();
        let waiting: Vec<Waker> = { self.program.borrow_mut().sent.take_wakers() };
        waiting.into_iter().for_each(Waker::wake);
    }

    fn wake(&self) {
        let wakers = std::mem::take(&mut self.program.borrow_mut().wakers);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A wait for messages of others.
pub(crate) struct Expecting<N: Net>(Weak<Inner<N>>);

impl<N: Net> Drop for Expecting<N> {
    fn drop(&mut self) {
        let Some(inner) = self.0.upgrade() else { return };
        inner.expecting.set(inner.expecting.get() - 1);
        if inner.expecting.get() == 0 {
            inner.with(|core| core.expect(false));
        }
    }
}

/// Ends a run of actions when dropped, also after a panic of the program.
struct Pumped<'a>(&'a Cell<bool>);

impl Drop for Pumped<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl<N: Net> Drop for Inner<N> {
    fn drop(&mut self) {
        let core = self.core.get_mut();
        for &rank in self.watched.get_mut().iter() {
            self.net.unexpect(rank as usize);
        }
        self.grave.replace(Some(Grave::new(core)));
        self.casts.end(&self.net);
        for counter in self.counters.get_mut().drain(..) {
            self.net.end_counter(counter);
        }
        let gone = Control::Gone(core.last_word());
        if let (None, Ok(bytes)) = (&core.ended, postcard::to_allocvec(&gone)) {
            for rank in core.heirs() {
                // A rank that has failed needs no notice.
                _ = self.channel.post(rank as usize, CONTROL, &[&bytes]);
            }
        }
    }
}
