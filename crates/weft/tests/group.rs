//! Collective operations of real endpoints, over every tree.
#![allow(non_snake_case)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;
use weft::{Bf16, Complex, Element, Number, F16};
use weft::{Clock, Config, Endpoint, EndpointId, Group, Op, OpError, PeerId, Tree};
use weft_link::{ShmConfig, ShmLink};

const SIZES: [usize; 4] = [1, 2, 5, 8];

/// Runs `program` as each of `size` ranks, each in a thread, over shared memory.
fn ranks(size: usize, tree: Tree, program: impl Fn(&Group) + Sync) {
    let (addresses, met) = (Mutex::new(vec![None; size]), Barrier::new(size));
    let rank = |me: usize| {
        let id = EndpointId(weft_link::random_u64());
        let link = Box::new(ShmLink::new(ShmConfig::new(id)).unwrap());
        let config = Config { tree, spin_us: 0, ..Config::default() };
        let endpoint = Endpoint::with_links(config, id, Clock::system(), vec![link]);
        addresses.lock().unwrap()[me] = Some(endpoint.address());
        met.wait();
        let all: Option<Vec<_>> = addresses.lock().unwrap().iter().cloned().collect();
        program(&Group::new(endpoint.clone(), all.unwrap(), me));
        endpoint.close(Duration::from_secs(60));
        met.wait();
    };
    std::thread::scope(|s| {
        (0..size).for_each(|me| {
            s.spawn(move || rank(me));
        });
    });
}

fn message(rank: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + rank * 31) as u8).collect()
}

/// Runs `program` on groups of all sizes with each tree.
fn everywhere(program: impl Fn(&Group, Tree) + Sync) {
    for size in SIZES {
        for &tree in Tree::ALL {
            ranks(size, tree, |group| program(group, tree));
        }
    }
}

#[test]
fn broadcast__over_every_tree_from_every_root() {
    everywhere(|group, _| {
        for root in 0..group.size() {
            // An empty message, one of less than a part, and one of several parts.
            for len in [0, 100, 200_000] {
                let own = if group.rank() == root { message(root, len) } else { Vec::new() };
                let got = group.endpoint().block_on(group.broadcast(root, own)).unwrap();
                assert!(got == message(root, len), "{len} bytes from {root}");
            }
        }
    });
}

#[test]
fn reduce__over_every_tree_to_every_root() {
    everywhere(|group, _| {
        let size = group.size() as u64;
        for root in 0..group.size() {
            let own = vec![group.rank() as u64, 1];
            let got = group.endpoint().block_on(group.reduce(root, own, Op::Sum)).unwrap();
            let wanted = (group.rank() == root).then(|| vec![size * (size - 1) / 2, size]);
            assert_eq!(got, wanted);
        }
    });
}

#[test]
fn gather__over_every_tree_to_every_root() {
    everywhere(|group, tree| {
        for root in 0..group.size() {
            let own = || message(group.rank(), 1000 * group.rank());
            let direct = group.endpoint().block_on(group.gather(root, own())).unwrap();
            let over = group.endpoint().block_on(group.over(tree).gather(root, own())).unwrap();
            let each = || (0..group.size()).map(|r| message(r, 1000 * r)).collect::<Vec<_>>();
            let wanted = (group.rank() == root).then(each);
            assert!(direct == wanted && over == wanted, "at {} to {root}", group.rank());
        }
    });
}

#[test]
fn allreduce__over_every_tree_gives_all_ranks_the_same_bits() {
    everywhere(|group, tree| {
        let (endpoint, size) = (group.endpoint(), group.size() as u64);
        // The second vector is longer than a part of a broadcast.
        for len in [1, 20_000] {
            let own = vec![group.rank() as u64 + 1; len];
            let doubled = endpoint.block_on(group.allreduce(own.clone(), Op::Sum)).unwrap();
            let over = endpoint.block_on(group.over(tree).allreduce(own, Op::Sum)).unwrap();
            assert!(over == vec![size * (size + 1) / 2; len] && doubled == over, "{len}");
        }
        // Floating-point sums, which depend on the order of additions.
        let own = vec![0.1 * (group.rank() + 1) as f64];
        let sum = endpoint.block_on(group.over(tree).allreduce(own, Op::Sum)).unwrap()[0];
        let all = endpoint.block_on(group.allgather(sum.to_bits().to_le_bytes().into())).unwrap();
        assert!(all.iter().all(|bits| bits[..] == sum.to_bits().to_le_bytes()), "{all:?}");
    });
}

