//! The choice of packets that ask for an acknowledgement.

use super::{Congestion, SendWindow};

/// Returns the number of packets in flight at which a window of `window` is nearly used up: then it
/// may grow, and the next packet asks for an acknowledgement. Both use one number: asking from
/// fewer on asked for each message that filled three fifths of a first window, which never grew.
pub fn nearly_full(window: u32) -> u32 {
    (window * 3).div_ceil(4)
}

/// Returns the numbers of packets after which one asks for an acknowledgement: if more packets wait
/// (at most `most`), and if none does.
pub fn asks_at<T: Copy>(send: &SendWindow<T>, congestion: &Congestion, most: u32) -> (u32, u32) {
    let window = congestion.window();
    ((window / 2).clamp(1, most.max(1)), nearly_full(window.min(send.limit())))
}

/// Adds `packets` that are about to be sent to `unasked`; returns true if they should ask for an
/// acknowledgement: twice a congestion window, so that it never waits for a delayed one, and to
/// measure delay. If no `more` packets wait and the window has room, the acknowledgements that come
/// unasked suffice.
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
