//! Receives: takes frames out of streams, checks and delivers them.
//!
//! Bytes are read into one buffer for all streams, and what is a part of a frame at its end is kept
//! with the stream. The payload of a frame of bulk data whose start has arrived is read straight
//! into the memory that the driver predicts for it, together with the header of the next frame: one
//! call a frame, and no copy but the kernel's.

use super::frame::{self, NextFrame, FRAME_MAX, PREFIX};
use super::open::words;
use super::poll::Poll;
use super::streams::{Id, Stage, OTHER};
use super::TcpLink;
use crate::run::{is_part, Run};
use crate::secure::{Mode, Opened, TRAILER};
use crate::{Bytes, Sink};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::time::Instant;
use weft_core::wire::Data;
use weft_sys::epoll::Event;

/// Bytes that are read in one call into the common buffer, after what is kept of a stream.
const READ: usize = 128 << 10;
/// A stream that had data last is polled by itself; all are asked once in this number of polls. So
/// are the sockets that take connections while there is no stream: ranks that use other links poll
/// this one too.
const QUIET: u32 = 16;
/// Calls for one stream before others have their turn.
const CALLS: usize = 16;
/// From this number of missing bytes on, a payload is read into its place.
const DIRECT: usize = 4 << 10;
/// Frames in a row that are not authentic, after which a stream is closed.
const BAD: u8 = 8;
/// Bytes behind a payload that are read with it: trailer, and prefix and header of the next frame.
const TAIL: usize = TRAILER + PREFIX + Data::LEN;

/// A frame whose payload arrives in the memory of a prediction.
pub struct Direct {
    header: [u8; Data::LEN],
    /// Bytes of the payload, and of those there are.
    len: usize,
    got: usize,
    /// Address of the payload's memory.
    place: usize,
    tail: [u8; TAIL],
    tail_got: usize,
}

/// The bytes that were read last, and what is polled.
pub struct TcpReceiver {
    buffer: Box<[u8]>,
    /// The stream of the bytes that are not delivered yet, and their place in the buffer.
    stream: Option<Id>,
    rest: Range<usize>,
    /// The stream that alone had data when all were asked last.
    busy: Option<Id>,
    polls: u32,
    wakes: u32,
    /// The kernel has just reported something.
    woken: bool,
    events: Vec<Event>,
    /// No connection is accepted before this time.
    pub paused: Option<Instant>,
}

/// The result of a read.
enum Read {
    /// This number of packets was delivered, and there may be more bytes.
    More(usize),
    /// This number of packets was delivered; there are no more bytes now.
    Dry(usize),
    /// The stream has ended, after this number of packets.
    Over(usize),
}

impl TcpReceiver {
    pub fn new() -> TcpReceiver {
        TcpReceiver {
            buffer: vec![0; PREFIX + FRAME_MAX + READ].into(),
            stream: None,
            rest: 0..0,
            busy: None,
            polls: 0,
            wakes: 0,
            woken: false,
            events: Vec::new(),
            paused: None,
        }
    }

    /// True if a packet that was read is not delivered yet.
    pub fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Makes the next poll ask about all streams, unless the busy one has something; now and then
    /// all in any case.
    pub fn wake(&mut self) {
        self.polls = 0;
        self.wakes = self.wakes.wrapping_add(1);
        self.woken = !self.wakes.is_multiple_of(QUIET);
    }

    /// Forgets a closed stream.
    pub fn forget(&mut self, id: Id) {
        if self.stream == Some(id) {
            (self.stream, self.rest) = (None, 0..0);
        }
        self.busy = self.busy.filter(|&busy| busy != id);
    }
}

impl TcpLink {
    pub(super) fn recv_frames(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let mut done = self.deliver_rest(budget, sink);
        if !self.wanting.is_empty() {
            self.flush_all();
        }
        let all = self.rx.polls.is_multiple_of(QUIET);
        self.rx.polls = self.rx.polls.wrapping_add(1);
        let busy = self.rx.busy;
        if let Some(id) = busy.filter(|_| done < budget) {
            done += self.read(id, budget - done, sink);
        }
        let found = done > 0 && std::mem::take(&mut self.rx.woken);
        let several = busy.is_none() && self.streams.len() > 0;
        if (all || several) && !found && done < budget && !self.rx.has_rest() {
            done += self.ask_all(budget - done, sink);
        }
        done
    }

