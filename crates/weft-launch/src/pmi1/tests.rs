#![allow(non_snake_case)]
use super::*;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc::{channel, Receiver};
use std::thread::JoinHandle;

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(300);

/// Answers each line with the result of `reply`, until the client hangs up.
fn serve(
    mut reply: impl FnMut(&Line) -> Option<String> + Send + 'static,
) -> (UnixStream, JoinHandle<()>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || {
        let mut out = ours.try_clone().unwrap();
        for line in BufReader::new(ours).split(b'\n') {
            let Ok(line) = line else { return };
            if let Some(text) = reply(&Line::parse(&line).unwrap()) {
                if writeln!(out, "{text}").is_err() {
                    return;
                }
            }
        }
    });
    (theirs, thread)
}

/// A launcher of two ranks that keeps values in `store`.
fn launcher(vallen: usize, store: &mut BTreeMap<String, String>, line: &Line) -> Option<String> {
    let text = match line.cmd() {
        "init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".into(),
        "get_maxes" => format!("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max={vallen}"),
        "get_my_kvsname" => "cmd=my_kvsname kvsname=job".into(),
        "put" => {
            let value = line.get("value").unwrap().to_owned();
            assert!(value.len() < vallen, "{} bytes", value.len());
            store.insert(line.get("key").unwrap().to_owned(), value);
            "cmd=put_result rc=0 msg=success".into()
        }
        "get" => match store.get(line.get("key").unwrap()) {
            Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
            None => "cmd=get_result rc=-1 msg=key_not_found value=unknown".into(),
        },
        "barrier_in" => "cmd=barrier_out".into(),
        "finalize" => "cmd=finalize_ack".into(),
        other => panic!("unexpected {other}"),
    };
    Some(text)
}

#[test]
fn put__long_values_come_back_whole() {
    let mut store = BTreeMap::new();
    let (socket, _) = serve(move |line| launcher(64, &mut store, line));
    let mut client = Pmi1::over_socket(socket, 0, 2, LONG).unwrap();
    for len in [0, 1, 27, 28, 29, 160, 2000] {
        let value: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let key = format!("v{len}");
        client.put(&key, &value).unwrap();
        client.fence().unwrap();
        assert_eq!(client.get(0, &key).unwrap(), value);
    }
    client.finalize().unwrap();
    client.finalize().unwrap();
}

#[test]
fn get__names_the_rank_that_put_nothing() {
    let mut store = BTreeMap::new();
    let (socket, _) = serve(move |line| launcher(1024, &mut store, line));
    let mut client = Pmi1::over_socket(socket, 0, 2, LONG).unwrap();
    let error = client.get(1, "address").unwrap_err();
    assert!(matches!(error, LaunchError::NotPublished { rank: 1, .. }), "{error}");
    assert!(matches!(client.get(2, "address"), Err(LaunchError::NoSuchRank { .. })));
    assert!(matches!(client.get(0, "no key"), Err(LaunchError::BadKey { .. })));
    assert_eq!(client.preseeded("weft-job-key").unwrap(), None);
}

#[test]
fn get__refuses_malformed_values() {
    for value in ["", "x", "0:", "9999999:00", "1:0", "1:zz", "2:00"] {
        let mut store = BTreeMap::from([("weft-1-k".to_owned(), value.to_owned())]);
        let (socket, _) = serve(move |line| launcher(1024, &mut store, line));
        let mut client = Pmi1::over_socket(socket, 0, 2, LONG).unwrap();
        assert!(client.get(1, "k").is_err(), "{value}");
    }
}

#[test]
fn fence__that_times_out_names_the_late_rank() {
    let mut store = BTreeMap::new();
    let (socket, _) = serve(move |line| match line.cmd() {
        "barrier_in" => None,
        _ => launcher(1024, &mut store, line),
    });
    let mut client = Pmi1::over_socket(socket, 0, 2, LONG).unwrap();
    client.put("address", b"here").unwrap();
    client.timeout = SHORT;
    match client.fence() {
        Err(LaunchError::Timeout { missing, .. }) => assert_eq!(missing, [1]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn exchange__reports_a_launcher_that_ended() {
    let (socket, theirs) = UnixStream::pair().unwrap();
    drop(theirs);
    let error = Pmi1::over_socket(socket, 0, 1, LONG).err().unwrap();
    assert!(matches!(error, LaunchError::LauncherGone { .. }), "{error}");
}

#[test]
fn exchange__refuses_hostile_answers() {
    for answer in ["", "cmd=", "cmd=put_result", "\u{7f}", "cmd=response_to_init rc=-1"] {
        let (socket, _) = serve(move |_| Some(answer.to_owned()));
        let error = Pmi1::over_socket(socket, 0, 1, LONG).err().unwrap();
        assert!(matches!(error, LaunchError::Protocol { .. }), "{answer}: {error}");
    }
}

#[test]
fn over_tcp__learns_rank_and_size_from_the_launcher() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut out = stream.try_clone().unwrap();
        let mut store = BTreeMap::new();
        for line in BufReader::new(stream).split(b'\n') {
            let line = Line::parse(&line.unwrap()).unwrap();
            if line.cmd() == "initack" {
                assert_eq!(line.number("pmiid"), Some(7));
                let set = "cmd=initack rc=0\ncmd=set size=3\ncmd=set rank=2\ncmd=set debug=0";
                writeln!(out, "{set}").unwrap();
            } else {
                writeln!(out, "{}", launcher(1024, &mut store, &line).unwrap()).unwrap();
            }
        }
    });
    let client = Pmi1::over_tcp(&address, 7, LONG).unwrap();
    assert_eq!((client.rank(), client.size(), client.job_id().as_str()), (2, 3, "job"));
    drop(client);
    server.join().unwrap();
}

