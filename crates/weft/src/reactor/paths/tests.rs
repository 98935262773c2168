//! Tests of paths to a peer: which is used, and when others are asked.
#![allow(non_snake_case)]

use super::*;

const RAW: usize = 2;
const UDP: usize = 3;

fn at(us: u64) -> Instant {
    Instant(us * 1000)
}

fn two() -> Route {
    let mut raw = LinkCaps::network("packet", 1480);
    (raw.latency_ns, raw.bytes_per_us, raw.small_bytes_per_us) = (2_500, 600, 600);
    let mut udp = LinkCaps::network("udp", 1456);
    (udp.train, udp.cuts) = (44, true);
    let paths = [Path::new(RAW, raw), Path::new(UDP, udp)];
    Route::new(paths.into_iter().collect()).unwrap()
}

fn proven() -> Route {
    let mut route = two();
    route.ask_due(at(1));
    route.answered(RAW, at(2));
    route.answered(UDP, at(3));
    route
}

#[test]
fn take_callers__every_way_that_questions_came_is_answered() {
    let mut route = proven();
    assert_eq!(route.take_callers()[..], [RAW], "one that came before the route was made");
    [RAW, UDP, RAW, 9].into_iter().for_each(|link| route.asked_over(link));
    assert_eq!(route.take_callers()[..], [RAW, UDP], "both came while the rank had no core");
    assert_eq!(route.take_callers()[..], [RAW], "the last one");
}

#[test]
fn judge__a_path_that_was_not_asked_is_no_witness_that_the_peer_runs() {
    let mut route = three(&[RAW, UDP, GSO]);
    route.ask_due(at(1));
    [RAW, UDP, GSO].into_iter().for_each(|link| _ = route.answered(link, at(200_000)));
    assert_eq!(route.ask_all(at(210_000)).len(), 3);
    [RAW, UDP, GSO].into_iter().for_each(|link| _ = route.answered(link, at(210_010)));
    // The long question is too recent to be repeated, and its answer is old.
    assert_eq!(route.ask_all(at(220_000))[..], [RAW, UDP]);
    assert!(!route.judge(at(225_000)), "nobody has answered");
    route.answered(UDP, at(226_000));
    assert!(route.judge(at(228_000)), "the peer runs, and is not heard over one");
    assert_eq!((route.small, route.bulk), (GSO as u8, GSO as u8), "that was not asked: it stays");
}

#[test]
fn caps__of_both_paths_together() {
    let caps = two().caps();
    assert_eq!((caps.name, caps.mtu, caps.train), ("packet", 1456, 44));
    assert_eq!((caps.latency_ns, caps.small_bytes_per_us), (2_500, 600));
    assert_eq!(caps.bytes_per_us, 3_000);
}

#[test]
fn caps__longer_messages_go_the_way_of_data_where_that_gains() {
    let from = two().caps().bulk_min;
    assert!((3 * 1456..8192).contains(&from), "{from}");
    // Single packets gain nothing, nor does a route with one path.
    let mut udp = LinkCaps::network("udp", 1456);
    udp.bytes_per_us = 6_000;
    for paths in [vec![udp, LinkCaps::network("packet", 1480)], vec![udp]] {
        let paths = paths.into_iter().enumerate().map(|(i, caps)| Path::new(i, caps));
        assert_eq!(Route::new(paths.collect()).unwrap().caps().bulk_min, u32::MAX);
    }
}

const GSO: usize = 4;

fn three(names: &[usize]) -> Route {
    let mut gso = LinkCaps::network("gso", 65_344);
    (gso.latency_ns, gso.bytes_per_us, gso.polled) = (2_900, 4_000, true);
    let two = two().paths.into_iter().chain([Path::new(GSO, gso)]);
    let paths = two.filter(|p| names.contains(&usize::from(p.link)));
    Route::new(paths.collect()).unwrap()
}

#[test]
fn caps__long_packets_where_they_pass_and_another_path_cuts_them() {
    let mut route = three(&[RAW, UDP, GSO]);
    route.ask_due(at(1));
    route.answered(RAW, at(2));
    assert_eq!((route.caps().mtu, route.caps().bulk_mtu), (1456, 0), "unproven");
    assert!(route.answered(GSO, at(3)) && !route.answered(UDP, at(4)));
    let caps = route.caps();
    assert_eq!((caps.mtu, caps.bulk_mtu, caps.train), (1456, 65_344, 1));
    assert_eq!(caps.bulk_min, 1456 - Eager::LEN as u32 + 1, "what does not fit one packet");
    assert_eq!((route.link_for(true, 60_000), route.link_for(false, 1456)), (4, 2));
    let links = |asked: ArrayVec<usize, PATHS_MAX>| asked.to_vec();
    assert_eq!(links(route.ask_all(at(100))), [RAW, UDP], "long questions are rare");
    assert_eq!(links(route.ask_all(at(200_000))), [RAW, UDP, GSO]);
    route.answered(UDP, at(200_010));
    route.answered(RAW, at(200_010));
    assert!(route.judge(at(205_000)));
    assert_eq!(links(route.ask_all(at(400_000))), [RAW, UDP], "not in use");
    assert!(route.ask_at() >= Some(at(1_200_000)));
    let caps = route.caps();
    assert_eq!((caps.bulk_mtu, caps.train), (0, 44));
    assert_eq!(route.link_for(true, 60_000), UDP as u8, "in pieces");
    // No other path would carry them if this one were lost.
    let mut route = three(&[RAW, GSO]);
    route.ask_due(at(1));
    route.answered(GSO, at(3));
    let caps = route.caps();
    assert_eq!((caps.mtu, caps.bulk_mtu, caps.train), (1480, 0, 44));
}

