//! The agent of the host, and the endpoint's knowledge of its job.

use super::Endpoint;
use crate::choices::Server;
use crate::reactor::Handle;
use weft_agent::ServicesHandle;
use weft_link::secure::JobKey;

/// The agent of the host and the job, as [`Endpoint::agent`] gives them.
#[derive(Clone, Copy)]
pub struct HostAgent<'a> {
    reactor: &'a Handle,
}

impl Endpoint {
    /// Returns the part that concerns the agent of this host.
    #[inline]
    pub fn agent(&self) -> HostAgent<'_> {
        HostAgent { reactor: &self.reactor }
    }
}

impl HostAgent<'_> {
    /// Records that one of the links leads to the agent of this host, which offers these services.
    pub fn serve(self, services: ServicesHandle) {
        self.reactor.borrow_mut().known.agent = Some(services);
    }

    /// Returns the services of this host's agent besides messages, if an agent serves this
    /// endpoint.
    pub fn services(self) -> Option<ServicesHandle> {
        self.reactor.borrow().known.agent.clone()
    }

    /// Sends queued requests to the agent now.
    pub fn nudge(self) {
        let reactor = &mut *self.reactor.borrow_mut();
        let found =
            (0..reactor.links.len()).find(|&i| reactor.receiver.arriving.caps[i].name == "agent");
        if let Some(link) = found {
            reactor.links[link].send(&[]);
        }
    }

    /// Returns the server of fetch-and-add for words made here from now on.
    pub fn own_fetch_add(self) -> Server {
        let engine = self.reactor.engine();
        let (own, config) = (engine.peers().find(engine.id()), engine.config());
        own.map_or_else(|| config.for_peer(config.rank).fetch_add, |me| engine.peer(me).fetch_add())
    }

    /// Records that the endpoint belongs to a job with this key.
    pub fn set_job_key(self, key: &JobKey) {
        self.reactor.borrow_mut().known.job_key = Some(key.clone());
    }

    /// Returns the key of the endpoint's job, from which other keys are derived.
    pub fn job_key(self) -> Option<JobKey> {
        self.reactor.borrow().known.job_key.clone()
    }
}
