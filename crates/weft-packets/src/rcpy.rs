//! Remote-memory copy with a software TLB, after paper 004 (section 5.2.3).
//!
//! The owner of memory exports it; a peer that knows the key copies to it. The sender keeps, for
//! each peer, a direct-mapped table of translations of 64 KiB pages. On a hit the bytes go straight
//! to the page. Inside a host the sender writes them: to a shared mapping if this interface
//! allocated the memory, else through the kernel. Over a network the receiver's port places each
//! packet. On a miss the bytes go in packets; the receiver copies them to the page and answers with
//! the translation. Before an export ends, all peers with translations of it forget them.

use super::send::post;
use super::wire::{name, Invalidate, Kind, Map, Redirect};
use super::{sys, Expecting, Packets, State};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::poll_fn;
use std::ops::Range;
use std::task::Poll;
use weft::endpoint::Denied;
use weft::port::{Awaits, Kept, Port};
use weft::{OpError, PeerFailure, PeerId, Rights};
use weft_core::wire::status;
use weft_link::Bytes;

/// Bytes of a page.
pub(super) const PAGE: u64 = 64 << 10;

#[derive(Clone, Copy)]
struct Entry {
    key: u64,
    page: u64,
    addr: u64,
    len: u32,
}

/// A copy with redirected pages that are not all answered.
struct Waiting {
    to: PeerId,
    left: usize,
    refused: Option<OpError>,
    failed: Option<PeerFailure>,
}

/// A copy that waits for answers, until this is dropped: also by a panic, or with its future.
struct Redirected<'a> {
    packets: &'a Packets,
    number: u32,
}

impl Drop for Redirected<'_> {
    fn drop(&mut self) {
        self.packets.with(|state| state.copies.waiting.remove(&self.number));
    }
}

struct Export {
    /// Memory that this interface allocated. It is not freed while a peer may write to it.
    owned: Option<Kept>,
    addr: u64,
    len: u64,
    /// Peers with translations.
    mapped: BTreeSet<PeerId>,
    /// Peers that got the memory to map.
    shared: BTreeSet<PeerId>,
    /// True if a peer of this host has its address, and so may write there even after this endpoint
    /// has ended.
    exposed: bool,
}

impl Drop for Export {
    fn drop(&mut self) {
        self.owned.take().filter(|_| !self.exposed).into_iter().for_each(sys::free);
    }
}

impl Export {
    fn new(owned: Option<Kept>, addr: u64, len: u64) -> Export {
        Export {
            owned,
            addr,
            len,
            mapped: BTreeSet::new(),
            shared: BTreeSet::new(),
            exposed: false,
        }
    }
}

/// The two sides of remote-memory copy.
pub(super) struct Copies {
    pages: usize,
    tables: HashMap<PeerId, Vec<Option<Entry>>>,
    waiting: BTreeMap<u32, Waiting>,
    next: u32,
    exports: BTreeMap<u64, Export>,
}

/// Memory that peers copy to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The key by which peers name the memory.
    pub key: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Copies {
    pub fn new(pages: usize) -> Copies {
        Copies {
            pages,
            tables: HashMap::new(),
            waiting: BTreeMap::new(),
            next: 0,
            exports: BTreeMap::new(),
        }
    }

    fn slot(&self, key: u64, page: u64) -> usize {
        // Neighbouring pages of a region never share a slot.
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).wrapping_add(page) as usize % self.pages
    }

    fn find(&self, to: PeerId, key: u64, page: u64) -> Option<Entry> {
        let entry = (*self.tables.get(&to)?.get(self.slot(key, page))?)?;
        (entry.key == key && entry.page == page).then_some(entry)
    }

    /// Forgets a failed peer: it has no translations any more, and sends no answers.
    pub fn forget(&mut self, peer: PeerId) {
        self.tables.remove(&peer);
        for copy in self.waiting.values_mut().filter(|copy| copy.to == peer) {
            copy.failed = Some(PeerFailure::Gone);
        }
        for export in self.exports.values_mut() {
            export.mapped.remove(&peer);
            export.shared.remove(&peer);
        }
    }
}

