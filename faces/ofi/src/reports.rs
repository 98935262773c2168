//! The part that completion queues and counters share: endpoints report to them, and callers wait
//! at them.

use crate::abi::{control, err, WAIT_FD, WAIT_NONE, WAIT_UNSPEC, WAIT_YIELD};
use crate::domain::Domain;
use crate::members::{Member, Members};
use crate::poller::Poller;
use libc::c_int;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Looks in vain until the domain's other endpoints have their turn.
const OTHERS_EVERY: u8 = 16;
/// The longest sleep of a caller while the domain has other endpoints, which may not wake it.
const OTHERS_MOST: Duration = Duration::from_millis(20);
/// The longest sleep of a caller that waits for ever.
const LONGEST: Duration = Duration::from_secs(60);

/// The time that a caller waits at most.
pub struct Limit {
    start: Instant,
    most: Option<Duration>,
}

impl Limit {
    /// Takes milliseconds; negative numbers stand for ever.
    pub fn of(timeout: c_int) -> Limit {
        let most = u64::try_from(timeout).ok().map(Duration::from_millis);
        Limit { start: Instant::now(), most }
    }

    /// Returns the time for the next sleep; `None` if there is none left.
    pub fn left(&self) -> Option<Duration> {
        match self.most {
            Some(most) => most.checked_sub(self.start.elapsed()).filter(|left| !left.is_zero()),
            None => Some(LONGEST),
        }
    }
}

/// The endpoints that report to a queue or counter, and the callers that wait for them.
pub struct Reports<M> {
    pub domain: Arc<Domain<M>>,
    members: Members<M>,
    pub poller: Poller,
    /// The way to wait that the caller chose.
    pub way: c_int,
    /// Counts the looks until the domain's other endpoints have their turn.
    looks: Cell<u8>,
}

impl<M: Member> Reports<M> {
    /// Creates the part for callers that wait in a `way`, and sleep (`sleeps`) or only look.
    pub fn new(domain: Arc<Domain<M>>, way: c_int, sleeps: bool) -> Result<Reports<M>, c_int> {
        if !matches!(way, WAIT_NONE | WAIT_UNSPEC | WAIT_FD | WAIT_YIELD) {
            return Err(err::ENOSYS);
        }
        let (poller, members) = (Poller::new(sleeps)?, Members::default());
        Ok(Reports { domain, members, poller, way, looks: Cell::new(0) })
    }

    /// Answers a question of `fi_control` about waits.
    pub fn control(&self, command: c_int) -> Result<c_int, c_int> {
        match command {
            control::GETWAIT => self.poller.fd().ok_or(err::ENOSYS),
            control::GETWAITOBJ => Ok(self.way),
            _ => Err(err::ENOSYS),
        }
    }

    /// Adds an endpoint.
    pub fn join(&self, member: &Rc<M>) {
        if self.members.join(member) {
            self.poller.watch(&**member);
        }
    }

    /// Removes an endpoint.
    pub fn leave(&self, member: &M) {
        self.members.leave(member);
    }

    /// Makes progress on every endpoint that reports here.
    #[inline]
    pub fn progress(&self) -> bool {
        self.members.progress()
    }

    /// Gives the domain's other endpoints their turn if it is due.
    #[inline]
    pub fn progress_others(&self) -> bool {
        self.looks.set((self.looks.get() + 1) % OTHERS_EVERY);
        self.looks.get() == 0 && self.has_others() && self.turn_of_others()
    }

    /// True if the domain has open endpoints that do not report here.
    fn has_others(&self) -> bool {
        self.domain.members.len() > self.members.count()
    }

    /// Makes progress on the endpoints that do not report here: the caller may wait for what they
    /// do, and never look at theirs. True if anything happened.
    #[cold]
    fn turn_of_others(&self) -> bool {
        let open = self.domain.members.open();
        let others = open.iter().filter(|member| !self.members.has(member));
        others.fold(false, |did, member| did | member.progress())
    }

    /// Waits until `look` finds something, for at most `timeout` milliseconds, or forever if it is
    /// negative. `None`: the time is over.
    pub fn wait<R>(
        &self,
        timeout: c_int,
        mut look: impl FnMut() -> Option<R>,
    ) -> Result<Option<R>, c_int> {
        let limit = Limit::of(timeout);
        loop {
            let has_others = {
                let _inside = self.domain.lock.enter()?;
                self.poller.is_back();
                self.members.post_all();
                self.members.progress();
                let has_others = self.has_others();
                if has_others {
                    self.turn_of_others();
                }
                if let Some(found) = look() {
                    return Ok(Some(found));
                }
                has_others
            };
            let Some(left) = limit.left() else { return Ok(None) };
            let left = if has_others { left.min(OTHERS_MOST) } else { left };
            self.poller.wait(&self.domain.lock, &self.members, left);
        }
    }

    /// Sleeps until something may have arrived, for a moment at most. True if something may have.
    #[cold]
    pub fn nap(&self, limit: Duration) -> bool {
        Poller::nap(&self.domain.lock, &self.members, limit)
    }

    /// Posts all receives and makes progress, for a caller that will sleep outside.
    pub fn settle(&self) {
        self.members.post_all();
        self.members.progress();
    }

    /// Prepares the descriptor for a caller that will sleep outside.
    pub fn lend(&self) -> Result<(), c_int> {
        self.poller.lend(&self.members)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::abi::{version, THREAD_DOMAIN};
    use crate::members::Counted;

    #[allow(clippy::arc_with_non_send_sync)]
    fn reports() -> (Reports<Counted>, [Rc<Counted>; 2]) {
        let domain = Arc::new(Domain::new(version(1, 17), THREAD_DOMAIN, [0; 2], 0));
        let members = [Rc::default(), Rc::default()];
        members.iter().for_each(|member| domain.join(member));
        let reports = Reports::new(domain, WAIT_NONE, true).unwrap();
        reports.join(&members[0]);
        (reports, members)
    }

    #[test]
    fn progress_others__is_their_turn_once_in_many_looks() {
        let (reports, [own, other]) = reports();
        for _ in 0..2 * OTHERS_EVERY {
            assert!(!reports.progress() && !reports.progress_others());
        }
        assert_eq!((own.looks.get(), other.looks.get()), (2 * u32::from(OTHERS_EVERY), 2));
        other.works.set(true);
        assert!((0..OTHERS_EVERY).any(|_| reports.progress_others()));
    }

    #[test]
    fn wait__ends_with_what_is_found_or_with_its_time() {
        let (reports, [own, other]) = reports();
        assert_eq!(reports.wait(-1, || Some(3)), Ok(Some(3)));
        assert_eq!((own.looks.get(), other.looks.get()), (1, 1), "both may have what is awaited");
        assert_eq!(reports.wait(0, || None::<()>), Ok(None));
        let mut looks = 0;
        let third = || {
            looks += 1;
            (looks == 3).then_some(looks)
        };
        assert_eq!(reports.wait(-1, third), Ok(Some(3)));
    }

    #[test]
    fn control__names_the_way_to_wait() {
        let (reports, _) = reports();
        assert_eq!(reports.control(control::GETWAITOBJ), Ok(WAIT_NONE));
        assert!(reports.control(control::GETWAIT).is_ok_and(|fd| fd >= 0));
        assert_eq!(reports.control(control::ENABLE), Err(err::ENOSYS));
    }
}
