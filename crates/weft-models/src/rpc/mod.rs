//! Remote procedure calls between ranks.
//!
//! A rank *serves* methods, which have numbers; others *call* them. A service gets a [`Request`],
//! the right to answer, which it may keep and use later: from another upcall, a task, or when a
//! condition has come true. Arguments are gathered from parts and may have any length. Calls go on
//! while their caller does other things; a call that is dropped is cancelled.
//!
//! A call is executed at most once, since packets arrive once. Where a rank fails, its calls end
//! with an error, and may have been executed.
//!
//! ```no_run
//! use weft_models::net::{Blocking, Live, Net};
//! use weft_models::rpc::Rpc;
//!
//! const LENGTH: u16 = 1;
//!
//! let job = weft::Job::init()?;
//! let net = Live::new(job.world())?;
//! let rpc = Rpc::open(&net);
//! rpc.serve(LENGTH, |request, args| request.answer(&args.len().to_le_bytes()));
//! let next = (net.rank() + 1) % net.size();
//! let answer = rpc.call_blocking(next, LENGTH, b"hello")?;
//! println!("rank {next} counted {}", u64::from_le_bytes(answer[..].try_into()?));
//! job.world().barrier_blocking()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod call;
mod error;
mod request;
pub mod threads;
mod typed;

pub use call::Call;
pub use error::{CallError, Cause};
pub use request::Request;
pub use typed::{Answer, Method};

use crate::channel::{on_failure, receiver, Channel, MESSAGE_MAX};
use crate::net::{Blocking, Net, RankFailure};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::{Rc, Weak};
use std::task::Waker;
use std::time::Duration;
use weft_core::slab::Slab;

/// Most calls of a rank that have not been answered.
const CALLS_MAX: usize = 1 << 20;

/// The number of the last call under a handler. Numbers of calls outlive an [`Rpc`], since answers
/// to calls that were given up may come later: none is taken for that of another call.
#[derive(Default)]
struct Numbers(Cell<u32>);

/// Kinds of messages.
mod kind {
    /// Number of the call (4 bytes; 0: no answer is wanted), method (2), arguments.
    pub const CALL: u8 = 1;
    /// Number of the call (4 bytes), status (1), result or text.
    pub const ANSWER: u8 = 2;
    /// Number of the call (4 bytes): nobody waits for its answer any more.
    pub const CANCEL: u8 = 3;
}

/// Bytes of a call before its arguments.
const HEAD: usize = 6;
/// Bytes of an answer before its result.
const ANSWER_HEAD: usize = 5;

type Service<N> = Rc<RefCell<dyn FnMut(Request<N>, &[u8])>>;

/// A call that has not been answered.
struct Pending {
    to: usize,
    waker: Option<Waker>,
    answer: Option<Result<Vec<u8>, Cause>>,
    /// True if the silence of its rank is noticed.
    watched: bool,
}

/// A request that this rank has not answered.
struct Open {
    from: usize,
    number: u32,
    cancelled: bool,
}

pub(crate) struct Inner<N: Net> {
    net: N,
    channel: Channel<N>,
    calls: RefCell<BTreeMap<u32, Pending>>,
    numbers: Rc<Numbers>,
    open: RefCell<Slab<Open>>,
    services: RefCell<BTreeMap<u16, Service<N>>>,
}

/// The calls and services of a rank. Clones are the same; when the last is dropped, the rank serves
/// nothing any more.
#[derive(Clone)]
pub struct Rpc<N: Net> {
    inner: Rc<Inner<N>>,
}

impl<N: Net> Rpc<N> {
    /// Opens calls and services with this crate's handler for them. Calls that came before have
    /// waited. When it is dropped, calls that it has not answered end with [`Cause::Unanswered`],
    /// and later ones with [`Cause::NoService`], until it is opened again.
    ///
    /// # Panics
    /// This rank has one already: another handle, a call, or a request that was not answered.
    pub fn open(net: &N) -> Rpc<N> {
        Rpc::with_handler(net, crate::HANDLERS)
    }

    /// Does what [`open`](Rpc::open) does, with a packet handler of the program's choice, the same
    /// on all ranks. Each handler has methods of its own.
    ///
    /// # Panics
    /// This rank has one of this handler already.
    pub fn with_handler(net: &N, handler: u16) -> Rpc<N> {
        let inner = Rc::new_cyclic(|weak: &Weak<Inner<N>>| {
            let receive =
                receiver(weak, |inner, from, kind, bytes| inner.receive(from, kind, bytes));
            Inner {
                net: net.clone(),
                channel: Channel::open_with_replies(
                    net,
                    (handler, &format!("calls under packet handler {handler}")),
                    receive,
                    reply_of_none,
                ),
                numbers: net.lasting().of::<Numbers>(handler),
                calls: RefCell::default(),
                open: RefCell::default(),
                services: RefCell::default(),
            }
        });
        on_failure(net, &inner, |inner, failure| inner.rank_failed(&failure));
        Rpc { inner }
    }

    /// Returns the packet interface below.
    pub fn net(&self) -> &N {
        &self.inner.net
    }

