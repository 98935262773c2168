//! The packet interface in a plan: multicast, counters, packets, copies to exported memory; hosts
//! that compute meanwhile; and the checks.

use crate::checker::{content, Lane, Word};
use crate::plan::{Cast, Copied, Count, Parcel, COPIES_LEN};
use crate::shared::{Known, Part, Shared};
use crate::sim::Env;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use weft_core::{OpError, PeerId};
use weft_packets::{MulticastError, MulticastGroup, Packets};

/// The group of all hosts, and the handlers of its packets and of those to one host.
const GROUP: u16 = 1;
const HANDLER: u16 = 1;
const TO_ONE: u16 = 2;
/// Tag of the lanes of packets to one host.
const PARCELS: u64 = u64::MAX - 2;
/// Number of the word that stands for a host's counter.
const COUNTER: u32 = u32::MAX;
/// Virtual nanoseconds between polls.
const POLL_EVERY: u64 = 200_000;
/// Milliseconds after which every host has started: pauses are shorter.
const STARTED_MS: u32 = 1000;

/// Returns this host's parts in that.
pub(crate) fn parts(env: &Env, shared: &Rc<Shared>) -> Vec<Part> {
    let packets = match env.packets() {
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
    match packets.exports().make(env.hosts as usize * COPIES_LEN) {
        Some(memory) => drop(shared.exports.borrow_mut().insert(env.host, memory.key)),
        None => violation(env, shared, "no room to export".into()),
    }
    let mut parts: Vec<Part> = vec![
        Box::pin(count_all(env.clone(), packets.clone(), Rc::clone(shared))),
        Box::pin(send_parcels(env.clone(), packets.clone(), Rc::clone(shared))),
        Box::pin(take_parcels(env.clone(), packets.clone(), Rc::clone(shared))),
        Box::pin(copy_all(env.clone(), packets.clone(), Rc::clone(shared))),
        Box::pin(compute_all(env.clone(), Rc::clone(shared))),
    ];
    if !shared.plan.casts.is_empty() {
        let members = (0..env.hosts).map(|host| env.peer(host)).collect();
        match packets.group(GROUP, members, env.host as usize) {
            Some(group) => {
                let group = Rc::new(group);
                let (env, shared) = (env.clone(), Rc::clone(shared));
                let all = (env.clone(), Rc::clone(&group), Rc::clone(&shared));
                parts.push(Box::pin(receive_all(all, packets)));
                parts.push(Box::pin(cast_all(env, group, shared)));
            }
            None => violation(env, shared, "no group".into()),
        }
    }
    parts
}

fn violation(env: &Env, shared: &Shared, what: String) {
    accuse(env.host, shared, what);
}

fn accuse(host: u32, shared: &Shared, what: String) {
    shared.checker.borrow_mut().violation(|| format!("host {host}: {what}"));
}

/// Returns all hosts as this one's peers, for handlers: a part of an endpoint must not own it.
fn peers(env: &Env) -> Vec<PeerId> {
    (0..env.hosts).map(|host| env.peer(host)).collect()
}

/// Returns the bytes of a root's packet `index`, which all get.
fn bytes(shared: &Shared, root: u32, index: usize, len: usize) -> Vec<u8> {
    let lane = Lane { src: root, dst: u32::MAX, tag: u64::MAX };
    content(shared.plan.config.seed, lane, index as u64, len)
}

fn of_root(shared: &Shared, root: u32) -> impl Iterator<Item = &Cast> {
    shared.plan.casts.iter().filter(move |cast| cast.root == root)
}

/// Sends this host's packets to all, in order.
async fn cast_all(env: Env, group: Rc<MulticastGroup>, shared: Rc<Shared>) {
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
            return failed(&env, &shared, &what, error);
        }
    }
}

/// Checks the failure of a group: right, if the named member has failed.
fn failed(env: &Env, shared: &Shared, what: &str, error: MulticastError) {
    match error {
        MulticastError::Member { rank, .. }
            if shared.mortal(rank as u32) || !shared.cut_off.is_empty() =>
        {
            shared.checker.borrow_mut().remote_failed();
        }
        other => violation(env, shared, format!("{what}: {other}")),
    }
}

