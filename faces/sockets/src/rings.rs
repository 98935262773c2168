//! Rings of io_uring, by which the kernel reads and writes sockets without a call.

use crate::sys::calls;
use std::sync::atomic::{AtomicU32, Ordering};

/// 1 once the program has one.
static HAS_ONE: AtomicU32 = AtomicU32::new(0);
/// Questions if it has one.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// Questions at each of which the program's mappings are looked through, and number of questions of
/// which one is, later: the list of mappings is long where many connections share memory.
const EACH: u32 = 64;
/// A mapping's name.
const NAME: &[u8] = b"anon_inode:[io_uring]";

/// The program makes one.
pub fn has_come() {
    HAS_ONE.store(1, Ordering::SeqCst);
}

/// True if the program has one. The mappings of a ring that was made by instructions of the
/// program's own, such as those of a liburing that is linked statically, are looked for.
pub fn has_one() -> bool {
    let asked = ASKED.fetch_add(1, Ordering::Relaxed);
    let looks = asked < EACH || asked.is_multiple_of(EACH);
    if looks && HAS_ONE.load(Ordering::SeqCst) == 0 && is_mapped() {
        has_come();
    }
    HAS_ONE.load(Ordering::SeqCst) != 0
}

fn is_mapped() -> bool {
    let Some(fd) = calls::open(libc::AT_FDCWD, c"/proc/self/maps", libc::O_CLOEXEC) else {
        return false;
    };
    let mut bytes = [0u8; 4096];
    let (mut at, mut len, mut found) = (0, 0, false);
    while !found {
        let n = calls::read_at(fd, &mut bytes[len..], at);
        if n == 0 {
            break;
        }
        at += n as u64;
        len += n;
        found = bytes[..len].windows(NAME.len()).any(|part| part == NAME);
        // A name may be cut by the end of what was read.
        let rest = len.min(NAME.len() - 1);
        bytes.copy_within(len - rest..len, 0);
        len = rest;
    }
    calls::close(fd);
    found
}
