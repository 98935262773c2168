//! Bodies of the fuzz targets: hostile bytes for all code that reads bytes from a peer. Each must
//! return for every input; accepted input must keep the stated properties. libFuzzer calls them
//! from `fuzz/`, the tests with seeded inputs.

pub use crate::engine::engine;
pub use crate::mac::mac_tag;
use std::hash::{Hash, Hasher};
use std::time::Duration;
use weft_agent::{Control, Limits, Proxy, ToRank};
use weft_core::relay::LinkTo;
use weft_core::wire::{self, Common, Eager, Packet};
use weft_core::{EndpointId, Instant, PeerId, Pulse};
use weft_link::ether::{EtherFrame, EtherHead, TrainFrame, TrainHead};
use weft_link::secure::{JobKey, Lane, Mode, Secure, Security, TRAILER};
use weft_link::tcp::frame::{self, NextFrame, FRAME_MAX, PREFIX};
use weft_link::{Address, Bytes};

/// Tests the wire format: parsing never panics, and parsed packets encode to the same bytes.
pub fn wire_parse(data: &[u8]) {
    let parsed = wire::parse(data);
    let view = wire::View::new_checked(data);
    assert_eq!(parsed.is_ok(), view.is_ok(), "the view and the parser disagree");
    let _ = wire::session_of(data);
    let (Ok((common, packet, len)), Ok(view)) = (parsed, view) else { return };
    assert_eq!(len, packet.header_len());
    assert!(len <= data.len());
    assert_eq!(view.packet_type(), packet.packet_type());
    assert_eq!((view.session(), view.seq(), view.ack()), (common.session, common.seq, common.ack));
    assert_eq!(view.header().len() + view.payload().len(), data.len());
    let again = wire::emit(&common, &packet);
    assert_eq!(again.as_slice(), &data[..len], "what was parsed encodes to other bytes");
    assert!(!view.to_string().contains('\n'));
}

/// Tests the address encoding: decoding never panics, and each address has one encoding.
pub fn address_decode(data: &[u8]) {
    if let Ok(address) = Address::decode(data) {
        assert_eq!(address.encode(), data, "an address with two encodings");
    }
}

/// Tests a frame on Ethernet: the view never panics, and accepted frames encode to the same bytes.
pub fn ether_frame(data: &[u8]) {
    if let Ok(train) = TrainFrame::new_checked(data) {
        let head = train.head();
        let all = train.train().len() + usize::from(head.padding);
        assert!(TrainHead::LEN + all <= data.len() && train.each() > 0);
        let shim = TrainHead::OUTER..TrainHead::LEN;
        assert_eq!(head.encode()[shim.clone()], data[shim], "a shim with two encodings");
        assert!(!head.to_string().contains('\n'));
    }
    let Ok(frame) = EtherFrame::new_checked(data, None) else { return };
    let head = frame.head();
    assert_eq!(head.encode(), data[..EtherHead::LEN], "a head with two encodings");
    assert_eq!(usize::from(head.len), frame.frame().len());
    assert_eq!(head.slot, frame.slot());
    assert!(!head.to_string().contains('\n'));
}

/// Tests a frame of MXoE in both dialects: the view never panics, and the header of an accepted
/// frame encodes to bytes of the same meaning.
pub fn mxoe_frame(data: &[u8]) {
    use weft_mxoe::{Dialect, View};
    for dialect in [Dialect::Compat, Dialect::Native] {
        let Ok(view) = View::new_checked(dialect, data) else { continue };
        let header = view.frame().encode(dialect).expect("parsed numbers fit");
        assert!(header.len() + view.payload().len() <= data.len());
        let again = [&header, view.payload()].concat();
        assert_eq!(View::new_checked(dialect, &again).as_ref(), Ok(&view));
        assert!(!view.to_string().contains('\n'));
    }
}

