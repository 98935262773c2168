//! Two hosts joined by cables, for tests of broken cables.

use crate::sys;
use std::process::Command;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::time::{Duration, Instant};

/// Bound of the wait for an interface; reached only when something is broken.
const LIMIT: Duration = Duration::from_secs(60);

/// A host: a thread in a network namespace of its own. Cable `n` ends at its interface `cable<n>`,
/// with the address `10.9.<n>.<1 or 2>/24`.
pub struct Host {
    /// 0 or 1.
    pub side: usize,
    /// The network namespaces of both, as files.
    spaces: [String; 2],
}

impl Host {
    /// Runs `ip` with these arguments on this host.
    pub fn ip(&self, words: &str) {
        command("ip", words).unwrap_or_else(|why| panic!("{why}"));
    }

    /// Waits until this interface runs, with a carrier and a packet queue.
    pub fn wait_running(&self, name: &str) {
        wait_running(name).unwrap_or_else(|why| panic!("{why}"));
    }

    /// Returns the network namespace of the other host, as a file.
    pub fn other_space(&self) -> &str {
        &self.spaces[1 - self.side]
    }

    /// Returns the network namespaces of both hosts, as files.
    pub fn spaces(&self) -> &[String; 2] {
        &self.spaces
    }

    /// Runs a command with these arguments on the other host.
    pub fn other(&self, words: &str) {
        let space = self.other_space();
        command("nsenter", &format!("--net={space} {words}")).unwrap_or_else(|why| panic!("{why}"));
    }
}

/// Returns the Ethernet address of a host's end of a cable.
pub fn mac(cable: usize, side: usize) -> String {
    format!("02:57:00:00:{cable:02x}:{:02x}", side + 1)
}

fn command(program: &str, words: &str) -> Result<String, String> {
    let out = Command::new(program).args(words.split_whitespace()).output();
    let out = out.map_err(|e| format!("needs the `{program}` command: {e}"))?;
    match out.status.success() {
        true => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
        false => Err(format!("{program} {words}: {}", String::from_utf8_lossy(&out.stderr).trim())),
    }
}

/// Returns true if the kernel reports that an interface of this thread's host runs.
fn is_running(name: &str) -> Result<bool, String> {
    let shown = command("ip", &format!("-oneline link show dev {name}"))?;
    Ok(shown.contains(" state UP ") && !shown.contains(" qdisc noop "))
}

/// Waits until an interface of this thread's host runs. The kernel checks cables once a second: an
/// interface that came up since then has no packet queue yet, and links open without its address.
fn wait_running(name: &str) -> Result<(), String> {
    let end = Instant::now() + LIMIT;
    while !is_running(name)? {
        if Instant::now() > end {
            return Err(format!("interface {name} does not run"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Returns process and thread number of the calling thread, and its network namespace as a file.
fn whoami() -> Result<(String, String), String> {
    let link = std::fs::read_link("/proc/thread-self").map_err(|e| e.to_string())?;
    let link = link.display().to_string();
    let thread = link.rsplit('/').next().unwrap_or_default().to_string();
    Ok((thread, format!("/proc/{link}/ns/net")))
}

fn set_up(cables: usize, side: usize) -> Result<(), String> {
    command("ip", "link set lo up")?;
    for n in 0..cables {
        command("ip", &format!("link set cable{n} address {} up", mac(n, side)))?;
        command("ip", &format!("addr add 10.9.{n}.{}/24 dev cable{n}", side + 1))?;
    }
    Ok(())
}

type Told = Result<(String, String), String>;

/// Makes a host of the calling thread; the first one lays the cables.
fn make(
    cables: usize,
    side: usize,
    to: &Sender<Told>,
    from: &Receiver<Told>,
) -> Result<Host, String> {
    let gone = |_| "the other host is gone".to_string();
    let entered = sys::new_namespace()
        .map_err(|e| format!("needs root to make a network namespace: {e}"))
        .and_then(|()| whoami());
    to.send(entered.clone()).map_err(|e| e.to_string())?;
    let ((_, ours), (thread, theirs)) = (entered?, from.recv().map_err(gone)??);
    let lay = |n| {
        let peer = format!("type veth peer name cable{n} netns {thread}");
        command("ip", &format!("link add cable{n} {peer}")).map(drop)
    };
    let mut made = Ok(());
    if side == 0 {
        made = (0..cables).try_for_each(lay);
    } else {
        from.recv().map_err(gone)??;
    }
    made = made.and_then(|()| set_up(cables, side));
    let told = made.clone().map(|()| Default::default());
    to.send(told).map_err(|e| e.to_string())?;
    made?;
    if side == 0 {
        from.recv().map_err(gone)??;
    }
    (0..cables).try_for_each(|n| wait_running(&format!("cable{n}")))?;
    let spaces = if side == 0 { [ours, theirs] } else { [theirs, ours] };
    Ok(Host { side, spaces })
}

/// Runs each body on a host of its own.
///
/// # Errors
/// The reason why this machine cannot: it needs root and the commands `ip` and `nsenter`.
pub fn run<A: Send, B: Send>(
    cables: usize,
    a: impl FnOnce(&Host) -> A + Send,
    b: impl FnOnce(&Host) -> B + Send,
) -> Result<(A, B), String> {
    let ((to_b, from_a), (to_a, from_b)) = (channel(), channel());
    std::thread::scope(|scope| {
        let b = scope.spawn(move || make(cables, 1, &to_a, &from_a).map(|host| b(&host)));
        let a = scope.spawn(move || make(cables, 0, &to_b, &from_b).map(|host| a(&host)));
        let (a, b) = (a.join(), b.join());
        // The error of the first that fails is the more useful one.
        let a = a.unwrap_or_else(|e| std::panic::resume_unwind(e))?;
        Ok((a, b.unwrap_or_else(|e| std::panic::resume_unwind(e))?))
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use weft_core::EndpointId;
    use weft_link::secure::{JobKey, Mode, Security};
    use weft_link::{Address, Link, UdpConfig, UdpLink};

    #[test]
    fn run__cables_run_when_the_bodies_begin() {
        for _ in 0..6 {
            let both = std::sync::Barrier::new(2);
            let open = |_: &Host| {
                let me = EndpointId(weft_link::random_u64());
                let security = Security {
                    mode: Mode::None,
                    job_key: JobKey::from_bytes(&[7; 32]).unwrap(),
                    me,
                };
                let link = UdpLink::new(UdpConfig::default(), security);
                // The end of a host removes its cables.
                both.wait();
                let mut address = Address::default();
                link.map_err(|e| e.to_string())?.advertise(&mut address);
                Ok::<_, String>(address.udp.iter().filter(|a| !a.ip().is_loopback()).count())
            };
            match run(2, open, open) {
                Ok(addresses) => assert_eq!(addresses, (Ok(2), Ok(2)), "of each host's cables"),
                Err(why) => crate::skip(&why),
            }
        }
    }
}
