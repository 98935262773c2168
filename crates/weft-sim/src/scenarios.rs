//! Named scenarios, which `weft sim NAME` and the tests run.

use crate::checker::SharedChecker;
use crate::computing;
use crate::config::SimConfig;
use crate::congestion;
use crate::fault::{Fault, Span};
use crate::plan::{Kind, Plan};
use crate::sim::{Env, Failure};
use crate::story::{impatient, receive_stream, send_stream, Story};
pub use crate::story::{Report, Row, Value};
use crate::swarm;
use crate::tables::{self, Tell};
use crate::tasks::join_all;
use std::rc::Rc;
use weft::{Config, Op, Status};
use weft_core::{OpError, PeerFailure};

/// A named scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name in `weft sim`.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Number of hosts, unless the user chooses another.
    pub hosts: u32,
    run: fn(SimConfig) -> Result<Report, Failure>,
}

/// All of them.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "loss",
        about: "1% of frames lost: all arrives in order",
        hosts: 2,
        run: loss,
    },
    Scenario {
        name: "corruption",
        about: "5% of frames damaged: nothing damaged is delivered",
        hosts: 2,
        run: corruption,
    },
    Scenario {
        name: "partition",
        about: "the network splits for 2 s and heals: traffic resumes",
        hosts: 4,
        run: partition,
    },
    Scenario {
        name: "pause",
        about: "a host stops for 300 ms, longer than any timeout: nothing is lost",
        hosts: 2,
        run: pause,
    },
    Scenario {
        name: "death",
        about: "a host dies: operations with it fail with its name, the others go on",
        hosts: 4,
        run: death,
    },
    Scenario {
        name: "restart",
        about: "a host comes back as another incarnation and gets nothing meant for the old one",
        hosts: 2,
        run: restart,
    },
    Scenario {
        name: "collectives",
        about: "barrier and allreduce of all hosts, checked",
        hosts: 1024,
        run: collectives,
    },
    Scenario {
        name: "scaling",
        about: "time of barrier and allreduce for 2, 4, 8, ... hosts",
        hosts: 256,
        run: |config| tables::scaling(config, &mut |_| ()),
    },
    Scenario {
        name: "reliability",
        about: "throughput and latency over loss, protocol and window",
        hosts: 2,
        run: |config| tables::reliability(config, &mut |_| ()),
    },
    Scenario {
        name: "incast",
        about: "all hosts send to one at once: rate of the bottleneck, queue, drops",
        hosts: 33,
        run: congestion::incast,
    },
    Scenario {
        name: "incast-agents",
        about: "incast where the agent of each host retransmits in its rank's place",
        hosts: 33,
        run: congestion::incast_of_agents,
    },
    Scenario {
        name: "services",
        about: "multicast and fetch-and-add by ranks and by their agents, while ranks compute",
        hosts: 8,
        run: |config| computing::services(config, &mut |_| ()),
    },
    Scenario {
        name: "fairness",
        about: "two flows through one uplink share it, also when one starts later",
        hosts: 4,
        run: congestion::fairness,
    },
    Scenario {
        name: "swarm",
        about: "hosts, links, faults and messages drawn from the seed; all checked",
        hosts: 0,
        run: swarm_one,
    },
];

/// Returns the default configuration of a scenario; `None` if there is none of that name.
pub fn default_config(name: &str, seed: u64) -> Option<SimConfig> {
    let scenario = SCENARIOS.iter().find(|s| s.name == name)?;
    Some(SimConfig::new(scenario.hosts, seed))
}

/// Runs a scenario. Its own faults are added to those of `config`, unless `config` has one of the
/// same type.
///
/// # Errors
/// The failure with seed and replay command, or the list of names.
pub fn run_named(name: &str, config: SimConfig) -> Result<Report, Failure> {
    match SCENARIOS.iter().find(|s| s.name == name) {
        Some(scenario) => (scenario.run)(config),
        None => {
            let names: Vec<_> = SCENARIOS.iter().map(|s| s.name).collect();
            let what = format!("no scenario `{name}`; there are {}", names.join(", "));
            let name = names[0].to_string();
            let replay = "weft sim list".to_string();
            Err(Failure { name, seed: config.seed, what, replay, trace: Box::default() })
        }
    }
}

