//! Collective operations of communicators.
//!
//! Each is an operation of `weft::Group`. It copies the bytes to send when it is called; its result
//! is stored in the program's memory when a call of the program finds that it has ended.

use super::comm::WeftComm;
use super::request::{cut, Ended, WeftRequest, WeftStatus};
use crate::fault::{code_of, Fault, WEFT_ARGUMENT};
use crate::job::WeftJob;
use crate::sys::{copied, Borrowed, Given, Out};
use std::ffi::c_int;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use weft::{Bf16, Complex, Element, Number, Op, OpError, Started, F16};

/// Integers of 8 bits with a sign.
pub const WEFT_INT8: c_int = 0;
/// Integers of 8 bits without one.
pub const WEFT_UINT8: c_int = 1;
/// Integers of 16 bits with a sign.
pub const WEFT_INT16: c_int = 2;
/// Integers of 16 bits without one.
pub const WEFT_UINT16: c_int = 3;
/// Integers of 32 bits with a sign.
pub const WEFT_INT32: c_int = 4;
/// Integers of 32 bits without one.
pub const WEFT_UINT32: c_int = 5;
/// Integers of 64 bits with a sign.
pub const WEFT_INT64: c_int = 6;
/// Integers of 64 bits without one.
pub const WEFT_UINT64: c_int = 7;
/// Floating-point numbers of 32 bits.
pub const WEFT_FLOAT: c_int = 8;
/// Floating-point numbers of 64 bits.
pub const WEFT_DOUBLE: c_int = 9;

/// Floating-point numbers of 16 bits (IEEE 754 binary16).
pub const WEFT_FLOAT16: c_int = 10;
/// Floating-point numbers of 16 bits with the exponent of 32 bits (bfloat16).
pub const WEFT_BFLOAT16: c_int = 11;
/// Truth values: bytes that are 0 or not.
pub const WEFT_BOOL: c_int = 12;
/// Complex numbers of two `float`.
pub const WEFT_COMPLEX_FLOAT: c_int = 13;
/// Complex numbers of two `double`.
pub const WEFT_COMPLEX_DOUBLE: c_int = 14;

/// Sum; integers wrap.
pub const WEFT_SUM: c_int = 0;
/// Product; integers wrap.
pub const WEFT_PRODUCT: c_int = 1;
/// The smaller.
pub const WEFT_MIN: c_int = 2;
/// The larger.
pub const WEFT_MAX: c_int = 3;
/// The bits that both have.
pub const WEFT_AND: c_int = 4;
/// The bits that one has, or both.
pub const WEFT_OR: c_int = 5;
/// The bits that one has, and not the other.
pub const WEFT_XOR: c_int = 6;

/// The sum, divided by the number of ranks; floating-point and complex numbers only.
pub const WEFT_AVERAGE: c_int = 7;

/// Operations by their numbers.
const OPS: [Op; 8] =
    [Op::Sum, Op::Product, Op::Min, Op::Max, Op::And, Op::Or, Op::Xor, Op::Average];

/// The communicator of an operation, and its job.
pub(crate) type Ranks<'a> = (&'a WeftComm, &'a WeftJob);

/// The request of an operation that was started.
pub(crate) type Begun = Result<Rc<WeftRequest>, Fault>;

/// Makes the request of an operation; at its end `deliver` stores the result in the program's
/// memory.
fn request_of<T: 'static>(
    job: &WeftJob,
    mut started: Started<T>,
    deliver: impl FnOnce(T) -> Ended + 'static,
) -> Begun {
    let mut deliver = Some(deliver);
    let check = move || {
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(result) = Pin::new(&mut started).poll(&mut cx) else { return None };
        Some(match (result, deliver.take()) {
            (Ok(result), Some(deliver)) => deliver(result),
            (Ok(_), None) => Ok(WeftStatus::NOTHING),
            (Err(error), _) => {
                let source = error.rank().map_or(-1, |rank| rank as c_int);
                let code = code_of(error.cause());
                Err((WeftStatus { source, code, ..WeftStatus::NOTHING }, error.to_string()))
            }
        })
    };
    Ok(WeftRequest::collective(job, Box::new(check)))
}

/// Memory of the program with a place of `each` bytes for each rank, in order of rank.
pub(crate) struct Places {
    pub(crate) all: Given<u8>,
    pub(crate) each: usize,
    /// The lengths of the contents of the places, unless null.
    pub(crate) lens: Given<usize>,
}

/// Places for a number of ranks.
struct RankPlaces {
    all: Borrowed<u8>,
    each: usize,
    lens: Option<Borrowed<usize>>,
}