/// Tests an endpoint that speaks MX over Ethernet, connected to a peer whose frames these are, each
/// behind a byte with its length: it never panics, and a frame has no more answers than a block has
/// frames.
pub fn mxoe_node(data: &[u8]) {
    use weft_mxoe::node::{Event, Mac, Node, Outgoing, PeerIndex, Settings};
    use weft_mxoe::{ConnectRequest, Dialect, Ends, Frame, Packet};
    const PEER: Mac = [2, 0, 0, 0, 0, 1];
    const ANSWERS: usize = 4 * 64 + 64;
    for dialect in [Dialect::Compat, Dialect::Native] {
        let mut node = Node::new(Settings::of(dialect, 1500), 3, 0x99, 0x22);
        let ends = Ends { to: 3, from: 1, generation: 0 };
        let request =
            ConnectRequest { ends, session: 0x11, key: 0x99, recv_start: 1, ..Default::default() };
        let asked = Frame::new(0, Packet::ConnectRequest(request)).encode(dialect).expect("fits");
        node.handle(0, PEER, &asked);
        // A window for the peer to pull from.
        let data_of = Outgoing { match_bits: 1, data: vec![7; 10_000], context: 1, is_sync: true };
        node.send(0, PeerIndex(0), data_of).expect("the peer is connected");
        let (mut rest, mut now, mut frame) = (data, 0, Vec::new());
        while let Some((&len, tail)) = rest.split_first() {
            let (one, after) = tail.split_at(usize::from(len).min(tail.len()));
            rest = after;
            now += u64::from(len) * 10_000;
            node.handle(now, PEER, one);
            node.handle_timeout(now);
            while let Some(event) = node.poll_event() {
                if let Event::Announced { offer, .. } = event {
                    node.pull(now, offer, offer.len.min(100_000), 5);
                }
            }
            let mut answers = 0;
            while node.poll_transmit(&mut frame).is_some() {
                (answers, frame) = (answers + 1, Vec::new());
            }
            assert!(answers <= ANSWERS, "{answers} answers to one frame");
        }
    }
}

/// Tests a message between a rank and its agent: decoding never panics, and each message has one
/// encoding.
pub fn agent_control(data: &[u8]) {
    if let Ok(message) = Control::decode(data) {
        assert_eq!(message.encode(), data, "a message with two encodings: {message:?}");
        if let Control::Attach(attach) = message {
            let config = attach.config();
            assert!(config.window > 0 && config.rto_max_us >= config.rto_min_us);
        }
    }
}

/// Tests the hello of a connection through shared memory: decoding never panics, and each hello has
/// one encoding and sizes that a segment can have.
pub fn shm_hello(data: &[u8]) {
    weft_link::shm::check_hello(data);
}

/// Tests a message between a rank and the agent that joins it to others over shared memory:
/// decoding never panics, and each message has one encoding.
pub fn broker_message(data: &[u8]) {
    weft_link::shm::broker::check_message(data);
}

/// Tests the messages between socket programs and their agent: decoding never panics, and each
/// message has one encoding.
pub fn sockets_message(data: &[u8]) {
    weft_streams::message::check_message(data);
}

/// Tests answers to the root of a chain of kernels: none panics, and its window stays bounded.
pub fn chain_answers(data: &[u8]) {
    weft_kernel::chain::check_answers(data);
}

const ALICE: EndpointId = EndpointId(0xa11ce);
const BOB: EndpointId = EndpointId(0xb0b);
const PEER: PeerId = PeerId(0);
const SESSION: u32 = wire::session_number(0, 1);

/// Makes security with another key for each input: a fuzzer sees the values that tags are compared
/// with, and under one key it would learn to forge them.
fn secure(input: &[u8], mode: Mode, me: EndpointId, other: EndpointId) -> Secure {
    let mut hash = std::hash::DefaultHasher::new();
    input.hash(&mut hash);
    let job_key = [hash.finish().to_le_bytes(), [7; 8]].concat();
    let job_key = JobKey::from_bytes(&job_key).expect("16 bytes are a key");
    let mut secure = Secure::new(&Security { mode, job_key, me }, Lane::Udp);
    secure.add_peer(PEER, SESSION, other).expect("a new key has numbers");
    secure
}

