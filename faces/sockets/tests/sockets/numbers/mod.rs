//! Programs that make calls by their numbers (syscall(2)), or by instructions of their own.

pub mod sys;

use crate::roles::Server;
use crate::sys as other;
use std::os::fd::AsRawFd;

/// Runs a case on a connection that shares memory. False if there is none of this name.
pub fn attempt(case: &str, server: &mut Server) -> bool {
    match case {
        "numbers-wait" => waits(server),
        "numbers-move" => moves(server),
        "numbers-life" => life(server),
        "numbers-sleep" => sleeps(server),
        "instruction" => by_instruction(server),
        "instruction-read" => reads_by_instruction(server),
        _ => return false,
    }
    true
}

/// All waits see bytes in the ring, where the kernel has none.
fn waits(server: &mut Server) {
    let fd = server.stream.as_raw_fd();
    let set = other::Epoll::new();
    set.add(&server.stream, libc::EPOLLIN, 7);
    let mut none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let of_set = |number, third: usize, len: usize| {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
        let space = sys::at(&mut events);
        let set = set.as_raw_fd() as usize;
        assert_eq!(sys::call(number, [set, space, 4, third, 0, len]).unwrap(), 1);
        let number = events[0].u64;
        assert_eq!(number, 7);
    };
    for _ in 0..20 {
        server.ringed(100);
        let time = sys::at(&mut none);
        let mut list = sys::poll_of(&server.stream);
        assert_eq!(sys::call(libc::SYS_ppoll, [sys::at(&mut list), 1, time, 0, 8, 0]).unwrap(), 1);
        assert_eq!(list[0].revents, libc::POLLIN);
        let mut readable = sys::set_of(fd);
        let args = [fd as usize + 1, sys::at(&mut readable), 0, 0, time, 0];
        assert_eq!(sys::call(libc::SYS_pselect6, args).unwrap(), 1);
        of_set(libc::SYS_epoll_pwait, 0, 8);
        of_set(libc::SYS_epoll_pwait2, time, 8);
        #[cfg(target_arch = "x86_64")]
        {
            let mut list = sys::poll_of(&server.stream);
            assert_eq!(sys::call(libc::SYS_poll, [sys::at(&mut list), 1, 0, 0, 0, 0]).unwrap(), 1);
            let (mut readable, mut none) =
                (sys::set_of(fd), libc::timeval { tv_sec: 0, tv_usec: 0 });
            let time = sys::at(&mut none);
            let args = [fd as usize + 1, sys::at(&mut readable), 0, 0, time, 0];
            assert_eq!(sys::call(libc::SYS_select, args).unwrap(), 1);
            of_set(libc::SYS_epoll_wait, 0, 0);
        }
        server.read(100);
    }
    let mut list = sys::poll_of(&server.stream);
    let time = sys::at(&mut none);
    // The kernel says what is wrong.
    let e = sys::call(libc::SYS_ppoll, [sys::at(&mut list), 1, time, time, 7, 0]).unwrap_err();
    assert_eq!(e.raw_os_error(), Some(libc::EINVAL));
}

/// Bytes go both ways in order, by each call that moves some.
fn moves(server: &mut Server) {
    let fd = server.stream.as_raw_fd() as usize;
    for round in 0..200u64 {
        server.ringed(70);
        let mut buf = [0u8; 10];
        let mut part = sys::part(&mut buf);
        let mut message = sys::message(&mut part);
        let mut several = libc::mmsghdr { msg_hdr: sys::message(&mut part), msg_len: 0 };
        let (base, list) = (part.iov_base.addr(), sys::at(&mut part));
        let reads = [
            (libc::SYS_read, [fd, base, 10, 0, 0, 0]),
            (libc::SYS_readv, [fd, list, 1, 0, 0, 0]),
            (libc::SYS_recvfrom, [fd, base, 10, 0, 0, 0]),
            (libc::SYS_recvmsg, [fd, sys::at(&mut message), 0, 0, 0, 0]),
            (libc::SYS_preadv2, [fd, list, 1, usize::MAX, usize::MAX, 0]),
            (libc::SYS_recvmmsg, [fd, sys::at(&mut several), 1, 0, 0, 0]),
        ];
        for (number, args) in reads {
            let got = sys::call(number, args).unwrap();
            assert_eq!(got, if number == libc::SYS_recvmmsg { 1 } else { 10 });
            server.check(&buf);
        }
        server.read(10);
        // Each command is one of the server's: it has to come whole, and behind those before.
        let mut command = [b's'; 9];
        command[1..].copy_from_slice(&round.to_le_bytes());
        let mut part = sys::part(&mut command);
        let mut message = sys::message(&mut part);
        let mut several = libc::mmsghdr { msg_hdr: sys::message(&mut part), msg_len: 0 };
        let (base, list) = (part.iov_base.addr(), sys::at(&mut part));
        let writes = [
            (libc::SYS_write, [fd, base, 9, 0, 0, 0]),
            (libc::SYS_writev, [fd, list, 1, 0, 0, 0]),
            (libc::SYS_sendto, [fd, base, 9, 0, 0, 0]),
            (libc::SYS_sendmsg, [fd, sys::at(&mut message), 0, 0, 0, 0]),
            (libc::SYS_pwritev2, [fd, list, 1, usize::MAX, usize::MAX, 0]),
            (libc::SYS_sendmmsg, [fd, sys::at(&mut several), 1, 0, 0, 0]),
        ];
        for (number, args) in writes {
            let went = sys::call(number, args).unwrap();
            assert_eq!(went, if number == libc::SYS_sendmmsg { 1 } else { 9 });
            server.read(round as usize);
        }
    }
}

