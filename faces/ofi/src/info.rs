//! The fields of `struct fi_info`: hints of a caller's structures, and structures for an offer.

use crate::abi::*;
use crate::atomic::LONGEST;
use crate::offer::{Hints, Offer, INJECT, MESSAGE, ORDER, PIECES};
use libc::c_char;
use std::ptr::null_mut;

/// The structures of a caller's `fi_info`, and the names of provider, fabric and domain in them.
pub struct Parts<'a> {
    pub info: &'a Info,
    pub ep: Option<&'a EpAttr>,
    pub tx: Option<&'a TxAttr>,
    pub rx: Option<&'a RxAttr>,
    pub domain: Option<&'a DomainAttr>,
    pub names: [Option<String>; 3],
}

/// Returns the hints in a caller's structures.
pub fn hints(parts: Parts<'_>) -> Hints {
    let info = parts.info;
    let mut h = Hints {
        caps: info.caps,
        mode: info.mode,
        addr_format: info.addr_format,
        names: parts.names,
        ..Hints::default()
    };
    if let Some(ep) = parts.ep {
        h.ep_type = ep.kind;
        h.protocol = ep.protocol;
        h.max_msg_size = ep.max_msg_size;
        h.contexts = (ep.tx_ctx_cnt, ep.rx_ctx_cnt);
        h.auth_key_size = ep.auth_key_size;
    }
    if let Some(tx) = parts.tx {
        h.op_flags.0 = tx.op_flags;
        h.msg_order.0 = tx.msg_order;
        h.side_caps.0 = tx.caps;
        h.inject_size = tx.inject_size;
        h.depth.0 = tx.size;
        h.pieces.0 = tx.iov_limit;
        h.pieces.2 = tx.rma_iov_limit;
    }
    if let Some(rx) = parts.rx {
        h.op_flags.1 = rx.op_flags;
        h.msg_order.1 = rx.msg_order;
        h.side_caps.1 = rx.caps;
        h.depth.1 = rx.size;
        h.pieces.1 = rx.iov_limit;
    }
    if let Some(domain) = parts.domain {
        h.threading = domain.threading;
        h.progress = (domain.control_progress, domain.data_progress);
        h.av_type = domain.av_type;
        h.mr_mode = Some(domain.mr_mode);
        h.cq_data_size = domain.cq_data_size;
        h.mr_key_size = domain.mr_key_size;
        h.domain_caps = domain.caps;
    }
    h
}

/// Returns the attributes of the sending side of an offer.
pub fn tx(offer: &Offer) -> TxAttr {
    let send = cap::MSG | cap::TAGGED | cap::RMA | cap::ATOMIC | cap::COLLECTIVE;
    TxAttr {
        caps: offer.caps & (send | cap::SEND | cap::READ | cap::WRITE | cap::FENCE),
        mode: 0,
        op_flags: offer.op_flags.0,
        msg_order: ORDER,
        comp_order: 0,
        inject_size: INJECT,
        size: offer.depth.0,
        iov_limit: PIECES,
        rma_iov_limit: PIECES,
        tclass: 0,
    }
}

/// Returns the attributes of the receiving side of an offer.
pub fn rx(offer: &Offer) -> RxAttr {
    let receive = cap::MSG | cap::TAGGED | cap::RMA | cap::ATOMIC | cap::RECV | cap::COLLECTIVE;
    let remote = cap::REMOTE_READ | cap::REMOTE_WRITE | cap::DIRECTED_RECV;
    // Capabilities of the domain are left out.
    let more = cap::MULTI_RECV | cap::SOURCE | cap::RMA_EVENT;
    RxAttr {
        caps: offer.caps & (receive | remote | more),
        mode: 0,
        op_flags: offer.op_flags.1,
        msg_order: ORDER,
        comp_order: 0,
        total_buffered_recv: 0,
        size: offer.depth.1,
        iov_limit: PIECES,
    }
}

/// Returns the attributes of endpoints.
pub fn ep() -> EpAttr {
    EpAttr {
        kind: EP_RDM,
        protocol: PROTO_WEFT,
        protocol_version: 1,
        max_msg_size: MESSAGE,
        msg_prefix_size: 0,
        max_order_raw_size: MESSAGE,
        // For atomic operations: a read of memory may see later writes.
        max_order_war_size: LONGEST,
        max_order_waw_size: MESSAGE,
        mem_tag_format: u64::MAX,
        tx_ctx_cnt: 1,
        rx_ctx_cnt: 1,
        auth_key_size: 0,
        auth_key: null_mut(),
    }
}

/// Returns the attributes of a domain of an offer, with its name.
pub fn domain(offer: &Offer, name: *mut c_char) -> DomainAttr {
    DomainAttr {
        domain: null_mut(),
        name,
        threading: offer.threading,
        control_progress: offer.progress.0,
        data_progress: offer.progress.1,
        resource_mgmt: RM_ENABLED,
        av_type: offer.av_type,
        mr_mode: offer.mr_mode,
        mr_key_size: 8,
        cq_data_size: 8,
        cq_cnt: 1 << 10,
        ep_cnt: 1 << 10,
        tx_ctx_cnt: 1 << 10,
        rx_ctx_cnt: 1 << 10,
        max_ep_tx_ctx: 1,
        max_ep_rx_ctx: 1,
        max_ep_stx_ctx: 0,
        max_ep_srx_ctx: 0,
        cntr_cnt: 1 << 10,
        mr_iov_limit: 1,
        caps: cap::LOCAL_COMM | cap::REMOTE_COMM,
        mode: 0,
        auth_key: null_mut(),
        auth_key_size: 0,
        max_err_data: 0,
        mr_cnt: 1 << 20,
        tclass: 0,
    }
}
