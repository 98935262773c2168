//! `struct fi_info`: reading the caller's structure, building the provider's.

use super::abi::*;
use crate::name;
use crate::offer::{Hints, Offer, INJECT, MESSAGE, NAMES, ORDER, PIECES};
use libc::{c_char, c_int};
use std::ffi::CStr;

/// # Safety
/// `s` is null or a string.
unsafe fn text(s: *const c_char) -> Option<String> {
    // SAFETY: promised by the caller.
    (!s.is_null()).then(|| unsafe { CStr::from_ptr(s) }.to_string_lossy().into_owned())
}

/// Reads a caller's hints; `None` if there are none.
///
/// # Safety
/// `info` is null or points to a whole structure of the caller's.
pub unsafe fn read(info: *const Info) -> Option<Hints> {
    // SAFETY: promised by the caller, here and for the structures it points to.
    unsafe {
        let info = info.as_ref()?;
        let mut h = Hints {
            caps: info.caps,
            mode: info.mode,
            addr_format: info.addr_format,
            ..Hints::default()
        };
        if let Some(ep) = info.ep_attr.as_ref() {
            h.ep_type = ep.kind;
            h.protocol = ep.protocol;
            h.max_msg_size = ep.max_msg_size;
            h.contexts = (ep.tx_ctx_cnt, ep.rx_ctx_cnt);
            h.auth_key_size = ep.auth_key_size;
        }
        if let Some(tx) = info.tx_attr.as_ref() {
            h.op_flags.0 = tx.op_flags;
            h.msg_order.0 = tx.msg_order;
            h.side_caps.0 = tx.caps;
            h.inject_size = tx.inject_size;
            h.depth.0 = tx.size;
            h.pieces.0 = tx.iov_limit;
            h.pieces.2 = tx.rma_iov_limit;
        }
        if let Some(rx) = info.rx_attr.as_ref() {
            h.op_flags.1 = rx.op_flags;
            h.msg_order.1 = rx.msg_order;
            h.side_caps.1 = rx.caps;
            h.depth.1 = rx.size;
            h.pieces.1 = rx.iov_limit;
        }
        if let Some(domain) = info.domain_attr.as_ref() {
            h.threading = domain.threading;
            h.progress = (domain.control_progress, domain.data_progress);
            h.av_type = domain.av_type;
            h.mr_mode = Some(domain.mr_mode);
            h.cq_data_size = domain.cq_data_size;
            h.mr_key_size = domain.mr_key_size;
            h.domain_caps = domain.caps;
            h.names[2] = text(domain.name);
        }
        if let Some(fabric) = info.fabric_attr.as_ref() {
            h.names[0] = text(fabric.prov_name);
            h.names[1] = text(fabric.name);
        }
        Some(h)
    }
}

/// Allocates zeroed memory, which `free` releases.
fn zeroed<T>(size: usize) -> Result<*mut T, c_int> {
    // SAFETY: allocates; checked for null.
    let memory = unsafe { libc::calloc(1, size) };
    if memory.is_null() {
        return Err(err::ENOMEM);
    }
    Ok(memory.cast())
}

fn copy_of(text: &str) -> Result<*mut c_char, c_int> {
    let memory: *mut c_char = zeroed(text.len() + 1)?;
    // SAFETY: there is room for the text and the zero behind it.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), memory, text.len()) };
    Ok(memory)
}

/// Builds the structure for an offer. libfabric frees it, and everything it points to.
pub fn build(offer: &Offer, api: u32) -> Result<*mut Info, c_int> {
    let info: *mut Info = zeroed(size_of::<Info>())?;
    // SAFETY: zeroed memory is a valid `Info` without attributes.
    let i = unsafe { &mut *info };
    i.caps = offer.caps;
    i.addr_format = ADDR_WEFT;
    i.src_addrlen = name::LEN;
    i.src_addr = zeroed(name::LEN)?;
    i.tx_attr = tx(offer)?;
    i.rx_attr = rx(offer)?;
    i.ep_attr = ep()?;
    i.domain_attr = domain(offer)?;
    i.fabric_attr = zeroed(size_of::<FabricAttr>())?;
    // SAFETY: zeroed memory is a valid `FabricAttr`; the provider's name is filled in by the core.
    let fabric = unsafe { &mut *i.fabric_attr };
    fabric.name = copy_of(NAMES[1])?;
    fabric.prov_version = version(0, 1);
    fabric.api_version = api;
    Ok(info)
}

fn tx(offer: &Offer) -> Result<*mut TxAttr, c_int> {
    let attr: *mut TxAttr = zeroed(size_of::<TxAttr>())?;
    let send = cap::MSG | cap::TAGGED | cap::RMA | cap::ATOMIC;
    // SAFETY: memory of the right size was just allocated.
    unsafe {
        attr.write(TxAttr {
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
        });
    }
    Ok(attr)
}

fn rx(offer: &Offer) -> Result<*mut RxAttr, c_int> {
    let attr: *mut RxAttr = zeroed(size_of::<RxAttr>())?;
    let receive = cap::MSG | cap::TAGGED | cap::RMA | cap::ATOMIC | cap::RECV;
    let remote = cap::REMOTE_READ | cap::REMOTE_WRITE | cap::DIRECTED_RECV;
    // Capabilities of the domain are left out.
    let more = cap::MULTI_RECV | cap::SOURCE | cap::RMA_EVENT;
    // SAFETY: memory of the right size was just allocated.
    unsafe {
        attr.write(RxAttr {
            caps: offer.caps & (receive | remote | more),
            mode: 0,
            op_flags: offer.op_flags.1,
            msg_order: ORDER,
            comp_order: 0,
            total_buffered_recv: 0,
            size: offer.depth.1,
            iov_limit: PIECES,
        });
    }
    Ok(attr)
}

fn ep() -> Result<*mut EpAttr, c_int> {
    let attr: *mut EpAttr = zeroed(size_of::<EpAttr>())?;
    // SAFETY: memory of the right size was just allocated.
    unsafe {
        attr.write(EpAttr {
            kind: EP_RDM,
            protocol: PROTO_WEFT,
            protocol_version: 1,
            max_msg_size: MESSAGE,
            msg_prefix_size: 0,
            max_order_raw_size: MESSAGE,
            // For atomic operations: a read of memory may see later writes.
            max_order_war_size: crate::atomic::LONGEST,
            max_order_waw_size: MESSAGE,
            mem_tag_format: u64::MAX,
            tx_ctx_cnt: 1,
            rx_ctx_cnt: 1,
            auth_key_size: 0,
            auth_key: std::ptr::null_mut(),
        });
    }
    Ok(attr)
}

fn domain(offer: &Offer) -> Result<*mut DomainAttr, c_int> {
    let attr: *mut DomainAttr = zeroed(DOMAIN_ATTR_SIZE)?;
    let name = copy_of(NAMES[2])?;
    // SAFETY: memory of more than the right size was just allocated.
    unsafe {
        attr.write(DomainAttr {
            domain: std::ptr::null_mut(),
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
            auth_key: std::ptr::null_mut(),
            auth_key_size: 0,
            max_err_data: 0,
            mr_cnt: 1 << 20,
            tclass: 0,
        });
    }
    Ok(attr)
}
