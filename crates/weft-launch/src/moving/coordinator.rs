//! The moves of a job's ranks, as its launcher coordinates them: a state machine without I/O.
//!
//! One rank moves at a time: two that move at once would not find each other's new address. The
//! part of the launcher on the rank's host is the *source*, that on the other host the *target*.
//!
//! ```text
//!             source                        target
//!                                <- take -  makes room, says where
//!   - give ->  holds, copies, sends
//!                                           restores a copy that stands still
//!   - end ->   kills the process, sees it dead
//!                                 <- go --  the copy runs, with new packet numbers
//! ```
//!
//! Until `end` is said, everything can be taken back: the source's process goes on, with packet
//! numbers of its own, and the copy at the target is dropped. From `end` on the move goes through
//! or the rank is lost: without word from the source that its process is dead, no copy runs.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// An order of the launcher to a host of the move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToHost {
    /// To the target: make room for the copy.
    Take,
    /// To the source: hold the rank, copy it and send it to this place.
    Give {
        /// The target's place, as it said.
        place: String,
    },
    /// To the source: kill the process. The copy is whole.
    End,
    /// To the source: the rank goes on where it is, with these packet numbers.
    Resume {
        /// Runs of packet numbers.
        runs: Range<u64>,
    },
    /// To the target: the copy runs, with these packet numbers.
    Go {
        /// Runs of packet numbers.
        runs: Range<u64>,
    },
    /// To the target: there will be no copy.
    Drop,
}

/// Word of a host of the move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromHost {
    /// Target: there is room, at this place.
    Taking {
        /// The place, for the source.
        place: String,
    },
    /// Source: the rank stands still, its links are closed.
    Held,
    /// Source: the process is copied, to so many bytes.
    Copied {
        /// Bytes of the copy.
        bytes: u64,
    },
    /// Source: so many of them have left.
    Sending {
        /// Bytes sent.
        bytes: u64,
    },
    /// Target: the copy stands, whole and still.
    Stands,
    /// Source: the process is dead.
    Dead,
    /// Source or target: the rank runs, and so many peers have not heard where.
    Went {
        /// Number of peers.
        untold: usize,
    },
    /// The order cannot be obeyed.
    Failed {
        /// The reason.
        why: String,
    },
    /// The rank was to run, and does not.
    Broken {
        /// The reason.
        why: String,
    },
}

/// The phases of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// The target makes room.
    Prepare,
    /// The source's rank tells its peers and closes its links.
    Hold,
    /// The process is copied.
    Copy,
    /// The copy is sent and restored.
    Send,
    /// The source's process ends.
    End,
    /// The copy begins to run.
    Go,
    /// The source's process goes on, since the move failed.
    Back,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Prepare => "prepare",
            Phase::Hold => "hold",
            Phase::Copy => "copy",
            Phase::Send => "send",
            Phase::End => "end",
            Phase::Go => "go",
            Phase::Back => "back",
        })
    }
}

/// The end of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The rank runs at the target.
    Moved {
        /// Peers that have not heard of it yet.
        untold: usize,
    },
    /// The rank goes on where it was, as if nothing had been.
    Stayed {
        /// The reason.
        why: String,
    },
    /// No copy of the rank runs.
    Lost {
        /// The reason, with the move.
        why: String,
    },
}

/// A thing that the launcher has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send an order to a host.
    Say {
        /// The host's number.
        host: usize,
        /// The rank that moves.
        rank: usize,
        /// The number of its move.
        number: u32,
        /// The order.
        order: ToHost,
    },
    /// Tell people that a phase begins.
    Began(Phase),
    /// The move is over.
    Over(Outcome),
}

/// Runs of packet numbers under one key: a packet number has 24 bits for its run.
const RUNS_MAX: u64 = 1 << 24;

/// Longest time of each phase without news.
const PATIENCE: Duration = Duration::from_secs(30);

/// A move.
#[derive(Clone, Debug)]
pub struct Move {
    /// The rank.
    pub rank: usize,
    /// The number of the move among those of its rank.
    pub number: u32,
    /// The host where the rank ran before.
    pub source: usize,
    /// The host to which it moves.
    pub target: usize,
    /// The phase.
    pub phase: Phase,
    /// The reason why it is taken back.
    why: String,
    /// Time of the last news.
    at: Duration,
}