/// Copies live as the kernel's do, and the connection ends with the last of them.
fn life(server: &mut Server) {
    let fd = server.stream.as_raw_fd() as usize;
    let dup = |number, more: [usize; 3]| {
        let [b, c, d] = more;
        sys::call(number, [fd, b, c, d, 0, 0]).unwrap()
    };
    let copies = [
        dup(libc::SYS_dup, [0; 3]),
        dup(libc::SYS_fcntl, [libc::F_DUPFD_CLOEXEC as usize, 100, 0]),
        dup(libc::SYS_dup3, [150, libc::O_CLOEXEC as usize, 0]),
    ];
    for copy in copies {
        server.ringed(10);
        let (mut queue, mut buf) = (0i32, [0u8; 10]);
        let args = [copy, libc::FIONREAD as usize, sys::at(&mut queue), 0, 0, 0];
        sys::call(libc::SYS_ioctl, args).unwrap();
        assert_eq!(queue, 10);
        let args = [copy, sys::at(&mut buf), 10, 0, 0, 0];
        assert_eq!(sys::call(libc::SYS_read, args).unwrap(), 10);
        server.check(&buf);
        sys::call(libc::SYS_close, [copy, 0, 0, 0, 0, 0]).unwrap();
        server.get(1000);
    }
    let mode = [fd, libc::F_SETFL as usize, libc::O_NONBLOCK as usize, 0, 0, 0];
    sys::call(libc::SYS_fcntl, mode).unwrap();
    let mut buf = [0u8; 10];
    let e = sys::call(libc::SYS_read, [fd, sys::at(&mut buf), 10, 0, 0, 0]).unwrap_err();
    assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock);
    // A child that is made by its number is a process more.
    let child = sys::call(libc::SYS_clone, [libc::SIGCHLD as usize, 0, 0, 0, 0, 0]).unwrap();
    if child == 0 {
        std::process::exit(0);
    }
    other::wait(child as i32);
    sys::call(libc::SYS_fcntl, [fd, libc::F_SETFL as usize, 0, 0, 0, 0]).unwrap();
    server.get(1000);
    sys::call(libc::SYS_shutdown, [fd, libc::SHUT_WR as usize, 0, 0, 0, 0]).unwrap();
    assert_eq!(other::recv(&server.stream, &mut buf, 0).unwrap(), 0);
}

/// Waits sleep, and are woken: by a set and by a list.
fn sleeps(server: &mut Server) {
    let set = other::Epoll::new();
    set.add(&server.stream, libc::EPOLLIN, 7);
    let mut long = libc::timespec { tv_sec: 100, tv_nsec: 0 };
    for round in 0..400 {
        server.command(b's', 10);
        if round % 16 == 0 {
            // The ends sleep now and then.
            other::poll_for(&server.stream, 0, 2);
        }
        let time = sys::at(&mut long);
        let found = if round % 2 == 0 {
            let mut event = [libc::epoll_event { events: 0, u64: 0 }];
            let fd = set.as_raw_fd() as usize;
            sys::call(libc::SYS_epoll_pwait2, [fd, sys::at(&mut event), 1, time, 0, 8])
        } else {
            let mut list = sys::poll_of(&server.stream);
            let mut time = libc::timespec { tv_sec: 100, tv_nsec: 0 };
            let args = [sys::at(&mut list), 1, sys::at(&mut time), 0, 8, 0];
            sys::call(libc::SYS_ppoll, args)
        };
        assert_eq!(found.unwrap(), 1, "no event in round {round}");
        server.read(10);
    }
}

/// Waits by an instruction are not seen: bytes never lie where such a wait does not see them.
fn by_instruction(server: &mut Server) {
    other::set_nonblocking(server.stream.as_raw_fd(), true);
    let set = other::Epoll::new();
    set.add(&server.stream, libc::EPOLLIN, 7);
    for round in 0..400 {
        server.command(b's', 100);
        let mut left = 100;
        while left > 0 {
            let mut event = [libc::epoll_event { events: 0, u64: 0 }];
            let args = [set.as_raw_fd() as usize, sys::at(&mut event), 1, 100_000, 0, 8];
            let found = sys::instruction(libc::SYS_epoll_pwait, args).unwrap();
            assert_eq!(found, 1, "no event in round {round}");
            let mut buf = vec![0; left];
            match other::recv(&server.stream, &mut buf, 0) {
                Ok(got) => {
                    server.check(&buf[..got]);
                    left -= got;
                }
                Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock),
            }
        }
    }
}

/// Bytes that came by TCP are read by an instruction, those behind them by functions.
fn reads_by_instruction(server: &mut Server) {
    let fd = server.stream.as_raw_fd() as usize;
    let (mut taken, mut round) = (0, 0);
    while round < 100 || taken == 0 {
        assert!(round < 5000, "no bytes by TCP");
        round += 1;
        server.get(100);
        // A wait that sleeps has the next bytes come by TCP.
        other::poll_for(&server.stream, libc::POLLIN, 1);
        server.command(b's', 1000);
        while other::queue(&server.stream, libc::FIONREAD) < 1000 {
            std::thread::yield_now();
        }
        let mut buf = [0u8; 1000];
        let args = [fd, sys::at(&mut buf), 1000, libc::MSG_DONTWAIT as usize, 0, 0];
        let got = sys::instruction(libc::SYS_recvfrom, args).unwrap_or(0);
        server.check(&buf[..got]);
        taken += got;
        if got < 1000 {
            server.read(1000 - got);
        }
        server.get(500);
    }
}
