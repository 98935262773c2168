//! The addresses at which this process waits, and the thread that answers for them.

use super::door::Door;
use super::{is_short, name_of, unix_address, Name, Settings};
use crate::address::NetAddress;
use crate::sys::bell::{self, Bell};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weft_link::secure::JobKey;
use weft_link::Address;
use weft_sys::foreign::{Listener, ANYBODY};
use weft_sys::threads::stack;
use weft_sys::{Foreign, Peer};

struct Entry {
    listener: Listener<UnixListener>,
    /// The encoded address.
    answer: Vec<u8>,
}

impl Entry {
    /// Answers all who ask. The answer fits the memory of a new connection. False if the system has
    /// no room for one of them now.
    fn answer(&self) -> bool {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let user = Peer::of(&stream).map_or(ANYBODY, |peer| peer.uid);
                    let stream = Foreign::connection(stream, user);
                    let _ = (&*stream).write_all(&self.answer);
                }
                Err(why) => return !is_short(&why),
            }
        }
    }
}

#[derive(Default)]
struct Posts {
    entries: Vec<Arc<Entry>>,
    /// Wakes the thread when the entries have changed; none while no thread runs.
    changed: Option<Arc<Bell>>,
    /// True if processes of other hosts may ask.
    far: bool,
    /// Number of times that the thread has taken the entries.
    rounds: u64,
}

static POSTS: Mutex<Posts> =
    Mutex::new(Posts { entries: Vec::new(), changed: None, far: false, rounds: 0 });
/// Told when the thread has taken the entries.
static TAKEN: Condvar = Condvar::new();
/// Longest wait for the thread.
const ROUND: Duration = Duration::from_secs(5);
/// Time for which nobody is answered where the system has no descriptor for one who asks: the
/// question stays, and a thread that polled for it would not sleep.
const REST: Duration = Duration::from_millis(50);

fn posts() -> MutexGuard<'static, Posts> {
    POSTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An address at which this process waits, until it is dropped.
pub struct Post(Arc<Entry>);

impl Drop for Post {
    /// The kernel frees the name when nobody sleeps on the socket any more: then the next wait at
    /// this address finds it free.
    fn drop(&mut self) {
        let mut all = posts();
        all.entries.retain(|entry| !Arc::ptr_eq(entry, &self.0));
        let rounds = all.rounds;
        all.changed.iter().for_each(|changed| changed.ring());
        let behind = |all: &mut Posts| all.rounds == rounds;
        let _late = TAKEN.wait_timeout_while(all, ROUND, behind);
    }
}

/// Lets an endpoint be found at an address.
///
/// # Errors
/// `AddrInUse`: another process, or another interface of this one, waits there. Otherwise those of
/// the system.
pub fn post(key: &JobKey, at: &NetAddress, endpoint: &Address) -> io::Result<Post> {
    let name: Name = name_of(key, at);
    let listener = UnixListener::bind_addr(&unix_address(&name)?)?;
    listener.set_nonblocking(true)?;
    let entry = Arc::new(Entry { listener: Listener::new(listener), answer: endpoint.encode() });
    let mut all = posts();
    let changed = match &all.changed {
        Some(changed) => Arc::clone(changed),
        None => start()?,
    };
    all.changed = Some(Arc::clone(&changed));
    all.entries.push(Arc::clone(&entry));
    all.far |= at.host != Ipv4Addr::LOCALHOST;
    drop(all);
    changed.ring();
    Ok(Post(entry))
}

/// Starts the thread; returns what wakes it.
fn start() -> io::Result<Arc<Bell>> {
    let changed = Arc::new(Bell::new()?);
    let of_thread = Arc::clone(&changed);
    std::thread::Builder::new()
        .name("weft-posts".into())
        .stack_size(stack(128 << 10))
        .spawn(move || run(&of_thread))?;
    Ok(changed)
}

/// Answers for ever: the thread ends with the process, and sleeps while nobody asks.
fn run(changed: &Bell) {
    let mut door: Option<Door> = None;
    let (mut tried, mut rests) = (false, false);
    loop {
        let (entries, far) = {
            let mut all = posts();
            all.rounds += 1;
            TAKEN.notify_all();
            (all.entries.clone(), all.far)
        };
        if far && !tried {
            tried = true;
            door = open_door();
        }
        let mut fds: Vec<RawFd> = vec![changed.fd()];
        let mut timeout = Some(REST);
        if !rests {
            fds.extend(entries.iter().map(|entry| entry.listener.as_raw_fd()));
            timeout = door.as_mut().and_then(|door| door.prepare(&mut fds));
        }
        bell::wait(&fds, timeout);
        changed.hush();
        let unanswered = entries.iter().filter(|entry| !entry.answer()).count();
        let stepped = door.as_mut().is_none_or(Door::step);
        rests = unanswered > 0 || !stepped;
    }
}

fn open_door() -> Option<Door> {
    match Settings::from_env() {
        Ok(settings) => Some(Door::open(settings.meet_port as u16)),
        Err(why) => {
            log::warn!("processes of other hosts do not find this one: {why}");
            None
        }
    }
}
