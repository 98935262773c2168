//! The differences between the engine of a rank and the relay of an agent.

use core::time::Duration;

/// The packets that came again of which one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RepeatRule {
    /// One in this time.
    Each(Duration),
    /// One for each acknowledgement that was sent.
    Answered,
}

/// The differences between the two users of a connection, each measured or for a reason of the
/// protocol.
#[derive(Debug)]
pub(crate) struct Policy {
    /// Shortest retransmission timeout if more than `few` packets are in flight, or the peer goes
    /// on sending.
    pub rto_min: Duration,
    pub few: u32,
    /// Time without an acknowledgement, with several timeouts, after which the window restarts.
    pub silent: Duration,
    /// Least number of retransmissions of the oldest packet before the peer is given up.
    pub tries: u8,
    pub repeats: RepeatRule,
    /// Most answers to questions for lengths that wait.
    pub answers: usize,
    /// True if each of these questions is answered, false if only the longest of a path is.
    pub each_length: bool,
}

impl Policy {
    /// The engine's. Its process may have been inactive for the time that counts, so that the
    /// oldest packet has to be sent several times before a peer is given up.
    pub const RANK: Policy = Policy {
        rto_min: Duration::ZERO,
        few: 0,
        silent: Duration::ZERO,
        tries: 3,
        repeats: RepeatRule::Each(Duration::from_millis(10)),
        answers: 4,
        each_length: false,
    };

    /// The relay's. Its timeout is longer than Linux leaves a core to a process that computes
    /// beside an agent (a slice, 3 ms): a premature timeout shrinks the window, and most losses are
    /// detected without one if other packets follow. If few are in flight and the peer is silent, a
    /// premature timeout costs little, and nothing else would detect the loss. Several answers to
    /// questions for lengths survive the loss of one: with one, messages of groups took 2 % longer
    /// at a loss of 5 % (`weft sim services`).
    pub const AGENT: Policy = Policy {
        rto_min: Duration::from_millis(4),
        few: 4,
        silent: Duration::from_millis(10),
        tries: 0,
        repeats: RepeatRule::Answered,
        answers: 16,
        each_length: true,
    };
}
