//! The sockets adapter of weft: the loader puts it before the C library (`LD_PRELOAD`), and TCP
//! connections between programs that have it share memory. Waits for other hosts spin before they
//! sleep.
//!
//! `docs/adr/0033-sockets-that-sleep-in-the-kernel.md` says how and why, `docs/guide/sockets.md` is
//! for users. The protocol is `weft-streams`, which knows no descriptor. Here are functions that
//! stand before those of the C library, all in [`sys`]:
//!
//! - `hooks/`: the functions themselves, a file for each kind. A call on anything that is no TCP
//!   connection goes to the C library after one look at a table, and most calls on a connection by
//!   TCP after a look at their count (`hooks/quick`, `owner`).
//! - `table`: the connection of each descriptor. `slot`: what is kept of a connection, in memory
//!   that children share. `set`: the same of an epoll set.
//! - `stream`: reads and writes of a connection that shares memory. `wait`: waits. `wake`, `look`:
//!   looks at rings and at TCP, and the experience with them.
//! - `line`: the way to the agent. `real`: the functions of the C library. `lock`, `tcp`, `parts`:
//!   tools.
//!
//! Nothing here allocates, and nothing is locked while a call of the C library may sleep: threads
//! are cancelled there, and signal handlers run.
#![warn(missing_docs)]

#[allow(unsafe_code)]
pub mod sys;
