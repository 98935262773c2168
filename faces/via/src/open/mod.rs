//! The network interfaces of this process: open objects of [`weft_ffi::sys::lock`].

#[allow(unsafe_code)]
mod sys;
mod upcall;

use crate::address::NetAddress;
use crate::code::{Answer, Code};
use crate::handle::{self, Handle, Kind};
use crate::raw::ErrorHandler;
use crate::rendezvous::{self, Post};
use crate::state::{Hub, State};
use crate::table::Key;
use std::cell::RefMut;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::rc::Rc;
use weft::port::Port;
use weft::Endpoint;
use weft_ffi::sys::lock;
use weft_link::secure::JobKey;

/// An interface, locked.
pub type Inside = lock::Inside<Open>;

/// Handler of asynchronous errors and its context.
#[derive(Clone, Copy, Debug, Default)]
pub struct OnError {
    /// The handler; none is the default one.
    pub handler: Option<ErrorHandler>,
    /// The program's context.
    pub context: usize,
}

/// An open interface.
pub struct Open {
    /// Its state.
    pub hub: Rc<Hub>,
    /// Its port.
    pub port: Port,
    /// Its name, as the program has opened it.
    pub name: String,
    /// The job's key.
    pub key: JobKey,
    /// Its address, at which a program finds it as long as the interface is open.
    pub address: Box<[u8; 4]>,
    /// The handler of errors.
    pub on_error: OnError,
    /// Addresses at which it waits, with the number of calls that do.
    posts: Vec<(NetAddress, u32, Post)>,
    /// Addresses of requests that are to meet others, by virtual interface.
    peers: HashMap<Key, NetAddress>,
    /// Memory for a message that a call waits for.
    by: Vec<u8>,
}

impl Open {
    /// Returns the endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        self.port.endpoint()
    }

    /// Handles operations that have ended, and sends that waited for room.
    #[inline]
    fn take_ended(&self) {
        self.hub.reap(&self.port);
        let mut state = self.state();
        if state.is_blocked() {
            state.retry(&self.port);
        }
    }

    /// Calls `f` with the state and the port.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut State, &Port) -> R) -> R {
        f(&mut self.state(), &self.port)
    }

    /// Returns the state.
    #[inline]
    pub fn state(&self) -> RefMut<'_, State> {
        self.hub.state.borrow_mut()
    }

    /// Polls briefly for the message of the first posted receive, and takes the descriptor if the
    /// message came: its address, and true if it has failed. `None` also if other work comes first.
    #[inline]
    pub fn await_message(&mut self, vi: Key) -> Option<(u64, bool)> {
        let polled = self.hub.state.borrow().await_message(&self.port, vi, &mut self.by);
        let taken = polled.and_then(|came| self.state().came(&self.port, vi, &came));
        self.take_ended();
        taken
    }

    /// Lets processes find the interface at an address.
    ///
    /// # Errors
    /// `VIP_ERROR_RESOURCE`: another process waits there, or the system refuses.
    pub fn stay(&mut self, at: &NetAddress) -> Answer {
        if let Some((_, users, _)) = self.posts.iter_mut().find(|(of, ..)| of == at) {
            *users += 1;
            return Ok(());
        }
        let post = rendezvous::post(&self.key, at, &self.endpoint().address()).map_err(|why| {
            match why.kind() {
                ErrorKind::AddrInUse => log::debug!("{at:?}: another process waits there"),
                _ => log::warn!("waiting at an address of virtual interfaces: {why}"),
            }
            Code::ErrorResource
        })?;
        self.posts.push((at.clone(), 1, post));
        Ok(())
    }

    /// Ends one `stay`.
    pub fn go(&mut self, at: &NetAddress) {
        self.posts.iter_mut().filter(|(of, ..)| of == at).for_each(|(_, users, _)| *users -= 1);
        self.posts.retain(|(_, users, _)| *users > 0);
    }

    /// Waits at an address, as [`stay`](Open::stay) does, for a request that is to meet another. A
    /// request of the other side at the same address is found there.
    pub fn stay_for(&mut self, vi: Key, at: &NetAddress) {
        if self.stay(at).is_ok() {
            self.peers.insert(vi, at.clone());
        }
    }

    /// Ends `stay_for`.
    pub fn go_for(&mut self, vi: Key) {
        if let Some(at) = self.peers.remove(&vi) {
            self.go(&at);
        }
    }
}

/// Enters the interface of an object; returns its key too.
///
/// # Errors
/// `VIP_INVALID_PARAMETER`: the handle is none of an open interface; `VIP_ERROR_RESOURCE`: this
/// thread is inside a function already, or the process is a child made by `fork`.
#[inline]
pub fn enter(kind: Kind, handle: Handle) -> Answer<(Inside, Key)> {
    let (nic, key) = handle::unpack(kind, handle).ok_or(Code::InvalidParameter)?;
    let inside = match kind {
        Kind::Nic => lock::enter_same(nic, key.generation)?,
        _ => lock::enter(nic)?,
    };
    Ok((inside, key))
}

/// The parts of an interface that is opened.
pub struct Parts {
    /// Its endpoint.
    pub endpoint: Endpoint,
    /// The job's key.
    pub key: JobKey,
    /// Its name.
    pub name: String,
    /// Its device.
    pub device: crate::names::Device,
}

/// Opens an interface; returns its handle.
///
/// # Errors
/// `VIP_ERROR_RESOURCE`: too many are open, or the system gives no descriptor or no thread.
pub fn open(prepare: impl FnOnce() -> Answer<Parts>) -> Answer<Handle> {
    let mut opened = 0;
    lock::open(prepare, |parts, number, generation| {
        let Parts { endpoint, key, name, device } = parts;
        let of = Key { index: 0, generation };
        let state = State::new(number, of, device.host, device.tagged);
        opened = state.handle;
        let hub = Rc::new(Hub { state: state.into() });
        let made = endpoint.port(crate::wire::CLIENT, || hub);
        let (port, hub) = made.map_err(|_| Code::ErrorResource)?;
        let address = Box::new(device.host.octets());
        let (on_error, posts, peers) = (OnError::default(), Vec::new(), HashMap::new());
        Ok(Open { hub, port, name, key, address, on_error, posts, peers, by: Vec::new() })
    })?;
    Ok(opened)
}

/// Closes an interface: connections are broken off, what was sent arrives, and all its objects are
/// gone.
///
/// # Errors
/// Returns the errors of [`enter`].
pub fn close(handle: Handle) -> Answer {
    let (inside, _) = enter(Kind::Nic, handle)?;
    lock::close(inside)
}
