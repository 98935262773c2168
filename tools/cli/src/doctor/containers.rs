//! Shared memory with other containers of this host, by the host's agent.

use super::Check;
use std::path::Path;
use std::time::{Duration, Instant};
use weft::{EndpointId, PeerId};
use weft_link::secure::JobKey;
use weft_link::shm::broker::{BrokerConfig, Standing};
use weft_link::{Address, Bytes, Frame, Link, LinkEvent, PeerInfo, ShmConfig, ShmLink, Sink};

const TOPIC: &str = "containers";
const PEER: PeerId = PeerId(0);
/// Longest time until two endpoints of this process are joined.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the sign by which this process seems to run in a container.
fn container() -> Option<&'static str> {
    let files = [("/.dockerenv", "Docker"), ("/run/.containerenv", "Podman")];
    let file = files.into_iter().find(|(file, _)| Path::new(file).exists());
    let variables = [
        ("KUBERNETES_SERVICE_HOST", "Kubernetes"),
        ("APPTAINER_CONTAINER", "Apptainer"),
        ("SINGULARITY_CONTAINER", "Singularity"),
        ("container", "a container manager"),
    ];
    let variable = variables.into_iter().find(|(name, _)| std::env::var_os(name).is_some());
    file.or(variable).map(|(_, of)| of)
}

/// The packets that came.
#[derive(Default)]
struct Count(usize);

impl Sink for Count {
    fn frame(&mut self, _: Option<PeerId>, _: &[u8], _: Bytes<'_>) {
        self.0 += 1;
    }
}

/// Opens an endpoint of a job at the agent.
fn open(names: &[String], key: &JobKey) -> Result<(ShmLink, PeerInfo), String> {
    let endpoint = EndpointId(weft_link::random_u64());
    let broker = Some(BrokerConfig::new(names.to_vec(), key.clone()));
    let link = ShmLink::new(ShmConfig { broker, ..ShmConfig::new(endpoint) });
    let link = link.map_err(|e| e.to_string())?;
    let mut address = Address { endpoint, ..Address::default() };
    link.advertise(&mut address);
    // The address is as seen from another network namespace.
    address.host ^= 1;
    Ok((link, PeerInfo { peer: PEER, session: 0, endpoint, address }))
}

/// Lets the agent join two endpoints of this process; returns their position at it.
fn join(names: &[String]) -> Result<Standing, String> {
    let key = JobKey::random().map_err(|e| e.to_string())?;
    let (mut a, of_a) = open(names, &key)?;
    let standing = a.standing().map_err(ToString::to_string)?.clone();
    let (mut b, of_b) = open(names, &key)?;
    b.standing().map_err(ToString::to_string)?;
    a.connect(&of_b).map_err(|e| e.to_string())?;
    let (end, mut got) = (Instant::now() + TIMEOUT, Count::default());
    let frame = Frame { peer: PEER, header: &[0; 24], payload: &[] };
    a.send(&[frame]);
    let mut known = false;
    while got.0 == 0 {
        for link in [&mut a, &mut b] {
            link.poll_sockets();
            while let Some(event) = link.poll_event() {
                if let LinkEvent::PeerRefused(_, why) = event {
                    return Err(why);
                }
            }
        }
        known = known || b.connect(&of_a).is_ok();
        b.recv(8, &mut got);
        if Instant::now() > end {
            return Err("the agent joins nobody".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(standing)
}

const MOUNT: &str =
    "run weftd on the host and mount the folder of its socket: docker or podman run \
                     -v /run/weft:/run/weft, apptainer --bind /run/weft, hostPath in Kubernetes \
                     (docs/guide/containers.md)";

/// Checks that ranks in other containers of this host can share memory with ranks here.
pub fn check() -> Check {
    let names = weft::job::agent_from_env().names;
    let asked = std::env::var_os("WEFT_AGENT").is_some_and(|name| !name.is_empty());
    let inside = container();
    match join(&names) {
        Ok(Standing { name, user, .. }) => Check::ok(
            TOPIC,
            format!(
                "the agent at {name} joins ranks in different containers of this host over shared \
                 memory; for it this process is of user {user}, and by default it joins ranks of \
                 one user"
            ),
        ),
        Err(why) if asked || inside.is_some() => Check::warn(
            TOPIC,
            match inside {
                Some(of) => format!(
                    "this process runs under {of}, and ranks in other containers of this host are \
                     reached over a network: {why}"
                ),
                None => format!("ranks in other containers are reached over a network: {why}"),
            },
            remedy(&why),
        ),
        Err(_) => Check::ok(
            TOPIC,
            "no agent serves here; ranks in other containers of this host, if there are any, are \
             reached over a network (weftd joins them over shared memory)",
        ),
    }
}

/// Returns the advice for a reason.
fn remedy(why: &str) -> String {
    let cases = [
        ("--share", "let both containers run as one user, or change weftd --share"),
        ("is not trusted", "mount the socket of root's agent, or of one of this user's"),
        ("sharing", "end other jobs of this user, or raise weftd --quota sharing=N"),
        ("the limit", "end other jobs of this user, or raise weftd --quota sharing=N"),
        ("another version", "use one release of weft on the host and in its images"),
        ("does not answer", "look after the agent's process on the host"),
        ("no right to", "give this user the right to the socket (weftd makes it for all users)"),
        ("mount /proc", "mount /proc in the container"),
    ];
    let case = cases.into_iter().find(|(part, _)| why.contains(part));
    case.map_or(MOUNT, |(_, advice)| advice).to_string()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn join__no_agent_says_where_it_looked() {
        let why = join(&["/nowhere/agent.sock".into()]).unwrap_err();
        assert!(why.contains("/nowhere/agent.sock") && remedy(&why) == MOUNT, "{why}");
    }

    #[test]
    fn remedy__follows_the_reason() {
        for (why, part) in [
            ("users 1 and 2 (weftd --share off)", "--share"),
            ("user 7 has 3 ranks that share memory, the limit", "--quota sharing"),
            ("the agent at /x is not trusted: its process runs as user 7", "root's agent"),
            ("the agent at /x has ended: start weftd again", "mount the folder"),
        ] {
            assert!(remedy(why).contains(part), "{why}");
        }
    }
}