/// Tests the datagrams between agents of a cluster: an agent with a session takes no bytes that its
/// peer did not seal, answers nothing by more, and goes on. The first two bytes choose a genuine
/// datagram and what is done with it; the others are the datagram, or its change.
pub fn agents_datagram(data: &[u8]) {
    use weft_cluster::session::{class, Sessions};
    let [choice, which, bytes @ ..] = data else { return };
    let at = |n: u8| std::net::SocketAddr::from(([10, 0, 0, n], 7117));
    let key = JobKey::from_bytes(&[*choice & 1; 32]).expect("32 bytes are a key");
    let keys = weft_cluster::ClusterKeys::from_key(key);
    let now = Instant(1_000_000_000);
    let mut sides = [1, 2].map(|_| Sessions::new("c", keys.clone(), now));
    sides[0].send(now, at(2), class::NAMES, b"a message that is as long as most");
    let (mut log, mut taken) = (Vec::new(), 0);
    for to in [1, 0].into_iter().cycle().take(6) {
        let out: Vec<_> = std::iter::from_fn(|| sides[1 - to].poll_transmit()).collect();
        for (_, datagram) in out {
            let from = at(2 - to as u8);
            taken += usize::from(sides[to].receive(now, from, &datagram).is_some());
            log.push((to, datagram));
        }
    }
    assert_eq!(taken, 1, "a genuine message is taken");
    let (to, genuine) = &log[usize::from(*which) % log.len()];
    let mut hostile = if choice & 2 == 0 { bytes.to_vec() } else { genuine.clone() };
    if choice & 2 != 0 {
        hostile.iter_mut().zip(bytes).for_each(|(byte, change)| *byte ^= change);
        hostile.truncate(genuine.len().saturating_sub(usize::from(*choice >> 4)));
    }
    let side = &mut sides[*to];
    let from = if choice & 4 == 0 { at(2 - *to as u8) } else { at(9) };
    assert!(side.receive(now, from, &hostile).is_none(), "took what nobody sealed, or a copy");
    let answered: usize = std::iter::from_fn(|| side.poll_transmit()).map(|(_, d)| d.len()).sum();
    assert!(answered <= hostile.len(), "{answered} bytes for {}", hostile.len());
}

/// Tests the messages between an agent and programs that use names, and those between agents about
/// ranks: decoding never panics, and each message has one encoding.
pub fn names_local(data: &[u8]) {
    use weft_cluster::local::{request, said, Frame};
    use weft_cluster::ranks::{Message, ANSWER_MAX};
    if let Ok(Message::Answer(one)) = Message::parse(data) {
        let bytes = one.encode();
        assert!(bytes.len() <= ANSWER_MAX && Message::parse(&bytes).is_ok(), "{one:?}");
    }
    if let Frame::Whole(len, serial, one) = request(data) {
        assert_eq!(one.encode(serial), data[..len], "a request with two encodings: {one:?}");
    }
    if let Frame::Whole(len, serial, one) = said(data) {
        assert_eq!(one.encode(serial), data[..len], "an answer with two encodings: {one:?}");
    }
}

