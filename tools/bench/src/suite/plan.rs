//! The plan of the suite: situations, and the channels of each.

use super::super::netns::Place;
use super::super::rank::{Channel, Probe};
use super::super::{LinkName, Options};
use serde::Serialize;

/// The place of the two processes, and the other work of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Situation {
    /// The place of the two processes.
    pub place: Place,
    /// True if every core has other work.
    pub loaded: bool,
}

impl Situation {
    /// All situations, in the order of the report.
    pub const ALL: [Situation; 6] = [
        Situation { place: Place::Inside, loaded: false },
        Situation { place: Place::Inside, loaded: true },
        Situation { place: Place::Between(1500), loaded: false },
        Situation { place: Place::Between(1500), loaded: true },
        Situation { place: Place::Between(9000), loaded: false },
        Situation { place: Place::Between(9000), loaded: true },
    ];

    /// Returns its name in headings.
    pub fn title(self) -> String {
        let place = match self.place {
            Place::Between(mtu) => format!("Between hosts, MTU {mtu}"),
            _ => "Inside a host".into(),
        };
        format!("{place}, {}", self.load())
    }

    /// Returns `idle` or `loaded`.
    pub fn load(self) -> &'static str {
        match self.loaded {
            true => "loaded",
            false => "idle",
        }
    }

    /// Returns its name in files.
    pub fn key(self) -> String {
        let place = match self.place {
            Place::Between(mtu) => format!("between-{mtu}"),
            _ => "inside".into(),
        };
        format!("{place}-{}", self.load())
    }
}

/// The kind of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// A link of weft.
    Weft,
    /// A channel of the kernel.
    Kernel,
    /// The speed of the machine without any message passing.
    Floor,
}

/// A channel that passes bytes.
#[derive(Clone, Copy, Debug)]
pub struct Carrier {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub family: Family,
    /// Link of the endpoint, as in `WEFT_LINK`; not used by the others.
    pub link: &'static str,
    /// Measures half a round trip.
    pub latency: Probe,
    /// Measures a stream; `None` if another channel's figure covers it.
    pub stream: Option<Probe>,
    /// True if every byte sent arrives.
    pub reliable: bool,
    /// True if the interface's offloads are off.
    pub no_offloads: bool,
    /// Position in the report's list of colours.
    pub colour: usize,
}

const fn kernel(name: &'static str, channel: Channel, colour: usize) -> Carrier {
    Carrier {
        name,
        family: Family::Kernel,
        link: "udp",
        latency: Probe::Exchange(channel),
        stream: Some(Probe::Stream(channel)),
        reliable: true,
        no_offloads: false,
        colour,
    }
}

const fn weft(name: &'static str, link: &'static str, colour: usize) -> Carrier {
    Carrier {
        name,
        family: Family::Weft,
        link,
        latency: Probe::WeftPingPong,
        stream: Some(Probe::WeftBandwidth),
        reliable: true,
        no_offloads: false,
        colour,
    }
}

const fn floor(name: &'static str, latency: Probe, stream: Probe) -> Carrier {
    let carrier = kernel(name, Channel::Pipe, 0);
    Carrier { family: Family::Floor, latency, stream: Some(stream), reliable: false, ..carrier }
}

const UDP: Carrier = Carrier {
    latency: Probe::UdpExchange,
    stream: Some(Probe::UdpFlow),
    reliable: false,
    ..kernel("UDP", Channel::Pipe, 9)
};

const SPINNING: Carrier = Carrier {
    latency: Probe::PingPong(Channel::Tcp),
    stream: None,
    ..kernel("TCP spinning", Channel::Tcp, 11)
};

const INSIDE: [Carrier; 11] = [
    weft("weft shm", "shm", 1),
    weft("weft udp", "udp", 2),
    kernel("pipe", Channel::Pipe, 6),
    kernel("FIFO", Channel::Fifo, 10),
    kernel("System V queue", Channel::SystemV, 12),
    kernel("Unix socket", Channel::Unix, 7),
    kernel("TCP", Channel::Tcp, 8),
    kernel("TCP Nagle", Channel::TcpNagle, 13),
    SPINNING,
    UDP,
    floor("floor", Probe::CacheLine, Probe::Copy),
];