/// The rest of a copy after its direct writes.
struct Rest {
    /// Ranges for one put.
    puts: Vec<Range<usize>>,
    /// Ranges for packets, each within one page.
    misses: Vec<Range<usize>>,
}

/// Adds a range; if it continues the last range, it extends that one.
fn extend(ranges: &mut Vec<Range<usize>>, next: Range<usize>) {
    match ranges.last_mut() {
        Some(last) if last.end == next.start => last.end = next.end,
        _ => ranges.push(next),
    }
}

impl State {
    /// Looks up every page of a copy, and writes the parts that can be written directly.
    fn translate(
        &mut self,
        port: &Port,
        to: PeerId,
        (key, offset): (u64, u64),
        data: &[u8],
    ) -> Rest {
        let mut rest = Rest { puts: Vec::new(), misses: Vec::new() };
        // Runs of pages that are contiguous in both memories.
        let mut runs: Vec<(u64, Range<usize>)> = Vec::new();
        let mut at = 0;
        while at < data.len() {
            let place = offset.saturating_add(at as u64);
            let (page, within) = (place / PAGE, place % PAGE);
            let len = (data.len() - at).min((PAGE - within) as usize);
            let part = at..at + len;
            at += len;
            let hit = self.copies.find(to, key, page);
            let hit = hit.filter(|entry| within + len as u64 <= u64::from(entry.len));
            let Some(entry) = hit else {
                self.stats.rcpy_misses += 1;
                rest.misses.push(part);
                continue;
            };
            self.stats.rcpy_hits += 1;
            let addr = entry.addr + within;
            match runs.last_mut() {
                Some((start, run))
                    if run.end == part.start && *start + run.len() as u64 == addr =>
                {
                    run.end = part.end;
                }
                _ => runs.push((addr, part)),
            }
        }
        for (addr, run) in runs {
            if !sys::write_page(port, to, addr, &data[run.clone()]) {
                extend(&mut rest.puts, run);
            }
        }
        rest
    }

    /// Handles REDIRECT: a packet carries a part of a page.
    pub(super) fn on_redirect(&mut self, port: &Port, from: PeerId, bytes: &[u8]) -> Option<()> {
        let (head, data) = Redirect::parse(bytes)?;
        let export = self.copies.exports.get(&head.key);
        let placed = match export {
            Some(_) => port.write_region(head.key, head.offset, data),
            None => Err(Denied::Key),
        };
        self.stats.rcpy_redirects += 1;
        // A part without a place is answered at once: the copy has failed.
        if head.last == 0 && placed.is_ok() {
            return Some(());
        }
        let page = head.offset / PAGE;
        let mut map = Map { key: head.key, page, copy: head.copy, ..Map::default() };
        map.status = match placed {
            Ok(()) => status::OK,
            Err(Denied::Unmapped) => status::UNMAPPED,
            Err(_) => status::REFUSED,
        };
        if let (Ok(()), Some(export)) = (placed, self.copies.exports.get_mut(&head.key)) {
            map.addr = export.addr + page * PAGE;
            map.len = (export.len - page * PAGE).min(PAGE) as u32;
            export.mapped.insert(from);
            export.exposed |= port.endpoint().peer(from).is_direct();
            let block = export.owned.as_ref().and_then(Kept::block);
            let new = block.filter(|_| !export.shared.contains(&from));
            if new.is_some_and(|block| port.share(from, head.key, block)) {
                export.shared.insert(from);
            }
        }
        post(port, from, name(Kind::Map, 0, 0), &map.encode()).ok()
    }

