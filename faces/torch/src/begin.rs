//! The operations of a process group over those of weft. Each begins when it is called: all ranks
//! call the same ones in the same order. The future that is returned writes the results into the
//! tensors; once it is dropped, nothing is written.

use crate::fault::Fault;
use crate::half::{of_bf16, of_f16, to_bf16, to_f16};
use crate::kind::{Kind, Reduction};
use crate::outcome::Ended;
use crate::sys::{Memory, Plain};
use std::future::Future;
use std::pin::Pin;
use weft::{Element, Group, Op, Started};

/// An operation that has begun.
pub type Begun = Pin<Box<dyn Future<Output = Ended>>>;

/// Elements that reductions combine.
trait Combined: 'static {
    /// The element in memory.
    type Raw: Plain;
    /// The number that is combined.
    type Number: Element;

    fn number(raw: Self::Raw) -> Self::Number;
    fn raw(number: Self::Number) -> Self::Raw;
    fn divided(number: Self::Number, by: usize) -> Self::Number;

    /// Returns the operation on the numbers.
    fn op(reduction: Reduction) -> Op {
        reduction.op
    }
}

macro_rules! combined {
    ($($type:ty, $divided:expr;)*) => {$(
        impl Combined for $type {
            type Raw = $type;
            type Number = $type;

            fn number(raw: $type) -> $type {
                raw
            }

            fn raw(number: $type) -> $type {
                number
            }

            fn divided(number: $type, by: usize) -> $type {
                $divided(number, by)
            }
        }
    )*};
}

/// Divides whole numbers, of any type, towards 0.
macro_rules! whole {
    ($type:ty) => {
        |number: $type, by: usize| (i128::from(number) / by as i128) as $type
    };
}

combined! {
    u8, whole!(u8);
    i8, whole!(i8);
    u16, whole!(u16);
    i16, whole!(i16);
    u32, whole!(u32);
    i32, whole!(i32);
    u64, whole!(u64);
    i64, whole!(i64);
    f32, |number: f32, by: usize| number / by as f32;
    f64, |number: f64, by: usize| number / by as f64;
}

/// Truth values, in a byte each.
struct Truth;
/// Numbers of IEEE 754 binary16.
struct F16;
/// Numbers of bfloat16.
struct Bf16;

impl Combined for Truth {
    type Raw = u8;
    type Number = u8;

    fn number(raw: u8) -> u8 {
        u8::from(raw != 0)
    }

    fn raw(number: u8) -> u8 {
        number
    }

    fn divided(number: u8, _by: usize) -> u8 {
        number
    }

    fn op(reduction: Reduction) -> Op {
        reduction.of_truths()
    }
}

macro_rules! half {
    ($type:ty, $number:expr, $raw:expr) => {
        impl Combined for $type {
            type Raw = u16;
            type Number = f32;

            fn number(raw: u16) -> f32 {
                $number(raw)
            }

            fn raw(number: f32) -> u16 {
                $raw(number)
            }

            fn divided(number: f32, by: usize) -> f32 {
                number / by as f32
            }
        }
    };
}

half!(F16, of_f16, to_f16);
half!(Bf16, of_bf16, to_bf16);

/// Calls a function for elements of a type.
macro_rules! of_kind {
    ($kind:expr, $function:ident($($argument:expr),*)) => {
        match $kind {
            Kind::Bool => $function::<Truth>($($argument),*),
            Kind::U8 => $function::<u8>($($argument),*),
            Kind::I8 => $function::<i8>($($argument),*),
            Kind::U16 => $function::<u16>($($argument),*),
            Kind::I16 => $function::<i16>($($argument),*),
            Kind::U32 => $function::<u32>($($argument),*),
            Kind::I32 => $function::<i32>($($argument),*),
            Kind::U64 => $function::<u64>($($argument),*),
            Kind::I64 => $function::<i64>($($argument),*),
            Kind::F16 => $function::<F16>($($argument),*),
            Kind::Bf16 => $function::<Bf16>($($argument),*),
            Kind::F32 => $function::<f32>($($argument),*),
            Kind::F64 => $function::<f64>($($argument),*),
        }
    };
}

/// Returns the numbers of elements in memory.
fn numbers<C: Combined>(memory: &Memory) -> Vec<C::Number> {
    memory.values::<C::Raw>().into_iter().map(C::number).collect()
}

/// Writes combined numbers to memory.
fn fill<C: Combined>(memory: &Memory, numbers: Vec<C::Number>, average_of: Option<usize>) {
    let divided = |number| match average_of {
        Some(ranks) => C::divided(number, ranks),
        None => number,
    };
    let raw: Vec<C::Raw> = numbers.into_iter().map(|number| C::raw(divided(number))).collect();
    memory.fill(&raw);
}

/// Combines the elements of all ranks, on every rank.
pub fn allreduce(group: &Group, memory: Memory, kind: Kind, by: Reduction) -> Begun {
    fn of<C: Combined>(group: &Group, memory: Memory, by: Reduction) -> Begun {
        let average_of = by.is_average.then_some(group.size());
        let started = group.allreduce(numbers::<C>(&memory), C::op(by));
        Box::pin(async move {
            fill::<C>(&memory, started.await?, average_of);
            Ok(None)
        })
    }
    of_kind!(kind, of(group, memory, by))
}

