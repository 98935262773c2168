//! Wrappers pass everything on: a method of a link that they forgot would do nothing.
#![allow(non_snake_case)]

use super::*;
use crate::shm::Block;
use crate::{
    Address, DataRun, Frame, LinkEvent, Network, PeerInfo, Processes, SharedMemory, WaitFd,
};
use std::cell::RefCell;
use weft_core::wire::{emit, Common, Data, Packet};
use weft_core::{LinkCaps, Pulse};

type Calls = Rc<RefCell<Vec<&'static str>>>;

/// Notes each call by its name.
struct Recorder(Calls);

macro_rules! records {
    ($(
        fn $name:ident(&$($own:ident)+ $(, $arg:ident: $ty:ty)*) $(-> $ret:ty = $value:expr)?;
    )+) => {
        $(records!(@ ($($own)+) $name ($($arg: $ty),*) ($($ret, $value)?));)+
    };
    (@ (self) $name:ident ($($arg:ident: $ty:ty),*) ($($ret:ty, $value:expr)?)) => {
        fn $name(&self, $($arg: $ty),*) $(-> $ret)? {
            $(let _ = $arg;)*
            self.0.borrow_mut().push(stringify!($name));
            $($value)?
        }
    };
    (@ (mut self) $name:ident ($($arg:ident: $ty:ty),*) ($($ret:ty, $value:expr)?)) => {
        fn $name(&mut self, $($arg: $ty),*) $(-> $ret)? {
            $(let _ = $arg;)*
            self.0.borrow_mut().push(stringify!($name));
            $($value)?
        }
    };
}

