//! Ordered groups whose ranks come and go: they drop their handles at any moment, leave, die, are
//! cut off, and join again, while messages wait for room. There is at most one view of each number,
//! all that are members at the end have the same messages in the same order, and none that its
//! sender was told of is lost or comes twice.

use crate::cluster::{first, Cluster, Ends, MS};
use crate::views::Views;
use crate::Report;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use weft_models::net::{Live, Net};
use weft_models::order::{Options, OrderError, OrderedGroup, Style};
use weft_sim::{Env, Fault, Rng};

/// Time until which ranks come and go, and the time at which those that are there are looked at.
const CHURN: u64 = 600 * MS;
const END: u64 = 15_000 * MS;

/// A rank, and the number of its handle.
type Handle = (usize, u64);
/// A message: the handle that has sent it, and its number there.
type Id = (Handle, u64);

/// The things that all handles have seen.
#[derive(Default)]
struct World {
    views: Views,
    /// The messages that each handle knows, by place: of the state that it began with, too.
    logs: RefCell<BTreeMap<Handle, Vec<Id>>>,
    /// The places that senders were told.
    told: RefCell<Vec<(Id, u64)>>,
    /// Handles that are there at the end, with the numbers of their views.
    whole: RefCell<Vec<(Handle, u32)>>,
    /// Handles that wait at the end to be let in.
    outside: RefCell<Vec<Handle>>,
    /// The states of all handles at the end, in words.
    states: RefCell<Vec<String>>,
    errors: Cell<u64>,
}

/// Draws the cluster of a seed: the faults of [`Cluster::rough`], and deaths at later times.
pub fn drawn(seed: u64) -> Cluster {
    let mut rng = Rng::stream(seed, 81);
    let mut cluster = match rng.below(3) {
        0 => Cluster::of_seed(seed, 3..6, None),
        _ => Cluster::rough(seed, 3..6),
    };
    cluster.config.limit_ns = 100_000 * MS;
    for _ in 0..rng.below(3) {
        let host = rng.below(cluster.config.hosts.into()) as u32;
        let death = Fault::Death { host, at: rng.below(CHURN), visible: rng.below(2) == 0 };
        cluster.config = cluster.config.fault(death);
    }
    cluster
}

/// A rank's part.
struct Rank {
    env: Env,
    net: Live,
    world: Rc<World>,
    options: Options,
    seed: u64,
    rng: Rng,
    handles: u64,
    /// Messages that were sent.
    sent: u64,
}

impl Rank {
    /// Opens the group, or joins it.
    fn handle(&mut self, founders: Option<&[usize]>) -> (Handle, OrderedGroup<Live>) {
        let (me, net) = (self.net.rank(), &self.net);
        let handle = (me, self.handles);
        self.handles += 1;
        let group = match founders {
            Some(founders) => OrderedGroup::open(net, 0, founders, self.options),
            None => {
                let world = Rc::clone(&self.world);
                let others: Vec<usize> = (0..net.size()).filter(|&rank| rank != me).collect();
                OrderedGroup::join(net, 0, &others, self.options, move |state| {
                    world.logs.borrow_mut().insert(handle, read_state(&state));
                })
            }
        };
        let world = Rc::clone(&self.world);
        group.on_deliver(move |message| {
            let mut logs = world.logs.borrow_mut();
            let log = logs.entry(handle).or_default();
            assert_eq!(message.place, log.len() as u64, "places of {handle:?}");
            log.push(read_id(&message.bytes));
        });
        let world = Rc::clone(&self.world);
        group.on_view(move |view| world.views.told(me, &view));
        let world = Rc::clone(&self.world);
        group.on_snapshot(move || {
            let logs = world.logs.borrow();
            let log = logs.get(&handle).map(Vec::as_slice).unwrap_or_default();
            log.iter().flat_map(|&id| bytes_of(id)).collect()
        });
        (handle, group)
    }

    /// Sends messages, some of them many at once.
    async fn send(&mut self, handle: Handle, group: &OrderedGroup<Live>) -> Result<(), OrderError> {
        group.view_when(|_| true).await?;
        let is_burst = self.seed.is_multiple_of(3) && self.rng.below(4) == 0;
        let (count, len) = if is_burst { (400, 1_200) } else { (1 + self.rng.below(12), 60) };
        let mut sent = Vec::new();
        for _ in 0..count {
            let id = (handle, self.sent);
            self.sent += 1;
            let mut bytes = bytes_of(id).to_vec();
            bytes.resize(bytes.len() + len, 0);
            sent.push((id, group.send(bytes)));
            if !is_burst {
                self.env.sleep(self.rng.below(2 * MS)).await;
            }
        }
        for (id, sent) in sent {
            let place = sent.await?;
            self.world.told.borrow_mut().push((id, place));
        }
        Ok(())
    }

