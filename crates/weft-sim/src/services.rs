//! Multicast and counters in a plan, and hosts that compute meanwhile; and the check of it.

use crate::checker::{content, Lane, Word};
use crate::plan::{Cast, Count};
use crate::sim::Env;
use crate::swarm::{me, Part, Shared};
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use weft::packets::{Counter, MulticastGroup, Packets};

/// The group of all hosts, and the handler of its packets.
const GROUP: u16 = 1;
const HANDLER: u16 = 1;
/// Word of a host that is its counter.
const COUNTER: u32 = u32::MAX;
/// Milliseconds after which every host has started: pauses are shorter.
const STARTED_MS: u32 = 1000;

/// What this host does for that, beside everything else.
pub(crate) fn parts(env: &Env, shared: &Rc<Shared>) -> Vec<Part> {
    let packets = match Packets::new(&env.endpoint) {
        Ok(packets) if env.incarnation == 0 => packets,
        Ok(_) => return Vec::new(),
        Err(error) => {
            violation(env, shared, error.to_string());
            return Vec::new();
        }
    };
    match packets.counter(0) {
        Some(counter) => drop(shared.counters.borrow_mut().insert(env.host, counter)),
        None => violation(env, shared, "no counter".into()),
    }
    let mut parts: Vec<Part> = vec![
        Box::pin(count_all(env.clone(), packets.clone(), Rc::clone(shared))),
        Box::pin(compute_all(env.clone(), Rc::clone(shared))),
    ];
    if !shared.plan.casts.is_empty() {
        let members = (0..env.hosts).map(|host| env.peer(host)).collect();
        match packets.group(GROUP, members, env.host as usize) {
            Some(group) => {
                parts.push(Box::pin(hear_all(env.clone(), packets, Rc::clone(shared))));
                parts.push(Box::pin(cast_all(env.clone(), group, Rc::clone(shared))));
            }
            None => violation(env, shared, "no group".into()),
        }
    }
    parts
}

fn violation(env: &Env, shared: &Shared, what: String) {
    let host = env.host;
    shared.checker.borrow_mut().violation(|| format!("host {host}: {what}"));
}

/// The bytes of a root's packet `index`, which all get.
fn bytes(shared: &Shared, root: u32, index: usize, len: usize) -> Vec<u8> {
    let lane = Lane { src: root, dst: u32::MAX, tag: u64::MAX };
    content(shared.plan.config.seed, lane, index as u64, len)
}

fn of_root(shared: &Shared, root: u32) -> impl Iterator<Item = &Cast> {
    shared.plan.casts.iter().filter(move |cast| cast.root == root)
}

/// Sends this host's packets to all, in order.
async fn cast_all(env: Env, group: MulticastGroup, shared: Rc<Shared>) {
    for (index, cast) in of_root(&shared, env.host).enumerate() {
        if cast.pause_ns > 0 {
            env.sleep(cast.pause_ns).await;
        }
        let data = bytes(&shared, env.host, index, cast.len);
        let what = format!("packet {index} to all by {}", cast.tree);
        let ticket = shared.checker.borrow_mut().posted(env.host, what.as_str());
        let sent = group.send_over(cast.tree, HANDLER, index as u32, &data).await;
        shared.checker.borrow_mut().ended(ticket);
        if let Err(error) = sent {
            violation(&env, &shared, format!("{what}: {error}"));
        }
    }
}

/// Packets that a host has heard of each root, and who waits for the last.
struct Heard {
    next: Vec<usize>,
    waker: Option<Waker>,
}

/// Checks the packets of all other hosts until the last has come.
async fn hear_all(env: Env, packets: Packets, shared: Rc<Shared>) {
    let heard = Heard { next: vec![0; env.hosts as usize], waker: None };
    let heard = Rc::new(RefCell::new(heard));
    let (books, all, at) = (Rc::clone(&heard), Rc::clone(&shared), env.clone());
    let what = format!("packets to all, {} of them", shared.plan.casts.len());
    let ticket = shared.checker.borrow_mut().posted(env.host, what);
    packets.handle(HANDLER, move |_, packet| {
        let mut heard = books.borrow_mut();
        let root = (0..at.hosts).find(|&host| at.peer(host) == packet.source());
        let Some(root) = root.filter(|&root| root != at.host) else {
            return violation(&at, &all, format!("a packet to all from {}", packet.source()));
        };
        let next = &mut heard.next[root as usize];
        let (index, due) = (packet.argument() as usize, *next);
        let cast = of_root(&all, root).nth(index);
        if index != due || cast.is_none_or(|c| packet.data() != bytes(&all, root, index, c.len)) {
            let len = packet.data().len();
            let text = format!("packet {index} of {root} to all, {len} bytes, where {due} was due");
            return violation(&at, &all, text);
        }
        *next += 1;
        all.checker.borrow_mut().remote_done();
        heard.waker.take().into_iter().for_each(Waker::wake);
    });
    let wanted: Vec<usize> = (0..env.hosts)
        .map(|root| if root == env.host { 0 } else { of_root(&shared, root).count() })
        .collect();
    poll_fn(|cx| {
        let mut heard = heard.borrow_mut();
        heard.waker = Some(cx.waker().clone());
        match heard.next == wanted {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    shared.checker.borrow_mut().ended(ticket);
}

/// The counter of a host, once it has started.
async fn counter_of(env: &Env, shared: &Shared, host: u32) -> Option<Counter> {
    let known = || shared.counters.borrow().get(&host).copied();
    env.sleep(1).await;
    for _ in 0..STARTED_MS {
        if known().is_some() || shared.mortal(host) {
            break;
        }
        env.sleep(1_000_000).await;
    }
    known()
}

/// Does this host's additions, one after the other.
async fn count_all(env: Env, packets: Packets, shared: Rc<Shared>) {
    for &Count { dst, .. } in shared.plan.counts.iter().filter(|c| c.src == me(&env)) {
        let (word, peer) = (Word { host: dst, number: COUNTER }, env.peer(dst));
        let Some(counter) = counter_of(&env, &shared, dst).await else {
            if !shared.mortal(dst) {
                violation(&env, &shared, format!("host {dst} has no counter"));
            }
            continue;
        };
        let what = format!("an addition at host {dst}");
        let ticket = shared.checker.borrow_mut().posted(env.host, what.as_str());
        shared.checker.borrow_mut().add_posted(word);
        let found = packets.fetch_add(peer, counter, 1).await;
        let mut checker = shared.checker.borrow_mut();
        checker.ended(ticket);
        match found {
            Ok(before) => {
                checker.added(word, before);
                checker.remote_done();
            }
            Err(e) if shared.accepts(&e, dst, peer) => return checker.remote_failed(),
            Err(e) => return checker.violation(|| format!("host {}: {what}: {e}", env.host)),
        }
    }
}

/// Computes when the plan says so.
async fn compute_all(env: Env, shared: Rc<Shared>) {
    for stretch in shared.plan.stretches.iter().filter(|s| s.host == env.host) {
        env.sleep(stretch.after_ns).await;
        env.compute(stretch.ns).await;
    }
}