    /// Serves a method: `service` is called with each request for it and its arguments, inside
    /// progress. It must not wait, but it may keep the request and answer later, and it may call
    /// methods of other ranks. It must not own this [`Rpc`], which [`Request::rpc`] gives.
    pub fn serve(&self, method: u16, service: impl FnMut(Request<N>, &[u8]) + 'static) {
        let service: Service<N> = Rc::new(RefCell::new(service));
        self.inner.services.borrow_mut().insert(method, service);
    }

    /// Begins a call. It has started when this returns.
    pub fn call(&self, to: usize, method: u16, args: &[u8]) -> Call<N> {
        self.call_parts(to, method, &[args])
    }

    /// Begins a call whose arguments are gathered from parts.
    pub fn call_parts(&self, to: usize, method: u16, args: &[&[u8]]) -> Call<N> {
        let started = self.inner.start(to, method, args);
        Call::new(&self.inner, (to, method), started)
    }

    /// Calls a method without an answer. The call is on its way or queued when this returns; while
    /// many are queued for the rank, it is refused.
    ///
    /// # Errors
    /// The rank has failed, the arguments are too long, or too many messages are queued (`Busy`).
    pub fn cast(&self, to: usize, method: u16, args: &[u8]) -> Result<(), CallError> {
        let inner = &self.inner;
        if inner.channel.is_full(to) {
            return Err(CallError { rank: to, method, cause: Cause::Busy });
        }
        let sent = inner.post_call(to, 0, method, &[args]);
        sent.map_err(|cause| CallError { rank: to, method, cause })
    }

    /// Waits until there is room for another [`cast`](Rpc::cast) to a rank.
    pub async fn room(&self, to: usize) {
        self.inner.channel.room(to).await;
    }

    /// Waits until every message of this rank has left its queues: before the job ends.
    pub async fn flush(&self) {
        self.inner.channel.flush().await;
    }

    /// The number of requests that this rank has neither answered nor dropped.
    pub fn unanswered(&self) -> usize {
        self.inner.open.borrow().len()
    }
}

impl<N: Blocking> Rpc<N> {
    /// Calls a method and waits for the answer, with progress meanwhile.
    ///
    /// # Errors
    /// The errors of a [`Call`].
    pub fn call_blocking(&self, to: usize, method: u16, args: &[u8]) -> Result<Vec<u8>, CallError> {
        self.call(to, method, args).wait()
    }

    /// Calls like [`call_blocking`](Rpc::call_blocking), and waits for at most some time.
    ///
    /// # Errors
    /// The errors of a [`Call`].
    pub fn call_within(
        &self,
        to: usize,
        method: u16,
        args: &[u8],
        time: Duration,
    ) -> Result<Vec<u8>, CallError> {
        self.call(to, method, args).within(time).wait()
    }
}

/// Answers to a call, on the wire.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Status {
    Done = 0,
    NoService = 1,
    Refused = 2,
    Panicked = 3,
    Dropped = 4,
    /// The answer is too long: its length (8 bytes) comes in its place.
    TooLong = 5,
}

/// Returns the answer to a message for a rank whose services were dropped.
fn reply_of_none(kind: u8, head: &[u8]) -> Option<(u8, Vec<u8>)> {
    let number = head.first_chunk::<4>().filter(|number| **number != [0; 4])?;
    let answer = [&number[..], &[Status::NoService as u8]].concat();
    (kind == kind::CALL).then_some((kind::ANSWER, answer))
}

impl<N: Net> Drop for Inner<N> {
    fn drop(&mut self) {
        for place in self.open.get_mut().keys().collect::<Vec<_>>() {
            self.end(place, Status::Dropped, &[]);
        }
    }
}

impl<N: Net> Inner<N> {
    /// Sends a call and notes it as pending.
    fn start(&self, to: usize, method: u16, args: &[&[u8]]) -> Result<u32, Cause> {
        let pending = Pending { to, waker: None, answer: None, watched: false };
        let number = self.note(pending).ok_or(Cause::Busy)?;
        match self.post_call(to, number, method, args) {
            Ok(()) => Ok(number),
            Err(cause) => {
                self.calls.borrow_mut().remove(&number);
                Err(cause)
            }
        }
    }

    /// Notes a call under a new number. `None`: too many are not answered.
    fn note(&self, pending: Pending) -> Option<u32> {
        let mut calls = self.calls.borrow_mut();
        if calls.len() >= CALLS_MAX {
            return None;
        }
        let mut number = self.numbers.0.get().wrapping_add(1);
        while number == 0 || calls.contains_key(&number) {
            number = number.wrapping_add(1);
        }
        self.numbers.0.set(number);
        calls.insert(number, pending);
        Some(number)
    }

