//! Operations in progress.

use super::types::{OpKind, Status};
use crate::error::OpError;
use crate::id::PeerId;
use crate::transfer::pull::{Part, Pull};

pub(crate) struct Op {
    /// The peer this operation waits for or is bound to; counted in `Peer::waiting`.
    pub peer: Option<PeerId>,
    pub context: u64,
    /// Packets that refer to the buffer and may still be sent again.
    pub unacked: u32,
    /// True if the completion was reported.
    pub reported: bool,
    /// True if the protocol has ended; the buffer is free once `unacked` is zero.
    pub finished: bool,
    /// True if the result is not wanted: payload is dropped, without a completion.
    pub discard: bool,
    pub status: Status,
    /// The error that the operation ends with, if any.
    pub error: Option<OpError>,
    /// A put, get, atomic operation or message with a receipt counted in `Peer::requests_out`.
    pub request: bool,
    pub kind: Kind,
}

impl Op {
    /// Returns the transfer of data into the buffer, if one is in progress.
    pub fn pull(&mut self) -> Option<&mut Pull> {
        match &mut self.kind {
            Kind::Recv(Recv { state: RecvState::Pull { pull, .. }, .. }) | Kind::Get(pull) => {
                Some(pull)
            }
            _ => None,
        }
    }
}

pub(crate) enum Kind {
    Send(Send),
    Recv(Recv),
    Put(Put),
    Get(Pull),
    Atomic,
}

pub(crate) struct Send {
    pub tag: u64,
    pub len: u64,
    pub flags: u16,
    pub data: u64,
    pub addr: u64,
    pub sent: u64,
    /// Bytes the receiver has asked for.
    pub asked: u64,
    /// True if the RTS was sent.
    pub announced: bool,
    /// True if it is sent at once, and still answered by FIN.
    pub receipt: bool,
}

pub(crate) struct Recv {
    pub len: u64,
    pub addr: u64,
    pub state: RecvState,
}

#[derive(Clone, Copy)]
pub(crate) enum RecvState {
    Posted,
    Eager,
    Pull { msg: u32, addr: u64, pull: Pull },
}

pub(crate) struct Put {
    pub key: u64,
    pub offset: u64,
    pub len: u64,
    pub sent: u64,
}

impl Op {
    pub fn new(peer: Option<PeerId>, context: u64, kind: Kind) -> Op {
        Op {
            peer,
            context,
            unacked: 0,
            reported: false,
            finished: false,
            discard: false,
            status: Status { source: peer, ..Status::default() },
            error: None,
            request: false,
            kind,
        }
    }

    /// Claims the next part of a paced receive: the sender's number of the message, and the part.
    pub fn claim(&mut self, most: u64) -> Option<(u32, Part)> {
        let Kind::Recv(Recv { state: RecvState::Pull { msg, pull, .. }, .. }) = &mut self.kind
        else {
            return None;
        };
        pull.claim_paced(most).map(|part| (*msg, part))
    }

    /// Returns true if a part of a paced receive is still to be claimed.
    pub fn wants_more(&mut self) -> bool {
        self.pull().is_some_and(|pull| pull.wants_more())
    }

    pub fn op_kind(&self) -> OpKind {
        match self.kind {
            Kind::Send(_) => OpKind::Send,
            Kind::Recv(_) => OpKind::Recv,
            Kind::Put(_) => OpKind::Put,
            Kind::Get(_) => OpKind::Get,
            Kind::Atomic => OpKind::Atomic,
        }
    }
}
