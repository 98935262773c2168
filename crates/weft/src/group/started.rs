//! Operations of groups, which start when they are made.

use super::Group;
use crate::endpoint::{Operation, Status};
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use weft_core::OpError;

/// The error of an operation of a group. `Display` and `Debug` both give the whole text (which rank
/// on which host, over which link, interface and address, why, and what to do), so it is also shown
/// if `main` returns it or `unwrap` panics.
#[derive(Clone, PartialEq, Eq)]
pub struct GroupError {
    cause: OpError,
    rank: Option<usize>,
    text: String,
}

impl GroupError {
    /// Returns the cause, for decisions of the program.
    pub fn cause(&self) -> OpError {
        self.cause
    }

    /// Returns the rank of the group that failed or was named, if there is one.
    pub fn rank(&self) -> Option<usize> {
        self.rank
    }

    /// Returns the error with a text that says more than the cause.
    pub(super) fn with_text(self, text: String) -> GroupError {
        GroupError { text, ..self }
    }
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for GroupError {}

impl From<GroupError> for OpError {
    fn from(error: GroupError) -> OpError {
        error.cause
    }
}

impl Group {
    /// Returns the group's error for an operation with one rank (`named`) or with all.
    pub(super) fn error(&self, cause: OpError, named: Option<usize>) -> GroupError {
        let text = self.explain(cause);
        let rank = match cause {
            OpError::Peer { peer, .. } => self.rank_of(peer).or(named),
            OpError::Uneven { rank, .. } | OpError::Mismatch { rank } => {
                Some(rank as usize).filter(|&rank| rank < self.size())
            }
            OpError::NoRank { .. } | OpError::Count { .. } | OpError::NoSuchOp => None,
            _ => named,
        };
        let text = match (cause, rank) {
            // These texts name the rank.
            (OpError::Peer { .. } | OpError::Uneven { .. } | OpError::Mismatch { .. }, _)
            | (_, None) => text,
            (_, Some(rank)) => format!("rank {rank}: {text}"),
        };
        GroupError { cause, rank, text }
    }
}

/// The result of a task, once there is one.
pub(super) struct Slot<T> {
    result: RefCell<Option<Result<T, GroupError>>>,
    waker: RefCell<Option<Waker>>,
}

impl<T> Slot<T> {
    fn put(&self, result: Result<T, GroupError>) {
        *self.result.borrow_mut() = Some(result);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// The end of a task; dropped without a result, it marks the task as cancelled.
struct End<T>(Option<Rc<Slot<T>>>);

impl<T> End<T> {
    fn give(mut self, result: Result<T, GroupError>) {
        if let Some(slot) = self.0.take() {
            slot.put(result);
        }
    }
}

impl<T> Drop for End<T> {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            let cause = OpError::Cancelled;
            slot.put(Err(GroupError { cause, rank: None, text: cause.to_string() }));
        }
    }
}

enum State<T> {
    Ended(Result<T, GroupError>),
    Operation(Operation, fn(Status, Vec<u8>) -> T),
    /// A task; with its number if dropping this ends the task.
    Task(Rc<Slot<T>>, Option<u64>),
    Taken,
}

/// An operation of a group that has started. It goes on whenever the endpoint makes progress, also
/// if this future is not polled. Awaiting it, or [`wait`](Started::wait), gives the result.
///
/// Dropping it cancels a receive that has not matched. Any other operation runs to its end, while
/// the endpoint makes progress and is not closed, and its result is lost.
///
/// ```no_run
/// let job = weft::Job::init()?;
/// let world = job.world();
/// let mut sum = world.allreduce(vec![1.0], weft::Op::Sum);
/// // It is under way while the program computes and makes progress now and then.
/// while !sum.is_done() {
///     // compute a little
///     job.endpoint().progress();
/// }
/// println!("{}", sum.wait()?[0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the result tells whether the operation succeeded"]
pub struct Started<T> {
    group: Group,
    rank: Option<usize>,
    state: State<T>,
}

impl<T> Started<T> {
    pub(super) fn ended(group: &Group, rank: Option<usize>, error: OpError) -> Started<T> {
        Started { group: group.clone(), rank, state: State::Ended(Err(group.error(error, rank))) }
    }

    pub(super) fn operation(
        group: &Group,
        rank: usize,
        operation: Operation,
        result: fn(Status, Vec<u8>) -> T,
    ) -> Started<T> {
        let state = State::Operation(operation, result);
        Started { group: group.clone(), rank: Some(rank), state }
    }

    /// True if the result is there.
    pub fn is_done(&self) -> bool {
        match &self.state {
            State::Operation(operation, _) => operation.is_done(),
            State::Task(slot, _) => slot.result.borrow().is_some(),
            State::Ended(_) | State::Taken => true,
        }
    }

    /// Makes progress until the end, and returns the result: the blocking form.
    ///
    /// # Errors
    /// The errors of the operation.
    pub fn wait(self) -> Result<T, GroupError> {
        let endpoint = self.group.endpoint().clone();
        endpoint.block_on(self)
    }
}

impl<T: 'static> Started<T> {
    /// Begins a task. With `receives`, dropping the returned operation ends the task; else the task
    /// runs to its end.
    pub(super) fn task(
        group: &Group,
        receives: bool,
        work: impl Future<Output = Result<T, GroupError>> + 'static,
    ) -> Started<T> {
        let slot = Rc::new(Slot { result: RefCell::default(), waker: RefCell::default() });
        let end = End(Some(Rc::clone(&slot)));
        let number = group.endpoint().reactor.begin_task(async move {
            let end = end;
            let result = work.await;
            end.give(result);
        });
        let state = State::Task(slot, receives.then_some(number));
        Started { group: group.clone(), rank: None, state }
    }
}

impl<T> Unpin for Started<T> {}

impl<T> Future for Started<T> {
    type Output = Result<T, GroupError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let result = match std::mem::replace(&mut this.state, State::Taken) {
            State::Ended(result) => result,
            State::Operation(mut operation, of) => match Pin::new(&mut operation).poll(cx) {
                Poll::Ready((Ok(status), buffer)) => Ok(of(status, buffer)),
                Poll::Ready((Err(error), _)) => Err(this.group.error(error, this.rank)),
                Poll::Pending => {
                    this.state = State::Operation(operation, of);
                    return Poll::Pending;
                }
            },
            State::Task(slot, number) => {
                let result = slot.result.borrow_mut().take();
                match result {
                    Some(result) => result,
                    None => {
                        *slot.waker.borrow_mut() = Some(cx.waker().clone());
                        this.state = State::Task(slot, number);
                        return Poll::Pending;
                    }
                }
            }
            State::Taken => return Poll::Pending,
        };
        Poll::Ready(result)
    }
}

impl<T> Drop for Started<T> {
    fn drop(&mut self) {
        if let State::Task(slot, Some(number)) = &self.state {
            if slot.result.borrow().is_none() {
                self.group.endpoint().reactor.end_task(*number);
            }
        }
    }
}
