//! Messages of any length over packets: cut into packets, queued while there is no room, and put
//! together again. The messages of one rank to another arrive once and in order.

use crate::net::{Incoming, Net, RankFailure, Unsent};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Most bytes of the program in a message of a model. A wrong length takes no more memory.
pub const MESSAGE_MAX: usize = 256 << 20;
/// Most bytes of a message, with those that the model puts before the bytes of the program.
const WHOLE_MAX: usize = MESSAGE_MAX + 256;
/// Rounds of progress after each of which a packet that found no room is tried again, and the
/// pause from then on.
const ROUNDS: u32 = 64;
const BUSY: Duration = Duration::from_micros(20);
/// Most bytes of memory for the parts of a message that stay for the next one, or that are taken at
/// once for a length which the first part says.
const KEPT_MAX: usize = 1 << 20;
/// Bytes of queued messages for a rank from which on a program that waits for room waits.
const QUEUED_MAX: usize = 1 << 20;
/// Bits of a packet's argument that count the packets of its message that follow it.
const LEFT_BITS: u32 = 24;

/// Returns the kind of a packet's message, and the number of packets that follow.
fn split(argument: u32) -> (u8, u32) {
    ((argument >> LEFT_BITS) as u8, argument & ((1 << LEFT_BITS) - 1))
}

/// Returns the argument of the only packet of a message.
pub(crate) fn argument_of(kind: u8) -> u32 {
    u32::from(kind) << LEFT_BITS
}

/// The pauses of a sender that finds no room. Room mostly comes with the next packets, so the first
/// pauses last a round of progress each. The others last longer, so that the rank can sleep.
#[derive(Default)]
pub(crate) struct Pauses {
    rounds: u32,
}

impl Pauses {
    /// Waits before the next try. `has_sent` says if something found room in the last one.
    pub async fn pause<N: Net>(&mut self, net: &N, has_sent: bool) {
        if has_sent {
            self.rounds = 0;
        }
        match self.rounds < ROUNDS {
            true => net.yield_now().await,
            false => net.sleep(BUSY).await,
        }
        self.rounds += 1;
    }
}

/// A module's receiver of messages: sender, kind, bytes.
pub(crate) type Receive = Rc<dyn Fn(usize, u8, &[u8])>;

/// Returns a receiver that passes messages to a value as long as it is there.
pub(crate) fn receiver<T: 'static>(
    of: &Weak<T>,
    receive: impl Fn(&Rc<T>, usize, u8, &[u8]) + 'static,
) -> Receive {
    let of = Weak::clone(of);
    Rc::new(move |from, kind, bytes| {
        if let Some(of) = of.upgrade() {
            receive(&of, from, kind, bytes);
        }
    })
}

/// Tells a value of the failures of other ranks as long as it is there.
pub(crate) fn on_failure<T: 'static>(
    net: &impl Net,
    of: &Rc<T>,
    failed: impl Fn(&Rc<T>, RankFailure) + 'static,
) {
    let of = Rc::downgrade(of);
    net.on_failure(move |failure| {
        if let Some(of) = of.upgrade() {
            failed(&of, failure);
        }
    });
}

/// A message on its way out.
struct Parcel {
    kind: u8,
    bytes: Vec<u8>,
    /// Bytes that were sent.
    sent: usize,
}

#[derive(Default)]
struct Queue {
    parcels: VecDeque<Parcel>,
    bytes: usize,
}

/// The packets between the channels of a handler and those of other ranks. It outlives a channel,
/// and the next channel of the handler takes it over: messages that wait for room leave before
/// those of the next channel, and a message whose first packets came before is whole at its end.
#[derive(Default)]
struct Line {
    queues: RefCell<BTreeMap<usize, Queue>>,
    /// The first parts of messages, by sender.
    partial: RefCell<BTreeMap<usize, Vec<u8>>>,
    /// True while a task tries again to send.
    retrying: Cell<bool>,
    /// Memory for the next message that comes in several packets.
    spare: RefCell<Vec<u8>>,
    /// True once the failures of ranks are told to it.
    hears: Cell<bool>,
    /// True while a channel has it.
    is_open: Cell<bool>,
}

/// True once a rank has opened something of a handler.
#[derive(Default)]
struct Opened(Cell<bool>);

