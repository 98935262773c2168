//! Floods of a plan: messages that are not received for a while must not block an awaited message.

use crate::checker::Lane;
use crate::plan::Flood;
use crate::shared::{Part, Shared};
use crate::sim::Env;
use crate::tasks::join_all;
use std::rc::Rc;

/// Match bits of messages that are not received yet, and of the awaited one.
const LEFT: u64 = 1 << 60;
const AWAITED: u64 = LEFT | 1;
/// Length of the awaited message.
const AWAITED_LEN: usize = 100;

/// Returns a host's parts in the floods of a plan.
pub(crate) fn parts(env: &Env, shared: &Rc<Shared>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    // A host that restarted takes no part.
    for &flood in shared.plan.floods.iter().filter(|_| env.incarnation == 0) {
        let (env, shared) = (env.clone(), Rc::clone(shared));
        if flood.src == env.host {
            parts.push(Box::pin(send(env, shared, flood)));
        } else if flood.dst == env.host {
            parts.push(Box::pin(receive(env, shared, flood)));
        }
    }
    parts
}

async fn send(env: Env, shared: Rc<Shared>, flood: Flood) {
    let peer = env.peer(flood.dst);
    let lane = |tag| Lane { src: flood.src, dst: flood.dst, tag };
    let left = (0..flood.count).map(|_| (lane(LEFT), flood.len));
    let (mut sends, checker) = (Vec::new(), &shared.checker);
    for (lane, len) in left.chain([(lane(AWAITED), AWAITED_LEN)]) {
        let (index, data) = checker.borrow_mut().send_posted(lane, len);
        let send = env.endpoint.send(peer, lane.tag, data);
        sends.push(async move {
            let failure = send.await.0.err().map(|e| (e.to_string(), false));
            checker.borrow_mut().send_ended(lane, index, failure);
        });
    }
    join_all(sends.into_iter().map(Box::pin)).await;
}

async fn receive(env: Env, shared: Rc<Shared>, flood: Flood) {
    let peer = env.peer(flood.src);
    let left = (0..flood.count).map(|_| (LEFT, flood.len));
    for (tag, len) in [(AWAITED, AWAITED_LEN)].into_iter().chain(left) {
        let lane = Lane { src: flood.src, dst: flood.dst, tag };
        let what = format!("receive of {lane}, {len} bytes, of {flood:?}");
        let ticket = shared.checker.borrow_mut().posted(env.host, what);
        let (result, data) = env.endpoint.recv(Some(peer), tag, 0, vec![0; len]).await;
        let mut checker = shared.checker.borrow_mut();
        checker.ended(ticket);
        match result {
            Ok(status) => checker.received(lane, status.len, &data[..status.len]),
            Err(e) => return checker.violation(|| format!("{lane}: receive failed: {e}")),
        }
    }
}

/// Checks that no memory for unexpected messages is in use once all messages were received.
pub(crate) fn check_room(env: &Env, shared: &Shared) {
    let bytes = env.endpoint.counters().unexpected_bytes();
    if bytes > 0 && shared.plan.mortal().is_empty() {
        let mut checker = shared.checker.borrow_mut();
        checker.violation(|| format!("host {}: {bytes} bytes of room are not back", env.host));
    }
}
