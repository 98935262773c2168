//! Links around links: fault injection, one log record per packet, capture for Wireshark.
//!
//! A wrapper keeps the contract of the wrapped link; one conformance suite checks both.

mod fault;
#[cfg(test)]
mod forwarding_tests;
mod pcap;
mod pcapng;
mod trace;

pub use fault::{Corruptor, FaultSpec, Faulty, SpecError};
pub use pcap::Pcap;
pub use trace::Traced;

use crate::{Bytes, Link, LinkError, Prediction, Sink};
use std::path::PathBuf;
use std::rc::Rc;
use weft_core::{EndpointId, Instant, PeerId};

/// The clock of a wrapper: the driver's or the simulator's.
pub type Clock = Rc<dyn Fn() -> Instant>;

/// The wrappers of a link. The default has none.
#[derive(Clone, Debug, Default)]
pub struct Wrappers {
    /// Faults to inject. On a network link all except corruption, which has to apply after sealing:
    /// such a link takes a [`Corruptor`]. A link inside the host does not authenticate, so
    /// corruption is refused there: damaged data would be delivered as good.
    pub faults: Option<FaultSpec>,
    /// Log one record per packet.
    pub trace: bool,
    /// The capture of each link's packets.
    pub capture: Option<Capture>,
}

/// Files of captured packets, one for each link: `weft-HOST-PROCESS-ENDPOINT-LINK.pcapng`. Hosts
/// may share the folder and use the same process ids.
#[derive(Clone, Debug)]
pub struct Capture {
    /// The folder; created if it does not exist.
    pub folder: PathBuf,
    /// Name of this host.
    pub host: String,
    /// The endpoint whose packets are captured.
    pub endpoint: EndpointId,
}

impl Capture {
    /// Returns the file for a link of this name.
    pub fn path(&self, link: &str) -> PathBuf {
        let plain = |c: char| if c.is_alphanumeric() || "-.".contains(c) { c } else { '_' };
        let host: String = self.host.chars().map(plain).collect();
        let (process, endpoint) = (std::process::id(), self.endpoint);
        self.folder.join(format!("weft-{host}-{process}-{endpoint}-{link}.pcapng"))
    }

    fn around(&self, link: Box<dyn Link>, clock: &Clock) -> Result<Box<dyn Link>, LinkError> {
        std::fs::create_dir_all(&self.folder).map_err(|source| LinkError::System {
            what: format!("capture into {}", self.folder.display()),
            source,
            fix: "set WEFT_PCAP to a folder that exists or can be made",
        })?;
        let path = self.path(link.caps().name);
        Ok(Box::new(Pcap::create(link, &path, Rc::clone(clock))?))
    }
}