    fn post_call(&self, to: usize, number: u32, method: u16, args: &[&[u8]]) -> Result<(), Cause> {
        let len = args.iter().map(|part| part.len()).sum::<usize>();
        if len > MESSAGE_MAX {
            return Err(Cause::TooLong { len });
        }
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&number.to_le_bytes());
        head[4..].copy_from_slice(&method.to_le_bytes());
        self.channel.post_after(to, kind::CALL, &head, args).map_err(Cause::Failed)
    }

    fn receive(self: &Rc<Self>, from: usize, kind: u8, bytes: &[u8]) {
        let Some((number, rest)) = bytes.split_first_chunk::<4>() else { return };
        let number = u32::from_le_bytes(*number);
        match kind {
            kind::CALL => {
                let Some((method, args)) = rest.split_first_chunk::<2>() else { return };
                self.serve_one(from, number, u16::from_le_bytes(*method), args);
            }
            kind::ANSWER => self.answered(from, number, rest),
            kind::CANCEL => self.cancelled(from, number),
            other => weft::telling::error!(
                "rank {from} sent a message of an unknown kind {other} for calls"
            ),
        }
    }

    fn serve_one(self: &Rc<Self>, from: usize, number: u32, method: u16, args: &[u8]) {
        let service = self.services.borrow().get(&method).cloned();
        let Some(service) = service else {
            if number == 0 {
                weft::telling::warn!(
                    "rank {from} called method {method}, which this rank does not serve"
                );
            }
            return self.answer(from, number, Status::NoService, &[]);
        };
        let place = match number {
            0 => None,
            _ => self.open.borrow_mut().insert(Open { from, number, cancelled: false }),
        };
        if number != 0 && place.is_none() {
            return self.answer(from, number, Status::Refused, &[b"too many open requests"]);
        }
        let request = Request::new(self, from, number, place);
        let call = || (service.borrow_mut())(request, args);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
            let text = crate::panic_text(&*panic);
            weft::telling::error!("method {method}, called by rank {from}, panicked: {text}");
            // The request answered as it was dropped, unless the service has kept it.
            if let Some(place) = place {
                self.end(place, Status::Panicked, &[text.as_bytes()]);
            }
        }
    }

    /// Ends a request with an answer. False if it has ended before.
    fn end(&self, place: u32, status: Status, parts: &[&[u8]]) -> bool {
        let Some(open) = self.open.borrow_mut().remove(place) else { return false };
        if !open.cancelled {
            self.answer(open.from, open.number, status, parts);
        }
        true
    }

    fn answer(&self, to: usize, number: u32, status: Status, parts: &[&[u8]]) {
        if number == 0 {
            return;
        }
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        if len > MESSAGE_MAX {
            return self.answer(to, number, Status::TooLong, &[&(len as u64).to_le_bytes()]);
        }
        let mut head = [0; ANSWER_HEAD];
        head[..4].copy_from_slice(&number.to_le_bytes());
        head[4] = status as u8;
        // A caller that has failed wants no answer.
        _ = self.channel.post_after(to, kind::ANSWER, &head, parts);
    }

    fn answered(&self, from: usize, number: u32, rest: &[u8]) {
        let Some((&status, bytes)) = rest.split_first() else { return };
        let text = || String::from_utf8_lossy(bytes).into_owned();
        let answer = match status {
            s if s == Status::Done as u8 => Ok(bytes.to_vec()),
            s if s == Status::NoService as u8 => Err(Cause::NoService),
            s if s == Status::Panicked as u8 => Err(Cause::Panicked(text())),
            s if s == Status::Dropped as u8 => Err(Cause::Unanswered),
            s if s == Status::TooLong as u8 => {
                let len = bytes.first_chunk().map_or(0, |len| u64::from_le_bytes(*len));
                Err(Cause::AnswerTooLong { len: usize::try_from(len).unwrap_or(usize::MAX) })
            }
            _ => Err(Cause::Refused(text())),
        };
        self.settle(from, number, answer);
    }

    /// Ends a call. The answer of a call that was cancelled, or whose deadline has passed, is lost.
    fn settle(&self, from: usize, number: u32, answer: Result<Vec<u8>, Cause>) {
        let (waker, watched) = {
            let mut calls = self.calls.borrow_mut();
            let Some(call) = calls.get_mut(&number).filter(|call| call.to == from) else { return };
            call.answer.get_or_insert(answer);
            (call.waker.take(), std::mem::take(&mut call.watched))
        };
        if watched {
            self.net.unexpect(from);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn cancelled(&self, from: usize, number: u32) {
        self.cancel_where(|open| (open.from, open.number) == (from, number));
    }

    fn rank_failed(&self, failure: &RankFailure) {
        let ended: Vec<u32> = {
            let calls = self.calls.borrow();
            let ended = calls.iter().filter(|(_, call)| call.to == failure.rank);
            ended.map(|(number, _)| *number).collect()
        };
        for number in ended {
            self.settle(failure.rank, number, Err(Cause::Failed(failure.clone())));
        }
        self.cancel_where(|open| open.from == failure.rank);
    }

    fn cancel_where(&self, is_meant: impl Fn(&Open) -> bool) {
        let mut open = self.open.borrow_mut();
        for place in open.keys().collect::<Vec<_>>() {
            if let Some(open) = open.get_mut(place).filter(|open| is_meant(open)) {
                open.cancelled = true;
            }
        }
    }
}
