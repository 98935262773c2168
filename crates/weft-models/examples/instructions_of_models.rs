//! Operations of models between two ranks in one thread, for counting instructions:
//! `valgrind --tool=callgrind --toggle-collect='instructions_of_models::*' PROGRAM KIND`, where
//! KIND is packet, call, entry, operation, miss, ordered, multicast or ordered-one. Each round is
//! `begin` at one rank, `serve` at the other, `end` at the first.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use weft::job::{config_from_env, open_endpoint};
use weft::{Address, Endpoint, Group, Links};
use weft_models::actors::{Actor, Actors, Turn};
use weft_models::net::{Live, Net};
use weft_models::objects::{Object, Objects, Placement, Read};
use weft_models::order::{Options, OrderedGroup};
use weft_models::regions::Regions;
use weft_models::rpc::Rpc;

const ROUNDS: usize = 1000;

type Work<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

#[derive(Default, serde::Serialize, serde::Deserialize)]
struct Count(u64);

#[derive(serde::Serialize, serde::Deserialize)]
struct Null;

impl Object for Count {
    type Op = Null;
    type Reply = u64;

    fn read(&self, _: &Null) -> Read<u64> {
        Read::Write
    }

    fn apply(&mut self, _: Null) -> u64 {
        self.0 += 1;
        0
    }
}

fn poll(work: &mut Work<'_>) -> bool {
    work.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
}

/// Runs futures of both ranks to their end.
fn both(nets: &[Live; 2], mut works: [Work<'_>; 2]) {
    let mut over = [false; 2];
    while over != [true; 2] {
        for at in 0..2 {
            over[at] = over[at] || poll(&mut works[at]);
            nets[at].poll();
        }
    }
}

#[inline(never)]
fn begin<'a>(make: &dyn Fn() -> Work<'a>) -> (Work<'a>, bool) {
    let mut work = make();
    let over = poll(&mut work);
    (work, over)
}

#[inline(never)]
fn serve(net: &Live) {
    net.poll();
}

#[inline(never)]
fn end(net: &Live, work: &mut Work<'_>) -> bool {
    net.poll();
    poll(work)
}

/// Does an operation many times; the first rounds are not counted by the functions' names alone.
fn rounds<'a>(nets: &[Live; 2], make: &dyn Fn() -> Work<'a>) {
    for _ in 0..ROUNDS {
        let (mut work, over) = begin(make);
        if over {
            continue;
        }
        loop {
            serve(&nets[1]);
            if end(&nets[0], &mut work) {
                break;
            }
        }
    }
}

fn packets(nets: &[Live; 2]) {
    let come = Rc::<Cell<bool>>::default();
    let (note, back) = (Rc::clone(&come), nets[1].clone());
    nets[0].handle(1, move |_| note.set(true));
    nets[1].handle(1, move |packet| back.try_send(0, 1, 0, packet.data).unwrap());
    rounds(nets, &|| {
        let (net, come) = (nets[0].clone(), Rc::clone(&come));
        Box::pin(async move {
            net.try_send(1, 1, 0, &[7; 16]).unwrap();
            std::future::poll_fn(|_| if come.take() { Poll::Ready(()) } else { Poll::Pending })
                .await;
        })
    });
}

fn calls(nets: &[Live; 2]) {
    let all = [Rpc::open(&nets[0]), Rpc::open(&nets[1])];
    all[1].serve(1, |request, args| request.answer(args));
    rounds(nets, &|| Box::pin(async { drop(all[0].call(1, 1, &[7; 16]).await.unwrap()) }));
}

/// An object that sends each message back to the first one, which notes it.
#[derive(serde::Serialize, serde::Deserialize)]
struct Echo;

impl Actor for Echo {
    type Message = String;
    type Value = ();
    type Shared = Rc<Cell<bool>>;

    fn receive(&mut self, message: String, turn: &mut Turn<'_, Echo>) {
        match turn.index().x() {
            0 => turn.shared().set(true),
            _ => turn.send(0, message),
        }
    }
}

fn entries(nets: &[Live; 2]) {
    let come = Rc::<Cell<bool>>::default();
    let all = [0, 1].map(|at| Actors::open(&nets[at]));
    let arrays = [0, 1].map(|at| all[at].array_with(1, 2, Rc::clone(&come), |_| Echo));
    // Both runs wait for messages; nobody polls them to their ends.
    let run = |at: usize| -> Work<'_> {
        let actors = &all[at];
        Box::pin(async move { drop(actors.run().await) })
    };
    let mut runs = [run(0), run(1)];
    runs.iter_mut().for_each(|run| assert!(!poll(run)));
    rounds(nets, &|| {
        arrays[0].send(1, "15 bytes, and 1".to_string()).unwrap();
        let come = Rc::clone(&come);
        Box::pin(std::future::poll_fn(move |_| match come.take() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }))
    });
}

