//! The probes that the benchmarks of this crate add to those of `weft-measure`.

use super::choice::{cast, probe};
use super::faces::many::Collective;
use super::faces::together::{Operation, Over};
use super::models::Figure;
use super::rank::{Added, Addition, Outcome, Probe, Rank, Task};
use super::{faces, logp, models, mxoe, wait, Subject};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// A measurement between the two ranks. All return seconds per iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum More {
    /// Time of a put, until it is complete.
    WeftPut,
    /// Ping-pong of `myriexpress.h`, one way.
    MxPingPong,
    /// An operation of both ranks at once.
    Together(Over, Operation),
    /// Ping-pong of `myriexpress.h` in frames of MX over Ethernet, one way; `arg` is the tuning.
    MxWired,
    /// Share of a core that a receiver in frames of MX over Ethernet uses; `arg` is the tuning.
    MxBusy,
    /// Share of a core that a receiver of TCP uses, which sleeps while it waits.
    TcpBusy,
    /// A collective operation of more than two ranks.
    Many(Over, Collective),
    /// Ping-pong of `vipl.h`, one way.
    ViaPingPong,
    /// A message of bursts of `vipl.h`.
    ViaStream,
    /// Time of an RDMA write of `vipl.h`, until it is complete.
    ViaWrite,
    /// Ping-pong of messages in frames of MX over Ethernet, one way; `arg` as packed by
    /// `mxoe::Variant`.
    MxoePingPong,
    /// Time of the sending call alone, for a few messages.
    WeftSendOverhead,
    /// A round trip with a computation of `arg` nanoseconds inside, minus the computation.
    WeftBusyRoundTrip,
    /// Waking a rank that sleeps in a receive.
    WeftWake,
    /// Ping-pong of packets of the packet interface, one way.
    PacketPingPong,
    /// Time of sending a packet alone, for a few packets.
    PacketSendOverhead,
    /// A round trip of packets with a computation of `arg` nanoseconds inside, minus the
    /// computation.
    PacketBusyRoundTrip,
    /// Messages in one direction through the packet interface.
    PacketStream,
    /// Fetch-and-add at a rank that computes for `arg` nanoseconds between two polls.
    FetchAdd,
    /// Fetch-and-add at a rank that computes all the time and never polls.
    FetchAddUnpolled,
    /// Length of the longest packet in bytes, not a time.
    PacketMax,
    /// A multicast; `arg` as packed by `cast::Cast`.
    Multicast,
    /// Share of a core used by a rank that waits for `iters` milliseconds.
    WeftIdle,
    /// A figure of the programming models, or of a peer of theirs.
    Model(Figure),
}

impl From<More> for Probe {
    fn from(more: More) -> Probe {
        let mut bytes = [0; 8];
        // The test below packs each kind: none is longer.
        let _ = postcard::to_slice(&more, &mut bytes);
        Probe::Added(Added(bytes))
    }
}

impl From<More> for Subject {
    fn from(more: More) -> Subject {
        Probe::from(more).into()
    }
}

fn of(added: Added) -> Result<More> {
    Ok(postcard::from_bytes(&added.0)?)
}

fn name(added: Added) -> &'static str {
    let Ok(more) = of(added) else { return "a probe of another build" };
    match more {
        More::WeftPut => "weft put",
        More::MxPingPong => "MX ping-pong",
        More::Together(_, operation) => operation.name(),
        More::MxWired => "MX in frames of MXoE",
        More::MxBusy => "processor use of a receiver of MX",
        More::TcpBusy => "processor use of a receiver of TCP",
        More::Many(_, operation) => operation.name(),
        More::ViaPingPong => "VIA ping-pong",
        More::ViaStream => "VIA bursts",
        More::ViaWrite => "VIA write",
        More::MxoePingPong => "MXoE ping-pong",
        More::WeftSendOverhead => "weft overhead of sends",
        More::WeftBusyRoundTrip => "weft round trip with computation",
        More::WeftWake => "weft wake-up",
        More::WeftIdle => "weft wait",
        More::PacketPingPong => "packet interface ping-pong",
        More::PacketSendOverhead => "packet interface overhead of sends",
        More::PacketBusyRoundTrip => "packet interface round trip with computation",
        More::PacketStream => "packet interface stream",
        More::FetchAdd => "fetch-and-add",
        More::FetchAddUnpolled => "fetch-and-add, owner never polls",
        More::PacketMax => "longest packet",
        More::Multicast => "multicast",
        More::Model(figure) => figure.name(),
    }
}

