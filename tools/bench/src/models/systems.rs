//! The models beside what they are made of: the analogues of Tables V and VI of paper 004, and the
//! figures that have targets of their own.

use super::mpi::{Mpi, Pattern};
use super::shmem::Peer;
use super::Figure;
use crate::choice::Packet;
use crate::pair::{Sample, Subject};
use crate::shmem::Operation;
use crate::table::{Better, Other};
use crate::target::{Aim, Run};
use crate::LinkName;
use anyhow::Result;

/// Bytes of short messages.
const SHORT: usize = 16;
/// Bytes of the messages of an ordered stream.
const LONG: usize = 1 << 10;
/// Bytes of the messages whose bytes a second count.
const LARGE: usize = 64 << 10;
/// Bytes of a job.
const JOB: usize = 32;
/// Members of the groups.
const MEMBERS: u64 = 4;
/// Explains the figures of a clean write miss and of its peer.
const WRITE: &str =
    "clean write miss: ours is the begin of the write alone, which fetches the data and the right \
     to write; OpenSHMEM keeps no copies: its figure is a get of 16 B from the other PE, a put of \
     them back, and a quiet";
const CALL: &str = "call and answer";
/// Lines that have a peer over OpenSHMEM.
const MISS: &str = "clean write miss of a region";
const TICKET: &str = "fetch-and-add: a ticket";
/// Argument of the probe of packets that arrive in upcalls.
const UPCALLS: u64 = 1;

fn subject(figure: Figure) -> Subject {
    Subject { arg: MEMBERS, ..figure.into() }
}

/// A round trip of packets; the probe has the time of one way.
fn round_trip() -> Subject {
    Subject { arg: UPCALLS, ..Packet::PingPong.into() }
}

/// Turns seconds of a long message into GB/s.
fn rate(seconds: Sample) -> Sample {
    seconds.map(|seconds| LARGE as f64 / seconds * 1e-9)
}

/// Adds the parts of a time.
fn sum(parts: [Option<Sample>; 2]) -> Option<Sample> {
    let [a, b] = [parts[0]?, parts[1]?];
    Some(Sample { median: a.median + b.median, min: a.min + b.min, max: a.max + b.max })
}