impl Wrappers {
    /// Wraps `link`. Log and capture show the packets after the faults.
    ///
    /// # Errors
    /// The capture file cannot be made; or corruption is requested on a link that would not detect
    /// it.
    pub fn around(&self, link: Box<dyn Link>, clock: &Clock) -> Result<Box<dyn Link>, LinkError> {
        let caps = link.caps();
        if !caps.network && self.faults.is_some_and(|spec| spec.corrupt > 0) {
            return Err(undetected(caps.name));
        }
        let mut link = link;
        if let Some(capture) = &self.capture {
            link = capture.around(link, clock)?;
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

/// Methods of [`Link`] and its parts that a wrapper passes on unchanged to the field named first.
macro_rules! forward {
    ($inner:ident:
        $(fn $name:ident(&$($own:ident)+ $(, $arg:ident: $ty:ty)*) $(-> $ret:ty)?;)+
    ) => {
        $(forward!(@ $inner ($($own)+) $name ($($arg: $ty),*) ($($ret)?));)+
    };
    (@ $inner:ident (self) $name:ident ($($arg:ident: $ty:ty),*) ($($ret:ty)?)) => {
        fn $name(&self, $($arg: $ty),*) $(-> $ret)? {
            self.$inner.$name($($arg),*)
        }
    };
    (@ $inner:ident (mut self) $name:ident ($($arg:ident: $ty:ty),*) ($($ret:ty)?)) => {
        fn $name(&mut self, $($arg: $ty),*) $(-> $ret)? {
            self.$inner.$name($($arg),*)
        }
    };
}
use forward;

/// A wrapper's network, whose method `tell` notes each packet that left in a run.
macro_rules! forward_network {
    ($wrapper:ty, $inner:ident, $tell:ident) => {
        impl crate::Network for $wrapper {
            fn send_run(&mut self, run: &crate::DataRun<'_>) -> Option<usize> {
                let network = self.$inner.network()?;
                let sent = network.send_run(run)?;
                crate::link::each_of(run, sent, |header, payload| {
                    self.$tell(run.peer, header, payload)
                });
                Some(sent)
            }

            forward_paths!($inner);
        }
    };
}
use forward_network;

/// The methods of a [`Network`](crate::Network) that tell paths apart, passed on.
macro_rules! forward_paths {
    ($inner:ident) => {
        fn doubt(&mut self, peer: weft_core::PeerId) {
            self.$inner.network().into_iter().for_each(|network| network.doubt(peer));
        }

        fn has_unanswered(&mut self, peer: weft_core::PeerId) -> bool {
            self.$inner.network().is_some_and(|network| network.has_unanswered(peer))
        }

        fn ask_unanswered(&mut self, peer: weft_core::PeerId) {
            self.$inner.network().into_iter().for_each(|network| network.ask_unanswered(peer));
        }
    };
}
use forward_paths;

/// The methods of `Link` of a wrapper that only looks at packets, whose method `tell` notes each
/// one that left.
macro_rules! forward_seen {
    ($inner:ident, $tell:ident) => {
        forward!($inner:
            fn caps(&self) -> weft_core::LinkCaps;
            fn advertise(&self, address: &mut crate::Address);
            fn path_text(&self, peer: weft_core::PeerId) -> String;
            fn connect(&mut self, peer: &crate::PeerInfo)
                -> Result<weft_core::LinkCaps, crate::LinkError>;
            fn disconnect(&mut self, peer: weft_core::PeerId);
            fn poll_event(&mut self) -> Option<crate::LinkEvent>;
            fn wait_fds(&self, out: &mut Vec<crate::WaitFd>);
            fn finish_wait(&mut self, ready: bool);
            fn counters(&self, each: &mut dyn FnMut(&'static str, u64));
        );

        fn send(&mut self, frames: &[crate::Frame<'_>]) -> usize {
            let sent = self.$inner.send(frames);
            frames[..sent].iter().for_each(|f| self.$tell(f.peer, f.header, f.payload));
            sent
        }
    };
}
use forward_seen;

/// The parts of a link that a wrapper has as its inner link has them: its own network, the inner
/// link's memory and processes.
macro_rules! forward_parts {
    ($inner:ident) => {
        fn memory(&mut self) -> Option<&mut dyn crate::SharedMemory> {
            self.$inner.memory()
        }

        fn processes(&mut self) -> Option<&mut dyn crate::Processes> {
            self.$inner.processes()
        }

        fn movable(&mut self) -> Option<&mut dyn crate::Movable> {
            self.$inner.movable()
        }

        fn network(&mut self) -> Option<&mut dyn crate::Network> {
            match self.$inner.network() {
                Some(_) => Some(self),
                None => None,
            }
        }
    };
}
use forward_parts;

fn undetected(name: &str) -> LinkError {
    let why = "its packets carry no tag, so that damaged ones would be delivered as good";
    LinkError::System {
        what: format!("inject corruption into {name}"),
        source: std::io::Error::new(std::io::ErrorKind::Unsupported, why),
        fix: "corrupt a network link: WEFT_LINK=udp",
    }
}

/// A sink that passes every packet to `see` before it passes it on.
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

    fn predict_for(&mut self, header: &[u8]) -> Option<Prediction<'_>> {
        self.sink.predict_for(header)
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

    /// Returns the path of a new folder of this test, which is not made yet.
    fn fresh() -> PathBuf {
        std::env::temp_dir().join(format!("weft-test-{:016x}", crate::random_u64()))
    }

    fn capture(folder: &std::path::Path, host: &str, endpoint: u64) -> Capture {
        let (folder, host) = (folder.to_owned(), host.to_owned());
        Capture { folder, host, endpoint: EndpointId(endpoint) }
    }

    #[test]
    fn around__everything() {
        let outer = fresh();
        let folder = outer.join("inner");
        let faults = Some(FaultSpec::default());
        let to = capture(&folder, "a", 7);
        let all = Wrappers { faults, trace: true, capture: Some(to.clone()) };
        let names = counters(&all).unwrap();
        assert!(names.contains(&"fault_lost") && names.contains(&"loop_sent"));
        assert!(std::fs::metadata(to.path("loop")).unwrap().len() > 0);
        std::fs::remove_dir_all(outer).unwrap();
    }

    #[test]
    fn around__hosts_and_endpoints_share_a_folder() {
        let folder = fresh();
        let all = [("a", 1), ("b", 1), ("a", 2), ("c/../d e", 1)];
        for (host, endpoint) in all {
            let capture = Some(capture(&folder, host, endpoint));
            counters(&Wrappers { capture, ..Wrappers::default() }).unwrap();
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), all.len());
        std::fs::remove_dir_all(folder).unwrap();
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
    fn around__a_folder_that_cannot_be_made_names_the_setting() {
        let capture = Some(capture("/dev/null/captures".as_ref(), "a", 1));
        let why = counters(&Wrappers { capture, ..Wrappers::default() }).unwrap_err().to_string();
        for part in ["/dev/null/captures", "folder", "WEFT_PCAP"] {
            assert!(why.contains(part), "{why}");
        }
    }
}
