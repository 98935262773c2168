//! Registrations of connections in epoll sets.

use crate::slot::{Registration, Slot, UNSEEN};
use crate::sys::calls;
use crate::table::{self, Connection};
use libc::{c_int, epoll_event};
use std::sync::atomic::Ordering;

/// Waits for the sets of a connection spin on TCP from now on.
pub fn spins(slot: &Slot) {
    for one in &slot.registrations {
        let number = one.set.load(Ordering::Acquire);
        if let Some((set, _)) = (number != 0).then(|| table::set_of(number)).flatten() {
            set.by_tcp.store(1, Ordering::Relaxed);
        }
    }
}

/// A one-shot registration has fired.
pub fn disarm(set_fd: c_int, one: &Registration) {
    let rest = (libc::EPOLLONESHOT | libc::EPOLLET) as u32;
    let events = one.events.load(Ordering::Relaxed) & rest;
    one.events.store(events, Ordering::Relaxed);
    let event = epoll_event { events, u64: one.data.load(Ordering::Relaxed) };
    calls::epoll_ctl(set_fd, libc::EPOLL_CTL_MOD, one.fd.load(Ordering::Relaxed) as c_int, event);
}

/// Has the sets of a connection notify of space, where they notify of edges: a program that
/// could send a part only waits for that (epoll(7)), and the kernel, which had space all the time,
/// knows of none. The kernel notifies anew of a registration that is changed. False if a set may
/// not notify: then the rest is the kernel's.
pub fn notify_of_space(slot: &Slot) -> bool {
    let all_notified = slot.registrations.iter().all(|one| {
        let (number, events) =
            (one.set.load(Ordering::Acquire), one.events.load(Ordering::Relaxed));
        // The program itself changes a one-shot registration before it waits.
        let (asked, wanted) = (
            (libc::EPOLLOUT | libc::EPOLLET | libc::EPOLLONESHOT) as u32,
            (libc::EPOLLOUT | libc::EPOLLET) as u32,
        );
        if number == 0 || table::set_of(number).is_none() || events & asked != wanted {
            return true;
        }
        let event = epoll_event { events, u64: one.data.load(Ordering::Relaxed) };
        let [set_fd, fd] = [&one.set_fd, &one.fd].map(|fd| fd.load(Ordering::Relaxed) as c_int);
        calls::epoll_ctl(set_fd, libc::EPOLL_CTL_MOD, fd, event)
    });
    all_notified && !slot.has(UNSEEN)
}

/// Returns the registration that has a place in a set.
pub fn of_place(slot: &Slot, set: u64, place: usize) -> Option<&Registration> {
    slot.registrations.iter().find(|one| {
        one.set.load(Ordering::Acquire) == set
            && one.place.load(Ordering::Relaxed) == place as u32 + 1
    })
}

/// A connection is closed here: it is in no list any more.
pub fn closed(connection: &Connection) {
    for one in &connection.slot.registrations {
        let number = one.set.load(Ordering::Acquire);
        if let Some((set, _)) = (number != 0).then(|| table::set_of(number)).flatten() {
            set.leave(one);
        }
        one.set.store(0, Ordering::Release);
    }
}
