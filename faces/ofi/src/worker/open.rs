//! Opening of an endpoint.

use super::collective::Collectives;
use super::state::{Bound, Peers, Receives, State};
use super::transfers::Remote;
use super::{meet, Domain, Worker};
use crate::abi::{cap, err};
use crate::slab::Slab;
use crate::{mover, name, offer, watchdog, who};
use libc::c_int;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::Arc;
use std::time::Duration;
use weft::choices::Receipt;
use weft::counters::RankId;
use weft::launch::{self, keyfile};
use weft::{job, Endpoint};
use weft_link::secure::JobKey;

/// Attributes that an endpoint is opened with.
pub struct Defaults {
    /// Default flags of sends and receives.
    pub flags: [u64; 2],
    pub caps: u64,
}

/// Opens an endpoint; also returns the interval of progress for absent callers.
fn open_endpoint() -> Result<(Endpoint, Duration), String> {
    let mut config = job::config_from_env().map_err(|e| e.to_string())?;
    if config.receipt == Receipt::Watchdog {
        log::info!("WEFT_RECEIPT=watchdog: under MPI it is the provider's (WEFT_WATCHDOG_MS)");
        config.receipt = Receipt::Adaptive;
    }
    let every = Duration::from_millis(u64::from(config.watchdog_ms));
    let links = job::links_from_env().map_err(|e| e.to_string())?;
    let lookup = |name: &str| std::env::var(name).ok();
    let number = |names: &[&str]| names.iter().find_map(|name| lookup(name)?.trim().parse().ok());
    let size = number(&who::SIZES);
    // Without a known job size, some ranks may be on other hosts.
    let links = links.of_job(size.unwrap_or(usize::MAX), launch::ranks_here(&lookup));
    let rank = number(&who::RANKS);
    config.rank = rank.and_then(|rank: usize| u32::try_from(rank).ok());
    let key = keyfile::obtain().map_err(|e| e.to_string())?;
    JobKey::from_bytes(&key).iter().for_each(name::use_key);
    let moves = mover::asked(&lookup)?;
    let links = if moves { mover::LINKS } else { links };
    let endpoint = job::open_endpoint(config, links, key).map_err(|e| e.to_string())?;
    if moves {
        // A page of counters would stay behind.
        return Ok((endpoint, every));
    }
    let who = RankId {
        job: who::job(&lookup, std::os::unix::process::parent_id()),
        rank: rank.unwrap_or(0),
        size: size.unwrap_or(1),
    };
    if let Err(e) = endpoint.counters().publish(&who) {
        log::warn!("`weft top` will not see this rank: {e}");
    }
    Ok((endpoint, every))
}

impl Worker {
    /// Opens an endpoint of a domain.
    pub fn open(domain: &Arc<Domain>, defaults: &Defaults) -> Result<Rc<Worker>, c_int> {
        let worker = Worker::try_open(domain, defaults).map_err(|why| {
            log::error!("no endpoint: {why}");
            err::EIO
        })?;
        domain.join(&worker);
        Ok(worker)
    }

    fn try_open(domain: &Arc<Domain>, defaults: &Defaults) -> Result<Rc<Worker>, String> {
        let (endpoint, every) = open_endpoint()?;
        if mover::is_asked() {
            let every = if domain.is_auto { watchdog::SOON } else { every };
            mover::start(&**domain, every)?;
        } else if domain.is_auto {
            if !watchdog::add(&**domain, watchdog::SOON) {
                return Err("FI_PROGRESS_AUTO needs membarrier(2) or FI_THREAD_SAFE".into());
            }
        } else if endpoint.link_caps().iter().any(|caps| caps.network) {
            // Inside a host no packet is lost, and a silent peer is seen to run.
            watchdog::add(&**domain, every);
        }
        let state = State {
            bound: Bound::default(),
            records: Slab::default(),
            peers: Peers::default(),
            receives: Receives::default(),
            remote: Remote::new(&endpoint),
            collectives: Collectives::new(&endpoint),
        };
        Ok(Rc::new(Worker {
            introductions: meet::Introductions::new(&endpoint),
            endpoint,
            domain: domain.clone(),
            state: RefCell::new(state),
            tx_flags: AtomicU64::new(defaults.flags[0]),
            rx_flags: AtomicU64::new(defaults.flags[1]),
            directed: defaults.caps & cap::DIRECTED_RECV != 0,
            events: defaults.caps & cap::RMA_EVENT != 0,
            min_multi_recv: Cell::new(64),
            inject_max: offer::INJECT,
            prepared: Cell::new(false),
            unreported: Cell::new(false),
        }))
    }
}
