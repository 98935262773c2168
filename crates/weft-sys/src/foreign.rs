//! Descriptors of strangers, and the threads that ask and close them.
//!
//! To close a descriptor may take as long as its maker likes: a TCP socket with unsent bytes and
//! SO_LINGER, a file of a file system in user space. So does closing a connection in whose queue
//! such a descriptor is. Here a thread that serves nobody closes them. Each user has a queue of its
//! own, which one thread works off, so that one user's closes hold up no other's. While a user's
//! queue is full, no descriptor of that user is received ([`takes`]).
//!
//! Connections come all the same, and nobody can tell whose they are before they are accepted. So
//! those of one user that do not close give their numbers back together, by threads of their own
//! (`bulk`).
//!
//! A call about a socket may take as long: it waits for the socket's lock, which its maker has
//! while a call of its own copies from memory that is not there (userfaultfd(2)). The thread of its
//! user makes such calls too ([`ask`]).

#[cfg(test)]
mod lingering;
#[allow(unsafe_code)]
mod sys;

use crate::threads::{stack, without_signals};
use crate::{bulk, memory, passing, user, Peer};
use rustix::net::{accept_with, SocketFlags};
use rustix::process::{getrlimit, Resource};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use sys::Foreign;

/// Descriptors of one user that wait to be closed, from which on no others are received.
pub const QUEUE_MAX: usize = 64;
/// Questions of one user that wait, from which on no others are asked.
pub const QUESTIONS_MAX: usize = 256;
/// In the place of a user: a process of which nothing is known.
pub const ANYBODY: u32 = u32::MAX;
/// Most threads; each closes for one user at a time.
const THREADS_MAX: usize = 64;
/// Most threads that close connections of one user together; one user has at most half of those
/// that others leave.
const BATCHES_MAX: usize = 256;
/// Of the descriptors that may wait, the part that one user's connections take before they are
/// closed together; of small numbers so many.
const BATCH_PART: usize = 8;
const BATCH_MIN: usize = 8;
/// Time for which a thread waits for more.
const REST: Duration = Duration::from_secs(1);
/// Stack of a thread, in bytes.
const STACK: usize = 64 << 10;

/// A question about a descriptor, which is within it.
type Question = Box<dyn FnOnce() + Send>;

/// The work of a thread.
enum Work {
    Close(OwnedFd),
    Ask(Question),
}

/// The descriptors of one user, and of those for whom the user answers ([`user::payer`]).
#[derive(Default)]
struct Lane {
    /// The descriptors that were passed.
    queue: VecDeque<OwnedFd>,
    /// Connections, which are Unix sockets.
    connections: VecDeque<OwnedFd>,
    questions: VecDeque<Question>,
    /// A thread works for the user.
    is_busy: bool,
    /// A thread is about to take all connections.
    is_swept: bool,
    /// Threads that close connections together.
    batches: usize,
    /// Connections that these close, which take no descriptors any more.
    closing: usize,
}

