//! Moves of this process to another host, as its launcher orders them.
//!
//! A thread reads the orders. For a move it keeps all callers out of the provider, closes the links
//! and waits for the order to go on: while it waits, the process has no descriptor of the network,
//! and is copied. The callers notice a call that takes long.

use crate::watchdog;
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::Once;
use std::time::{Duration, Instant};
use weft::job::Links;
use weft::launch::moving::{self, Order, Word, VARIABLE};
use weft::launch::wire::LineBuffer;
use weft_sys::threads::{stack, without_signals};

/// The links of a process that moves: UDP finds its peers on all hosts, with no memory in common.
pub const LINKS: Links = Links { shm: false, auto: false, ..Links::AUTO };

/// Longest wait until no caller is inside.
const ENTER: Duration = Duration::from_secs(5);
/// Longest wait until all peers have answered that they hold.
const HOLD: Duration = Duration::from_millis(20);
/// Longest wait, with callers kept out, until all peers have answered that they heard of the move.
const TELL: Duration = Duration::from_secs(2);
/// Time after which a peer that has not answered is told again, and the longest time for that.
const AGAIN: Duration = Duration::from_millis(5);
const AGAIN_UNTIL: Duration = Duration::from_secs(120);

/// A step of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Say what stands against a move.
    Check,
    /// Tell peers that the move of this number begins.
    Hold(u32),
    /// Close the links.
    Close,
    /// Open the links after the move of this number, with these packet numbers.
    Open(u32, Range<u64>),
    /// Tell peers that have not answered again.
    Tell,
    /// Make progress.
    Hear,
    /// Wake callers that sleep.
    Wake,
}

/// Does a step in all domains.
type Steps<'a> = &'a dyn Fn(&Step) -> Result<usize, String>;

/// True if the launcher started this process so that it can move.
///
/// # Errors
/// The process has settings with which it cannot.
pub fn asked(lookup: &dyn Fn(&str) -> Option<String>) -> Result<bool, String> {
    if lookup(VARIABLE).is_none() {
        return Ok(false);
    }
    if lookup("WEFT_SECURITY").is_some_and(|mode| mode.trim() == "none") {
        return Err("a rank that can move needs frames that are authenticated, since its peers \
                    believe its new address: leave WEFT_SECURITY=none or --migratable out"
            .into());
    }
    Ok(true)
}

/// True if the launcher started this process so that it can move.
pub fn is_asked() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Starts to obey orders, once; `domain` is one of the first that moves.
///
/// # Errors
/// The descriptor of the launcher is not open, or no thread starts.
pub fn start(domain: &(impl watchdog::Visited + 'static), every: Duration) -> Result<(), String> {
    static STARTED: Once = Once::new();
    let every = if every.is_zero() { watchdog::SOON } else { every };
    if !watchdog::add(domain, every) {
        return Err("a rank that can move needs membarrier(2)".into());
    }
    let mut started = Ok(());
    STARTED.call_once(|| started = start_thread());
    started
}

fn start_thread() -> Result<(), String> {
    let launcher = moving::launcher()?;
    let builder = std::thread::Builder::new().name("weft-move".to_owned());
    let mut orders = Orders { launcher, lines: LineBuffer::default() };
    orders.say(&Word::Ready);
    let obey = move || orders.obey();
    let spawned = without_signals(|| builder.stack_size(stack(256 << 10)).spawn(obey));
    spawned.map(drop).map_err(|why| format!("no thread that obeys the launcher: {why}"))
}

/// The launcher, as the thread hears it.
struct Orders {
    launcher: UnixStream,
    lines: LineBuffer,
}

impl Orders {
    /// Obeys orders until the launcher is gone.
    fn obey(mut self) {
        while let Some(order) = self.next() {
            let Order::Hold { number } = order else { continue };
            let moved = watchdog::standstill(ENTER, |steps| self.stand_still(steps, number));
            match moved {
                None => self.cannot(number, "a call of the program does not end".into()),
                Some(false) => {}
                Some(true) => tell_the_rest(),
            }
        }
    }

    /// Returns the next order; waits for it. `None` if the launcher is gone.
    fn next(&mut self) -> Option<Order> {
        loop {
            if let Some(line) = self.lines.next_line().ok()? {
                return Order::parse(&line);
            }
            let mut bytes = [0; 256];
            match self.launcher.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.lines.extend(&bytes[..count]),
                Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }

    fn say(&mut self, word: &Word) {
        // A launcher that is gone ends this process.
        let _ = self.launcher.write_all(word.line().as_bytes());
    }

    fn cannot(&mut self, number: u32, why: String) {
        self.say(&Word::Cannot { number, why });
    }

    /// Goes through a move. True if the endpoints were closed and are open again.
    fn stand_still(&mut self, steps: Steps<'_>, number: u32) -> bool {
        if let Err(why) = steps(&Step::Check) {
            self.cannot(number, why);
            return false;
        }
        let told = steps(&Step::Hold(number)).and_then(|_| hear(steps, HOLD));
        if let Err(why) = told.and_then(|_| steps(&Step::Close)) {
            self.cannot(number, why);
            return false;
        }
        self.say(&Word::Held { number });
        // The process may be copied here, and go on elsewhere, any number of times: only one of the
        // copies hears a launcher.
        while let Some(order) = self.next() {
            let Order::Go { number: of, runs } = order else { continue };
            if of != number {
                self.cannot(of, format!("this is move {number}"));
                continue;
            }
            match steps(&Step::Open(number, runs)).and_then(|_| hear(steps, TELL)) {
                Ok(untold) => {
                    let _never_fails = steps(&Step::Wake);
                    self.say(&Word::Went { number, untold });
                    return true;
                }
                Err(why) => self.cannot(number, why),
            }
        }
        log::error!("this copy of a rank that moved has no launcher: it ends");
        // Without a launcher there is no packet number: this process must not go on.
        std::process::abort();
    }
}

/// Makes progress until all peers have answered, at most for `limit`. Returns the number of those
/// that have not.
fn hear(steps: Steps<'_>, limit: Duration) -> Result<usize, String> {
    let (until, mut again) = (Instant::now() + limit, Instant::now() + AGAIN);
    loop {
        let untold = steps(&Step::Hear)?;
        let now = Instant::now();
        if untold == 0 || now >= until {
            return Ok(untold);
        }
        if now >= again {
            steps(&Step::Tell)?;
            again = now + AGAIN;
        }
        std::thread::yield_now();
    }
}

/// Tells peers that have not answered again, while callers go on.
fn tell_the_rest() {
    let until = Instant::now() + AGAIN_UNTIL;
    let untold = || watchdog::standstill(ENTER, |steps| steps(&Step::Tell).unwrap_or(0));
    let mut pause = AGAIN;
    while untold().is_some_and(|count| count > 0) && Instant::now() < until {
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}
