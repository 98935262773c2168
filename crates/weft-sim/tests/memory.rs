//! Peers inside a host, whose processes the link observes: silence alone fails none.
#![allow(non_snake_case)]

use std::cell::RefCell;
use std::rc::Rc;
use weft::{Config, OpError, PeerFailure};
use weft_sim::{test_sim, Fault, LinkKind, SimConfig, Span};

const MS: u64 = 1_000_000;

/// Longest silence of a peer, and longest time to answer the first packet, milliseconds.
const TIMEOUT: u32 = 1_000;

/// Lets host 0 wait for two messages of host 1, one from before the fault: returns the results, and
/// the end of the last wait, in milliseconds. With `greets`, host 1 sends the first.
fn heard(fault: Fault, greets: bool) -> (Vec<String>, u64) {
    let config = SimConfig { kind: LinkKind::Memory, ..SimConfig::new(2, 1) }.fault(fault);
    let settings = Config {
        peer_timeout_ms: TIMEOUT,
        connect_timeout_ms: TIMEOUT,
        keepalive_ms: 100,
        ..Config::default()
    };
    let sim = test_sim!("memory", config);
    let mut sim = sim.settings(settings);
    let log: Rc<RefCell<(Vec<String>, u64)>> = Rc::default();
    let note = Rc::clone(&log);
    sim.spawn(0, move |env| {
        let log = Rc::clone(&note);
        async move {
            for tag in u64::from(!greets)..2 {
                let (result, _) = env.endpoint.recv(Some(env.peer(1)), tag, 0, vec![0; 8]).await;
                let text = match result {
                    Ok(_) => "came".to_string(),
                    Err(OpError::Peer { failure: PeerFailure::Gone, .. }) => "gone".to_string(),
                    Err(other) => other.to_string(),
                };
                log.borrow_mut().0.push(text);
            }
            log.borrow_mut().1 = env.now().0 / MS;
        }
    });
    sim.spawn(1, move |env| async move {
        if greets {
            let _result = env.endpoint.send(env.peer(0), 0, vec![1; 8]).await;
        }
        env.sleep(20 * MS).await;
        let _result = env.endpoint.send(env.peer(0), 1, vec![1; 8]).await;
    });
    sim.run().unwrap_or_else(|failure| panic!("{failure}"));
    log.take()
}

#[test]
fn memory__a_host_that_pauses_is_waited_for() {
    let pause = |from| Fault::Pause { host: 1, span: Span::ms(from, 10_000) };
    let (texts, at) = heard(pause(10), true);
    assert_eq!(texts, ["came", "came"]);
    assert!(at >= 10_000, "{at}");
    // This peer has sent nothing so far.
    let (texts, at) = heard(pause(0), false);
    assert_eq!(texts, ["came"]);
    assert!(at >= 10_000, "{at}");
}

#[test]
fn memory__a_host_that_is_dead_has_failed() {
    for (greets, texts) in [(true, &["came", "gone"][..]), (false, &["gone"])] {
        // Its links are informed; or they are not, and find out.
        for (visible, end) in [(true, 0..100), (false, 1_000..2_000)] {
            // Links are informed only of peers that they know.
            let at = if greets || visible { 10 * MS } else { 0 };
            let (said, at) = heard(Fault::Death { host: 1, at, visible }, greets);
            assert_eq!(said, texts, "visible {visible}");
            assert!(end.contains(&at), "greets {greets}, visible {visible}: {at}");
        }
    }
}