#[test]
fn allreduce__long_vectors_by_blocks_have_the_same_bits_everywhere() {
    everywhere(|group, _| {
        let (endpoint, size) = (group.endpoint(), group.size());
        for len in [16_384, 20_001, 100_003] {
            let value = |rank: usize, i: usize| 0.1_f32 * (rank + 1) as f32 + i as f32;
            let own = (0..len).map(|i| value(group.rank(), i)).collect::<Vec<_>>();
            let got = endpoint.block_on(group.allreduce(own, Op::Sum)).unwrap();
            let sum = |i: usize| (1..size).fold(value(0, i), |sum, rank| sum + value(rank, i));
            assert!(got.iter().enumerate().all(|(i, v)| v.to_bits() == sum(i).to_bits()), "{len}");
        }
    });
}

#[test]
fn reduce_scatter__gives_each_rank_its_block() {
    everywhere(|group, _| {
        let (endpoint, size, me) = (group.endpoint(), group.size(), group.rank());
        for unit in [0, 1, 7_000] {
            // The last rank gets nothing.
            let counts: Vec<_> = (0..size).map(|rank| (size - 1 - rank) * unit).collect();
            let start: usize = counts[..me].iter().sum();
            let own = (0..counts.iter().sum()).map(|i| (i * (me + 1)) as u64).collect();
            let got = endpoint.block_on(group.reduce_scatter(own, &counts, Op::Sum)).unwrap();
            let wanted = (start..start + counts[me]).map(|i| (i * size * (size + 1) / 2) as u64);
            assert!(got.into_iter().eq(wanted), "{unit}");
        }
    });
}

#[test]
fn reduce_scatter__ranks_with_other_counts_end_with_an_error() {
    ranks(3, Tree::Flat, |group| {
        // The last rank's block has the same length for all, but not the same values.
        let counts = if group.rank() == 0 { [2, 1, 1] } else { [1, 2, 1] };
        let got = group.reduce_scatter(vec![1_u8; 4], &counts, Op::Sum).wait();
        assert!(matches!(got.unwrap_err().cause(), OpError::Mismatch { .. }));
    });
}

#[test]
fn reduce_scatter__counts_that_do_not_fit_are_refused() {
    ranks(2, Tree::Flat, |group| {
        for counts in [&[1][..], &[1, 2], &[usize::MAX, usize::MAX]] {
            let got = group.endpoint().block_on(group.reduce_scatter(vec![1_u8], counts, Op::Sum));
            assert!(matches!(got.unwrap_err().cause(), OpError::Count { .. }), "{counts:?}");
        }
    });
}

#[test]
fn barrier__over_every_tree_no_rank_leaves_before_all_have_come() {
    for size in SIZES {
        for &tree in Tree::ALL {
            let come = AtomicUsize::new(0);
            ranks(size, tree, |group| {
                for round in 1..=5 {
                    come.fetch_add(1, Ordering::AcqRel);
                    match round % 2 {
                        0 => group.endpoint().block_on(group.barrier()).unwrap(),
                        _ => group.endpoint().block_on(group.over(tree).barrier()).unwrap(),
                    }
                    assert!(come.load(Ordering::Acquire) >= round * size, "{tree:?} of {size}");
                }
            });
        }
    }
}

#[test]
fn allgather__everyone_gets_all_messages_in_order_of_rank() {
    for size in SIZES {
        ranks(size, Tree::Binomial, |group| {
            // Empty messages, messages of less than a packet, and large ones, of different lengths.
            for unit in [0, 100, 50_000] {
                let own = message(group.rank(), unit * group.rank());
                let got = group.endpoint().block_on(group.allgather(own)).unwrap();
                let wanted: Vec<_> = (0..size).map(|r| message(r, unit * r)).collect();
                assert!(got == wanted, "{unit} at {} of {size}", group.rank());
            }
        });
    }
}

#[test]
fn scatter__everyone_gets_what_the_root_has_for_it() {
    for size in SIZES {
        ranks(size, Tree::Binomial, |group| {
            for root in 0..size {
                // Empty messages, messages of less than a packet, and large ones, of different
                // lengths.
                for unit in [0, 100, 50_000] {
                    let all = || (0..size).map(|to| message(to, unit * to)).collect();
                    let own = if group.rank() == root { all() } else { Vec::new() };
                    let got = group.scatter_blocking(root, own).unwrap();
                    let me = group.rank();
                    assert!(got == message(me, unit * me), "{unit} at {me} of {size}");
                }
            }
        });
    }
}

