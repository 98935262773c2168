//! The packet interface of a job outside its lock, for models that call the interpreter.
//!
//! Progress, which has the job's lock, keeps packets and failures as events. The thread that
//! executes operations takes them without that lock and calls the handlers; what these send goes
//! through the lock again, for the moment of the call.

use super::tasks::Tasks;
use crate::gate::Gate;
use crate::models::{Event, Models};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{poll_fn, Future};
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;
use weft_core::Instant;
use weft_models::net::{Incoming, Lasting, Net, RankFailure, Unsent};
use weft_packets::Counter;

type Upcall = Rc<RefCell<dyn FnMut(Incoming<'_>)>>;
type Told = Box<dyn FnMut(RankFailure)>;

/// The end of something that was asked of the net below.
enum End {
    Slept,
    Added(Result<u64, RankFailure>),
    /// The job has been left.
    Left,
}

#[derive(Default)]
struct Asked {
    end: Option<End>,
    waker: Option<Waker>,
}

struct Inner {
    gate: Weak<Gate>,
    rank: usize,
    size: usize,
    warn_after: Duration,
    peer_timeout: Duration,
    quiet: Cell<bool>,
    now: Cell<Instant>,
    upcalls: RefCell<HashMap<u16, Upcall>>,
    told: RefCell<Vec<Told>>,
    lasting: Lasting,
    asked: RefCell<HashMap<u64, Asked>>,
    last: Cell<u64>,
    tasks: Tasks,
}

/// The packet interface of a job, for the holder of the lock of objects.
#[derive(Clone)]
pub struct Outside {
    inner: Rc<Inner>,
}

/// A multicast group of the net below, which knows it by this number.
pub struct Cast {
    gate: Weak<Gate>,
    number: u64,
}

impl Drop for Cast {
    fn drop(&mut self) {
        if let Some(gate) = self.gate.upgrade() {
            gate.end_of_models(|models| models.free_group(self.number));
        }
    }
}

/// Something asked of the net below. If this is dropped, nobody waits for it any more.
struct Asking {
    inner: Rc<Inner>,
    number: u64,
}

impl Drop for Asking {
    fn drop(&mut self) {
        let asked = self.inner.asked.borrow_mut().remove(&self.number);
        drop(asked);
    }
}

impl Asking {
    async fn end(self) -> End {
        poll_fn(|cx| {
            let mut all = self.inner.asked.borrow_mut();
            let Some(asked) = all.get_mut(&self.number) else { return Poll::Ready(End::Left) };
            if let Some(end) = asked.end.take() {
                return Poll::Ready(end);
            }
            asked.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

fn left(rank: usize) -> RankFailure {
    RankFailure { rank, certain: false, why: "this rank has left the job".to_string() }
}

impl Outside {
    /// Returns the interface of the models of a job; `None` if it was left.
    pub fn open(gate: &Arc<Gate>) -> Option<Outside> {
        let about = gate.with(|inside| {
            let net = inside.models()?.forward_failures();
            Ok((net.rank(), net.size(), [net.warn_after(), net.peer_timeout()]))
        });
        let (rank, size, [warn_after, peer_timeout]) = about.ok()?;
        Some(Outside {
            inner: Rc::new(Inner {
                gate: Arc::downgrade(gate),
                rank,
                size,
                warn_after,
                peer_timeout,
                quiet: Cell::default(),
                now: Cell::default(),
                upcalls: RefCell::default(),
                told: RefCell::default(),
                lasting: Lasting::default(),
                asked: RefCell::default(),
                last: Cell::default(),
                tasks: Tasks::default(),
            }),
        })
    }

    /// Has waits that begin now say nothing by themselves: the caller does so.
    pub fn set_quiet(&self, quiet: bool) {
        self.inner.quiet.set(quiet);
    }

    /// Handles something that progress has kept.
    pub fn handle_event(&self, event: Event) {
        match event {
            Event::Packet { handler, from, argument, data } => {
                let upcall = self.inner.upcalls.borrow().get(&handler).cloned();
                if let Some(upcall) = upcall {
                    (upcall.borrow_mut())(Incoming { from, argument, data: &data });
                }
            }
            Event::Failed(failure) => {
                // A call may add others, for which this failure is in the past.
                let mut told = self.inner.told.take();
                told.iter_mut().for_each(|call| call(failure.clone()));
                let added = self.inner.told.replace(told);
                self.inner.told.borrow_mut().extend(added);
            }
            Event::Slept(number) => self.end(number, End::Slept),
            Event::Added(number, result) => self.end(number, End::Added(result)),
        }
    }

    /// Goes on with the tasks that have been woken.
    pub fn run_tasks(&self) {
        self.inner.tasks.run();
    }

    /// Drops all tasks and handlers: nothing is handled any more.
    pub fn close(&self) {
        self.inner.tasks.end();
        let (upcalls, told) = (self.inner.upcalls.take(), self.inner.told.take());
        drop((upcalls, told));
    }

    fn end(&self, number: u64, end: End) {
        let waker = {
            let mut all = self.inner.asked.borrow_mut();
            let Some(asked) = all.get_mut(&number) else { return };
            asked.end = Some(end);
            asked.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// Calls `f` under the lock of the job. `None`: it was left.
    fn with<T>(&self, f: impl FnOnce(&mut Models) -> T) -> Option<T> {
        let gate = self.inner.gate.upgrade()?;
        gate.with(|inside| Ok(f(inside.models()?))).ok()
    }

    fn ask(&self, begin: impl FnOnce(&mut Models, u64)) -> Asking {
        let number = self.inner.last.get() + 1;
        self.inner.last.set(number);
        self.inner.asked.borrow_mut().insert(number, Asked::default());
        if self.with(|models| begin(models, number)).is_none() {
            self.end(number, End::Left);
        }
        Asking { inner: Rc::clone(&self.inner), number }
    }
}

impl Net for Outside {
    type Group = Rc<Cast>;

    fn downgrade(&self) -> impl Fn() -> Option<Outside> + 'static + use<> {
        let inner = Rc::downgrade(&self.inner);
        move || inner.upgrade().map(|inner| Outside { inner })
    }

    fn rank(&self) -> usize {
        self.inner.rank
    }

    fn size(&self) -> usize {
        self.inner.size
    }

    fn now(&self) -> Instant {
        if let Some(now) = self.with(|models| models.net().now()) {
            self.inner.now.set(now);
        }
        self.inner.now.get()
    }

    fn packet_max(&self, to: usize) -> usize {
        self.with(|models| models.net().packet_max(to)).unwrap_or_default()
    }

    fn handle(&self, handler: u16, upcall: impl FnMut(Incoming<'_>) + 'static) -> u64 {
        let upcall: Upcall = Rc::new(RefCell::new(upcall));
        let before = self.inner.upcalls.borrow_mut().insert(handler, upcall);
        drop(before);
        self.with(|models| models.forward(handler)).unwrap_or_default()
    }

    fn end_handle(&self, handler: u16, setting: u64) {
        self.with(|models| models.net().end_handle(handler, setting));
    }

    fn lasting(&self) -> &Lasting {
        &self.inner.lasting
    }

    fn try_send(&self, to: usize, handler: u16, argument: u32, data: &[u8]) -> Result<(), Unsent> {
        let sent = self.with(|models| models.net().try_send(to, handler, argument, data));
        sent.unwrap_or_else(|| Err(Unsent::Failed(left(to))))
    }

    fn try_gather(
        &self,
        to: usize,
        handler: u16,
        argument: u32,
        memory: &Rc<[u8]>,
        part: Range<usize>,
    ) -> Result<(), Unsent> {
        // The net below would count references to the memory, under another lock.
        self.try_send(to, handler, argument, memory.get(part).unwrap_or_default())
    }

    fn group(&self, number: u16, generation: u8, members: &[usize]) -> Option<Rc<Cast>> {
        let number = self.with(|models| models.begin_group(number, generation, members))??;
        Some(Rc::new(Cast { gate: Weak::clone(&self.inner.gate), number }))
    }

    fn end_group(&self, group: &Rc<Cast>) {
        self.with(|models| models.end_group(group.number));
    }

    fn group_max(&self, group: &Rc<Cast>) -> usize {
        self.with(|models| models.group_max(group.number)).unwrap_or_default()
    }

    fn try_multicast(
        &self,
        group: &Rc<Cast>,
        handler: u16,
        argument: u32,
        data: &[u8],
    ) -> Result<(), Unsent> {
        let sent = self.with(|models| models.multicast(group.number, handler, argument, data));
        sent.unwrap_or_else(|| Err(Unsent::Failed(left(self.inner.rank))))
    }

    fn counter(&self, value: u64) -> Option<Counter> {
        self.with(|models| models.net().counter(value))?
    }

    fn end_counter(&self, counter: Counter) {
        self.with(|models| models.net().end_counter(counter));
    }

    fn add_at_once(&self, at: usize, counter: Counter, n: u64) -> Option<u64> {
        self.with(|models| models.net().add_at_once(at, counter, n))?
    }

    fn fetch_add(
        &self,
        at: usize,
        counter: Counter,
        n: u64,
    ) -> impl Future<Output = Result<u64, RankFailure>> + use<> {
        let asked = self.ask(|models, number| models.fetch_add(number, at, counter, n));
        async move {
            match asked.end().await {
                End::Added(result) => result,
                _ => Err(left(at)),
            }
        }
    }

    fn poll(&self) -> bool {
        self.with(|models| models.net().poll()).unwrap_or_default()
    }

    fn yield_now(&self) -> impl Future<Output = ()> + use<> {
        let asked = self.ask(|models, number| models.sleep(number, None));
        async move { drop(asked.end().await) }
    }

    fn sleep(&self, time: Duration) -> impl Future<Output = ()> + use<> {
        let asked = self.ask(|models, number| models.sleep(number, Some(time)));
        async move { drop(asked.end().await) }
    }

    fn compute(&self, _time: Duration) -> impl Future<Output = ()> + use<> {
        std::future::ready(())
    }

    fn spawn(&self, work: impl Future<Output = ()> + 'static) {
        self.inner.tasks.spawn(work);
    }

    fn failure(&self, rank: usize) -> Option<RankFailure> {
        self.with(|models| models.net().failure(rank)).unwrap_or_else(|| Some(left(rank)))
    }

    fn on_failure(&self, call: impl FnMut(RankFailure) + 'static) {
        self.inner.told.borrow_mut().push(Box::new(call));
    }

    fn expect(&self, rank: usize) -> bool {
        self.with(|models| models.net().expect(rank)).unwrap_or_default()
    }

    fn unexpect(&self, rank: usize) {
        self.with(|models| models.net().unexpect(rank));
    }

    fn has_left(&self, rank: usize) -> bool {
        self.with(|models| models.net().has_left(rank)).unwrap_or_default()
    }

    fn peer_timeout(&self) -> Duration {
        self.inner.peer_timeout
    }

    fn time_is_virtual(&self) -> bool {
        false
    }

    fn warn_after(&self) -> Duration {
        match self.inner.quiet.get() {
            true => Duration::ZERO,
            false => self.inner.warn_after,
        }
    }
}
