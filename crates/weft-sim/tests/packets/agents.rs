//! Agents that work in their ranks' place, under the same faults as ranks, and while ranks compute.

use super::*;
use weft::choices::Place;

const BOTH: [Place; 2] = [Place::Host, Place::Agent];
/// Time that a rank computes.
const LONG: u64 = 500 * MS;

/// Returns settings with multicast and fetch-and-add at `place`, and retransmission in agents.
fn settings(place: Place) -> Config {
    Config { multicast: place, fetch_add: place.into(), ..Config::default() }
}

fn served(config: SimConfig) -> SimConfig {
    SimConfig { served: true, ..config }
}

/// Counts the packets for handler 0, and checks their order.
fn count_packets(packets: &Packets) -> Rc<Cell<u32>> {
    let got = Rc::new(Cell::new(0));
    let heard = Rc::clone(&got);
    packets.handle(0, move |_, packet| {
        assert_eq!(packet.argument(), heard.get());
        assert_eq!(packet.data(), bytes(packet.argument().into(), 64));
        heard.set(heard.get() + 1);
    });
    got
}

/// Lets host 0 send down the tree until agents forward, if they shall; returns the number of
/// packets.
async fn warm_up(
    env: &Env,
    packets: &Packets,
    group: &weft_packets::MulticastGroup,
    tree: Tree,
) -> u32 {
    let (mut sent, end) = (0, env.now() + Duration::from_millis(500));
    while sent < 2 || group.forwarded_by(tree) != packets.endpoint().choices().multicast {
        assert!(env.now() < end, "agents do not take over");
        group.send_over(tree, 0, sent, &bytes(sent.into(), 64)).await.unwrap();
        sent += 1;
        env.sleep(100_000).await;
    }
    sent
}

#[test]
fn multicast__all_trees_all_roots_in_order_under_loss() {
    for reliability in [Reliability::GoBackN, Reliability::Selective] {
        for (seed, loss) in [(1, 0.0), (2, 0.02), (3, 0.05), (4, 0.05)] {
            let settings = Config { reliability, ..settings(Place::Agent) };
            let sim = multicast(served(faulty(6, seed, loss)));
            let outcome = everybody_multicasts(sim.settings(settings), 60);
            assert_eq!(outcome.counters.lost > 0, loss > 0.0, "{outcome:?}");
        }
    }
}

/// Lets host 0 send 20 packets to 8 hosts, of which all but the last compute; returns the time at
/// which the last one has them, in ms after the others began to compute.
fn last_while_others_compute(config: SimConfig, place: Place, tree: Tree) -> f64 {
    const COUNT: u32 = 20;
    let mut sim = test_sim!("computing", config).settings(settings(place));
    let took = Rc::new(Cell::new(0.0));
    let note = Rc::clone(&took);
    sim.spawn_all(move |env| {
        let took = Rc::clone(&note);
        async move {
            let packets = packets(&env);
            let got = count_packets(&packets);
            let group = packets.group(GROUP, members(&env), env.host as usize).unwrap();
            let world = env.world();
            let warm = match env.host {
                0 => warm_up(&env, &packets, &group, tree).await.to_le_bytes().to_vec(),
                _ => Vec::new(),
            };
            let warm = world.broadcast(0, warm).await.unwrap();
            let warm = u32::from_le_bytes(warm.try_into().unwrap());
            until(&env, || env.host == 0 || got.get() == warm).await;
            // The start is so late that every host has left the barrier.
            world.barrier().await.unwrap();
            let start = Instant(900 * MS);
            env.endpoint.sleep(start.since(env.now())).await;
            let last = env.host == env.hosts - 1;
            if env.host == 0 {
                for n in warm..warm + COUNT {
                    group.send_over(tree, 0, n, &bytes(n.into(), 64)).await.unwrap();
                }
            } else if !last {
                env.compute(LONG).await;
            }
            until(&env, || env.host == 0 || got.get() == warm + COUNT).await;
            if last {
                took.set(env.now().since(start).as_secs_f64() * 1e3);
            }
            world.barrier().await.unwrap();
        }
    });
    run(sim);
    took.get()
}

#[test]
fn multicast__goes_on_while_ranks_compute_also_under_loss() {
    for tree in [Tree::Chain, Tree::Binary, Tree::Binomial] {
        for (seed, loss) in [(1, 0.0), (2, 0.02), (3, 0.05)] {
            let config = || served(faulty(8, seed, loss));
            let [host, agent] = BOTH.map(|place| last_while_others_compute(config(), place, tree));
            assert!(host >= 500.0, "{tree}, {loss}: {host} ms, the ranks between compute");
            let most = if loss > 0.0 { 200.0 } else { 0.1 };
            assert!(agent < most, "{tree}, {loss}: {agent} ms through agents, {host} else");
        }
    }
}