/// The packet numbers and moves that a rank has had. No image has them.
#[derive(Clone, Copy, Debug, Default)]
struct Ledger {
    moves: u32,
    next_run: u64,
}

/// The moves of a job.
#[derive(Debug)]
pub struct Coordinator {
    /// Runs of packet numbers for each move.
    each: u64,
    ledgers: HashMap<usize, Ledger>,
    current: Option<Move>,
    actions: VecDeque<Action>,
}

impl Coordinator {
    /// Makes the coordinator of a job of `size` ranks.
    pub fn new(size: usize) -> Coordinator {
        let each = super::runs_of(size);
        let (ledgers, actions) = (HashMap::new(), VecDeque::new());
        Coordinator { each, ledgers, current: None, actions }
    }

    /// Returns the move in progress.
    pub fn current(&self) -> Option<&Move> {
        self.current.as_ref()
    }

    /// Returns what is to be done next.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Begins a move of a rank, which runs on host `source`, to host `target`.
    ///
    /// # Errors
    /// Another rank moves, or the rank has no packet numbers left; the text says so.
    pub fn begin(
        &mut self,
        now: Duration,
        rank: usize,
        (source, target): (usize, usize),
    ) -> Result<u32, String> {
        if let Some(other) = &self.current {
            return Err(format!(
                "rank {} moves now, and one rank of a job moves at a time: try again",
                other.rank
            ));
        }
        if source == target {
            return Err(format!("rank {rank} runs there already"));
        }
        let first = Ledger { moves: 0, next_run: self.each };
        let ledger = self.ledgers.entry(rank).or_insert(first);
        // The move may need two: one to go, one to go back.
        if ledger.next_run + 2 * self.each > RUNS_MAX {
            return Err(format!("rank {rank} has moved {} times, which is the most", ledger.moves));
        }
        ledger.moves += 1;
        let number = ledger.moves;
        let (phase, why, at) = (Phase::Prepare, String::new(), now);
        self.current = Some(Move { rank, number, source, target, phase, why, at });
        self.actions.push_back(Action::Began(Phase::Prepare));
        self.say(target, ToHost::Take);
        Ok(number)
    }

    /// Handles word of a host about a move; word about another move than this one has no effect.
    pub fn handle(&mut self, now: Duration, host: usize, number: u32, word: FromHost) {
        let Some(moving) = self.current.as_mut().filter(|m| m.number == number) else { return };
        let (source, target) = (moving.source, moving.target);
        if host != source && host != target {
            return;
        }
        moving.at = now;
        let from_source = host == source;
        match (moving.phase, from_source, word) {
            (Phase::Prepare, false, FromHost::Taking { place }) => {
                self.enter(Phase::Hold);
                self.say(source, ToHost::Give { place });
            }
            (Phase::Hold, true, FromHost::Held) => self.enter(Phase::Copy),
            (Phase::Copy, true, FromHost::Copied { .. }) => self.enter(Phase::Send),
            // Its word may overtake the source's.
            (Phase::Hold | Phase::Copy | Phase::Send, false, FromHost::Stands) => {
                self.enter(Phase::End);
                self.say(source, ToHost::End);
            }
            (Phase::End, true, FromHost::Dead) => {
                self.enter(Phase::Go);
                let runs = self.grant();
                self.say(target, ToHost::Go { runs });
            }
            (Phase::Go, false, FromHost::Went { untold }) => {
                self.over(Outcome::Moved { untold });
            }
            (Phase::Back, true, FromHost::Went { .. }) => self.stayed(),
            // Of an order before the one to go on.
            (Phase::Back, _, FromHost::Failed { .. }) => {}
            (phase, _, FromHost::Failed { why }) => self.fail(phase, from_source, why),
            (phase, _, FromHost::Broken { why }) => self.fail(phase, false, why),
            // Progress of the copy, and word that crossed an order to take the move back.
            _ => {}
        }
    }

    /// Takes the move back, as its user wishes. False if it is too late for that.
    pub fn cancel(&mut self, now: Duration) -> bool {
        let Some(moving) = &mut self.current else { return false };
        if moving.phase >= Phase::End {
            return false;
        }
        moving.at = now;
        self.take_back("it was cancelled".into());
        true
    }

