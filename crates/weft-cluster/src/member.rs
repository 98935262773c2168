//! A program's membership of a group.

use crate::client::{nonsense, Connection, Names, NamesError, Spec};
use crate::group::{GroupNotice, To};
use crate::local::{Request, Say};
use std::collections::{BTreeSet, VecDeque};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use weft_names::directory::Gone;

/// Messages after which the agent is told that they were taken; before that, where no other waits.
const TOOK: u32 = 8;

/// Settings of a membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOptions {
    /// Time after which a member that holds up messages of this one is named.
    pub slow_after: Duration,
    /// Time after which it is evicted; `None`: never.
    pub evict_after: Option<Duration>,
}

impl Default for GroupOptions {
    fn default() -> GroupOptions {
        GroupOptions { slow_after: Duration::from_secs(1), evict_after: None }
    }
}

/// A membership of a group, on a connection of its own. It ends with this value, and with the
/// process.
///
/// Members are told of each other, and send to one, any, some or all of the others. Each takes the
/// messages of another one in the order in which they were sent, whatever their receivers were. A
/// member that takes none stops those that send to it, and is named to them.
///
/// ```no_run
/// use std::time::Duration;
/// use weft_cluster::{GroupNotice, GroupOptions, Names, Spec, To};
///
/// # fn main() -> Result<(), weft_cluster::NamesError> {
/// let names = Names::connect()?;
/// let mut chat = names.join(&Spec::new(&"chat:1".parse()?), &GroupOptions::default())?;
/// while let Some(event) = chat.next(Duration::from_secs(60))? {
///     match event {
///         GroupNotice::Joined(_) => {
///             chat.send(To::All, b"welcome", Duration::from_secs(10))?;
///         }
///         GroupNotice::Message { payload, .. } => {
///             println!("{}", String::from_utf8_lossy(&payload));
///         }
///         other => println!("{other:?}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct GroupMember {
    connection: Connection,
    claim: u64,
    events: VecDeque<GroupNotice>,
    seq: u64,
    took: u32,
    /// Messages of this member that others do not have yet.
    open: BTreeSet<u64>,
    /// Others ended the membership.
    ended: Option<Gone>,
}

impl Names {
    /// Makes this program a member of the group of a name's type, with the name's instances.
    ///
    /// # Errors
    /// The agent refuses, as it may refuse a claim, or has ended.
    pub fn join(&self, spec: &Spec, options: &GroupOptions) -> Result<GroupMember, NamesError> {
        let mut connection = self.other()?;
        let ms = |time: Duration| (time.as_millis() as u64).max(1);
        let evict = options.evict_after.map_or(0, ms);
        let request = Request::Join(spec.claimed(), ms(options.slow_after), evict);
        let mut early = Vec::new();
        let claim = match connection.ask(&request, &mut early)? {
            Say::Done(claim) => claim,
            other => return nonsense(other),
        };
        let (events, open) = (VecDeque::new(), BTreeSet::new());
        let mut member =
            GroupMember { connection, claim, events, seq: 0, took: 0, open, ended: None };
        for say in early {
            member.take(say)?;
        }
        Ok(member)
    }
}

impl GroupMember {
    /// Returns a descriptor that is readable when [`GroupMember::next`] may have something.
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.connection.fd()
    }

    fn take(&mut self, say: Say) -> Result<(), NamesError> {
        match say {
            Say::Group(_, seq, notice) => {
                if seq != self.seq + 1 {
                    let why = format!("event {seq} of a group follows event {}", self.seq);
                    return Err(NamesError::Nonsense(why));
                }
                self.seq = seq;
                if let GroupNotice::Settled(number) = notice {
                    self.open.remove(&number);
                }
                self.events.push_back(notice);
                Ok(())
            }
            Say::Lost(_, gone) => {
                self.ended = Some(gone);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Returns the error of a membership that others ended.
    fn goes_on(&self) -> Result<(), NamesError> {
        self.ended.map_or(Ok(()), |gone| Err(NamesError::Put(gone)))
    }

    /// Sends a message of up to 66,000 bytes, and returns its number. It waits at most for a time
    /// until all its receivers take messages. Events tell when all have it
    /// ([`GroupNotice::Settled`]), and who ended before ([`GroupNotice::Returned`]).
    ///
    /// # Errors
    /// There is no such member, a member takes no messages, which is named, or the membership has
    /// ended.
    pub fn send(&mut self, to: To, payload: &[u8], wait: Duration) -> Result<u64, NamesError> {
        self.goes_on()?;
        let (claim, wait_ms) = (self.claim, wait.as_millis() as u64);
        let request = Request::Cast { claim, to, wait_ms, payload: payload.to_vec() };
        let mut events = Vec::new();
        let answer = self.connection.ask_for(&request, &mut events, wait);
        for event in events {
            self.take(event)?;
        }
        self.goes_on()?;
        match answer? {
            Say::Done(number) => {
                self.open.insert(number);
                Ok(number)
            }
            other => nonsense(other),
        }
    }

    /// Takes the next event, and waits for it at most for a time. After the last event of a
    /// membership that others ended each call has the cause.
    ///
    /// # Errors
    /// The membership has ended: another member put this one out, or the agent ended.
    pub fn next(&mut self, limit: Duration) -> Result<Option<GroupNotice>, NamesError> {
        let end = Instant::now() + limit;
        loop {
            if let Some(event) = self.events.pop_front() {
                self.took += u32::from(matches!(event, GroupNotice::Message { .. }));
                if self.took >= TOOK || self.took > 0 && self.events.is_empty() {
                    self.connection.say(&Request::Took(self.claim, self.took))?;
                    self.took = 0;
                }
                return Ok(Some(event));
            }
            self.goes_on()?;
            match self.connection.next(Some(end))? {
                Some((_, say)) => self.take(say)?,
                None => return Ok(None),
            }
        }
    }

    /// Waits at most for a time until all receivers of all messages of this member have them, or
    /// are gone. Events that come meanwhile are kept.
    ///
    /// # Errors
    /// The time is over, or the membership has ended.
    pub fn flush(&mut self, limit: Duration) -> Result<(), NamesError> {
        let end = Instant::now() + limit;
        while !self.open.is_empty() {
            self.goes_on()?;
            match self.connection.next(Some(end))? {
                Some((_, say)) => self.take(say)?,
                None => {
                    let why = format!("{} messages are still under way", self.open.len());
                    return Err(NamesError::Refused(why));
                }
            }
        }
        Ok(())
    }
}
