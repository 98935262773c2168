//! Clusters drawn from seeds: loss, duplicates, disorder, partitions, pauses, deaths.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::{poll_fn, Future};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use weft_packets::net::{Live, Net};
use weft_sim::runner::Outcome;
use weft_sim::{Env, Fault, Rng, Sim, SimConfig, Span};

/// Nanoseconds of a millisecond.
pub const MS: u64 = 1_000_000;

/// Time without an answer after which a peer that has answered before counts as failed.
const TIMEOUT_MS: u64 = 400;

thread_local! {
    /// The command that runs the next simulation of this thread again, if it is not of a test.
    static REPLAY: Cell<Option<String>> = const { Cell::new(None) };
}

/// Sets the command that a failure of the next simulation in this thread names.
pub(crate) fn replay_by(command: String) {
    REPLAY.set(Some(command));
}

/// The times at which hosts end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// When all that live have done their part, so that no end is seen by another host.
    Together,
    /// Each when it has done its part, in good order: one that stood still, or was cut off, may
    /// find that all others have ended.
    AtOnce,
}

/// A cluster of a seed.
#[derive(Clone)]
pub struct Cluster {
    /// The simulation.
    pub config: SimConfig,
    /// The host that dies, if one does.
    pub dies: Option<u32>,
}

impl Cluster {
    /// Draws a cluster of the given sizes. Half of the seeds have a host that dies, among `mortal`.
    pub fn of_seed(seed: u64, hosts: Range<u32>, mortal: Option<Range<u32>>) -> Cluster {
        let mut rng = Rng::stream(seed, 77);
        let hosts = hosts.start + rng.below(u64::from(hosts.end - hosts.start)) as u32;
        let mut config = SimConfig::new(hosts, seed);
        let settings = [
            ("peer_timeout_ms", TIMEOUT_MS),
            // The first packet goes again after longer and longer pauses.
            ("connect_timeout_ms", 2 * TIMEOUT_MS),
            ("keepalive_ms", TIMEOUT_MS / 20),
            // Others go again so often that one of them passes soon after a partition.
            ("rto_max_us", 1_000 * TIMEOUT_MS / 20),
        ];
        config.settings = settings.map(|(key, value)| (key, value.to_string())).to_vec();
        if rng.below(4) > 0 {
            let ppm = rng.below(30_000) as u32;
            let by_ns = 1 + rng.below(100_000);
            config = config
                .fault(Fault::loss(ppm))
                .fault(Fault::Duplicate { ppm: ppm / 2, by_ns, span: Span::ALWAYS })
                .fault(Fault::reorder(ppm, by_ns));
        }
        if rng.below(3) == 0 {
            let (host, from) = (rng.below(hosts.into()) as u32, rng.below(20));
            let span = Span::ms(from, from + 1 + rng.below(TIMEOUT_MS / 4));
            config = config.fault(Fault::Pause { host, span });
        }
        let brief = Cluster::brief_partition(seed, hosts);
        config.faults.extend(brief);
        let mut dies = None;
        if let Some(mortal) = mortal.filter(|_| rng.below(2) == 0) {
            let last = mortal.end.min(hosts);
            let host = mortal.start + rng.below(u64::from(last - mortal.start)) as u32;
            let at = rng.below(30 * MS);
            config = config.fault(Fault::Death { host, at, visible: rng.below(2) == 0 });
            dies = Some(host);
        }
        Cluster { config, dies }
    }

    /// Draws a partition that is over before any host counts as failed, for some of the seeds.
    fn brief_partition(seed: u64, hosts: u32) -> Option<Fault> {
        let mut rng = Rng::stream(seed, 79);
        if rng.below(3) > 0 {
            return None;
        }
        let from = rng.below(20);
        let span = Span::ms(from, from + 1 + rng.below(TIMEOUT_MS / 2));
        Some(Cluster::partition(&mut rng, hosts, span))
    }

    /// Draws a partition of all hosts, or a cut between two.
    fn partition(rng: &mut Rng, hosts: u32, span: Span) -> Fault {
        let one_way = rng.below(3) == 0;
        if hosts > 2 && rng.below(3) == 0 {
            let first = rng.below(hosts.into()) as u32;
            let second = (first + 1 + rng.below(u64::from(hosts) - 1) as u32) % hosts;
            return Fault::Cut { hosts: [first, second], one_way, span };
        }
        let side = (0..hosts).filter(|_| rng.below(2) == 0).collect();
        Fault::Partition { side, one_way, span }
    }

    /// Draws a cluster in which several hosts may die, be cut off, or stand still for longer than
    /// others wait for them.
    pub fn rough(seed: u64, hosts: Range<u32>) -> Cluster {
        let mut cluster = Cluster::of_seed(seed, hosts, None);
        // A program that waits for ever is found soon.
        cluster.config.limit_ns = 100_000 * MS;
        let mut rng = Rng::stream(seed, 78);
        let hosts = cluster.config.hosts;
        for _ in 0..1 + rng.below(3) {
            let (host, at) = (rng.below(hosts.into()) as u32, rng.below(60));
            let fault = match rng.below(4) {
                0 => {
                    let span = Span::ms(at, at + TIMEOUT_MS * (1 + rng.below(3)));
                    Fault::Pause { host, span }
                }
                1 => {
                    let span = Span::ms(at, at + TIMEOUT_MS * 4);
                    Cluster::partition(&mut rng, hosts, span)
                }
                _ => Fault::Death { host, at: rng.below(60 * MS), visible: rng.below(2) == 0 },
            };
            cluster.config = cluster.config.fault(fault);
        }
        cluster
    }

