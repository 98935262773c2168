//! Buffers for many messages without tags (`FI_MULTI_RECV`), and the receives behind them.
//!
//! The engine knows receives for one message. While a buffer for many is the oldest, receives wait
//! here, and arrived messages are claimed for them one by one.

use super::state::{fields, Rec, State, Way};
use super::Port;
use crate::sys::abi::{cap, err, ADDR_NONE};
use crate::sys::cq::{Entry, Failure};
use libc::c_void;
use weft_core::engine::types::RecvArgs;
use weft_core::PeerId;

/// A buffer for many messages.
pub struct Multi {
    pub start: *mut u8,
    pub len: usize,
    pub used: usize,
    /// Messages that are being received into it.
    pub arriving: u32,
    /// No more messages go into it.
    pub full: bool,
    pub context: *mut c_void,
    pub report: bool,
}

/// A receive of untagged messages that the engine does not know of yet.
pub enum Waiting {
    Multi { at: usize, source: Option<PeerId> },
    Plain { rec: u32, start: *mut u8, len: usize, source: Option<PeerId> },
}

impl Port {
    /// Hands arrived messages without a tag to the receives that wait here, oldest first.
    pub fn pump(&self, state: &mut State) {
        let mut i = 0;
        while let Some(waiting) = state.waiting.get(i) {
            match *waiting {
                Waiting::Plain { rec, start, len, source } if i == 0 => {
                    // The engine may have it: nothing is before it any more.
                    state.waiting.pop_front();
                    self.post_waiting(state, rec, start, len, source);
                }
                Waiting::Plain { rec, start, len, source } => {
                    match self.endpoint.claim_untagged(source) {
                        Some((claimed, _)) => {
                            state.waiting.remove(i);
                            let _reported = self.receive_claimed(state, rec, claimed, start, len);
                        }
                        None if source.is_none() => return,
                        None => i += 1,
                    }
                }
                Waiting::Multi { at, source } => match self.endpoint.probe_untagged(source) {
                    Some(probed) if state.is_too_long(at, probed.len) => {
                        state.waiting.remove(i);
                        state.fill(at);
                    }
                    Some(_) => self.receive_part(state, i, at, source),
                    // It takes from anybody: there is no message at all.
                    None if source.is_none() => return,
                    None => i += 1,
                },
            }
        }
    }

    pub fn post_waiting(
        &self,
        state: &mut State,
        rec: u32,
        start: *mut u8,
        len: usize,
        source: Option<PeerId>,
    ) {
        let args = RecvArgs {
            source,
            tag: 0,
            ignore: u64::MAX,
            len: len as u64,
            addr: 0,
            context: u64::from(rec),
            untagged: true,
        };
        // SAFETY: the caller gave the memory until the completion.
        match unsafe { self.endpoint.post_recv(start, args) } {
            Ok(id) => state.started(rec, id),
            Err(refused) => {
                let _reported = self.refused(state, rec, refused);
            }
        }
    }

    /// Receives a message that is there into a buffer for many, the `i`th that waits.
    fn receive_part(&self, state: &mut State, i: usize, at: usize, source: Option<PeerId>) {
        let Some((claimed, probed)) = self.endpoint.claim_untagged(source) else { return };
        let least = self.min_multi_recv.get();
        let Some(multi) = state.multis[at].as_mut() else { return };
        let len = (probed.len as usize).min(multi.len - multi.used);
        let start = multi.start.wrapping_add(multi.used);
        multi.used += len;
        multi.arriving += 1;
        multi.full = multi.len - multi.used < least.max(1);
        let rec = Rec {
            op: None,
            context: multi.context,
            flags: cap::RECV | cap::MSG,
            report: multi.report,
            buf: start,
            bounce: None,
            multi: Some(at),
            silent: false,
        };
        if multi.full {
            state.waiting.remove(i);
        }
        match state.keep(rec) {
            Some(rec) => {
                let _reported = self.receive_claimed(state, rec, claimed, start, len);
            }
            None => log::error!("more operations than there are numbers: a message is lost"),
        }
    }
}

impl State {
    /// A buffer for many messages is there.
    pub fn offer_many(
        &mut self,
        start: *mut u8,
        len: usize,
        source: Option<PeerId>,
        context: *mut c_void,
        report: bool,
    ) {
        let multi = Multi { start, len, used: 0, arriving: 0, full: false, context, report };
        let at = self.multis.iter().position(Option::is_none).unwrap_or_else(|| {
            self.multis.push(None);
            self.multis.len() - 1
        });
        self.multis[at] = Some(multi);
        self.waiting.push_back(Waiting::Multi { at, source });
    }

    /// Whether a message does not fit into the rest of a buffer that holds some already.
    fn is_too_long(&self, at: usize, len: u64) -> bool {
        self.multis[at].as_ref().is_some_and(|m| m.used > 0 && len > (m.len - m.used) as u64)
    }

    /// A buffer for many messages takes no more.
    pub fn fill(&mut self, at: usize) {
        let Some(multi) = self.multis[at].as_mut() else { return };
        multi.full = true;
        if multi.arriving > 0 {
            return;
        }
        let (context, start) = (multi.context, multi.start);
        self.multis[at] = None;
        let flags = cap::RECV | cap::MSG | cap::MULTI_RECV;
        let fields = fields(context, flags & !cap::MSG, 0, start, 0, 0);
        self.add(Way::Recv, Entry { fields, source: ADDR_NONE });
    }

    /// A message is in its buffer for many; whether it was the last.
    pub fn part_ended(&mut self, at: usize) -> bool {
        let Some(multi) = self.multis[at].as_mut() else { return false };
        multi.arriving -= 1;
        let last = multi.full && multi.arriving == 0;
        if last {
            self.multis[at] = None;
        }
        last
    }

    /// Takes back a receive that the engine does not know of.
    pub fn cancel_waiting(&mut self, context: *mut c_void) -> bool {
        let of = |w: &Waiting| match w {
            Waiting::Multi { at, .. } => {
                self.multis[*at].as_ref().is_some_and(|m| m.context == context)
            }
            Waiting::Plain { rec, .. } => {
                self.recs[*rec as usize].as_ref().is_some_and(|r| r.context == context)
            }
        };
        let Some(i) = self.waiting.iter().position(of) else { return false };
        let mut flags = cap::RECV | cap::MSG;
        match self.waiting.remove(i) {
            Some(Waiting::Multi { at, .. }) => {
                let arriving = self.multis[at].as_ref().map_or(0, |m| m.arriving);
                if arriving == 0 {
                    flags |= cap::MULTI_RECV;
                    self.multis[at] = None;
                } else if let Some(multi) = self.multis[at].as_mut() {
                    multi.full = true;
                }
            }
            Some(Waiting::Plain { rec, .. }) => {
                self.give_back(rec);
            }
            None => return false,
        }
        self.count(Way::Recv, false);
        self.fail(
            Way::Recv,
            Failure {
                fields: fields(context, flags, 0, std::ptr::null_mut(), 0, 0),
                source: ADDR_NONE,
                olen: 0,
                error: err::ECANCELED,
                text: "cancelled".to_owned(),
            },
        );
        true
    }
}