#[test]
fn reductions__of_vectors_of_different_lengths_are_errors() {
    ranks(2, Tree::Binomial, |group| {
        let len = [2, 1][group.rank()];
        let error = group.allreduce_blocking(vec![1u32; len], Op::Sum).unwrap_err();
        let (own, other) = (4 * len as u64, 12 - 4 * len as u64);
        let rank = 1 - group.rank() as u32;
        assert_eq!(error.cause(), OpError::Uneven { rank, wanted: own, given: other });
        assert_eq!(error.rank(), Some(rank as usize));
        let reduced = group.reduce_blocking(0, vec![1u64; len], Op::Sum);
        match group.rank() {
            0 => assert_eq!(
                reduced.unwrap_err().cause(),
                OpError::Uneven { rank: 1, wanted: 16, given: 8 }
            ),
            _ => assert_eq!(reduced.unwrap(), None),
        }
    });
}

#[test]
fn allreduce__combines_by_every_operation() {
    ranks(3, Tree::Binomial, |group| {
        // The values 2, 3, 6; in the small type the product wraps.
        let own = [2, 3, 6][group.rank()];
        let of = |op| group.allreduce_blocking(vec![i64::from(own), -1], op).unwrap();
        assert_eq!(of(Op::Sum), [11, -3]);
        assert_eq!(of(Op::Product), [36, -1]);
        assert_eq!((of(Op::Min), of(Op::Max)), (vec![2, -1], vec![6, -1]));
        assert_eq!((of(Op::And), of(Op::Or), of(Op::Xor)), (vec![2, -1], vec![7, -1], vec![7, -1]));
        let small = group.allreduce_blocking(vec![own as u8 * 10], Op::Product).unwrap();
        assert_eq!(small, [(36_000 % 256) as u8]);
        let float = group.allreduce_blocking(vec![own as f32 / 2.0], Op::Product).unwrap();
        assert_eq!(float, [4.5]);
    });
}

#[test]
fn alltoall__everyone_gets_what_is_theirs() {
    for size in SIZES {
        ranks(size, Tree::Binomial, |group| {
            let (me, size) = (group.rank(), group.size());
            let own = (0..size).map(|to| message(me * size + to, 500 * to)).collect();
            let got = group.endpoint().block_on(group.alltoall(own)).unwrap();
            let wanted: Vec<_> = (0..size).map(|r| message(r * size + me, 500 * me)).collect();
            assert!(got == wanted, "at {me} of {size}");
        });
    }
}

/// Returns the number of ranks with which this one has exchanged packets.
fn partners(group: &Group) -> usize {
    (0..group.size() as u32).filter(|&n| group.rank_of(PeerId(n)).is_some()).count()
}

#[test]
fn tree__of_the_configuration_decides_the_partners() {
    let wanted = [(Tree::Flat, 7), (Tree::Chain, 1), (Tree::Binary, 2), (Tree::Binomial, 3)];
    for (tree, at_root) in wanted {
        ranks(8, tree, |group| {
            let endpoint = group.endpoint();
            endpoint.block_on(group.broadcast(0, vec![1])).unwrap();
            endpoint.block_on(group.reduce(0, vec![1u64], Op::Sum)).unwrap();
            let below = group.subset(&[0, 1, 2, 3, 4, 5, 6, 7], 1).unwrap();
            endpoint.block_on(below.broadcast(0, vec![1])).unwrap();
            if group.rank() == 0 {
                assert_eq!((partners(group), partners(&below)), (at_root, at_root), "{tree:?}");
                // A single call may name another tree.
            }
            endpoint.block_on(below.over(Tree::Flat).broadcast(0, vec![1])).unwrap();
            assert!(group.rank() != 0 || partners(&below) == 7);
            group.set_tree(Tree::Flat);
            endpoint.block_on(group.broadcast(0, vec![1])).unwrap();
            assert!(group.rank() != 0 || partners(group) == 7);
        });
    }
}

