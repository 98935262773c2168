//! The regions of a rank, and the messages about them.

use super::entry::{Entry, Local, Step, Store};
use super::home::{Directory, Send};
use super::lease::Standing;
use super::wire::{access_code, access_of, among, from_home, method, number_of, to_home, Number};
use super::wire::{DATA, KEPT};
use super::{Access, RegionCause, RegionId};
use crate::channel::{on_failure, receiver, Channel};
use crate::net::{Net, RankFailure};
use crate::rpc::{Call, CallError, Cause, Request, Rpc};
use crate::together::{Together, Watched};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::rc::{Rc, Weak};
use std::task::Waker;
use weft_core::Instant;

/// A region, and the rank whose answer about it is awaited.
type Awaited = (RegionId, usize);

pub(super) struct Inner<N: Net> {
    pub net: N,
    pub together: Together<N>,
    pub rpc: Rpc<N>,
    pub channel: Channel<N>,
    pub table: RefCell<BTreeMap<RegionId, Rc<Entry>>>,
    next: Cell<u64>,
    /// Regions of other homes without handles here, oldest first, and their bytes.
    idle: RefCell<VecDeque<RegionId>>,
    idle_bytes: Cell<usize>,
    /// Most bytes of those.
    cache: usize,
    /// The homes whose silence is noticed, for each answer that is awaited.
    watched: RefCell<Vec<(Awaited, Watched<N>)>>,
    /// Regions whose homes are asked for their shape, and if they have been deleted meanwhile.
    asked: RefCell<Vec<(RegionId, Rc<Cell<bool>>)>>,
    /// Memory for the bytes of a region that are about to be sent.
    saved: RefCell<Vec<u8>>,
    /// The first failure of a rank that this one has noticed.
    first: RefCell<Option<RankFailure>>,
    pub standing: RefCell<Standing>,
    /// Long waits that have been said, the last some.
    pub complaints: RefCell<Vec<String>>,
}

/// A question to the home of a region for its shape, until this is dropped.
struct Asks<'a, N: Net> {
    inner: &'a Inner<N>,
    /// True if the region has been deleted meanwhile.
    deleted: Rc<Cell<bool>>,
}

impl<'a, N: Net> Asks<'a, N> {
    fn new(inner: &'a Inner<N>, id: RegionId) -> Asks<'a, N> {
        let deleted = Rc::new(Cell::new(false));
        inner.asked.borrow_mut().push((id, Rc::clone(&deleted)));
        Asks { inner, deleted }
    }
}

impl<N: Net> Drop for Asks<'_, N> {
    fn drop(&mut self) {
        self.inner.asked.borrow_mut().retain(|(_, other)| !Rc::ptr_eq(other, &self.deleted));
    }
}

/// Returns the answer to a message for this rank, `me`, whose regions have ended with their last
/// handle: it is the home of none, and has no copy any more.
fn reply_of_none(me: usize, kind: u8, head: &[u8]) -> Option<(u8, Vec<u8>)> {
    let number = Number::new(number_of(head)?.0);
    let why = b"it has dropped its regions";
    let (kind, rest) = match kind {
        to_home::ASK => (from_home::REFUSE, [&(me as u32).to_le_bytes()[..], why].concat()),
        from_home::GRANT => (to_home::FLUSH, vec![0]),
        from_home::REVOKE => (to_home::ACK, vec![0]),
        _ => return None,
    };
    Some((kind, [&number[..], &rest].concat()))
}

impl<N: Net> Drop for Inner<N> {
    /// Gives all copies back to their homes.
    fn drop(&mut self) {
        let all = std::mem::take(self.table.get_mut()).into_values();
        for entry in all.filter(|entry| entry.home.is_none() && entry.check().is_ok()) {
            let copy = entry.local.borrow_mut().copy.take();
            if copy.is_some() {
                self.give(&entry, to_home::FLUSH, false, copy == Some(Access::Write));
            }
        }
    }
}

