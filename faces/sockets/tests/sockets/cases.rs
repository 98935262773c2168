//! A test for each behaviour of connections that share memory, and of those that do not.

use crate::harness::{start, Served, LOOKS};
use crate::sys;
use weft_run::lists::{Shown, State};

/// Runs a case of `roles::attempt` against a server; the agent has joined both.
fn attempt(case: &str) {
    let agent = Served::start();
    let (mut server, client) = agent.serves(&format!("try-{case}"));
    client.ends_done();
    assert_eq!(agent.counter("sockets_paired"), 1);
    let status = server.end();
    assert!(status.success() || case.starts_with("killed"), "{status}");
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
    wait__edges_after_calls_that_moved_less_than_asked: "partly";
    recv__as_many_bytes_as_a_peek_saw: "seen";
    recv__of_no_bytes_waits_for_some: "none";
    recv__bytes_of_tcp_around_those_of_the_ring_come_in_one_call: "around";
    recv__the_last_bytes_come_in_one_call_though_tcp_has_some: "last";
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
    wait__any_number_of_sets_has_a_connection: "sets";
    wait__registrations_outlive_the_way_back: "back";
    wait__signals_end_every_wait: "signal";
    wait__a_signal_that_waits_for_the_mask_ends_it: "mask";
    wait__other_files_get_their_turn: "turns";
    wait__a_connection_that_is_added_while_a_thread_waits: "later";
    wait__select_above_1024: "wide";
    exec__the_next_program_goes_on_by_tcp: "exec";
    exec__a_shell_writes_between_others: "shell";
    print__the_c_library_writes_past_hooks: "print";
    stdio__a_stream_of_the_c_library: "stdio";
    recv__parts_of_readv_and_writev: "vector";
    recv__several_messages: "messages";
    cancel__a_thread_in_a_read: "cancel";
    close__all_above_a_number: "closefrom";
    vfork__a_child_closes_what_it_has: "vfork";
    fork__a_child_that_leaves_closes_nothing: "leaver";
    pass__the_connection_under_another_number: "passed";
    splice__a_full_pipe: "pipe";
    wait__registrations_made_anew_see_the_ring: "anew";
    syscall__waits_see_the_ring: "numbers-wait";
    syscall__bytes_go_both_ways_by_each_call: "numbers-move";
    syscall__copies_and_children_live_as_by_functions: "numbers-life";
    syscall__waits_sleep_and_are_woken: "numbers-sleep";
    fault__addresses_of_nothing_are_refused: "addresses";
    fault__addresses_of_nothing_are_refused_where_all_signals_are_held_back: "addresses-held";
    call__bad_addresses_get_efault_in_handlers_that_hold_faults_back: "addresses-in-handlers";
    wait__a_connection_that_is_added_where_there_are_no_descriptors: "poor";
    fault__handlers_of_the_program_see_its_own: "handlers";
    recvmmsg__a_time_that_is_none_is_refused: "times";
    recv__what_is_left_is_told_with_it: "left";
    kill__polls_tell_of_unread_bytes: "killed-unread";
    dlsym__functions_of_the_c_librarys_handle: "dlsym";
    recv__a_reset_is_told_to_a_reader_that_does_not_wait: "broken";
}

#[test]
fn wait__by_an_instruction_is_woken() {
    attempt("instruction");
}

#[test]
fn recv__goes_on_behind_bytes_that_an_instruction_read() {
    attempt("instruction-read");
}

#[test]
fn fork__children_that_ended_or_became_other_programs_hold_nothing() {
    let agent = Served::start();
    let (server, client) = agent.serves("orphans");
    client.ends_done();
    // The connection was closed with bytes unread, by its only holder.
    server.ends_well();
}

#[test]
fn send__a_peer_that_is_stopped_for_a_while() {
    let agent = Served::start();
    let (server, mut client) = agent.serves("try-stopped");
    assert_eq!(client.says(), "stop");
    sys::signal_process(server.child.id() as i32, libc::SIGSTOP);
    std::io::Write::write_all(client.child.stdin.as_mut().unwrap(), b"x").unwrap();
    assert_eq!(client.says(), "full");
    sys::signal_process(server.child.id() as i32, libc::SIGCONT);
    client.ends_done();
    server.ends_well();
}

