//! The part of a job that is used under its lock: the job itself, groups, and operations by their
//! numbers. Nothing here calls the interpreter.

use crate::fault::{Fault, Kind};
use crate::models::{poll_now, Models};
use crate::sys::Export;
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use weft::{Completion, Refused};
use weft::{Endpoint, Group, Job, OpError, OpId, PeerId, RecvArgs, SendArgs, Started};

/// Messages up to this length are copied, so that their senders do not wait for acknowledgements.
const COPIED_MAX: usize = 4 << 10;

/// The result of an operation.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A message was sent, or all ranks have met.
    Nothing,
    /// A message came: rank, tag, length.
    Came(Option<usize>, u32, usize),
    /// The result of a collective operation for this rank.
    Bytes(Vec<u8>),
    /// The messages of all ranks.
    Parts(Vec<Vec<u8>>),
    /// A number of the package itself.
    Number(u64),
}

/// The end of an operation.
pub type Ended = Result<Outcome, Fault>;

/// Returns the end of a collective operation, once there is one.
type Look = Box<dyn FnMut(&Group) -> Option<Ended>>;

/// A receive: where from, and which tags.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub rank: Option<usize>,
    pub tag: Option<u32>,
}

struct Entry {
    group: u32,
    op: Option<OpId>,
    rank: Option<usize>,
    /// Length of the memory of a receive.
    room: Option<usize>,
    look: Option<Look>,
    ended: Option<Ended>,
}

/// A job with its groups and operations.
pub struct Inside {
    /// The programming models, once one is used. They end before the job does.
    models: Option<Models>,
    job: Job,
    groups: HashMap<u32, Group>,
    entries: HashMap<u64, Entry>,
    begun: u64,
    /// Collective operations that have not ended.
    collectives: Vec<u64>,
    /// Peers whose failure a receive from any rank has reported.
    pub reported: HashSet<PeerId>,
}

/// The number of the group of all ranks.
pub const WORLD: u32 = 0;

impl Inside {
    pub fn new(job: Job) -> Inside {
        let groups = HashMap::from([(WORLD, job.world().clone())]);
        let (entries, collectives, reported) = Default::default();
        Inside { models: None, job, groups, entries, begun: 0, collectives, reported }
    }

    pub fn endpoint(&self) -> &Endpoint {
        self.job.endpoint()
    }

    pub fn world(&self) -> &Group {
        self.job.world()
    }

    /// Returns the programming models.
    ///
    /// # Errors
    /// The endpoint has no packet interface.
    pub fn models(&mut self) -> Result<&mut Models, Fault> {
        let opened = match self.models.take() {
            Some(models) => models,
            None => Models::open(self.job.world())?,
        };
        Ok(self.models.insert(opened))
    }

    /// Returns the programming models if one is used.
    pub fn used_models(&mut self) -> Option<&mut Models> {
        self.models.as_mut()
    }

    /// True if the objects of the program have something to do.
    pub fn has_events(&self) -> bool {
        self.models.as_ref().is_some_and(Models::has_events)
    }

    /// Starts an operation of a model. `Err`: its number, under which it ends later.
    pub fn start<T: 'static, E: Into<Fault> + 'static>(
        &mut self,
        work: impl Future<Output = Result<T, E>> + 'static,
        outcome: impl Fn(T) -> Outcome + 'static,
    ) -> Result<Ended, u64> {
        let mut work = Box::pin(work);
        let mut end = move || match poll_now(work.as_mut()) {
            Poll::Pending => None,
            Poll::Ready(ended) => Some(ended.map(&outcome).map_err(Into::into)),
        };
        if let Some(ended) = end() {
            return Ok(ended);
        }
        let look: Option<Look> = Some(Box::new(move |_: &Group| end()));
        let group = WORLD;
        let entry = Entry { group, op: None, rank: None, room: None, look, ended: None };
        let made = self.insert(entry);
        self.collectives.push(made);
        Err(made)
    }