fn is_local(added: Added) -> bool {
    matches!(of(added), Ok(More::Model(figure)) if figure.is_local())
}

/// Runs a probe on one of the ranks.
///
/// # Errors
/// The probe failed.
pub fn work(rank: &mut Rank, task: &Task, added: Added) -> Result<Outcome> {
    match of(added)? {
        More::WeftPut => faces::put(rank, task),
        More::MxPingPong => faces::mx_ping_pong(rank, task),
        More::Together(over, of) => faces::together::measure(rank, task, over, of),
        More::MxWired => faces::wired::ping_pong(rank, task),
        More::MxBusy => faces::busy::mx(rank, task),
        More::TcpBusy => faces::busy::tcp(rank, task),
        More::Many(over, of) => faces::many::measure(rank, task, over, of),
        More::ViaPingPong => faces::via_ping_pong(rank, task),
        More::ViaStream => faces::via_stream(rank, task),
        More::ViaWrite => faces::via_write(rank, task),
        More::MxoePingPong => mxoe::ping_pong(rank, task),
        More::WeftSendOverhead => logp::send_overhead(rank, task),
        More::WeftBusyRoundTrip => logp::busy_round_trip(rank, task),
        More::WeftWake => wait::wake(rank, task),
        More::WeftIdle => wait::idle(rank, task),
        More::PacketPingPong => probe::ping_pong(rank, task),
        More::PacketSendOverhead => probe::send_overhead(rank, task),
        More::PacketBusyRoundTrip => probe::busy_round_trip(rank, task),
        More::PacketStream => probe::stream(rank, task),
        More::FetchAdd => probe::fetch_add(rank, task),
        More::FetchAddUnpolled => probe::fetch_add_unpolled(rank, task),
        More::PacketMax => probe::packet_max(rank),
        More::Multicast => cast::multicast(rank, task),
        More::Model(figure) => models::measure(rank, task, figure),
    }
}

/// The probes, for [`weft_measure::work::add`].
pub const ADDITION: Addition = Addition { name, is_local, far: &["bench", "bench-rank", "--far"] };

/// The state that the probes of a rank have opened, each at its first use.
#[derive(Default)]
pub struct Opened {
    /// The packet interface on the endpoint.
    pub packets: Option<Rc<probe::Line>>,
    /// The interfaces of old.
    pub faces: faces::Faces,
    /// Frames of MX over Ethernet.
    pub mxoe: Option<mxoe::Mxoe>,
    /// The programming models.
    pub models: Option<Rc<models::Models>>,
}

/// Returns what the probes of a rank have opened.
pub fn opened(rank: &mut Rank) -> &mut Opened {
    let any = rank.opened.get_or_insert_with(|| Box::new(Opened::default()));
    match any.downcast_mut() {
        Some(opened) => opened,
        None => unreachable!("only this crate opens something"),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn probe__every_kind_comes_back_as_it_was() {
        for more in [
            More::WeftPut,
            More::Together(Over::Tcp, Operation::Reduce),
            More::Many(Over::Mx, Collective::Reduce),
            More::Multicast,
            More::Model(Figure::OrderedRate),
        ] {
            let Probe::Added(added) = Probe::from(more) else { panic!("{more:?}") };
            assert_eq!(of(added).unwrap(), more);
            assert!(!name(added).is_empty(), "{more:?}");
        }
        let local = |more| matches!(Probe::from(more), Probe::Added(added) if is_local(added));
        assert!(local(More::Model(Figure::Multicast)) && !local(More::WeftPut));
    }
}
