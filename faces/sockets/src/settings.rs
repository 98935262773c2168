//! Settings, from variables of the environment, read once.

use crate::sys::calls::{processors, variable};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;
use weft_streams::message::Place;
use weft_streams::policy::Policy;

static IS_ON: AtomicU32 = AtomicU32::new(0);
static SPIN_NS: AtomicU64 = AtomicU64::new(0);
static AFTER: AtomicU32 = AtomicU32::new(8);
static MOST: AtomicU32 = AtomicU32::new(1024);

/// Longest time for which a call spins on a ring before it sleeps, unless the environment says so.
const SPIN_US: u64 = 20;

/// The rules of the connections that may share memory.
static POLICY: OnceLock<Policy> = OnceLock::new();
/// The name of the agent, and the folder of this user's.
static AGENT: OnceLock<Text> = OnceLock::new();
static FOLDER: OnceLock<Text> = OnceLock::new();

/// A text that stays if the program clears its environment, or writes over it.
struct Text {
    bytes: [u8; 128],
    len: usize,
}

/// Keeps a variable of the environment. One that is too long for the name of a socket is none.
fn keep(name: &CStr, to: &OnceLock<Text>) {
    let Some(value) = variable(name) else { return };
    let mut text = Text { bytes: [0; 128], len: value.len() };
    if let Some(bytes) = text.bytes.get_mut(..value.len()) {
        bytes.copy_from_slice(value);
        let _ = to.set(text);
    }
}

fn kept(text: &'static OnceLock<Text>) -> Option<&'static [u8]> {
    text.get().map(|text| &text.bytes[..text.len])
}

/// Returns the number in a variable of the environment.
fn number(name: &CStr) -> Option<u64> {
    std::str::from_utf8(variable(name)?).ok()?.parse().ok()
}

/// Reads the environment.
pub fn read() {
    let spin = number(c"WEFT_SOCKETS_SPIN_US").unwrap_or(SPIN_US).min(10_000);
    // A process on one of several processors may have a peer on another one.
    let spin = if processors() > 1 { spin } else { 0 };
    SPIN_NS.store(spin * 1000, Ordering::Relaxed);
    let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    if let Some(after) = number(c"WEFT_SOCKETS_AFTER") {
        AFTER.store(small(after), Ordering::Relaxed);
    }
    if let Some(most) = number(c"WEFT_SOCKETS_CONNECTIONS") {
        MOST.store(small(most), Ordering::Relaxed);
    }
    keep(c"WEFT_AGENT", &AGENT);
    keep(c"XDG_RUNTIME_DIR", &FOLDER);
    let policy = variable(c"WEFT_SOCKETS_POLICY").map(|value| {
        // One that cannot be read allows nothing.
        let text = std::str::from_utf8(value).ok();
        text.and_then(|text| Policy::parse(text).ok()).or_else(|| Policy::parse("[::]:0").ok())
    });
    if let Some(policy) = policy.flatten() {
        let _ = POLICY.set(policy);
    }
    IS_ON.store(u32::from(number(c"WEFT_SOCKETS") != Some(0)), Ordering::Relaxed);
}

/// Returns the name of the agent, if one was named at the start of the program.
pub fn agent() -> Option<&'static [u8]> {
    kept(&AGENT)
}

/// Returns the folder of this user's sockets, if one was named at the start of the program.
pub fn folder() -> Option<&'static [u8]> {
    kept(&FOLDER)
}

/// True if the user lets a connection with these names share memory.
pub fn allows(local: Place, remote: Place) -> bool {
    POLICY.get().is_none_or(|policy| policy.allows(local, remote))
}

/// True if connections are upgraded.
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed) != 0
}

/// The program is confined: the kernel may end it for a call that it does not make itself.
pub fn turn_off() {
    IS_ON.store(0, Ordering::Relaxed);
}

/// True if calls spin on a ring before they sleep.
pub fn spins() -> bool {
    spin_ns() > 0
}

/// The longest time for that, in nanoseconds.
pub fn spin_ns() -> u64 {
    SPIN_NS.load(Ordering::Relaxed)
}

/// Calls on a connection, once bytes have gone both ways, after which the other end is asked for.
pub fn after() -> u32 {
    AFTER.load(Ordering::Relaxed)
}

/// Most connections that share memory.
pub fn most() -> u32 {
    MOST.load(Ordering::Relaxed)
}
