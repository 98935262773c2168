//! A step of a host's history, as it is told and as it travels.

use crate::id::{HostId, Life};
use crate::wire::{FieldInfo, Reader, Value, WireError, Writer};
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::net::SocketAddr;

/// The cause of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The agent started.
    Started,
    /// The host was held for lost, and said that it is there.
    Returned,
    /// The step was told in another part of the cluster, and its cause did not come along.
    Elsewhere,
    /// The agent left in good order.
    Left,
    /// The agent ended: the kernel of its host said so.
    Ended {
        /// Its exit status; 0: it is not known.
        status: u32,
    },
    /// The host was silent.
    Lost {
        /// The host that waited for it.
        by: HostId,
    },
    /// A later life of the host took its place.
    Replaced {
        /// The incarnation of that life.
        incarnation: u64,
    },
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(|host| host.to_string()))
    }
}

impl Cause {
    /// Returns the cause for people, with hosts called as `name` says.
    pub fn text(&self, name: impl FnOnce(HostId) -> String) -> String {
        match *self {
            Cause::Started => "started".into(),
            Cause::Returned => "returned after a loss".into(),
            Cause::Elsewhere => "told elsewhere".into(),
            Cause::Left => "left".into(),
            Cause::Ended { status: 0 } => "its agent ended, says its kernel".into(),
            Cause::Ended { status } => format!("its agent ended with status {status}"),
            Cause::Lost { by } => format!("silent towards host {}", name(by)),
            Cause::Replaced { incarnation } => format!("replaced by incarnation {incarnation}"),
        }
    }

    /// Returns code and detail on the wire; causes that do not travel are the nearest that do.
    fn code(self) -> (u8, u64) {
        match self {
            Cause::Started => (1, 0),
            Cause::Returned | Cause::Elsewhere => (2, 0),
            Cause::Left => (16, 0),
            Cause::Ended { status } => (17, u64::from(status)),
            Cause::Lost { by } => (18, by.0),
            Cause::Replaced { .. } => (18, 0),
        }
    }

    fn of(code: u8, detail: u64) -> Option<Cause> {
        Some(match (code, detail) {
            (1, 0) => Cause::Started,
            (2, 0) => Cause::Returned,
            (16, 0) => Cause::Left,
            (17, status) => Cause::Ended { status: u32::try_from(status).ok()? },
            (18, by) => Cause::Lost { by: HostId(by) },
            _ => return None,
        })
    }

    /// Returns true if it brings a host into the cluster.
    pub fn is_up(self) -> bool {
        matches!(self, Cause::Started | Cause::Returned)
    }
}

/// One step of a host's history, with what others need to reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The host.
    pub host: HostId,
    /// The life of its agent.
    pub life: Life,
    /// Number of the step in that life: odd, it is there; even, it is not.
    pub number: u32,
    /// Version of the agent.
    pub agent: u32,
    /// The address of its agent.
    pub address: SocketAddr,
    /// The cause.
    pub cause: Cause,
}

impl Record {
    /// Its fields.
    pub const FIELDS: &'static [FieldInfo] = &[
        FieldInfo { offset: 0, size: 8, name: "host" },
        FieldInfo { offset: 8, size: 16, name: "life" },
        FieldInfo { offset: 24, size: 4, name: "number" },
        FieldInfo { offset: 28, size: 4, name: "agent" },
        FieldInfo { offset: 32, size: 18, name: "address" },
        FieldInfo { offset: 50, size: 1, name: "cause" },
        FieldInfo { offset: 51, size: 1, name: "pad" },
        FieldInfo { offset: 52, size: 8, name: "detail" },
    ];

    /// Largest number of a step; the host begins a new life before it comes to it.
    pub const NUMBER_MAX: u32 = u32::MAX - 8;

    /// Returns true if the step says that the host is there.
    pub fn is_up(&self) -> bool {
        self.number % 2 == 1
    }

    /// Returns the order of records of a host: the greater one counts.
    pub fn order(&self) -> (Life, u32) {
        (self.life, self.number)
    }

    /// Returns life and number.
    pub fn step(&self) -> (Life, u32) {
        (self.life, self.number)
    }
}

impl Value for Record {
    const SIZE: usize = 60;

    fn read(from: &mut Reader<'_>) -> Result<Record, WireError> {
        let (host, life) = (from.value()?, from.value()?);
        let (number, agent, address) = (from.value::<u32>()?, from.value()?, from.value()?);
        let code = from.value()?;
        from.pad(1)?;
        let wrong = WireError::Value { name: "cause" };
        let cause = Cause::of(code, from.value()?).ok_or(wrong)?;
        if number == 0 || number > Record::NUMBER_MAX || (number % 2 == 1) != cause.is_up() {
            return Err(WireError::Value { name: "number" });
        }
        Ok(Record { host, life, number, agent, address, cause })
    }

    fn write(&self, to: &mut Writer) {
        let (code, detail) = self.cause.code();
        to.value(&self.host);
        to.value(&self.life);
        to.value(&self.number);
        to.value(&self.agent);
        to.value(&self.address);
        to.bytes(&[code, 0]);
        to.value(&detail);
    }
}

/// A step of a host's history, told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberEvent {
    /// Number of the event on the host that tells it, without gaps.
    pub seq: u64,
    /// The host of the history.
    pub host: HostId,
    /// The life of its agent.
    pub life: Life,
    /// Number of the step in that life, the same on every host: odd, it is there; even, it is not.
    pub number: u32,
    /// The cause.
    pub cause: Cause,
    /// Steps before this one that were over before this host heard of them.
    pub missed: u32,
    /// True if the step, and the next or the one before, were over before this host heard of
    /// them: nothing changed here.
    pub passed: bool,
}

impl MemberEvent {
    /// Returns true if the host is there from this step on.
    pub fn is_up(&self) -> bool {
        self.number % 2 == 1
    }
}

impl fmt::Display for MemberEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.is_up() { "joined" } else { "gone" };
        let MemberEvent { host, life, number, cause, .. } = self;
        write!(f, "{host} {verb} (incarnation {}, step {number}): {cause}", life.incarnation)
    }
}