    /// Handles MAP: a peer sends a translation.
    pub(super) fn on_map(&mut self, port: &Port, from: PeerId, bytes: &[u8]) -> Option<()> {
        let (map, _) = Map::parse(bytes)?;
        // If the peer shares the memory itself, it did so before this packet.
        port.take_shared(from);
        let copy = self.copies.waiting.get_mut(&map.copy).filter(|c| c.to == from && c.left > 0)?;
        copy.left -= 1;
        copy.refused = match map.status {
            status::OK => copy.refused,
            status::UNMAPPED => Some(OpError::Unmapped),
            _ => Some(OpError::Refused),
        };
        if map.status == 0 && u64::from(map.len) <= PAGE {
            let (slot, pages) = (self.copies.slot(map.key, map.page), self.copies.pages);
            let table = self.copies.tables.entry(from).or_insert_with(|| vec![None; pages]);
            let entry = Entry { key: map.key, page: map.page, addr: map.addr, len: map.len };
            let old = table[slot].replace(entry);
            let evicted = old.is_some_and(|old| (old.key, old.page) != (map.key, map.page));
            self.stats.rcpy_evictions += u64::from(evicted);
        }
        self.wake_all();
        Some(())
    }

    /// Handles INVALIDATE: the owner ends the export of a region, or a counter.
    pub(super) fn on_invalidate(&mut self, port: &Port, from: PeerId, bytes: &[u8]) -> Option<()> {
        let (head, _) = Invalidate::parse(bytes)?;
        port.forget_shared(from, head.key);
        self.words.forget_word(from, head.key);
        for entry in self.copies.tables.get_mut(&from).into_iter().flatten() {
            if entry.is_some_and(|e| e.key == head.key) {
                *entry = None;
                self.stats.rcpy_invalidations += 1;
            }
        }
        post(port, from, name(Kind::Invalidated, 0, 0), bytes).ok()
    }

    /// Handles INVALIDATED: a peer has forgotten its translations of a region.
    pub(super) fn on_invalidated(&mut self, from: PeerId, bytes: &[u8]) -> Option<()> {
        let (head, _) = Invalidate::parse(bytes)?;
        // For a counter nobody waits.
        if let Some(export) = self.copies.exports.get_mut(&head.key) {
            export.mapped.remove(&from);
            self.wake_all();
        }
        Some(())
    }

    fn outcome(&mut self, copy: u32) -> Option<Result<(), OpError>> {
        let waiting = self.copies.waiting.get(&copy)?;
        let (to, refused) = (waiting.to, waiting.refused);
        let done = match (waiting.failed, waiting.left) {
            (Some(failure), _) => Err(OpError::Peer { peer: to, failure }),
            (None, 0) => refused.map_or(Ok(()), Err),
            (None, _) => return None,
        };
        self.copies.waiting.remove(&copy);
        Some(done)
    }
}

/// The memory that an endpoint exports: peers copy to it with [`rcpy`](Packets::rcpy).
#[derive(Clone, Copy)]
pub struct Exports<'a>(pub(super) &'a Packets);