impl Lane {
    /// Returns the number of pieces of work, each of which has a descriptor.
    fn len(&self) -> usize {
        self.queue.len() + self.connections.len() + self.questions.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the next work: answered questions leave descriptors to be closed, which go first.
    fn next(&mut self) -> Option<Work> {
        let close = self.queue.pop_front().or_else(|| self.connections.pop_front());
        let close = close.map(Work::Close);
        close.or_else(|| self.questions.pop_front().map(Work::Ask))
    }
}

struct Lanes {
    of_user: BTreeMap<u32, Lane>,
    /// The user whose descriptor was closed last.
    last: u32,
    /// Work of all users that waits.
    all: usize,
    threads: usize,
    /// Threads that close connections together.
    batches: usize,
    /// Threads that wait for work.
    resting: usize,
    /// Users whose descriptors were refused, each told once.
    told: Vec<u32>,
}

static LANES: Mutex<Lanes> = Mutex::new(Lanes {
    of_user: BTreeMap::new(),
    last: 0,
    all: 0,
    threads: 0,
    batches: 0,
    resting: 0,
    told: Vec::new(),
});
static WORK: Condvar = Condvar::new();

fn lanes() -> MutexGuard<'static, Lanes> {
    LANES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lanes {
    /// Takes the next work of a user for whom no thread works.
    fn next(&mut self) -> Option<(u32, Work)> {
        let waits = |(_, lane): &(&u32, &Lane)| !lane.is_busy && !lane.is_empty();
        let behind = self.of_user.range(self.last.saturating_add(1)..).find(waits);
        let user = *behind.or_else(|| self.of_user.iter().find(waits))?.0;
        let lane = self.of_user.get_mut(&user)?;
        self.last = user;
        let work = lane.next()?;
        lane.is_busy = true;
        self.all -= 1;
        Some((user, work))
    }

    fn done(&mut self, user: u32) {
        if let Some(lane) = self.of_user.get_mut(&user) {
            lane.is_busy = false;
        }
        self.tidy(user);
    }

    /// Forgets a user for whom nothing is to be done.
    fn tidy(&mut self, user: u32) {
        let has_none = |lane: &Lane| lane.is_empty() && !lane.is_busy && lane.batches == 0;
        if self.of_user.get(&user).is_some_and(has_none) {
            self.of_user.remove(&user);
            self.told.retain(|told| *told != user);
        }
    }

    /// True if a user has as many descriptors that wait as one may have of `most`.
    fn is_at_share(&self, user: u32, most: impl FnOnce() -> usize) -> bool {
        let own = self.of_user.get(&user).map_or(0, Lane::len);
        own > 0 && is_over(own, self.all - own, most())
    }

    /// Has a thread close the connections of a user together, if there may be another one.
    fn sweep(&mut self, user: u32) {
        let Some(lane) = self.of_user.get_mut(&user) else { return };
        let others = self.batches - lane.batches;
        if lane.is_swept || is_over(lane.batches, others, BATCHES_MAX) {
            return;
        }
        // The thread takes them itself: if there is none, nothing is closed here.
        let thread =
            std::thread::Builder::new().name("weft-closing".into()).stack_size(stack(STACK));
        if without_signals(|| thread.spawn(move || close_together(user))).is_ok() {
            lane.is_swept = true;
            lane.batches += 1;
            self.batches += 1;
        }
    }
}

/// Closes the connections of a user together, and so gives their numbers back before the closes
/// wait.
fn close_together(user: u32) {
    let mut all = lanes();
    let Some(lane) = all.of_user.get_mut(&user) else { return };
    lane.is_swept = false;
    let connections = std::mem::take(&mut lane.connections);
    let count = connections.len();
    lane.closing += count;
    drop(all);
    let run = bulk::gather(connections.into(), most());
    lanes().all -= count;
    run.close();
    let mut all = lanes();
    all.batches -= 1;
    if let Some(lane) = all.of_user.get_mut(&user) {
        lane.closing -= count;
        lane.batches -= 1;
    }
    all.tidy(user);
}

/// Asks and closes what there is, until nothing has come for a while.
fn work() {
    let mut all = lanes();
    loop {
        if let Some((user, work)) = all.next() {
            drop(all);
            match work {
                Work::Close(fd) => drop(fd),
                Work::Ask(question) => question(),
            }
            all = lanes();
            all.done(user);
            continue;
        }
        all.resting += 1;
        let (again, late) = WORK.wait_timeout(all, REST).unwrap_or_else(PoisonError::into_inner);
        all = again;
        all.resting -= 1;
        if late.timed_out() && all.of_user.values().all(|lane| lane.is_busy) {
            all.threads -= 1;
            return;
        }
    }
}

/// Has a descriptor closed by a thread.
fn hand_over(fd: OwnedFd, user: u32, is_socket: bool) {
    let (user, mut all) = (user::payer(user), lanes());
    let lane = all.of_user.entry(user).or_default();
    match is_socket {
        true => lane.connections.push_back(fd),
        false => lane.queue.push_back(fd),
    }
    let connections = lane.connections.len();
    if connections >= BATCH_MIN && connections >= most() / BATCH_PART {
        all.sweep(user);
    }
    begin(all, user);
}

/// Has the thread of a user ask about what a process of that user has passed: the calls that wait
/// for others as long as these like. The caller waits for the answer at most as long as it wants.
/// Questions of a user are asked in order. False: too many of this user wait.
pub fn ask(user: u32, question: impl FnOnce() + Send + 'static) -> bool {
    let (user, mut all) = (user::payer(user), lanes());
    let is_full = all.is_at_share(user, most);
    let lane = all.of_user.entry(user).or_default();
    if lane.questions.len() >= QUESTIONS_MAX || is_full {
        // The question closes its descriptors here, for which the lock has to be free.
        drop(all);
        return false;
    }
    lane.questions.push_back(Box::new(question));
    begin(all, user);
    true
}

/// Has a thread begin to work for a user, who has one more piece of work.
fn begin(mut all: MutexGuard<'static, Lanes>, user: u32) {
    all.all += 1;
    if all.of_user.get(&user).is_some_and(|lane| lane.is_busy) {
        return;
    }
    // Threads that rest may have been woken for other users already, whose work takes long.
    let waiting = all.of_user.values().filter(|lane| !lane.is_busy && !lane.is_empty()).count();
    if waiting > all.resting && all.threads < THREADS_MAX {
        let thread =
            std::thread::Builder::new().name("weft-closing".into()).stack_size(stack(STACK));
        // Where the system has no thread now, the next descriptor tries again.
        if without_signals(|| thread.spawn(work)).is_ok() {
            all.threads += 1;
        }
    }
    WORK.notify_one();
}

/// True if descriptors of a user may be received: those before them are closed, or soon will be.
pub fn takes(user: u32) -> bool {
    let (user, mut all) = (user::payer(user), lanes());
    let has_many = |lane: &Lane| lane.queue.len() + lane.connections.len() >= QUEUE_MAX;
    let is_full = all.of_user.get(&user).is_some_and(has_many) || all.is_at_share(user, most);
    if is_full && !all.told.contains(&user) {
        all.told.push(user);
        log::warn!(
            "descriptors that user {user} has passed do not close; no others of that user are \
             taken until they do"
        );
    }
    !is_full
}

/// Returns the descriptors that may wait: half of those that this process may have.
fn most() -> usize {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(most / 2).unwrap_or(usize::MAX)
}

/// True if further connections may be accepted: those that wait to be closed take less than half of
/// the descriptors that this process may have. One that waits for connections does without its
/// listeners meanwhile, which stay readable. The connections among those that wait are closed
/// together then.
pub fn has_room() -> bool {
    let mut all = lanes();
    // The question to the kernel is rare: most processes have none.
    if all.all == 0 || all.all < most() {
        return true;
    }
    let has_any = |(user, lane): (&u32, &Lane)| (!lane.connections.is_empty()).then_some(*user);
    let users: Vec<u32> = all.of_user.iter().filter_map(has_any).collect();
    users.into_iter().for_each(|user| all.sweep(user));
    false
}

/// Returns the reason for which a connection of a user is not served, if there is one: those of
/// this user that wait to be closed are more than half of what others leave, or of what is not kept
/// for root and the user of this process.
pub fn refusal(user: u32) -> Option<String> {
    let (payer, all) = (user::payer(user), lanes());
    let lane = all.of_user.get(&payer);
    let (waits, closing) = lane.map_or((0, 0), |lane| (lane.len(), lane.closing));
    let (own, others) = (waits + closing, all.all - waits);
    drop(all);
    if own == 0 {
        return None;
    }
    let most = if user::is_own(user) { most() } else { most() / 8 * 7 };
    is_over(own, others, most).then(|| {
        format!("{own} descriptors of user {payer} have to be closed first, and do not close")
    })
}

/// True if one who has `own` of the places, where others have `others`, takes no other of `most`.
fn is_over(own: usize, others: usize, most: usize) -> bool {
    own >= most.saturating_sub(others).div_ceil(2)
}

/// Closes a descriptor of a process of this user, at once where that takes no time. It is a
/// descriptor that the process passed, or, if `is_connection`, a connection to that process, which
/// ends for both sides.
fn end(fd: OwnedFd, user: u32, is_connection: bool) {
    // These need not pass a descriptor to hold this process up.
    let is_quick = user::is_own(user)
        || is_connection && passing::drains(fd.as_fd())
        || !is_connection && memory::is_memory(&fd);
    if !is_quick {
        let is_socket = is_connection && passing::is_local(fd.as_fd());
        hand_over(fd, user, is_socket);
    }
}

/// A listener to which any process may connect. The connections that it did not accept end with it,
/// and are closed as [`Foreign`] ones are.
#[derive(Debug)]
pub struct Listener<T: AsFd = OwnedFd>(T);

impl<T: AsFd> Listener<T> {
    /// Wraps a listening Unix socket.
    pub fn new(socket: T) -> Listener<T> {
        Listener(socket)
    }
}

impl<T: AsFd> Deref for Listener<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: AsFd> AsFd for Listener<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl<T: AsFd> AsRawFd for Listener<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl<T: AsFd> Drop for Listener<T> {
    /// Prevents further connections now, also while a child process that was just started still has
    /// a copy of the descriptor.
    fn drop(&mut self) {
        /// Most connections that wait; the kernel's own limit is 4096 unless root raises it.
        const MOST: usize = 65_536;
        crate::sys::shutdown(self.0.as_fd());
        for _ in 0..MOST {
            let Ok(fd) = accept_with(self.0.as_fd(), SocketFlags::CLOEXEC) else { return };
            let user = Peer::of(&fd).map_or(ANYBODY, |peer| peer.uid);
            drop(Foreign::connection(fd, user));
        }
    }
}

impl<T: Into<OwnedFd> + AsFd> Deref for Foreign<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.content()
    }
}

