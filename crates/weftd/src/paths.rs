//! Datagrams that show that the network leads from each end of a connection to the other's.
//!
//! Each end is in a network namespace of its own, and has given a UDP socket at its address there.
//! A number that nobody else knows goes from one to the address that the other end's connection
//! names, and back. Where both arrive, so do the packets of the connection.

use crate::sys::passing::{self, PathFacts};
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_streams::message::Place;
use weft_streams::pairing::{End, Facts};
use weft_sys::{foreign, Foreign};

/// Length of a number.
const LEN: usize = 16;

/// An end: its socket for datagrams, the number that is to come, and the one that came.
struct Side {
    end: End,
    path: Arc<Foreign>,
    number: [u8; LEN],
    has_come: bool,
}

impl Side {
    /// Sends the number of the other end. A call of the program may have the socket's lock.
    fn send(&self, to: Place, number: [u8; LEN]) {
        let path = Arc::clone(&self.path);
        // Without it the other end is not paired, in time.
        foreign::ask(self.path.user(), move || passing::send_to(&path, to, &number));
    }

    fn look(&mut self) {
        let mut came = [0; LEN + 1];
        // Datagrams of others may be there as well.
        for _ in 0..8 {
            match passing::recv_datagram(&self.path, &mut came) {
                Some(LEN) if came[..LEN] == self.number => self.has_come = true,
                Some(_) => {}
                None => return,
            }
        }
    }
}

/// The paths that were shown, and those that are tried.
#[derive(Default)]
pub struct Paths {
    shown: BTreeMap<End, (Foreign, PathFacts)>,
    tried: Vec<[Side; 2]>,
}

impl Paths {
    /// An end shows a path.
    pub fn shows(&mut self, end: End, path: Foreign, facts: PathFacts) {
        self.forget(end);
        self.shown.insert(end, (path, facts));
    }

    /// An end has none any more.
    pub fn forget(&mut self, end: End) {
        self.shown.remove(&end);
        self.tried.retain(|sides| sides.iter().all(|side| side.end != end));
    }

    /// A program has ended.
    pub fn gone(&mut self, program: u64) {
        self.shown.retain(|end, _| end.0 != program);
        self.tried.retain(|sides| sides.iter().all(|side| side.end.0 != program));
    }

    /// Tries the network between two ends, with these sockets. False: it cannot be tried.
    pub fn begin(&mut self, ends: [(End, Option<Facts>); 2]) -> bool {
        let sides = ends.map(|(end, facts)| {
            let ((path, PathFacts { namespace, place }), facts) =
                (self.shown.remove(&end)?, facts?);
            let path = Arc::new(path);
            let is_of_it = (namespace, place.address()) == (facts.namespace, facts.local.address());
            let number = [weft_link::random_u64(), weft_link::random_u64()].map(u64::to_le_bytes);
            let mut bytes = [0; LEN];
            bytes.copy_from_slice(&number.concat());
            let side = Side { end, path, number: bytes, has_come: false };
            is_of_it.then_some((side, place, facts.remote))
        });
        let [Some((one, of_one, to_other)), Some((other, of_other, to_one))] = sides else {
            return false;
        };
        one.send(to_other.with_port(of_other.port()), other.number);
        other.send(to_one.with_port(of_one.port()), one.number);
        self.tried.push([one, other]);
        true
    }

    /// Looks what has come; returns pairs of ends between which the network leads.
    pub fn look(&mut self) -> Vec<(End, End)> {
        self.tried.iter_mut().flatten().for_each(Side::look);
        let mut proved = Vec::new();
        self.tried.retain(|[one, other]| {
            let leads = one.has_come && other.has_come;
            if leads {
                proved.push((one.end, other.end));
            }
            !leads
        });
        proved
    }
}
