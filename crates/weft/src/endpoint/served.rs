//! The agent of the host, and the endpoint's knowledge of its job.

use super::Endpoint;
use weft_agent::ServicesHandle;
use weft_core::PeerId;
use weft_link::secure::JobKey;

impl Endpoint {
    /// Records that one of the links leads to the agent of this host, which offers these services.
    pub fn served_by(&self, services: ServicesHandle) {
        self.reactor.borrow_mut().known.agent = Some(services);
    }

    /// Returns the services of this host's agent besides messages, if an agent serves this
    /// endpoint.
    pub fn agent(&self) -> Option<ServicesHandle> {
        self.reactor.borrow().known.agent.clone()
    }

    /// Sends queued requests to the agent now.
    pub fn nudge_agent(&self) {
        let reactor = &mut *self.reactor.borrow_mut();
        let found =
            (0..reactor.links.len()).find(|&i| reactor.receiver.arriving.caps[i].name == "agent");
        if let Some(link) = found {
            reactor.links[link].send(&[]);
        }
    }

    /// True if a peer is reached through the agent of this host.
    pub fn is_served(&self, peer: PeerId) -> bool {
        self.reactor.borrow().is_served(peer)
    }

    /// True if a peer is reached without any agent, through memory.
    pub fn is_past_agent(&self, peer: PeerId) -> bool {
        self.reactor.borrow().is_past_agent(peer)
    }

    /// Records that the endpoint belongs to a job with this key.
    pub fn in_job(&self, key: &JobKey) {
        self.reactor.borrow_mut().known.job_key = Some(key.clone());
    }

    /// Returns the key of the endpoint's job, from which other keys are derived.
    pub fn job_key(&self) -> Option<JobKey> {
        self.reactor.borrow().known.job_key.clone()
    }

    /// Returns the identity of this endpoint.
    pub fn id(&self) -> weft_core::EndpointId {
        self.reactor.engine().id()
    }

    /// True if a peer's memory can be copied directly.
    pub fn is_direct(&self, peer: PeerId) -> bool {
        self.reactor.engine().peer(peer).info().is_some_and(|(_, _, caps)| caps.direct)
    }

    /// Returns the configuration of this endpoint.
    pub fn config(&self) -> weft_core::Config {
        self.reactor.engine().config().clone()
    }
}
