//! Collective operations of communicators.
//!
//! Each is an operation of `weft::Group`. It copies the bytes to send when it is called; its result
//! is stored in the program's memory when a call of the program finds that it has ended.

use super::comm::WeftComm;
use super::mapped::{check_len, copied};
use super::receive::room;
use super::request::{Ended, WeftRequest, WeftStatus};
use super::{bytes, enter, object_of, store, Fault, WEFT_ARGUMENT, WEFT_OK, WEFT_TOO_LONG};
use crate::fault::code_of;
use crate::job::WeftJob;
use std::ffi::{c_int, c_void};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use weft::{Element, Op, Started};

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

/// Operations by their numbers.
const OPS: [Op; 7] = [Op::Sum, Op::Product, Op::Min, Op::Max, Op::And, Op::Or, Op::Xor];

/// The request of an operation that was started.
type Begun = Result<Box<WeftRequest>, Fault>;

/// Begins an operation and returns at its end.
///
/// # Safety
/// `comm` is a living handle of a living job.
unsafe fn wait_for(
    comm: *const WeftComm,
    begin: impl FnOnce(&WeftComm, &WeftJob) -> Begun,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (comm, job) = unsafe { object_of(comm) }?;
        job.may_wait()?;
        begin(&comm, job)?.finish(job, std::ptr::null_mut())
    })
}

/// Begins an operation and stores its request.
///
/// # Safety
/// `comm` is a living handle of a living job, `request` points to memory for a pointer.
unsafe fn hand_over(
    comm: *const WeftComm,
    request: *mut *mut WeftRequest,
    begin: impl FnOnce(&WeftComm, &WeftJob) -> Begun,
) -> c_int {
    enter(|| {
        // SAFETY: promised by the caller.
        let (comm, job) = unsafe { object_of(comm) }?;
        // SAFETY: as before.
        unsafe { store(request, std::ptr::null_mut()) }?;
        let begun = begin(&comm, job)?;
        // SAFETY: as before.
        unsafe { store(request, Box::into_raw(begun)) }?;
        Ok(WEFT_OK)
    })
}

/// Makes two functions of one operation: one that waits for its end, and one that stores its
/// request. They have the parameters given, after the communicator and before the request.
macro_rules! both {
    (
        $(#[$doc:meta])* $wait:ident, $start:ident,
        ($($arg:ident: $type:ty),*) $begin:expr
    ) => {
        $(#[$doc])*
        #[no_mangle]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $wait(comm: *mut WeftComm $(, $arg: $type)*) -> c_int {
            // SAFETY: promised by the caller.
            unsafe { wait_for(comm, $begin) }
        }

        #[doc = concat!("Starts the operation of `", stringify!($wait), "` without waiting, and")]
        /// stores its request.
        ///
        /// # Safety
        #[doc = concat!("The caller keeps the rules of `", stringify!($wait), "`, those of memory")]
        /// that is written until the request has ended; `request` points to memory for a pointer.
        #[no_mangle]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $start(
            comm: *mut WeftComm,
            $($arg: $type,)*
            request: *mut *mut WeftRequest,
        ) -> c_int {
            // SAFETY: promised by the caller.
            unsafe { hand_over(comm, request, $begin) }
        }
    };
}

/// Makes the request of an operation; at its end `deliver` stores the result in the program's
/// memory.
fn request_of<T: 'static>(
    job: &WeftJob,
    mut started: Started<T>,
    deliver: impl FnOnce(T) -> Ended + 'static,
) -> Box<WeftRequest> {
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
    WeftRequest::collective(job, Box::new(check))
}

/// Memory of the program with a place of `each` bytes for each rank, in order of rank.
#[derive(Clone, Copy)]
struct Places {
    at: *mut u8,
    each: usize,
    /// Null, or the lengths of the contents of the places.
    lens: *mut usize,
}

fn places(at: *const c_void, each: usize, lens: *const usize) -> Places {
    Places { at: at.cast_mut().cast(), each, lens: lens.cast_mut() }
}

impl Places {
    /// Checks the pointers for this number of ranks.
    ///
    /// # Errors
    /// The memory is null, larger than an address space, or not there; the lengths are misaligned.
    fn check(self, ranks: usize) -> Result<Places, Fault> {
        let all = self.each.checked_mul(ranks).filter(|&all| all <= isize::MAX as usize);
        let all = all.ok_or_else(|| Fault::argument("each is beyond all memory"))?;
        if self.at.is_null() && all > 0 || !self.lens.is_aligned() {
            return Err(Fault::argument("memory is null, or the place for lengths misaligned"));
        }
        check_len(self.at.cast(), all)?;
        Ok(self)
    }