/// Notes that a rank opens something of a handler. True if it has done so before.
pub(crate) fn was_opened<N: Net>(net: &N, handler: u16) -> bool {
    net.lasting().of::<Opened>(handler).0.replace(true)
}

pub(crate) struct Channel<N: Net> {
    inner: Rc<Inner<N>>,
}

struct Inner<N: Net> {
    net: N,
    handler: u16,
    line: Rc<Line>,
    /// The number of the setting of the handler.
    setting: Cell<u64>,
    /// True if the drop ends the setting.
    waits: bool,
    /// Messages of this rank to itself.
    own: RefCell<VecDeque<(u8, Vec<u8>)>>,
    /// True while a message is being received: others wait.
    receiving: Cell<bool>,
    /// Memory in which the parts of a message are joined before it leaves.
    joined: RefCell<Vec<u8>>,
    receive: Receive,
}

impl<N: Net> Channel<N> {
    /// Opens the channel of a handler. `receive` must not own the module, which owns the channel.
    /// After the drop, and until the handler is set again, messages go to `after`: sender, kind,
    /// bytes. It must not own the net. The handler goes with the name of its module, for people.
    ///
    /// # Panics
    /// This rank has a channel of the handler.
    pub fn open_with_end(
        net: &N,
        handler: (u16, &str),
        receive: Receive,
        after: impl Fn(usize, u8, &[u8]) + 'static,
    ) -> Channel<N> {
        Channel::make(net, handler, receive, false, move |_, from, kind, bytes| {
            after(from, kind, bytes);
        })
    }

    /// Opens the channel of a handler as [`open_with_end`](Self::open_with_end) does, but after the
    /// drop `reply` gets the kind and the bytes of each message. The message that it returns, kind
    /// and bytes, goes to the sender.
    ///
    /// # Panics
    /// This rank has a channel of the handler.
    pub fn open_with_replies(
        net: &N,
        handler: (u16, &str),
        receive: Receive,
        reply: impl Fn(u8, &[u8]) -> Option<(u8, Vec<u8>)> + 'static,
    ) -> Channel<N> {
        let way = net.downgrade();
        Channel::make(net, handler, receive, false, move |line, from, kind, bytes| {
            if let (Some(net), Some((kind, bytes))) = (way(), reply(kind, bytes)) {
                line.enqueue(&net, (from, handler.0, kind), &bytes, 0);
            }
        })
    }

    /// Opens the channel of a handler for a module whose ranks all have received their messages
    /// when it ends: what comes after the drop is for the next module of this handler, and waits
    /// for it.
    ///
    /// # Panics
    /// This rank has a channel of the handler.
    pub fn open_again(net: &N, handler: (u16, &str), receive: Receive) -> Channel<N> {
        Channel::make(net, handler, receive, true, |_, _, _, _| ())
    }

    fn make(
        net: &N,
        (handler, name): (u16, &str),
        receive: Receive,
        waits: bool,
        after: impl Fn(&Rc<Line>, usize, u8, &[u8]) + 'static,
    ) -> Channel<N> {
        let line = net.lasting().of::<Line>(handler);
        // The messages of one would go to the other.
        assert!(!line.is_open.replace(true), "{name} are open on this rank: drop all of it first");
        let inner = Rc::new(Inner {
            net: net.clone(),
            handler,
            line: Rc::clone(&line),
            setting: Cell::new(0),
            waits,
            own: RefCell::default(),
            receiving: Cell::new(false),
            joined: RefCell::default(),
            receive,
        });
        if !line.hears.replace(true) {
            let line = Rc::clone(&line);
            net.on_failure(move |failure| {
                line.queues.borrow_mut().remove(&failure.rank);
                line.partial.borrow_mut().remove(&failure.rank);
            });
        }
        let weak = Rc::downgrade(&inner);
        let setting = net.handle(handler, move |packet| {
            line.arrived(packet, |from, kind, bytes| match weak.upgrade() {
                Some(inner) => inner.received(from, kind, bytes),
                None => after(&line, from, kind, bytes),
            });
        });
        inner.setting.set(setting);
        Channel { inner }
    }

    /// Returns a number that is greater than those of all channels before of the net.
    pub fn number(&self) -> u64 {
        self.inner.setting.get()
    }

