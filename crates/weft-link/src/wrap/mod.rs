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

use crate::{Bytes, Link, LinkError, Prediction, Sink};
use std::path::PathBuf;
use std::rc::Rc;
use weft_core::{Instant, PeerId};

/// Where a wrapper takes the time from: the driver's clock, or the simulator's.
pub type Clock = Rc<dyn Fn() -> Instant>;

/// What to put around a link. The default puts nothing there.
#[derive(Clone, Debug, Default)]
pub struct Wrappers {
    /// Faults to inject. On a network link all but corruption, which has to strike below the
    /// authentication: such a link takes a [`Corruptor`]. A link inside the host authenticates
    /// nothing and is not wrapped with corruption: damaged data would be delivered as good.
    pub faults: Option<FaultSpec>,
    /// Log a line per packet.
    pub trace: bool,
    /// Folder for capture files, `weft-PROCESS-LINK.pcapng` each.
    pub capture: Option<PathBuf>,
}

impl Wrappers {
    /// Wraps `link`. Log and capture show what faults left.
    ///
    /// # Errors
    /// The capture file cannot be made; corruption is asked for where nothing would detect it.
    pub fn around(&self, link: Box<dyn Link>, clock: &Clock) -> Result<Box<dyn Link>, LinkError> {
        let caps = link.caps();
        if !caps.network && self.faults.is_some_and(|spec| spec.corrupt > 0) {
            return Err(undetected(caps.name));
        }
        let mut link = link;
        if let Some(folder) = &self.capture {
            let name = format!("weft-{}-{}.pcapng", std::process::id(), caps.name);
            link = Box::new(Pcap::create(link, &folder.join(name), Rc::clone(clock))?);
        }
        if self.trace {
            link = Box::new(Traced::new(link));
        }
        if let Some(mut spec) = self.faults {
            if caps.network {
                spec.corrupt = 0;
            }
            link = Box::new(Faulty::new(link, spec, Rc::clone(clock)));
        }
        Ok(link)
    }
}

/// Methods of [`Link`] that a wrapper passes on unchanged to the field named first.
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

        fn way(&self, peer: weft_core::PeerId) -> String {
            self.$inner.way(peer)
        }

        fn pulse(&self, peer: weft_core::PeerId) -> weft_core::Pulse {
            self.$inner.pulse(peer)
        }

        fn reject(&mut self, endpoint: weft_core::EndpointId) {
            self.$inner.reject(endpoint)
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

        fn doubt(&mut self, peer: weft_core::PeerId) {
            self.$inner.doubt(peer)
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

fn undetected(name: &str) -> LinkError {
    let why = "its packets carry no tag, so that damaged ones would be delivered as good";
    LinkError::System {
        what: format!("inject corruption into {name}"),
        source: std::io::Error::new(std::io::ErrorKind::Unsupported, why),
        fix: "corrupt a network link: WEFT_LINK=udp",
    }
}

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

    fn predict(&mut self) -> Option<Prediction<'_>> {
        self.sink.predict()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::looplink::LoopLink;

    fn counters(wrappers: &Wrappers) -> Result<Vec<&'static str>, LinkError> {
        let (a, _b) = LoopLink::pair(1000, 4).unwrap();
        let clock: Clock = Rc::new(|| Instant(0));
        let mut names = Vec::new();
        wrappers.around(Box::new(a), &clock)?.counters(&mut |name, _| names.push(name));
        Ok(names)
    }

    #[test]
    fn around__nothing_by_default() {
        let names = counters(&Wrappers::default()).unwrap();
        assert!(names.iter().all(|n| n.starts_with("loop_")));
    }

    #[test]
    fn around__everything() {
        let folder = std::env::temp_dir();
        let faults = Some(FaultSpec::default());
        let all = Wrappers { faults, trace: true, capture: Some(folder.clone()) };
        let names = counters(&all).unwrap();
        assert!(names.contains(&"fault_lost") && names.contains(&"loop_sent"));
        let file = folder.join(format!("weft-{}-loop.pcapng", std::process::id()));
        assert!(std::fs::metadata(&file).unwrap().len() > 0);
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn around__no_corruption_where_nothing_detects_it() {
        let faults = |text: &str| Some(text.parse().unwrap());
        let corrupt = Wrappers { faults: faults("loss=1%,corrupt=0.1%"), ..Wrappers::default() };
        let why = counters(&corrupt).unwrap_err().to_string();
        for part in ["corruption into loop", "delivered as good", "WEFT_LINK=udp"] {
            assert!(why.contains(part), "{why}");
        }
        assert!(counters(&Wrappers { faults: faults("loss=1%"), ..Wrappers::default() }).is_ok());
    }

    #[test]
    fn around__a_folder_that_is_not_there() {
        let capture = Some(PathBuf::from("/no/such/folder"));
        assert!(counters(&Wrappers { capture, ..Wrappers::default() }).is_err());
    }
}