    /// Copies the contents of the places: as many bytes as the lengths say, or all.
    ///
    /// # Safety
    /// The places of this number of ranks are readable, and so are as many lengths, unless null.
    unsafe fn contents(self, ranks: usize) -> Result<Vec<Vec<u8>>, Fault> {
        self.check(ranks)?;
        let of = |rank: usize| {
            let len = match self.lens.is_null() {
                true => self.each,
                // SAFETY: promised by the caller.
                false => unsafe { self.lens.add(rank).read() },
            };
            if len > self.each {
                let text = format!("{len} bytes for rank {rank}, whose place has {}", self.each);
                return Err(Fault::argument(&text));
            }
            // SAFETY: promised by the caller; the length is that of a place at most.
            copied(unsafe { bytes(self.at.wrapping_add(rank * self.each), len) }?)
        };
        (0..ranks).map(of).collect()
    }

    /// Stores a message of each rank in its place, and its length. Of a longer message the first
    /// part is stored, and an error is returned.
    ///
    /// # Safety
    /// The places of all ranks are writable, and so are as many lengths, unless null.
    unsafe fn fill(self, messages: &[Vec<u8>]) -> Ended {
        let mut longer = None;
        for (rank, message) in messages.iter().enumerate() {
            if !self.lens.is_null() {
                // SAFETY: promised by the caller.
                unsafe { self.lens.add(rank).write(message.len()) };
            }
            // SAFETY: promised by the caller.
            let put = unsafe { put(message, (self.at.wrapping_add(rank * self.each), self.each)) };
            longer = longer.or(put.err().map(|(status, text)| {
                (WeftStatus { source: rank as c_int, ..status }, format!("of rank {rank} {text}"))
            }));
        }
        longer.map_or(Ok(WeftStatus::NOTHING), Err)
    }
}

/// Copies a message to memory of the program. Of a longer message the first part is copied, and an
/// error is returned.
///
/// # Safety
/// `at..at + len` is writable.
unsafe fn put(message: &[u8], (at, len): (*mut u8, usize)) -> Ended {
    let fits = message.len().min(len);
    if fits > 0 {
        // SAFETY: promised by the caller.
        unsafe { std::ptr::copy_nonoverlapping(message.as_ptr(), at, fits) };
    }
    let status = WeftStatus { len: message.len(), ..WeftStatus::NOTHING };
    if message.len() > len {
        let sent = message.len();
        let text =
            format!("a message of {sent} bytes, and room for {len}: its first part is there");
        return Err((WeftStatus { code: WEFT_TOO_LONG, ..status }, text));
    }
    Ok(status)
}

/// Begins a barrier.
fn barrier(comm: &WeftComm, job: &WeftJob) -> Begun {
    Ok(request_of(job, comm.group.barrier(), |()| Ok(WeftStatus::NOTHING)))
}

both! {
    /// Returns when every rank of a communicator has called it.
    ///
    /// # Safety
    /// `comm` is a living handle of a living job.
    weft_comm_barrier, weft_comm_ibarrier,
    ()
    barrier
}

/// Begins a broadcast.
///
/// # Safety
/// `data..data + len` is readable at the root and writable elsewhere until the request has ended.
unsafe fn broadcast(
    (comm, job): (&WeftComm, &WeftJob),
    root: c_int,
    (data, len): (*mut c_void, usize),
) -> Begun {
    let (root, is_root) = comm.root(root)?;
    let own = match is_root {
        // SAFETY: promised by the caller.
        true => copied(unsafe { bytes(data.cast(), len) }?)?,
        false => {
            // SAFETY: promised by the caller.
            unsafe { room(data.cast(), len) }?;
            Vec::new()
        }
    };
    let into = (data.cast(), len);
    Ok(request_of(job, comm.group.broadcast(root, own), move |message| match is_root {
        true => Ok(WeftStatus { len, ..WeftStatus::NOTHING }),
        false if message.len() < len => Err((
            WeftStatus { len: message.len(), code: WEFT_ARGUMENT, ..WeftStatus::NOTHING },
            format!(
                "rank {root} broadcasts {} bytes, and this rank expects {len}: all ranks pass the \
                 same length",
                message.len()
            ),
        )),
        // SAFETY: promised by the caller.
        false => unsafe { put(&message, into) },
    }))
}

both! {
    /// Copies the root's bytes to every rank.
    ///
    /// # Safety
    /// `comm` is a living handle of a living job, `data..data + len` is readable at the root and
    /// writable elsewhere.
    weft_comm_broadcast, weft_comm_ibroadcast,
    (root: c_int, data: *mut c_void, len: usize)
    |comm, job| broadcast((comm, job), root, (data, len))
}

/// The values of a reduction, the memory for its result, and the operation.
#[derive(Clone, Copy)]
struct Reduction {
    data: *const c_void,
    result: *mut c_void,
    count: usize,
    kind: c_int,
    op: c_int,
}