#[test]
fn operations__go_on_without_polls_and_end_in_any_order() {
    for size in SIZES {
        ranks(size, Tree::Binomial, |group| {
            let (endpoint, me) = (group.endpoint(), group.rank());
            let root = |r: usize, len| if me == r { message(r, len) } else { Vec::new() };
            // Awaited in the reverse order of the calls, and differently at odd ranks.
            let first = group.broadcast(0, root(0, 200_000));
            let second = group.allreduce(vec![me as u64 + 1], Op::Sum);
            let third = group.allgather(message(me, 100));
            let fourth = group.barrier();
            if me % 2 == 1 {
                while !(first.is_done() && second.is_done() && fourth.is_done()) {
                    endpoint.wait(Some(Duration::from_millis(50)));
                }
            }
            fourth.wait().unwrap();
            let wanted: Vec<_> = (0..size).map(|r| message(r, 100)).collect();
            assert!(third.wait().unwrap() == wanted);
            assert_eq!(second.wait().unwrap(), [(size * (size + 1) / 2) as u64]);
            assert!(first.wait().unwrap() == message(0, 200_000));
        });
    }
}

#[test]
fn operations__that_are_dropped_run_to_their_ends_for_the_other_ranks() {
    ranks(5, Tree::Chain, |group| {
        if group.rank() == 2 {
            // This rank is in the middle of the chain: it must still forward to the ranks behind
            // it.
            drop(group.broadcast(0, Vec::new()));
        } else {
            let own = if group.rank() == 0 { message(0, 200_000) } else { Vec::new() };
            assert!(group.broadcast_blocking(0, own).unwrap() == message(0, 200_000));
        }
        group.barrier_blocking().unwrap();
    });
}

#[test]
fn recv__messages_go_to_receives_in_the_order_in_which_both_were_made() {
    const LONG: usize = 1 << 20;
    ranks(2, Tree::Binomial, |group| match group.rank() {
        0 => {
            // Long, short and from any rank: each finds its message by another path of the code.
            let long = group.recv(1, 3, LONG);
            let short = group.recv(1, 3, 10);
            let any = group.recv_any(3, LONG);
            let last = group.recv(1, 3, 10);
            group.send_blocking(1, 4, &[]).unwrap();
            assert_eq!(last.wait().unwrap(), [4]);
            assert_eq!(any.wait().unwrap(), (1, vec![3]));
            assert_eq!(short.wait().unwrap(), [2]);
            assert!(long.wait().unwrap() == message(1, LONG));
            // A dropped receive takes no message.
            drop(group.recv(1, 5, LONG));
            drop(group.recv_any(5, 10));
            group.send_blocking(1, 4, &[]).unwrap();
            let mut buffer = [0; 10];
            assert_eq!(group.recv_blocking(1, 5, &mut buffer).unwrap(), 3);
            assert_eq!(buffer[..3], message(1, 3));
        }
        _ => {
            group.recv_blocking(0, 4, &mut []).unwrap();
            let sends = [message(1, LONG), vec![2], vec![3], vec![4]].map(|m| group.send(0, 3, m));
            sends.into_iter().for_each(|sent| sent.wait().unwrap());
            group.recv_blocking(0, 4, &mut []).unwrap();
            group.send(0, 5, message(1, 3)).wait().unwrap();
        }
    });
}

/// Calls `check` with a function that makes the values of a rank, for every type of number.
macro_rules! every_number {
    ($check:ident, $($ty:ty, $number:ident, $make:expr;)*) => {$(
        $check::<$ty>(Number::$number, $make);
    )*};
}

fn bits<T: Element>(values: &[T]) -> Vec<u8> {
    let mut bytes = Vec::new();
    values.iter().for_each(|value| value.put(&mut bytes));
    bytes
}

/// Checks that vectors in place, as bytes and by ownership are combined to the same values as one
/// by one in the order of ranks.
fn in_place<T: Element>(number: Number, make: fn(usize) -> T) {
    const OPS: [Op; 8] =
        [Op::Sum, Op::Product, Op::Min, Op::Max, Op::And, Op::Or, Op::Xor, Op::Average];
    for (size, lens) in [(1, [0, 5]), (2, [3, 70_000]), (4, [1, 9_000]), (5, [700, 40_001])] {
        ranks(size, Tree::Binomial, |group| {
            for len in lens {
                for op in OPS.into_iter().filter(|&op| number.takes(op)) {
                    let of = |rank: usize| -> Vec<T> {
                        (0..len).map(|at| make(at * 7 + rank * 13 + 1)).collect()
                    };
                    let own = of(group.rank());
                    let mut values = own.clone();
                    group.placed().allreduce(&mut values, op).unwrap();
                    let mut bytes = bits(&own);
                    group.placed().allreduce_bytes(&mut bytes, number, op).unwrap();
                    let owned = group.allreduce_blocking(own, op).unwrap();
                    assert!(bits(&values) == bytes && bits(&owned) == bytes, "{number:?} {op:?}");
                    // Vectors between short and long ones are combined in pairs of ranks.
                    let bytes_in_all = len * T::SIZE;
                    let in_order =
                        bytes_in_all >= 64 << 10 || size <= 2 || size == 4 && bytes_in_all <= 2048;
                    if !in_order {
                        continue;
                    }
                    let mut all = of(0);
                    (1..size).for_each(|rank| T::fold(&mut all, &bits(&of(rank)), op));
                    if op == Op::Average {
                        all.iter_mut().for_each(|value| *value = value.divide(size));
                    }
                    assert!(bits(&all) == bytes, "{number:?} {op:?}, {len} of {size} ranks");
                }
            }
        });
    }
}