impl Places {
    /// Checks the pointers for this number of ranks.
    ///
    /// # Errors
    /// The memory is null, larger than an address space, or not there; the lengths are misaligned.
    fn of(self, ranks: usize) -> Result<RankPlaces, Fault> {
        let Places { all, each, lens } = self;
        let len = each.checked_mul(ranks);
        let len = len.ok_or_else(|| Fault::argument("each is beyond all memory"))?;
        let lens = (!lens.is_null()).then(|| lens.values("the list of lengths", ranks));
        Ok(RankPlaces { all: all.values("memory", len)?, each, lens: lens.transpose()? })
    }
}

impl RankPlaces {
    /// Copies the contents of the places: as many bytes as the lengths say, or all.
    ///
    /// # Errors
    /// A length is larger than a place; the machine has no memory for the copy.
    fn contents(&self, ranks: usize) -> Result<Vec<Vec<u8>>, Fault> {
        let of = |rank: usize| {
            let len = self.lens.as_ref().map_or(self.each, |lens| lens.as_slice()[rank]);
            if len > self.each {
                let text = format!("{len} bytes for rank {rank}, whose place has {}", self.each);
                return Err(Fault::argument(&text));
            }
            let from = rank * self.each;
            copied(&self.all.as_slice()[from..from + len])
        };
        (0..ranks).map(of).collect()
    }

    /// Stores a message of each rank in its place, and its length. Of a longer message the first
    /// part is stored, and an error is returned.
    fn fill(&self, messages: &[Vec<u8>]) -> Ended {
        let mut longer = None;
        for (rank, message) in messages.iter().enumerate() {
            self.lens.iter().for_each(|lens| lens.put(rank, &[message.len()]));
            let put = put(message, &self.all, rank * self.each, self.each);
            longer = longer.or(put.err().map(|(status, text)| {
                (WeftStatus { source: rank as c_int, ..status }, format!("of rank {rank} {text}"))
            }));
        }
        longer.map_or(Ok(WeftStatus::NOTHING), Err)
    }
}

/// Copies a message to memory of the program, at most `room` bytes. Of a longer message the first
/// part is copied, and an error is returned.
fn put(message: &[u8], into: &Borrowed<u8>, at: usize, room: usize) -> Ended {
    into.put(at, &message[..message.len().min(room)]);
    let status = WeftStatus { len: message.len(), ..WeftStatus::NOTHING };
    match message.len() > room {
        true => Err(cut(status, room)),
        false => Ok(status),
    }
}

/// Begins a barrier.
pub(crate) fn barrier((comm, job): Ranks<'_>) -> Begun {
    request_of(job, comm.group.barrier(), |()| Ok(WeftStatus::NOTHING))
}

/// Begins a broadcast: copies the root's bytes to every rank.
///
/// # Errors
/// There is no such root; the machine has no memory for the copy.
pub(crate) fn broadcast((comm, job): Ranks<'_>, root: c_int, data: Borrowed<u8>) -> Begun {
    let (root, is_root) = comm.root(root)?;
    let own = if is_root { data.copied()? } else { Vec::new() };
    let len = data.len();
    request_of(job, comm.group.broadcast(root, own), move |message| match is_root {
        true => Ok(WeftStatus { len, ..WeftStatus::NOTHING }),
        false if message.len() < len => Err((
            WeftStatus { len: message.len(), code: WEFT_ARGUMENT, ..WeftStatus::NOTHING },
            format!(
                "rank {root} broadcasts {} bytes, and this rank expects {len}: all ranks pass the \
                 same length",
                message.len()
            ),
        )),
        false => put(&message, &data, 0, len),
    })
}

/// The values of a reduction, the memory for its result, and the operation.
pub(crate) struct Reduction {
    pub(crate) data: Given<u8>,
    pub(crate) result: Given<u8>,
    pub(crate) count: usize,
    pub(crate) kind: c_int,
    pub(crate) op: c_int,
}

/// The ranks that get the result of a reduction.
#[derive(Clone, Copy)]
pub(crate) enum Gets {
    /// All of them.
    All,
    /// The root.
    Root(c_int),
}

