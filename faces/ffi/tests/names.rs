//! Hosts by the names of a cluster. The only test of its process, whose environment it changes.
#![allow(non_snake_case)]

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use weft_cluster::{KeyFile, Names, Spec};
use weft_ffi::hosts::Service;
use weftd::options::Options;
use weftd::Agent;

#[test]
fn addresses__a_name_of_the_cluster_is_that_of_who_has_claimed_it() {
    let folder = std::env::temp_dir().join(format!("weft-ffi-{:016x}", weft_link::random_u64()));
    let key = folder.join("key");
    KeyFile::init(&key).unwrap();
    let place = format!("@weft-test-{:016x}", weft_link::random_u64());
    let words = format!(
        "--name {place} --links udp --cluster test --cluster-multicast off --cluster-key {}",
        key.display()
    );
    let options = Options::parse(words.split_whitespace()).unwrap();
    std::env::set_var("WEFT_AGENT", &place);
    let (own, far) = (Ipv4Addr::new(10, 9, 9, 9), Ipv4Addr::new(10, 1, 2, 3));
    let ended = AtomicBool::new(false);
    let (ready, is_ready) = channel();
    std::thread::scope(|scope| {
        let ended = &ended;
        scope.spawn(move || {
            let mut agent = Agent::open(options).unwrap();
            ready.send(()).unwrap();
            while !ended.load(Ordering::Relaxed) {
                agent.step();
            }
        });
        is_ready.recv().unwrap();
        let found = std::panic::catch_unwind(|| {
            let addresses = || Service::default().addresses("store-of-the-test", own);
            let before = addresses();
            let mut names = Names::at(&place).unwrap();
            let name = "store-of-the-test".parse().unwrap();
            names.claim(&Spec::new(&name).address((far, 4000).into())).unwrap();
            (before, addresses())
        });
        ended.store(true, Ordering::Relaxed);
        assert_eq!(found.unwrap(), (vec![], vec![far]));
    });
    let _gone = std::fs::remove_dir_all(&folder);
}
