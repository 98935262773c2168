//! Trains: packets of one size (the last may be shorter), one after the other in one buffer, which
//! one system call sends or receives.

use crate::run::{is_part, Run};
use crate::secure::{Mode, Opened, Secure, TRAILER};
use crate::wrap::Corruptor;
use crate::{Bytes, DataRun, Frame, Sink};
use std::ops::Range;
use weft_core::wire::{self, Data};
use weft_core::PeerId;

/// Seals packets into a buffer, and flips bits of them when faults are injected.
pub(crate) struct Sealer<'a> {
    pub secure: &'a mut Secure,
    pub corruptor: &'a mut Option<Corruptor>,
    /// The buffer.
    pub out: &'a mut [u8],
    /// Highest number of packets.
    pub most: usize,
}

/// A sealed train in its buffer.
#[derive(Default)]
pub(crate) struct Sealed {
    /// Number of packets.
    pub packets: usize,
    /// Length of each packet but the last, in bytes.
    pub segment: usize,
    /// Length of all packets, in bytes.
    pub len: usize,
}

impl Sealer<'_> {
    /// Seals one packet behind the others; returns its length.
    #[inline]
    fn seal(&mut self, at: usize, peer: PeerId, header: &[u8], payload: &[u8]) -> Option<usize> {
        let len = self.secure.seal_into(peer, header, payload, self.out.get_mut(at..)?)?;
        if let Some(corruptor) = self.corruptor {
            corruptor.apply(&mut self.out[at..at + len]);
        }
        Some(len)
    }

    /// Seals as many of the first frames as fit: all for the same peer and of the same size, except
    /// a shorter last one. Returns `None` if the first frame cannot be sent at all.
    #[inline]
    pub fn frames(mut self, frames: &[Frame<'_>]) -> Option<Sealed> {
        let len = |f: &Frame<'_>| f.header.len() + f.payload.len() + self.secure.trailer_len();
        let (peer, segment) = (frames[0].peer, len(&frames[0]));
        let same = |f: &&Frame<'_>| f.peer == peer && len(f) <= segment;
        let fit = frames.iter().take(self.most).take_while(same).count();
        let room = self.out.len();
        let mut train = Sealed { segment, ..Sealed::default() };
        for frame in &frames[..fit] {
            if train.packets > 0 && train.len + segment > room {
                break;
            }
            let sealed = self.seal(train.len, peer, frame.header, frame.payload)?;
            train.packets += 1;
            train.len += sealed;
            if sealed < segment {
                break;
            }
        }
        Some(train)
    }

    /// Seals the packets of a run from index `first` on, as many as fit.
    pub fn run(mut self, run: &DataRun<'_>, first: usize) -> Option<Sealed> {
        let (DataRun { peer, header, payload, .. }, each) = (*run, run.each());
        let segment = header.len() + each + self.secure.trailer_len();
        let most = (self.out.len() / segment).clamp(1, self.most);
        let mut own = [0; 64];
        let own = own.get_mut(..header.len())?;
        own.copy_from_slice(header);
        wire::advance(own, first as u32, (first * each) as u64);
        let mut train = Sealed { segment, ..Sealed::default() };
        for part in payload.get(first * each..)?.chunks_exact(each.max(1)).take(most) {
            train.len += self.seal(train.len, peer, own, part)?;
            wire::advance(own, 1, each as u64);
            train.packets += 1;
        }
        Some(train)
    }
}

/// A received train, of which a part is not delivered yet.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    /// Range in the buffer that is not delivered yet.
    pub rest: Range<usize>,
    /// Length of each packet but the last, in bytes.
    pub segment: usize,
}

/// The result of one step.
pub(crate) struct Step {
    pub packets: usize,
    /// The sender, if the payload of these packets was written to its destination during the check.
    pub run: Option<PeerId>,
}

impl Arrived {
    pub fn nothing() -> Arrived {
        Arrived { rest: 0..0, segment: 1 }
    }

    /// Returns the range of the next packet in the buffer; empty at the end.
    #[inline]
    fn next(&self) -> Range<usize> {
        let start = self.rest.start;
        start..(start + self.segment).min(self.rest.end)
    }

    /// Opens and delivers the next packet, or the next packets as a run. `accept` returns true if
    /// an authentic packet with this header came over a path on which it may come.
    #[inline]
    pub fn step(
        &mut self,
        buffer: &mut [u8],
        budget: usize,
        secure: &mut Secure,
        sink: &mut dyn Sink,
        accept: impl FnOnce(&mut Secure, &Opened, &[u8]) -> bool,
    ) -> Step {
        if let Some(run) = self.run(buffer, budget, secure, sink) {
            return run;
        }
        let range = self.next();
        self.rest.start = range.end;
        let frame = &mut buffer[range];
        let mut step = Step { packets: 0, run: None };
        let Ok(opened) = secure.open(frame) else { return step };
        let (header, payload) = frame[..opened.packet_len].split_at(opened.header_len);
        if accept(secure, &opened, header) {
            sink.frame(None, header, Bytes::from_slice(payload));
            step.packets = 1;
        }
        step
    }

    /// Checks the DATA packets at the front and writes their payload to its destination in one
    /// pass, as long as the prediction holds; delivers them as one run. Returns `None` if the first
    /// packet is not as predicted.
    fn run(
        &mut self,
        buffer: &mut [u8],
        budget: usize,
        secure: &mut Secure,
        sink: &mut dyn Sink,
    ) -> Option<Step> {
        let first = self.next();
        if secure.mode() != Mode::Auth || !is_part(&buffer[first.clone()]) {
            return None;
        }
        let prediction = sink.predict()?;
        let mut run = Run::start(&prediction, &buffer[first.clone()])?;
        let mut next = first.clone();
        let mut peer = None;
        while !next.is_empty() && run.packets() < budget {
            let frame = &mut buffer[next.clone()];
            let Some(len) = frame.len().checked_sub(Data::LEN + TRAILER) else { break };
            let Some(place) = run.place(prediction.memory, frame, len) else { break };
            self.rest.start = next.end;
            let Ok(opened) = secure.open_into(frame, Data::LEN, place) else { break };
            peer = opened.peer;
            run.push(len);
            next = self.next();
        }
        if self.rest.start == first.start {
            return None;
        }
        if !run.deliver(sink) {
            self.deliver_each(buffer, first.start, run.packets(), sink);
        }
        Some(Step { packets: run.packets(), run: peer })
    }

    /// Delivers checked DATA packets one by one.
    fn deliver_each(&self, buffer: &[u8], from: usize, packets: usize, sink: &mut dyn Sink) {
        for frame in buffer[from..self.rest.start].chunks(self.segment).take(packets) {
            let (header, payload) = frame[..frame.len() - TRAILER].split_at(Data::LEN);
            sink.frame(None, header, Bytes::from_slice(payload));
        }
    }
}