/// Begins a reduction: combines the values of all ranks at a root, or at all ranks.
///
/// # Errors
/// There is no such root, type or operation, or the type lacks the operation; memory is null,
/// misaligned or not there.
pub(crate) fn reduce(ranks: Ranks<'_>, gets: Gets, reduction: Reduction) -> Begun {
    match (reduction.kind, gets) {
        (WEFT_INT8, Gets::Root(root)) => reduction.for_root::<i8>(ranks, root),
        (WEFT_UINT8, Gets::Root(root)) => reduction.for_root::<u8>(ranks, root),
        (WEFT_INT16, Gets::Root(root)) => reduction.for_root::<i16>(ranks, root),
        (WEFT_UINT16, Gets::Root(root)) => reduction.for_root::<u16>(ranks, root),
        (WEFT_INT32, Gets::Root(root)) => reduction.for_root::<i32>(ranks, root),
        (WEFT_UINT32, Gets::Root(root)) => reduction.for_root::<u32>(ranks, root),
        (WEFT_INT64, Gets::Root(root)) => reduction.for_root::<i64>(ranks, root),
        (WEFT_UINT64, Gets::Root(root)) => reduction.for_root::<u64>(ranks, root),
        (WEFT_FLOAT, Gets::Root(root)) => reduction.for_root::<f32>(ranks, root),
        (WEFT_DOUBLE, Gets::Root(root)) => reduction.for_root::<f64>(ranks, root),
        (WEFT_FLOAT16, Gets::Root(root)) => reduction.for_root::<F16>(ranks, root),
        (WEFT_BFLOAT16, Gets::Root(root)) => reduction.for_root::<Bf16>(ranks, root),
        (WEFT_COMPLEX_FLOAT, Gets::Root(root)) => reduction.for_root::<Complex<f32>>(ranks, root),
        (WEFT_COMPLEX_DOUBLE, Gets::Root(root)) => reduction.for_root::<Complex<f64>>(ranks, root),
        (WEFT_BOOL, Gets::Root(_)) => {
            Err(Fault::argument("truth values are combined for all ranks only"))
        }
        (_, Gets::All) => reduction.for_all(ranks),
        (kind, _) => Err(no_type(kind)),
    }
}

fn no_type(kind: c_int) -> Fault {
    Fault::argument(format!("there is no type of values {kind}"))
}

/// Types by their numbers, and the size of the parts to which their values are aligned.
const TYPES: [(Number, usize); 15] = [
    (Number::I8, 1),
    (Number::U8, 1),
    (Number::I16, 2),
    (Number::U16, 2),
    (Number::I32, 4),
    (Number::U32, 4),
    (Number::I64, 8),
    (Number::U64, 8),
    (Number::F32, 4),
    (Number::F64, 8),
    (Number::F16, 2),
    (Number::Bf16, 2),
    (Number::Bool, 1),
    (Number::ComplexF32, 4),
    (Number::ComplexF64, 8),
];

/// Turns values of this machine's byte order into little-endian ones, or back.
fn turn(mut bytes: Vec<u8>, part: usize) -> Vec<u8> {
    if cfg!(target_endian = "big") {
        bytes.chunks_exact_mut(part).for_each(<[u8]>::reverse);
    }
    bytes
}

/// Checks memory of the program for so many parts of a size; returns it as bytes.
///
/// # Errors
/// The memory is null, misaligned or not there, or larger than an address space.
fn aligned(given: Given<u8>, name: &str, count: usize, part: usize) -> Result<Borrowed<u8>, Fault> {
    let len = count.checked_mul(part);
    let len = len.ok_or_else(|| Fault::argument("count is beyond all memory"))?;
    match part {
        2 => given.cast::<u16>().values(name, count).map(|_| ())?,
        4 => given.cast::<u32>().values(name, count).map(|_| ())?,
        8 => given.cast::<u64>().values(name, count).map(|_| ())?,
        _ => {}
    }
    given.values(name, len)
}

/// The values of a reduction as little-endian bytes, and the size of their parts.
struct Values {
    of: (Number, Op),
    bytes: Vec<u8>,
    part: usize,
}

impl Reduction {
    /// Returns the operation.
    ///
    /// # Errors
    /// There is none of this number.
    fn op(&self) -> Result<Op, Fault> {
        let op = usize::try_from(self.op).ok().and_then(|at| OPS.get(at).copied());
        op.ok_or_else(|| Fault::argument(format!("there is no operation {}", self.op)))
    }

    /// Returns the values.
    ///
    /// # Errors
    /// There is no such type or operation, or the type lacks the operation; memory is null,
    /// misaligned or not there.
    fn numbers(&self) -> Result<Values, Fault> {
        let op = self.op()?;
        let known = usize::try_from(self.kind).ok().and_then(|at| TYPES.get(at).copied());
        let (number, part) = known.ok_or_else(|| no_type(self.kind))?;
        if !number.takes(op) {
            return Err(Fault::argument(OpError::NoSuchOp.to_string()));
        }
        let parts = number.size() / part;
        let count = self.count.saturating_mul(parts);
        let bytes = aligned(self.data, "data", count, part)?.copied()?;
        Ok(Values { of: (number, op), bytes: turn(bytes, part), part })
    }

