//! Ranks that poll for ever, as those of benchmarks do, over each link on which packets are
//! numbered and acknowledged: timers must run while a rank spins, or one lost packet stops it for
//! ever.
#![allow(non_snake_case)]

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use weft::{Clock, Config, Endpoint, EndpointId, Reliability};
use weft_conformance::{cable, skip};
use weft_link::secure::{JobKey, Mode, Security};
use weft_link::wrap::{FaultSpec, Wrappers};
use weft_link::{Address, Link, LinkError, PacketConfig, PacketLink, UdpConfig, UdpLink};
use weft_link::{TcpConfig, TcpLink};
use weft_link::{XdpConfig, XdpLink};

const TAG: u64 = 5;
/// Messages in both directions, one at a time.
const ROUNDS: u8 = 20;
/// Messages in one direction, several at a time.
const COUNT: usize = 32;
const WINDOW: usize = 8;
/// Bound of a case; reached only when a rank hangs.
const LIMIT: Duration = Duration::from_secs(300);

/// The two ends of a connection, and the faults on it.
#[derive(Clone, Copy)]
struct Waiting {
    link: &'static str,
    reliability: Reliability,
    faults: &'static str,
}

impl Waiting {
    /// Opens the link of the rank on one side.
    fn open(&self, side: usize, me: EndpointId) -> Result<Box<dyn Link>, LinkError> {
        let job_key = JobKey::from_bytes(&[7; 32]).expect("a key of 32 bytes");
        let security = Security { mode: Mode::Auth, job_key, me };
        let interfaces = Some(vec![cable::ENDS[side].to_string()]);
        let link: Box<dyn Link> = match self.link {
            "packet" | "gso" => {
                let trains = self.link == "gso";
                let config = PacketConfig { interfaces, trains, ..PacketConfig::default() };
                Box::new(PacketLink::new(config, security)?)
            }
            "xdp" => {
                let config = XdpConfig { interfaces, ..XdpConfig::default() };
                Box::new(XdpLink::new(config, security)?)
            }
            "tcp" => {
                let v4 = Some(std::net::Ipv4Addr::LOCALHOST);
                let config = TcpConfig { v4, v6: None, host: 1, ..TcpConfig::default() };
                Box::new(TcpLink::new(config, security)?)
            }
            _ => {
                let v4 = Some(std::net::Ipv4Addr::LOCALHOST);
                let config = UdpConfig { v4, v6: None, host: 1, ..UdpConfig::default() };
                Box::new(UdpLink::new(config, security)?)
            }
        };
        let faults: FaultSpec = self.faults.parse().expect("a fault specification");
        let clock = Clock::system();
        let around = Wrappers { faults: Some(faults), ..Wrappers::default() };
        around.around(link, &(Rc::new(move || clock.now()) as weft_link::wrap::Clock))
    }

    /// Runs the rank on one side.
    fn rank(
        &self,
        side: usize,
        (to, from): (Sender<Address>, Receiver<Address>),
    ) -> Result<(), LinkError> {
        let id = EndpointId(weft_link::random_u64());
        let (reliability, spin_us) = (self.reliability, u32::MAX);
        let config = Config { reliability, spin_us, ..Config::default() };
        let links = vec![self.open(side, id)?];
        let endpoint = Endpoint::with_links(config, id, Clock::system(), links);
        to.send(endpoint.address()).expect("the other rank is there");
        let address = from.recv().expect("the other rank is there");
        let peer = endpoint.connect(&address).expect("a way to the other rank");
        for n in 0..ROUNDS {
            for turn in 0..2 {
                let mut bytes = [n; 16];
                if turn == side {
                    endpoint.send_blocking(peer, TAG, &bytes).unwrap();
                } else {
                    bytes.fill(!n);
                    endpoint.recv_blocking(Some(peer), TAG, 0, &mut bytes).unwrap();
                    assert_eq!(bytes, [n; 16]);
                }
            }
        }
        for turn in 0..2 {
            let mut window = VecDeque::new();
            for n in 0..COUNT {
                if window.len() == WINDOW {
                    ended(&endpoint, window.pop_front());
                }
                window.push_back(match turn == side {
                    true => (n, endpoint.send(peer, TAG, message(n))),
                    false => (n, endpoint.recv(Some(peer), TAG, 0, vec![0; message(n).len()])),
                });
            }
            while !window.is_empty() {
                ended(&endpoint, window.pop_front());
            }
        }
        endpoint.close(Duration::from_secs(5));
        Ok(())
    }
}

/// Waits for the end of an operation with message `n`.
fn ended(endpoint: &Endpoint, one: Option<(usize, weft::Operation)>) {
    let (n, operation) = one.expect("an operation");
    let (result, data) = endpoint.block_on(operation);
    assert_eq!(result.unwrap().len, data.len());
    assert!(data == message(n), "message {n}");
}

/// Returns a message: short, of several packets, or long.
fn message(n: usize) -> Vec<u8> {
    vec![n as u8; [16, 1000, 20_000, 150_000][n % 4]]
}

/// Runs two ranks over a connection, each on a thread, in a network namespace of their own; an
/// error if this machine cannot have it.
fn ranks(way: Waiting) -> Result<(), String> {
    cable::lay(1500)?;
    cable::loopback()?;
    let ((to_b, from_a), (to_a, from_b)) = (channel(), channel());
    let b = std::thread::spawn(move || way.rank(1, (to_a, from_a)));
    let a = way.rank(0, (to_b, from_b));
    let b = b.join().unwrap_or_else(|why| std::panic::resume_unwind(why));
    a.and(b).map_err(|e| e.to_string())
}

/// Runs a pair without losses, and one with losses.
fn spin(link: &'static str, reliability: Reliability) {
    // One pair at a time: it uses all of two cores.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    for faults in ["", "loss=3%,seed=11"] {
        let way = Waiting { link, reliability, faults };
        let (tell, told) = channel();
        std::thread::spawn(move || tell.send(ranks(way)));
        match told.recv_timeout(LIMIT) {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return skip(&why),
            Err(why) => panic!("{link} with {faults:?}: a rank hangs or failed: {why}"),
        }
    }
}

#[test]
fn udp__selective() {
    spin("udp", Reliability::Selective);
}

#[test]
fn udp__go_back_n() {
    spin("udp", Reliability::GoBackN);
}

#[test]
fn tcp__selective() {
    spin("tcp", Reliability::Selective);
}

#[test]
fn tcp__go_back_n() {
    spin("tcp", Reliability::GoBackN);
}

#[test]
fn packet__selective() {
    spin("packet", Reliability::Selective);
}

#[test]
fn packet__go_back_n() {
    spin("packet", Reliability::GoBackN);
}

#[test]
fn gso__selective() {
    spin("gso", Reliability::Selective);
}

#[test]
fn gso__go_back_n() {
    spin("gso", Reliability::GoBackN);
}

#[test]
fn xdp__selective() {
    spin("xdp", Reliability::Selective);
}

#[test]
fn xdp__go_back_n() {
    spin("xdp", Reliability::GoBackN);
}
