//! Very many connections of two programs, at once and one after the other.

use crate::harness::{argument, bytes, dial, say, start, Served};
use crate::sys;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

/// Connections at once.
const CROWD: usize = 10_000;
/// Times that all are closed and opened again.
const TIMES: usize = 2;
/// Most of them that share memory.
const MOST: u64 = 256;

/// Sends back what comes on all connections, until all have ended.
pub fn serve() {
    sys::allow_descriptors(20_000);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    say(listener.local_addr().unwrap().port());
    for _ in 0..TIMES {
        let set = sys::Epoll::new();
        set.add(&listener, libc::EPOLLIN, u64::MAX);
        let mut streams: Vec<Option<TcpStream>> = Vec::new();
        let mut ended = 0;
        while ended < CROWD {
            for (_, at) in set.wait(-1) {
                if at == u64::MAX {
                    if streams.len() == CROWD {
                        // The next ones are for the next turn.
                        set.remove(listener.as_raw_fd());
                        continue;
                    }
                    let (stream, _) = listener.accept().unwrap();
                    set.add(&stream, libc::EPOLLIN, streams.len() as u64);
                    streams.push(Some(stream));
                    continue;
                }
                let mut buf = [0; 200];
                let stream = streams[at as usize].as_mut().unwrap();
                match stream.read(&mut buf).unwrap() {
                    0 => {
                        streams[at as usize] = None;
                        ended += 1;
                    }
                    n => stream.write_all(&buf[..n]).unwrap(),
                }
            }
        }
    }
}

/// Asks on all connections in turn, some of them more than once.
pub fn ask() {
    sys::allow_descriptors(20_000);
    for _ in 0..TIMES {
        let mut streams: Vec<TcpStream> = Vec::new();
        for _ in 0..CROWD {
            let mut stream = dial(&argument());
            // The connection is accepted after that.
            exchange(&mut stream, 0);
            streams.push(stream);
        }
        for round in 1..3 {
            streams.iter_mut().for_each(|stream| exchange(stream, round * 100));
        }
        for round in 3..100 {
            streams.iter_mut().step_by(199).for_each(|stream| exchange(stream, round * 100));
        }
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let shared = maps.lines().filter(|line| line.contains("memfd:weft-sockets ")).count();
        assert!(shared as u64 <= MOST, "{shared} connections share memory");
    }
    say("done");
}

fn exchange(stream: &mut TcpStream, from: u64) {
    let sent = bytes(from, 100);
    stream.write_all(&sent).unwrap();
    let mut got = [0; 100];
    stream.read_exact(&mut got).unwrap();
    assert!(got[..] == sent);
}

#[test]
fn crowd__ten_thousand_connections_are_served_and_few_share_memory() {
    if sys::most_descriptors() < CROWD as u64 + 1000 {
        return weft_conformance::skip("a process may not have so many descriptors");
    }
    let agent = Served::start();
    let most = MOST.to_string();
    let settings = [("WEFT_SOCKETS_AFTER", "2"), ("WEFT_SOCKETS_CONNECTIONS", most.as_str())];
    let with = Some(agent.name.as_str());
    let mut server = start("crowd-serve", "", with, &settings);
    let port = server.says();
    let client = start("crowd-ask", &port, with, &settings);
    client.ends_done();
    server.ends_well();
    let paired = agent.counter("sockets_paired");
    // An end that has come to its limit meanwhile takes no memory.
    let status = agent.status();
    assert!(paired > 0 && paired <= 2 * MOST * TIMES as u64, "{paired} paired: {status}");
}