    /// Begins the reduction for all ranks.
    fn for_all(self, (comm, job): Ranks<'_>) -> Begun {
        let Values { of: (number, op), bytes, part } = self.numbers()?;
        let result = aligned(self.result, "result", bytes.len() / part, part)?;
        let started = comm.group.placed().start_allreduce(bytes, number, op);
        request_of(job, started, move |bytes| {
            result.put(0, &turn(bytes, part));
            Ok(WeftStatus::NOTHING)
        })
    }

    /// Begins the reduction of values of type `T` to the root.
    fn for_root<T: Element>(self, (comm, job): Ranks<'_>, root: c_int) -> Begun {
        let op = self.op()?;
        if !T::takes(op) {
            return Err(Fault::argument(OpError::NoSuchOp.to_string()));
        }
        let (root, is_root) = comm.root(root)?;
        let room = if is_root { self.count } else { 0 };
        let data = self.data.cast::<T>().values("data", self.count)?;
        let result = self.result.cast::<T>().values("result", room)?;
        let values = data.copied()?;
        request_of(job, comm.group.reduce(root, values, op), move |values| {
            values.into_iter().for_each(|values| result.put(0, &values));
            Ok(WeftStatus::NOTHING)
        })
    }
}

/// Begins a reduction of which each rank gets a block: `counts` has their numbers of values.
///
/// # Errors
/// There is no such type or operation, or the type lacks the operation; memory is null, misaligned
/// or not there.
pub(crate) fn reduce_scatter(
    (comm, job): Ranks<'_>,
    counts: Given<usize>,
    mut reduction: Reduction,
) -> Begun {
    let counts = counts.values("counts", comm.size())?.copied()?;
    let sum = counts.iter().try_fold(0_usize, |sum, &count| sum.checked_add(count));
    reduction.count = sum.ok_or_else(|| Fault::argument("counts are beyond all memory"))?;
    let Values { of, bytes, part } = reduction.numbers()?;
    let own = counts[comm.group.rank()] * (of.0.size() / part);
    let result = aligned(reduction.result, "result", own, part)?;
    let started = comm.group.placed().start_reduce_scatter(bytes, &counts, of);
    request_of(job, started, move |bytes| {
        result.put(0, &turn(bytes, part));
        Ok(WeftStatus::NOTHING)
    })
}

/// Begins a gather to the root, or without one an allgather: collects a message of every rank.
///
/// # Errors
/// There is no such root; the places are null, misaligned or not there.
pub(crate) fn gather(
    (comm, job): Ranks<'_>,
    root: Option<c_int>,
    data: &Borrowed<u8>,
    into: Places,
) -> Begun {
    let own = data.copied()?;
    match root.map(|root| comm.root(root)).transpose()? {
        None => {
            let into = into.of(comm.size())?;
            request_of(job, comm.group.allgather(own), move |all| into.fill(&all))
        }
        Some((root, is_root)) => {
            let into = is_root.then(|| into.of(comm.size())).transpose()?;
            request_of(job, comm.group.gather(root, own), move |all| {
                all.zip(into).map_or(Ok(WeftStatus::NOTHING), |(all, into)| into.fill(&all))
            })
        }
    }
}

/// Begins a scatter: sends each rank its part of the root's bytes, and stores their number in
/// `got`.
///
/// # Errors
/// There is no such root; the places are null, misaligned or not there.
pub(crate) fn scatter(
    (comm, job): Ranks<'_>,
    root: c_int,
    from: Places,
    data: Borrowed<u8>,
    got: Option<Out<usize>>,
) -> Begun {
    let (root, is_root) = comm.root(root)?;
    let all = match is_root {
        true => from.of(comm.size())?.contents(comm.size())?,
        false => Vec::new(),
    };
    request_of(job, comm.group.scatter(root, all), move |message| {
        got.iter().for_each(|got| got.store(message.len()));
        put(&message, &data, 0, data.len())
    })
}

/// Begins an exchange of all with all: sends each rank a part, and stores the part that each has
/// sent here.
///
/// # Errors
/// The places are null, misaligned or not there.
pub(crate) fn alltoall((comm, job): Ranks<'_>, from: Places, into: Places) -> Begun {
    let own = from.of(comm.size())?.contents(comm.size())?;
    let into = into.of(comm.size())?;
    request_of(job, comm.group.alltoall(own), move |all| into.fill(&all))
}
