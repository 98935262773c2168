//! Calls over each link.

use crate::ranks::{run, LINKS};
use std::cell::Cell;
use std::rc::Rc;
use weft_models::net::{Blocking, Net};
use weft_models::rpc::{Request, Rpc};

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
