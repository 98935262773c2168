//! Objects over each link.

use crate::ranks::{run, LINKS};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weft_models::net::{Blocking, Net};
use weft_models::objects::{Object, ObjectCause, Objects, Placement, Read, BYTES_MAX};

#[derive(Default, Serialize, Deserialize)]
struct Sum(u64);

#[derive(Serialize, Deserialize)]
enum Op {
    Add(u64),
    Get,
    /// Waits until the sum is as large.
    Reach(u64),
}

impl Object for Sum {
    type Op = Op;
    type Reply = u64;

    fn read(&self, op: &Op) -> Read<u64> {
        match op {
            Op::Add(_) => Read::Write,
            Op::Reach(least) if self.0 < *least => Read::Wait,
            Op::Get | Op::Reach(_) => Read::Value(self.0),
        }
    }

    fn apply(&mut self, op: Op) -> u64 {
        if let Op::Add(n) = op {
            self.0 += n;
        }
        self.0
    }
}

#[test]
fn objects__sums_of_all_ranks_over_each_link_and_in_each_place() {
    const RANKS: usize = 3;
    const COUNT: u64 = 100;
    for link in LINKS {
        run(link, RANKS, |net, world| {
            let objects = Objects::open(&net);
            let class = objects.class::<Sum>(1);
            let places = [Placement::Replicated, Placement::At(1), Placement::Adaptive];
            for (number, placement) in (0..).zip(places) {
                let open = class.open(number, placement, Sum::default);
                let sum = net.block_on(open).expect("no rank fails");
                for n in 0..COUNT {
                    let before = sum.call_blocking(Op::Get).expect("no rank fails");
                    let after = sum.call_blocking(Op::Add(n)).expect("no rank fails");
                    assert!(after >= before + n, "{link}, {placement:?}");
                    sum.post(&Op::Add(1)).expect("there is room");
                }
                let all = RANKS as u64 * (COUNT * (COUNT - 1) / 2 + COUNT);
                let reached = sum.call_blocking(Op::Reach(all)).expect("no rank fails");
                assert_eq!(reached, all, "{link}, {placement:?}");
            }
            assert_eq!(objects.group().view().map(|view| view.members.len()), Some(RANKS));
            world.barrier_blocking().expect("no rank fails");
        });
    }
}

/// Bytes, of which the length alone counts.
struct Bytes(usize);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&vec![0; self.0])
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        <&[u8]>::deserialize(from).map(|bytes| Bytes(bytes.len()))
    }
}

/// The length of its result.
#[derive(Serialize, Deserialize)]
struct Echo(u64);

#[derive(Serialize, Deserialize)]
enum Long {
    Take(Bytes),
    Give,
}

impl Object for Echo {
    type Op = Long;
    type Reply = Bytes;

    fn read(&self, _: &Long) -> Read<Bytes> {
        Read::Write
    }

    fn apply(&mut self, op: Long) -> Bytes {
        match op {
            Long::Take(bytes) => bytes,
            Long::Give => Bytes(self.0 as usize),
        }
    }
}

/// A state that is too long for a message.
struct Vast;

impl Serialize for Vast {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Bytes(BYTES_MAX).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Vast {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Vast, D::Error> {
        Ok(Vast)
    }
}

impl Object for Vast {
    type Op = ();
    type Reply = ();

    fn read(&self, (): &()) -> Read<()> {
        Read::Write
    }

    fn apply(&mut self, (): ()) {}
}

#[test]
fn open__of_a_state_that_is_too_long_is_an_error_on_all_ranks() {
    run("shm", 2, |net, world| {
        let objects = Objects::open(&net);
        let class = objects.class::<Vast>(1);
        let opened = net.block_on(class.open(0, Placement::Replicated, || Vast));
        let error = opened.map(drop).unwrap_err();
        assert!(matches!(error.cause, ObjectCause::TooLong { len } if len > BYTES_MAX), "{error}");
        world.barrier_blocking().expect("no rank fails");
    });
}

#[test]
fn objects__operations_and_results_that_are_too_long_are_errors_of_the_caller() {
    run("shm", 2, |net, world| {
        let objects = Objects::open(&net);
        let class = objects.class::<Echo>(1);
        for (number, placement) in (0..).zip([Placement::Replicated, Placement::At(0)]) {
            let open = class.open(number, placement, || Echo(BYTES_MAX as u64 + 100));
            let echo = net.block_on(open).expect("no rank fails");
            if net.rank() == 1 {
                let long = Long::Take(Bytes(BYTES_MAX));
                let refused = match placement {
                    Placement::Replicated => echo.call_blocking(long).map(drop),
                    _ => echo.post(&long),
                };
                match refused.unwrap_err().cause {
                    ObjectCause::TooLong { len } => assert!(len > BYTES_MAX),
                    cause => panic!("{cause:?}"),
                }
                assert_eq!(echo.call_blocking(Long::Take(Bytes(5))).expect("it is short").0, 5);
            }
            if net.rank() == 1 && placement == Placement::At(0) {
                let error = echo.call_blocking(Long::Give).map(drop).unwrap_err();
                assert!(error.to_string().contains("it has run, but its answer of"), "{error}");
            }
        }
        world.barrier_blocking().expect("no rank fails");
    });
}