    /// Asks the kernel which sockets have something, and handles it.
    fn ask_all(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let mut events = std::mem::take(&mut self.rx.events);
        self.poll.events(&mut events);
        let (mut done, mut readable, mut last) = (0, 0, None);
        for event in events.drain(..) {
            match event.number {
                Poll::TIMER => self.look_after(),
                listener if listener & OTHER != 0 => self.accept((listener & !OTHER) as usize),
                token => {
                    let id = Id::of(token);
                    if event.writable {
                        self.on_writable(id);
                    }
                    if event.readable && done < budget && !self.rx.has_rest() {
                        done += self.read(id, budget - done, sink);
                        (readable, last) = (readable + 1, Some(id));
                    }
                }
            }
        }
        self.rx.events = events;
        if readable > 0 {
            let alone = last.filter(|&id| readable == 1 && self.streams.get(id).is_some());
            self.rx.busy = alone;
        }
        done
    }

    /// Reads from one stream, and delivers packets up to the budget.
    fn read(&mut self, id: Id, budget: usize, sink: &mut dyn Sink) -> usize {
        let mut done = 0;
        for _ in 0..CALLS {
            if done >= budget || self.rx.has_rest() {
                break;
            }
            self.count.received_calls += 1;
            match self.read_once(id, budget - done, sink) {
                Ok(Read::More(n)) => done += n,
                Ok(Read::Dry(n)) => {
                    done += n;
                    break;
                }
                Ok(Read::Over(n)) => {
                    done += n;
                    self.on_end(id);
                    break;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => {
                    self.broken(id, &words(&e));
                    break;
                }
            }
        }
        done
    }

    /// Handles the end of a stream by the other side.
    #[cold]
    fn on_end(&mut self, id: Id) {
        let Some(stream) = self.streams.get(id) else { return };
        match stream.stage {
            Stage::Open if stream.partial.is_empty() && stream.direct.is_none() => {
                // An idle stream, or one of two; what is not acknowledged is sent again.
                self.flush(id);
                self.close(id);
            }
            Stage::Ending(_) => self.close(id),
            _ => self.broken(id, "the other side closed it"),
        }
    }

    #[inline]
    fn read_once(&mut self, id: Id, budget: usize, sink: &mut dyn Sink) -> io::Result<Read> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(Read::Dry(0)) };
        if stream.direct.is_some() {
            return self.read_direct(id, sink);
        }
        let kept = stream.partial.len();
        let room = &mut self.rx.buffer[..kept + READ];
        let n = stream.socket.recv(&mut room[kept..], &mut [])?;
        if n == 0 {
            return Ok(Read::Over(0));
        }
        if stream.mute {
            return Ok(Read::More(0));
        }
        room[..kept].copy_from_slice(&stream.partial);
        stream.partial.clear();
        let skipped = stream.skip.min(n);
        stream.skip -= skipped;
        (self.rx.stream, self.rx.rest) = (Some(id), skipped..kept + n);
        let done = self.deliver_rest(budget, sink);
        Ok(if n < READ { Read::Dry(done) } else { Read::More(done) })
    }

    /// Opens and delivers frames from the buffer, up to the budget. Keeps the start of a frame that
    /// has not arrived as a whole.
    #[inline]
    fn deliver_rest(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let Some(id) = self.rx.stream else { return 0 };
        let trailer = self.secure.trailer_len();
        let mut done = 0;
        while done < budget {
            let bytes = &self.rx.buffer[self.rx.rest.clone()];
            match frame::next(bytes, trailer) {
                NextFrame::Whole(len) => {
                    let Some(n) = self.deliver(id, len, budget - done, sink) else { break };
                    done += n;
                }
                NextFrame::Part(_) | NextFrame::Short => {
                    self.keep_rest(id, sink);
                    break;
                }
                NextFrame::Garbage => {
                    self.count.garbage += 1;
                    self.broken(id, "what came is no frame");
                    break;
                }
            }
        }
        if self.rx.rest.is_empty() {
            self.rx.stream = None;
        }
        self.count.received += done as u64;
        done
    }

    /// Delivers the frame of `len` bytes at the front, or this and further ones as a run. `None` if
    /// the stream was closed.
    #[inline]
    fn deliver(&mut self, id: Id, len: usize, budget: usize, sink: &mut dyn Sink) -> Option<usize> {
        if let Some(packets) = self.deliver_run(id, budget, sink) {
            return Some(packets);
        }
        let start = self.rx.rest.start + PREFIX;
        self.rx.rest.start = start + len;
        let frame = &mut self.rx.buffer[start..start + len];
        let Ok(opened) = self.secure.open(frame) else { return self.refused(id) };
        let Opened { peer, header_len, packet_len } = opened;
        let mut header = [0; weft_core::wire::HEADER_MAX];
        header[..header_len].copy_from_slice(&frame[..header_len]);
        if !self.admit(id, peer, &header[..header_len]) {
            self.broken(id, "a frame of another peer came");
            return None;
        }
        let payload = &self.rx.buffer[start + header_len..start + packet_len];
        sink.frame(None, &header[..header_len], Bytes::from_slice(payload));
        Some(1)
    }

    /// Handles a frame that is not authentic. A stream over which nothing else has come is closed.
    #[cold]
    fn refused(&mut self, id: Id) -> Option<usize> {
        let stream = self.streams.get_mut(id)?;
        stream.trust.bad += 1;
        if stream.trust.heard && stream.trust.bad < BAD {
            return Some(0);
        }
        self.broken(id, "what came is not authentic");
        None
    }

    /// Checks the DATA frames at the front and writes their payload to its destination in one pass,
    /// as long as the prediction holds; delivers them as one run. `None` if the first frame is not
    /// as predicted.
    fn deliver_run(&mut self, id: Id, budget: usize, sink: &mut dyn Sink) -> Option<usize> {
        let TcpLink { rx, secure, streams, .. } = self;
        let stream = streams.get_mut(id)?;
        let start = rx.rest.start;
        if secure.mode() != Mode::Auth
            || !is_part(&rx.buffer[start + PREFIX..])
            || !stream.trust.heard
        {
            return None;
        }
        let peer = stream.peer?;
        let first: [u8; Data::LEN] = *rx.buffer[start + PREFIX..].first_chunk()?;
        let prediction = sink.predict_for(&first)?;
        let mut run = Run::start(&prediction, &first)?;
        while run.packets() < budget {
            let bytes = &mut rx.buffer[rx.rest.clone()];
            let NextFrame::Whole(len) = frame::next(bytes, TRAILER) else { break };
            let frame = &mut bytes[PREFIX..PREFIX + len];
            let Some(payload) = len.checked_sub(Data::LEN + TRAILER) else { break };
            let Some(place) = run.place(prediction.memory, frame, payload) else { break };
            rx.rest.start += PREFIX + len;
            let opened = secure.open_into(frame, Data::LEN, place);
            if opened.is_ok_and(|opened| opened.peer == Some(peer)) {
                run.push(payload);
                continue;
            }
            // Counted as the first of a row; a forged frame more is of no matter.
            stream.trust.bad = stream.trust.bad.saturating_add(1);
            break;
        }
        if rx.rest.start == start {
            return None;
        }
        let (packets, end) = (run.packets(), rx.rest.start);
        (stream.used, stream.trust.doubted) = (self.care.now, None);
        self.count.received_placed += packets as u64;
        if packets > 0 && !run.deliver(sink) {
            self.deliver_each(start..end, packets, sink);
        }
        Some(packets)
    }

    /// Delivers checked DATA frames one by one.
    fn deliver_each(&self, at: Range<usize>, packets: usize, sink: &mut dyn Sink) {
        let mut bytes = &self.rx.buffer[at];
        for _ in 0..packets {
            let NextFrame::Whole(len) = frame::next(bytes, TRAILER) else { return };
            let (header, payload) = bytes[PREFIX..PREFIX + len - TRAILER].split_at(Data::LEN);
            sink.frame(None, header, Bytes::from_slice(payload));
            bytes = &bytes[PREFIX + len..];
        }
    }

    /// Keeps the start of a frame until more of it arrives.
    fn keep_rest(&mut self, id: Id, sink: &mut dyn Sink) {
        let rest = std::mem::replace(&mut self.rx.rest, 0..0);
        let Some(stream) = self.streams.get_mut(id) else { return };
        let bytes = &self.rx.buffer[rest];
        let expected =
            self.secure.mode() == Mode::Auth && stream.trust.heard && stream.peer.is_some();
        match expected.then(|| Direct::start(bytes, sink)).flatten() {
            Some(direct) => stream.direct = Some(direct),
            None => stream.partial.extend_from_slice(bytes),
        }
    }

    /// Reads the rest of a payload into its place, and what follows it.
    fn read_direct(&mut self, id: Id, sink: &mut dyn Sink) -> io::Result<Read> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(Read::Dry(0)) };
        let Some(direct) = &mut stream.direct else { return Ok(Read::Dry(0)) };
        let header = direct.header;
        let prediction = sink.predict_for(&header);
        let run = prediction.as_ref().and_then(|p| Run::start(p, &header));
        let place = prediction.zip(run).and_then(|(p, run)| {
            let place = run.place(p.memory, &header, direct.len)?;
            (place.as_ptr() as usize == direct.place).then_some((place, run))
        });
        let Some((place, mut run)) = place else {
            // The memory belongs to the program again: its bytes are lost with the frame.
            self.count.places_lost += 1;
            stream.skip = direct.len + TRAILER - direct.got - direct.tail_got;
            stream.direct = None;
            return Ok(Read::More(0));
        };
        let Direct { len, got, tail, tail_got, .. } = direct;
        let asked = *len - *got + TAIL - *tail_got;
        let n = stream.socket.recv(&mut place[*got..], &mut tail[*tail_got..])?;
        if n == 0 {
            return Ok(Read::Over(0));
        }
        let into_place = n.min(*len - *got);
        *got += into_place;
        *tail_got += n - into_place;
        if *got < *len || *tail_got < TRAILER {
            return Ok(Read::Dry(0));
        }
        let (len, more, tail, end) = (*len, n == asked, *tail, *tail_got);
        stream.direct = None;
        let trailer = tail.first_chunk().expect("a tail is longer than a trailer");
        let opened = self.secure.open_parts(&header, place, trailer);
        let authentic = opened.is_ok_and(|opened| opened.peer == stream.peer);
        if authentic {
            stream.used = self.care.now;
            stream.trust.confirm();
            self.count.received += 1;
            self.count.received_placed += 1;
            run.push(len);
            if !run.deliver(sink) {
                self.deliver_placed(&header, len, sink);
            }
        } else if self.refused(id).is_none() {
            return Ok(Read::Dry(0));
        }
        self.go_on(id, &tail[TRAILER..end], sink);
        let done = usize::from(authentic);
        Ok(if more { Read::More(done) } else { Read::Dry(done) })
    }

    /// Begins with the frame of which the first bytes came behind another.
    fn go_on(&mut self, id: Id, bytes: &[u8], sink: &mut dyn Sink) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        match Direct::start(bytes, sink) {
            Some(direct) => stream.direct = Some(direct),
            None => stream.partial.extend_from_slice(bytes),
        }
    }

    /// Delivers a checked packet whose payload is in its place, though it is not its turn.
    #[cold]
    fn deliver_placed(&mut self, header: &[u8; Data::LEN], len: usize, sink: &mut dyn Sink) {
        let copy = &mut self.rx.buffer[..len];
        let Some(p) = sink.predict_for(header) else { return };
        let Some(run) = Run::start(&p, header) else { return };
        let Some(place) = run.place(p.memory, header, len) else { return };
        copy.copy_from_slice(place);
        sink.frame(None, header, Bytes::from_slice(copy));
    }
}

impl Direct {
    /// Begins to receive the frame that starts with `bytes` in the memory of a prediction, if there
    /// is one for it and a larger part is missing.
    fn start(bytes: &[u8], sink: &mut dyn Sink) -> Option<Direct> {
        let NextFrame::Part(frame) = frame::next(bytes, TRAILER) else { return None };
        let bytes = &bytes[PREFIX..];
        let header: [u8; Data::LEN] = *bytes.first_chunk()?;
        let len = frame.checked_sub(Data::LEN + TRAILER)?;
        let bytes = &bytes[Data::LEN..];
        if !is_part(&header) || len.saturating_sub(bytes.len()) < DIRECT {
            return None;
        }
        let prediction = sink.predict_for(&header)?;
        let run = Run::start(&prediction, &header)?;
        let place = run.place(prediction.memory, &header, len)?;
        place[..bytes.len()].copy_from_slice(bytes);
        let place = place.as_ptr() as usize;
        Some(Direct { header, len, got: bytes.len(), place, tail: [0; TAIL], tail_got: 0 })
    }
}
