//! The addresses at which this process waits, and the thread that answers for them.

use super::door::Door;
use super::{name_of, unix_address, Name, Settings};
use crate::address::NetAddress;
use crate::sys::bell::{self, Bell};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weft_link::secure::JobKey;
use weft_link::Address;

struct Entry {
    listener: UnixListener,
    /// The encoded address.
    answer: Vec<u8>,
}

impl Entry {
    /// Answers all who ask. The answer fits the memory of a new connection.
    fn answer(&self) {
        while let Ok((mut stream, _)) = self.listener.accept() {
            let _gone = stream.write_all(&self.answer);
        }
    }
}

#[derive(Default)]
struct Posts {
    entries: Vec<Arc<Entry>>,
    running: bool,
    /// True if processes of other hosts may ask.
    far: bool,
    /// Number of times that the thread has taken the entries.
    rounds: u64,
}

static POSTS: Mutex<Posts> =
    Mutex::new(Posts { entries: Vec::new(), running: false, far: false, rounds: 0 });
/// Told when the thread has taken the entries.
static TAKEN: Condvar = Condvar::new();
/// Longest wait for the thread.
const ROUND: Duration = Duration::from_secs(5);
/// Wakes the thread when the entries have changed.
static CHANGED: LazyLock<io::Result<Bell>> = LazyLock::new(Bell::new);

fn posts() -> MutexGuard<'static, Posts> {
    POSTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ring() {
    if let Ok(changed) = &*CHANGED {
        changed.ring();
    }
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
        ring();
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
    let entry = Arc::new(Entry { listener, answer: endpoint.encode() });
    let mut all = posts();
    all.entries.push(Arc::clone(&entry));
    all.far |= at.host != Ipv4Addr::LOCALHOST;
    if !all.running {
        CHANGED.as_ref().map_err(|e| io::Error::from(e.kind()))?;
        std::thread::Builder::new()
            .name("weft-meet-door".into())
            .stack_size(128 << 10)
            .spawn(run)?;
        all.running = true;
    }
    drop(all);
    ring();
    Ok(Post(entry))
}

/// Answers for ever: the thread ends with the process, and sleeps while nobody asks.
fn run() {
    let Ok(changed) = &*CHANGED else { return };
    let mut door: Option<Door> = None;
    let mut tried = false;
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
        fds.extend(entries.iter().map(|entry| entry.listener.as_raw_fd()));
        let timeout = door.as_mut().and_then(|door| door.prepare(&mut fds));
        bell::wait(&fds, timeout);
        changed.hush();
        entries.iter().for_each(|entry| entry.answer());
        if let Some(open) = &mut door {
            open.step();
        }
    }
}

fn open_door() -> Option<Door> {
    let settings = Settings::from_env().map_err(|why| why.to_string());
    let door = settings
        .and_then(|settings| Door::open(settings.meet_port as u16).map_err(|why| why.to_string()));
    match door {
        Ok(door) => Some(door),
        Err(why) => {
            log::warn!("processes of other hosts do not find this one: {why}");
            None
        }
    }
}
