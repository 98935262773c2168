//! Calls over each link.

use crate::ranks::{run, LINKS};
use std::cell::Cell;
use std::rc::Rc;
use weft_models::net::{Blocking, Live, Net};
use weft_models::rpc::{threads, Cause, Request, Rpc};
use weft_models::MESSAGE_MAX;

#[test]
fn rpc__blocking_and_async_calls_over_each_link() {
    for link in LINKS {
        run(link, 3, |net, world| {
            let rpc = Rpc::open(&net);
            let sum = Rc::new(Cell::new(0));
            let add = Rc::clone(&sum);
            rpc.serve(1, |request, args| request.answer(args));
            rpc.serve(2, move |request: Request<_>, args| {
                add.set(add.get() + args.len());
                let net = request.rpc().expect("it is there").net().clone();
                let waits = net.yield_now();
                net.spawn(async move {
                    waits.await;
                    request.answer(b"later");
                });
            });
            let next = (net.rank() + 1) % net.size();
            for len in [0, 1, 100, 5_000, 300_000] {
                let args = vec![len as u8; len];
                assert!(rpc.call_blocking(next, 1, &args).as_deref() == Ok(&args[..]), "{link}");
            }
            let calls: Vec<_> = (0..100).map(|len| rpc.call(next, 2, &vec![0; len])).collect();
            net.block_on(async {
                for call in calls {
                    assert_eq!(call.await.as_deref(), Ok(&b"later"[..]));
                }
            });
            world.barrier_blocking().expect("no rank fails");
            assert_eq!(sum.get(), (0..100).sum::<usize>());
        });
    }
}

/// Neither is sent, so their pages are never touched.
#[test]
fn rpc__arguments_and_answers_that_are_too_long_are_errors_of_the_caller() {
    run("shm", 2, |net, world| {
        let rpc = Rpc::open(&net);
        rpc.serve(1, |request, _| request.answer_parts(&[b"5", &vec![0; MESSAGE_MAX]]));
        rpc.serve(2, |request, args| request.answer(args));
        let next = 1 - net.rank();
        for to in [next, net.rank()] {
            let long = rpc.call_blocking(to, 1, &[]).unwrap_err();
            assert_eq!(long.cause, Cause::AnswerTooLong { len: MESSAGE_MAX + 1 });
            assert!(long.to_string().contains("its answer of 268435457 bytes"), "{long}");
            let long = rpc.call_blocking(to, 2, &vec![0; MESSAGE_MAX + 1]).unwrap_err();
            assert_eq!(long.cause, Cause::TooLong { len: MESSAGE_MAX + 1 });
            assert_eq!(rpc.call_blocking(to, 2, b"short").as_deref(), Ok(&b"short"[..]));
        }
        world.barrier_blocking().expect("no rank fails");
    });
}

#[test]
fn threads__many_threads_call_while_one_handles_messages() {
    const EACH: u32 = 50;
    for link in LINKS {
        run(link, 2, |net, world| {
            let rpc = Rpc::open(&net);
            rpc.serve(1, |request, args| request.answer(args));
            let next = (net.rank() + 1) % net.size();
            let (desk, caller) = threads::open(&rpc).expect("a descriptor");
            let all = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..3u32)
                    .map(|thread| {
                        let caller = caller.clone();
                        scope.spawn(move || {
                            for turn in 0..EACH {
                                let args = [thread, turn].map(u32::to_le_bytes).concat();
                                let answer = caller.call(next, 1, &args);
                                assert_eq!(answer.as_deref(), Ok(&args[..]));
                            }
                            let missing = caller.call(next, 9, &[]).unwrap_err();
                            assert_eq!(missing.cause, Cause::NoService);
                        })
                    })
                    .collect();
                let last = caller.clone();
                scope.spawn(move || {
                    let ended: Vec<_> = threads.into_iter().map(|one| one.join()).collect();
                    // The desk ends also if a thread has panicked.
                    last.close();
                    assert!(ended.iter().all(Result::is_ok));
                });
                desk.run();
                caller
            });
            let late = all.call(next, 1, &[]).unwrap_err();
            assert_eq!(late.cause, Cause::Closed);
            world.barrier_blocking().expect("no rank fails");
        });
    }
}

/// A desk that is dropped leaves nobody waiting.
#[test]
fn threads__calls_of_a_desk_that_is_dropped_fail() {
    run("shm", 1, |net, _| {
        let rpc = Rpc::open(&net);
        let (desk, caller) = threads::open(&rpc).expect("a descriptor");
        std::thread::scope(|scope| {
            let waits = scope.spawn(move || caller.call(0, 1, &[]));
            drop(desk);
            let error = waits.join().expect("no panic").unwrap_err();
            assert_eq!(error.cause, Cause::Closed);
        });
    });
}

/// The call goes to the rank itself, so that its bytes are copied as few times as possible.
#[test]
fn rpc__arguments_of_the_most_bytes_are_taken() {
    run("shm", 1, |net, _| {
        let rpc = Rpc::open(&net);
        rpc.serve(1, |request, args| request.answer(&args.len().to_le_bytes()));
        let answer = rpc.call_blocking(0, 1, &vec![0; MESSAGE_MAX]);
        assert_eq!(answer.as_deref(), Ok(&MESSAGE_MAX.to_le_bytes()[..]));
    });
}

#[test]
fn call_blocking__in_a_service_is_an_error_that_says_so() {
    for link in LINKS {
        run(link, 2, |net, world| {
            let rpc = Rpc::open(&net);
            rpc.serve(1, |request, args| request.answer(args));
            let other = 1 - net.rank();
            rpc.serve(2, move |request: Request<_>, args| {
                let inner = request.rpc().expect("it is there");
                let nested = inner.call_blocking(other, 1, args);
                request.refuse(&nested.expect_err("it would wait for ever").to_string());
            });
            rpc.serve(3, move |request: Request<Live>, args| {
                let inner = request.rpc().expect("it is there");
                let nested = inner.net().block_on(inner.call(other, 1, args));
                request.answer(&nested.expect("this is not reached"));
            });
            let refused = rpc.call_blocking(other, 2, b"x").unwrap_err();
            assert!(refused.to_string().contains("inside an upcall or a service"), "{refused}");
            let Cause::Panicked(text) = rpc.call_blocking(other, 3, b"x").unwrap_err().cause else {
                panic!("a service that waits panics");
            };
            assert!(text.contains("inside an upcall or a service"), "{text}");
            world.barrier_blocking().expect("no rank fails");
        });
    }
}
