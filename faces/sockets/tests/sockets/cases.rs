//! A test for each behaviour of connections that share memory, and of those that do not.

use crate::harness::{start, Served};

/// Runs a case of `roles::attempt` against a server; the agent has joined both.
fn attempt(case: &str) {
    let agent = Served::start();
    let mut server = agent.with("serve", "");
    let port = server.says();
    let mut client = agent.with(&format!("try-{case}"), &port);
    assert_eq!(client.says(), "done");
    client.ends_well();
    assert_eq!(agent.counter("sockets_paired"), 1);
    let status = server.end();
    assert!(status.success() || case == "killed", "{status}");
}

macro_rules! attempts {
    ($($name:ident: $case:literal;)*) => {
        $(#[test]
        fn $name() {
            attempt($case);
        })*
    };
}

attempts! {
    recv__peeks_across_the_ring_and_at_the_end: "peek";
    recv__waits_for_all_and_fills_many_parts: "all";
    recv__counts_throws_away_and_splices: "count";
    shutdown__one_direction_ends_after_its_bytes: "half";
    kill__the_reader_gets_all_bytes_then_the_end: "killed";
    wait__poll_select_and_epoll_see_the_ring: "wait";
    wait__a_set_in_a_set_sees_the_ring: "nested";
    wait__edges_are_told_once_and_for_all_that_arrives: "edge";
    wait__one_shot_registrations_fire_once: "once";
    wait__timeouts_are_the_kernels: "interrupt";
    fork__a_child_reads_and_writes_like_a_thread: "fork";
    dup__the_connection_lives_as_long_as_a_copy: "dup";
    dup2__under_a_thread_that_reads: "fly";
    send__the_peer_has_closed: "reset";
    close__with_unread_bytes_resets: "closed";
    close__all_descriptors_but_one: "closeall";
    send__without_waiting_for_a_peer_that_does_not_read: "mode";
    send__urgent_bytes_go_by_tcp_and_in_order: "urgent";
}

#[test]
fn fork__children_that_ended_or_became_other_programs_hold_nothing() {
    let agent = Served::start();
    let mut server = agent.with("serve", "");
    let mut client = agent.with("orphans", &server.says());
    assert_eq!(client.says(), "done");
    client.ends_well();
    // The connection was closed with bytes unread, by its only holder.
    server.ends_well();
}

/// Runs a client that asks an echo; returns the bytes that did not come by TCP.
fn ask(agent: &Served, server: bool, client: bool, settings: &[(&str, &str)]) -> u64 {
    let with = |on: bool| on.then_some(agent.name.as_str());
    let mut echo = start("echo", "", with(server), settings);
    let port = echo.says();
    let mut asks = start("ask", &port, with(client), settings);
    let beside = asks.number();
    asks.ends_well();
    echo.ends_well();
    beside
}

#[test]
fn pair__two_programs_of_a_host_share_memory() {
    let agent = Served::start();
    assert!(ask(&agent, true, true, &[]) > 0);
    assert_eq!((agent.counter("sockets_paired"), agent.counter("sockets_asked")), (1, 2));
    assert_eq!(agent.counter("sockets_asking"), 0);
}

#[test]
fn pair__without_looking_at_rings_all_is_well_too() {
    let agent = Served::start();
    ask(&agent, true, true, &[("WEFT_SOCKETS_SPIN_US", "0")]);
    assert_eq!(agent.counter("sockets_paired"), 1);
}

#[test]
fn tcp__if_one_end_has_not_the_library_or_has_it_off() {
    let agent = Served::start();
    assert_eq!(ask(&agent, true, false, &[]), 0);
    assert_eq!(ask(&agent, false, true, &[]), 0);
    assert_eq!(ask(&agent, true, true, &[("WEFT_SOCKETS", "0")]), 0);
    assert_eq!(ask(&agent, true, true, &[("WEFT_SOCKETS_CONNECTIONS", "0")]), 0);
    assert_eq!(agent.counter("sockets_paired"), 0);
}

#[test]
fn tcp__if_there_is_no_agent() {
    let mut agent = Served::start();
    agent.stop();
    assert_eq!(ask(&agent, true, true, &[]), 0);
}

#[test]
fn agent__its_end_leaves_connections_as_they_are() {
    let mut agent = Served::start();
    let mut server = agent.with("serve", "");
    let port = server.says();
    let mut client = agent.with("try-ended", &port);
    assert_eq!(client.says(), "ready");
    agent.stop();
    // The client goes on when its input ends.
    drop(client.child.stdin.take());
    assert_eq!(client.says(), "done");
    client.ends_well();
    server.ends_well();
}