impl Reduction {
    /// Begins the reduction, to a root or to all ranks.
    ///
    /// # Safety
    /// `data` has `count` values of the kind, and `result` room for as many, until the request has
    /// ended, on ranks that get the result.
    unsafe fn begin(self, comm: &WeftComm, job: &WeftJob, root: Option<c_int>) -> Begun {
        // SAFETY: promised by the caller.
        unsafe {
            match self.kind {
                WEFT_INT8 => self.of::<i8>(comm, job, root),
                WEFT_UINT8 => self.of::<u8>(comm, job, root),
                WEFT_INT16 => self.of::<i16>(comm, job, root),
                WEFT_UINT16 => self.of::<u16>(comm, job, root),
                WEFT_INT32 => self.of::<i32>(comm, job, root),
                WEFT_UINT32 => self.of::<u32>(comm, job, root),
                WEFT_INT64 => self.of::<i64>(comm, job, root),
                WEFT_UINT64 => self.of::<u64>(comm, job, root),
                WEFT_FLOAT => self.of::<f32>(comm, job, root),
                WEFT_DOUBLE => self.of::<f64>(comm, job, root),
                kind => Err(Fault::argument(format!("there is no type of values {kind}"))),
            }
        }
    }

    /// Begins the reduction of values of type `T`.
    ///
    /// # Safety
    /// The caller keeps the rules of `begin`.
    unsafe fn of<T: Element>(self, comm: &WeftComm, job: &WeftJob, root: Option<c_int>) -> Begun {
        let op = usize::try_from(self.op).ok().and_then(|at| OPS.get(at).copied());
        let op = op.ok_or_else(|| Fault::argument(format!("there is no operation {}", self.op)))?;
        if !T::takes(op) {
            return Err(Fault::argument(weft::OpError::NoSuchOp.to_string()));
        }
        let root = root.map(|root| comm.root(root)).transpose()?;
        let (data, result): (*const T, *mut T) = (self.data.cast(), self.result.cast());
        let receives = root.is_none_or(|(_, is_root)| is_root);
        let is_missing = data.is_null() || receives && result.is_null();
        if !data.is_aligned() || !result.is_aligned() || self.count > 0 && is_missing {
            return Err(Fault::argument("data or result is null or misaligned"));
        }
        let len = self.count.checked_mul(T::SIZE).filter(|&len| len <= isize::MAX as usize);
        let len = len.ok_or_else(|| Fault::argument("count is beyond all memory"))?;
        check_len(self.data, len)?;
        if receives {
            check_len(self.result, len)?;
        }
        let values = match self.count {
            0 => Vec::new(),
            // SAFETY: not null, aligned, and promised by the caller to have so many.
            count => copied(unsafe { std::slice::from_raw_parts(data, count) })?,
        };
        let room = self.count;
        let deliver = move |values: Vec<T>| {
            let count = values.len().min(room);
            // SAFETY: promised by the caller; nothing is read or written where there is none.
            unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), result, count) };
            Ok(WeftStatus::NOTHING)
        };
        Ok(match root {
            None => request_of(job, comm.group.allreduce(values, op), deliver),
            Some((root, _)) => {
                request_of(job, comm.group.reduce(root, values, op), move |values| {
                    values.map_or(Ok(WeftStatus::NOTHING), deliver)
                })
            }
        })
    }
}

both! {
    /// Combines the values of all ranks at the root.
    ///
    /// # Safety
    /// `comm` is a living handle of a living job, `data` has `count` values of the type; at the
    /// root `result` has room for as many.
    weft_comm_reduce, weft_comm_ireduce,
    (root: c_int, data: *const c_void, result: *mut c_void, count: usize, kind: c_int, op: c_int)
    |comm, job| Reduction { data, result, count, kind, op }.begin(comm, job, Some(root))
}

both! {
    /// Combines the values of all ranks at every rank.
    ///
    /// # Safety
    /// `comm` is a living handle of a living job, `data` has `count` values of the type, `result`
    /// room for as many.
    weft_comm_allreduce, weft_comm_iallreduce,
    (data: *const c_void, result: *mut c_void, count: usize, kind: c_int, op: c_int)
    |comm, job| Reduction { data, result, count, kind, op }.begin(comm, job, None)
}

/// Begins a gather to the root, or without one an allgather.
///
/// # Safety
/// `data..data + len` is readable; at the root, or everywhere without one, the places are writable
/// until the request has ended.
unsafe fn collect(
    (comm, job): (&WeftComm, &WeftJob),
    root: Option<c_int>,
    (data, len): (*const c_void, usize),
    into: Places,
) -> Begun {
    // SAFETY: promised by the caller.
    let own = copied(unsafe { bytes(data.cast(), len) }?)?;
    let root = root.map(|root| comm.root(root)).transpose()?;
    if root.is_none_or(|(_, is_root)| is_root) {
        into.check(comm.group.size())?;
    }
    // SAFETY: promised by the caller.
    let deliver = move |all: Vec<Vec<u8>>| unsafe { into.fill(&all) };
    Ok(match root {
        None => request_of(job, comm.group.allgather(own), deliver),
        Some((root, _)) => request_of(job, comm.group.gather(root, own), move |all| {
            all.map_or(Ok(WeftStatus::NOTHING), deliver)
        }),
    })
}