/// Combines the elements of all ranks, at the root.
pub fn reduce(group: &Group, root: usize, memory: Memory, kind: Kind, by: Reduction) -> Begun {
    fn of<C: Combined>(group: &Group, root: usize, memory: Memory, by: Reduction) -> Begun {
        let average_of = by.is_average.then_some(group.size());
        let started = group.reduce(root, numbers::<C>(&memory), C::op(by));
        Box::pin(async move {
            if let Some(all) = started.await? {
                fill::<C>(&memory, all, average_of);
            }
            Ok(None)
        })
    }
    of_kind!(kind, of(group, root, memory, by))
}

/// Combines the elements of all ranks: `from` has a part for each rank, `into` gets this rank's.
pub fn reduce_scatter(
    group: &Group,
    from: Vec<Memory>,
    into: Memory,
    kind: Kind,
    by: Reduction,
) -> Begun {
    fn of<C: Combined>(group: &Group, from: Vec<Memory>, into: Memory, by: Reduction) -> Begun {
        let average_of = by.is_average.then_some(group.size());
        let counts: Vec<usize> = from.iter().map(|part| part.len() / size_of::<C::Raw>()).collect();
        let values = from.iter().flat_map(numbers::<C>).collect();
        let started = group.reduce_scatter(values, &counts, C::op(by));
        Box::pin(async move {
            fill::<C>(&into, started.await?, average_of);
            Ok(None)
        })
    }
    of_kind!(kind, of(group, from, into, by))
}

/// Ends when all ranks have begun it.
pub fn barrier(group: &Group) -> Begun {
    let started = group.barrier();
    Box::pin(async move { Ok(started.await.map(|()| None)?) })
}

/// Gives every rank the root's bytes.
pub fn broadcast(group: &Group, root: usize, memory: Memory) -> Begun {
    let is_root = group.rank() == root;
    let data = if is_root { memory.bytes() } else { Vec::new() };
    let started = group.broadcast(root, data);
    Box::pin(async move {
        let data = started.await?;
        if !is_root {
            store(&memory, &data, root)?;
        }
        Ok(None)
    })
}

/// Gives every rank the bytes of all.
pub fn allgather(group: &Group, from: Memory, into: Vec<Memory>) -> Begun {
    parts(group.allgather(from.bytes()), into)
}

/// Sends each rank its part, and gets a part of each rank.
pub fn alltoall(group: &Group, from: Vec<Memory>, into: Vec<Memory>) -> Begun {
    parts(group.alltoall(from.iter().map(Memory::bytes).collect()), into)
}

/// Stores the messages of all ranks.
fn parts(started: Started<Vec<Vec<u8>>>, into: Vec<Memory>) -> Begun {
    Box::pin(async move {
        store_all(&into, &started.await?)?;
        Ok(None)
    })
}

/// Gives the root the bytes of all ranks.
pub fn gather(group: &Group, root: usize, from: Memory, into: Vec<Memory>) -> Begun {
    let started = group.gather(root, from.bytes());
    Box::pin(async move {
        if let Some(all) = started.await? {
            store_all(&into, &all)?;
        }
        Ok(None)
    })
}

/// Gives each rank its part of the root's bytes.
pub fn scatter(group: &Group, root: usize, from: Vec<Memory>, into: Memory) -> Begun {
    let started = group.scatter(root, from.iter().map(Memory::bytes).collect());
    Box::pin(async move {
        store(&into, &started.await?, root)?;
        Ok(None)
    })
}

/// Sends a message to a rank.
pub fn send(group: &Group, to: usize, tag: u32, memory: Memory) -> Begun {
    let started = group.send(to, tag, memory.bytes());
    Box::pin(async move { Ok(started.await.map(|()| None)?) })
}

/// Receives a message of a rank, or of any.
pub fn recv(group: &Group, from: Option<usize>, tag: u32, memory: Memory) -> Begun {
    let Some(rank) = from else {
        let started = group.recv_any(tag, memory.len());
        return Box::pin(async move {
            let (rank, data) = started.await?;
            store(&memory, &data, rank)?;
            Ok(Some(rank))
        });
    };
    let started = group.recv(rank, tag, memory.len());
    Box::pin(async move {
        store(&memory, &started.await?, rank)?;
        Ok(Some(rank))
    })
}

/// Stores the bytes of a rank.
///
/// # Errors
/// The message is longer or shorter than the tensors of this rank.
fn store(memory: &Memory, data: &[u8], rank: usize) -> Result<(), Fault> {
    if memory.len() != data.len() {
        let (here, there) = (memory.len(), data.len());
        let text = format!("rank {rank} gave {there} bytes where this rank has {here}");
        return Err(Fault::failed(text));
    }
    memory.fill(data);
    Ok(())
}

fn store_all(into: &[Memory], all: &[Vec<u8>]) -> Result<(), Fault> {
    into.iter().zip(all).enumerate().try_for_each(|(rank, (into, data))| store(into, data, rank))
}
