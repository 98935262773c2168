//! Multicast and fetch-and-add by ranks and by their agents, while the ranks poll and while they
//! compute, over loss: a table in virtual time.

use crate::config::{LinkKind, SimConfig};
use crate::fault::Fault;
use crate::sim::{Env, Failure, Sim};
use crate::story::Report;
use crate::tables::{loss_rates, per_cent, Lines, Tell};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use weft::choices::{Place, Tree};
use weft::Config;
use weft_core::Instant;
use weft_packets::{Counter, MulticastGroup, Packets};

/// Loss rates, in parts per million.
const LOSS: [u32; 4] = [0, 1_000, 10_000, 50_000];
/// Packets or additions in the mean: enough to show the cost of losses.
const ROUNDS: usize = 1600;
/// Time that a rank computes between two polls.
const COMPUTES: u64 = 1_000_000;
/// Pause between two rounds, after which all packets of the first have arrived.
const PAUSE: u64 = 30_000_000;
const LEN: usize = 64;

/// The measured time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// From the call until the last rank has the packet.
    Multicast,
    /// From the call until the result has arrived.
    FetchAdd,
}

/// One line of the table, with the work done by ranks or by agents.
#[derive(Clone, Copy)]
struct Case {
    what: What,
    place: Place,
    /// True if all ranks but the one that begins compute between two polls.
    busy: bool,
}

/// Times that the hosts note.
#[derive(Default)]
struct Notes {
    /// Time at which each host got the packet of this round.
    last: Cell<Instant>,
    heard: Cell<u32>,
    took: RefCell<Vec<u64>>,
    over: Cell<bool>,
}

/// Returns the mean of a case in microseconds.
fn measure(config: &SimConfig, case: Case, loss: u32) -> Result<f64, Failure> {
    let mut config = SimConfig { served: true, kind: LinkKind::Network, ..config.clone() };
    config.faults.extend((loss > 0).then(|| Fault::loss(loss)));
    let settings =
        Config { multicast: case.place, fetch_add: case.place.into(), ..Config::default() };
    let mut sim = Sim::new("services", config).settings(settings);
    let (notes, key) = (Rc::new(Notes::default()), Rc::new(Cell::new(None)));
    let (all, keys) = (Rc::clone(&notes), Rc::clone(&key));
    sim.spawn_all(move |env| {
        let (notes, key) = (Rc::clone(&all), Rc::clone(&keys));
        async move {
            let packets = env.packets().expect("an agent serves it");
            if env.host == 0 {
                key.set(packets.counter(0));
            }
            let members = (0..env.hosts).map(|host| env.peer(host)).collect();
            let group = packets.group(1, members, env.host as usize).expect("a new group");
            let here = Rc::clone(&notes);
            packets.handle(1, move |packets, _| {
                here.last.set(here.last.get().max(packets.endpoint().now()));
                here.heard.set(here.heard.get() + 1);
            });
            env.world().barrier().await.expect("all live");
            match case.what {
                What::Multicast if env.host == 0 => cast(&env, &group, &notes).await,
                What::FetchAdd if env.host == 1 => {
                    let counter = key.get().expect("host 0 has made one");
                    count(&env, &packets, counter, &notes).await;
                }
                _ => serve(&env, case.busy, &notes).await,
            }
        }
    });
    sim.run()?;
    let took = notes.took.take();
    Ok(took.iter().sum::<u64>() as f64 / took.len() as f64 / 1e3)
}

/// Polls, or computes between polls, until the end.
async fn serve(env: &Env, busy: bool, notes: &Notes) {
    // The hosts do not all poll at the same time.
    env.sleep(env.rng().below(COMPUTES)).await;
    while !notes.over.get() {
        match busy {
            true => env.compute(COMPUTES).await,
            false => env.sleep(COMPUTES).await,
        }
        // Polls once.
        env.endpoint.yield_now().await;
    }
}

async fn cast(env: &Env, group: &MulticastGroup, notes: &Notes) {
    let mut rng = env.rng();
    // Agents take over during the first rounds, which are not counted.
    for round in 0..ROUNDS + 10 {
        notes.heard.set(0);
        let begun = env.now();
        group.send_over(Tree::Binomial, 1, 0, &[0; LEN]).await.expect("all live");
        while notes.heard.get() < env.hosts - 1 {
            env.sleep(100_000).await;
        }
        if round >= 10 {
            notes.took.borrow_mut().push(notes.last.get().since(begun).as_nanos() as u64);
        }
        env.sleep(PAUSE + rng.below(COMPUTES)).await;
    }
    notes.over.set(true);
}

async fn count(env: &Env, packets: &Packets, counter: Counter, notes: &Notes) {
    let mut rng = env.rng();
    for _ in 0..ROUNDS {
        let begun = env.now();
        packets.fetch_add(env.peer(0), counter, 1).await.expect("host 0 lives");
        notes.took.borrow_mut().push(env.now().since(begun).as_nanos() as u64);
        env.sleep(rng.below(COMPUTES)).await;
    }
    notes.over.set(true);
}

/// Makes the table.
pub(crate) fn services(config: SimConfig, tell: Tell<'_>) -> Result<Report, Failure> {
    let mut lines = Lines::new("services", &config, tell);
    let (lossless, rates) = loss_rates(config.clone(), &LOSS);
    lines.push(format!(
        "{:>10} {:>8} {:>7} {:>12} {:>12} {:>8}",
        "what", "ranks", "loss %", "by ranks us", "by agents us", "ratio"
    ));
    for (what, name) in [(What::Multicast, "multicast"), (What::FetchAdd, "fetch-add")] {
        for (busy, state) in [(false, "poll"), (true, "compute")] {
            for &loss in &rates {
                let [ranks, agents] = [Place::Host, Place::Agent]
                    .map(|place| measure(&lossless, Case { what, place, busy }, loss));
                let (ranks, agents) = (ranks?, agents?);
                lines.push(format!(
                    "{name:>10} {state:>8} {:>7} {ranks:>12.1} {agents:>12.1} {:>8.2}",
                    per_cent(loss),
                    agents / ranks
                ));
                lines.row(vec![
                    ("what", name.into()),
                    ("ranks", state.into()),
                    ("loss_percent", per_cent(loss).into()),
                    ("by_ranks_us", ranks.into()),
                    ("by_agents_us", agents.into()),
                ]);
            }
        }
    }
    Ok(lines.report("services", &config, None))
}
