//! The operations of a process group over those of weft. Each begins when it is called: all ranks
//! call the same ones in the same order. Results come into the tensors themselves where these are
//! one piece of memory, else into a copy that is written to them at the end. Once the returned
//! future is dropped, nothing is written.

use crate::fault::Fault;
use crate::outcome::Ended;
use crate::sys::Memory;
use std::future::Future;
use std::pin::Pin;
use weft::{Group, Kept, Number, Op, Started};

/// An operation that has begun.
pub type Begun = Pin<Box<dyn Future<Output = Ended>>>;

/// Ends an operation on the memory of tensors, which may have been a copy.
fn kept(started: Started<Kept>, memory: Memory) -> Begun {
    Box::pin(async move {
        if let Some(bytes) = started.await?.into_bytes() {
            memory.fill(&bytes);
        }
        Ok(None)
    })
}

fn refused(fault: Fault) -> Begun {
    Box::pin(std::future::ready(Err(fault)))
}

/// Combines the elements of all ranks, on every rank.
pub fn allreduce(group: &Group, memory: Memory, of: Number, op: Op) -> Begun {
    kept(group.placed().keep_allreduce(memory.kept(), of, op), memory)
}

/// Combines the elements of all ranks, at the root; the others keep theirs.
pub fn reduce(group: &Group, root: usize, memory: Memory, (of, op): (Number, Op)) -> Begun {
    if group.rank() == root {
        return kept(group.placed().keep_reduce(root, memory.kept(), (of, op)), memory);
    }
    let started = group.placed().keep_reduce(root, Kept::of(memory.bytes()), (of, op));
    Box::pin(async move { Ok(started.await.map(|_| None)?) })
}

/// Combines the elements of all ranks: `from` has a part for each rank, `into` gets this rank's.
pub fn reduce_scatter(group: &Group, from: &[Memory], into: Memory, by: (Number, Op)) -> Begun {
    let counts: Vec<usize> = from.iter().map(|part| part.len() / by.0.size()).collect();
    let from = Memory::joined(from).kept();
    kept(group.placed().keep_reduce_scatter(from, &counts, by, into.kept()), into)
}

/// Ends when all ranks have begun it.
pub fn barrier(group: &Group) -> Begun {
    let started = group.barrier();
    Box::pin(async move { Ok(started.await.map(|()| None)?) })
}

/// Gives every rank the root's bytes.
pub fn broadcast(group: &Group, root: usize, memory: Memory) -> Begun {
    kept(group.placed().keep_broadcast(root, memory.kept()), memory)
}

/// Gives every rank the bytes of all.
pub fn allgather(group: &Group, from: &Memory, into: &[Memory]) -> Begun {
    let counts: Vec<usize> = into.iter().map(Memory::len).collect();
    let own = group.rank();
    if counts.get(own) != Some(&from.len()) {
        let text = "this rank's part of the output is not as long as its input";
        return refused(Fault::argument(text));
    }
    into[own].copy(from);
    let all = Memory::joined(into);
    kept(group.placed().keep_allgather(&counts, all.kept()), all)
}

/// Sends each rank its part, and gets a part of each rank.
pub fn alltoall(group: &Group, from: &[Memory], into: &[Memory]) -> Begun {
    let lens = |parts: &[Memory]| -> Vec<usize> { parts.iter().map(Memory::len).collect() };
    let (gives, takes) = (lens(from), lens(into));
    let (from, into) = (Memory::joined(from), Memory::joined(into));
    let from = if from.overlaps(&into) { Kept::of(from.bytes()) } else { from.kept() };
    kept(group.placed().keep_alltoall((&gives, from), (&takes, into.kept())), into)
}

/// Gives the root the bytes of all ranks.
pub fn gather(group: &Group, root: usize, from: &Memory, into: Vec<Memory>) -> Begun {
    let started = group.gather(root, from.bytes());
    Box::pin(async move {
        if let Some(all) = started.await? {
            let mut parts = into.iter().zip(&all).enumerate();
            parts.try_for_each(|(rank, (into, data))| store(into, data, rank))?;
        }
        Ok(None)
    })
}

/// Gives each rank its part of the root's bytes.
pub fn scatter(group: &Group, root: usize, from: &[Memory], into: Memory) -> Begun {
    let started = group.scatter(root, from.iter().map(Memory::bytes).collect());
    Box::pin(async move {
        store(&into, &started.await?, root)?;
        Ok(None)
    })
}

/// Sends a message to a rank.
pub fn send(group: &Group, to: usize, tag: u32, memory: &Memory) -> Begun {
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