#[test]
fn allreduce__in_place_is_that_of_single_values_for_every_type_and_operation() {
    every_number! {
        in_place,
        i8, I8, |n| n as i8;
        u8, U8, |n| n as u8;
        i16, I16, |n| (n * 331) as i16;
        u16, U16, |n| (n * 331) as u16;
        i32, I32, |n| (n * 7_919_191) as i32;
        u32, U32, |n| (n * 7_919_191) as u32;
        i64, I64, |n| n as i64 - 50;
        u64, U64, |n| n as u64;
        f32, F32, |n| n as f32 * 0.1 - 20.0;
        f64, F64, |n| n as f64 * 0.1 - 20.0;
        F16, F16, |n| F16::from_f32((n % 300) as f32 * 0.1 - 3.0);
        Bf16, Bf16, |n| Bf16::from_f32((n % 300) as f32 * 0.1 - 3.0);
        bool, Bool, |n| n % 3 == 0;
        Complex<f32>, ComplexF32, |n| Complex { re: n as f32 * 0.1, im: 3.0 - n as f32 };
        Complex<f64>, ComplexF64, |n| Complex { re: n as f64 * 0.1, im: 3.0 - n as f64 };
    }
}

#[test]
fn reduce_scatter__into_memory_gives_each_rank_its_block() {
    for size in SIZES {
        ranks(size, Tree::Flat, |group| {
            let me = group.rank();
            for unit in [0, 1, 30_000] {
                let counts: Vec<_> = (0..size).map(|rank| (size - 1 - rank) * unit).collect();
                let start: usize = counts[..me].iter().sum();
                let all: usize = counts.iter().sum();
                let own: Vec<_> = (0..all).map(|i| (i * (me + 1)) as u32).collect();
                let mut got = vec![7; counts[me]];
                group.placed().reduce_scatter(&own, &counts, Op::Sum, &mut got).unwrap();
                let wanted =
                    (start..start + counts[me]).map(|i| (i * size * (size + 1) / 2) as u32);
                assert!(got.iter().copied().eq(wanted), "{unit}");
                let mut bytes = vec![7; counts[me] * 4];
                let of = (Number::U32, Op::Sum);
                group.placed().reduce_scatter_bytes(&bits(&own), &counts, of, &mut bytes).unwrap();
                assert!(bits(&got) == bytes);
            }
        });
    }
}

#[test]
fn broadcast__into_memory_over_every_tree() {
    everywhere(|group, _| {
        for root in 0..group.size() {
            for len in [0, 3, 1_000_000] {
                let mut bytes = vec![0; len];
                if group.rank() == root {
                    bytes = message(root, len);
                }
                group.placed().broadcast(root, &mut bytes).unwrap();
                assert!(bytes == message(root, len), "{len} bytes from {root}");
            }
        }
    });
}

#[test]
fn allgather_and_alltoall__into_memory_by_counts() {
    for size in SIZES {
        ranks(size, Tree::Flat, |group| {
            let me = group.rank();
            for unit in [0, 5, 40_000] {
                // The first rank gives nothing.
                let counts: Vec<_> = (0..size).map(|rank| rank * unit).collect();
                let wanted: Vec<u8> = (0..size).flat_map(|r| message(r, r * unit)).collect();
                let mut all = vec![0; wanted.len()];
                let start: usize = counts[..me].iter().sum();
                all[start..start + counts[me]].copy_from_slice(&message(me, me * unit));
                group.placed().allgather(&counts, &mut all).unwrap();
                assert!(all == wanted, "allgather by {unit}");
                // Rank a gives rank b a part of (a + b) units.
                let parts: Vec<_> = (0..size).map(|rank| (me + rank) * unit).collect();
                let from: Vec<u8> =
                    (0..size).flat_map(|to| message(me * 100 + to, (me + to) * unit)).collect();
                let mut into = vec![0; from.len()];
                group.placed().alltoall((&parts, &from), (&parts, &mut into)).unwrap();
                let wanted: Vec<u8> =
                    (0..size).flat_map(|of| message(of * 100 + me, (me + of) * unit)).collect();
                assert!(into == wanted, "alltoall by {unit}");
            }
        });
    }
}