/// Runs a role that needs no server.
fn alone(role: &str) -> Served {
    let agent = Served::start();
    let process = agent.with(role, "");
    process.ends_done();
    agent
}

/// Runs a role against a server; returns the agent.
fn against(server: &str, role: &str, settings: &[(&str, &str)]) -> Served {
    let agent = Served::start();
    let with = Some(agent.name.as_str());
    let mut server = start(server, "", with, settings);
    let port = server.says();
    let client = start(role, &port, with, settings);
    client.ends_done();
    server.ends_well();
    agent
}

#[test]
fn wait__a_thread_waits_while_the_connection_is_upgraded() {
    assert_eq!(against("serve", "waiters", &[]).counter("sockets_paired"), 1);
}

#[test]
fn recv__a_thread_sleeps_while_the_connection_is_upgraded() {
    assert!(against("serve-in-turn", "sleepers", &[]).counter("sockets_paired") > 0);
}

#[test]
fn wait__a_set_knows_the_socket_before_it_is_connected() {
    assert_eq!(against("serve", "early", &[]).counter("sockets_paired"), 1);
}

#[test]
fn recv__what_is_left_is_told_from_the_start_on() {
    assert_eq!(against("serve", "left-early", &[]).counter("sockets_paired"), 1);
}

#[test]
fn send__goes_on_when_the_socket_gets_more_space() {
    assert_eq!(alone("space").counter("sockets_paired"), 1);
}

#[test]
fn accept__ends_when_the_listener_is_shut_down() {
    alone("listener");
}

#[test]
fn pair__both_ends_in_one_process_and_in_one_thread() {
    assert_eq!(alone("both").counter("sockets_paired"), 9);
}

#[test]
fn pair__the_same_names_again_at_once() {
    assert_eq!(against("serve-many", "reuse", &[]).counter("sockets_paired"), 20);
}

#[test]
fn pair__children_of_a_listener() {
    let agent = Served::start();
    let mut server = agent.with("prefork", "");
    let port = server.says();
    let mut clients: Vec<_> = (0..3).map(|_| agent.with("ask", &port)).collect();
    clients.iter_mut().for_each(|client| assert!(client.number() > 0));
    clients.into_iter().for_each(|client| client.ends_well());
    server.ends_well();
    assert_eq!(agent.counter("sockets_paired"), 3);
}

#[test]
fn tcp__short_connections_do_not_ask_the_agent() {
    let agent = against("serve-many", "short", &[("WEFT_SOCKETS_AFTER", "8")]);
    assert_eq!(agent.counter("sockets_asked"), 0);
}

#[test]
fn tcp__if_an_option_was_set_before_or_no_descriptor_is_left() {
    for role in ["odd", "poor"] {
        let agent = Served::start();
        let mut echo = agent.with("echo", "");
        let port = echo.says();
        let mut asks = agent.with(role, &port);
        assert_eq!(asks.number(), 0);
        asks.ends_well();
        echo.ends_well();
        assert_eq!(agent.counter("sockets_paired"), 0);
    }
}

#[test]
fn status__each_connection_is_listed_and_a_running_program_is_turned_off() {
    let agent = Served::start();
    let mut server = agent.with("serve", "");
    let port = server.says();
    let mut client = agent.with("switch", &port);
    assert_eq!(client.says(), "upgraded");
    let programs = weft_run::lists::programs(&agent.name).unwrap();
    let process = u64::from(client.child.id());
    let of_client = programs.iter().find(|one| one.process == process).unwrap();
    assert!(programs.len() == 2 && !of_client.shows.is_off, "{programs:?}");
    let [one] = &of_client.shows.connections[..] else { panic!("{programs:?}") };
    assert_eq!((&one.state, one.remote.port().to_string()), (&State::Shares, port));
    assert!(one.received > 0, "{one:?}");
    let other = programs.iter().find(|one| one.process != process).unwrap();
    let same = |there: &Shown| (there.local, there.remote) == (one.remote, one.local);
    assert!(other.shows.connections.iter().all(same), "{programs:?}");
    // Both ends, so that all of it is by TCP after a while.
    programs.iter().for_each(|one| one.turn(true).unwrap());
    drop(client.child.stdin.take());
    assert_eq!(client.says(), "done");
    assert!(weft_run::lists::programs(&agent.name).unwrap().iter().all(|one| one.shows.is_off));
    client.ends_well();
    server.ends_well();
}