#[test]
fn multicast__a_slow_receiver_is_named_and_memory_stays_bounded_under_loss() {
    for &tree in Tree::ALL {
        let mut sim = test_sim!("slow receiver of agents", served(faulty(6, 5, 0.02)))
            .settings(settings(Place::Agent));
        sim.spawn_all(move |env| async move {
            let packets = packets(&env);
            let got = count_packets(&packets);
            let group = packets.group(GROUP, members(&env), env.host as usize).unwrap();
            let world = env.world();
            if env.host != 0 {
                if env.host == 4 {
                    world.barrier().await.unwrap();
                    env.compute(2_000 * MS).await;
                } else {
                    world.barrier().await.unwrap();
                }
                until(&env, || got.get() == 2_000).await;
                return world.barrier().await.unwrap();
            }
            let mut sent = warm_up(&env, &packets, &group, tree).await;
            world.barrier().await.unwrap();
            // The host sends as many packets as have room on the route, and no more.
            let end = env.now() + Duration::from_millis(1_000);
            while env.now() < end {
                match group.try_send(tree, 0, sent, &bytes(sent.into(), 64)) {
                    Ok(()) => sent += 1,
                    Err(MulticastError::Busy { .. }) => env.sleep(100_000).await,
                    Err(error) => panic!("{error}"),
                }
            }
            assert!((64..1_500).contains(&sent), "{tree}: {sent} packets were taken");
            until(&env, || !group.slow().is_empty()).await;
            assert_eq!(group.slow()[0].0, 4, "{tree}");
            for n in sent..2_000 {
                group.send_over(tree, 0, n, &bytes(n.into(), 64)).await.unwrap();
            }
            assert!(group.slow().is_empty(), "{tree}: it is not slow any more");
            world.barrier().await.unwrap();
        });
        run(sim);
    }
}

#[test]
fn multicast__a_member_that_dies_fails_the_group_by_name_under_loss() {
    for &tree in Tree::ALL {
        for visible in [true, false] {
            let death = Fault::Death { host: 4, at: 30 * MS, visible };
            let mut config = served(faulty(6, 6, 0.02));
            config.faults.push(death);
            let settings =
                Config { peer_timeout_ms: 1000, keepalive_ms: 50, ..settings(Place::Agent) };
            let mut sim = test_sim!("dead member of agents", config).settings(settings);
            let errors: Rc<RefCell<Vec<MulticastError>>> = Rc::default();
            let note = Rc::clone(&errors);
            sim.spawn_all(move |env| {
                let errors = Rc::clone(&note);
                async move {
                    let packets = packets(&env);
                    let _got = count_packets(&packets);
                    let group = packets.group(GROUP, members(&env), env.host as usize).unwrap();
                    if env.host != 0 {
                        return until(&env, || group.failed().is_some()).await;
                    }
                    let mut sent = warm_up(&env, &packets, &group, tree).await;
                    let error = loop {
                        match group.send_over(tree, 0, sent, &bytes(sent.into(), 64)).await {
                            Ok(()) => env.sleep(100_000).await,
                            Err(error) => break error,
                        }
                        sent += 1;
                    };
                    errors.borrow_mut().push(error);
                }
            });
            let outcome = run(sim);
            assert!(outcome.at < 1_200 * MS, "{tree}, visible {visible}: {outcome:?}");
            let errors = errors.borrow();
            let named = matches!(errors[..], [MulticastError::Member { rank: 4, .. }]);
            assert!(named, "{tree}, visible {visible}: {errors:?}");
        }
    }
}

/// Lets hosts add to a counter of host 0, which computes meanwhile; returns the longest wait for a
/// result, ms.
fn tickets_while_the_owner_computes(config: SimConfig, place: Place) -> f64 {
    const EACH: u64 = 50;
    let mut sim = test_sim!("tickets of agents", config).settings(settings(place));
    let (tickets, longest) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(0.0_f64)));
    let (note, late) = (Rc::clone(&tickets), Rc::clone(&longest));
    sim.spawn_all(move |env| {
        let (tickets, longest) = (Rc::clone(&note), Rc::clone(&late));
        async move {
            let (packets, world) = (packets(&env), env.world());
            let counter = counter_of_host_0(&env, &packets).await;
            packets.fetch_add(env.peer(0), counter, 0).await.unwrap();
            world.barrier().await.unwrap();
            if env.host == 0 {
                env.compute(LONG).await;
                world.barrier().await.unwrap();
                let value = packets.counter_value(counter);
                assert_eq!(value, Some(100 + EACH * u64::from(env.hosts - 1)));
                assert!(packets.end_counter(counter));
                return world.barrier().await.unwrap();
            }
            env.sleep(20 * MS).await;
            for _ in 0..EACH {
                let start = env.now();
                let ticket = packets.fetch_add(env.peer(0), counter, 1).await.unwrap();
                longest.set(longest.get().max(env.now().since(start).as_secs_f64() * 1e3));
                tickets.borrow_mut().push(ticket);
            }
            world.barrier().await.unwrap();
            world.barrier().await.unwrap();
            let refused = packets.fetch_add(env.peer(0), counter, 1).await;
            assert_eq!(refused, Err(OpError::Refused), "it has ended");
        }
    });
    let hosts = u64::from(sim.network().borrow().config().hosts);
    run(sim);
    let mut tickets = tickets.take();
    tickets.sort_unstable();
    assert!(tickets.into_iter().eq(100..100 + EACH * (hosts - 1)), "each ticket once");
    longest.get()
}

#[test]
fn fetch_add__a_request_that_overtakes_its_session_is_answered() {
    // HELLOs delayed while requests pass: in every few of these seeds.
    for seed in 1..60 {
        tickets_while_the_owner_computes(served(faulty(5, seed, 0.05)), Place::Agent);
    }
}

#[test]
fn fetch_add__served_while_the_owner_computes_also_under_loss() {
    for (seed, loss) in [(1, 0.0), (2, 0.02), (3, 0.05)] {
        let config = || served(faulty(5, seed, loss));
        let [host, agent] = BOTH.map(|place| tickets_while_the_owner_computes(config(), place));
        assert!(host >= 400.0, "{loss}: {host} ms, the owner computes");
        let most = if loss > 0.0 { 200.0 } else { 0.1 };
        assert!(agent < most, "{loss}: {agent} ms at the agent, {host} at the owner");
    }
}
