//! Bare datagrams between two hosts: find the addresses of the other host that answer, and the
//! longest datagram that reaches it.
//!
//! A question is `weft-way`, 0, the number that its sender gave the address, two bytes of zero, and
//! the sender's number, then zeros up to its length. The answer has 1 in the place of the 0,
//! followed by the length of the question.

use crate::sys;
use crate::threads::Threads;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weft_link::ether::Interfaces;
use weft_link::Ports;

const MAGIC: &[u8; 8] = b"weft-way";
const QUESTION: u8 = 0;
const ANSWER: u8 = 1;
const HEAD: usize = 16;
/// Longest datagram over IPv4.
const LONGEST: usize = 65_507;
/// Time between two sends of the same question.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Longest time until a thread notices that it must end.
const POLL_EVERY: Duration = Duration::from_millis(200);

/// An answer received.
struct Answered {
    index: u8,
    /// Length of the question in bytes.
    len: u32,
    at: Instant,
}

/// Sockets that send questions and answer those of others.
pub struct Reachability {
    /// IPv4 first.
    sockets: Vec<Arc<UdpSocket>>,
    answers: Receiver<Answered>,
    /// Number of questions received, by the number of their sender.
    heard: Arc<Mutex<HashMap<u32, u64>>>,
    number: u32,
    /// End with this value.
    _threads: Threads,
}

fn open(ip: IpAddr, ports: Ports) -> io::Result<UdpSocket> {
    let socket = ports.bind(None, |port| UdpSocket::bind((ip, port)))?;
    socket.set_read_timeout(Some(POLL_EVERY))?;
    sys::unfragmented(socket.as_fd(), ip.is_ipv6())?;
    Ok(socket)
}

/// The thread that receives at one socket.
struct Ear {
    socket: Arc<UdpSocket>,
    number: u32,
    answers: Sender<Answered>,
    heard: Arc<Mutex<HashMap<u32, u64>>>,
    end: Arc<AtomicBool>,
}

impl Ear {
    fn listen(self) {
        let mut bytes = vec![0; LONGEST + 1];
        while !self.end.load(Ordering::Relaxed) {
            // Errors that report lost datagrams count as no answer.
            let Ok((len, from)) = self.socket.recv_from(&mut bytes) else { continue };
            if len < HEAD || bytes[..8] != *MAGIC {
                continue;
            }
            let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
            let (kind, index, number) = (bytes[8], bytes[9], word(12));
            if kind == QUESTION {
                let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
                *heard.entry(number).or_default() += 1;
                let mut answer = bytes[..HEAD].to_vec();
                answer[8] = ANSWER;
                answer.extend((len as u32).to_le_bytes());
                let _ = self.socket.send_to(&answer, from);
            } else if kind == ANSWER && number == self.number && len >= HEAD + 4 {
                let answered = Answered { index, len: word(HEAD), at: Instant::now() };
                let _ = self.answers.send(answered);
            }
        }
    }
}

/// Lists the addresses of this host that others may reach.
pub fn far_addresses() -> Vec<IpAddr> {
    let all = Interfaces::list().map(|all| all.0).unwrap_or_default();
    let ips = all.iter().flat_map(|interface| interface.ips.iter().map(|(ip, _)| *ip));
    let far = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    ips.filter(far).collect()
}

impl Reachability {
    /// Opens a socket of each address family that there is, at ports of this range.
    ///
    /// # Errors
    /// The error of the first family, if none opens.
    pub fn open(ports: Ports) -> io::Result<Reachability> {
        let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let opened = any.map(|ip| open(ip, ports));
        let (mut sockets, mut failed) = (Vec::new(), None);
        for socket in opened {
            match socket {
                Ok(socket) => sockets.push(Arc::new(socket)),
                Err(e) => _ = failed.get_or_insert(e),
            }
        }
        if let (true, Some(e)) = (sockets.is_empty(), failed) {
            return Err(e);
        }
        let (to, answers) = channel();
        let (heard, mut threads) = (Arc::new(Mutex::default()), Threads::default());
        let number = weft_link::random_u64() as u32;
        for socket in &sockets {
            let (socket, answers) = (Arc::clone(socket), to.clone());
            let (heard, end) = (Arc::clone(&heard), Arc::clone(&threads.end));
            let ear = Ear { socket, number, answers, heard, end };
            threads.all.push(std::thread::spawn(move || ear.listen()));
        }
        Ok(Reachability { sockets, answers, heard, number, _threads: threads })
    }