impl Exports<'_> {
    /// Allocates zeroed memory. From 64 KiB on, peers of this host map it and write to it
    /// themselves, which takes a file descriptor in each process. `None` if no key is left, or this
    /// machine does not have so much memory.
    pub fn make(self, len: usize) -> Option<Exported> {
        let rights = Rights { read: true, write: true };
        let (key, addr, owned) = self.0.port.register_kept(len, rights)?;
        let len = len as u64;
        let export = Export::new(Some(owned), addr, len);
        self.0.with(|state| state.copies.exports.insert(key, export));
        Some(Exported { key, len })
    }

    /// Records memory that was registered under a key.
    pub(super) fn note_export(self, key: u64, addr: u64, len: u64) -> Exported {
        let export = Export::new(None, addr, len);
        self.0.with(|state| state.copies.exports.insert(key, export));
        Exported { key, len }
    }

    /// Copies from exported memory. False if the range is out of bounds.
    pub fn read(self, from: Exported, offset: u64, into: &mut [u8]) -> bool {
        let read = |bytes: &mut [u8]| {
            let start = usize::try_from(offset).ok()?;
            let part = bytes.get(start..start.checked_add(into.len())?)?;
            Bytes::from_slice(part).copy_to(into);
            Some(())
        };
        self.0.endpoint().regions().with(from.key, read).flatten().is_some()
    }

    /// True if memory is exported here under a key.
    pub fn has(self, key: u64) -> bool {
        self.0.with(|state| state.copies.exports.contains_key(&key))
    }

    /// Ends the export of memory as soon as no peer writes to it any more, and returns the memory
    /// if [`make`](Self::make) allocated it. For memory that is not exported, the call does
    /// nothing.
    pub async fn end(self, exported: Exported) -> Option<Vec<u8>> {
        let watched = self.0.begin_unexport(exported);
        poll_fn(|cx| {
            self.0.with(|state| match state.unmapped(exported.key) {
                true => Poll::Ready(()),
                false => {
                    state.wakers.push(cx.waker().clone());
                    Poll::Pending
                }
            })
        })
        .await;
        drop(watched);
        self.0.end_unexport(exported)
    }

    /// Ends an export by [`end`](Self::end), and makes progress until that is done.
    pub fn end_blocking(self, exported: Exported) -> Option<Vec<u8>> {
        let watched = self.0.begin_unexport(exported);
        while !self.0.with(|state| state.unmapped(exported.key)) {
            self.0.endpoint().waiting().wait_for(Awaits::Packet(watched.watched.first().copied()));
        }
        drop(watched);
        self.0.end_unexport(exported)
    }
}