fn operations(nets: &[Live; 2]) {
    let all = [Objects::open(&nets[0]), Objects::open(&nets[1])];
    let classes = [all[0].class::<Count>(1), all[1].class::<Count>(1)];
    let opened: [RefCell<Option<_>>; 2] = Default::default();
    let open = |at: usize| -> Work<'_> {
        let (class, to) = (&classes[at], &opened[at]);
        Box::pin(async move {
            to.replace(Some(class.open(0, Placement::At(1), Count::default).await.unwrap()));
        })
    };
    both(nets, [open(0), open(1)]);
    let object = opened[0].borrow().clone().unwrap();
    rounds(nets, &|| Box::pin(async { assert_eq!(object.call(Null).await.unwrap(), 0) }));
}

fn misses(nets: &[Live; 2]) {
    let all = [Regions::open(&nets[0]), Regions::open(&nets[1])];
    let home = all[1].create(vec![0u64; 2]).unwrap();
    let mapped = RefCell::new(None);
    let map = || -> Work<'_> {
        Box::pin(async {
            mapped.replace(Some(all[0].map::<u64>(home.id()).await.unwrap()));
        })
    };
    both(nets, [map(), Box::pin(async {})]);
    let region = mapped.take().unwrap();
    rounds(nets, &|| {
        Box::pin(async {
            drop(region.write().await.unwrap());
            region.flush();
        })
    });
}

/// Opens an ordered group whose deliveries are counted.
fn groups(nets: &[Live; 2], come: &Rc<Cell<usize>>) -> [OrderedGroup<Live>; 2] {
    let open = |at: usize| {
        let group = OrderedGroup::open(&nets[at], 0, &[0, 1], Options::default());
        let count = Rc::clone(come);
        group.on_deliver(move |_| count.set(count.get() + 1));
        group
    };
    let groups = [open(0), open(1)];
    let view = |at: usize| -> Work<'_> {
        let group = &groups[at];
        Box::pin(async move { drop(group.view_when(|_| true).await.unwrap()) })
    };
    both(nets, [view(0), view(1)]);
    groups
}

/// One message at a time: from rank 1, which has to ask rank 0 for its place.
fn ordered_one(nets: &[Live; 2]) {
    let come = Rc::<Cell<usize>>::default();
    let groups = groups(nets, &come);
    let nets = [nets[1].clone(), nets[0].clone()];
    rounds(&nets, &|| {
        let (before, come) = (come.get(), Rc::clone(&come));
        drop(groups[1].send(vec![7; 16]));
        Box::pin(std::future::poll_fn(move |_| match come.get() == before + 2 {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }))
    });
}

/// The multicast alone.
fn multicasts(nets: &[Live; 2]) {
    let come = Rc::<Cell<bool>>::default();
    let note = Rc::clone(&come);
    nets[1].handle(1, move |_| note.set(true));
    let group = [0, 1].map(|at| nets[at].group(1, 0, &[0, 1]).unwrap());
    rounds(nets, &|| {
        nets[0].try_multicast(&group[0], 1, 0, &[7; 16]).unwrap();
        let come = Rc::clone(&come);
        Box::pin(std::future::poll_fn(move |_| match come.take() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }))
    });
}

fn ordered(nets: &[Live; 2]) {
    let come = Rc::<Cell<usize>>::default();
    let groups = groups(nets, &come);
    for _ in 0..ROUNDS / 100 {
        let before = come.get();
        for group in &groups {
            (0..100).for_each(|_| drop(group.send(vec![7; 1024])));
        }
        while come.get() < before + 400 {
            nets.iter().for_each(serve);
        }
    }
}

fn main() {
    let links = Links::parse("shm").unwrap();
    let open = || open_endpoint(config_from_env().unwrap(), links, [1; 32]).unwrap();
    let ends: [Endpoint; 2] = [open(), open()];
    let all: Vec<Address> = ends.iter().map(Endpoint::address).collect();
    let net = |at: usize| Live::new(&Group::new(ends[at].clone(), all.clone(), at)).unwrap();
    let nets = [net(0), net(1)];
    match std::env::args().nth(1).as_deref() {
        Some("call") => calls(&nets),
        Some("entry") => entries(&nets),
        Some("operation") => operations(&nets),
        Some("miss") => misses(&nets),
        Some("ordered") => ordered(&nets),
        Some("multicast") => multicasts(&nets),
        Some("ordered-one") => ordered_one(&nets),
        _ => packets(&nets),
    }
}