    /// Returns the addresses to which others may send questions, at most 64.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let port = |ip: IpAddr| {
            let socket = self.socket(ip.is_ipv6())?;
            Some(SocketAddr::new(ip, socket.local_addr().ok()?.port()))
        };
        far_addresses().into_iter().filter_map(port).take(64).collect()
    }

    /// Returns the number in the questions of this reachability.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the number of questions received from the reachability with this number.
    pub fn heard(&self, number: u32) -> u64 {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.get(&number).copied().unwrap_or(0)
    }

    fn socket(&self, v6: bool) -> Option<&UdpSocket> {
        let of = |socket: &UdpSocket| socket.local_addr().is_ok_and(|own| own.is_ipv6() == v6);
        self.sockets.iter().map(|socket| &**socket).find(|socket| of(socket))
    }

    fn question(&self, index: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len.max(HEAD)];
        bytes[..8].copy_from_slice(MAGIC);
        (bytes[8], bytes[9]) = (QUESTION, index as u8);
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// Sends questions to all of these addresses until each has answered or the time is over;
    /// returns the time until each answer.
    pub fn ask(&self, to: &[SocketAddr], patience: Duration) -> Vec<Option<Duration>> {
        let mut took = vec![None; to.len()];
        let begun = Instant::now();
        while took.iter().any(Option::is_none) && begun.elapsed() < patience {
            let asked = Instant::now();
            for (at, to) in to.iter().enumerate().filter(|(at, _)| took[*at].is_none()) {
                if let Some(socket) = self.socket(to.is_ipv6()) {
                    // No route counts as no answer.
                    let _ = socket.send_to(&self.question(at, HEAD), to);
                }
            }
            self.answers_until(asked + RETRY_AFTER, |answered| {
                if let Some(took) = took.get_mut(usize::from(answered.index)) {
                    took.get_or_insert(answered.at.saturating_duration_since(asked));
                }
                took.iter().all(Option::is_some)
            });
        }
        took
    }

    /// Returns the longest of these datagrams that is answered. Each is sent a few times; lengths
    /// are those of IP packets.
    pub fn longest(&self, to: SocketAddr, lengths: &[usize]) -> Option<usize> {
        let socket = self.socket(to.is_ipv6())?;
        let headers = if to.is_ipv6() { 48 } else { 28 };
        lengths.iter().copied().find(|&length| {
            let payload = length.saturating_sub(headers).clamp(HEAD, LONGEST);
            let question = self.question(usize::from(u8::MAX), payload);
            (0..5).any(|_| {
                let mut passed = false;
                if socket.send_to(&question, to).is_ok() {
                    self.answers_until(Instant::now() + RETRY_AFTER, |answered| {
                        passed |= answered.len == payload as u32;
                        passed
                    });
                }
                passed
            })
        })
    }

    /// Receives answers until a time, or until `enough` returns true.
    fn answers_until(&self, until: Instant, mut enough: impl FnMut(&Answered) -> bool) {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(left) {
                Ok(answered) if enough(&answered) => return,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn ask__an_agent_that_is_there_answers_and_another_does_not() {
        let [a, b] = [(); 2].map(|()| Reachability::open(Ports::ANY).unwrap());
        let port = b.socket(false).unwrap().local_addr().unwrap().port();
        let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let there = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        // Repeated, because a loaded machine may be slow; the second address never answers.
        let took = (0..100).map(|_| a.ask(&[there, nobody], Duration::from_millis(300)));
        let took = took.into_iter().find(|took| took[0].is_some()).expect("it answers");
        assert!(took[1].is_none(), "{took:?}");
        assert!(b.heard(a.number()) > 0 && a.heard(b.number()) == 0);
        let longest = (0..100).find_map(|_| a.longest(there, &[1 << 20, 9000, 1500]));
        // The first length is longer than any datagram; the others pass over loopback.
        assert!(longest >= Some(9000), "{longest:?}");
    }
}