#[test]
fn into_memory__lengths_that_do_not_fit_are_refused_before_anything_is_sent() {
    ranks(2, Tree::Flat, |group| {
        let count = |result: Result<(), weft::GroupError>| {
            let error = result.unwrap_err();
            assert!(matches!(error.cause(), OpError::Count { .. }), "{error}");
        };
        count(group.placed().allreduce_bytes(&mut [0; 5], Number::F32, Op::Sum));
        count(group.placed().reduce_scatter(&[1_u8; 3], &[1, 1], Op::Sum, &mut [0]));
        count(group.placed().reduce_scatter(&[1_u8; 2], &[1, 1], Op::Sum, &mut [0; 2]));
        count(group.placed().allgather(&[1], &mut [0]));
        count(group.placed().allgather(&[1, 1], &mut [0; 3]));
        count(group.placed().alltoall((&[1, 1], &[0; 3]), (&[1, 1], &mut [0; 2])));
        for (number, op) in [(Number::I32, Op::Average), (Number::F16, Op::Xor)] {
            let error = group.placed().allreduce_bytes(&mut [0; 8], number, op).unwrap_err();
            assert_eq!(error.cause(), OpError::NoSuchOp);
        }
        group.barrier_blocking().unwrap();
    });
}

#[test]
fn into_memory__ranks_that_give_other_lengths_end_with_an_error_that_names_them() {
    for lens in [[3, 4], [30_000, 40_000]] {
        ranks(2, Tree::Flat, |group| {
            let mut own = vec![1_f32; lens[group.rank()]];
            let error = group.placed().allreduce(&mut own, Op::Sum).unwrap_err();
            assert!(error.rank().is_some(), "{error}");
        });
    }
}

#[test]
fn min_and_max__of_zeros_and_of_what_is_no_number_are_alike_on_all_ranks() {
    ranks(2, Tree::Flat, |group| {
        let own = match group.rank() {
            0 => [0.0_f32, -0.0, f32::NAN, 1.0],
            _ => [-0.0, 0.0, 2.0, f32::NAN],
        };
        let bits = |op| group.allreduce_blocking(own.to_vec(), op).unwrap();
        let (min, max) = (bits(Op::Min), bits(Op::Max));
        assert!(min[..2].iter().all(|zero| zero.to_bits() == 1 << 31));
        assert!(max[..2].iter().all(|zero| zero.to_bits() == 0));
        assert!(min[2..].iter().chain(&max[2..]).all(|value| value.is_nan()));
    });
}

#[test]
fn halves__are_the_nearest_of_every_f32_and_back() {
    for bits in 0..=u16::MAX {
        let (half, brain) = (F16(bits), Bf16(bits));
        for (value, back) in [
            (half.to_f32(), F16::from_f32(half.to_f32()).0),
            (brain.to_f32(), Bf16::from_f32(brain.to_f32()).0),
        ] {
            assert!(value.is_nan() || back == bits, "{bits:#x}");
        }
        // Halfway to the next one it goes to the even one, and beyond to the nearer.
        let next = F16(bits.wrapping_add(1)).to_f32();
        if bits & 0x7fff < 0x7bff {
            let middle = (half.to_f32() + next) / 2.0;
            assert_eq!(F16::from_f32(middle).0, bits + (bits & 1), "{bits:#x}");
            let beyond = f32::from_bits(middle.to_bits() + 1);
            assert_eq!(F16::from_f32(beyond).0, bits + 1, "{bits:#x}");
        }
    }
    assert_eq!(F16::from_f32(65_519.0).to_f32(), 65_504.0);
    assert_eq!(F16::from_f32(65_520.0).to_f32(), f32::INFINITY);
    assert_eq!(F16::from_f32(-1e9).to_f32(), f32::NEG_INFINITY);
    assert!(F16::from_f32(f32::NAN).to_f32().is_nan());
    assert_eq!(F16::from_f32(1e-9).to_f32(), 0.0);
}