/// Checks the packets of all other hosts until the last arrived, or the group failed.
async fn receive_all(
    (env, group, shared): (Env, Rc<MulticastGroup>, Rc<Shared>),
    packets: Packets,
) {
    let heard = Rc::new(RefCell::new(vec![0; env.hosts as usize]));
    let (books, all) = (Rc::clone(&heard), Rc::clone(&shared));
    let (me, peers) = (env.host, peers(&env));
    let what = format!("packets to all, {} of them", shared.plan.casts.len());
    let ticket = shared.checker.borrow_mut().posted(env.host, what.as_str());
    packets.handle(HANDLER, move |_, packet| {
        let root = peers.iter().position(|&peer| peer == packet.source()).map(|root| root as u32);
        let Some(root) = root.filter(|&root| root != me) else {
            return accuse(me, &all, format!("a packet to all from {}", packet.source()));
        };
        let next = &mut books.borrow_mut()[root as usize];
        let (index, due) = (packet.argument() as usize, *next);
        let cast = of_root(&all, root).nth(index);
        if index != due || cast.is_none_or(|c| packet.data() != bytes(&all, root, index, c.len)) {
            let len = packet.data().len();
            let text = format!("packet {index} of {root} to all, {len} bytes, where {due} was due");
            return accuse(me, &all, text);
        }
        *next += 1;
        all.checker.borrow_mut().remote_done();
    });
    let wanted: Vec<usize> = (0..env.hosts)
        .map(|root| if root == env.host { 0 } else { of_root(&shared, root).count() })
        .collect();
    let due = |root: &usize| wanted[*root] > 0;
    let expecting: Result<Vec<_>, _> =
        (0..wanted.len()).filter(due).map(|root| group.expect(root)).collect();
    while *heard.borrow() != wanted {
        if let Some(error) = group.failed() {
            failed(&env, &shared, &what, error);
            break;
        }
        env.sleep(POLL_EVERY).await;
    }
    drop(expecting);
    shared.checker.borrow_mut().ended(ticket);
}

/// Sends this host's packets to others, in order.
async fn send_parcels(env: Env, packets: Packets, shared: Rc<Shared>) {
    for &Parcel { dst, len, lent, .. } in shared.plan.parcels.iter().filter(|p| p.src == env.host) {
        let (lane, peer) = (Lane { src: env.host, dst, tag: PARCELS }, env.peer(dst));
        let (index, data) = shared.checker.borrow_mut().send_posted(lane, len);
        let argument = index as u32;
        let sent = match lent {
            true => packets.gather_async(peer, TO_ONE, argument, &data.into(), 0..len).await,
            false => packets.send_async(peer, TO_ONE, argument, &data).await,
        };
        let failure = sent.err().map(|e| (e.to_string(), shared.accepts(&env, &e, dst, peer)));
        shared.checker.borrow_mut().send_ended(lane, index, failure);
    }
    let ticket = shared.checker.borrow_mut().posted(env.host, "all lent memory back");
    let flushed = packets.flush_async().await;
    shared.checker.borrow_mut().ended(ticket);
    match flushed {
        Err(OpError::Peer { peer, .. })
            if (0..env.hosts).any(|host| env.peer(host) == peer && shared.mortal(host))
                || shared.gives_up(&env) => {}
        Err(error) => violation(&env, &shared, format!("lent memory: {error}")),
        Ok(()) => {}
    }
    if packets.lent() > 0 {
        violation(&env, &shared, format!("{} packets are lent after a flush", packets.lent()));
    }
}