const BETWEEN: [Carrier; 13] = [
    // The links that ranks on several hosts get. The benchmark's ranks have no launcher that says
    // so.
    weft("weft auto", LinkName::Auto.links(), 5),
    weft("weft udp", "udp", 2),
    weft("weft tcp", "tcp", 17),
    weft("weft packet", "packet", 3),
    weft("weft gso", "gso", 15),
    weft("weft xdp", "xdp", 4),
    weft("weft agent", "agent", 16),
    kernel("TCP", Channel::Tcp, 8),
    kernel("TCP Nagle", Channel::TcpNagle, 13),
    Carrier { no_offloads: true, ..kernel("TCP no offload", Channel::Tcp, 14) },
    SPINNING,
    UDP,
    floor("floor", Probe::Udp, Probe::UdpStream),
];

/// Returns the channels of a situation.
pub fn carriers(situation: Situation) -> &'static [Carrier] {
    match situation.place {
        Place::Between(_) => &BETWEEN,
        _ => &INSIDE,
    }
}

/// Returns the message sizes, in bytes.
pub fn sizes(options: &Options) -> Vec<usize> {
    match (&options.size, options.quick) {
        (given, _) if !given.is_empty() => given.clone(),
        (_, true) => vec![16, 1 << 10, 16 << 10, 256 << 10],
        _ => vec![16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20],
    }
}

/// Largest message for which handing over a single word is a floor, in bytes.
const SMALL: usize = 4 << 10;

/// Returns the probe that measures latency at a size.
pub fn latency(carrier: &Carrier, size: usize) -> Probe {
    match carrier.latency {
        Probe::CacheLine if size > SMALL => Probe::RemoteCopy,
        probe => probe,
    }
}

/// Returns the probe that measures a stream at a size: small messages of weft use its blocking
/// calls.
pub fn stream(carrier: &Carrier, size: usize) -> Option<Probe> {
    match carrier.stream {
        Some(Probe::WeftBandwidth) if size <= SMALL => Some(Probe::WeftRate),
        probe => probe,
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::plot::COLOURS;
    use super::*;
    use clap::ValueEnum;

    fn names(place: Place) -> Vec<&'static str> {
        carriers(Situation { place, loaded: false }).iter().map(|carrier| carrier.name).collect()
    }

    #[test]
    fn ways__every_link_is_there() {
        let all = [names(Place::Inside), names(Place::Between(1500))].concat();
        // The others are sets of links.
        let alone = |link: &&LinkName| **link != LinkName::Unprivileged;
        for link in LinkName::value_variants().iter().filter(alone) {
            let carrier = format!("weft {}", link.name());
            assert!(all.contains(&carrier.as_str()), "no {carrier}");
        }
    }

    #[test]
    fn ways__every_layer_is_there_and_has_a_colour_of_its_own() {
        let kernel = ["TCP", "TCP Nagle", "TCP spinning", "UDP", "floor"];
        let inside = ["pipe", "FIFO", "System V queue", "Unix socket"];
        let between = ["TCP no offload"];
        for (place, more) in [(Place::Inside, &inside[..]), (Place::Between(9000), &between)] {
            let names = names(place);
            for name in kernel.iter().chain(more) {
                assert!(names.contains(name), "no {name}: {names:?}");
            }
            let carriers = carriers(Situation { place, loaded: false });
            let mut colours: Vec<usize> = carriers.iter().map(|carrier| carrier.colour).collect();
            colours.sort_unstable();
            colours.dedup();
            assert!(colours.len() == carriers.len() && colours.iter().all(|&c| c < COLOURS.len()));
        }
    }

    #[test]
    fn ways__auto_is_what_ranks_on_several_hosts_get() {
        let between = carriers(Situation { place: Place::Between(1500), loaded: false });
        let auto = between.iter().find(|carrier| carrier.name == "weft auto").expect("a way");
        // The value `auto` has no packet sockets unless a launcher names other hosts.
        assert_eq!(auto.link, "shm,packet,gso,udp,tcp");
    }
}