both! {
    /// Collects a message of every rank at the root.
    ///
    /// # Safety
    /// `comm` is a living handle of a living job, `data..data + len` is readable; at the root `all`
    /// has room for `each` bytes of every rank, and `lens`, unless null, for as many lengths.
    weft_comm_gather, weft_comm_igather,
    (root: c_int, data: *const c_void, len: usize, all: *mut c_void, each: usize,
     lens: *mut usize)
    |comm, job| collect((comm, job), Some(root), (data, len), places(all, each, lens))
}

both! {
    /// Copies a message of every rank to every rank.
    ///
    /// # Safety
    /// `comm` is a living handle of a living job, `data..data + len` is readable; `all` has room
    /// for `each` bytes of every rank, and `lens`, unless null, for as many lengths.
    weft_comm_allgather, weft_comm_iallgather,
    (data: *const c_void, len: usize, all: *mut c_void, each: usize, lens: *mut usize)
    |comm, job| collect((comm, job), None, (data, len), places(all, each, lens))
}

/// Begins a scatter.
///
/// # Safety
/// At the root the places are readable; `data..data + len` and `got`, unless null, are writable
/// until the request has ended.
unsafe fn scatter(
    (comm, job): (&WeftComm, &WeftJob),
    root: c_int,
    from: Places,
    (data, len): (*mut c_void, usize),
    got: *mut usize,
) -> Begun {
    let (root, is_root) = comm.root(root)?;
    let all = match is_root {
        // SAFETY: promised by the caller.
        true => unsafe { from.contents(comm.group.size()) }?,
        false => Vec::new(),
    };
    // SAFETY: promised by the caller.
    unsafe { room(data.cast(), len) }?;
    if !got.is_aligned() {
        return Err(Fault::argument("the place for the length is misaligned"));
    }
    let into = (data.cast(), len);
    Ok(request_of(job, comm.group.scatter(root, all), move |message| {
        if !got.is_null() {
            // SAFETY: promised by the caller.
            unsafe { got.write(message.len()) };
        }
        // SAFETY: promised by the caller.
        unsafe { put(&message, into) }
    }))
}

both! {
    /// Sends each rank its part of the root's bytes.
    ///
    /// # Safety
    /// `comm` is a living handle of a living job, `data..data + len` and `got`, unless null, are
    /// writable; at the root `all` has `each` bytes for every rank, and `lens`, unless null, as
    /// many lengths.
    weft_comm_scatter, weft_comm_iscatter,
    (root: c_int, all: *const c_void, each: usize, lens: *const usize, data: *mut c_void,
     len: usize, got: *mut usize)
    |comm, job| scatter((comm, job), root, places(all, each, lens), (data, len), got)
}

/// Begins an exchange of all with all.
///
/// # Safety
/// The places of `from` are readable, those of `into` writable until the request has ended.
unsafe fn alltoall(comm: &WeftComm, job: &WeftJob, (from, into): (Places, Places)) -> Begun {
    // SAFETY: promised by the caller.
    let own = unsafe { from.contents(comm.group.size()) }?;
    into.check(comm.group.size())?;
    // SAFETY: promised by the caller.
    let deliver = move |all: Vec<Vec<u8>>| unsafe { into.fill(&all) };
    Ok(request_of(job, comm.group.alltoall(own), deliver))
}

both! {
    /// Sends each rank a part, and stores the part that each has sent here.
    ///
    /// # Safety
    /// `comm` is a living handle of a living job; `data` has `each` bytes for every rank, `all`
    /// room for as many, `lens` and `got`, unless null, have as many lengths and room for them.
    weft_comm_alltoall, weft_comm_ialltoall,
    (data: *const c_void, lens: *const usize, all: *mut c_void, got: *mut usize, each: usize)
    |comm, job| alltoall(comm, job, (places(data, each, lens), places(all, each, got)))
}

impl WeftComm {
    /// Checks the number of a root, and returns whether it is this rank.
    fn root(&self, root: c_int) -> Result<(usize, bool), Fault> {
        let found = usize::try_from(root).ok().filter(|&root| root < self.group.size());
        let root = found.ok_or_else(|| {
            let size = self.group.size();
            Fault::argument(format!("there is no rank {root}: the communicator has {size}"))
        })?;
        Ok((root, root == self.group.rank()))
    }
}
