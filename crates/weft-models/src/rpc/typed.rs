//! Methods with types: arguments and answers of `serde`, in the format of `postcard`.

use super::{CallError, Cause, Request, Rpc};
use crate::net::{Blocking, Net};
use serde::de::DeserializeOwned;
use serde::Serialize;
use std::future::Future;
use std::marker::PhantomData;

/// A method whose arguments are an `A` and whose answer is an `R`.
///
/// ```no_run
/// # use weft_models::net::{Live, Net};
/// # use weft_models::rpc::Rpc;
/// let job = weft::Job::init()?;
/// let rpc = Rpc::open(&Live::new(job.world())?);
/// let greet = rpc.method::<(String, u32), String>(7);
/// greet.serve(|answer, (name, age)| answer.give(&format!("{name} is {age}")));
/// println!("{}", greet.call_blocking(0, &("Ada".to_string(), 36))?);
/// job.world().barrier_blocking()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Method<N: Net, A, R> {
    rpc: Rpc<N>,
    number: u16,
    types: PhantomData<fn(A) -> R>,
}

/// The right to answer a call of a method with types.
#[must_use = "its caller waits for an answer"]
pub struct Answer<N: Net, R> {
    request: Request<N>,
    types: PhantomData<fn(R)>,
}

impl<N: Net> Rpc<N> {
    /// Returns the method of a number with types, the same on all ranks.
    pub fn method<A, R>(&self, number: u16) -> Method<N, A, R> {
        Method { rpc: self.clone(), number, types: PhantomData }
    }
}

impl<N: Net, R: Serialize> Answer<N, R> {
    /// Returns the request: its caller, and if it is cancelled.
    pub fn request(&self) -> &Request<N> {
        &self.request
    }

    /// Answers.
    pub fn give(self, answer: &R) {
        match postcard::to_allocvec(answer) {
            Ok(bytes) => self.request.answer(&bytes),
            Err(why) => self.request.refuse(&format!("the answer cannot be sent: {why}")),
        }
    }

    /// Refuses: the caller gets this text as an error.
    pub fn refuse(self, text: &str) {
        self.request.refuse(text);
    }
}

impl<N: Net, A: Serialize + DeserializeOwned, R: Serialize + DeserializeOwned> Method<N, A, R> {
    /// Serves the method, as [`Rpc::serve`].
    pub fn serve(&self, mut service: impl FnMut(Answer<N, R>, A) + 'static) {
        self.rpc.serve(self.number, move |request, args| match postcard::from_bytes(args) {
            Ok(args) => service(Answer { request, types: PhantomData }, args),
            Err(why) => request.refuse(&format!("the arguments are not of this type: {why}")),
        });
    }

    /// Calls the method. The call has started when this returns; dropping the future cancels it.
    ///
    /// # Errors
    /// Returns the errors of [`Call`](super::Call), and `Unreadable` if the answer is of another
    /// type.
    pub fn call(&self, to: usize, args: &A) -> impl Future<Output = Result<R, CallError>> {
        let (method, started) = (self.number, self.begin(to, args));
        async move { started?.await.and_then(|bytes| read(to, method, &bytes)) }
    }

    fn begin(&self, to: usize, args: &A) -> Result<super::Call<N>, CallError> {
        let bytes = postcard::to_allocvec(args).map_err(|why| self.unreadable(to, &why))?;
        Ok(self.rpc.call(to, self.number, &bytes))
    }

    fn unreadable(&self, rank: usize, why: &postcard::Error) -> CallError {
        CallError { rank, method: self.number, cause: Cause::Unreadable(why.to_string()) }
    }
}

impl<N: Blocking, A: Serialize + DeserializeOwned, R: Serialize + DeserializeOwned>
    Method<N, A, R>
{
    /// Calls the method and waits for the answer.
    ///
    /// # Errors
    /// Returns the errors of [`call`](Method::call).
    pub fn call_blocking(&self, to: usize, args: &A) -> Result<R, CallError> {
        let bytes = self.begin(to, args)?.wait()?;
        read(to, self.number, &bytes)
    }
}

fn read<R: DeserializeOwned>(rank: usize, method: u16, bytes: &[u8]) -> Result<R, CallError> {
    postcard::from_bytes(bytes).map_err(|why| {
        let cause = Cause::Unreadable(why.to_string());
        CallError { rank, method, cause }
    })
}
