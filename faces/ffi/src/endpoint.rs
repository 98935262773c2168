//! Opening the endpoint of an object.

use std::net::Ipv4Addr;
use weft::choices::Receipt;
use weft::counters::RankId;
use weft::job::{self, Links};
use weft::launch::keyfile;
use weft::{Config, Endpoint};
use weft_link::secure::JobKey;
use weft_link::Link;

/// Starts the log of the process, unless it has one. `WEFT_LOG` names what is shown.
pub fn start_log() {
    weft_link::telling::log_to_standard_error();
}

/// Opens an endpoint for an object at an address of this host, by the settings of the environment;
/// `adapt` changes them. Returns the job's key too.
///
/// # Errors
/// The text says what is wrong with the settings, the key or the links.
pub fn open(
    host: Ipv4Addr,
    face: &str,
    adapt: impl FnOnce(&mut Config, &mut Links),
) -> Result<(Endpoint, JobKey), String> {
    open_beside(host, face, adapt, Vec::new())
}

/// Opens an endpoint as [`open`] does, with links of the face's own beside those of the settings.
///
/// # Errors
/// Returns the errors of [`open`].
pub fn open_beside(
    host: Ipv4Addr,
    face: &str,
    adapt: impl FnOnce(&mut Config, &mut Links),
    own: Vec<Box<dyn Link>>,
) -> Result<(Endpoint, JobKey), String> {
    let mut config = job::config_from_env().map_err(|e| e.to_string())?;
    if config.receipt == Receipt::Watchdog {
        // The object has a thread of its own that makes progress.
        config.receipt = Receipt::Adaptive;
    }
    let links = job::links_from_env().map_err(|e| e.to_string())?;
    let mut links = match host.is_loopback() {
        true => links,
        // The other sides may be on other hosts.
        false => links.of_job(usize::MAX, None),
    };
    adapt(&mut config, &mut links);
    let key = keyfile::obtain().map_err(|e| e.to_string())?;
    let endpoint = job::open_endpoint_beside(config, links, key, own).map_err(|e| e.to_string())?;
    let who = RankId { job: format!("{face}-{}", std::process::id()), rank: 0, size: 1 };
    if let Err(why) = endpoint.counters().publish(&who) {
        log::warn!("`weft top` will not see this process: {why}");
    }
    let key = JobKey::from_bytes(&key).ok_or("the key has the wrong length")?;
    Ok((endpoint, key))
}