    /// Sends a message, given in parts, at once or as soon as there is room. The call never waits,
    /// so the caller bounds its messages.
    ///
    /// # Errors
    /// The rank has failed.
    pub fn post(&self, to: usize, kind: u8, parts: &[&[u8]]) -> Result<(), RankFailure> {
        let inner = &self.inner;
        if let ([whole], true) = (parts, inner.is_open(to)) {
            return inner.send(to, kind, whole);
        }
        self.post_after(to, kind, &[], parts)
    }

    /// Does what [`post`](Channel::post) does, with a head before the parts.
    ///
    /// # Errors
    /// The errors of `post`.
    pub fn post_after(
        &self,
        to: usize,
        kind: u8,
        head: &[u8],
        parts: &[&[u8]],
    ) -> Result<(), RankFailure> {
        let inner = &self.inner;
        if !inner.is_open(to) {
            let whole = [head, &parts.concat()].concat();
            match to == inner.net.rank() {
                true => {
                    inner.own.borrow_mut().push_back((kind, whole));
                    inner.receive_own();
                }
                false => inner.line.enqueue(&inner.net, (to, inner.handler, kind), &whole, 0),
            }
            return Ok(());
        }
        let mut joined = inner.joined.take();
        joined.clear();
        joined.extend_from_slice(head);
        parts.iter().for_each(|part| joined.extend_from_slice(part));
        let sent = inner.send(to, kind, &joined);
        inner.joined.replace(joined);
        sent
    }

    /// True if so many messages wait for a rank that a program which is able to wait should.
    pub fn is_full(&self, to: usize) -> bool {
        self.inner.line.queues.borrow().get(&to).is_some_and(|queue| queue.bytes > QUEUED_MAX)
    }

    /// Waits until there is room for messages to a rank.
    pub async fn room(&self, to: usize) {
        let mut pauses = Pauses::default();
        while self.is_full(to) {
            pauses.pause(&self.inner.net, false).await;
        }
    }

    /// True if no message waits for room.
    pub fn is_flushed(&self) -> bool {
        self.inner.line.queues.borrow().is_empty()
    }

    /// Waits until no message waits for room.
    pub async fn flush(&self) {
        let mut pauses = Pauses::default();
        while !self.is_flushed() {
            pauses.pause(&self.inner.net, false).await;
        }
    }
}

impl<N: Net> Drop for Inner<N> {
    fn drop(&mut self) {
        self.line.is_open.set(false);
        if self.waits {
            self.net.end_handle(self.handler, self.setting.get());
        }
    }
}

impl<N: Net> Inner<N> {
    /// True if a message to a rank leaves at once: the rank is another one, and none waits for it.
    fn is_open(&self, to: usize) -> bool {
        to != self.net.rank() && !self.line.queues.borrow().contains_key(&to)
    }

    fn send(&self, to: usize, kind: u8, bytes: &[u8]) -> Result<(), RankFailure> {
        let mut sent = 0;
        if bytes.len() <= WHOLE_MAX {
            match send_parts(&self.net, (to, self.handler, kind), bytes, &mut sent) {
                Ok(()) => return Ok(()),
                Err(Unsent::Failed(failure)) => return Err(failure),
                Err(_) => {}
            }
        }
        self.line.enqueue(&self.net, (to, self.handler, kind), bytes, sent);
        Ok(())
    }

    fn receive(&self, from: usize, kind: u8, bytes: &[u8]) {
        let outer = self.receiving.replace(true);
        let receive = Rc::clone(&self.receive);
        receive(from, kind, bytes);
        self.receiving.set(outer);
    }

    fn received(&self, from: usize, kind: u8, bytes: &[u8]) {
        self.receive(from, kind, bytes);
        self.receive_own();
    }

    /// Receives this rank's messages to itself, unless another message is being received.
    fn receive_own(&self) {
        while !self.receiving.get() {
            let Some((kind, bytes)) = self.own.borrow_mut().pop_front() else { break };
            self.receive(self.net.rank(), kind, &bytes);
        }
    }
}

