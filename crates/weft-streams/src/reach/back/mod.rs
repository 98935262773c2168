//! Bytes that wait in the ring of an end go back to TCP, as a program without this library is to
//! read them, while the other end is on another host.
//!
//! TCP takes bytes at the other end only, and in order. So the agent of the end that gives, the
//! *giver*, has the other agent, the *lender*, borrow the socket of the other end, by which nothing
//! is sent meanwhile. The giver takes all out that TCP has after the bytes of the ring, and sends
//! everything to the lender, in pieces. The lender sends it once more, by the socket.
//!
//! Messages may be lost, doubled and reordered. Pieces are taken in order and acknowledged; a
//! window of them is under way. Each agent may end at any moment. Bytes that an agent had taken are
//! lost then, and the other one resets the connection, unless it knows that none were taken.

pub mod message;
#[cfg(all(test, not(loom)))]
mod tests;

use message::{BackContent, PIECE};

/// Time after which what was said is said again, in nanoseconds.
const AGAIN: u64 = 20_000_000;
/// The same while bytes by TCP are on their way.
const SOON: u64 = 2_000_000;
/// Longest time until the other end has lent its socket, and without a byte of it by TCP.
const PATIENCE: u64 = 5_000_000_000;
/// Longest time without a word of the other agent, once a socket is lent.
const SILENCE: u64 = 10_000_000_000;
/// Questions for a socket before bytes by TCP are taken out: a call that sends may wait for room.
const PATIENT: u32 = 3;
/// Pieces under way.
const WINDOW: usize = 24;
/// Most bytes of a connection that go back: what the kernels of both hosts hold by default.
pub const TOTAL_MAX: usize = 16 << 20;