impl<T: Into<OwnedFd> + AsFd> AsFd for Foreign<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.content().as_fd()
    }
}

impl<T: Into<OwnedFd> + AsFd> AsRawFd for Foreign<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.content().as_fd().as_raw_fd()
    }
}

impl<T: Into<OwnedFd> + AsFd> fmt::Debug for Foreign<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "descriptor {} of user {}", self.as_raw_fd(), self.user())
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::lingering::lingering;
    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{UnixListener, UnixStream};

    /// Users whom no test shares with another.
    const SLOW: u32 = 40_001;
    const QUICK: u32 = 40_101;
    const OWNED: u32 = 40_201;

    /// Waits until a condition holds.
    fn until(mut holds: impl FnMut() -> bool) {
        while !holds() {
            std::thread::yield_now();
        }
    }

    fn waiting(user: u32) -> usize {
        lanes().of_user.get(&user).map_or(0, |lane| lane.queue.len() + lane.connections.len())
    }

    #[test]
    fn drop__a_close_that_takes_time_holds_up_its_user_alone() {
        let (one, other) = lingering();
        drop(Foreign::new(OwnedFd::from(one), SLOW));
        until(|| waiting(SLOW) == 0);
        let ends: Vec<_> = (0..QUEUE_MAX).map(|_| UnixStream::pair().unwrap()).collect();
        let mut others = Vec::new();
        for (end, other) in ends {
            assert!(takes(SLOW));
            drop(Foreign::new(OwnedFd::from(end), SLOW));
            others.push(other);
        }
        assert!(!takes(SLOW) && takes(QUICK) && has_room());
        let mut buf = [0; 1];
        let refused = passing::recv(&others[0], &mut buf, SLOW).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        let (end, mut far) = UnixStream::pair().unwrap();
        drop(Foreign::new(OwnedFd::from(end), QUICK));
        assert_eq!(far.read(&mut [0]).unwrap(), 0, "others are closed meanwhile");
        drop(other);
        until(|| takes(SLOW) && waiting(SLOW) == 0);
        for mut far in others {
            assert_eq!(far.read(&mut [0]).unwrap(), 0);
        }
    }

    #[test]
    fn drop__a_connection_with_such_a_descriptor_in_its_queue_as_well() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let (one, other) = lingering();
        passing::send(&far, b"x", Some(one.as_fd())).unwrap();
        drop(one);
        drop(Foreign::connection(near, SLOW + 10));
        // The other end sees the end at once, though the close goes on.
        let end = far.read(&mut [0]);
        assert!(matches!(&end, Ok(0) | Err(_)), "{end:?}");
        drop(other);
        until(|| !lanes().of_user.contains_key(&(SLOW + 10)));
    }

    #[test]
    fn drop__a_listener_with_such_a_connection_as_well() {
        let name = format!("weft-sys-test-listener-{}", std::process::id());
        let name = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&name).unwrap();
        let (one, other) = lingering();
        let far = UnixStream::connect_addr(&name).unwrap();
        passing::send(&far, b"x", Some(one.as_fd())).unwrap();
        // Of a descriptor that cannot be closed at once it is the last copy but this one.
        let near = listener.accept().unwrap().0;
        drop(one);
        drop(Foreign::connection(near, SLOW + 20));
        let far = UnixStream::connect_addr(&name).unwrap();
        drop(Listener::new(listener));
        assert!((&far).write_all(b"late").is_err(), "it has ended");
        assert!(UnixStream::connect_addr(&name).is_err());
        drop(other);
        until(|| !lanes().of_user.contains_key(&(SLOW + 20)));
    }

    #[test]
    fn drop__a_connection_with_a_descriptor_out_of_band_as_well() {
        for reads in [false, true] {
            let (near, far) = UnixStream::pair().unwrap();
            let near = Foreign::connection(near, SLOW + 30);
            let (one, other) = lingering();
            crate::sys::send_out_of_band(far.as_fd(), b"x", one.as_fd()).unwrap();
            drop(one);
            if reads {
                let got = passing::recv(&near, &mut [0; 8], SLOW + 30).unwrap();
                assert_eq!((got.len, got.passed.len()), (1, 1));
            }
            drop(near);
            assert!(lanes().of_user.contains_key(&(SLOW + 30)), "a thread has it: {reads}");
            drop(other);
            until(|| !lanes().of_user.contains_key(&(SLOW + 30)));
        }
    }

    #[test]
    fn refusal__of_one_who_has_half_of_what_others_leave() {
        assert!(!is_over(63, 0, 128) && is_over(64, 0, 128));
        assert!(!is_over(31, 64, 128) && is_over(32, 64, 128));
        assert!(!is_over(0, 127, 128) && is_over(0, 128, 128));
        assert_eq!(refusal(40_301), None, "nothing waits");
    }

    #[test]
    fn ask__an_answer_that_does_not_come_holds_up_its_user_alone() {
        const STUCK: u32 = 40_401;
        const OTHER: u32 = 40_501;
        let (release, held) = std::sync::mpsc::channel::<()>();
        let (answer, answers) = std::sync::mpsc::channel();
        assert!(ask(STUCK, move || _ = held.recv()));
        for user in [STUCK, OTHER, STUCK] {
            let answer = answer.clone();
            assert!(ask(user, move || answer.send(user).unwrap()));
        }
        assert_eq!(answers.recv().unwrap(), OTHER);
        while ask(STUCK, || {}) {}
        assert!(lanes().of_user[&STUCK].questions.len() == QUESTIONS_MAX && takes(STUCK));
        assert!(ask(OTHER, || {}));
        drop(release);
        assert_eq!([answers.recv().unwrap(), answers.recv().unwrap()], [STUCK; 2]);
    }

    #[test]
    fn drop__a_connection_without_one_is_closed_at_once_whatever_waits() {
        let (one, other) = lingering();
        drop(Foreign::new(OwnedFd::from(one), OWNED));
        for _ in 0..2000 {
            let (near, far) = UnixStream::pair().unwrap();
            (&far).write_all(b"unread").unwrap();
            drop(Foreign::connection(near, OWNED));
        }
        assert!(waiting(OWNED) <= 1 && has_room());
        drop(other);
        until(|| !lanes().of_user.contains_key(&OWNED));
    }
}
