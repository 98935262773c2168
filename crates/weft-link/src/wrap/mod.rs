//! Links around links: fault injection, a line per packet, capture for Wireshark.
//!
//! A wrapper keeps the contract of the link inside, which one conformance suite checks for both.

mod fault;
mod pcap;
mod pcapng;
mod trace;

pub use fault::{Corruptor, FaultSpec, Faulty, SpecError};
pub use pcap::Pcap;
pub use trace::Traced;

use crate::{Bytes, Prediction, Sink};
use std::rc::Rc;
use weft_core::{Instant, PeerId};

/// Where a wrapper takes the time from: the driver's clock, or the simulator's.
pub type Clock = Rc<dyn Fn() -> Instant>;

/// Methods of [`Link`](crate::Link) that a wrapper passes on unchanged to the field named first.
macro_rules! forward {
    ($inner:ident: $($method:ident)+) => { $( forward!(@ $inner $method); )+ };
    (@ $inner:ident caps) => {
        fn caps(&self) -> weft_core::LinkCaps {
            self.$inner.caps()
        }
    };
    (@ $inner:ident advertise) => {
        fn advertise(&self, address: &mut crate::Address) {
            self.$inner.advertise(address)
        }
    };
    (@ $inner:ident connect) => {
        fn connect(
            &mut self,
            peer: &crate::PeerInfo,
        ) -> Result<weft_core::LinkCaps, crate::LinkError> {
            self.$inner.connect(peer)
        }
    };
    (@ $inner:ident disconnect) => {
        fn disconnect(&mut self, peer: weft_core::PeerId) {
            self.$inner.disconnect(peer)
        }
    };
    (@ $inner:ident poll_event) => {
        fn poll_event(&mut self) -> Option<crate::LinkEvent> {
            self.$inner.poll_event()
        }
    };
    (@ $inner:ident waiting) => {
        fn wait_fds(&self, out: &mut Vec<crate::WaitFd>) {
            self.$inner.wait_fds(out)
        }
        fn finish_wait(&mut self) {
            self.$inner.finish_wait()
        }
    };
    (@ $inner:ident prepare_wait) => {
        fn prepare_wait(&mut self) -> bool {
            self.$inner.prepare_wait()
        }
    };
    (@ $inner:ident direct) => {
        fn read_direct(
            &mut self,
            peer: weft_core::PeerId,
            addr: u64,
            into: &mut [u8],
        ) -> Result<(), crate::LinkError> {
            self.$inner.read_direct(peer, addr, into)
        }
        fn write_direct(
            &mut self,
            peer: weft_core::PeerId,
            addr: u64,
            from: &[u8],
        ) -> Result<(), crate::LinkError> {
            self.$inner.write_direct(peer, addr, from)
        }
    };
    (@ $inner:ident counters) => {
        fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
            self.$inner.counters(each)
        }
    };
}
use forward;

/// A sink that shows every packet to `see` before it passes it on.
struct Tap<'a, F> {
    sink: &'a mut dyn Sink,
    see: F,
}

impl<F: FnMut(Option<PeerId>, &[u8], Bytes<'_>)> Sink for Tap<'_, F> {
    fn frame(&mut self, from: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        (self.see)(from, header, payload);
        self.sink.frame(from, header, payload);
    }

    fn predict(&mut self) -> Option<Prediction> {
        self.sink.predict()
    }
}
