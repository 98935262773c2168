//! Programs run by the kernel on frames of a simulated wire, and two interfaces joined by a cable.
#![allow(non_snake_case)]

use super::super::tests::cable;
use super::*;
use crate::ether::Interfaces;

const LONG: Duration = Duration::from_secs(20);
const KEY: SipKey = SipKey(*b"a key of 16 byte");

fn interface(name: &str) -> Interface {
    let all = Interfaces::list().unwrap();
    all.0.into_iter().find(|i| i.name == name).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn send__arrives_once_and_in_order_over_a_cable() {
    if !cable() {
        return;
    }
    let (own, far) = (interface("w0"), interface("v0"));
    let kind = EtherType::default();
    let chains = KernelChains::serve(&far, kind).unwrap();
    let filter = KernelChains::serve(&own, kind).unwrap();
    let place = Place { position: 1, next: None, root: own.mac };
    for answers in [Answers::Received, Answers::Filtered(&filter)] {
        let mut member = chains.join(5, KEY, place).unwrap();
        assert!(matches!(chains.join(5, KEY, place), Err(ChainError::Group(5))));
        let mut root = ChainRoot::open(&own, kind, (5, KEY), &[far.mac], answers).unwrap();
        let mut buffer = [0; 2048];
        for n in 0..1000_usize {
            let payload = vec![n as u8; 1 + n * 7 % root.longest()];
            root.send(&payload, LONG).unwrap();
            assert_eq!(member.wait(&mut buffer, LONG).unwrap(), payload.len());
            assert_eq!(&buffer[..payload.len()], &payload[..], "packet {n}");
        }
        root.flush(LONG).unwrap();
        assert_eq!(member.counts()[3], 0, "forged");
        assert!(root.answers().is_none_or(|n| n >= 1000));
    }
}
