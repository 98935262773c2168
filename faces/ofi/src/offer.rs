//! Hints of callers, and the offer that weft makes for them.

use crate::abi::{self, cap, mr, order};

/// Capabilities that are granted only on request.
pub const PRIMARY: u64 = cap::MSG
    | cap::TAGGED
    | cap::RMA
    | cap::ATOMIC
    | cap::SEND
    | cap::RECV
    | cap::READ
    | cap::WRITE
    | cap::REMOTE_READ
    | cap::REMOTE_WRITE
    | cap::DIRECTED_RECV;

/// Capabilities that come with every endpoint.
pub const SECONDARY: u64 = cap::MULTI_RECV | cap::SOURCE | cap::LOCAL_COMM | cap::REMOTE_COMM;

/// Capabilities that cost something and are granted only on request.
pub const ON_REQUEST: u64 = cap::RMA_EVENT | cap::FENCE | cap::COLLECTIVE;

/// Order between any two operations to one peer. All go through one sequence, in which writes and
/// atomic operations are executed as they arrive. The data of a read is sent later, so writes (and,
/// for the answer of the read, messages) after a read may be executed before it.
pub const ORDER: u64 = order::RAR
    | order::RAW
    | order::WAW
    | order::WAS
    | order::SAW
    | order::SAS
    | order::RMA_RAR
    | order::RMA_RAW
    | order::RMA_WAW
    | order::ATOMIC_RAR
    | order::ATOMIC_RAW
    | order::ATOMIC_WAR
    | order::ATOMIC_WAW;

/// Flags that may be default flags of an endpoint's sends.
pub const TX_FLAGS: u64 = cap::COMPLETION
    | cap::INJECT
    | cap::INJECT_COMPLETE
    | cap::TRANSMIT_COMPLETE
    | cap::DELIVERY_COMPLETE
    | cap::MATCH_COMPLETE;

/// Flags that may be default flags of an endpoint's receives.
pub const RX_FLAGS: u64 = cap::COMPLETION | cap::MULTI_RECV;

/// Longest message that is sent from a copy, in bytes.
pub const INJECT: usize = 16 << 10;
/// Longest message, in bytes.
pub const MESSAGE: usize = 1 << 40;
/// Most pieces of a buffer.
pub const PIECES: usize = 32;
/// Most operations in progress that a caller may ask for.
pub const DEPTH: usize = 1 << 16;
/// Operations in progress for callers that ask for no number: callers allocate memory for each.
pub const DEPTH_UNASKED: usize = 1 << 10;

/// The fields of `struct fi_info` that are compared with the offer; zero where the caller states no
/// wish. More than 15 fields: they are those of libfabric.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// Capabilities of the endpoint.
    pub caps: u64,
    /// Format of addresses.
    pub addr_format: u32,
    /// Type of endpoint.
    pub ep_type: i32,
    /// Protocol.
    pub protocol: u32,
    /// Longest message that the caller sends.
    pub max_msg_size: usize,
    /// Number of transmit and receive contexts.
    pub contexts: (usize, usize),
    /// Length of a key for authentication.
    pub auth_key_size: usize,
    /// Default flags of sends and receives.
    pub op_flags: (u64, u64),
    /// Order of sends and receives.
    pub msg_order: (u64, u64),
    /// Capabilities of the transmit and the receive side.
    pub side_caps: (u64, u64),
    /// Most bytes that the caller sends from a copy.
    pub inject_size: usize,
    /// Operations in progress: sends, receives.
    pub depth: (usize, usize),
    /// Pieces of a buffer: sends, receives, remote.
    pub pieces: (usize, usize, usize),
    /// The caller's use of threads.
    pub threading: i32,
    /// Progress of control and data.
    pub progress: (i32, i32),
    /// Type of address vector.
    pub av_type: i32,
    /// Modes of memory registration; `None` if there were no hints for a domain.
    pub mr_mode: Option<i32>,
    /// Bytes of remote completion data.
    pub cq_data_size: usize,
    /// Bytes of a memory key.
    pub mr_key_size: usize,
    /// Capabilities of the domain.
    pub domain_caps: u64,
    /// Names of provider, fabric and domain.
    pub names: [Option<String>; 3],
    /// Mode bits that the caller accepts.
    pub mode: u64,
}

