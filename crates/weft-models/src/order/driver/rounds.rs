//! Tasks of a member that go on by themselves: casts that wait for room, and what is due during
//! waits.

use super::{Inner, Net, Pauses, TICK};
use std::rc::Weak;

/// Tries again to send casts.
pub(super) async fn retry<N: Net>(inner: Weak<Inner<N>>, net: N) {
    let (mut pauses, mut has_sent) = (Pauses::default(), true);
    loop {
        pauses.pause(&net, has_sent).await;
        let Some(inner) = inner.upgrade() else { return };
        let waiting = inner.casts.len();
        let all = inner.send_casts();
        has_sent = inner.casts.len() < waiting;
        inner.retrying.set(!all);
        inner.pump();
        if all {
            return;
        }
    }
}

/// Does what is due during waits.
pub(super) async fn tick<N: Net>(inner: Weak<Inner<N>>, net: N) {
    loop {
        net.sleep(TICK).await;
        let Some(inner) = inner.upgrade() else { return };
        let (now, warn_after) = (net.now(), net.warn_after());
        inner.with(|core| core.tick(now, warn_after));
        if !inner.core.borrow().waits() {
            // Once more, so that no rank is watched for nothing.
            inner.with(|core| core.tick(now, warn_after));
            inner.ticking.set(false);
            return;
        }
    }
}