    pub fn launcher(&self) -> &'static str {
        self.job.launcher()
    }

    pub fn group(&self, number: u32) -> Result<&Group, Fault> {
        let none = || Fault::new(Kind::Finished, "the group was closed");
        self.groups.get(&number).ok_or_else(none)
    }

    /// Makes a group of some ranks of another; returns this process's number there and the number
    /// of ranks. `None` if it is not among them.
    pub fn subset(
        &mut self,
        of: u32,
        ranks: &[usize],
        id: u16,
    ) -> Result<Option<(usize, usize)>, Fault> {
        if self.groups.contains_key(&id.into()) {
            return Err(Fault::argument(format!("this process is in a group {id} already")));
        }
        let group = self.group(of)?;
        if let Some(rank) = ranks.iter().find(|&&rank| rank >= group.size()) {
            let text = format!("no rank {rank} in a group of {} ranks", group.size());
            return Err(Fault::argument(text));
        }
        let twice = |(at, rank): &(usize, &usize)| ranks[..*at].contains(rank);
        if let Some((_, rank)) = ranks.iter().enumerate().find(twice) {
            return Err(Fault::argument(format!("rank {rank} is in the list twice")));
        }
        let Some(made) = group.subset(ranks, id) else { return Ok(None) };
        let place = (made.rank(), made.size());
        self.groups.insert(id.into(), made);
        Ok(Some(place))
    }

    fn peer(&self, group: u32, rank: usize) -> Result<PeerId, Fault> {
        let group = self.group(group)?;
        group.peer(rank).map_err(|error| Fault::of_group(group, &error))
    }

    fn insert(&mut self, entry: Entry) -> u64 {
        self.begun += 1;
        self.entries.insert(self.begun, entry);
        self.begun
    }

    /// Starts a send. `None`: try again after progress. `Some(None)`: the memory is free already.
    pub fn send(
        &mut self,
        (number, to, tag): (u32, usize, u32),
        data: &Export,
        sync: bool,
    ) -> Result<Option<Option<u64>>, Fault> {
        let peer = self.peer(number, to)?;
        let group = self.group(number)?;
        let bits = group.match_bits(tag);
        let again = |refused: Refused| match Fault::of_refusal(group, refused, to) {
            Some(fault) => Err(fault),
            None => Ok(None),
        };
        if !sync && data.len() <= COPIED_MAX {
            return match data.inject(self.endpoint(), peer, bits) {
                Ok(()) => Ok(Some(None)),
                Err(refused) => again(refused),
            };
        }
        let context = self.begun + 1;
        let args = SendArgs { sync, context, ..SendArgs::new(peer, bits, data.len() as u64) };
        let op = match data.post_send(self.endpoint(), args) {
            Ok(None) => return Ok(Some(None)),
            Ok(op) => op,
            Err(refused) => return again(refused),
        };
        let rank = Some(to);
        let entry = Entry { group: number, op, rank, room: None, look: None, ended: None };
        Ok(Some(Some(self.insert(entry))))
    }

    /// Returns source, match bits, and the bits that are ignored.
    fn spec(&self, number: u32, wanted: Wanted) -> Result<(Option<PeerId>, u64, u64), Fault> {
        let source = wanted.rank.map(|rank| self.peer(number, rank)).transpose()?;
        let bits = self.group(number)?.match_bits(wanted.tag.unwrap_or(0));
        Ok((source, bits, if wanted.tag.is_some() { 0 } else { u32::MAX.into() }))
    }

    /// Starts a receive. `None`: try again after progress.
    pub fn recv(
        &mut self,
        number: u32,
        wanted: Wanted,
        into: &Export,
    ) -> Result<Option<u64>, Fault> {
        let (source, tag, ignore) = self.spec(number, wanted)?;
        let context = self.begun + 1;
        let args = RecvArgs { source, tag, ignore, len: 0, addr: 0, context, untagged: false };
        let op = match into.post_recv(self.endpoint(), args) {
            Ok(op) => Some(op),
            Err(refused) => {
                let rank = wanted.rank.unwrap_or_default();
                return match Fault::of_refusal(self.group(number)?, refused, rank) {
                    Some(fault) => Err(fault),
                    None => Ok(None),
                };
            }
        };
        let (rank, room) = (wanted.rank, Some(into.len()));
        let entry = Entry { group: number, op, rank, room, look: None, ended: None };
        Ok(Some(self.insert(entry)))
    }

    /// Starts to receive the message that a probe found, into memory of its length. `None`: another
    /// thread has taken it, or there is no room for an operation now; probe again.
    pub fn recv_found(
        &mut self,
        number: u32,
        wanted: Wanted,
        into: &Export,
    ) -> Result<Option<u64>, Fault> {
        let (source, tag, ignore) = self.spec(number, wanted)?;
        let endpoint = self.endpoint();
        let found = endpoint.probe(source, tag, ignore);
        if found.is_none_or(|found| found.len != into.len() as u64) || !endpoint.posted().has_room()
        {
            return Ok(None);
        }
        let Some((claimed, _)) = endpoint.posted().claim(source, tag, ignore) else {
            return Ok(None);
        };
        let context = self.begun + 1;
        let op = into.post_claimed(endpoint, claimed, context);
        let op = op.map_err(|refused| Fault::new(Kind::Busy, refused.to_string()))?;
        let (op, rank, room) = (Some(op), wanted.rank, Some(into.len()));
        let entry = Entry { group: number, op, rank, room, look: None, ended: None };
        Ok(Some(self.insert(entry)))
    }

    /// Looks for a message without receiving it.
    pub fn probe(&self, number: u32, wanted: Wanted) -> Result<Option<Outcome>, Fault> {
        let (source, tag, ignore) = self.spec(number, wanted)?;
        if let Some(found) = self.endpoint().probe(source, tag, ignore) {
            let rank = self.group(number)?.find_rank(found.source);
            return Ok(Some(Outcome::Came(rank, found.tag as u32, found.len as usize)));
        }
        let failure = source.and_then(|peer| Some((peer, self.endpoint().peer(peer).failure()?)));
        match failure {
            Some((peer, failure)) => {
                let error = OpError::Peer { peer, failure };
                Err(Fault::of_op(self.group(number)?, error, wanted.rank))
            }
            None => Ok(None),
        }
    }

    /// Starts a collective operation.
    pub fn collective<T: 'static>(
        &mut self,
        number: u32,
        begin: impl FnOnce(&Group) -> Started<T>,
        outcome: impl Fn(T) -> Outcome + 'static,
    ) -> Result<u64, Fault> {
        let mut started = begin(self.group(number)?);
        let look = move |group: &Group| {
            let mut cx = Context::from_waker(Waker::noop());
            let Poll::Ready(ended) = Pin::new(&mut started).poll(&mut cx) else { return None };
            Some(ended.map(&outcome).map_err(|error| Fault::of_group(group, &error)))
        };
        let look: Option<Look> = Some(Box::new(look));
        let entry = Entry { group: number, op: None, rank: None, room: None, look, ended: None };
        let made = self.insert(entry);
        self.collectives.push(made);
        Ok(made)
    }

    /// Stores the ends of operations.
    pub fn collect(&mut self) {
        while let Some(completion) = self.job.endpoint().posted().poll() {
            self.complete(&completion);
        }
        if self.collectives.is_empty() {
            return;
        }
        let (entries, groups) = (&mut self.entries, &self.groups);
        self.collectives.retain(|number| {
            let Some(entry) = entries.get_mut(number) else { return false };
            let Some(group) = groups.get(&entry.group) else { return false };
            entry.ended = entry.look.as_mut().and_then(|look| look(group));
            entry.ended.is_none()
        });
    }

    fn complete(&mut self, completion: &Completion) {
        let Some(entry) = self.entries.get_mut(&completion.context) else { return };
        let Some(group) = self.groups.get(&entry.group) else { return };
        let status = completion.status;
        entry.op = None;
        entry.ended = Some(match (completion.error, entry.room) {
            (None, None) => Ok(Outcome::Nothing),
            (None, Some(_)) => {
                let rank = status.source.and_then(|peer| group.find_rank(peer));
                Ok(Outcome::Came(rank, status.tag as u32, status.len as usize))
            }
            (Some(OpError::Truncated { sent }), room) => {
                let rank = status.source.and_then(|peer| group.find_rank(peer));
                let of = rank.map(|rank| format!(" of rank {rank}")).unwrap_or_default();
                let room = room.unwrap_or_default();
                let text = format!(
                    "a message{of} of {sent} bytes, and room for {room}: its first part is there"
                );
                Err(Fault::new(Kind::Truncated, text))
            }
            (Some(error), _) => Err(Fault::of_op(group, error, entry.rank)),
        });
    }

    /// Returns the group of a receive from any rank that has not ended.
    pub fn any_source(&self, number: u64) -> Option<u32> {
        let entry = self.entries.get(&number)?;
        (entry.room.is_some() && entry.rank.is_none()).then_some(entry.group)
    }

    /// Returns true if an operation has ended.
    pub fn is_done(&self, number: u64) -> bool {
        self.entries.get(&number).is_none_or(|entry| entry.ended.is_some())
    }

    /// Takes the end of an operation, once.
    pub fn take(&mut self, number: u64) -> Option<Ended> {
        self.entries.get(&number)?.ended.as_ref()?;
        self.entries.remove(&number)?.ended
    }

    /// Cancels a receive that has not matched.
    pub fn cancel(&mut self, number: u64) {
        let entry = self.entries.get(&number).filter(|entry| entry.room.is_some());
        if let Some(op) = entry.and_then(|entry| entry.op) {
            self.endpoint().posted().cancel(op);
            self.collect();
        }
    }

    /// Forgets an operation: its memory is not used any more when this returns. A collective
    /// operation runs to its end.
    pub fn forget(&mut self, number: u64) {
        let Some(entry) = self.entries.remove(&number) else { return };
        if let (Some(Ok(Outcome::Number(begun))), Some(models)) = (entry.ended, &mut self.models) {
            // Nobody will end the operation on a region that has begun.
            models.end(begun);
        }
        if let Some(op) = entry.op {
            self.endpoint().posted().take_back(op);
        }
    }

    /// Forgets all operations: their memory is not used any more when this returns.
    pub fn forget_all(&mut self) {
        let all: Vec<u64> = self.entries.keys().copied().collect();
        all.into_iter().for_each(|number| self.forget(number));
    }
}