impl Run<'_> {
    /// Measures subjects in turn, each in its unit: `scale` turns seconds into it.
    fn scaled<const N: usize>(
        &mut self,
        size: usize,
        subjects: [(Subject, f64); N],
    ) -> Result<[Option<Sample>; N]> {
        self.scaled_beside(size, subjects, &mut || {})
    }

    /// Measures subjects in turn as [`scaled`](Self::scaled) does, and something else once a turn.
    fn scaled_beside<const N: usize>(
        &mut self,
        size: usize,
        subjects: [(Subject, f64); N],
        other: &mut dyn FnMut(),
    ) -> Result<[Option<Sample>; N]> {
        let all = subjects.map(|(subject, _)| subject);
        let got = self.bench.meter.measure_beside(size, &all, other)?;
        let mut figures = [None; N];
        for ((figure, sample), (_, scale)) in figures.iter_mut().zip(got).zip(subjects) {
            *figure = sample.map(|sample| sample.map(|seconds| seconds * scale));
        }
        Ok(figures)
    }

    /// Measures subjects of long messages in turn, in GB/s of one of them.
    fn rates<const N: usize>(
        &mut self,
        subjects: [Subject; N],
        other: &mut dyn FnMut(),
    ) -> Result<[Option<Sample>; N]> {
        let got = self.scaled_beside(LARGE, subjects.map(|subject| (subject, 1.0)), other)?;
        Ok(got.map(|sample| sample.map(rate)))
    }

    /// Round trips of two ranks.
    fn round_trips(&mut self, peer: &mut Peer, mpi: &mut Mpi) -> Result<()> {
        let tcp = self.bench.bare(Figure::TcpCall);
        let [call, entry, operation, miss, packets, tcp, threads] = self.scaled_beside(
            SHORT,
            [
                (subject(Figure::Call), 1e6),
                (subject(Figure::Entry), 1e6),
                (subject(Figure::Operation), 1e6),
                (subject(Figure::Miss), 1e6),
                (round_trip(), 2e6),
                (tcp, 1e6),
                (subject(Figure::ThreadCall), 1e6),
            ],
            &mut || {
                peer.measure(Operation::Write);
                mpi.measure(Pattern::RoundTrip, SHORT);
            },
        )?;
        let [ours, own] = mpi.take().map(|half| half.map(|s| s.map(|seconds| seconds * 2e6)));
        for (what, ours, (named, beside), most) in [
            (CALL, call, ("rpc over tcp", tcp), Some(1.25)),
            ("entry method and one back", entry, ("", None), Some(1.3)),
            ("null operation, remote object", operation, ("", None), Some(1.4)),
            (MISS, miss, ("", None), Some(1.25)),
            ("MPI round trip", ours, (mpi.own(), own), None),
        ] {
            let aim = Aim { floor: most, peer: None };
            let line = (what, SHORT, "us", Better::Lower);
            self.push(line, [ours, packets, beside], ("packets", named), aim);
        }
        let line = ("call and answer, multi-threaded", SHORT, "us", Better::Lower);
        self.push(line, [threads, packets, call], ("packets", "single-threaded"), Aim::default());
        let shmem = peer.take();
        self.add_shmem(MISS, shmem);
        self.notes.extend(shmem.map(|_| WRITE.into()));
        Ok(())
    }

    /// Bytes a second from one rank to another.
    fn streams(&mut self, mpi: &mut Mpi) -> Result<()> {
        let [calls, threads, operations, reads, packets] = self.rates(
            [
                subject(Figure::Casts),
                subject(Figure::ThreadCalls),
                subject(Figure::Operations),
                subject(Figure::Reads),
                Packet::Stream.into(),
            ],
            &mut || mpi.measure(Pattern::Stream, LARGE),
        )?;
        let [ours, own] = mpi.take().map(|sample| sample.map(rate));
        for (what, ours, (named, beside)) in [
            ("calls, one way", calls, ("", None)),
            ("calls by four threads", threads, ("", None)),
            ("operations, remote object", operations, ("", None)),
            ("reads of regions", reads, ("", None)),
            ("MPI messages", ours, (mpi.own(), own)),
        ] {
            let line = (what, LARGE, "GB/s", Better::Higher);
            self.push(line, [ours, packets, beside], ("packets", named), Aim::default());
        }
        Ok(())
    }

    /// Paper 004's Table V.
    pub fn table_v(&mut self, peer: &mut Peer, mpi: &mut Mpi) -> Result<()> {
        self.round_trips(peer, mpi)?;
        self.streams(mpi)?;
        let notes = [
            "rows of paper 004: LCI is packets; CRL the write miss and the reads; Panda-ST the \
             call and the calls one way; Panda-MT those of threads; Orca the operations",
            "packets: a round trip of the packet interface, taken by upcalls",
            "clean write miss: the home has the only copy, and gives it away",
        ];
        self.notes.extend(notes.map(String::from));
        Ok(())
    }

    /// A read where it is.
    fn reads(&mut self) -> Result<()> {
        let [read] = self.scaled(8, [(subject(Figure::Read), 1e9)])?;
        let line = ("read of a replicated object", 8, "ns", Better::Lower);
        self.push(line, [read, None, None], ("", ""), Aim::default());
        self.goal(50.0);
        Ok(())
    }

    /// The ticket of ordered groups, by itself.
    fn tickets(&mut self, peer: &mut Peer) -> Result<()> {
        let redis = self.bench.bare(Figure::Redis);
        let subjects = [(Packet::FetchAdd.into(), 1e6), (redis, 1e6)];
        let other = &mut || peer.measure(Operation::Ticket);
        let [add, redis] = self.scaled_beside(8, subjects, other)?;
        let line = (TICKET, 8, "us", Better::Lower);
        self.push(line, [add, None, redis], ("", "redis INCR"), Aim::default());
        let shmem = peer.take();
        self.add_shmem(TICKET, shmem);
        if let (Some(redis), Some(shmem)) = (redis, shmem) {
            let (redis, shmem) = (redis.median, shmem.median);
            self.notes.push(format!("ticket: redis INCR {redis:.2} us, OpenSHMEM {shmem:.2} us"));
        }
        Ok(())
    }

    /// Broadcasts until the last of four ranks has them.
    fn broadcasts(&mut self, mpi: &mut Mpi) -> Result<()> {
        let figures =
            [Figure::Ordered, Figure::Multicast, Figure::Ticket, Figure::Cast, Figure::Write];
        let [ordered, multicast, add, cast, write] =
            self.scaled_beside(SHORT, figures.map(|figure| (subject(figure), 1e6)), &mut || {
                mpi.measure(Pattern::Broadcast, SHORT)
            })?;
        let [ours, own] = mpi.take().map(|sample| sample.map(|s| s.map(|seconds| seconds * 1e6)));
        let (alone, both) = ("multicast", "multicast + f&a");
        let ticketed = sum([multicast, add]);
        for (what, ours, (floor, under), (named, beside), most) in [
            ("broadcast, last delivery", cast, (alone, multicast), ("", None), None),
            ("MPI_Bcast, last delivery", ours, (alone, multicast), (mpi.own(), own), None),
            ("ordered, 4 ranks, last delivery", ordered, (both, ticketed), ("", None), Some(1.0)),
            ("write, replicated object", write, (both, ticketed), ("", None), None),
        ] {
            let line = (what, SHORT, "us", Better::Lower);
            let aim = Aim { floor: most, peer: None };
            self.push(line, [ours, under, beside], (floor, named), aim);
        }
        if let (Some(cast), Some(add)) = (multicast, add) {
            let (cast, add) = (cast.median, add.median);
            self.notes.push(format!(
                "ordered: the multicast alone takes {cast:.2} us until its last delivery, the \
                 fetch-and-add {add:.2} us, among the same 4 ranks"
            ));
        }
        Ok(())
    }

    /// Bytes a second that one of four ranks broadcasts.
    fn broadcast_streams(&mut self, mpi: &mut Mpi) -> Result<()> {
        let figures = [
            Figure::CastStream,
            Figure::OrderedStream,
            Figure::WriteStream,
            Figure::MulticastStream,
        ];
        let other = &mut || mpi.measure(Pattern::Broadcasts, LARGE);
        let [casts, ordered, writes, multicasts] = self.rates(figures.map(subject), other)?;
        let [ours, own] = mpi.take().map(|sample| sample.map(rate));
        for (what, ours, (named, beside)) in [
            ("broadcasts", casts, ("", None)),
            ("MPI_Bcast", ours, (mpi.own(), own)),
            ("ordered broadcasts", ordered, ("", None)),
            ("writes, replicated object", writes, ("", None)),
        ] {
            let line = (what, LARGE, "GB/s", Better::Higher);
            self.push(line, [ours, multicasts, beside], ("multicasts", named), Aim::default());
        }
        Ok(())
    }

    /// Paper 004's Table VI.
    pub fn table_vi(&mut self, mpi: &mut Mpi) -> Result<()> {
        self.broadcasts(mpi)?;
        self.broadcast_streams(mpi)?;
        self.notes.push(
            "rows of paper 004: LCI is multicast and fetch-and-add; Panda-ST the broadcast; \
             Panda-MT the ordered one; Orca the write"
                .into(),
        );
        Ok(())
    }

    /// Streams of small messages.
    fn small_streams(&mut self) -> Result<()> {
        let [ordered] = self.scaled(LONG, [(subject(Figure::OrderedRate), 1.0)])?;
        let rate = ordered.map(|s| s.map(|seconds| 1e-3 / seconds));
        let line = ("ordered, 4 ranks on one host", LONG, "k/s", Better::Higher);
        self.push(line, [rate, None, None], ("", ""), Aim::default());
        self.goal(200.0);
        let [job] = self.scaled(JOB, [(subject(Figure::Job), 1.0)])?;
        let rate = job.map(|s| s.map(|seconds| 1e-6 / seconds));
        let line = ("jobs by the aggregator", JOB, "M/s", Better::Higher);
        self.push(line, [rate, None, None], ("", ""), Aim::default());
        self.goal(20.0);
        Ok(())
    }

    /// Adds the peer over OpenSHMEM to a line, if it was measured.
    fn add_shmem(&mut self, what: &str, sample: Option<Sample>) {
        let mut rows = self.checks.iter_mut().flat_map(|check| &mut check.table.rows);
        let row = rows.find(|row| row.what == what);
        if let (Some(row), true) = (row, sample.is_some()) {
            row.peers.push(Other { name: "openshmem", sample });
        }
    }

    /// Sets the goal of the line that has been added.
    fn goal(&mut self, goal: f64) {
        if let Some(check) = self.checks.last_mut() {
            check.goal = Some(goal);
        }
    }

    /// Figures that no table of paper 004 has.
    pub fn besides(&mut self, peer: &mut Peer) -> Result<()> {
        self.tickets(peer)?;
        if self.link == LinkName::Shm {
            self.reads()?;
            self.small_streams()?;
        }
        Ok(())
    }
}