impl<N: Net> Inner<N> {
    pub fn open(net: &N, first: u16, cache: usize) -> Rc<Inner<N>> {
        let me = net.rank();
        let inner = Rc::new_cyclic(|weak: &Weak<Inner<N>>| {
            let receive =
                receiver(weak, |inner, from, kind, bytes| inner.receive(from, kind, bytes));
            Inner {
                net: net.clone(),
                together: Together::with_handler(net, first + 2),
                rpc: Rpc::with_handler(net, first + 1),
                channel: Channel::open_with_replies(
                    net,
                    (first, &format!("regions under packet handler {first}")),
                    receive,
                    move |kind, head| reply_of_none(me, kind, head),
                ),
                table: RefCell::default(),
                next: Cell::new(0),
                idle: RefCell::default(),
                idle_bytes: Cell::new(0),
                cache,
                watched: RefCell::default(),
                asked: RefCell::default(),
                saved: RefCell::default(),
                first: RefCell::default(),
                standing: RefCell::default(),
                complaints: RefCell::default(),
            }
        });
        on_failure(net, &inner, |inner, failure| inner.failed(&failure));
        let methods =
            [method::MAP, method::HOLDERS, method::DELETE, method::DELETED, method::CONFIRM];
        for number in methods {
            let weak = Rc::downgrade(&inner);
            inner.rpc.serve(number, move |request, args| {
                if let Some(inner) = weak.upgrade() {
                    inner.called(number, request, args);
                }
            });
        }
        inner
    }

    /// Returns the regions that operations use.
    pub fn held(&self) -> Vec<RegionId> {
        let table = self.table.borrow();
        let used = table.values().filter(|entry| entry.local.borrow().is_used());
        used.map(|entry| entry.id).collect()
    }

    pub fn find(&self, id: RegionId) -> Option<Rc<Entry>> {
        self.table.borrow().get(&id).cloned()
    }

    /// Makes a region whose home is here.
    pub fn create(&self, store: Rc<dyn Store>) -> Rc<Entry> {
        let (home, number) = (self.net.rank(), self.next.get());
        self.next.set(number + 1);
        let directory = RefCell::new(Directory::new(home));
        self.add(RegionId { home: home as u32, number }, store, Local::of_home(), Some(directory))
    }

    pub fn add(
        &self,
        id: RegionId,
        store: Rc<dyn Store>,
        local: Local,
        home: Option<RefCell<Directory>>,
    ) -> Rc<Entry> {
        let entry = Rc::new(Entry {
            id,
            store,
            local: RefCell::new(local),
            home,
            lost: RefCell::default(),
            handles: Cell::new(0),
            asked_at: Cell::new(Instant(0)),
        });
        self.table.borrow_mut().insert(id, Rc::clone(&entry));
        entry
    }

    fn called(&self, number: u16, request: Request<N>, args: &[u8]) {
        if number == method::DELETED {
            let home = request.from() as u32;
            number_of(args).inspect(|&(number, _)| self.deleted(RegionId { home, number }));
            return request.answer(&[]);
        }
        if number == method::CONFIRM {
            let good = self.is_good(request.from());
            return request.answer(&[u8::from(good)]);
        }
        let home = self.net.rank() as u32;
        let entry = number_of(args).and_then(|(number, _)| self.find(RegionId { home, number }));
        let Some(entry) = entry else { return request.answer(&[]) };
        if number == method::MAP {
            if let Some(home) = &entry.home {
                home.borrow_mut().mapped(request.from());
            }
            let (items, name) = entry.store.shape();
            return request.answer_parts(&[&Number::new(items), name.as_bytes()]);
        }
        if number == method::DELETE {
            let owner = entry.home.as_ref().and_then(|home| home.borrow().owner);
            let may = owner == Some(request.from());
            if !may {
                return request.answer(&[0]);
            }
            let told = self.delete(&entry, request.from());
            return self.net.spawn(async move {
                told.await;
                request.answer(&[1]);
            });
        }
        let holders = entry.home.as_ref().map(|home| home.borrow().holders()).unwrap_or_default();
        let ranks = holders.iter().flat_map(|&rank| (rank as u32).to_le_bytes());
        request.answer(&ranks.collect::<Vec<u8>>());
    }