#[test]
fn fence__that_takes_long_is_reported_and_goes_on() {
    // Longer than the time after which a wait is logged.
    let mut patience = WaitLog::begin();
    let part = patience.part(LONG);
    assert!(part < LONG, "it is told of before it fails");
    patience.say(|| panic!("not before it is time"));
    assert!(slow(&Line::new("barrier_in")).contains("have not joined"));
    assert!(slow(&Line::new("get")).contains("has not answered (PMI get)"));
}

#[test]
fn dial__a_launcher_that_is_not_there_is_an_error_at_once() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let error = dial(&address, LONG).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

/// Answers as Hydra does, which ends the connection at a farewell; tells of each farewell.
fn hydra() -> (UnixStream, Receiver<()>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (farewells, heard) = channel();
    std::thread::spawn(move || {
        let (mut out, mut store) = (ours.try_clone().unwrap(), BTreeMap::new());
        for line in BufReader::new(&ours).split(b'\n') {
            let Ok(line) = line else { return };
            let line = Line::parse(&line).unwrap();
            writeln!(out, "{}", launcher(1024, &mut store, &line).unwrap()).unwrap();
            if line.cmd() == "finalize" {
                ours.shutdown(std::net::Shutdown::Both).unwrap();
                let _test_is_over = farewells.send(());
            }
        }
    });
    (theirs, heard)
}

/// Leaves as MPICH does, over the descriptor that the launcher left.
fn leave_as_mpi(mut socket: UnixStream) {
    socket.write_all(b"cmd=finalize\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "cmd=finalize_ack\n");
    socket.shutdown(std::net::Shutdown::Both).unwrap();
}

#[test]
fn finalize__an_mpi_on_the_same_connection_may_leave_before_and_after() {
    let join = || {
        let (socket, farewells) = hydra();
        let shared = crate::sys::share(std::os::fd::AsRawFd::as_raw_fd(&socket)).unwrap().into();
        (socket, farewells, Pmi1::over_socket(shared, 0, 1, LONG).unwrap().until_exit())
    };
    // Weft first: the MPI still has its connection.
    let (socket, farewells, mut client) = join();
    client.finalize().unwrap();
    drop(client);
    leave_as_mpi(socket);
    say_farewell();
    assert_eq!(farewells.iter().count(), 1);
    // The MPI first.
    let (socket, farewells, mut client) = join();
    leave_as_mpi(socket);
    client.finalize().unwrap();
    say_farewell();
    assert_eq!(farewells.iter().count(), 1);
    // No MPI: the launcher hears of it at the exit.
    let (_socket, farewells, mut client) = join();
    client.finalize().unwrap();
    client.fence().unwrap();
    assert!(farewells.try_recv().is_err());
    say_farewell();
    assert_eq!(farewells.iter().count(), 1);
}

#[test]
fn keep__values_are_there_after_an_mpi_has_left() {
    let (socket, _farewells) = hydra();
    let shared = crate::sys::share(std::os::fd::AsRawFd::as_raw_fd(&socket)).unwrap().into();
    let mut client = Pmi1::over_socket(shared, 0, 2, LONG).unwrap().until_exit();
    client.put("card", b"mine").unwrap();
    client.put("other", b"mine").unwrap();
    client.keep("card").unwrap();
    leave_as_mpi(socket);
    assert_eq!(client.get(0, "card").unwrap(), b"mine");
    // Rank 1 had put none.
    for (rank, key) in [(1, "card"), (0, "other")] {
        let error = client.get(rank, key).unwrap_err();
        assert!(matches!(error, LaunchError::LauncherGone { .. }), "{error}");
        client.broken = false;
    }
}
