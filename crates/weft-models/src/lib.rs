//! Programming models over the packet interface: remote calls, totally ordered groups, shared
//! objects, coherent regions, jobs, objects that messages drive, and operations of all ranks.
//!
//! Each module is usable alone, and written once against [`Net`](weft_packets::net::Net): it runs
//! over every link of weft and, without a change, in weft's simulator.
//!
//! | I want to | module |
//! | --- | --- |
//! | call functions of other ranks, and answer when I can | [`rpc`] |
//! | have the same messages in the same order on all ranks | [`order`] |
//! | share typed state, replicated or at a rank | [`objects`] |
//! | share large memory, which ranks read and write in turn | [`regions`] |
//! | spread work over all ranks, each job where its data is | [`jobs`] |
//! | have many objects that send each other messages and move between ranks | [`actors`] |
//! | combine values of all ranks | [`together`] |
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod actors;
mod channel;
pub mod jobs;
pub mod objects;
pub mod order;
mod quorum;
pub mod regions;
pub mod rpc;
pub mod together;

pub use channel::MESSAGE_MAX;
pub use weft_packets::net;

/// The first packet handler of this crate's modules. The numbers from 256 to 2303 belong to them:
/// programs that use the packet interface beside models take others.
pub const HANDLERS: u16 = weft_packets::net::PATIENT.start;

/// The first handlers of queues of jobs, which have two each, and of operations of all ranks.
const QUEUE_HANDLERS: u16 = HANDLERS + 0x500;
const TOGETHER_HANDLERS: u16 = QUEUE_HANDLERS + 2 * jobs::QUEUES;
const _: () = assert!(TOGETHER_HANDLERS + together::NUMBERS <= weft_packets::net::PATIENT.end);

/// Keeps a waker, once, however often its future is polled.
fn park(wakers: &mut Vec<std::task::Waker>, waker: &std::task::Waker) {
    if !wakers.iter().any(|known| known.will_wake(waker)) {
        wakers.push(waker.clone());
    }
}

/// Longest time for which a blocking call waits before it takes care of long waits.
const SOON: std::time::Duration = std::time::Duration::from_micros(500);
/// Rounds of progress in that time.
const ROUNDS: usize = 16;

/// Runs a future for a short time, with progress meanwhile: most operations end so, and need no
/// timer. `None` if it has not ended; then somebody polls it who has a waker.
fn soon<N: net::Blocking, F: std::future::Future>(
    net: &N,
    mut work: std::pin::Pin<&mut F>,
) -> Option<F::Output> {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    for round in 0..ROUNDS {
        if let std::task::Poll::Ready(done) = work.as_mut().poll(&mut cx) {
            if round == 0 {
                net.attend();
            }
            return Some(done);
        }
        if !net.wait(Some(SOON)) {
            return None;
        }
    }
    None
}

/// Returns the text of a panic.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("without a text").to_string()
}

/// The programs of the guide's pages, which have to compile.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/guide/calls.md")]
    struct Calls;

    #[doc = include_str!("../../../docs/guide/order.md")]
    struct Order;

    #[doc = include_str!("../../../docs/guide/objects.md")]
    struct Objects;

    #[doc = include_str!("../../../docs/guide/regions.md")]
    struct Regions;

    #[doc = include_str!("../../../docs/guide/jobs.md")]
    struct Jobs;

    #[doc = include_str!("../../../docs/guide/actors.md")]
    struct Actors;
}