    /// Does what is due for a region after any change.
    pub fn advance(&self, entry: &Rc<Entry>) {
        loop {
            let step = entry.local.borrow_mut().step();
            match step {
                Step::Wake(waker) => waker.into_iter().for_each(Waker::wake),
                Step::Ask(access) => self.ask(entry, access),
                Step::Ack { kept, .. } if entry.home.is_some() => {
                    if let Some(home) = &entry.home {
                        home.borrow_mut().acked(self.net.rank(), kept);
                    }
                    self.serve(entry);
                }
                Step::Ack { kept, written } => self.give(entry, to_home::ACK, kept, written),
                Step::Done => return,
            }
        }
    }

    /// Notices the silence of a rank until it has answered about a region.
    fn watch(&self, id: RegionId, rank: usize) {
        let watched = Watched::new(&self.net, rank);
        let mut all = self.watched.borrow_mut();
        match all.iter_mut().find(|(of, _)| *of == (id, rank)) {
            Some(known) => known.1 = watched,
            None => all.push(((id, rank), watched)),
        }
    }

    fn unwatch(&self, id: RegionId, rank: usize) {
        let mut all = self.watched.borrow_mut();
        let at = all.iter().position(|(of, _)| *of == (id, rank));
        let ended = at.map(|at| all.swap_remove(at));
        drop(all);
        drop(ended);
    }

    /// Asks the home of a region for an access.
    pub fn ask(&self, entry: &Rc<Entry>, access: Access) {
        let home = entry.id.home();
        if entry.home.is_none() {
            entry.asked_at.set(self.net.boot_time());
        }
        let number = Number::new(entry.id.number);
        let code = [access_code(Some(access))];
        let sent = self.channel.post(home, to_home::ASK, &[&number, &code]);
        // The request is on its way before the rest is done.
        match sent {
            Err(failure) => self.lose(entry, self.home_lost(failure)),
            Ok(()) if home != self.net.rank() && entry.local.borrow().asked.is_some() => {
                self.watch(entry.id, home);
            }
            Ok(()) => {}
        }
    }

    /// Tells the home that this rank's copy is given up, or only read from now on.
    fn give(&self, entry: &Rc<Entry>, kind: u8, kept: bool, written: bool) {
        let home = entry.id.home();
        let sends = written && home != self.net.rank();
        let flags = if kept { KEPT } else { 0 } | if sends { DATA } else { 0 };
        let mut bytes = self.saved.take();
        bytes.clear();
        bytes.extend_from_slice(&Number::new(entry.id.number));
        bytes.push(flags);
        if sends {
            entry.store.save(&mut bytes);
        }
        let sent = self.channel.post(home, kind, &[&bytes]);
        self.saved.replace(bytes);
        if let Err(failure) = sent {
            self.lose(entry, self.home_lost(failure));
        }
    }

    /// Gives the copy of a region back to its home, if no operation uses it.
    pub fn flush(&self, entry: &Rc<Entry>) {
        let written = {
            let mut local = entry.local.borrow_mut();
            let is_home = entry.home.is_some();
            if is_home || local.copy.is_none() || local.is_used() || local.asked.is_some() {
                return;
            }
            local.copy.take() == Some(Access::Write)
        };
        self.give(entry, to_home::FLUSH, false, written);
    }