/// The attributes of an endpoint that is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Capabilities.
    pub caps: u64,
    /// Default flags of sends and receives.
    pub op_flags: (u64, u64),
    /// Operations in progress: sends, receives.
    pub depth: (usize, usize),
    /// The caller's use of threads.
    pub threading: i32,
    /// Progress of control and data.
    pub progress: (i32, i32),
    /// Type of address vector.
    pub av_type: i32,
    /// Modes of memory registration that the caller must obey.
    pub mr_mode: i32,
}

/// Names of provider, fabric and domain.
pub const NAMES: [&str; 3] = ["weft", "weft", "weft"];

/// Returns the offer for a caller of version `api` of the interface with these hints; `None`
/// without hints.
///
/// # Errors
/// The feature that weft does not have, in a few words.
pub fn judge(hints: Option<&Hints>, api: u32) -> Result<Offer, &'static str> {
    let Some(h) = hints else {
        return Ok(Offer {
            caps: PRIMARY | SECONDARY,
            op_flags: (0, 0),
            depth: (DEPTH_UNASKED, DEPTH_UNASKED),
            threading: abi::THREAD_SAFE,
            progress: (abi::PROGRESS_MANUAL, abi::PROGRESS_MANUAL),
            av_type: abi::AV_TABLE,
            mr_mode: mr_mode(0, api)?,
        });
    };
    refuse(h)?;
    let caps = match h.caps & PRIMARY {
        0 => PRIMARY | SECONDARY,
        _ => expand(h.caps) | (h.caps & SECONDARY) | cap::LOCAL_COMM | cap::REMOTE_COMM,
    } | (h.caps & ON_REQUEST);
    let auto = |asked| match asked {
        abi::PROGRESS_AUTO => abi::PROGRESS_AUTO,
        _ => abi::PROGRESS_MANUAL,
    };
    let control = match h.progress.0 {
        abi::PROGRESS_CONTROL_UNIFIED => abi::PROGRESS_CONTROL_UNIFIED,
        asked => auto(asked),
    };
    let depth = |asked| if asked == 0 { DEPTH_UNASKED } else { asked };
    Ok(Offer {
        caps,
        op_flags: h.op_flags,
        depth: (depth(h.depth.0), depth(h.depth.1)),
        threading: if h.threading == 0 { abi::THREAD_SAFE } else { h.threading },
        progress: (control, auto(h.progress.1)),
        av_type: if h.av_type == 0 { abi::AV_TABLE } else { h.av_type },
        mr_mode: mr_mode(h.mr_mode.unwrap_or(0), api)?,
    })
}

/// Returns the modes of memory registration that a caller must obey, of those it accepts, as
/// libfabric's software providers do (tcp, sockets, ofi_rxm). Before version 1.5 there were two
/// modes, and callers that leave the choice expect one of them. Since then each bit is a duty of
/// the caller; weft needs none, but still grants the two old modes to callers that name one.
fn mr_mode(asked: i32, api: u32) -> Result<i32, &'static str> {
    match asked {
        mr::BASIC | mr::SCALABLE => Ok(asked),
        0 if api < abi::version(1, 5) => Ok(mr::BASIC),
        _ if api < abi::version(1, 5) => Err("a way of registering memory of newer callers"),
        _ if asked & (mr::BASIC | mr::SCALABLE) != 0 => Err("two ways of registering memory"),
        _ => Ok(0),
    }
}

/// Rules for the registration of memory in a domain, and for its use by peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The provider chooses keys, not the caller.
    pub own_keys: bool,
    /// Peers name bytes by their address, not by their offset in the region.
    pub by_address: bool,
}

impl Registration {
    /// Returns the rules of a mode: of an offer, or of one to which the caller added duties.
    pub fn of(mode: i32) -> Registration {
        let basic = mode == mr::BASIC;
        Registration {
            own_keys: basic || mode & mr::PROV_KEY != 0,
            by_address: basic || mode & mr::VIRT_ADDR != 0,
        }
    }
}

