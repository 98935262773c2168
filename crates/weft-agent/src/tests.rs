#![allow(non_snake_case)]

use super::*;
use weft_core::group::tree::Tree;
use weft_core::wire::{Atomic, PacketType};
use weft_core::{Config, PeerId, Reliability};
use weft_link::secure::Mode;

fn samples() -> Vec<Control> {
    let config = Config { reliability: Reliability::GoBackN, window: 77, ..Config::default() };
    let role = GroupRole {
        group: 5,
        tree: Tree::Binary,
        size: 9,
        me: 3,
        parent: PeerId(1),
        children: vec![PeerId(7), PeerId(8)],
    };
    vec![
        Control::Attach(Attach::new(EndpointId(9), Mode::Encrypt, [3; 32], &config)),
        Control::Foreign(VERSION + 1, vec![9; 20]),
        Control::Attached(Served {
            version: 1,
            pid: 2,
            mtu: 3,
            latency_ns: 4,
            bytes_per_us: 5,
            address: vec![1, 2],
        }),
        Control::Refused("no".into()),
        Control::Connect(PeerId(1), 2, 5, EndpointId(3), vec![4; 30]),
        Control::Left(PeerId(1), 7),
        Control::Stuck(PeerId(1), 2, PacketType::Fin, 32),
        Control::Disconnect(PeerId(4)),
        Control::Path(PeerId(4), 1500),
        Control::Lost(PeerId(4), "gone".into()),
        Control::Notice("hear".into()),
        Control::CounterOpen(1, 2, 3, false),
        Control::CounterOpen(1, 2, 3, true),
        Control::CounterDo(1, Atomic { key: 2, offset: 8, operand: 3, compare: 4, code: 5 }),
        Control::CounterDone(1, Some(2)),
        Control::CounterDone(1, None),
        Control::GroupJoined(1, true),
        Control::CounterRead(1, 2),
        Control::CounterIs(1, 2, Some(3)),
        Control::CounterIs(1, 2, None),
        Control::CounterClose(1),
        Control::GroupJoin(role.clone()),
        Control::GroupJoin(GroupRole { me: 0, parent: PeerId(u32::MAX), ..role }),
        Control::GroupLeave(1),
        Control::GroupPacket(1, 2, vec![3; 40]),
        Control::GroupGrant(1, 2),
        Control::GroupMember(1, 2, true),
    ]
}

#[test]
fn decode__round_trips() {
    for message in samples() {
        assert_eq!(Control::decode(&message.encode()), Ok(message));
    }
}

#[test]
fn decode__of_changed_bytes_is_an_error_or_canonical() {
    for message in samples() {
        let bytes = message.encode();
        for at in 0..bytes.len() {
            for value in 0..=255 {
                let mut changed = bytes.clone();
                changed[at] = value;
                if let Ok(other) = Control::decode(&changed) {
                    assert_eq!(other.encode(), changed);
                }
            }
            // A cut message is an error, or has a shorter list or text.
            if let Ok(shorter) = Control::decode(&bytes[..at]) {
                assert_eq!(shorter.encode(), bytes[..at]);
            }
        }
    }
    assert!(Control::decode(&[]).is_err());
    assert!(Control::decode(&[0]).is_err() && Control::decode(&[99, 1, 2, 3]).is_err());
}

#[test]
fn encode__a_long_text_is_cut_at_a_character() {
    let text = "\u{e4}".repeat(2_000);
    let Ok(Control::Notice(cut)) = Control::decode(&Control::Notice(text.clone()).encode()) else {
        panic!("not a notice")
    };
    assert!(text.starts_with(&cut) && cut.len() > 1_000);
}

#[test]
fn config__hostile_settings_are_held_to_sane_ones() {
    let mut attach = Attach::new(EndpointId(9), Mode::Auth, [3; 32], &Config::default());
    for numbers in [[0; 7], [u32::MAX; 7]] {
        attach.numbers = numbers;
        let config = attach.config();
        assert!((1..=1024).contains(&config.window) && config.ack_every >= 1);
        assert!(config.rto_min_us >= 100 && config.rto_max_us >= config.rto_min_us);
        assert!(config.peer_timeout_ms >= 100 && config.ack_delay_us <= 1_000_000);
    }
}

#[test]
fn attach__without_an_agent_says_what_to_do() {
    use weft_link::secure::{JobKey, Security};
    let names = vec![format!("@weft-none-{:016x}", weft_link::random_u64())];
    let config = AgentConfig { names: names.clone(), ..AgentConfig::default() };
    let job_key = JobKey::random().unwrap();
    let security = Security { mode: Mode::Auth, job_key, me: EndpointId(1) };
    let Err(why) = AgentLink::attach(&config, &security, &Config::default()) else {
        panic!("nobody listens there")
    };
    let why = why.to_string();
    assert!(why.contains(&names[0]) && why.contains("start weftd"), "{why}");
}

#[test]
fn hub__one_user_has_so_many_connections_and_no_more() {
    let name = format!("@weft-hub-{:016x}", weft_link::random_u64());
    let mut hub = Hub::listen(&name, 8, 3).unwrap();
    let mut ranks: Vec<BareRank> =
        (1..=5).map(|id| BareRank::connect(&name, EndpointId(id)).unwrap()).collect();
    hub.poll_sockets();
    assert_eq!(hub.callers().len(), 3);
    ranks.iter_mut().for_each(|rank| assert!(rank.heard().is_empty()));
    ranks.iter_mut().for_each(|rank| assert!(rank.heard().is_empty()));
    let ended: Vec<bool> = ranks.iter().map(BareRank::has_ended).collect();
    assert_eq!(ended, [false, false, false, true, true]);
    // A rank that leaves makes room.
    hub.refuse(EndpointId(1));
    let _again = BareRank::connect(&name, EndpointId(6)).unwrap();
    hub.poll_sockets();
    assert_eq!(hub.callers().len(), 3);
}

#[test]
fn deliver__what_is_longer_than_a_ring_carries_goes_nowhere() {
    let name = format!("@weft-hub-{:016x}", weft_link::random_u64());
    let mut hub = Hub::listen(&name, 8, 3).unwrap();
    let mut rank = BareRank::connect(&name, EndpointId(1)).unwrap();
    hub.poll_sockets();
    assert!(hub.admit(EndpointId(1), 7));
    let long = vec![0; 64 << 10];
    assert!(hub.deliver(7, None, &[0; 24], &long));
    assert!(hub.deliver(7, None, &[0; 8], b"no header is so short"));
    assert!(hub.say(7, &Control::GroupPacket(1, 2, long)));
    assert!(hub.say(7, &Control::Notice("it goes on".into())));
    assert_eq!(rank.heard(), [Control::Notice("it goes on".into())]);
    let mut too_long = 0;
    hub.counters(&mut |name, value| too_long += if name == "too_long" { value } else { 0 });
    assert_eq!(too_long, 3);
}