/// Tests the parts of messages between members of a group: a membership keeps no more than its
/// bounds, tells its program each event once, and answers nothing by more than one acknowledgement.
/// The first byte changes a genuine part, or takes the rest as one.
pub fn group_parts(data: &[u8]) {
    use weft_cluster::group::{config, Membership, Part, IN_BYTES};
    use weft_cluster::names::{Binding, BindingId, Claim, HostId, Life, NameEvent, Notice, Owner};
    let life = Life { incarnation: 1, nonce: 1 };
    let id = |n| BindingId { host: HostId(n), life, claim: n };
    let name = Claim::new(Owner::default(), 900, 1..=1).group();
    let now = Instant(1_000_000);
    let mut sides = [1, 2].map(|n| {
        let mut side = Membership::new(900, id(n), config(Duration::from_secs(1), None));
        let binding = Binding { id: id(3 - n), stamp: n, name: name.clone() };
        side.on_name(now, NameEvent { seq: 1, notice: Notice::Published(binding) });
        side
    });
    let [choice, rest @ ..] = data else { return };
    let payload = vec![7; usize::from(*choice) * 20];
    sides[0].send(now, weft_cluster::To::All, payload, Duration::ZERO);
    let genuine = sides[0].poll_transmit().pop().map(|datagram| datagram.bytes);
    for step in rest.chunks(93) {
        let mut bytes =
            if choice & 1 == 0 { step.to_vec() } else { genuine.clone().unwrap_or_default() };
        if choice & 1 != 0 {
            bytes.iter_mut().zip(step).for_each(|(byte, change)| *byte ^= change);
        }
        let Ok(part) = Part::parse(&bytes) else { continue };
        sides[1].receive(now, id(1), &part);
        let mut answers = 0;
        while sides[1].has_transmit() {
            answers += sides[1].poll_transmit().len();
        }
        assert!(answers <= 2, "{answers} answers to one part");
        assert!(sides[1].held_bytes() <= IN_BYTES + (1 << 17));
    }
    let (mut seq, side) = (0, &mut sides[1]);
    while let Some((number, _)) = side.poll_event() {
        seq += 1;
        assert_eq!(number, seq);
        side.took(now, 1);
    }
}

/// Tests the cutting of a stream into frames: frames have the lengths that a packet and its trailer
/// can have, and are the same however the stream arrives. The first byte chooses the trailer, the
/// second the pieces in which the rest arrives.
pub fn tcp_frames(data: &[u8]) {
    let [choice, step, stream @ ..] = data else { return };
    let trailer = if choice & 1 == 0 { TRAILER } else { 0 };
    let whole = cut(stream, stream.len().max(1), trailer);
    assert_eq!(whole, cut(stream, usize::from(*step).max(1), trailer));
    let bytes: usize = whole.0.iter().map(|len| PREFIX + len).sum();
    assert!(bytes <= stream.len());
    assert!(whole.0.iter().all(|len| (24 + trailer..=FRAME_MAX).contains(len)));
}

/// Returns the lengths of the frames of a stream that arrives in pieces of `step` bytes, and true
/// if bytes follow that are no frame.
fn cut(stream: &[u8], step: usize, trailer: usize) -> (Vec<usize>, bool) {
    let (mut lens, mut kept) = (Vec::new(), Vec::new());
    for piece in stream.chunks(step) {
        kept.extend_from_slice(piece);
        loop {
            match frame::next(&kept, trailer) {
                NextFrame::Whole(len) => {
                    kept.drain(..PREFIX + len);
                    lens.push(len);
                }
                NextFrame::Garbage => return (lens, true),
                NextFrame::Part(_) | NextFrame::Short => break,
            }
        }
    }
    (lens, false)
}

/// Tests the opening of frames: raw bytes are never accepted, nor is a genuine frame with any bit
/// changed; an unchanged one is accepted once. The first byte chooses; the others are the frame, or
/// the change.
pub fn secure_open(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    let mode = if choice & 1 == 0 { Mode::Auth } else { Mode::Encrypt };
    let mut bob = secure(data, mode, BOB, ALICE);
    if choice & 2 == 0 {
        assert!(bob.open(&mut bytes.to_vec()).is_err(), "accepted a frame that nobody sealed");
        return;
    }
    let mut alice = secure(data, mode, ALICE, BOB);
    let common = Common { session: SESSION, ..Common::default() };
    let header = wire::emit(&common, &Packet::Eager(Eager { tag: 1 }));
    let mut genuine = [0; 128];
    let sealed = alice.seal_into(PEER, header.as_slice(), b"payload of a message", &mut genuine);
    let genuine = &genuine[..sealed.expect("a known peer and room enough")];
    let mut frame = genuine.to_vec();
    frame.iter_mut().zip(bytes).for_each(|(f, change)| *f ^= change);
    let changed = frame != genuine;
    assert_eq!(bob.open(&mut frame).is_err(), changed, "changed: {changed}");
    assert_eq!(bob.open(&mut genuine.to_vec()).is_err(), !changed, "replayed: {}", !changed);
}

