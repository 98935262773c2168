//! Announced messages, which their receivers pull.

use super::*;

#[test]
fn pull__messages_of_all_lengths_in_both_dialects_and_with_all_blocks() {
    let lens = [1, 8, 4095, 4096, 4097, 32_768, 32_769, 131_072, 1_000_003];
    for (dialect, mtu, block, depth) in [
        (BOTH[0], 9000, 8, 4),
        (BOTH[0], 9000, 64, 1),
        (BOTH[1], 1500, 32, 4),
        (BOTH[1], 1500, 1, 1),
        (BOTH[1], 9000, 64, 8),
        (BOTH[1], 9000, 3, 2),
    ] {
        let mut net = Net::new(dialect, mtu, 0, 1);
        let settings = Settings { block, depth, ..net.nodes[0].settings };
        net.nodes = [Node::new(settings, 1, 0, 0x11), Node::new(settings, 3, KEY, 0x22)];
        let peer = net.nodes[0].connect(0, B, 3, KEY).unwrap();
        assert_eq!(net.event(0), Event::Connected(peer));
        for (number, len) in (0..).zip(lens) {
            let data = message(number, len);
            announce(&mut net, peer, number as u64, data.clone(), 70 + number as u64);
            let (offer, bits) = offer(&mut net);
            assert_eq!((offer.len, bits), (len as u32, number as u64));
            net.nodes[1].pull(net.now, offer, offer.len, 5);
            let len = data.len() as u32;
            let pulled = Event::Pulled { peer: offer.peer, context: 5, data, len };
            assert_eq!(net.event(1), pulled, "{dialect:?} {mtu} {block} {depth}");
            let sent = Event::Sent { peer, context: 70 + number as u64, len };
            assert_eq!(net.event(0), sent);
        }
        assert_eq!(net.nodes.map(|node| node.counters()), [Counters::default(); 2]);
    }
}

#[test]
fn pull__a_part_or_nothing_ends_the_send() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    for (want, got) in [(100, 100), (0, 0), (50_000, 50_000), (u32::MAX, 100_000)] {
        announce(&mut net, peer, 1, message(1, 100_000), 9);
        let (offer, _) = offer(&mut net);
        net.nodes[1].pull(net.now, offer, want, 5);
        let mut data = message(1, 100_000);
        data.truncate(got);
        let len = data.len() as u32;
        assert_eq!(net.event(1), Event::Pulled { peer: offer.peer, context: 5, data, len });
        assert_eq!(net.event(0), Event::Sent { peer, context: 9, len: got as u32 });
    }
    // A message that was taken is gone.
    announce(&mut net, peer, 1, message(1, 10), 9);
    let (offer, _) = offer(&mut net);
    net.nodes[1].pull(net.now, offer, 0, 5);
    assert!(matches!(net.event(0), Event::Sent { len: 0, .. }));
    net.nodes[1].pull(net.now, offer, 10, 6);
    assert!(matches!(net.event(1), Event::Pulled { context: 5, .. }));
    assert_eq!(net.event(1), Event::NotPulled { peer: offer.peer, context: 6 });
}

#[test]
fn pull__a_message_at_any_offset_of_its_frame() {
    for (dialect, mtu) in [(BOTH[0], 9000), (BOTH[1], 1500)] {
        for offset in [1, 100, 1467, 1468, 1469, 4095] {
            let (mut net, peer) = Net::connected(dialect, mtu, 0, 1);
            announce(&mut net, peer, 1, message(1, 70_000), 9);
            let (mut offer, _) = offer(&mut net);
            offer.window.offset = offset;
            net.nodes[1].pull(net.now, offer, 70_000, 5);
            let data = message(1, 70_000);
            let len = data.len() as u32;
            assert_eq!(net.event(1), Event::Pulled { peer: offer.peer, context: 5, data, len });
        }
    }
}

/// Messages of all kinds and lengths by a seed: even numbers wait until they are taken.
fn length_of(number: usize) -> usize {
    [10, 200, 7000, 40_000, 3, 150_000, 90, 33_000][number % 8] + number
}

