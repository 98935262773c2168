//! Choices for one peer.

use super::{Endpoint, Peer};
use crate::choices::{check_trust, Choices, NoAgent, Overrun, Server};
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
}

impl Peer<'_> {
    /// Returns the choices for this peer: those of the endpoint, with the changes by
    /// [`choose`](Self::choose). `None` if there is no such peer.
    pub fn choices(self) -> Option<Choices> {
        chosen(&self.reactor.borrow(), self.id)
    }

    /// Sets the choices for this peer only:
    ///
    /// - reliability and maximum transfer unit, from the start of the session;
    /// - transfer, for later messages to the peer and fetches from it: each side chooses how it
    ///   sends, and memory is copied directly if neither side's transfer forbids it;
    /// - the server of fetch-and-add: with `host` additions to the peer's counters do not use its
    ///   agent; with `agent` the agent adds, if it has the counter; with `kernel` the kernel of the
    ///   peer's host adds, if it has the counter. Chosen for this endpoint itself, it is the server
    ///   of counters made from now on.
    ///
    /// The other parts hold for all peers, and must be those of [`Endpoint::choices`].
    ///
    /// # Errors
    /// The unit is too small; the session has begun with another reliability or unit; the choice
    /// needs an agent and none serves this endpoint, or the peer is not reached through it;
    /// reliability is `none` and a link loses packets; or a part that holds for all peers differs
    /// from the endpoint's.
    pub fn choose(self, choices: &Choices) -> Result<(), ChoiceError> {
        if let Some(setting) = differs(choices, &Choices::of(self.reactor.engine().config())) {
            return Err(ChoiceError::NotForPeer { setting });
        }
        if (1..MTU_MIN).contains(&choices.mtu) {
            return Err(ChoiceError::Mtu { least: MTU_MIN });
        }
        let reactor = &mut *self.reactor.borrow_mut();
        let Some(before) = chosen(reactor, self.id) else { return Err(ChoiceError::Begun) };
        check(reactor, self.id, [&before, choices], reactor.known.agent.is_some())?;
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
        if !engine.peer_mut(self.id).choose(choices.reliability, choices.mtu) {
            return Err(ChoiceError::Begun);
        }
        if choices.transfer != before.transfer {
            engine.peer_mut(self.id).choose_transfer(choices.transfer);
        }
        if choices.fetch_add != before.fetch_add {
            engine.peer_mut(self.id).choose_fetch_add(choices.fetch_add);
        }
        Ok(())
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