    /// Comes and goes until the time is over; returns the handle that is there then.
    async fn come_and_go(&mut self) -> (Handle, OrderedGroup<Live>) {
        let founders: Vec<usize> = (0..2 + self.seed as usize % 2).collect();
        let founds = founders.contains(&self.net.rank());
        if !founds {
            self.env.sleep(self.rng.below(30 * MS)).await;
        }
        let (mut handle, mut group) = self.handle(founds.then_some(&founders));
        while self.net.now().0 < CHURN {
            self.env.note(format!("{handle:?}: {}", group.describe()));
            // In most seeds those that have opened the group keep their handles, so that it lives.
            let stays = founds && handle.1 == 0 && !self.seed.is_multiple_of(4);
            let most = [20, 200, 2_000][self.rng.below(3) as usize] * MS;
            let time = if stays { END } else { self.rng.below(most) };
            let over = Box::pin(self.net.sleep(Duration::from_nanos(time)));
            let used = group.clone();
            let ended = {
                let mut work = Box::pin(self.send(handle, &used));
                first(&mut work, over).await
            };
            let ends = match ended {
                // In the middle of it.
                None => true,
                Some(Err(_)) => {
                    self.world.errors.set(self.world.errors.get() + 1);
                    true
                }
                Some(Ok(())) if stays => false,
                Some(Ok(())) => match self.rng.below(4) {
                    0 => {
                        // Some drop the handle before they have left.
                        let over = self.net.sleep(Duration::from_nanos(self.rng.below(40 * MS)));
                        let mut leave = Box::pin(group.leave());
                        _ = first(&mut leave, Box::pin(over)).await;
                        true
                    }
                    1 => true,
                    _ => false,
                },
            };
            if ends {
                drop((used, group));
                if self.rng.below(2) == 0 {
                    self.env.sleep(self.rng.below(20 * MS)).await;
                }
                (handle, group) = self.handle(None);
            }
        }
        (handle, group)
    }

    /// Waits for the end, and sends a last message.
    async fn look(&mut self) -> OrderedGroup<Live> {
        let (mut handle, mut group) = self.come_and_go().await;
        group.expect(true);
        while self.net.now().0 < END {
            self.env.note(format!("{handle:?}: {}", group.describe()));
            self.env.sleep(100 * MS).await;
            if group.ended().is_some() && self.net.now().0 < END / 2 {
                drop(group);
                (handle, group) = self.handle(None);
                group.expect(true);
            }
        }
        let state = format!("{handle:?} at the end: {}", group.describe());
        self.world.states.borrow_mut().push(state.clone());
        self.env.note(state);
        if group.ended().is_some() {
            return group;
        }
        let Some(view) = group.view() else {
            self.world.outside.borrow_mut().push(handle);
            return group;
        };
        self.world.whole.borrow_mut().push((handle, view.number));
        let id = (handle, self.sent);
        if let Ok(place) = group.send(bytes_of(id)).await {
            self.world.told.borrow_mut().push((id, place));
        } else {
            self.world.whole.borrow_mut().retain(|(whole, _)| *whole != handle);
        }
        group
    }
}

fn bytes_of(((rank, handle), number): Id) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&(rank as u32).to_le_bytes());
    bytes[4..8].copy_from_slice(&(handle as u32).to_le_bytes());
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn read_id(bytes: &[u8]) -> Id {
    let half = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("an identity"));
    let number = u64::from_le_bytes(*bytes[8..].first_chunk().expect("an identity"));
    ((half(0) as usize, u64::from(half(4))), number)
}

fn read_state(bytes: &[u8]) -> Vec<Id> {
    bytes.chunks(16).map(read_id).collect()
}

/// Runs a group whose ranks come and go.
///
/// # Panics
/// A promise does not hold.
pub fn run(cluster: &Cluster) -> Report {
    let seed = cluster.config.seed;
    let style = [Style::Ticket, Style::Sequencer, Style::Broadcast][seed as usize % 3];
    let window = [16, 64, 2_048][seed as usize / 3 % 3];
    let options = Options { style, window, safe: !seed.is_multiple_of(5) };
    let world = Rc::<World>::default();
    let all = Rc::clone(&world);
    let outcome = cluster.run_to(Ends::Together, "order churn", move |env, net| {
        let (world, rng) = (Rc::clone(&all), env.rng());
        let mut rank = Rank { env, net, world, options, seed, rng, handles: 0, sent: 0 };
        async move { rank.look().await }
    });
    world.check(options.safe, seed);
    let operations = world.told.borrow().len() as u64;
    Report { operations, errors: world.errors.get(), outcome }
}

impl World {
    fn check(&self, safe: bool, seed: u64) {
        self.views.check(seed);
        let (logs, told, whole) = (self.logs.borrow(), self.told.borrow(), self.whole.borrow());
        let newest = whole.iter().map(|(_, number)| *number).max();
        let outside = self.outside.borrow();
        let is_in = newest.is_none() || outside.is_empty();
        let states = self.states.borrow();
        assert!(is_in, "seed {seed}: {outside:?} wait for members that are there: {states:#?}");
        let of_newest = whole.iter().filter(|(_, number)| Some(*number) == newest);
        let mut whole: Vec<&[Id]> =
            of_newest.filter_map(|(handle, _)| logs.get(handle)).map(Vec::as_slice).collect();
        whole.sort_by_key(|log| log.len());
        for pair in whole.windows(2) {
            let same = pair[0].iter().zip(pair[1]).take_while(|(one, other)| one == other).count();
            assert_eq!(same, pair[0].len(), "seed {seed}: two orders");
        }
        let longest = whole.last().copied().unwrap_or_default();
        let mut seen = BTreeSet::new();
        let mut last = BTreeMap::new();
        for id in longest {
            assert!(seen.insert(*id), "seed {seed}: {id:?} came twice");
            let before = last.insert(id.0, id.1);
            assert!(before < Some(id.1), "seed {seed}: {id:?} came after {before:?}");
        }
        let mut places = BTreeMap::new();
        for (id, place) in told.iter().filter(|_| safe) {
            let before = places.insert(*place, *id);
            assert_eq!(before, None, "seed {seed}: place {place} was told to {id:?} too");
            let there = longest.get(*place as usize);
            let is_there = longest.is_empty() || there == Some(id);
            assert!(is_there, "seed {seed}: {id:?} was told place {place}, which has {there:?}");
        }
    }
}