/// Takes one event of the receiver; returns true if a message was received whole.
fn take(net: &mut Net, announced: &mut Vec<usize>, next: &mut usize) -> bool {
    let (number, data) = match net.event(1) {
        Event::Received { match_bits, data, .. } => {
            assert_eq!(match_bits as usize, *next, "the order");
            *next += 1;
            (match_bits as usize, data)
        }
        Event::Announced { offer, match_bits } => {
            assert_eq!(match_bits as usize, *next, "the order");
            *next += 1;
            announced.push(match_bits as usize);
            net.nodes[1].pull(net.now, offer, u32::MAX, match_bits);
            return false;
        }
        Event::Pulled { context, data, .. } => {
            announced.retain(|of| *of != context as usize);
            (context as usize, data)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(data, message(number, length_of(number)), "message {number}");
    true
}

#[test]
fn pull__messages_arrive_once_and_in_order_whatever_the_network_does() {
    const COUNT: usize = 40;
    for seed in 0..60 {
        let dialect = BOTH[seed as usize % 2];
        let (mut net, peer) = Net::connected(dialect, 1500, 1 + seed % 12, seed);
        for number in 0..COUNT {
            let data = message(number, length_of(number));
            let context = number as u64;
            let is_sync = number % 2 == 0;
            let outgoing = Outgoing { match_bits: context, data, context, is_sync };
            net.nodes[0].send(net.now, peer, outgoing).unwrap();
        }
        let (mut whole, mut next, mut announced) = (0, 0, Vec::new());
        while whole < COUNT {
            whole += usize::from(take(&mut net, &mut announced, &mut next));
        }
        let mut contexts = Vec::new();
        while contexts.len() < COUNT {
            if let Event::Sent { context, len, .. } = net.event(0) {
                assert_eq!(len as usize, length_of(context as usize));
                contexts.push(context);
            }
        }
        contexts.sort_unstable();
        assert!(contexts.iter().copied().eq(0..COUNT as u64), "seed {seed}: {contexts:?}");
        assert!(net.nodes[0].windows.has_room() && net.nodes[1].pulls.is_quiet());
    }
}

#[test]
fn send__more_messages_than_windows_wait_for_their_turn() {
    let (mut net, peer) = Net::connected(Dialect::Native, 9000, 0, 1);
    (0..600).for_each(|number| announce(&mut net, peer, number, vec![7; 10], number));
    let mut offers = VecDeque::new();
    while offers.len() < 256 {
        offers.push_back(offer(&mut net));
    }
    // All windows are in use: the next one is announced when one is free.
    net.round();
    assert_eq!(net.nodes[1].poll_event(), None);
    for number in 0..600 {
        if offers.is_empty() {
            offers.push_back(offer(&mut net));
        }
        let (offer, bits) = offers.pop_front().unwrap();
        assert_eq!(bits, number);
        net.nodes[1].pull(net.now, offer, 10, number);
        while !matches!(net.event(0), Event::Sent { context, .. } if context == number) {}
        while let Some(event) = net.nodes[1].poll_event() {
            if let Event::Announced { offer, match_bits } = event {
                offers.push_back((offer, match_bits));
            }
        }
    }
}

#[test]
fn pull__one_frame_lost_is_asked_for_before_the_timeout() {
    let (mut net, peer) = Net::connected(Dialect::Native, 9000, 0, 1);
    announce(&mut net, peer, 1, message(1, 2_000_000), 9);
    let (offer, _) = offer(&mut net);
    net.nodes[1].pull(net.now, offer, u32::MAX, 5);
    let (mut lost, mut asked, mut frame) = (0, 0, Vec::new());
    while net.nodes[1].events.is_empty() {
        while net.nodes[1].poll_transmit(&mut frame).is_some() {
            asked += usize::from(frame[2] == 41);
            net.nodes[0].handle(0, B, &core::mem::take(&mut frame));
        }
        while net.nodes[0].poll_transmit(&mut frame).is_some() {
            lost += usize::from(frame[2] == 42);
            if lost != 5 {
                net.nodes[1].handle(0, A, &frame);
            }
            frame.clear();
        }
    }
    let blocks = 2_000_000_usize.div_ceil(8968 * 32);
    assert_eq!((asked, net.now), (blocks + 1, 0), "one block was asked for twice");
    assert!(net.nodes[1].counters().duplicates > 0);
}

/// Bytes that the caller keeps.
struct Kept(alloc::rc::Rc<Vec<u8>>);

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[test]
fn pull_into__lent_bytes_go_from_place_to_place() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    let data = alloc::rc::Rc::new(message(3, 200_000));
    let mut into = vec![0; 150_000];
    net.nodes[0].send_lent(0, peer, (1, 9), Box::new(Kept(data.clone()))).unwrap();
    let (offer, _) = offer(&mut net);
    net.nodes[1].pull_into(0, offer, 150_000, 5);
    let mut ended = None;
    while ended.is_none() {
        for at in [1, 0] {
            while let Some(Transmit { head, payload, .. }) = net.nodes[at].poll_transmit_parts() {
                let frame = [head, payload].concat();
                let mut place = |context, at: usize, bytes: &[u8]| {
                    assert_eq!(context, 5);
                    into[at..at + bytes.len()].copy_from_slice(bytes);
                };
                net.nodes[1 - at].handle_into(0, [A, B][at], &frame, &mut place);
            }
        }
        ended = net.nodes[1].poll_event();
    }
    let peer = offer.peer;
    assert_eq!(ended, Some(Event::Pulled { peer, context: 5, data: vec![], len: 150_000 }));
    assert!(into[..] == data[..150_000]);
    while !matches!(net.event(0), Event::Sent { context: 9, len: 150_000, .. }) {}
    assert_eq!(alloc::rc::Rc::strong_count(&data), 1, "the bytes were given back");
}

#[test]
fn own__bytes_that_the_caller_wants_back_are_copied() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    let data = alloc::rc::Rc::new(message(3, 50_000));
    // The second one waits for the window.
    for context in 0..300 {
        let lent = Box::new(Kept(data.clone()));
        net.nodes[0].send_lent(0, peer, (context, context), lent).unwrap();
    }
    (0..300).for_each(|context| net.nodes[0].own(context));
    assert_eq!(alloc::rc::Rc::strong_count(&data), 1);
    let (offer, _) = offer(&mut net);
    net.nodes[1].pull(net.now, offer, u32::MAX, 5);
    loop {
        match net.event(1) {
            Event::Pulled { data: came, .. } => return assert!(came == *data),
            event => assert!(matches!(event, Event::Announced { .. })),
        }
    }
}