    /// Handles the loss of a host with all that runs there.
    pub fn lost(&mut self, now: Duration, host: usize) {
        let Some(moving) = &mut self.current else { return };
        moving.at = now;
        let (rank, number, phase) = (moving.rank, moving.number, moving.phase);
        let (source, target) = (moving.source, moving.target);
        if host == target && phase < Phase::End {
            return self.take_back("the host was lost to which it was to move".into());
        }
        if host == target && phase != Phase::Back {
            let why = format!("move {number} broke rank {rank}: its new host was lost");
            return self.over(Outcome::Lost { why });
        }
        // Without word that the process is dead, no copy of it may run. A host that has said so
        // before is not needed any more.
        if host == source && phase != Phase::Go {
            self.say(target, ToHost::Drop);
            let why = format!("rank {rank} was lost with its host in move {number}");
            self.over(Outcome::Lost { why });
        }
    }

    /// Handles the end of a rank by itself: there is nothing to move any more.
    pub fn ended(&mut self, rank: usize) {
        let Some(moving) = self.current.as_ref().filter(|moving| moving.rank == rank) else {
            return;
        };
        let target = moving.target;
        // A copy that runs already is the rank that ended.
        if moving.phase != Phase::Go {
            self.say(target, ToHost::Drop);
        }
        self.over(Outcome::Stayed { why: format!("rank {rank} has ended") });
    }

    /// Takes back a move that makes no progress.
    pub fn handle_timeout(&mut self, now: Duration) {
        let Some(moving) = &mut self.current else { return };
        if now < moving.at + PATIENCE {
            return;
        }
        moving.at = now;
        let (rank, number, phase) = (moving.rank, moving.number, moving.phase);
        match phase {
            Phase::End | Phase::Go | Phase::Back => {
                let target = moving.target;
                self.say(target, ToHost::Drop);
                let why = format!("move {number} broke rank {rank}: no word in phase {phase}");
                self.over(Outcome::Lost { why });
            }
            _ => self.take_back(format!("no word in phase {phase}")),
        }
    }

    /// Returns the time of [`handle_timeout`](Self::handle_timeout).
    pub fn timeout(&self) -> Option<Duration> {
        self.current.as_ref().map(|moving| moving.at + PATIENCE)
    }

    fn enter(&mut self, phase: Phase) {
        if let Some(moving) = &mut self.current {
            moving.phase = phase;
            self.actions.push_back(Action::Began(phase));
        }
    }

    fn say(&mut self, host: usize, order: ToHost) {
        let Some(Move { rank, number, .. }) = self.current else { return };
        self.actions.push_back(Action::Say { host, rank, number, order });
    }

    /// Returns runs of packet numbers that no copy of the moving rank has ever had.
    fn grant(&mut self) -> Range<u64> {
        let rank = self.current.as_ref().map_or(0, |moving| moving.rank);
        let first = Ledger { moves: 0, next_run: self.each };
        let ledger = self.ledgers.entry(rank).or_insert(first);
        let runs = ledger.next_run..ledger.next_run + self.each;
        ledger.next_run = runs.end;
        runs
    }

    fn fail(&mut self, phase: Phase, from_source: bool, why: String) {
        let Some(moving) = &self.current else { return };
        let (rank, number, target) = (moving.rank, moving.number, moving.target);
        match phase {
            // The rank has not closed its links: there is nothing to go back to.
            Phase::Hold if from_source => {
                self.say(target, ToHost::Drop);
                self.over(Outcome::Stayed { why });
            }
            Phase::End | Phase::Go | Phase::Back => {
                self.say(target, ToHost::Drop);
                let why = format!("move {number} broke rank {rank}: {why}");
                self.over(Outcome::Lost { why });
            }
            _ => self.take_back(why),
        }
    }

    /// Has the source's process go on.
    fn take_back(&mut self, why: String) {
        let Some(moving) = &mut self.current else { return };
        if moving.phase == Phase::Back {
            return;
        }
        let (phase, source, target) = (moving.phase, moving.source, moving.target);
        moving.why = why;
        self.say(target, ToHost::Drop);
        if phase == Phase::Prepare {
            return self.stayed();
        }
        self.enter(Phase::Back);
        let runs = self.grant();
        self.say(source, ToHost::Resume { runs });
    }

    fn stayed(&mut self) {
        let why = self.current.as_ref().map_or(String::new(), |moving| moving.why.clone());
        self.over(Outcome::Stayed { why });
    }

    fn over(&mut self, outcome: Outcome) {
        self.current = None;
        self.actions.push_back(Action::Over(outcome));
    }
}

#[cfg(test)]
mod tests;
