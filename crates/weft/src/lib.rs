//! Message passing between processes: over shared memory inside a host, over plain Ethernet between
//! hosts. The library of programs, with jobs, groups, endpoints, and a port for protocols above
//! messages.
//!
//! # Four things
//!
//! - A **job** is a set of processes that were started together, its *ranks*, numbered from 0.
//!   [`Job::init`] makes this process a rank. It finds its job under `weft run`, `mpiexec`, `srun`
//!   and `prterun`; a process that is started alone is a job of one rank.
//! - A **group** is an ordered set of ranks with tags of its own. [`Job::world`] has all ranks,
//!   [`Group::subset`] some. A [`Group`] sends messages to ranks by number, and has the collective
//!   operations: barrier, broadcast, reduce, gather and others.
//! - An **endpoint** is the interface below: messages to peers by address, with match bits of 64
//!   bits, probes, active messages, remote memory and atomic operations. A job has one endpoint
//!   ([`Job::endpoint`]); programs without a launcher open their own ([`job::open_endpoint`]).
//! - A **port** is the place where a protocol of your own meets the endpoint: a [`port::Client`] is
//!   called for each message that arrives for its number, for failures, and at times of its choice.
//!   The crate `weft-packets` is such a client.
//!
//! # A first program
//!
//! ```no_run
//! use weft::{Job, Op};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let job = Job::init()?;
//!     let world = job.world();
//!     // A message with tag 7 from rank 0 to rank 1.
//!     if world.rank() == 0 {
//!         world.send_blocking(1, 7, b"hello")?;
//!     } else if world.rank() == 1 {
//!         let text = world.recv(0, 7, 1024).wait()?;
//!         println!("{}", String::from_utf8_lossy(&text));
//!     }
//!     // A collective operation: every rank gets the sum of all ranks' values.
//!     let sum = world.allreduce_blocking(vec![world.rank() as u64], Op::Sum)?;
//!     println!("rank {} of {}: the sum is {}", world.rank(), world.size(), sum[0]);
//!     Ok(())
//! }
//! ```
//!
//! `weft run -n 4 target/debug/my-program` starts four ranks on this host, and `weft run --hosts
//! a:4,b:4 target/debug/my-program` four on each of two hosts.
//!
//! # Operations
//!
//! A send, a receive or a collective operation has started when the call returns. It goes on
//! whenever the endpoint makes *progress*: inside every call that waits, and in
//! [`Endpoint::progress`]. There are four forms to get its result:
//!
//! - `.await`, inside [`Job::block_on`]: several operations at once.
//! - [`Started::wait`] and [`Operation::wait`]: the caller waits for this one.
//! - The calls whose names end in `_blocking`: they start and wait.
//! - [`CompletionQueue`]: thousands of operations, each given back as it ends.
//!
//! A buffer that was given to an operation comes back with its result. A `Job`, its groups and its
//! endpoint belong to one thread; [`SharedJob`] is for many.
//!
//! Every wait for a peer ends with a result or an error. Errors name the rank, its host, the path,
//! the cause and the remedy, also where `main` returns them.
//!
//! # Where to go next
//!
//! | I want to | see |
//! | --- | --- |
//! | send to ranks, use collective operations | [`Group`] |
//! | receive whichever message comes first | [`Group::recv_any`], [`CompletionQueue`] |
//! | read and write memory of other ranks | [`Endpoint`] |
//! | use many threads, or a watchdog while I compute | [`SharedJob`], [`SharedEndpoint`] |
//! | sleep in an `epoll` of my own | [`endpoint::Waiting::fd`] |
//! | have no launcher | [`job::open_endpoint`], [`Config`], [`Links`], [`Address`] |
//! | find endpoints by name on all hosts | [`names`] |
//! | choose transfer, reliability or MTU for one peer | [`Choices`] |
//! | write a protocol above messages | [`port`] |
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod bell;
pub mod calibration;
mod card;
pub mod choices;
pub mod clock;
mod cores;
pub mod counters;
pub mod endpoint;
pub mod group;
pub mod job;
pub mod memory;
pub mod names;
pub mod port;
mod reactor;
mod selflink;
pub mod settings;
pub mod shared;

pub use calibration::Calibration;
pub use choices::Choices;
pub use clock::Clock;
pub use endpoint::{ActiveMessage, Completed, CompletionQueue};
pub use endpoint::{ConnectError, Endpoint, Operation, Status};
pub use group::{Bf16, Complex, Element, Number, F16};
pub use group::{Group, GroupError, Kept, Op, Over, Placed, Started, Tree};
pub use job::{Job, JobError, Links};
pub use selflink::SelfLink;
pub use shared::{Cancel, SharedEndpoint, SharedJob};
pub use weft_core::engine::types::{AtomicCode, Completion, OpKind, RecvArgs, Refused, SendArgs};
pub use weft_core::engine::Rights;
pub use weft_core::{Config, EndpointId, OpError, OpId, PeerFailure, PeerId, Reliability, Stats};
pub use weft_link::telling;
pub use {weft_launch as launch, weft_link::Address};