/// A step for the agent of the giver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GiverStep {
    /// Tell the other agent something.
    Tell(BackContent),
    /// Take out what TCP has, and say [`Giver::took`]. If all has arrived, [`Giver::gathered`]
    /// follows.
    Take {
        /// True if all has arrived.
        is_all: bool,
    },
    /// The other agent has all bytes: whoever asked is told.
    Given,
    /// They stay where they are, or are lost: then reset the connection.
    Failed {
        /// True if they are lost.
        is_lost: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gives {
    /// Asks for the socket.
    Asks,
    /// The socket is lent; bytes by TCP are on their way.
    Gathers,
    /// Pieces are sent.
    Sends,
    /// The other agent has all.
    Given,
    /// Nothing comes of it; it is known for a while whether bytes are lost.
    Failed { is_lost: bool },
}

/// The end that gives.
#[derive(Debug)]
pub struct Giver {
    state: Gives,
    /// The other agent's number of its end.
    of: u64,
    /// Times that the socket was asked for.
    asked: u32,
    has_taken: bool,
    all: Vec<u8>,
    acked: usize,
    sent: usize,
    next: u64,
    until: u64,
}

impl Giver {
    /// Begins; `of` is the other agent's number of its end. [`Giver::on_time`] says the first
    /// steps.
    pub fn new(now: u64, of: u64) -> Giver {
        let state = Gives::Asks;
        let (next, until) = (now, now + PATIENCE);
        let (asked, all) = (0, Vec::new());
        Giver { state, of, asked, has_taken: false, all, acked: 0, sent: 0, next, until }
    }

    /// True if nothing more is to be done.
    pub fn is_over(&self, now: u64) -> bool {
        match self.state {
            Gives::Given => true,
            Gives::Failed { .. } => self.until <= now,
            _ => false,
        }
    }

    /// Does what is due.
    pub fn on_time(&mut self, now: u64, out: &mut Vec<GiverStep>) {
        let is_late = self.until <= now;
        match self.state {
            Gives::Asks | Gives::Gathers if is_late => self.fails(now, self.has_taken, out),
            // The other agent may have sent them.
            Gives::Sends if is_late => self.fails(now, true, out),
            Gives::Asks | Gives::Gathers if self.next <= now => {
                self.next = now + AGAIN;
                self.asked += 1;
                out.push(GiverStep::Tell(BackContent::Lend { of: self.of }));
                if self.asked > PATIENT {
                    out.push(GiverStep::Take { is_all: false });
                }
            }
            Gives::Sends if self.next <= now => {
                self.sent = self.acked;
                self.send(now, out);
            }
            _ => {}
        }
    }

    /// Takes a message of the other agent.
    pub fn hear(&mut self, now: u64, what: &BackContent, out: &mut Vec<GiverStep>) {
        match self.state {
            Gives::Asks | Gives::Gathers => match what {
                BackContent::Lent(left) => {
                    if self.state == Gives::Asks {
                        (self.state, self.until) = (Gives::Gathers, now + PATIENCE);
                    }
                    self.next = now + SOON;
                    out.push(GiverStep::Take { is_all: *left == 0 });
                }
                BackContent::None => self.fails(now, self.has_taken, out),
                _ => {}
            },
            Gives::Sends => match what {
                BackContent::Have(bytes) => self.is_acked(now, *bytes as usize, out),
                BackContent::None => self.fails(now, true, out),
                _ => {}
            },
            Gives::Failed { is_lost } if matches!(what, BackContent::Lent(_)) => {
                out.push(GiverStep::Tell(BackContent::Over { is_lost }));
            }
            Gives::Given | Gives::Failed { .. } => {}
        }
    }

    /// So many bytes were taken out of TCP.
    pub fn took(&mut self, now: u64, bytes: usize) {
        if bytes > 0 {
            self.has_taken = true;
            self.until = now + PATIENCE;
        }
    }

    /// These are all bytes, in order, at least one.
    pub fn gathered(&mut self, now: u64, all: Vec<u8>, out: &mut Vec<GiverStep>) {
        if self.state == Gives::Gathers {
            (self.state, self.all, self.until) = (Gives::Sends, all, now + SILENCE);
            self.send(now, out);
        }
    }

    /// The bytes cannot be taken out, or are too many.
    pub fn cannot(&mut self, now: u64, out: &mut Vec<GiverStep>) {
        if matches!(self.state, Gives::Asks | Gives::Gathers) {
            self.fails(now, self.has_taken, out);
        }
    }

    fn fails(&mut self, now: u64, is_lost: bool, out: &mut Vec<GiverStep>) {
        (self.state, self.until) = (Gives::Failed { is_lost }, now + SILENCE);
        self.all = Vec::new();
        out.push(GiverStep::Tell(BackContent::Over { is_lost }));
        out.push(GiverStep::Failed { is_lost });
    }

    fn is_acked(&mut self, now: u64, bytes: usize, out: &mut Vec<GiverStep>) {
        if bytes <= self.acked || bytes > self.all.len() {
            return;
        }
        (self.acked, self.until) = (bytes, now + SILENCE);
        self.sent = self.sent.max(bytes);
        if bytes == self.all.len() {
            self.state = Gives::Given;
            self.all = Vec::new();
            return out.push(GiverStep::Given);
        }
        self.send(now, out);
    }

    /// Sends as many pieces as may be under way.
    fn send(&mut self, now: u64, out: &mut Vec<GiverStep>) {
        self.next = now + AGAIN;
        while self.sent < self.all.len() && self.sent < self.acked + WINDOW * PIECE {
            let bytes = self.all[self.sent..].chunks(PIECE).next().unwrap_or_default().to_vec();
            let (at, total) = (self.sent as u32, self.all.len() as u32);
            self.sent += bytes.len();
            out.push(GiverStep::Tell(BackContent::Piece { at, total, bytes }));
        }
    }
}

/// A step for the agent of the lender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LenderStep {
    /// Ask the end to lend its socket.
    Ring,
    /// Tell the other agent [`BackContent::Lent`], with the bytes that are not acknowledged.
    SayLeft,
    /// Tell the other agent something.
    Tell(BackContent),
    /// Send these bytes by the socket, then let its end use it again.
    Put(Vec<u8>),
    /// Let the end use its socket again.
    Free,
    /// Reset the connection, then the same.
    Reset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lends {
    /// The end is asked.
    Rings,
    /// The agent has the socket.
    Lent,
    /// All bytes have come.
    Done { total: u32 },
    /// The socket was not lent, or is not any more.
    Gone,
}

/// The end that lends its socket.
#[derive(Debug)]
pub struct Lender {
    state: Lends,
    have: Vec<u8>,
    next: u64,
    until: u64,
}

impl Lender {
    /// Begins. [`Lender::on_time`] says the first steps.
    pub fn new(now: u64) -> Lender {
        Lender { state: Lends::Rings, have: Vec::new(), next: now, until: now + PATIENCE }
    }

    /// True if nothing more is to be done.
    pub fn is_over(&self, now: u64) -> bool {
        matches!(self.state, Lends::Done { .. } | Lends::Gone) && self.until <= now
    }

    /// True if the end is asked for its socket.
    pub fn awaits(&self) -> bool {
        self.state == Lends::Rings
    }

    /// Does what is due.
    pub fn on_time(&mut self, now: u64, out: &mut Vec<LenderStep>) {
        let is_late = self.until <= now;
        match self.state {
            Lends::Rings if is_late => {
                out.push(LenderStep::Tell(BackContent::None));
                self.leaves(now, LenderStep::Free, out);
            }
            Lends::Rings if self.next <= now => {
                self.next = now + AGAIN;
                out.push(LenderStep::Ring);
            }
            // The other agent may have taken bytes and ended.
            Lends::Lent if is_late => self.leaves(now, LenderStep::Reset, out),
            _ => {}
        }
    }

    /// Takes a message of the other agent.
    pub fn hear(&mut self, now: u64, what: &BackContent, out: &mut Vec<LenderStep>) {
        match (self.state, what) {
            (Lends::Lent, BackContent::Lend { .. }) => {
                self.until = now + SILENCE;
                out.push(LenderStep::SayLeft);
            }
            (Lends::Lent, BackContent::Piece { at, total, bytes }) => {
                self.until = now + SILENCE;
                self.takes(now, (*at, *total), bytes, out);
            }
            (Lends::Done { total }, BackContent::Piece { .. } | BackContent::Lend { .. }) => {
                out.push(LenderStep::Tell(BackContent::Have(total)));
            }
            (Lends::Gone, BackContent::Piece { .. } | BackContent::Lend { .. }) => {
                out.push(LenderStep::Tell(BackContent::None));
            }
            (Lends::Lent, BackContent::Over { is_lost: true }) => {
                self.leaves(now, LenderStep::Reset, out);
            }
            (Lends::Rings | Lends::Lent, BackContent::Over { .. }) => {
                self.leaves(now, LenderStep::Free, out);
            }
            _ => {}
        }
    }

    fn takes(
        &mut self,
        now: u64,
        (at, total): (u32, u32),
        bytes: &[u8],
        out: &mut Vec<LenderStep>,
    ) {
        let is_next = at as usize == self.have.len();
        let fits = self.have.len() + bytes.len() <= total as usize && total as usize <= TOTAL_MAX;
        if is_next && fits {
            self.have.extend_from_slice(bytes);
        }
        out.push(LenderStep::Tell(BackContent::Have(self.have.len() as u32)));
        if is_next && fits && self.have.len() == total as usize {
            (self.state, self.until) = (Lends::Done { total }, now + SILENCE);
            out.push(LenderStep::Put(std::mem::take(&mut self.have)));
        }
    }

    /// The end has lent its socket, and it is the right one; or it has none.
    pub fn lent(&mut self, now: u64, is_lent: bool, out: &mut Vec<LenderStep>) {
        if self.state != Lends::Rings {
            return;
        }
        if is_lent {
            (self.state, self.until) = (Lends::Lent, now + SILENCE);
            out.push(LenderStep::SayLeft);
        } else {
            out.push(LenderStep::Tell(BackContent::None));
            self.leaves(now, LenderStep::Free, out);
        }
    }

    fn leaves(&mut self, now: u64, step: LenderStep, out: &mut Vec<LenderStep>) {
        (self.state, self.until) = (Lends::Gone, now + SILENCE);
        self.have = Vec::new();
        out.push(step);
    }
}