impl Link for Recorder {
    records! {
        fn caps(&self) -> LinkCaps = LinkCaps::network("recorder", 1456);
        fn advertise(&self, address: &mut Address);
        fn connect(&mut self, peer: &PeerInfo) -> Result<LinkCaps, LinkError>
            = Err(LinkError::Unsupported);
        fn disconnect(&mut self, peer: PeerId);
        fn send(&mut self, frames: &[Frame<'_>]) -> usize = 1;
        fn recv(&mut self, budget: usize, sink: &mut dyn Sink) -> usize = 0;
        fn poll_event(&mut self) -> Option<LinkEvent> = None;
        fn wait_fds(&self, out: &mut Vec<WaitFd>);
        fn prepare_wait(&mut self) -> bool = true;
        fn finish_wait(&mut self, ready: bool);
        fn path_text(&self, peer: PeerId) -> String = String::new();
        fn counters(&self, each: &mut dyn FnMut(&'static str, u64));
        fn recv_soon(&mut self, rounds: u32, budget: usize, sink: &mut dyn Sink) -> usize = 0;
    }

    fn memory(&mut self) -> Option<&mut dyn SharedMemory> {
        self.0.borrow_mut().push("memory");
        Some(self)
    }

    fn processes(&mut self) -> Option<&mut dyn Processes> {
        self.0.borrow_mut().push("processes");
        Some(self)
    }

    fn network(&mut self) -> Option<&mut dyn Network> {
        self.0.borrow_mut().push("network");
        Some(self)
    }

    fn movable(&mut self) -> Option<&mut dyn crate::Movable> {
        self.0.borrow_mut().push("movable");
        None
    }
}

impl Processes for Recorder {
    records! {
        fn reject(&mut self, endpoint: EndpointId);
        fn pulse(&self, peer: PeerId) -> Pulse = Pulse::Runs;
    }
}

impl Network for Recorder {
    records! {
        fn send_run(&mut self, run: &DataRun<'_>) -> Option<usize> = Some(1);
        fn doubt(&mut self, peer: PeerId);
        fn has_unanswered(&mut self, peer: PeerId) -> bool = true;
        fn ask_unanswered(&mut self, peer: PeerId);
    }
}

impl SharedMemory for Recorder {
    records! {
        fn room_soon(&mut self, peer: PeerId) -> bool = true;
        fn read_direct(&mut self, peer: PeerId, addr: u64, into: &mut [u8])
            -> Result<(), LinkError> = Ok(());
        fn write_direct(&mut self, peer: PeerId, addr: u64, from: &[u8])
            -> Result<(), LinkError> = Ok(());
        fn add_direct(&mut self, peer: PeerId, addr: u64, n: u64) -> Option<u64> = None;
        fn take_back_memory(&mut self, peer: PeerId);
        fn share(&mut self, peer: PeerId, key: u64, block: &Block) -> bool = true;
        fn take_shared(&mut self, peer: PeerId);
        fn forget_shared(&mut self, peer: PeerId, key: u64);
        fn attentive(&self, peer: PeerId) -> bool = true;
    }
}

struct Nothing;

impl Sink for Nothing {
    fn frame(&mut self, _: Option<PeerId>, _: &[u8], _: Bytes<'_>) {}
}

/// Calls a method of a link, by its name.
fn call(link: &mut dyn Link, method: &str) {
    const P: PeerId = PeerId(3);
    let header = emit(&Common::default(), &Packet::Data(Data { offset: 0 }));
    let (header, payload) = (header.as_slice(), &[0; 8][..]);
    match method {
        "caps" => _ = link.caps(),
        "advertise" => link.advertise(&mut Address::default()),
        "connect" => {
            let address = Address::default();
            let info = PeerInfo { peer: P, session: 0, endpoint: EndpointId(1), address };
            _ = link.connect(&info);
        }
        "disconnect" => link.disconnect(P),
        "send" => _ = link.send(&[Frame { peer: P, header, payload }]),
        "recv" => _ = link.recv(1, &mut Nothing),
        "poll_event" => _ = link.poll_event(),
        "wait_fds" => link.wait_fds(&mut Vec::new()),
        "prepare_wait" => _ = link.prepare_wait(),
        "finish_wait" => link.finish_wait(true),
        "path_text" => _ = link.path_text(P),
        "counters" => link.counters(&mut |_, _| {}),
        "recv_soon" => _ = link.recv_soon(1, 1, &mut Nothing),
        "memory" => _ = link.memory().unwrap(),
        "processes" => _ = link.processes().unwrap(),
        "network" => _ = link.network().unwrap(),
        "reject" => link.processes().unwrap().reject(EndpointId(1)),
        "pulse" => _ = link.processes().unwrap().pulse(P),
        "send_run" => {
            _ = link.network().unwrap().send_run(&DataRun {
                peer: P,
                stripe: 1,
                header,
                payload,
                packets: 1,
            })
        }
        "doubt" => link.network().unwrap().doubt(P),
        "has_unanswered" => _ = link.network().unwrap().has_unanswered(P),
        "ask_unanswered" => link.network().unwrap().ask_unanswered(P),
        "room_soon" => _ = link.memory().unwrap().room_soon(P),
        "read_direct" => _ = link.memory().unwrap().read_direct(P, 0, &mut [0; 8]),
        "write_direct" => _ = link.memory().unwrap().write_direct(P, 0, payload),
        "add_direct" => _ = link.memory().unwrap().add_direct(P, 0, 1),
        "take_back_memory" => link.memory().unwrap().take_back_memory(P),
        "share" => _ = link.memory().unwrap().share(P, 1, &Block::new(4096).unwrap()),
        "take_shared" => link.memory().unwrap().take_shared(P),
        "forget_shared" => link.memory().unwrap().forget_shared(P, 1),
        "attentive" => _ = link.memory().unwrap().attentive(P),
        "movable" => assert!(link.movable().is_none()),
        other => panic!("`{other}` of a link is not tested here: add it"),
    }
}

/// The methods of the traits in `link.rs`.
fn methods() -> Vec<&'static str> {
    let text = include_str!("../link.rs");
    let mut all = Vec::new();
    for name in ["Link", "SharedMemory", "Processes", "Network"] {
        let start = text.find(&format!("pub trait {name}")).unwrap();
        let body = &text[start..];
        let body = &body[..body.find("\n}").unwrap()];
        let of = |line: &'static str| line.strip_prefix("    fn ")?.split('(').next();
        all.extend(body.lines().filter_map(of));
    }
    all
}

#[test]
fn wrappers__pass_every_method_on() {
    let clock: Clock = Rc::new(|| Instant(0));
    let folder = std::env::temp_dir().join(format!("weft-forward-{:x}", crate::random_u64()));
    let capture = Capture { folder: folder.clone(), host: "host".into(), endpoint: EndpointId(1) };
    let all = [
        Wrappers { trace: true, ..Wrappers::default() },
        Wrappers { capture: Some(capture), ..Wrappers::default() },
        Wrappers { faults: Some(FaultSpec::default()), ..Wrappers::default() },
    ];
    assert!(methods().len() > 20);
    for wrappers in all {
        let calls = Calls::default();
        let recorder = Box::new(Recorder(Rc::clone(&calls)));
        let mut link = wrappers.around(recorder, &clock).unwrap();
        for method in methods() {
            calls.borrow_mut().clear();
            call(&mut *link, method);
            let seen = calls.borrow();
            assert!(seen.contains(&method), "{method}: {seen:?} by {wrappers:?}");
        }
    }
    let _ = std::fs::remove_dir_all(folder);
}