    /// Marks a region as of no use any more, here.
    pub fn lose(&self, entry: &Rc<Entry>, cause: RegionCause) {
        entry.lost.borrow_mut().get_or_insert(cause);
        self.unwatch(entry.id, entry.id.home());
        let wakers = entry.local.borrow_mut().wakers();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Notes that a handle is gone: the copy stays, while there is room for it.
    pub fn unmapped(&self, entry: &Rc<Entry>) {
        entry.handles.set(entry.handles.get() - 1);
        let is_known = self.table.borrow().contains_key(&entry.id);
        if entry.handles.get() > 0 || entry.home.is_some() || !is_known {
            return;
        }
        self.idle.borrow_mut().push_back(entry.id);
        self.idle_bytes.set(self.idle_bytes.get() + entry.store.len());
        let mut tries = self.idle.borrow().len();
        while self.idle_bytes.get() > self.cache && tries > 0 {
            tries -= 1;
            let Some(id) = self.idle.borrow_mut().pop_front() else { return };
            let Some(entry) = self.find(id) else { continue };
            if entry.local.borrow().asked.is_some() {
                // Its copy is on its way.
                self.idle.borrow_mut().push_back(id);
                continue;
            }
            self.idle_bytes.set(self.idle_bytes.get() - entry.store.len());
            self.flush(&entry);
            self.table.borrow_mut().remove(&id);
        }
    }

    /// Notes that a region has a handle again.
    pub fn mapped(&self, entry: &Rc<Entry>) {
        if entry.handles.replace(entry.handles.get() + 1) == 0 {
            self.take_idle(entry);
        }
    }

    /// Takes a region from those without handles.
    fn take_idle(&self, entry: &Rc<Entry>) {
        let mut idle = self.idle.borrow_mut();
        let before = idle.len();
        idle.retain(|&id| id != entry.id);
        if idle.len() < before {
            self.idle_bytes.set(self.idle_bytes.get() - entry.store.len());
        }
    }

    /// Removes a region of which the only copy is here, or at the rank `by` that asks its home. The
    /// home tells the ranks that have mapped it; the future ends when they all know.
    pub fn delete(&self, entry: &Rc<Entry>, by: usize) -> impl Future<Output = ()> + use<N> {
        self.table.borrow_mut().remove(&entry.id);
        self.lose(entry, RegionCause::NoRegion);
        let others = self.drop_requests(entry).into_iter().filter(|&rank| rank != by);
        let number = Number::new(entry.id.number);
        let calls: Vec<Call<N>> =
            others.map(|rank| self.rpc.call(rank, method::DELETED, &number)).collect();
        async {
            for call in calls {
                // A rank that has failed maps nothing.
                _ = call.await;
            }
        }
    }

    /// Notes that the home of a region has deleted it.
    fn deleted(&self, id: RegionId) {
        let asked = self.asked.borrow();
        asked.iter().filter(|(of, _)| *of == id).for_each(|(_, deleted)| deleted.set(true));
        let Some(entry) = self.find(id) else { return };
        self.lose(&entry, RegionCause::NoRegion);
        if entry.handles.get() == 0 {
            self.take_idle(&entry);
            self.table.borrow_mut().remove(&id);
        }
    }

    /// Asks the home of a region for its number of items and their type.
    pub async fn shape(&self, id: RegionId) -> Result<(u64, String), RegionCause> {
        let asks = Asks::new(self, id);
        let call = self.rpc.call(id.home(), method::MAP, &Number::new(id.number));
        let shape = call.await.map_err(|failed| self.call_failed(id, failed))?;
        match number_of(&shape) {
            Some((count, name)) if !asks.deleted.get() => {
                Ok((count, String::from_utf8_lossy(name).into_owned()))
            }
            _ => Err(RegionCause::NoRegion),
        }
    }

    /// Takes all requests for a region away, which is lost with a rank or is no more. Returns the
    /// other ranks that have mapped it.
    fn drop_requests(&self, entry: &Rc<Entry>) -> BTreeSet<usize> {
        let Some(home) = &entry.home else { return BTreeSet::new() };
        let mut home = home.borrow_mut();
        home.drop_requests();
        let mut mapped = home.all_mapped();
        mapped.remove(&self.net.rank());
        mapped
    }

    /// Tells a rank that a region is lost with another one, or (`None`) that it is no more.
    fn refuse(&self, number: u64, to: usize, lost: Option<&RankFailure>) {
        let rank = lost.map_or(u32::MAX, |failure| failure.rank as u32);
        let why = lost.map_or("", |failure| &failure.why);
        let parts = [&Number::new(number)[..], &rank.to_le_bytes(), why.as_bytes()];
        // A rank that has failed needs no answer.
        _ = self.channel.post(to, from_home::REFUSE, &parts);
    }

    /// Serves the requests for a region whose home is here, as far as possible.
    fn serve(&self, entry: &Rc<Entry>) {
        let Some(home) = &entry.home else { return };
        let me = self.net.rank();
        loop {
            let send = home.borrow_mut().serve();
            let Some(send) = send else { return };
            self.send(entry, send, me);
        }
    }

    /// Does what the directory of a region wants.
    fn send(&self, entry: &Rc<Entry>, send: Send, me: usize) {
        match send {
            // Without a message: what this rank answers to a revocation is served at once.
            Send::Grant { to, access, .. } if to == me => self.granted(entry, access),
            Send::Revoke { to, left } if to == me => {
                entry.local.borrow_mut().revoke(left);
                self.advance(entry);
            }
            Send::Grant { to, access, has_copy } => self.grant(entry, to, access, has_copy),
            Send::Revoke { to, left } => {
                let (number, code) = (Number::new(entry.id.number), [access_code(left)]);
                match self.channel.post(to, from_home::REVOKE, &[&number, &code]) {
                    Ok(()) => self.watch(entry.id, to),
                    Err(failure) => self.holder_failed(entry, &failure),
                }
            }
        }
    }

    /// Sends a grant to another rank, with the bytes of the region if it has no copy.
    fn grant(&self, entry: &Rc<Entry>, to: usize, access: Access, has_copy: bool) {
        let flags = if has_copy { 0 } else { DATA };
        let mut bytes = self.saved.take();
        bytes.clear();
        bytes.extend_from_slice(&Number::new(entry.id.number));
        bytes.extend_from_slice(&[access_code(Some(access)), flags]);
        if !has_copy {
            entry.store.save(&mut bytes);
        }
        let sent = self.channel.post(to, from_home::GRANT, &[&bytes]);
        self.saved.replace(bytes);
        if let Err(failure) = sent {
            self.holder_failed(entry, &failure);
        }
    }

    /// Notes that this rank has an access, and begins the operations that wait for it.
    fn granted(&self, entry: &Rc<Entry>, access: Access) {
        entry.local.borrow_mut().granted(access);
        self.advance(entry);
    }

    /// Forgets the copy of a rank that has failed, at the home.
    fn holder_failed(&self, entry: &Rc<Entry>, failure: &RankFailure) {
        let Some(home) = &entry.home else { return };
        // Before anything is sent that assumes it.
        self.give_up(failure);
        self.unwatch(entry.id, failure.rank);
        let lost = home.borrow_mut().failed(failure.rank);
        if lost {
            self.lose(entry, RegionCause::Holder(failure.clone()));
            // At once: this rank may end by the loss, and then could not say why.
            for to in self.drop_requests(entry) {
                self.refuse(entry.id.number, to, Some(failure));
            }
        }
        self.serve(entry);
    }

    fn failed(&self, failure: &RankFailure) {
        self.give_up(failure);
        let home_lost = self.home_lost(failure.clone());
        let all: Vec<Rc<Entry>> = self.table.borrow().values().cloned().collect();
        for entry in all {
            if entry.id.home() == failure.rank {
                self.lose(&entry, home_lost.clone());
            } else {
                self.holder_failed(&entry, failure);
            }
        }
    }

    /// Returns the cause of a loss with the home. If another rank failed before, which may be the
    /// reason why the home ended, the cause names that one too.
    pub fn home_lost(&self, mut failure: RankFailure) -> RegionCause {
        let mut first = self.first.borrow_mut();
        let first = first.get_or_insert_with(|| failure.clone());
        if first.rank != failure.rank {
            failure.why = format!("{}; before that, {first}", failure.why);
        }
        RegionCause::Home(failure)
    }

    /// Returns the cause of a call to the home of a region that has no answer.
    pub fn call_failed(&self, id: RegionId, failed: CallError) -> RegionCause {
        match failed.cause {
            Cause::Failed(failure) => self.home_lost(failure),
            _ => RegionCause::Home(RankFailure {
                rank: id.home(),
                certain: false,
                why: failed.to_string(),
            }),
        }
    }

    fn receive(&self, from: usize, kind: u8, bytes: &[u8]) {
        if kind == among::GIVEN_UP {
            if self.told_given_up(from, bytes).is_none() {
                weft::telling::error!("rank {from} sent nonsense about ranks that were given up");
            }
            return;
        }
        let known = number_of(bytes).and_then(|(number, rest)| match kind {
            to_home::ASK..=to_home::FLUSH => self.at_home(from, kind, number, rest),
            from_home::GRANT..=from_home::REFUSE => {
                self.told(RegionId { home: from as u32, number }, kind, rest)
            }
            _ => None,
        });
        if known.is_none() {
            weft::telling::error!("rank {from} sent nonsense about a region (kind {kind})");
        }
    }

    /// Handles a message to this home. `None` if it is malformed.
    fn at_home(&self, from: usize, kind: u8, number: u64, rest: &[u8]) -> Option<()> {
        let (&code, data) = rest.split_first()?;
        let id = RegionId { home: self.net.rank() as u32, number };
        let entry = self.find(id);
        let Some((entry, home)) =
            entry.as_ref().and_then(|entry| Some((entry, entry.home.as_ref()?)))
        else {
            if kind == to_home::ASK {
                self.refuse(number, from, None);
            }
            return Some(());
        };
        if kind == to_home::ASK {
            let access = access_of(code)?;
            if let Some(RegionCause::Holder(failure)) = &*entry.lost.borrow() {
                self.refuse(number, from, Some(failure));
                return Some(());
            }
            home.borrow_mut().ask(from, access);
            self.serve(entry);
            return Some(());
        }
        let has_data = code & DATA != 0;
        // Only the rank that may write has bytes that others lack.
        if has_data && home.borrow().owner == Some(from) && !entry.store.load(data) {
            return None;
        }
        match kind {
            to_home::ACK => {
                self.unwatch(id, from);
                // The answer is awaited no more if the region is lost.
                home.borrow_mut().acked(from, code & KEPT != 0);
            }
            _ => drop(home.borrow_mut().gave_up(from)),
        }
        self.serve(entry);
        Some(())
    }

    /// Handles a message of a region's home. `None` if it is malformed.
    fn told(&self, id: RegionId, kind: u8, rest: &[u8]) -> Option<()> {
        let entry = self.find(id);
        match (kind, entry) {
            (from_home::GRANT, Some(entry)) => {
                let (&[code, flags], data) = rest.split_first_chunk()?;
                let access = access_of(code)?;
                entry.local.borrow().asked?;
                if flags & DATA != 0 && !entry.store.load(data) {
                    // This rank has mapped it with another length: the home has the copy again.
                    entry.local.borrow_mut().asked = None;
                    self.give(&entry, to_home::FLUSH, false, false);
                    let wanted = format!("{} bytes", entry.store.len());
                    let found = format!("{} bytes", data.len());
                    self.lose(&entry, RegionCause::Type { wanted, found });
                    return Some(());
                }
                self.unwatch(id, id.home());
                self.confirmed(id.home(), entry.asked_at.get());
                self.granted(&entry, access);
            }
            (from_home::REVOKE, Some(entry)) => {
                let left = access_of(*rest.first()?);
                entry.local.borrow_mut().revoke(left);
                self.advance(&entry);
            }
            (from_home::REVOKE, None) => {
                // The copy has been given up, and the home knows by now.
                let number = Number::new(id.number);
                _ = self.channel.post(id.home(), to_home::ACK, &[&number, &[0]]);
            }
            (from_home::REFUSE, Some(entry)) => {
                let (rank, why) = rest.split_first_chunk()?;
                let cause = match u32::from_le_bytes(*rank) {
                    u32::MAX => RegionCause::NoRegion,
                    rank if rank == id.home => {
                        let (rank, certain) = (rank as usize, false);
                        let why = String::from_utf8_lossy(why).into_owned();
                        self.home_lost(RankFailure { rank, certain, why })
                    }
                    rank => {
                        let (rank, home) = (rank as usize, id.home());
                        let why = String::from_utf8_lossy(why);
                        let why = format!("rank {home} reports: {why}");
                        let reported = RankFailure { rank, certain: false, why };
                        RegionCause::Holder(self.net.failure(rank).unwrap_or(reported))
                    }
                };
                self.lose(&entry, cause);
            }
            _ => {}
        }
        Some(())
    }
}