const TCP: usize = 5;

fn with_tcp(rate: u32) -> Route {
    let mut tcp = LinkCaps::network("tcp", 65_344);
    (tcp.latency_ns, tcp.bytes_per_us) = (8_000, rate);
    (tcp.train, tcp.cuts, tcp.connects) = (4, true, true);
    let paths = two().paths.into_iter().chain([Path::new(TCP, tcp)]);
    Route::new(paths.collect()).unwrap()
}

#[test]
fn ask_first__no_connection_is_made_while_others_may_answer() {
    let mut route = with_tcp(2_500);
    assert_eq!(route.ask_first(at(0))[..], [RAW, UDP]);
    route.answered(UDP, at(1));
    assert_eq!(route.ask_due(at(2))[..], [RAW]);
    route.answered(RAW, at(3));
    assert_eq!((route.ask_at(), route.ask_due(at(900_000)).len()), (None, 0));
    assert_eq!(route.ask_all(at(1_000_000))[..], [RAW, UDP]);
    assert_eq!(route.ask_all(at(1_100_000))[..], [RAW, UDP, TCP], "nobody has answered");
    route.answered(TCP, at(1_100_010));
    assert!(route.judge(at(1_200_000)) && route.small == TCP as u8);
}

#[test]
fn ask_first__a_connection_where_nothing_else_answers() {
    let mut route = with_tcp(2_500);
    assert_eq!(route.ask_first(at(0))[..], [RAW, UDP]);
    assert_eq!(route.ask_first(at(20_000))[..], [RAW, UDP, TCP]);
    route.answered(TCP, at(21_000));
    assert_eq!((route.small, route.bulk), (TCP as u8, TCP as u8));
    assert_eq!((route.caps().mtu, route.caps().bulk_mtu), (1456, 65_344));
}

#[test]
fn ask_first__a_connection_that_was_measured_to_be_the_faster() {
    let mut route = with_tcp(5_000);
    assert_eq!(route.ask_first(at(0))[..], [RAW, UDP, TCP]);
    [RAW, UDP, TCP].into_iter().for_each(|link| _ = route.answered(link, at(1)));
    assert_eq!((route.small, route.bulk), (RAW as u8, TCP as u8));
}

#[test]
fn ask_due__the_connection_of_a_peer_that_asked_over_it() {
    let mut route = with_tcp(2_500);
    route.asked_over(TCP);
    assert_eq!(route.take_callers()[..], [TCP]);
    assert_eq!(route.ask_due(at(1))[..], [RAW, UDP, TCP]);
}

#[test]
fn caps__data_over_several_interfaces_counts_as_many_times() {
    let mut route = three(&[UDP, GSO]);
    route.ask_due(at(1));
    route.answered(GSO, at(2));
    route.answered(UDP, at(2));
    assert_eq!(route.bulk, GSO as u8);
    route.set_stripes(UDP, 2);
    assert_eq!((route.bulk, route.caps().stripes), (UDP as u8, 2));
}

#[test]
fn choose__small_by_latency_and_data_by_rate_once_proven() {
    let mut route = two();
    assert_eq!(route.ask_due(at(1)).as_slice(), [RAW, UDP]);
    route.answered(UDP, at(5));
    assert_eq!((route.small, route.bulk), (UDP as u8, UDP as u8), "the other is unproven");
    assert!(route.answered(RAW, at(6)));
    assert_eq!((route.small, route.bulk), (RAW as u8, UDP as u8));
    assert_eq!(route.ask_at(), None);
}

#[test]
fn judge__a_silent_path_is_lost_and_comes_back() {
    for (dead, living) in [(RAW, UDP), (UDP, RAW)] {
        let mut route = proven();
        route.ask_all(at(100));
        assert!(!route.judge(at(5000)), "nobody answered: the peer may be busy");
        route.answered(living, at(110));
        assert!(!route.judge(at(500)), "the other answer may be on its way");
        assert!(route.judge(at(5000)));
        assert_eq!((route.small, route.bulk), (living as u8, living as u8));
        assert!(!route.answered(dead, at(6000)), "an answer that was late proves nothing");
        assert_eq!(route.ask_due(at(600_000)).as_slice(), [dead]);
        assert!(route.answered(dead, at(600_100)));
        assert_eq!((route.small, route.bulk), (RAW as u8, UDP as u8));
    }
}

