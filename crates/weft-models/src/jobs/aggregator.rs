//! Short records, gathered into messages.

use crate::channel::{Channel, MESSAGE_MAX};
use crate::net::{Net, RankFailure};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Gathers records of one length for each rank, and sends many in a message.
pub struct Aggregator<N: Net> {
    channel: Channel<N>,
    size: usize,
    /// Most bytes of a message.
    most: usize,
    buffers: RefCell<Vec<Vec<u8>>>,
    sent: Cell<u64>,
    messages: Cell<u64>,
    /// The kind of messages: the number of the run to which their records belong.
    pub(super) run: Cell<u8>,
}

impl<N: Net> Aggregator<N> {
    /// Opens an aggregator of records of `size` bytes; a message has `per_message` at most. All
    /// ranks call this with the same arguments; `number` (0 to 255) tells aggregators apart.
    /// `receive` is called with sender and bytes of each record, inside progress: it must not wait,
    /// and must not own the aggregator.
    ///
    /// # Panics
    /// The number is too large, or a record has no bytes or more than [`MESSAGE_MAX`].
    pub fn open(
        net: &N,
        number: u16,
        size: usize,
        per_message: usize,
        receive: impl Fn(usize, &[u8]) + 'static,
    ) -> Aggregator<N> {
        let receive = move |from: usize, _: u8, record: &[u8]| receive(from, record);
        Aggregator::of_runs(net, number, size, per_message, receive)
    }

    /// Does what [`open`](Aggregator::open) does; `receive` gets the number of the run as well.
    pub(super) fn of_runs(
        net: &N,
        number: u16,
        size: usize,
        per_message: usize,
        receive: impl Fn(usize, u8, &[u8]) + 'static,
    ) -> Aggregator<N> {
        assert!(size > 0, "records have bytes");
        assert!(size <= MESSAGE_MAX, "records have at most {MESSAGE_MAX} bytes");
        let per_message = per_message.clamp(1, MESSAGE_MAX / size);
        let records = move |from: usize, run: u8, bytes: &[u8]| {
            let records = bytes.chunks_exact(size);
            if !records.remainder().is_empty() {
                return weft::telling::error!(
                    "rank {from} sent a part of a record of {size} bytes"
                );
            }
            records.for_each(|record| receive(from, run, record));
        };
        Aggregator {
            channel: Channel::open_again(
                net,
                (super::handlers(number).0, &format!("jobs of queue {number}")),
                Rc::new(records),
            ),
            size,
            most: size * per_message,
            buffers: RefCell::new(vec![Vec::new(); net.size()]),
            sent: Cell::new(0),
            messages: Cell::new(0),
            run: Cell::new(0),
        }
    }

    /// Adds a record for a rank, this one included. It is sent when a message is full, or by
    /// [`flush`](Aggregator::flush).
    ///
    /// # Errors
    /// The rank has failed.
    ///
    /// # Panics
    /// The record has another length, or there is no such rank.
    #[inline]
    pub fn push(&self, to: usize, record: &[u8]) -> Result<(), RankFailure> {
        assert_eq!(record.len(), self.size, "all records have the same length");
        self.push_with(to, |buffer| buffer.extend_from_slice(record))
    }

    /// Adds a record that `put` appends.
    #[inline]
    pub(super) fn push_with(
        &self,
        to: usize,
        put: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), RankFailure> {
        self.sent.set(self.sent.get() + 1);
        let full = {
            let buffer = &mut self.buffers.borrow_mut()[to];
            put(buffer);
            buffer.len() >= self.most
        };
        if full {
            self.send(to)
        } else {
            Ok(())
        }
    }

    /// Sends what has been gathered for a rank. The memory is used again.
    #[inline(never)]
    fn send(&self, to: usize) -> Result<(), RankFailure> {
        let mut buffer = std::mem::take(&mut self.buffers.borrow_mut()[to]);
        if buffer.is_empty() {
            return Ok(());
        }
        self.messages.set(self.messages.get() + 1);
        let sent = self.channel.post(to, self.run.get(), &[&buffer]);
        buffer.clear();
        let mut buffers = self.buffers.borrow_mut();
        if buffers[to].is_empty() {
            buffers[to] = buffer;
        }
        sent
    }

    /// Sends all that has been gathered.
    ///
    /// # Errors
    /// A rank has failed; the others' records are sent.
    pub fn flush(&self) -> Result<(), RankFailure> {
        let all = 0..self.buffers.borrow().len();
        all.map(|to| self.send(to)).fold(Ok(()), Result::and)
    }

    /// True if so much waits for a rank that a program should take a rest: it waits for
    /// [`room`](Aggregator::room), or does something else.
    pub fn is_full(&self, to: usize) -> bool {
        self.channel.is_full(to)
    }

    /// Waits until there is room for more records for a rank.
    pub async fn room(&self, to: usize) {
        self.channel.room(to).await;
    }

    /// The number of records pushed, and of messages sent.
    pub fn counts(&self) -> (u64, u64) {
        (self.sent.get(), self.messages.get())
    }
}
