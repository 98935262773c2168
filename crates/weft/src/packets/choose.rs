//! What is chosen for one peer.

use super::{agent, Packets};
use crate::choices::{Choices, NoAgent};
use std::fmt;
use weft_core::{PeerId, Reliability};

/// Why something is not chosen for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChoiceError {
    /// The session with the peer has begun with another choice.
    Begun,
    /// It takes an agent, and none serves this endpoint.
    NoAgent(NoAgent),
    /// It takes an agent, and the peer is not reached through it.
    PastAgent,
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
            ChoiceError::PastAgent => f.write_str(
                "the peer is reached past the agent of this host (WEFT_LINK=agent alone has all \
                 go through it)",
            ),
            ChoiceError::NotForPeer { setting } => {
                let call = match *setting {
                    "transfer" => " or with the call: send copies, gather lends, rcpy places",
                    "tree" => " or with the call that multicasts",
                    _ => "",
                };
                let upper = setting.to_uppercase();
                write!(
                    f,
                    "{setting} is chosen for a job (WEFT_{upper}){call}; for one peer reliability \
                     and mtu are"
                )
            }
        }
    }
}

impl std::error::Error for ChoiceError {}

/// The first part in which two choices differ, of those that hold for all peers.
fn differs(a: &Choices, b: &Choices) -> Option<&'static str> {
    [
        ("transfer", a.transfer != b.transfer),
        ("multicast", a.multicast != b.multicast),
        ("tree", a.tree != b.tree),
        ("fetch_add", a.fetch_add != b.fetch_add),
        ("receipt", a.receipt != b.receipt),
    ]
    .into_iter()
    .find_map(|(setting, other)| other.then_some(setting))
}

impl Packets {
    /// What is chosen for this endpoint.
    pub fn choices(&self) -> Choices {
        Choices::of(self.endpoint.inner.borrow().driver.core.engine.config())
    }

    /// What is chosen for one peer: as for the endpoint, but for what [`choose`](Self::choose) has
    /// changed. `None`: there is no such peer.
    pub fn chosen(&self, peer: PeerId) -> Option<Choices> {
        let chosen = self.endpoint.inner.borrow().driver.core.engine.chosen(peer);
        let (reliability, mtu) = chosen?;
        Some(Choices { reliability, mtu, ..self.choices() })
    }

    /// Chooses reliability and maximum transfer unit of one peer. Both hold from the start of the
    /// session. The other parts hold for all peers, and are to be those of
    /// [`choices`](Self::choices).
    ///
    /// # Errors
    /// The session has begun with others; it takes an agent and none serves this endpoint, or the
    /// peer is not reached through it; another part is chosen otherwise than for the endpoint.
    pub fn choose(&self, peer: PeerId, choices: &Choices) -> Result<(), ChoiceError> {
        if let Some(setting) = differs(choices, &self.choices()) {
            return Err(ChoiceError::NotForPeer { setting });
        }
        let inner = &mut *self.endpoint.inner.borrow_mut();
        choices.check(inner.agent.is_some()).map_err(ChoiceError::NoAgent)?;
        let by_agent = choices.reliability == Reliability::Agent;
        if by_agent && !agent::is_served(&inner.driver, peer) {
            return Err(ChoiceError::PastAgent);
        }
        match inner.driver.core.engine.choose(peer, choices.reliability, choices.mtu) {
            true => Ok(()),
            false => Err(ChoiceError::Begun),
        }
    }
}