/// Adds both directions of messages to capabilities that name no direction; likewise for the
/// others.
fn expand(caps: u64) -> u64 {
    let mut caps = caps & PRIMARY;
    if caps & (cap::MSG | cap::TAGGED) != 0 && caps & (cap::SEND | cap::RECV) == 0 {
        caps |= cap::SEND | cap::RECV;
    }
    let remote = cap::READ | cap::WRITE | cap::REMOTE_READ | cap::REMOTE_WRITE;
    if caps & (cap::RMA | cap::ATOMIC) != 0 && caps & remote == 0 {
        caps |= remote;
    }
    caps
}

fn refuse(h: &Hints) -> Result<(), &'static str> {
    for (asked, ours) in h.names.iter().zip(NAMES) {
        // Hints that libfabric passes on contain the names of layers above, as in "weft;ofi_rxm".
        if asked.as_deref().is_some_and(|a| !a.eq_ignore_ascii_case(ours)) {
            return Err("another provider, fabric or domain is asked for");
        }
    }
    let known = PRIMARY | SECONDARY | ON_REQUEST;
    let fails = [
        (h.ep_type != 0 && h.ep_type != abi::EP_RDM, "only FI_EP_RDM is offered"),
        (h.caps & !known != 0, "a capability is not offered"),
        (h.side_caps.0 & !known != 0, "a capability of sends is not offered"),
        (h.side_caps.1 & !known != 0, "a capability of receives is not offered"),
        (h.addr_format != 0 && h.addr_format != abi::ADDR_WEFT, "another address format"),
        (h.protocol != 0 && h.protocol != abi::PROTO_WEFT, "another protocol"),
        (h.max_msg_size > MESSAGE, "longer messages"),
        (h.contexts.0 > 1 || h.contexts.1 > 1, "several contexts an endpoint"),
        (h.auth_key_size != 0, "keys of the caller's for authentication"),
        (h.op_flags.0 & !TX_FLAGS != 0, "a default flag of sends"),
        (h.op_flags.1 & !RX_FLAGS != 0, "a default flag of receives"),
        ((h.msg_order.0 | h.msg_order.1) & !ORDER != 0, "more order"),
        (h.inject_size > INJECT, "a longer inject"),
        (h.depth.0.max(h.depth.1) > DEPTH, "more operations at a time"),
        (h.pieces.0.max(h.pieces.1) > PIECES, "more pieces"),
        (h.pieces.2 > PIECES, "more remote pieces"),
        (!(0..=abi::THREAD_ENDPOINT).contains(&h.threading), "an unknown threading model"),
        (h.cq_data_size > 8, "more than 8 bytes of remote completion data"),
        (h.mr_key_size > 8, "longer memory keys"),
        (h.domain_caps & !(cap::LOCAL_COMM | cap::REMOTE_COMM) != 0, "a domain capability"),
    ];
    match fails.iter().find(|(fails, _)| *fails) {
        Some((_, why)) => Err(why),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    const NEWEST: u32 = abi::version(2, 6);

    #[test]
    fn judge__without_hints_everything_is_offered() {
        let offer = judge(None, NEWEST).unwrap();
        assert_eq!(offer.caps, PRIMARY | SECONDARY);
    }

    #[test]
    fn judge__what_the_mpis_ask_for_is_granted() {
        let open_mpi = Hints {
            caps: cap::MSG | cap::TAGGED | cap::LOCAL_COMM | cap::REMOTE_COMM | cap::DIRECTED_RECV,
            ep_type: abi::EP_RDM,
            threading: abi::THREAD_DOMAIN,
            av_type: abi::AV_MAP,
            mr_mode: Some(0x20),
            cq_data_size: 4,
            msg_order: (order::SAS, order::SAS),
            op_flags: (cap::COMPLETION, cap::COMPLETION),
            ..Hints::default()
        };
        let offer = judge(Some(&open_mpi), NEWEST).unwrap();
        assert_eq!(offer.threading, abi::THREAD_DOMAIN);
        assert_eq!(offer.av_type, abi::AV_MAP);
        assert_eq!(offer.caps & (cap::SEND | cap::RECV), cap::SEND | cap::RECV);
        assert_eq!(offer.caps & cap::RMA, 0, "only what is asked for is granted");
    }

    #[test]
    fn judge__progress_without_calls_is_for_those_that_ask() {
        let of = |progress| judge(Some(&Hints { progress, ..Hints::default() }), NEWEST);
        let (auto, manual) = (abi::PROGRESS_AUTO, abi::PROGRESS_MANUAL);
        assert_eq!(of((0, auto)).unwrap().progress, (manual, auto));
        assert_eq!(of((auto, 0)).unwrap().progress, (auto, manual));
        assert_eq!(of((0, 0)).unwrap().progress, (manual, manual));
    }

    #[test]
    fn judge__refuses_what_it_cannot_do() {
        let dgram = Hints { ep_type: 2, ..Hints::default() };
        assert!(judge(Some(&dgram), NEWEST).is_err());
        let other = [Some("tcp".to_string()), None, None];
        assert!(judge(Some(&Hints { names: other, ..Hints::default() }), NEWEST).is_err());
        let triggered = Hints { caps: cap::RMA | 1 << 20, ..Hints::default() };
        assert!(judge(Some(&triggered), NEWEST).is_err());
    }

    #[test]
    fn judge__events_of_remote_memory_come_to_those_that_ask() {
        let event = Hints { caps: cap::RMA | cap::RMA_EVENT, ..Hints::default() };
        assert_ne!(judge(Some(&event), NEWEST).unwrap().caps & cap::RMA_EVENT, 0);
        assert_eq!(judge(None, NEWEST).unwrap().caps & cap::RMA_EVENT, 0);
    }

    #[test]
    fn judge__memory_is_registered_as_with_software_providers_of_that_version() {
        let none = Err("");
        // Asked bits, and the bits offered before version 1.5 and since.
        let bits = mr::VIRT_ADDR | mr::ALLOCATED | mr::PROV_KEY;
        for (asked, before, since) in [
            (None, Ok(mr::BASIC), Ok(0)),
            (Some(0), Ok(mr::BASIC), Ok(0)),
            (Some(mr::BASIC), Ok(mr::BASIC), Ok(mr::BASIC)),
            (Some(mr::SCALABLE), Ok(mr::SCALABLE), Ok(mr::SCALABLE)),
            (Some(mr::BASIC | mr::SCALABLE), none, none),
            (Some(mr::LOCAL), none, Ok(0)),
            (Some(bits), none, Ok(0)),
            (Some(bits | mr::ENDPOINT), none, Ok(0)),
            (Some(bits | mr::BASIC), none, none),
        ] {
            let hints = Hints { mr_mode: asked, ..Hints::default() };
            for (version, expected) in [
                (abi::version(1, 0), before),
                (abi::version(1, 4), before),
                (abi::version(1, 5), since),
                (abi::version(1, 9), since),
                (abi::version(1, 20), since),
                (NEWEST, since),
            ] {
                let offered = judge(Some(&hints), version).map(|offer| offer.mr_mode);
                assert_eq!(offered.map_err(|_| ""), expected, "{asked:?} at {version:#x}");
            }
        }
        assert_eq!(judge(None, abi::version(1, 0)).unwrap().mr_mode, mr::BASIC);
        assert_eq!(judge(None, NEWEST).unwrap().mr_mode, 0);
    }

    #[test]
    fn registration__of_a_mode() {
        let of = |mode| {
            let r = Registration::of(mode);
            (r.own_keys, r.by_address)
        };
        assert_eq!(of(mr::BASIC), (true, true));
        assert_eq!(of(mr::SCALABLE), (false, false));
        assert_eq!(of(0), (false, false));
        assert_eq!(of(mr::PROV_KEY), (true, false));
        assert_eq!(of(mr::VIRT_ADDR | mr::ENDPOINT), (false, true));
    }
}