    /// Draws a cluster in which a host stands still for much longer than others wait for it, also
    /// until they have ended, beside what [`rough`](Cluster::rough) draws for some of the seeds.
    pub fn stopped(seed: u64, hosts: Range<u32>) -> Cluster {
        let mut rng = Rng::stream(seed, 80);
        let mut cluster = match rng.below(2) {
            0 => Cluster::of_seed(seed, hosts, None),
            _ => Cluster::rough(seed, hosts),
        };
        cluster.config.limit_ns = 100_000 * MS;
        let (host, at) = (rng.below(cluster.config.hosts.into()) as u32, rng.below(40));
        let span = Span::ms(at, at + TIMEOUT_MS * (2 + rng.below(5)));
        cluster.config = cluster.config.fault(Fault::Pause { host, span });
        cluster
    }

    /// True if the faults may take two hosts from each other: one dies or stands still for long, or
    /// no packets pass between them for long.
    pub fn may_part(&self, one: usize, other: usize) -> bool {
        let (one, other) = (one as u32, other as u32);
        let is_meant = |host: &u32| [one, other].contains(host);
        let is_long = |span: &Span| span.until - span.from > TIMEOUT_MS / 2 * MS;
        one != other
            && self.config.faults.iter().any(|fault| match fault {
                Fault::Death { host, .. } => is_meant(host),
                Fault::Pause { host, span } => is_meant(host) && is_long(span),
                Fault::Partition { span, .. } | Fault::Cut { span, .. } => {
                    let at = span.from;
                    let parts = fault.separates(one, other, at) || fault.separates(other, one, at);
                    parts && is_long(span)
                }
                _ => false,
            })
    }

    /// True if the faults may take a host from any other one.
    pub fn may_lose(&self, host: usize) -> bool {
        (0..self.config.hosts as usize).any(|other| self.may_part(host, other))
    }

    /// Runs the same program on all hosts. A host keeps its result until all that live have ended.
    ///
    /// # Panics
    /// The simulation fails.
    pub fn run<F, Fut, T>(&self, name: &str, program: F) -> Outcome
    where
        F: Fn(Env, Live) -> Fut + Clone + 'static,
        Fut: Future<Output = T> + 'static,
        T: 'static,
    {
        self.run_to(Ends::Together, name, program)
    }

    /// Does what [`run`](Cluster::run) does; `ends` says when hosts end.
    ///
    /// # Panics
    /// The simulation fails.
    pub fn run_to<F, Fut, T>(&self, ends: Ends, name: &str, program: F) -> Outcome
    where
        F: Fn(Env, Live) -> Fut + Clone + 'static,
        Fut: Future<Output = T> + 'static,
        T: 'static,
    {
        let sim = Sim::new(name, self.config.clone());
        let mut sim = match REPLAY.take() {
            Some(command) => sim.replayed_by(command),
            None => sim.of_test("weft-models", "sim"),
        };
        let left = Rc::new(Cell::new(self.config.hosts));
        // Dropped when no host runs any more, so that no end of a host is seen by another.
        let kept: Rc<RefCell<Vec<Box<dyn Any>>>> = Rc::default();
        let keep = Rc::clone(&kept);
        sim.spawn_all(move |env| {
            let (left, keep, program) = (Rc::clone(&left), Rc::clone(&keep), program.clone());
            let end = End(Rc::clone(&left));
            async move {
                let net = env.net().expect("no agent is chosen");
                let (process, endpoint) = (env.clone(), env.endpoint.clone());
                let result = program(env, net.clone()).await;
                if ends == Ends::AtOnce {
                    drop((result, end));
                    endpoint.closed(Duration::from_millis(TIMEOUT_MS)).await;
                    process.leave();
                    return;
                }
                keep.borrow_mut().push(Box::new(result));
                drop(end);
                while left.get() > 0 {
                    net.sleep(Duration::from_millis(1)).await;
                }
            }
        });
        sim.run().unwrap_or_else(|failure| panic!("{}: {failure}", self.config))
    }
}

/// One host's part; it ends also when the host dies.
struct End(Rc<Cell<u32>>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Waits for the first of two futures; `None` if that is the second.
pub async fn first<F: Future + Unpin>(
    one: &mut F,
    mut other: Pin<Box<impl Future<Output = ()>>>,
) -> Option<F::Output> {
    poll_fn(|cx| {
        if let Poll::Ready(done) = Pin::new(&mut *one).poll(cx) {
            return Poll::Ready(Some(done));
        }
        other.as_mut().poll(cx).map(|()| None)
    })
    .await
}
