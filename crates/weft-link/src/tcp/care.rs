//! Time limits: of connections that are not made, of strangers that prove nothing, of streams that
//! are idle or that the other side does not close.

use super::streams::{Id, Stage};
use super::TcpLink;
use std::time::{Duration, Instant};
use weft_core::PeerId;

/// Time for the other side to end a stream that this side has ended.
const ENDING: Duration = Duration::from_secs(2);

/// The clock of a link. It is read only where something is made or ends, not for each packet.
pub struct Care {
    start: Instant,
    /// Milliseconds since the start, as of the last reading.
    pub now: u64,
    /// Time at which the timer wakes the link.
    due: Option<Instant>,
}

impl Care {
    pub fn new() -> Care {
        Care { start: Instant::now(), now: 0, due: None }
    }

    /// Reads the clock.
    pub fn tick(&mut self) -> Instant {
        let now = Instant::now();
        self.now = u64::try_from((now - self.start).as_millis()).unwrap_or(u64::MAX);
        now
    }
}

impl TcpLink {
    /// Lets the timer wake the link at this time at the latest.
    pub(super) fn due(&mut self, at: Instant) {
        if self.care.due.is_none_or(|due| at < due) {
            self.care.due = Some(at);
            self.poll.arm(Some(at.saturating_duration_since(Instant::now())));
        }
    }

    /// Returns the time until which an ending stream is kept.
    pub(super) fn end_at(&mut self) -> Instant {
        let at = self.care.tick() + ENDING;
        self.due(at);
        at
    }

    /// Ends what time ends, and sets the timer anew.
    #[cold]
    pub(super) fn look_after(&mut self) {
        let now = self.care.tick();
        let idle = u64::try_from(self.config.idle.as_millis()).unwrap_or(u64::MAX).max(1);
        let late = self.streams.find(|s| s.deadline().is_some_and(|at| at <= now));
        late.into_iter().for_each(|id| self.on_late(id));
        let ms = self.care.now;
        let quiet = |used: u64| ms.saturating_sub(used) >= idle;
        for id in self.streams.find(|s| s.stage == Stage::Open && quiet(s.used)) {
            self.count.streams_idle += 1;
            self.end(id);
        }
        // A quarter of the time more is of no matter for idle streams.
        let check = now + (self.config.idle / 4).max(Duration::from_millis(1));
        let open = self.streams.iter().any(|(_, s)| s.stage == Stage::Open).then_some(check);
        let paused = self.resume_accepting(now);
        let deadlines = self.streams.iter().filter_map(|(_, s)| s.deadline());
        self.care.due = deadlines.chain(open).chain(paused).min();
        self.poll.arm(self.care.due.map(|at| at.saturating_duration_since(now)));
    }

    /// Notes that packets over the stream to a peer stay unacknowledged. A stream over which
    /// nothing comes for long meanwhile is given up: a box between the hosts may have forgotten it.
    #[cold]
    pub(super) fn doubt_stream(&mut self, peer: PeerId) {
        let id = self.peers.get(peer).and_then(|known| known.outlet);
        let Some((id, stream)) = id.and_then(|id| Some((id, self.streams.get_mut(id)?))) else {
            return;
        };
        let now = Instant::now();
        let since = *stream.trust.doubted.get_or_insert(now);
        if stream.stage == Stage::Open && now - since >= self.config.doubt {
            self.broken(id, "no answer came for long");
            // Another address may lead there over what still works.
            if let Some(known) = self.peers.get_mut(peer) {
                known.at = (known.at + 1) % known.candidates.len();
            }
        }
    }

    fn on_late(&mut self, id: Id) {
        let Some(stream) = self.streams.get(id) else { return };
        match stream.stage {
            Stage::Connecting(_) => self.broken(id, "no answer to the connection"),
            Stage::Stranger(_) => {
                self.count.strangers_silent += 1;
                self.close(id);
            }
            _ => self.close(id),
        }
    }
}