/// Checks the packets for this host until all have arrived.
async fn take_parcels(env: Env, packets: Packets, shared: Rc<Shared>) {
    let mine = shared.plan.parcels.iter().filter(|p| p.dst == env.host).count();
    let left = Rc::new(Cell::new(mine));
    let (count, all) = (Rc::clone(&left), Rc::clone(&shared));
    let (me, peers) = (env.host, peers(&env));
    let ticket = shared.checker.borrow_mut().posted(env.host, format!("{mine} packets"));
    packets.handle(TO_ONE, move |_, packet| {
        let src = peers.iter().position(|&peer| peer == packet.source()).map(|src| src as u32);
        let Some(src) = src else {
            return accuse(me, &all, format!("a packet from {}", packet.source()));
        };
        let lane = Lane { src, dst: me, tag: PARCELS };
        let mut checker = all.checker.borrow_mut();
        if u64::from(packet.argument()) != checker.next_index(lane) {
            checker.violation(|| format!("{lane}: packet {} out of order", packet.argument()));
        }
        checker.received(lane, packet.data().len(), packet.data());
        count.set(count.get().saturating_sub(1));
    });
    while left.get() > 0 {
        env.sleep(POLL_EVERY).await;
    }
    shared.checker.borrow_mut().ended(ticket);
}

/// Waits for a value that a host publishes when it has started.
async fn known<T: Copy>(env: &Env, shared: &Shared, all: &Known<T>, host: u32) -> Option<T> {
    let known = || all.borrow().get(&host).copied();
    env.sleep(1).await;
    for _ in 0..STARTED_MS {
        if known().is_some() || shared.mortal(host) {
            break;
        }
        env.sleep(1_000_000).await;
    }
    let found = known();
    if found.is_none() && !shared.mortal(host) {
        violation(env, shared, format!("host {host} has not started"));
    }
    found
}

/// Copies to others' memory, one copy after the other, and checks the bytes.
async fn copy_all(env: Env, packets: Packets, shared: Rc<Shared>) {
    for (index, &copy) in shared.plan.copies.iter().enumerate() {
        if copy.src != env.host {
            continue;
        }
        let what = format!("a copy of {} bytes to host {}", copy.len, copy.dst);
        let ticket = shared.checker.borrow_mut().posted(env.host, what.as_str());
        let done = copy_one(&env, &packets, &shared, index, copy).await;
        let mut checker = shared.checker.borrow_mut();
        checker.ended(ticket);
        match done {
            Ok(true) => checker.remote_done(),
            Ok(false) => checker.violation(|| format!("host {}: {what} is not there", env.host)),
            Err(e) if shared.accepts(&env, &e, copy.dst, env.peer(copy.dst)) => {
                checker.remote_failed()
            }
            Err(e) => checker.violation(|| format!("host {}: {what}: {e}", env.host)),
        }
    }
}

/// Copies once; returns true if the bytes are there.
async fn copy_one(
    env: &Env,
    packets: &Packets,
    shared: &Shared,
    index: usize,
    Copied { dst, at, len, .. }: Copied,
) -> Result<bool, OpError> {
    let Some(key) = known(env, shared, &shared.exports, dst).await else { return Ok(true) };
    let lane = Lane { src: env.host, dst, tag: PARCELS - 1 };
    let data = content(shared.plan.config.seed, lane, index as u64, len);
    let (peer, offset) = (env.peer(dst), (env.host as usize * COPIES_LEN + at) as u64);
    packets.rcpy_async(peer, key, offset, &data).await?;
    let (result, found) = env.endpoint.get(peer, key, offset, vec![0xee; len]).await;
    result?;
    Ok(found == data)
}

/// Executes this host's additions, one after the other.
async fn count_all(env: Env, packets: Packets, shared: Rc<Shared>) {
    for &Count { dst, .. } in shared.plan.counts.iter().filter(|c| c.src == env.host) {
        let (word, peer) = (Word { host: dst, number: COUNTER }, env.peer(dst));
        let Some(counter) = known(&env, &shared, &shared.counters, dst).await else { continue };
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
            Err(e) if shared.accepts(&env, &e, dst, peer) => return checker.remote_failed(),
            Err(e) => return checker.violation(|| format!("host {}: {what}: {e}", env.host)),
        }
    }
}

/// Computes at the times of the plan.
async fn compute_all(env: Env, shared: Rc<Shared>) {
    for stretch in shared.plan.stretches.iter().filter(|s| s.host == env.host) {
        env.sleep(stretch.after_ns).await;
        env.compute(stretch.ns).await;
    }
}
