//! More ranks than two: each of the two processes runs every other member as a thread, so that all
//! use one clock.

use super::rank::{Outcome, Rank};
use anyhow::Result;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::thread::JoinHandle;
use weft::{Address, Endpoint, Links};

/// The settings with which a thread opens its endpoint.
#[derive(Clone)]
struct Opening {
    links: Links,
    key: [u8; 32],
}

impl Opening {
    fn open(&self) -> Result<Endpoint> {
        let config = weft::job::config_from_env()?;
        Ok(weft::job::open_endpoint(config, self.links, self.key)?)
    }
}

/// The part of a member: its endpoint, the addresses of all members, its number.
pub type Part = Arc<dyn Fn(&Endpoint, &[Address], usize) -> Result<Outcome> + Send + Sync>;

type Everyone = Vec<Address>;
type Opened = (usize, Result<Vec<u8>, String>);

/// Starts a thread that runs a member; the returned channel takes the addresses of all.
fn spawn(
    me: usize,
    opening: Opening,
    part: Part,
    own: Sender<Opened>,
) -> (Sender<Everyone>, JoinHandle<Result<(), String>>) {
    let (all, addresses): (Sender<Everyone>, Receiver<Everyone>) = channel();
    let thread = std::thread::spawn(move || -> Result<(), String> {
        let endpoint = match opening.open() {
            Ok(endpoint) => endpoint,
            Err(error) => {
                let _gone = own.send((me, Err(format!("{error:#}"))));
                return Ok(());
            }
        };
        let _gone = own.send((me, Ok(endpoint.address().encode())));
        drop(own);
        let Ok(addresses) = addresses.recv() else { return Ok(()) };
        let done = part(&endpoint, &addresses, me);
        done.map(|_| ()).map_err(|e| format!("member {me}: {e:#}"))
    });
    (all, thread)
}

/// Runs `part` on so many members; the outcome is that of member 0, the thread that calls this on
/// rank 0.
pub fn run(rank: &mut Rank, members: usize, part: &Part) -> Result<Outcome> {
    let opening = Opening { links: rank.links(), key: rank.key() };
    if opening.links.agent {
        // An agent ends when it has no rank: this endpoint keeps it running.
        rank.weft()?;
    }
    let (own, opened) = channel();
    let first = if rank.me == 0 { 2 } else { 1 };
    let mut threads = Vec::new();
    for member in (first..members).step_by(2) {
        threads.push(spawn(member, opening.clone(), Arc::clone(part), own.clone()));
    }
    drop(own);
    let root = if rank.me == 0 { Some(opening.open()?) } else { None };
    let mut mine: Vec<(usize, Vec<u8>)> = Vec::new();
    if let Some(root) = &root {
        mine.push((0, root.address().encode()));
    }
    let mut why = None;
    for (member, address) in opened {
        match address {
            Ok(address) => mine.push((member, address)),
            Err(error) => why = Some(error),
        }
    }
    let theirs = rank.exchange(&serde_json::to_vec(&(&mine, &why))?)?;
    let (theirs, their_why): (Vec<(usize, Vec<u8>)>, Option<String>) =
        serde_json::from_slice(&theirs)?;
    if let Some(why) = why.or(their_why) {
        return Ok(Outcome::Absent(why));
    }
    mine.extend(theirs);
    mine.sort();
    let decode = |(_, raw): &(usize, Vec<u8>)| Address::decode(raw);
    let addresses = mine.iter().map(decode).collect::<Result<Everyone, _>>();
    let addresses = addresses.map_err(|e| anyhow::anyhow!("address: {e}"))?;
    for (all, _) in &threads {
        let _ended = all.send(addresses.clone());
    }
    let outcome = root.map(|root| part(&root, &addresses, 0)).transpose()?;
    for (_, thread) in threads {
        let ended = thread.join().map_err(|_| anyhow::anyhow!("a member panicked"))?;
        ended.map_err(anyhow::Error::msg)?;
    }
    Ok(outcome.unwrap_or(Outcome::Elsewhere))
}
