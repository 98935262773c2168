//! The sockets adapter of weft: the loader puts it before the C library (`LD_PRELOAD`), and TCP
//! connections between programs that have it share memory. Waits for other hosts spin before they
//! sleep.
//!
//! `docs/adr/0033-sockets-that-sleep-in-the-kernel.md` says how and why, `docs/guide/sockets.md` is
//! for users. The protocol is `weft-streams`, which knows no descriptor. Modules, each above those
//! behind it:
//!
//! - `hooks`: the functions that stand before those of the C library. A call on anything that is no
//!   TCP connection goes to the C library after one look at a table, and most calls on a connection
//!   over TCP after a look at their count (`hooks::quick`, `owner`).
//! - `agent`: the agent connection, by which a connection gets shared memory. `handback`: bytes
//!   that return from it to TCP; `kept`: those that the next program of this process reads.
//! - `wait`, `set`: waits for several connections, and epoll sets. `stream`: reads and writes of a
//!   connection that shares memory. `readiness`, `wake`: bytes in rings. `spin`, `tcp_spin`,
//!   `history`: polls before a sleep, and the experience with them.
//! - `loan`: sockets that the agent sends by. `urgent`, `guard`, `masked`, `signals`: handlers of
//!   signals. `tipc`: sockets of AF_TIPC. `program`, `target`: programs that are started.
//!   `rings`: those of io_uring.
//! - `table`: the connection of each descriptor. `slot`: what is kept of a connection, in memory
//!   that children share. `board`: what the agent sees of it.
//! - `sys`: system calls and raw memory, which know no connection. Modules named `sys` alone have
//!   code that the compiler does not check.
//!
//! Nothing here allocates, and nothing is locked while a call of the C library may sleep: threads
//! are cancelled there, and signal handlers run.
#![warn(missing_docs)]

mod affinity;
mod agent;
mod board;
mod failure;
mod guard;
mod handback;
mod history;
mod holders;
mod hooks;
mod kept;
mod loan;
mod lock;
mod masked;
mod own;
mod owner;
mod parts;
mod program;
mod reach;
mod readiness;
mod registrations;
mod rings;
mod scratch;
mod set;
mod settings;
mod signals;
mod slot;
mod spin;
mod stream;
mod sys;
mod table;
mod target;
mod tcp;
mod tcp_spin;
mod tipc;
mod urgent;
mod vfork;
mod wait;
mod wake;
mod why;