/// Runs the scenario of this name, if it makes a table line by line: calls `tell` with each line as
/// soon as it is known, the headings first. `None` if there is no such scenario.
pub fn run_telling(
    name: &str,
    config: &SimConfig,
    tell: Tell<'_>,
) -> Option<Result<Report, Failure>> {
    match name {
        "scaling" => Some(tables::scaling(config.clone(), tell)),
        "reliability" => Some(tables::reliability(config.clone(), tell)),
        "services" => Some(computing::services(config.clone(), tell)),
        _ => None,
    }
}

/// Makes host 0 send to host 1, and each host n to n + 1 where there are more.
fn streams(
    name: &'static str,
    config: SimConfig,
    count: u64,
    len: usize,
) -> Result<Report, Failure> {
    let mut story = Story::new(name, config, Config::default());
    let checker = Rc::clone(&story.checker);
    story.sim.spawn_all(move |env| {
        let checker = Rc::clone(&checker);
        async move {
            let (here, hosts) = (env.host, env.hosts);
            let last = hosts == 2;
            let send = async {
                if !last || here == 0 {
                    send_stream(&env, &checker, (here + 1) % hosts, (count, len, 16)).await;
                }
            };
            let receive = async {
                if !last || here == 1 {
                    receive_stream(&env, &checker, (here + hosts - 1) % hosts, count, len).await;
                }
            };
            join_all::<std::pin::Pin<Box<dyn std::future::Future<Output = ()> + '_>>>([
                Box::pin(send) as _,
                Box::pin(receive) as _,
            ])
            .await;
        }
    });
    story.end(&[])
}

fn loss(config: SimConfig) -> Result<Report, Failure> {
    streams("loss", config.usual(Fault::loss(10_000)), 1000, 3000)
}

fn corruption(config: SimConfig) -> Result<Report, Failure> {
    streams("corruption", config.usual(Fault::corrupt(50_000)), 1000, 1000)
}

fn partition(config: SimConfig) -> Result<Report, Failure> {
    let side = (0..config.hosts / 2).collect();
    let span = Span::ms(1, 2001);
    let config = config.fault(Fault::Partition { side, one_way: false, span });
    streams("partition", config, 500, 20_000)
}

fn pause(config: SimConfig) -> Result<Report, Failure> {
    let config = config.fault(Fault::Pause { host: 1, span: Span::ms(1, 301) });
    streams("pause", config, 500, 20_000)
}

/// Lets the last host die at 1 ms; `visible` says if the link reports it.
fn death(config: SimConfig) -> Result<Report, Failure> {
    let visible = config.seed % 2 == 1;
    let victim = config.hosts - 1;
    let config = config.fault(Fault::Death { host: victim, at: 1_000_000, visible });
    let mut story = Story::new("death", config, impatient());
    let (checker, lines) = (Rc::clone(&story.checker), story.lines());
    story.sim.spawn_all(move |env| {
        let (checker, lines) = (Rc::clone(&checker), Rc::clone(&lines));
        async move {
            if env.host == victim {
                let greeting = env.endpoint.send(env.peer(0), 3, vec![3; 10]).await;
                return if greeting.0.is_ok() {
                    std::future::pending().await
                };
            }
            if env.host == 0 {
                let said = watch_victim(&env, &checker, victim, visible).await;
                lines.borrow_mut().extend(said);
            }
            // The living hosts still reach each other.
            let living = env.hosts - 1;
            if living > 1 {
                let next = (env.host + 1) % living;
                let before = (env.host + living - 1) % living;
                send_stream(&env, &checker, next, (50, 1000, 8)).await;
                receive_stream(&env, &checker, before, 50, 1000).await;
            }
        }
    });
    story.end(&[victim])
}

/// Checks that a receive from, a large send to and a later send to the victim all end with its
/// name.
async fn watch_victim(
    env: &Env,
    checker: &SharedChecker,
    victim: u32,
    visible: bool,
) -> Vec<String> {
    let peer = env.peer(victim);
    let mut said = Vec::new();
    let expect = |what: &str, result: Result<Status, OpError>| {
        let right = |failure: &PeerFailure| match failure {
            PeerFailure::Gone => visible,
            PeerFailure::Silent { .. } => !visible,
            _ => false,
        };
        match &result {
            Err(OpError::Peer { peer: named, failure }) if *named == peer && right(failure) => {}
            other => checker.borrow_mut().violation(|| format!("{what}: {other:?}")),
        }
        let text = result.err().map_or_else(|| "no error".to_string(), |e| e.to_string());
        format!("{what} at {:.3} ms: {text}", env.now().0 as f64 / 1e6)
    };
    let (greeting, _) = env.endpoint.recv(Some(peer), 3, 0, vec![0; 10]).await;
    if greeting.is_err() {
        checker.borrow_mut().violation(|| format!("while it lived: {greeting:?}"));
    }
    env.note("host that dies");
    let (receive, _) = env.endpoint.recv(Some(peer), 1, 0, vec![0; 10]).await;
    said.push(expect("receive", receive));
    let (send, _) = env.endpoint.send(peer, 2, vec![0; 1 << 20]).await;
    said.push(expect("send", send));
    said
}

