//! Callers that sleep.

use crate::abi::err;
use crate::lock::Lock;
use crate::members::{Member, Members};
use libc::c_int;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use weft::bell::bell;

/// Reports that there is no descriptor to sleep on, and the remedy; returns the error's number.
fn no_descriptor(call: &str, why: Errno) -> c_int {
    let remedy = match why {
        Errno::PERM | Errno::ACCESS | Errno::NOSYS => {
            "a filter of system calls (seccomp) of the container or program refuses it: allow it"
        }
        _ => "raise the limit on files, ulimit -n",
    };
    log::error!("no descriptor to sleep on: {call}: {} ({remedy})", std::io::Error::from(why));
    why.raw_os_error()
}

/// Sleeps until an endpoint has work.
pub struct Poller {
    fds: Option<Descriptors>,
    /// Number of callers asleep in `wait`, and true if one may be asleep on the descriptor outside.
    /// Changed only under the lock.
    asleep: Cell<u32>,
    lent: Cell<bool>,
}

struct Descriptors {
    epoll: OwnedFd,
    bell: OwnedFd,
}

impl Poller {
    /// Opens descriptors to sleep on, if they are wanted.
    pub fn new(wanted: bool) -> Result<Poller, c_int> {
        let fds = wanted.then(Descriptors::open).transpose()?;
        Ok(Poller { fds, asleep: Cell::new(0), lent: Cell::new(false) })
    }

    /// Returns the descriptor for a caller that sleeps outside.
    pub fn fd(&self) -> Option<c_int> {
        Some(self.fds.as_ref()?.epoll.as_raw_fd())
    }

    /// Has callers woken when an endpoint has work.
    pub fn watch<M: Member>(&self, member: &M) {
        if let (Some(fds), Some(fd)) = (&self.fds, member.descriptor()) {
            // No more descriptors can be watched: a caller that sleeps looks from time to time.
            let _watched = fds.watch(fd);
        }
    }

    /// Wakes callers that sleep.
    pub fn wake(&self) {
        if let Some(fds) = &self.fds {
            let _rung = rustix::io::write(&fds.bell, &1u64.to_ne_bytes());
        }
    }

    /// Wakes callers that sleep. Another caller may have made the progress, so that the endpoint's
    /// descriptor is not readable.
    #[inline]
    pub fn news(&self) {
        if self.asleep.get() > 0 || self.lent.get() {
            self.lent.set(false);
            self.wake();
        }
    }

    /// Notes that no caller sleeps on the descriptor outside, because one is here.
    #[inline]
    pub fn is_back(&self) {
        self.lent.set(false);
    }

    /// Prepares the descriptor, as [`Members::prepare`] does, for a caller that will sleep outside.
    pub fn lend<M: Member>(&self, members: &Members<M>) -> Result<(), c_int> {
        self.drain();
        if !members.prepare() {
            return Err(err::EAGAIN);
        }
        self.lent.set(true);
        Ok(())
    }

    fn drain(&self) {
        if let Some(fds) = &self.fds {
            let mut bytes = [0u8; 512];
            let _read = rustix::io::read(&fds.bell, &mut bytes);
        }
    }

    /// Sleeps until something may have arrived, for a moment at most. True if something may have.
    #[cold]
    pub fn nap<M: Member>(lock: &Lock, members: &Members<M>, limit: Duration) -> bool {
        // Endpoints are kept open until the lock is held again: they are counted under it.
        let open;
        let mut fds: Vec<PollFd<'_>>;
        {
            let Ok(_inside) = lock.enter() else { return true };
            if !members.prepare() {
                return true;
            }
            open = members.open();
            let descriptors = open.iter().filter_map(|member| member.descriptor());
            fds = descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        }
        let limit = Timespec { tv_sec: 0, tv_nsec: limit.as_nanos() as _ };
        let ready = poll(&mut fds, Some(&limit));
        drop(fds);
        let inside = lock.enter();
        drop(open);
        if inside.is_ok() {
            members.finish();
        }
        ready != Ok(0)
    }

    /// Sleeps until something may have arrived, for at most `limit`.
    pub fn wait<M: Member>(&self, lock: &Lock, members: &Members<M>, limit: Duration) {
        {
            let Ok(_inside) = lock.enter() else { return };
            if !members.prepare() {
                return;
            }
            self.asleep.set(self.asleep.get() + 1);
        }
        if self.fds.as_ref().is_some_and(|fds| fds.sleep(limit)) {
            self.drain();
        }
        let Ok(_inside) = lock.enter() else { return };
        self.asleep.set(self.asleep.get() - 1);
        members.finish();
    }
}

impl Descriptors {
    fn open() -> Result<Descriptors, c_int> {
        let bell = bell().map_err(|why| no_descriptor("eventfd(2) and pipe2(2)", why))?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)
            .map_err(|why| no_descriptor("epoll_create1(2)", why))?;
        let fds = Descriptors { epoll, bell };
        fds.watch(fds.bell.as_fd()).map_err(|why| no_descriptor("epoll_ctl(2)", why))?;
        Ok(fds)
    }

    fn watch(&self, fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, fd, EventData::new_u64(0), EventFlags::IN)
    }

    /// Sleeps until one of the descriptors is readable; false if time or a signal ended the sleep.
    fn sleep(&self, limit: Duration) -> bool {
        let ms = limit.as_millis().clamp(1, 60_000) as i64;
        let limit = Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
        let mut event = [MaybeUninit::uninit()];
        let woken = epoll::wait(&self.epoll, &mut event, Some(&limit));
        woken.is_ok_and(|(woken, _)| !woken.is_empty())
    }
}
