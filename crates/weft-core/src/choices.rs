//! The names of choices: transfer, reliability, places, trees, receipt.

use core::fmt;
use core::str::FromStr;

/// A name that no choice has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownName {
    what: &'static str,
    names: &'static str,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown {}: use one of {}", self.what, self.names)
    }
}

impl core::error::Error for UnknownName {}

macro_rules! names {
    (
        $(#[$about:meta])* $kind:ident, $what:literal, $names:literal;
        $($(#[$case_about:meta])* $case:ident = $name:literal,)*
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum $kind {
            $($(#[$case_about])* $case,)*
        }

        impl $kind {
            /// Every choice.
            pub const ALL: &'static [$kind] = &[$($kind::$case,)*];

            /// Returns its name in settings.
            pub const fn name(self) -> &'static str {
                match self {
                    $($kind::$case => $name,)*
                }
            }
        }

        impl FromStr for $kind {
            type Err = UnknownName;

            fn from_str(name: &str) -> Result<$kind, UnknownName> {
                let unknown = UnknownName { what: $what, names: $names };
                $kind::ALL.iter().copied().find(|it| it.name() == name).ok_or(unknown)
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

names! {
    /// The transfer of payload to the link.
    Transfer, "transfer", "auto, copy, gather, rcpy";
    /// The cost model decides by the length of a message.
    #[default]
    Auto = "auto",
    /// The processor writes the payload into the link's frame, or into library memory while no
    /// frame is free; the buffer can be used again at once.
    Copy = "copy",
    /// The link reads the payload from the program's memory, which must not change until it has
    /// been sent (on a network that loses packets: acknowledged).
    Gather = "gather",
    /// The payload goes straight to registered memory of the receiver, or the receiver fetches it.
    Rcpy = "rcpy",
}

names! {
    /// The process that does a task of a rank.
    Place, "place", "host, agent";
    /// The rank itself.
    #[default]
    Host = "host",
    /// The agent of its host.
    Agent = "agent",
}

names! {
    /// The server of fetch-and-add on the counters of a rank.
    Server, "server", "host, agent, kernel";
    /// The rank itself.
    #[default]
    Host = "host",
    /// The agent of its host.
    Agent = "agent",
    /// The kernel of its host, in a program that the agent has attached.
    Kernel = "kernel",
}

impl From<Place> for Server {
    fn from(place: Place) -> Server {
        match place {
            Place::Host => Server::Host,
            Place::Agent => Server::Agent,
        }
    }
}

names! {
    /// The method by which a rank notices arrivals.
    Receipt, "receipt", "adaptive, polling, blocking, watchdog";
    /// A wait polls for `spin_us`, then sleeps.
    #[default]
    Adaptive = "adaptive",
    /// A wait polls and never sleeps.
    Polling = "polling",
    /// A wait sleeps at once.
    Blocking = "blocking",
    /// A wait polls for `spin_us`, then sleeps; a thread also makes progress for a rank that has
    /// not polled for `watchdog_us`.
    Watchdog = "watchdog",
}

names! {
    /// Shape of a spanning tree.
    Tree, "tree", "flat, chain, binary, binomial";
    /// The root communicates with every other rank.
    Flat = "flat",
    /// Each rank communicates with the next one.
    Chain = "chain",
    /// Each rank has at most two children.
    Binary = "binary",
    /// The number of reached ranks doubles every step.
    #[default]
    Binomial = "binomial",
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn names__round_trip() {
        for &tree in Tree::ALL {
            assert_eq!(tree.to_string().parse(), Ok(tree));
        }
        for &transfer in Transfer::ALL {
            assert_eq!(transfer.to_string().parse(), Ok(transfer));
        }
        for &receipt in Receipt::ALL {
            assert_eq!(receipt.to_string().parse(), Ok(receipt));
        }
        for &place in Place::ALL {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        for &server in Server::ALL {
            assert_eq!(server.to_string().parse(), Ok(server));
        }
    }

    #[test]
    fn names__an_unknown_one_lists_those_there_are() {
        let error = "Binary".parse::<Tree>().unwrap_err().to_string();
        assert!(error.contains("flat, chain, binary, binomial"), "{error}");
    }
}
