//! Endpoints found by name, where the agent of this host is a member of a cluster.
//!
//! A process claims a name for its endpoint, and others connect to the name instead of an address
//! that they had to be given. All processes have the key of [`open_endpoint`] in common, as without
//! names.
//!
//! [`open_endpoint`]: crate::job::open_endpoint
//!
//! ```no_run
//! use std::time::Duration;
//! use weft::job::{open_endpoint, Links};
//! use weft::names::{claim_of, connect_all, Name, Names};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let endpoint = open_endpoint(weft::Config::default(), Links::AUTO, [7; 32])?;
//! let mut names = Names::connect()?;
//! let worker: Name = "worker:3".parse()?;
//! names.claim(&claim_of(&endpoint, &worker)?)?;
//! // All four of them, by their instances.
//! let all: Name = "worker:0-3".parse()?;
//! let peers = connect_all(&endpoint, &mut names, &all, 4, Duration::from_secs(60))?;
//! endpoint.send_blocking(peers[0], 1, b"hello")?;
//! # Ok(())
//! # }
//! ```

use crate::endpoint::{ConnectError, Endpoint};
use std::fmt;
use std::time::Duration;
pub use weft_cluster::client::Event;
pub use weft_cluster::local::MAIL_MAX as MESSAGE_MAX;
pub use weft_cluster::names::groups::Kind;
pub use weft_cluster::names::{Binding, BindingId, HostId, Life, Mode, NameEvent, Notice, Pick};
pub use weft_cluster::{GroupMember, GroupNotice, GroupOptions, To};
pub use weft_cluster::{Name, Names, NamesError, Spec, Watch};
use weft_core::{EndpointId, PeerId};
use weft_link::Address;

/// The reason why a name does not lead to a peer.
#[derive(Debug)]
#[non_exhaustive]
pub enum NameError {
    /// The agent does not answer, or the owners did not come in time.
    Names(NamesError),
    /// Nobody has the name.
    Nobody(Name),
    /// Its owner gave no endpoint with a UDP address.
    NoEndpoint(Name),
    /// This endpoint has no UDP address that a name could lead to.
    NoAddress,
    /// The endpoint does not reach the owner.
    Connect(ConnectError),
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::Names(why) => why.fmt(f),
            NameError::Nobody(name) => {
                write!(f, "nobody has the name {name}; `weft names list` shows all names")
            }
            NameError::NoEndpoint(name) => write!(
                f,
                "the owner of {name} has no endpoint with a UDP address: it claims the name by \
                 `weft::names::claim_of`"
            ),
            NameError::NoAddress => {
                f.write_str("the endpoint has no UDP address: allow the link udp (WEFT_LINK)")
            }
            NameError::Connect(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for NameError {}

impl From<NamesError> for NameError {
    fn from(why: NamesError) -> NameError {
        NameError::Names(why)
    }
}

fn address_of(binding: &Binding) -> Option<Address> {
    let claim = &binding.name;
    let udp = vec![claim.address.filter(|_| claim.endpoint != 0)?];
    Some(Address { endpoint: EndpointId(claim.endpoint), udp, ..Address::default() })
}

/// Returns a claim of a name that leads to an endpoint.
///
/// # Errors
/// The endpoint has no UDP address.
pub fn claim_of(endpoint: &Endpoint, name: &Name) -> Result<Spec, NameError> {
    let address = endpoint.address();
    let udp = address.udp.first().ok_or(NameError::NoAddress)?;
    Ok(Spec::new(name).endpoint(address.endpoint.0).address(*udp))
}

fn connect_binding(endpoint: &Endpoint, binding: &Binding) -> Result<PeerId, NameError> {
    let owner = EndpointId(binding.name.endpoint);
    // A look-up before each message finds a peer that is known: the addresses, which take most
    // of the time to gather, are not needed then.
    if let Some(peer) = endpoint.find_peer(owner) {
        return Ok(peer);
    }
    if owner == endpoint.id() {
        return endpoint.connect(&endpoint.address()).map_err(NameError::Connect);
    }
    let address = address_of(binding).ok_or_else(|| NameError::NoEndpoint(Name::of(binding)))?;
    endpoint.connect(&address).map_err(NameError::Connect)
}

/// Makes a peer of an owner of a name. After the first look-up of a type this takes no message;
/// those to the peer then cost as much as to a peer by address.
///
/// # Errors
/// Nobody has the name, its owner has no endpoint, or the agent does not answer.
pub fn connect(
    endpoint: &Endpoint,
    names: &mut Names,
    name: &Name,
    pick: Pick,
) -> Result<PeerId, NameError> {
    let found = names.resolve(name, pick)?;
    let binding = found.ok_or_else(|| NameError::Nobody(name.clone()))?;
    connect_binding(endpoint, binding)
}

/// Waits until a name has so many owners, and makes peers of all, in the order of their
/// instances. An endpoint that has the name is among its own peers.
///
/// # Errors
/// The owners are not there in time, one of them has no endpoint, or the agent does not answer.
pub fn connect_all(
    endpoint: &Endpoint,
    names: &mut Names,
    name: &Name,
    count: usize,
    limit: Duration,
) -> Result<Vec<PeerId>, NameError> {
    let mut found = names.wait(name, count, limit)?;
    found.sort_by_key(|b| (b.name.lower, b.id));
    found.iter().map(|binding| connect_binding(endpoint, binding)).collect()
}
