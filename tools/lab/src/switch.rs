//! A switch in this process that holds every frame for the same time, so that a lab has delay also
//! where the kernel has no netem.
//!
//! The switch joins the ends of the hosts' veth pairs by packet sockets. Trains of segments pass
//! whole, as through a bridge.

use super::net::port;
use super::spec::Spec;
use super::sys;
use anyhow::{Context, Result};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::{read, write, Errno};
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most bytes of frames held; further frames are dropped and counted.
const CAPACITY: usize = 64 << 20;
/// Bytes of the virtio-net header before each frame.
const HEADER: usize = 10;
/// Longest frame with its header, in bytes.
const LONGEST: usize = HEADER + 18 + 65536;
/// Frames taken from one port before the next port has its turn.
const TURN: usize = 32;

/// A running switch; it ends with its process.
pub struct Switch {
    /// Number of frames dropped because too many were held.
    pub overflowed: Arc<AtomicU64>,
}

struct Frame {
    due: Instant,
    to: Target,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    One(usize),
    AllBut(usize),
}

struct Work {
    spec: Spec,
    delay: Duration,
    ports: Vec<OwnedFd>,
    under_way: VecDeque<Frame>,
    held: usize,
    scratch: Vec<u8>,
    overflowed: Arc<AtomicU64>,
}

impl Switch {
    /// Starts the switch in a thread of its own; called in the namespace that has the ports.
    pub fn start(spec: &Spec, delay: Duration) -> Result<Switch> {
        let ports = (0..spec.hosts)
            .map(|host| sys::tap(&port(host)).with_context(|| port(host)))
            .collect::<Result<Vec<_>>>()?;
        let overflowed = Arc::new(AtomicU64::new(0));
        let work = Work {
            spec: spec.clone(),
            delay,
            ports,
            under_way: VecDeque::new(),
            held: 0,
            scratch: vec![0; LONGEST],
            overflowed: overflowed.clone(),
        };
        std::thread::Builder::new().name("weft-lab-switch".into()).spawn(|| work.run())?;
        Ok(Switch { overflowed })
    }
}

/// Returns the destination of a frame from host `from`.
fn route(spec: &Spec, frame: &[u8], from: usize) -> Option<Target> {
    let to = frame.get(..6)?;
    match spec.host_of_mac(to) {
        Some(host) if host == from => None,
        Some(host) => Some(Target::One(host)),
        None => Some(Target::AllBut(from)),
    }
}

impl Work {
    fn run(mut self) {
        // Slack of a nanosecond; by default a sleeper may oversleep by 50 us.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        loop {
            let left = self.under_way.front().map(|frame| {
                let left = frame.due.saturating_duration_since(Instant::now());
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
            });
            let mut set: Vec<PollFd> =
                self.ports.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            if let Err(e) = poll(&mut set, left.as_ref()) {
                assert_eq!(e, Errno::INTR, "waiting for frames");
                continue;
            }
            let ready: Vec<usize> =
                (0..set.len()).filter(|&at| !set[at].revents().is_empty()).collect();
            drop(set);
            for port in ready {
                self.take(port);
            }
            self.deliver();
        }
    }

    /// Receives the frames that wait at a port.
    fn take(&mut self, from: usize) {
        for _ in 0..TURN {
            // An error means that the interface went down or away with its host.
            let Ok(len) = read(&self.ports[from], &mut self.scratch[..]) else { return };
            let Some(frame) = self.scratch[..len].get(HEADER..) else { continue };
            let Some(to) = route(&self.spec, frame, from) else { continue };
            if self.held + len > CAPACITY {
                self.overflowed.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            self.held += len;
            let (due, bytes) = (Instant::now() + self.delay, self.scratch[..len].to_vec());
            self.under_way.push_back(Frame { due, to, bytes });
        }
    }

    /// Sends the frames that were held for long enough.
    fn deliver(&mut self) {
        let now = Instant::now();
        while self.under_way.front().is_some_and(|frame| frame.due <= now) {
            let Some(frame) = self.under_way.pop_front() else { return };
            let targets = match frame.to {
                Target::One(host) => host..host + 1,
                Target::AllBut(_) => 0..self.ports.len(),
            };
            for host in targets.filter(|&host| frame.to != Target::AllBut(host)) {
                // A full queue behind the port drops frames, as that of a real switch does.
                let _ = write(&self.ports[host], &frame.bytes);
            }
            self.held -= frame.bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::super::spec::Conditions;
    use super::*;

    #[test]
    fn route__knows_hosts_and_floods_the_rest() {
        let conditions = Conditions { mtu: 1500, ..Conditions::default() };
        let spec = Spec::new("x", 3, &conditions, 0).unwrap();
        assert_eq!(route(&spec, &spec.mac(2), 0), Some(Target::One(2)));
        assert_eq!(route(&spec, &spec.mac(0), 0), None);
        assert_eq!(route(&spec, &[0xff; 14], 1), Some(Target::AllBut(1)));
        assert_eq!(route(&spec, &[0x33, 0x33, 0, 0, 0, 1], 1), Some(Target::AllBut(1)));
        assert_eq!(route(&spec, &[2, 0x77], 1), None);
    }
}
