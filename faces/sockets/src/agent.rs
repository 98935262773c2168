//! The agent connection: one of this process, used between calls of the program.

use crate::failure::Failure;
use crate::lock::Lock;
use crate::own::AGENT;
use crate::reach::{self, Heard};
use crate::slot::{
    self, Slot, ASKED, CORKED, DEEP, DENIED, FINAL, IDLE, INQ, KNOWN, NAGLE, NEVER, NONBLOCKING,
    PLAIN, SHARED, SHUT, SPINS,
};
use crate::sys::calls::{self, close};
use crate::sys::clock::{milliseconds, second};
use crate::sys::memory::is_steady;
use crate::sys::{real, socket};
use crate::table::{self, Connection, Mapped};
use crate::vfork::process;
use crate::why::{self, Why};
use crate::{board, holders, loan, owner, rings, set, settings, stream, tcp, tcp_spin, urgent};
use libc::c_int;
use std::os::fd::RawFd;
use std::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
use weft_streams::count::Count;
use weft_streams::message::Message;
use weft_streams::words::SEGMENT;

/// Bytes in one direction after which a connection asks, though none went the other way.
const MANY: u64 = 1 << 20;
/// Times that a connection asks.
const TIMES: u32 = 4;
/// Time after a failed attempt to reach the agent, in seconds, doubled each time.
const PAUSE: u64 = 1;
const PAUSE_MAX: u64 = 64;
/// Calls after which a connection that other processes hold looks again if they still do, doubled
/// each time.
const PAUSE_CALLS: u32 = 8;
const PAUSE_CALLS_MAX: u32 = 1024;
/// Milliseconds for an answer about bytes that go back to TCP; the agent gives up before. Once it
/// has the bytes, it has longer.
const PATIENCE_MS: u64 = 5_000;
const LONG_PATIENCE_MS: u64 = 60_000;
/// Milliseconds until the agent is asked again that has too much to do.
const AGAIN_MS: c_int = 20;

static LOCK: Lock = Lock::new();
/// The process that made the connection.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// Second before which no attempt is made, and the pause after the next.
static NOT_BEFORE: AtomicU64 = AtomicU64::new(0);
static PAUSES: AtomicU64 = AtomicU64::new(PAUSE);

/// This process is a child: it has no connection, and its parent's is not its own.
pub fn is_child() {
    // Another thread of the parent may have held it.
    LOCK.free();
    AGENT.end();
    loan::is_child();
    if !is_over() {
        NOT_BEFORE.store(0, Ordering::Relaxed);
    }
}

/// True if nothing is said to the agent any more ([`ends`]).
pub fn is_over() -> bool {
    NOT_BEFORE.load(Ordering::Relaxed) == u64::MAX
}

/// Nothing is said to the agent any more, nor heard.
pub fn ends() {
    let _held = LOCK.take();
    if PROCESS.load(Ordering::Relaxed) == process() {
        AGENT.end();
    }
    NOT_BEFORE.store(u64::MAX, Ordering::Relaxed);
    loan::ends();
}

/// A call on a connection by TCP has ended: asks for its other end when it is time, and hears the
/// agent.
#[inline]
pub fn after_call(slot: &Slot, fd: c_int) {
    let ask = &slot.ask;
    match ask.state.load(Ordering::Relaxed) {
        IDLE => {}
        ASKED => return heard(slot),
        _ => return,
    }
    match ask.left.load(Ordering::Relaxed) {
        0 => begin(slot, fd),
        left => ask.left.store(left - 1, Ordering::Relaxed),
    }
}

#[cold]
fn begin(slot: &Slot, fd: c_int) {
    let (read, sent) = (slot.receiver.tcp.bytes(), slot.sender.tcp.bytes());
    if read > 0 && sent > 0 || read + sent >= MANY {
        let was = real::errno();
        // A thread may have closed it.
        let same = table::connection(fd).filter(|one| std::ptr::eq(one.slot, slot));
        same.iter().for_each(asks);
        real::set_errno(was);
    }
    let rarer = 1 << (3 * slot.ask.times.load(Ordering::Relaxed)).min(24);
    let calls = settings::after().saturating_mul(rarer).max(1) - 1;
    slot.ask.left.fetch_max(calls, Ordering::Relaxed);
}