#[test]
fn poll_replies__are_the_frames_of_single_polls_some_at_a_time_and_after_others() {
    let (mut net, peer) = Net::connected(Dialect::Native, 9000, 0, 1);
    announce(&mut net, peer, 1, message(3, 300_000), 9);
    let (offer, _) = offer(&mut net);
    net.nodes[1].pull(net.now, offer, u32::MAX, 5);
    let mut asks = Vec::new();
    let mut frame = Vec::new();
    while net.nodes[1].poll_transmit(&mut frame).is_some() {
        asks.push(core::mem::take(&mut frame));
    }
    let sender = &mut net.nodes[0];
    let mut answers = [Vec::new(), Vec::new()];
    for (way, frames) in answers.iter_mut().enumerate() {
        asks.iter().for_each(|ask| sender.handle(0, B, ask));
        if way == 0 {
            while sender.poll_transmit(&mut frame).is_some() {
                frames.push(core::mem::take(&mut frame));
            }
            continue;
        }
        // A connection is asked for meanwhile, whose frame leaves first.
        sender.connect(0, B, 9, KEY).unwrap();
        assert!(!sender.has_replies_next() && sender.poll_replies(7).len() == 0);
        assert!(sender.poll_transmit_parts().is_some_and(|frame| frame.payload.is_empty()));
        while sender.has_replies_next() {
            let some = sender.poll_replies(7);
            assert!(some.len() <= 7);
            frames.extend(some.map(|frame| {
                assert_eq!(frame.to, B);
                [frame.head, frame.payload].concat()
            }));
        }
    }
    assert_eq!(answers[0].len(), 300_000_usize.div_ceil(8968));
    assert!(answers[0] == answers[1]);
}