impl Line {
    /// Keeps a message, of which so many bytes were sent, until there is room: for a rank, its
    /// handler, the kind of the message.
    fn enqueue<N: Net>(
        self: &Rc<Self>,
        net: &N,
        (to, handler, kind): (usize, u16, u8),
        bytes: &[u8],
        sent: usize,
    ) {
        if bytes.len() > WHOLE_MAX {
            // Modules refuse such a message before; parts of it would be taken for others.
            let len = bytes.len();
            return weft::telling::error!(
                "a message of {len} bytes to rank {to} is longer than {WHOLE_MAX}"
            );
        }
        {
            let mut queues = self.queues.borrow_mut();
            let queue = queues.entry(to).or_default();
            let bytes = bytes[sent..].to_vec();
            queue.bytes += bytes.len();
            queue.parcels.push_back(Parcel { kind, bytes, sent: 0 });
            if queue.parcels.len() > 1 {
                return;
            }
        }
        if !self.retrying.replace(true) {
            net.spawn(retry(Rc::clone(self), net.clone(), handler));
        }
    }

    /// Sends what there is room for. True if that is something.
    fn send_queued<N: Net>(&self, net: &N, handler: u16) -> bool {
        let mut has_sent = false;
        self.queues.borrow_mut().retain(|&to, queue| {
            match queue.drain(net, (to, handler), &mut has_sent) {
                Ok(()) => false,
                Err(Unsent::Busy) => true,
                // The failure itself is told to the modules.
                Err(_) => false,
            }
        });
        has_sent
    }

    /// Takes a packet, and hands on the message that ends with it.
    fn arrived(&self, packet: Incoming<'_>, receive: impl FnOnce(usize, u8, &[u8])) {
        let (kind, left) = split(packet.argument);
        let begun = self.partial.borrow_mut().remove(&packet.from);
        if begun.is_none() && left == 0 {
            return receive(packet.from, kind, packet.data);
        }
        let mut whole = begun.unwrap_or_else(|| {
            let mut memory = self.spare.take();
            memory.clear();
            let all = packet.data.len().saturating_mul(left as usize + 1);
            memory.reserve(all.min(KEPT_MAX));
            memory
        });
        if whole.len() + packet.data.len() > WHOLE_MAX {
            weft::telling::error!(
                "rank {} sent a message of more than {WHOLE_MAX} bytes",
                packet.from
            );
            return;
        }
        whole.extend_from_slice(packet.data);
        if left > 0 {
            self.partial.borrow_mut().insert(packet.from, whole);
            return;
        }
        receive(packet.from, kind, &whole);
        if whole.capacity() <= KEPT_MAX {
            self.spare.replace(whole);
        }
    }
}

impl Queue {
    fn drain<N: Net>(
        &mut self,
        net: &N,
        (to, handler): (usize, u16),
        has_sent: &mut bool,
    ) -> Result<(), Unsent> {
        while let Some(parcel) = self.parcels.front_mut() {
            let before = parcel.sent;
            let way = (to, handler, parcel.kind);
            let sent = send_parts(net, way, &parcel.bytes, &mut parcel.sent);
            *has_sent |= parcel.sent > before;
            sent?;
            self.bytes -= parcel.bytes.len();
            self.parcels.pop_front();
        }
        Ok(())
    }
}

/// Sends the packets of a message, from its byte `sent` on, which moves with each of them: to a
/// rank, its handler, the kind of the message.
fn send_parts<N: Net>(
    net: &N,
    (to, handler, kind): (usize, u16, u8),
    bytes: &[u8],
    sent: &mut usize,
) -> Result<(), Unsent> {
    let most = net.packet_max(to).max(1);
    loop {
        let rest = &bytes[*sent..];
        let now = rest.len().min(most);
        let left = (rest.len() - now).div_ceil(most) as u32;
        let argument = u32::from(kind) << LEFT_BITS | left;
        net.try_send(to, handler, argument, &rest[..now])?;
        *sent += now;
        if left == 0 {
            return Ok(());
        }
    }
}

/// Tries again to send until nothing is left, also when the channel is gone.
async fn retry<N: Net>(line: Rc<Line>, net: N, handler: u16) {
    let (mut pauses, mut has_sent) = (Pauses::default(), true);
    loop {
        pauses.pause(&net, has_sent).await;
        has_sent = line.send_queued(&net, handler);
        if line.queues.borrow().is_empty() {
            line.retrying.set(false);
            return;
        }
    }
}