impl Packets {
    /// Returns the memory that this endpoint exports.
    pub fn exports(&self) -> Exports<'_> {
        Exports(self)
    }

    /// Copies `data` to `offset` of memory that a peer exports. The bytes are there when the call
    /// returns.
    ///
    /// # Errors
    /// The peer failed or refused: key, bounds or rights are wrong.
    pub fn rcpy(&self, to: PeerId, key: u64, offset: u64, data: &[u8]) -> Result<(), OpError> {
        let rest = self.begin_rcpy(to, key, offset, data)?;
        if rest.misses.is_empty() {
            if !rest.puts.is_empty() {
                return self.port.put_parts(to, (key, offset), data, &rest.puts);
            }
            self.endpoint().waiting().attend();
            return Ok(());
        }
        let copy = self.expect_copy(to, rest.misses.len());
        for (argument, packet) in self.redirects(to, key, offset, data, &rest.misses, copy.number) {
            let name = name(Kind::Redirect, 0, argument);
            let sent = loop {
                match self.try_post(to, name, &packet) {
                    Err(OpError::Busy) => {
                        self.endpoint().waiting().wait_for(Awaits::Room(Some(to)))
                    }
                    other => break other,
                };
            };
            sent?;
        }
        let put = self.port.put_parts(to, (key, offset), data, &rest.puts);
        let _watch = self.endpoint().peer(to).watch();
        let result = loop {
            if let Some(result) = self.with(|state| state.outcome(copy.number)) {
                break result;
            }
            self.endpoint().waiting().wait_for(Awaits::Room(Some(to)));
        };
        put.and(result)
    }

    /// Copies data to a peer's exported memory as [`rcpy`](Self::rcpy) does, for programs written
    /// as futures.
    ///
    /// # Errors
    /// Returns the errors of [`rcpy`](Self::rcpy).
    pub async fn rcpy_async(
        &self,
        to: PeerId,
        key: u64,
        offset: u64,
        data: &[u8],
    ) -> Result<(), OpError> {
        let rest = self.begin_rcpy(to, key, offset, data)?;
        let mut puts = Vec::new();
        for part in rest.puts {
            let at = offset + part.start as u64;
            puts.push(self.endpoint().put(to, key, at, data[part].to_vec()));
        }
        if !rest.misses.is_empty() {
            let copy = self.expect_copy(to, rest.misses.len());
            let packets = self.redirects(to, key, offset, data, &rest.misses, copy.number);
            for (argument, packet) in packets {
                let name = name(Kind::Redirect, 0, argument);
                while let Err(error) = self.try_post(to, name, &packet) {
                    if error != OpError::Busy {
                        return Err(error);
                    }
                    self.endpoint().sleep(super::BUSY).await;
                }
            }
            let watch = self.endpoint().peer(to).watch();
            let answered = poll_fn(|cx| {
                self.with(|state| match state.outcome(copy.number) {
                    Some(result) => Poll::Ready(result),
                    None => {
                        state.wakers.push(cx.waker().clone());
                        Poll::Pending
                    }
                })
            });
            let result = answered.await;
            drop(watch);
            result?;
        }
        for put in puts {
            put.await.0?;
        }
        Ok(())
    }

    fn begin_rcpy(&self, to: PeerId, key: u64, offset: u64, data: &[u8]) -> Result<Rest, OpError> {
        if let Some(failure) = self.endpoint().peer(to).failure() {
            return Err(OpError::Peer { peer: to, failure });
        }
        // No memory lies there, and the places of its parts would have no number.
        if offset.checked_add(data.len() as u64).is_none() {
            return Err(OpError::Refused);
        }
        Ok(self.with(|state| state.translate(&self.port, to, (key, offset), data)))
    }

    fn expect_copy(&self, to: PeerId, pages: usize) -> Redirected<'_> {
        let number = self.with(|state| {
            let copies = &mut state.copies;
            copies.next = copies.next.wrapping_add(1);
            let waiting = Waiting { to, left: pages, refused: None, failed: None };
            copies.waiting.insert(copies.next, waiting);
            copies.next
        });
        Redirected { packets: self, number }
    }

    /// Returns the packets of the pages that missed.
    fn redirects<'a>(
        &self,
        to: PeerId,
        key: u64,
        offset: u64,
        data: &'a [u8],
        misses: &'a [Range<usize>],
        copy: u32,
    ) -> impl Iterator<Item = (u32, Vec<u8>)> + 'a {
        let room = self.packet_max(to).saturating_sub(Redirect::LEN).max(1);
        misses.iter().flat_map(move |page| {
            let parts = page.clone().step_by(room);
            parts.map(move |start| {
                let end = (start + room).min(page.end);
                let last = u32::from(end == page.end);
                let head = Redirect { key, offset: offset + start as u64, copy, last };
                let mut packet = head.encode().to_vec();
                packet.extend_from_slice(&data[start..end]);
                (last, packet)
            })
        })
    }

    /// Refuses new copies and invalidates peers' translations; returns the peers whose silence is
    /// noticed.
    fn begin_unexport(&self, exported: Exported) -> Expecting {
        let mut expecting = Expecting { packets: self.clone(), watched: Vec::new() };
        let (state, port) = (&mut *self.shared.state.borrow_mut(), &self.port);
        let Some(export) = state.copies.exports.get_mut(&exported.key) else { return expecting };
        port.revoke(exported.key);
        let head = Invalidate { key: exported.key };
        let name = name(Kind::Invalidate, 0, 0);
        export.mapped.retain(|&peer| post(port, peer, name, &head.encode()).is_ok());
        let peers = export.mapped.iter().copied();
        expecting.watched = peers.filter(|&peer| port.endpoint().peer(peer).expect()).collect();
        port.flush();
        expecting
    }

    fn end_unexport(&self, exported: Exported) -> Option<Vec<u8>> {
        let mut export = self.with(|state| state.copies.exports.remove(&exported.key))?;
        self.endpoint().regions().unregister(exported.key);
        export.owned.take().map(sys::into_vec)
    }
}

impl State {
    pub(super) fn address_of(&self, key: u64) -> Option<u64> {
        self.copies.exports.get(&key).map(|export| export.addr)
    }

    fn unmapped(&self, key: u64) -> bool {
        self.copies.exports.get(&key).is_none_or(|export| export.mapped.is_empty())
    }
}
