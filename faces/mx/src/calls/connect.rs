//! Connections.

use super::endpoint::meeting;
use crate::address::Addr;
use crate::boards::{host_of, ENDPOINTS};
use crate::code::{self, Answer, StatusCode};
use crate::enter::{enter, Inside};
use crate::handle::Handle;
use crate::memory::Memory;
use crate::open::request::{Kind, Request};
use crate::open::Open;
use crate::status::Status;
use crate::wire::setting;
use std::time::{Duration, Instant};
use weft_ffi::address::NetAddress;
use weft_ffi::given::Place;
use weft_ffi::rendezvous;
use weft_ffi::sys::lock;
use weft_ffi::table::Key;
use weft_link::secure::JobKey;
use weft_mxoe::node::Mac;
use weft_sys::threads::{stack, without_signals};

/// The endpoint that a request looks for.
#[derive(Clone, Copy)]
pub struct Wanted {
    /// Its network interface.
    pub nic: u64,
    /// Its number.
    pub number: u32,
    /// Its key.
    pub key: u32,
}

/// A search for the endpoint.
struct Search {
    request: Key,
    key: JobKey,
    at: NetAddress,
}

/// Returns the address at which an endpoint is looked for.
fn place_of(wanted: Wanted) -> Result<NetAddress, StatusCode> {
    let host = host_of(wanted.nic).ok_or(code::STATUS_ENDPOINT_UNKNOWN)?;
    if wanted.number >= ENDPOINTS {
        return Err(code::STATUS_BAD_ENDPOINT);
    }
    meeting(host, wanted.number).map_err(|_| code::STATUS_BAD_ENDPOINT)
}

/// Returns the address of an endpoint that is reached by MXoE.
fn mac_of(open: &Open, wanted: Wanted) -> Option<Mac> {
    let own = open.mac()?;
    let mac = setting::mac_of(wanted.nic).filter(|_| host_of(wanted.nic).is_none())?;
    (mac != own && wanted.number < ENDPOINTS).then_some(mac)
}

/// Begins a request to connect. The search is none if the request has ended already.
fn begin(
    open: &mut Open,
    wanted: Wanted,
    (bits, context): (u64, usize),
    is_own: bool,
) -> Answer<(Key, Option<Search>)> {
    let mut request = Request::new(Kind::Connect, bits, context, Memory::default());
    (request.is_own, request.secret) = (is_own, wanted.key);
    request.status.source = Addr([wanted.nic << 16 | u64::from(wanted.number & 0xffff), 0]);
    let request = open.add(request)?;
    if let Some(mac) = mac_of(open, wanted) {
        open.connect_wired(request, mac, wanted.number as u8, wanted.key);
        return Ok((request, None));
    }
    match place_of(wanted) {
        Ok(at) => Ok((request, Some(Search { request, key: open.key.clone(), at }))),
        Err(status) => {
            open.end_with(request, status);
            Ok((request, None))
        }
    }
}

/// Looks for an endpoint without the lock of this one.
fn seek(inside: &mut Inside, search: &Search, end: Option<Instant>) -> Answer {
    let found = inside.outside(|| rendezvous::seek(&search.key, &search.at, end))?;
    inside.open()?.sought(search.request, &found);
    Ok(())
}

/// Looks for an endpoint in a thread of its own.
fn seek_aside(open: &mut Open, generation: u32, search: Search) {
    let (slot, request) = (open.local.slot, search.request);
    let run = move || {
        let found = rendezvous::seek(&search.key, &search.at, None);
        let inside: Answer<Inside> = lock::enter_same(slot, generation);
        if let Ok(mut inside) = inside {
            inside.open().into_iter().for_each(|open| open.sought(request, &found));
        }
    };
    let builder =
        std::thread::Builder::new().name("weft-mx-seek".into()).stack_size(stack(128 << 10));
    if let Err(why) = without_signals(|| builder.spawn(run)) {
        log::error!("mx_iconnect: no thread: {why}");
        open.end_with(request, code::STATUS_NO_RESOURCES);
    }
}

/// Takes the library's own request if it has ended.
fn answer(inside: &mut Inside, key: Key) -> Answer<Option<Status>> {
    let requests = &mut inside.open()?.requests;
    let is_done = requests.get(key).is_none_or(|request| request.is_done);
    Ok(is_done.then(|| requests.remove(key)).flatten().map(|request| request.status))
}

/// Connects to an endpoint, and stores its address.
pub fn connect(endpoint: Handle, wanted: Wanted, ms: u32, addr: Place<'_, Addr>) -> Answer {
    addr.or(code::BAD_ADDR_LIST)?;
    let end = match ms {
        0 => None,
        ms => Instant::now().checked_add(Duration::from_millis(ms.into())),
    };
    let mut inside = enter(endpoint)?;
    let (request, search) = begin(inside.open()?, wanted, (0, 0), true)?;
    if let Some(search) = search {
        seek(&mut inside, &search, end)?;
    }
    let ended = inside.wait(end, |i| answer(i, request));
    if ended.is_err() {
        inside.open()?.requests.remove(request);
    }
    let ended = ended?;
    code::return_of(ended.code)?;
    addr.store(ended.source);
    Ok(())
}

/// Starts a request to connect. The address is the source in its status.
pub fn begin_connect(
    endpoint: Handle,
    wanted: Wanted,
    (bits, context): (u64, usize),
    request: Place<'_, Handle>,
) -> Answer {
    request.or(code::BAD_REQUEST)?;
    let mut inside = enter(endpoint)?;
    let generation = inside.generation();
    let open = inside.open()?;
    let (begun, search) = begin(open, wanted, (bits, context), false)?;
    if let Some(search) = search {
        seek_aside(open, generation, search);
    }
    request.store(open.handle_of(begun));
    Ok(())
}

/// Ends the connection with an endpoint.
pub fn disconnect(endpoint: Handle, addr: Addr) -> Answer {
    let mut inside = enter(endpoint)?;
    inside.progress()?;
    inside.open()?.disconnect(addr)
}
