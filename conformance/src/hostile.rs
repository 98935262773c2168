//! Bodies of the fuzz targets: hostile bytes into everything that reads bytes from a peer. Each
//! must return, whatever it is given; what it accepts must keep the stated properties. libFuzzer
//! calls them from `fuzz/`, the tests with seeded inputs.

pub use crate::engine::engine;
use std::hash::{Hash, Hasher};
use weft_core::wire::{self, Common, Eager, Packet};
use weft_core::{EndpointId, PeerId};
use weft_link::agent::Control;
use weft_link::ether::{EtherFrame, EtherHead, TrainFrame, TrainHead};
use weft_link::secure::{JobKey, Lane, Mode, Secure, Security};
use weft_link::Address;

/// The wire format: parsing never panics, and what parses encodes to the same bytes.
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

/// The address encoding: decoding never panics, and each address has one encoding.
pub fn address_decode(data: &[u8]) {
    if let Ok(address) = Address::decode(data) {
        assert_eq!(address.encode(), data, "an address with two encodings");
    }
}

/// A frame on Ethernet: the view never panics, and what it accepts encodes to the same bytes.
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

/// A message between a rank and its agent: decoding never panics, and each message has one
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

/// The hello of a connection through shared memory: decoding never panics, and each hello has one
/// encoding and sizes that a segment can have.
pub fn shm_hello(data: &[u8]) {
    weft_link::shm::check_hello(data);
}

/// Answers to the root of a chain of kernels: none panics, and what its window holds stays bounded.
pub fn chain_answers(data: &[u8]) {
    weft_link::xdp::chain::check_answers(data);
}

const ALICE: EndpointId = EndpointId(0xa11ce);
const BOB: EndpointId = EndpointId(0xb0b);
const PEER: PeerId = PeerId(0);
const SESSION: u32 = wire::session_number(0, 1);

/// With a key of its own for each input: a fuzzer sees what tags are compared with, and under one
/// key it would learn to forge them.
fn secure(input: &[u8], mode: Mode, me: EndpointId, other: EndpointId) -> Secure {
    let mut hash = std::hash::DefaultHasher::new();
    input.hash(&mut hash);
    let job_key = [hash.finish().to_le_bytes(), [7; 8]].concat();
    let job_key = JobKey::from_bytes(&job_key).expect("16 bytes are a key");
    let mut secure = Secure::new(&Security { mode, job_key, me }, Lane::Udp);
    secure.add_peer(PEER, SESSION, other);
    secure
}

/// Opening frames: raw bytes are never accepted, nor is a genuine frame with any bit changed; an
/// unchanged one is, once. The first byte chooses; the others are the frame, or the change.
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