fn restart(config: SimConfig) -> Result<Report, Failure> {
    let config = config.fault(Fault::Restart { host: 1, at: 5_000_000 });
    let mut story = Story::new("restart", config, impatient());
    let (checker, lines) = (Rc::clone(&story.checker), story.lines());
    let (books, log) = (Rc::clone(&checker), Rc::clone(&lines));
    story.sim.spawn(0, move |env| {
        let (checker, lines) = (Rc::clone(&books), Rc::clone(&log));
        async move {
            let old = env.peer(1);
            let error = loop {
                if let (Err(error), _) = env.endpoint.send(old, 1, vec![1; 100]).await {
                    break error;
                }
                env.sleep(100_000).await;
            };
            if !matches!(error, OpError::Peer { peer, .. } if peer == old) {
                checker.borrow_mut().violation(|| format!("the old incarnation: {error}"));
            }
            let at = env.now().0 as f64 / 1e6;
            lines.borrow_mut().push(format!("old incarnation at {at:.3} ms: {error}"));
            let new = env.peer_incarnation(1, 1);
            if let (Err(e), _) = env.endpoint.send(new, 1, vec![2; 100]).await {
                checker.borrow_mut().violation(|| format!("the new incarnation: {e}"));
            }
        }
    });
    story.sim.spawn(1, move |env| {
        let (checker, lines) = (Rc::clone(&checker), Rc::clone(&lines));
        async move {
            let want = env.incarnation as u8 + 1;
            let mut got = 0;
            loop {
                let (Ok(_), data) = env.endpoint.recv(None, 1, 0, vec![0; 100]).await else {
                    return;
                };
                got += 1;
                if data[0] != want {
                    checker.borrow_mut().violation(|| format!("{data:?} meant for another"));
                }
                if want == 2 {
                    lines.borrow_mut().push(format!("new incarnation: message {got} is its own"));
                    return;
                }
            }
        }
    });
    story.end(&[])
}

fn collectives(config: SimConfig) -> Result<Report, Failure> {
    let mut story = Story::new("collectives", config, Config::default());
    let (checker, lines) = (Rc::clone(&story.checker), story.lines());
    story.sim.spawn_all(move |env| {
        let (checker, lines) = (Rc::clone(&checker), Rc::clone(&lines));
        async move {
            let world = env.world();
            let ticket = checker.borrow_mut().posted(env.host, "barrier and allreduce");
            env.note("barrier");
            let barrier = world.barrier().await;
            let passed = env.now();
            env.note("allreduce");
            let sum = world.allreduce(vec![u64::from(env.host), 1], Op::Sum).await;
            let n = u64::from(env.hosts);
            let want = vec![n * (n - 1) / 2, n];
            if barrier.is_err() || sum != Ok(want) {
                checker.borrow_mut().violation(|| format!("{barrier:?} {sum:?}"));
            }
            checker.borrow_mut().ended(ticket);
            if env.host == 0 {
                let (a, b) =
                    (passed.0 as f64 / 1e3, env.now().since(passed).as_nanos() as f64 / 1e3);
                lines
                    .borrow_mut()
                    .push(format!("first barrier {a:.1} us, then allreduce {b:.1} us"));
            }
        }
    });
    story.end(&[])
}

/// Runs the plan of the seed; its hosts and links replace those of `config`.
fn swarm_one(config: SimConfig) -> Result<Report, Failure> {
    let mut plan = Plan::of_seed(config.seed, Kind::of(&config));
    plan.config.trace = config.trace;
    let (report, trace) = swarm::run_traced(&plan).map_err(|f| swarm::explain(&plan, f, 300))?;
    let lines = vec![
        plan.to_string(),
        format!(
            "{} messages delivered and checked, {} failed as they must",
            report.delivered, report.failed
        ),
    ];
    let (name, config) = ("swarm".to_string(), plan.config.to_string());
    Ok(Report { name, config, lines, rows: Vec::new(), outcome: Some(report.outcome), trace })
}
