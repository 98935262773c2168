//! Choices for one peer.

use super::driver::Driver;
use super::Endpoint;
use crate::choices::{check_trust, Choices, NoAgent, Overrun, Server, Transfer};
use std::fmt;
use weft_core::config::MTU_MIN;
use weft_core::{PeerId, Reliability};

/// Why something is not chosen for a peer.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChoiceError {
    /// The session with the peer has begun with another choice.
    Begun,
    /// It takes an agent, and none serves this endpoint.
    NoAgent(NoAgent),
    /// It takes an agent, and the peer is not reached through it.
    PastAgent,
    /// Nobody is to send again, and a link of this endpoint loses packets.
    Overrun(Overrun),
    /// No packet may be shorter than this, bytes; 0 is what the link carries.
    Mtu {
        /// The least.
        least: u32,
    },
    /// It is chosen for the whole job, or with a call.
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

crate::readable!(ChoiceError);

impl std::error::Error for ChoiceError {}

/// The first part in which two choices differ, of those that hold for all peers.
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
    /// What is chosen for this endpoint.
    pub fn choices(&self) -> Choices {
        Choices::of(self.inner.borrow().driver.intake.engine.config())
    }

    /// What is chosen for one peer: as for the endpoint, but for what [`choose`](Self::choose) has
    /// changed. `None`: there is no such peer.
    pub fn chosen(&self, peer: PeerId) -> Option<Choices> {
        let inner = self.inner.borrow();
        chosen(&inner.driver, peer)
    }

    /// Chooses for one peer, and for no other:
    ///
    /// - reliability and maximum transfer unit, from the start of the session;
    /// - transfer, for what is sent to the peer and fetched from it from now on: each side chooses
    ///   how it sends, and memory is copied directly where neither side's transfer forbids it;
    /// - the place of fetch-and-add: `host` has what is added to the peer's counters pass its agent
    ///   by, `agent` leaves it to that where the counter is there, and `kernel` adds past both
    ///   where it is in the kernel of the peer's host. Chosen for this endpoint itself, it is where
    ///   counters made from now on lie.
    ///
    /// The other parts hold for all peers, and are to be those of [`choices`](Self::choices).
    ///
    /// # Errors
    /// The unit is too small. The session has begun with another reliability or unit; it takes an
    /// agent and none serves this endpoint, or the peer is not reached through it; nobody is to
    /// send again, and there is a link that loses packets; another part is chosen otherwise than
    /// for the endpoint.
    pub fn choose(&self, peer: PeerId, choices: &Choices) -> Result<(), ChoiceError> {
        if let Some(setting) = differs(choices, &self.choices()) {
            return Err(ChoiceError::NotForPeer { setting });
        }
        if (1..MTU_MIN).contains(&choices.mtu) {
            return Err(ChoiceError::Mtu { least: MTU_MIN });
        }
        let inner = &mut *self.inner.borrow_mut();
        let driver = &mut inner.driver;
        let Some(before) = chosen(driver, peer) else { return Err(ChoiceError::Begun) };
        check(driver, peer, [&before, choices], inner.agent.is_some())?;
        if choices.reliability == Reliability::None && before.reliability != Reliability::None {
            driver
                .intake
                .arriving
                .caps
                .iter()
                .try_for_each(check_trust)
                .map_err(ChoiceError::Overrun)?;
        }
        let engine = &mut driver.intake.engine;
        if !engine.choose(peer, choices.reliability, choices.mtu) {
            return Err(ChoiceError::Begun);
        }
        if choices.transfer != before.transfer {
            engine.choose_transfer(peer, choices.transfer);
        }
        if choices.fetch_add != before.fetch_add {
            engine.choose_fetch_add(peer, choices.fetch_add);
        }
        Ok(())
    }
}

impl Endpoint {
    /// How payload gets to a peer and from it.
    pub fn transfer_of(&self, peer: PeerId) -> Transfer {
        self.inner.borrow().driver.intake.engine.transfer_of(peer)
    }

    /// Who serves fetch-and-add on the words of a peer.
    pub fn fetch_add_of(&self, peer: PeerId) -> Server {
        self.inner.borrow().driver.intake.engine.fetch_add_of(peer)
    }

    /// Who serves words for fetch-and-add that are made here from now on.
    pub fn own_fetch_add(&self) -> Server {
        let engine = &self.inner.borrow().driver.intake.engine;
        let (own, config) = (engine.find_peer(engine.id()), engine.config());
        own.map_or_else(|| config.for_peer(config.rank).fetch_add, |me| engine.fetch_add_of(me))
    }
}

fn chosen(driver: &Driver, peer: PeerId) -> Option<Choices> {
    let engine = &driver.intake.engine;
    let (reliability, mtu) = engine.chosen(peer)?;
    let (transfer, fetch_add) = (engine.transfer_of(peer), engine.fetch_add_of(peer));
    Some(Choices { transfer, reliability, mtu, fetch_add, ..Choices::of(engine.config()) })
}

/// Whether agents do what they are newly chosen for with one peer.
fn check(
    driver: &Driver,
    peer: PeerId,
    [before, choices]: [&Choices; 2],
    served: bool,
) -> Result<(), ChoiceError> {
    let needs = |setting, value| Err(ChoiceError::NoAgent(NoAgent { setting, value }));
    let own = driver.intake.engine.find_peer(driver.intake.engine.id()) == Some(peer);
    let sends =
        choices.reliability == Reliability::Agent && before.reliability != Reliability::Agent;
    let server = choices.fetch_add;
    let counts = server != Server::Host && server != before.fetch_add;
    if sends && !served {
        return needs("reliability", "agent");
    }
    if sends && !driver.is_served(peer) {
        return Err(ChoiceError::PastAgent);
    }
    match counts {
        true if own && !served => needs("fetch_add", server.name()),
        true if !own && driver.is_past_agent(peer) => Err(ChoiceError::PastAgent),
        _ => Ok(()),
    }
}