#[test]
fn status__says_why_a_connection_is_by_tcp() {
    let agent = Served::start();
    let (server, mut client) = agent.serves("try-told");
    assert_eq!(client.says(), "ready");
    let programs = weft_run::lists::programs(&agent.name).unwrap();
    let all = programs.iter().flat_map(|one| &one.shows.connections);
    let why: Vec<&State> = all.map(|one| &one.state).filter(|&one| *one != State::Shares).collect();
    let [State::Stays(why)] = &why[..] else { panic!("{programs:?}") };
    assert_eq!(why, "the program has set SO_RCVLOWAT");
    drop(client.child.stdin.take());
    client.ends_done();
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
    assert!(ask(&agent, true, true, &[LOOKS]) > 0);
    assert_eq!((agent.counter("sockets_paired"), agent.counter("sockets_asked")), (1, 2));
    assert_eq!(agent.counter("sockets_asking"), 0);
}

#[test]
fn pair__programs_that_the_policy_names() {
    let agent = Served::start();
    let settings = [LOOKS, ("WEFT_SOCKETS_POLICY", "127.0.0.1:1-65535")];
    assert!(ask(&agent, true, true, &settings) > 0);
}

#[test]
fn pair__a_program_that_clears_its_environment() {
    let agent = Served::start();
    let mut echo = agent.with("echo", "");
    let mut asks = agent.with("ask-bare", &echo.says());
    assert!(asks.number() > 0);
    asks.ends_well();
    echo.ends_well();
}

#[test]
fn pair__that_shares_one_processor_does_not_look_for_what_cannot_come() {
    let agent = Served::start();
    let name = agent.name.clone();
    let pinned = std::thread::spawn(move || {
        sys::pin();
        // Shorter than a turn of the scheduler, which would end a spin.
        let spins = [("WEFT_SOCKETS_SPIN_US", "500")];
        let mut echo = start("echo", "", Some(&name), &spins);
        let mut asks = start("ask-time", &echo.says(), Some(&name), &spins);
        let took = asks.number();
        asks.ends_well();
        echo.ends_well();
        took
    });
    let took = pinned.join().unwrap();
    // A spin in vain lasts 0.5 to 2 ms, and there are 4,000 requests.
    assert!(took < 500, "{took} ms");
    assert_eq!(agent.counter("sockets_paired"), 1);
}

#[test]
fn pair__an_end_that_is_shut_down_before_it_hears_of_its_memory() {
    let agent = Served::start();
    let mut server = agent.with("answer-at-end", "");
    let port = server.says();
    let client = agent.with("end-early", &format!("{port} {}", agent.name));
    client.ends_done();
    server.ends_well();
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
    assert_eq!(ask(&agent, true, true, &[("WEFT_SOCKETS_POLICY", "10.0.0.0/8")]), 0);
    assert_eq!(ask(&agent, true, true, &[("WEFT_SOCKETS_POLICY", "!127.0.0.0/8")]), 0);
    assert_eq!(ask(&agent, true, true, &[("WEFT_SOCKETS_POLICY", "nonsense")]), 0);
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
    let (server, mut client) = agent.serves("try-ended");
    assert_eq!(client.says(), "ready");
    agent.stop();
    // The client goes on when its input ends.
    drop(client.child.stdin.take());
    client.ends_done();
    server.ends_well();
}
