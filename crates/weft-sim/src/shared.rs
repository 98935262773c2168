//! The data that the programs of a plan's hosts share.

use crate::checker::SharedChecker;
use crate::plan::{who, Plan, REBORN};
use crate::sim::Env;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use weft_core::{OpError, PeerId};
use weft_packets::Counter;

/// A part of the program of a host.
pub(crate) type Part = Pin<Box<dyn Future<Output = ()>>>;

/// State shared by a plan's hosts.
pub(crate) struct Shared {
    pub plan: Plan,
    pub checker: SharedChecker,
    /// Hosts that die.
    pub mortal: Vec<u32>,
    /// Hosts to which packets of one type never get through.
    pub cut_off: Vec<u32>,
    /// Key and length of the region of each host that has started.
    pub keys: RefCell<BTreeMap<u32, (u64, usize)>>,
    /// Counter, and key of the exported memory, of each host that has started.
    pub counters: Known<Counter>,
    pub exports: Known<u64>,
}

/// A value of each host that has published one.
pub(crate) type Known<T> = RefCell<BTreeMap<u32, T>>;

impl Shared {
    pub fn mortal(&self, host: u32) -> bool {
        self.mortal.contains(&host)
    }

    /// Returns true if this host may give up any of its peers.
    pub fn gives_up(&self, env: &Env) -> bool {
        self.cut_off.contains(&env.host)
    }

    /// Returns true if the plan makes this error of an operation with `host` acceptable.
    pub fn accepts(&self, env: &Env, error: &OpError, host: u32, peer: PeerId) -> bool {
        matches!(error, OpError::Peer { peer: named, .. } if *named == peer)
            && (self.mortal(host) || self.gives_up(env))
    }
}

/// Returns the number of this incarnation of its host in a plan.
pub(crate) fn me(env: &Env) -> u32 {
    env.host + env.incarnation * REBORN
}

/// Returns the peer with this number in a plan.
pub(crate) fn peer(env: &Env, number: u32) -> PeerId {
    let (host, incarnation) = who(number);
    env.peer_incarnation(host, incarnation)
}