/// A ring to a rank with room for so many more packets and messages.
struct Ring(usize);

impl Ring {
    fn take(&mut self) -> bool {
        let room = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        room
    }
}

impl ToRank for Ring {
    fn deliver(&mut self, _: Option<PeerId>, header: &[u8], _: &[u8]) -> bool {
        assert!(header.len() <= wire::HEADER_MAX);
        self.take()
    }

    fn say(&mut self, message: &Control) -> bool {
        assert_eq!(Control::decode(&message.encode()).as_ref(), Ok(message));
        self.take()
    }

    fn pulse(&self) -> Pulse {
        if self.0.is_multiple_of(2) {
            Pulse::Runs
        } else {
            Pulse::Unseen
        }
    }
}

/// Most peers, words and groups of the rank of [`agent_rank`].
const FEW: u32 = 8;

/// Tests an agent whose rank and peers send arbitrary bytes: it ends for no input, and keeps no
/// more than the rank may have. The input is a sequence of steps: a byte that chooses, a length,
/// and so many bytes, which are a message, a packet of the rank, a frame of the network, or time.
pub fn agent_rank(data: &[u8]) {
    let config = weft_core::Config { peers_max: FEW, ..weft_core::Config::default() };
    let limits = Limits { bytes: 1 << 16, words: FEW as usize, groups: FEW as usize };
    let mut proxy = Proxy::new(ALICE, config, limits);
    let (mut ring, mut now, mut rest) = (Ring(16), Instant(1), data);
    while let [choice, len, after @ ..] = rest {
        let (part, after) = after.split_at(after.len().min(usize::from(*len)));
        rest = after;
        match choice % 5 {
            0 => match Control::decode(part) {
                Ok(Control::Connect(peer, session, given, endpoint, _)) => {
                    let to =
                        |link| LinkTo { link, latency_ns: 1_000, bytes_per_us: 1_000, mtu: 1456 };
                    proxy.connect(peer, (session, given), endpoint, &[to(0), to(1)]);
                }
                Ok(Control::Disconnect(peer)) => proxy.forget(peer),
                Ok(message) => proxy.control(message),
                Err(_) => {}
            },
            1 if !part.is_empty() => {
                let peer = PeerId(u32::from(part[0]) % (FEW + 1));
                proxy.packet(peer, &part[1..], Bytes::from_slice(&[7; 40]));
            }
            2 => {
                if let Ok((_, _, len)) = wire::parse(part) {
                    let payload = Bytes::from_slice(&part[len..]);
                    proxy.arrive(now, choice >> 7, &part[..len], payload, &mut ring);
                }
            }
            3 => {
                ring.0 = usize::from(*len);
                proxy.pump(&mut ring);
            }
            _ => {
                now = now + Duration::from_millis(u64::from(*len) * 16);
                proxy.on_time(now);
            }
        }
        proxy.progress(now);
        while let Some(out) = proxy.poll_transmit(now) {
            // A question for the length that a path carries is as long as that.
            assert!(out.padding <= 64 << 10);
            let most = data.len().max(40).max(out.padding as usize);
            assert!(proxy.bytes_of(&out).len() <= most);
            proxy.sent(&out);
        }
        proxy.notice(|_| {});
        assert!(proxy.peers() <= FEW as usize);
    }
    proxy.end();
}
