//! Which packets ask for an acknowledgement.

use super::{Congestion, SendWindow};

/// Packets under way with which a window of `window` is all but used up: then it may grow, and the
/// next packet asks for an acknowledgement. The two go together: asking from fewer on asked for
/// each message that filled three fifths of a first window, which never grew.
pub fn nearly_full(window: u32) -> u32 {
    (window * 3).div_ceil(4)
}

/// Packets after which one asks for an acknowledgement, at most `most`: where there are more to
/// send, and at any rate.
pub fn asks_at<T: Copy>(send: &SendWindow<T>, congestion: &Congestion, most: u32) -> (u32, u32) {
    let window = congestion.window();
    ((window / 2).clamp(1, most.max(1)), nearly_full(window.min(send.limit())))
}

/// Notes in `unasked` that `packets` are about to be sent; whether they should ask for an
/// acknowledgement: twice a congestion window, so that it never waits for a delayed one, and to
/// measure delay. While there is no `more` to send and the window has room, what comes back anyway
/// does.
#[inline]
pub fn should_ask<T: Copy>(
    unasked: &mut u32,
    send: &SendWindow<T>,
    congestion: &Congestion,
    (packets, most): (u32, u32),
    more: bool,
) -> bool {
    if send.is_empty() {
        *unasked = 0;
    }
    *unasked += packets;
    if !congestion.adapts() {
        return false;
    }
    let under_way = send.in_network() + packets;
    let (due, full) = asks_at(send, congestion, most);
    *unasked >= due && under_way >= due && (more || under_way >= full)
}
