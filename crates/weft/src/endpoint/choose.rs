//! Choices for one peer.

use super::Endpoint;
use crate::choices::{check_trust, Choices, NoAgent, Overrun, Server, Transfer};
use crate::reactor::Reactor;
use std::fmt;
use weft_core::config::MTU_MIN;
use weft_core::{PeerId, Reliability};

/// The reason why a choice for a peer was refused.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChoiceError {
    /// The session with the peer has begun with another choice.
    Begun,
    /// The choice needs an agent, and none serves this endpoint.
    NoAgent(NoAgent),
    /// The choice needs an agent, and the peer is not reached through it.
    PastAgent,
    /// Reliability `none`, and a link of this endpoint loses packets.
    Overrun(Overrun),
    /// The maximum transfer unit is too small; 0 means the link's maximum.
    Mtu {
        /// The least unit, bytes.
        least: u32,
    },
    /// The setting holds for the whole job, or for a single call.
    NotForPeer {
        /// The setting.
        setting: &'static str,
    },
}

impl fmt::Display for ChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChoiceError::Begun => {
                f.write_str("the session with the peer has begun: choose before anything is sent")
            }
            ChoiceError::NoAgent(why) => write!(f, "{why}"),
            ChoiceError::Overrun(why) => write!(f, "{why}"),
            ChoiceError::PastAgent => f.write_str(
                "the peer is reached past the agent of this host (WEFT_LINK=agent alone has all \
                 go through it)",
            ),
            ChoiceError::Mtu { least } => {
                write!(f, "mtu is too small: 0 (what the link carries) or {least} up")
            }
            ChoiceError::NotForPeer { setting } => {
                let call = match *setting {
                    "tree" => " or with the call that multicasts",
                    _ => "",
                };
                let upper = setting.to_uppercase();
                write!(
                    f,
                    "{setting} is chosen for a job (WEFT_{upper}){call}; for one peer transfer, \
                     reliability, mtu and fetch_add are"
                )
            }
        }
    }
}

weft_core::readable!(ChoiceError);

impl std::error::Error for ChoiceError {}

/// Returns the first part that holds for all peers and in which two choices differ.
fn differs(a: &Choices, b: &Choices) -> Option<&'static str> {
    [
        ("multicast", a.multicast != b.multicast),
        ("tree", a.tree != b.tree),
        ("receipt", a.receipt != b.receipt),
    ]
    .into_iter()
    .find_map(|(setting, other)| other.then_some(setting))
}

impl Endpoint {
    /// Returns the choices of this endpoint.
    pub fn choices(&self) -> Choices {
        Choices::of(self.reactor.engine().config())
    }

    /// Returns the choices for one peer: those of the endpoint, with the changes by
    /// [`choose`](Self::choose). `None` if there is no such peer.
    pub fn chosen(&self, peer: PeerId) -> Option<Choices> {
        chosen(&self.reactor.borrow(), peer)
    }

    /// Sets the choices for one peer only:
    ///
    /// - reliability and maximum transfer unit, from the start of the session;
    /// - transfer, for later messages to the peer and fetches from it: each side chooses how it
    ///   sends, and memory is copied directly if neither side's transfer forbids it;
    /// - the server of fetch-and-add: with `host` additions to the peer's counters do not use its
    ///   agent; with `agent` the agent adds, if it has the counter; with `kernel` the kernel of the
    ///   peer's host adds, if it has the counter. Chosen for this endpoint itself, it is the server
    ///   of counters made from now on.
    ///
    /// The other parts hold for all peers, and must be those of [`choices`](Self::choices).
    ///
    /// # Errors
    /// The unit is too small; the session has begun with another reliability or unit; the choice
    /// needs an agent and none serves this endpoint, or the peer is not reached through it;
    /// reliability is `none` and a link loses packets; or a part that holds for all peers differs
    /// from the endpoint's.
    pub fn choose(&self, peer: PeerId, choices: &Choices) -> Result<(), ChoiceError> {
        if let Some(setting) = differs(choices, &self.choices()) {
            return Err(ChoiceError::NotForPeer { setting });
        }
        if (1..MTU_MIN).contains(&choices.mtu) {
            return Err(ChoiceError::Mtu { least: MTU_MIN });
        }
        let reactor = &mut *self.reactor.borrow_mut();
        let Some(before) = chosen(reactor, peer) else { return Err(ChoiceError::Begun) };
        check(reactor, peer, [&before, choices], reactor.known.agent.is_some())?;
        if choices.reliability == Reliability::None && before.reliability != Reliability::None {
            reactor
                .receiver
                .arriving
                .caps
                .iter()
                .try_for_each(check_trust)
                .map_err(ChoiceError::Overrun)?;
        }
        let engine = &mut reactor.receiver.engine;
        if !engine.peer_mut(peer).choose(choices.reliability, choices.mtu) {
            return Err(ChoiceError::Begun);
        }
        if choices.transfer != before.transfer {
            engine.peer_mut(peer).choose_transfer(choices.transfer);
        }
        if choices.fetch_add != before.fetch_add {
            engine.peer_mut(peer).choose_fetch_add(choices.fetch_add);
        }
        Ok(())
    }
}

impl Endpoint {
    /// Returns the transfer of payload to a peer and from it.
    pub fn transfer_of(&self, peer: PeerId) -> Transfer {
        self.reactor.engine().peer(peer).transfer()
    }

    /// Returns the server of fetch-and-add on the words of a peer.
    pub fn fetch_add_of(&self, peer: PeerId) -> Server {
        self.reactor.engine().peer(peer).fetch_add()
    }

    /// Returns the server of fetch-and-add for words made here from now on.
    pub fn own_fetch_add(&self) -> Server {
        let engine = self.reactor.engine();
        let (own, config) = (engine.peers().find(engine.id()), engine.config());
        own.map_or_else(|| config.for_peer(config.rank).fetch_add, |me| engine.peer(me).fetch_add())
    }
}

fn chosen(reactor: &Reactor, peer: PeerId) -> Option<Choices> {
    let engine = &reactor.receiver.engine;
    let (reliability, mtu) = engine.peer(peer).chosen()?;
    let (transfer, fetch_add) = (engine.peer(peer).transfer(), engine.peer(peer).fetch_add());
    Some(Choices { transfer, reliability, mtu, fetch_add, ..Choices::of(engine.config()) })
}

/// Checks that an agent can do the parts newly chosen for one peer.
fn check(
    reactor: &Reactor,
    peer: PeerId,
    [before, choices]: [&Choices; 2],
    served: bool,
) -> Result<(), ChoiceError> {
    let needs = |setting, value| Err(ChoiceError::NoAgent(NoAgent { setting, value }));
    let own = reactor.receiver.engine.peers().find(reactor.receiver.engine.id()) == Some(peer);
    let sends =
        choices.reliability == Reliability::Agent && before.reliability != Reliability::Agent;
    let server = choices.fetch_add;
    let counts = server != Server::Host && server != before.fetch_add;
    if sends && !served {
        return needs("reliability", "agent");
    }
    if sends && !reactor.is_served(peer) {
        return Err(ChoiceError::PastAgent);
    }
    match counts {
        true if own && !served => needs("fetch_add", server.name()),
        true if !own && reactor.is_past_agent(peer) => Err(ChoiceError::PastAgent),
        _ => Ok(()),
    }
}