#[test]
fn link_for__a_packet_too_long_takes_the_path_that_carries_it() {
    let mut route = proven();
    assert_eq!(route.link_for(false, 1456), RAW as u8);
    route.set_mtu(at(0), RAW, 1000);
    assert_eq!(route.link_for(false, 1000), RAW as u8);
    assert_eq!(route.link_for(false, 1456), UDP as u8);
    route.set_mtu(at(0), UDP, 976);
    assert_eq!(route.link_for(false, 1000), RAW as u8);
    assert_eq!(route.link_for(false, 1456), UDP as u8, "it cuts");
    assert_eq!(route.link_for(true, 1456), UDP as u8);
    route.set_mtu(at(0), RAW, 1480);
    assert_eq!(route.link_for(true, 1456), RAW as u8, "better whole");
}

#[test]
fn judge__a_path_that_comes_and_goes_is_left_for_longer_and_longer() {
    let mut route = proven();
    let (mut now, mut lost) = (at(10_000), Vec::new());
    while lost.len() < 6 {
        route.ask_all(now);
        route.answered(UDP, now);
        assert!(route.judge(now + Duration::from_millis(5)));
        let from = now;
        while route.small != RAW as u8 {
            now = now + Duration::from_millis(10);
            for link in route.ask_due(now) {
                route.answered(link, now);
            }
        }
        lost.push(now.since(from).as_millis() / 100);
        now = now + Duration::from_millis(50);
    }
    assert!(lost.windows(2).all(|w| w[1] > w[0]), "{lost:?}");
    assert!(lost[0] < 10 && lost[5] > 50, "{lost:?}");
}

/// Runs a search for the packet length of a path in which no probe is answered.
fn search_in_vain(route: &mut Route, mut now: Instant) -> Instant {
    while let Some(at) = route.probe_at() {
        now = now.max(at);
        while route.next_probe(now).is_some() {}
    }
    now
}

#[test]
fn suspect__long_packets_over_the_only_path_are_searched_for() {
    let mut alone = three(&[GSO]);
    assert!(!alone.suspect((at(5), at(5)), GSO as u8, 60_000, true));
    assert!(alone.probe_at().is_some());
    let mut both = three(&[RAW, GSO]);
    [RAW, GSO].into_iter().for_each(|link| _ = both.answered(link, at(3)));
    assert!(both.suspect((at(5), at(5)), GSO as u8, 60_000, true), "they are judged by questions");
    assert_eq!(both.probe_at(), None);
}

#[test]
fn suspect__silence_leaves_the_path_for_another_and_else_is_asked_about_again() {
    let mut route = proven();
    assert!(!route.suspect((at(5), at(5)), RAW as u8, 1456, true));
    let now = search_in_vain(&mut route, at(5));
    let absent = route.suspect((now, at(5)), RAW as u8, 1456, false);
    assert!(!absent, "nothing gets to a peer that is not heard");
    assert!(route.suspect((now, at(5)), RAW as u8, 1456, true) && route.small == UDP as u8);
    let mut alone = three(&[RAW]);
    assert!(!alone.suspect((at(5), at(5)), RAW as u8, 1456, true));
    let now = search_in_vain(&mut alone, at(5));
    let later = now + Duration::from_secs(10);
    assert!(!alone.suspect((later, at(5)), RAW as u8, 1456, true));
    assert!(alone.probe_at().is_some(), "nothing was found");
}

#[test]
fn rest_due__interfaces_without_an_answer_are_asked_less_and_less_often_until_all_gave_one() {
    let mut route = three(&[UDP]);
    assert_eq!(route.ask_at(), None);
    route.ask_rest_later(UDP, at(0), false);
    route.ask_rest_later(UDP, at(100), false);
    let mut asked = Vec::new();
    for ms in 0..2_000u64 {
        assert!(route.ask_due(at(ms * 1000)).is_empty(), "it is the only path");
        if !route.rest_due(at(ms * 1000), |link| link == UDP).is_empty() {
            asked.push(ms);
        }
    }
    assert_eq!(asked, [250, 750, 1750]);
    assert_eq!(route.ask_at(), Some(at(3_750_000)));
    // A path that shared is lost: it is asked soon.
    route.ask_rest_later(UDP, at(2_000_000), true);
    assert_eq!(route.ask_at(), Some(at(2_250_000)));
    assert!(route.rest_due(at(2_250_000), |_| false).is_empty());
    assert_eq!(route.ask_at(), None, "each has given one");
}

#[test]
fn ask_due__less_and_less_often() {
    let mut route = two();
    route.answered(RAW, at(1));
    let mut asked = Vec::new();
    for ms in 0..3_600_000u64 {
        if !route.ask_due(at(ms * 1000)).is_empty() {
            asked.push(ms);
        }
    }
    assert_eq!(asked[..4], [0, 250, 750, 1750]);
    assert!(asked.len() < 150, "{}", asked.len());
}