fn asks(connection: &Connection) {
    let (slot, ask) = (connection.slot, &connection.slot.ask);
    let times = ask.times.load(Ordering::Relaxed);
    if times >= TIMES || slot.has(NEVER) || !slot.is_plain() || !settings::is_on() {
        shows(connection);
        return stays_tcp(slot);
    }
    // Questions to the kernel take longer than the calls that lead here, so they are asked once,
    // and again where there is an agent.
    if !slot.has(KNOWN) {
        if is_odd(connection) {
            return stays_tcp(slot);
        }
        slot.set(KNOWN);
        tcp_spin::begin(connection);
    }
    if board::is_off() || !may_open() {
        return;
    }
    if table::shared() >= settings::most() {
        return notes(connection, Why::Most);
    }
    if !slot.holders.is_own() {
        notes(connection, Why::Shared);
        // Nothing tells when the other processes have left it.
        let pause = (2 * ask.calls.load(Ordering::Relaxed)).clamp(PAUSE_CALLS, PAUSE_CALLS_MAX);
        ask.calls.store(pause, Ordering::Relaxed);
        return ask.left.store(pause, Ordering::Relaxed);
    }
    ask.calls.store(0, Ordering::Relaxed);
    if is_odd(connection) {
        return stays_tcp(slot);
    }
    let Some(_held) = LOCK.try_take() else { return };
    if !open() {
        return;
    }
    // The agent may have called for other connections. A program that has very many uses each of
    // them seldom, so their own next calls may come too late.
    take_all();
    if !is_there() {
        // The agent has ended; another one may come.
        return;
    }
    ask.times.fetch_add(1, Ordering::Relaxed);
    if !tcp::has_moved(connection.fd, &slot.receiver.tcp, &slot.sender.tcp) {
        // Another thread is in a call, or somebody reads or writes past this library.
        return if times + 1 == TIMES {
            has_moved(connection)
        };
    }
    let Some((local, remote)) = socket::names(connection.fd) else { return };
    if !settings::allows(local, remote) {
        board::entry(connection.at)
            .iter()
            .for_each(|entry| entry.asks(local, remote, slot.has(SPINS)));
        board::stays(connection.at, "the policy leaves it to TCP");
        return stays_tcp(slot);
    }
    board::entry(connection.at).iter().for_each(|entry| entry.asks(local, remote, slot.has(SPINS)));
    ask.process.store(process(), Ordering::Relaxed);
    ask.fd.store(connection.fd as u32, Ordering::Relaxed);
    if ask.state.compare_exchange(IDLE, ASKED, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    let token = slot.token(connection.at);
    if !say(&Message::Ask { token, local, remote }, None) {
        ask.state.store(IDLE, Ordering::Release);
    }
}

/// True if a socket has options that keep it TCP, or the program uses it by io_uring.
fn is_odd(connection: &Connection) -> bool {
    let ring = || rings::has_one().then_some(Why::Ring);
    let why = tcp::oddity(connection.fd).or_else(ring);
    why.into_iter().for_each(|why| notes(connection, why));
    why.is_some()
}

/// Notes a reason why a connection is by TCP, and shows it.
fn notes(connection: &Connection, why: Why) {
    if why::note(connection.at, connection.slot, why) {
        shows(connection);
    }
}

/// Bytes of a connection have moved past this library at each check. The agent connection is open,
/// and held.
fn has_moved(connection: &Connection) {
    if why::note(connection.at, connection.slot, Why::Moved) {
        show(connection);
    }
}

/// Shows a connection that has not asked in the list, with the reason.
fn shows(connection: &Connection) {
    if why::text(connection.slot).is_none() || !settings::is_on() || !may_open() {
        return;
    }
    let held = LOCK.try_take();
    if held.is_some() && open() {
        show(connection);
    }
}

/// Shows a connection in the list, with the reason. The agent connection is open, and held.
fn show(connection: &Connection) {
    let (slot, at) = (connection.slot, connection.at);
    let Some(why) = why::text(slot) else { return };
    if let Some((local, remote)) = socket::names(connection.fd) {
        board::entry(at).iter().for_each(|entry| entry.asks(local, remote, slot.has(SPINS)));
        board::stays(at, why);
    }
}

/// A connection is not asked for again, and its bytes are not counted any more.
/// Another thread may ask meanwhile.
fn stays_tcp(slot: &Slot) {
    let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
    if slot.ask.state.compare_exchange(IDLE, DENIED, success, failure).is_ok() {
        let _ = slot.state.compare_exchange(PLAIN, FINAL, success, failure);
    }
}

/// An answer about bytes that are to go back.
enum Answer {
    Given,
    Later,
    Not(Failure),
}

/// The result of bytes that have not gone back.
pub enum NotGiven {
    /// The bytes were taken back.
    Kept(Failure),
    /// The agent had the bytes, and has failed: they are lost.
    Lost(Failure),
}

/// Has the agent send the bytes of `record` by TCP, once `before` bytes are read there; waits until
/// all is in order there. `is_kept` takes the bytes back: false, if the agent has them.
///
/// # Errors
/// The bytes were taken back; or the agent had them and has failed.
pub fn give_back(
    one: &Connection,
    before: u64,
    record: RawFd,
    is_kept: impl Fn() -> bool,
) -> Result<(), NotGiven> {
    let Some(_held) = LOCK.take() else {
        let why = "a signal handler has interrupted a talk with the agent";
        return Err(NotGiven::Kept(Failure::new(why)));
    };
    let (token, other) = (one.slot.token(one.at), one.slot.other.get());
    let until = milliseconds() + PATIENCE_MS;
    let why = loop {
        // After a pause there may be an agent again.
        NOT_BEFORE.fetch_min(second(), Ordering::Relaxed);
        if !open() {
            break Failure::new("there is no agent");
        }
        let asked = say(&Message::Back { token, before, other }, Some(record))
            && say(&Message::Here(token), Some(one.fd));
        match asked.then(|| answer(one, token, until)) {
            Some(Answer::Given) => return Ok(()),
            Some(Answer::Later) if milliseconds() < until => calls::pause_ms(AGAIN_MS),
            Some(Answer::Later) => {
                break Failure::new("the agent brings too many connections of this user back");
            }
            Some(Answer::Not(why)) => break why,
            None => {
                take_all();
                if is_there() {
                    break Failure::new("the agent takes no message");
                }
            }
        }
    };
    if is_kept() {
        one.slot.set(slot::SHOWN);
        return Err(NotGiven::Kept(why));
    }
    if matches!(answer(one, token, milliseconds() + LONG_PATIENCE_MS), Answer::Given) {
        return Ok(());
    }
    Err(NotGiven::Lost(why))
}

/// Waits for the agent's answer about bytes that are to go back.
fn answer(one: &Connection, token: u64, until: u64) -> Answer {
    while is_there() {
        while let Some((message, passed)) = next() {
            match message {
                Message::Given(of) if of == token => return Answer::Given,
                Message::Later(of) if of == token => return Answer::Later,
                Message::None { token: of, why } if of == token => {
                    board::stays(one.at, &why);
                    return Answer::Not(Failure::new(&why));
                }
                other => act(&other, passed),
            }
        }
        if milliseconds() >= until {
            return Answer::Not(Failure::new("the agent does not answer"));
        }
        calls::poll_one(AGENT.number(), libc::POLLIN, 100);
    }
    Answer::Not(Failure::new("the agent has ended"))
}

/// Looks for messages of the agent, each time a little later.
#[inline]
fn heard(slot: &Slot) {
    let calls = slot.ask.calls.load(Ordering::Relaxed).wrapping_add(1);
    slot.ask.calls.store(calls, Ordering::Relaxed);
    if calls.is_power_of_two() || calls.is_multiple_of(16) {
        hear();
    }
}

#[cold]
fn hear() {
    let Some(_held) = LOCK.try_take() else { return };
    let was = real::errno();
    if PROCESS.load(Ordering::Relaxed) == process() && is_there() {
        take_all();
    }
    real::set_errno(was);
}

/// Takes all messages that the agent has sent. The connection is open, and held.
fn take_all() {
    while let Some((message, passed)) = next() {
        act(&message, passed);
    }
}

/// The connection is closed by the program. A FIN is sent at once if the agent may have a
/// descriptor of the socket, and no process but this one: for another the connection goes on.
pub fn closes(at: usize, slot: &Slot, fd: c_int, alone: bool) {
    if slot.ask.state.load(Ordering::Relaxed) != ASKED {
        return;
    }
    slot.ask.state.store(DENIED, Ordering::Relaxed);
    if slot.ask.process.load(Ordering::Relaxed) != process() {
        return;
    }
    if alone && slot.ask.times.load(Ordering::Relaxed) & SHOWN != 0 {
        real::shutdown(fd, libc::SHUT_WR);
    }
    let Some(_held) = LOCK.try_take() else { return };
    if is_there() {
        say(&Message::Cancel(slot.token(at)), None);
    }
}

/// Mark in `times`: the agent was shown the socket.
const SHOWN: u32 = 1 << 16;

fn is_there() -> bool {
    AGENT.get().is_some()
}

/// True if the connection is open, or it is time to try that.
fn may_open() -> bool {
    AGENT.number() >= 0 || second() >= NOT_BEFORE.load(Ordering::Relaxed)
}

/// Opens the connection, unless it is open. False: there is no agent now.
fn open() -> bool {
    if PROCESS.load(Ordering::Relaxed) == process() && is_there() {
        return true;
    }
    let now = second();
    if now < NOT_BEFORE.load(Ordering::Relaxed) {
        return false;
    }
    let fd = reach::connect(b"-sockets").unwrap_or(-1);
    PROCESS.store(process(), Ordering::Release);
    AGENT.set(fd);
    if fd < 0 {
        let pause = PAUSES.load(Ordering::Relaxed);
        NOT_BEFORE.store(now + pause, Ordering::Relaxed);
        PAUSES.store((pause * 2).min(PAUSE_MAX), Ordering::Relaxed);
        return false;
    }
    PAUSES.store(PAUSE, Ordering::Relaxed);
    if let Some(list) = board::make(process()) {
        say(&Message::Board(process().into()), Some(list));
        close(list);
    }
    true
}

/// Sends a message to the agent; never waits. False if it takes none now.
fn say(message: &Message, pass: Option<RawFd>) -> bool {
    reach::say(AGENT.number(), message, pass)
}

/// Receives the next message, and the descriptor that came with it.
fn next() -> Option<(Message, RawFd)> {
    match reach::hear(AGENT.number()) {
        Heard::Message(message, passed) => Some((message, passed)),
        Heard::Nothing => None,
        Heard::End => {
            ended();
            None
        }
    }
}

/// The agent has ended, or says what this library does not understand.
fn ended() {
    AGENT.end();
    NOT_BEFORE.store(second() + PAUSE, Ordering::Relaxed);
    let Some(region) = slot::region() else { return };
    // Connections that asked may ask again.
    let own = process();
    table::each_slot(region, |_, slot| {
        if slot.ask.process.load(Ordering::Relaxed) == own {
            let (from, to) = (ASKED, IDLE);
            let _ = slot.ask.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        }
    });
}

/// Returns the connection of a token, if it still asks.
fn asking(token: u64) -> Option<Connection> {
    let at = (token & u64::from(u32::MAX)) as usize;
    let slot = table::slot_at(at)?;
    let fd = slot.ask.fd.load(Ordering::Relaxed) as c_int;
    let connection = table::connection(fd)?;
    let same = connection.at == at && slot.token(at) == token;
    (same && slot.ask.state.load(Ordering::Acquire) == ASKED).then_some(connection)
}

fn act(message: &Message, passed: RawFd) {
    match message {
        Message::Call(token) | Message::Far(token) => match asking(*token) {
            Some(one) => {
                let is_far = matches!(message, Message::Far(_));
                if let Some(path) = is_far.then(|| socket::path(one.fd)).flatten() {
                    say(&Message::Path(*token), Some(path));
                    close(path);
                }
                one.slot.ask.times.fetch_or(SHOWN, Ordering::Relaxed);
                say(&Message::Here(*token), Some(one.fd));
            }
            None => drop(say(&Message::Cancel(*token), None)),
        },
        Message::Pair { token, first, other } => {
            if let Some(one) = asking(*token) {
                one.slot.ask.state.store(DENIED, Ordering::Release);
                one.slot.other.set(*other);
                if attach(&one, passed, *first) {
                    board::entry(one.at).iter().for_each(|entry| entry.shares());
                }
            }
        }
        Message::None { token, why } => {
            if let Some(one) = asking(*token) {
                board::stays(one.at, why);
                one.slot.ask.times.fetch_and(!SHOWN, Ordering::Relaxed);
                one.slot.ask.state.store(IDLE, Ordering::Release);
            }
        }
        _ => {}
    }
    close(passed);
}

/// The connection shares memory from now on. False if it does not.
fn attach(one: &Connection, memory: RawFd, first: bool) -> bool {
    let slot = one.slot;
    // A child has the memory, too, or the connection has none.
    let Some(_steady) = holders::no_fork() else { return false };
    let fits = holders::may_join()
        && slot.holders.is_own()
        && table::shared() < settings::most()
        && !slot.has(NEVER | SHUT)
        && slot.state.load(Ordering::Acquire) == PLAIN;
    board::stays(one.at, "there is no memory for it, or it is not to be had now");
    if memory < 0 || !fits || board::is_off() || !is_steady(memory, SEGMENT) || !set::can_kick() {
        return false;
    }
    // From the barrier on, all calls under way are known.
    slot.counts().into_iter().for_each(Count::share);
    if !owner::barrier() {
        return false;
    }
    let Some(mapped) = Mapped::of(memory) else { return false };
    if calls::is_nonblocking(one.fd) {
        slot.set(NONBLOCKING);
    }
    if !tcp::is_set(one.fd, libc::TCP_NODELAY) {
        slot.set(NAGLE);
        tcp::do_not_delay(one.fd);
    }
    if !tcp::is_set(one.fd, libc::TCP_NOTSENT_LOWAT) {
        slot.set(DEEP);
        tcp::keep_few(one.fd);
    }
    if tcp::is_set(one.fd, libc::TCP_CORK) {
        slot.set(CORKED);
    }
    if tcp::is_set(one.fd, libc::TCP_INQ) {
        slot.set(INQ);
    }
    if let Some(bell) = loan::make_bell(urgent::is_caught) {
        say(&Message::Bell(process().into()), Some(bell));
        close(bell);
    }
    table::set_memory(one.at, mapped, first);
    slot.state.swap(SHARED, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    if slot.has(SHUT) {
        // Another thread has done so meanwhile, and may have found no memory.
        stream::enter(*one).iter().for_each(stream::Use::say_end);
    }
    true
}
