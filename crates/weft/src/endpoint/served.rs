//! The agent of the host, and the endpoint's knowledge of its job.

use super::driver::Driver;
use super::Endpoint;
use weft_agent::ServicesHandle;
use weft_core::{LinkCaps, PeerId};
use weft_link::secure::JobKey;

impl Driver {
    fn caps_of(&self, peer: PeerId) -> Option<&LinkCaps> {
        self.link_of(peer).map(|link| &self.intake.arriving.caps[link])
    }

    /// True if a peer is reached through the agent.
    pub(super) fn is_served(&self, peer: PeerId) -> bool {
        self.caps_of(peer).is_some_and(|caps| caps.name == "agent")
    }

    /// True if a peer is reached without any agent, through memory.
    pub(super) fn is_past_agent(&self, peer: PeerId) -> bool {
        self.caps_of(peer).is_some_and(|caps| caps.reliable && caps.name != "agent")
    }
}

impl Endpoint {
    /// Records that one of the links leads to the agent of this host, which offers these services.
    pub fn served_by(&self, services: ServicesHandle) {
        self.inner.borrow_mut().agent = Some(services);
    }

    /// Returns the services of this host's agent besides messages, if an agent serves this
    /// endpoint.
    pub fn agent(&self) -> Option<ServicesHandle> {
        self.inner.borrow().agent.clone()
    }

    /// Sends queued requests to the agent now.
    pub fn nudge_agent(&self) {
        let driver = &mut self.inner.borrow_mut().driver;
        let found =
            (0..driver.links.len()).find(|&i| driver.intake.arriving.caps[i].name == "agent");
        if let Some(link) = found {
            driver.links[link].send(&[]);
        }
    }

    /// True if a peer is reached through the agent of this host.
    pub fn is_served(&self, peer: PeerId) -> bool {
        self.inner.borrow().driver.is_served(peer)
    }

    /// True if a peer is reached without any agent, through memory.
    pub fn is_past_agent(&self, peer: PeerId) -> bool {
        self.inner.borrow().driver.is_past_agent(peer)
    }

    /// Records that the endpoint belongs to a job with this key.
    pub fn in_job(&self, key: &JobKey) {
        self.inner.borrow_mut().job_key = Some(key.clone());
    }

    /// Returns the key of the endpoint's job, from which other keys are derived.
    pub fn job_key(&self) -> Option<JobKey> {
        self.inner.borrow().job_key.clone()
    }

    /// Returns the identity of this endpoint.
    pub fn id(&self) -> weft_core::EndpointId {
        self.inner.borrow().driver.intake.engine.id()
    }

    /// True if a peer's memory can be copied directly.
    pub fn is_direct(&self, peer: PeerId) -> bool {
        let inner = self.inner.borrow();
        inner.driver.intake.engine.peer(peer).info().is_some_and(|(_, _, caps)| caps.direct)
    }

    /// Returns the configuration of this endpoint.
    pub fn config(&self) -> weft_core::Config {
        self.inner.borrow().driver.intake.engine.config().clone()
    }
}
