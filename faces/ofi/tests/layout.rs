//! The provider's declaration of the binary interface, compared with libfabric's: sizes, offsets of
//! fields and numbers of libfabric 2.6, and, where a C compiler and libfabric's headers are
//! installed, those of the headers.
#![allow(non_snake_case)]

use std::fmt::Write;
use std::mem::offset_of;
use std::process::Command;
use weft_conformance::skip;
use weft_fi::abi::*;

/// A field: its name in C, its offset, and the offset it should have.
struct Field(&'static str, usize, usize);

/// A structure: its name in C, its size, the size it should have, its fields.
struct Layout(&'static str, usize, usize, Vec<Field>);

macro_rules! name {
    ($field:ident) => {
        stringify!($field)
    };
    ($($field:ident).+ $name:literal) => {
        $name
    };
}

/// Lists the name in C and the size of each structure, and the offsets of its fields.
macro_rules! layouts {
    ($( $of:ident $c:literal $size:literal {
        $( $($field:ident).+ $(as $name:literal)? $at:literal ),*
    } )*) => { vec![ $( Layout($c, size_of::<$of>(), $size, vec![ $(
        Field(name!($($field).+ $($name)?), offset_of!($of, $($field).+), $at),
    )* ]), )* ] };
}

/// Structures of libfabric 2.6, from its headers. Those that have grown since 1.17 have the size of
/// 1.17, because the provider uses no later field.
fn layouts() -> Vec<Layout> {
    [attributes(), entries(), tables()].into_iter().flatten().collect()
}

/// Structures of information, as `layouts`.
fn attributes() -> Vec<Layout> {
    layouts! {
        Fid "fid" 24 { fclass 0, context 8, ops 16 }
        TxAttr "fi_tx_attr" 80 {
            caps 0, mode 8, op_flags 16, msg_order 24, comp_order 32, inject_size 40, size 48,
            iov_limit 56, rma_iov_limit 64, tclass 72
        }
        RxAttr "fi_rx_attr" 64 {
            caps 0, mode 8, op_flags 16, msg_order 24, comp_order 32, total_buffered_recv 40,
            size 48, iov_limit 56
        }
        EpAttr "fi_ep_attr" 96 {
            kind as "type" 0, protocol 4, protocol_version 8, max_msg_size 16, msg_prefix_size 24,
            max_order_raw_size 32, max_order_war_size 40, max_order_waw_size 48,
            mem_tag_format 56, tx_ctx_cnt 64, rx_ctx_cnt 72, auth_key_size 80, auth_key 88
        }
        DomainAttr "fi_domain_attr" 192 {
            domain 0, name 8, threading 16, control_progress 20, data_progress 24,
            resource_mgmt 28, av_type 32, mr_mode 36, mr_key_size 40, cq_data_size 48, cq_cnt 56,
            ep_cnt 64, tx_ctx_cnt 72, rx_ctx_cnt 80, max_ep_tx_ctx 88, max_ep_rx_ctx 96,
            max_ep_stx_ctx 104, max_ep_srx_ctx 112, cntr_cnt 120, mr_iov_limit 128, caps 136,
            mode 144, auth_key 152, auth_key_size 160, max_err_data 168, mr_cnt 176, tclass 184
        }
        FabricAttr "fi_fabric_attr" 32 {
            fabric 0, name 8, prov_name 16, prov_version 24, api_version 28
        }
        Info "fi_info" 120 {
            next 0, caps 8, mode 16, addr_format 24, src_addrlen 32, dest_addrlen 40, src_addr 48,
            dest_addr 56, handle 64, tx_attr 72, rx_attr 80, ep_attr 88, domain_attr 96,
            fabric_attr 104, nic 112
        }
        Provider "fi_provider" 72 {
            version 0, fi_version 4, context 8, name 40, getinfo 48, fabric 56, cleanup 64
        }
    }
}

/// Structures of objects, messages and completions, as `layouts`.
fn entries() -> Vec<Layout> {
    layouts! {
        AvAttr "fi_av_attr" 48 {
            kind as "type" 0, rx_ctx_bits 4, count 8, ep_per_node 16, name 24, map_addr 32,
            flags 40
        }
        CqAttr "fi_cq_attr" 40 {
            size 0, flags 8, format 16, wait_obj 20, signaling_vector 24, wait_cond 28,
            wait_set 32
        }
        CntrAttr "fi_cntr_attr" 24 { events 0, wait_obj 4, wait_set 8, flags 16 }
        EqAttr "fi_eq_attr" 32 { size 0, flags 8, wait_obj 16, signaling_vector 20, wait_set 24 }
        EqEntry "fi_eq_entry" 24 { fid 0, context 8, data 16 }
        EqErrEntry "fi_eq_err_entry" 48 {
            fid 0, context 8, data 16, err 24, prov_errno 28, err_data 32, err_data_size 40
        }
        CqTaggedEntry "fi_cq_tagged_entry" 48 {
            op_context 0, flags 8, len 16, buf 24, data 32, tag 40
        }
        CqErrEntry "fi_cq_err_entry" 88 {
            entry.op_context as "op_context" 0, entry.flags as "flags" 8, entry.len as "len" 16,
            entry.buf as "buf" 24, entry.data as "data" 32, entry.tag as "tag" 40, olen 48, err 56,
            prov_errno 60, err_data 64, err_data_size 72, src_addr 80
        }
        MrAttr "fi_mr_attr" 80 {
            mr_iov 0, iov_count 8, access 16, offset 24, requested_key 32, context 40,
            auth_key_size 48, auth_key 56, iface 64, device 72
        }
        Msg "fi_msg" 48 { msg_iov 0, desc 8, iov_count 16, addr 24, context 32, data 40 }
        MsgTagged "fi_msg_tagged" 64 {
            msg_iov 0, desc 8, iov_count 16, addr 24, tag 32, ignore 40, context 48, data 56
        }
        RmaIov "fi_rma_iov" 24 { addr 0, len 8, key 16 }
        MsgRma "fi_msg_rma" 64 {
            msg_iov 0, desc 8, iov_count 16, addr 24, rma_iov 32, rma_iov_count 40, context 48,
            data 56
        }
        Ioc "fi_ioc" 16 { addr 0, count 8 }
        RmaIoc "fi_rma_ioc" 24 { addr 0, count 8, key 16 }
        MsgAtomic "fi_msg_atomic" 72 {
            msg_iov 0, desc 8, iov_count 16, addr 24, rma_iov 32, rma_iov_count 40, datatype 48,
            op 52, context 56, data 64
        }
        AtomicAttr "fi_atomic_attr" 16 { count 0, size 8 }
        AvSetAttr "fi_av_set_attr" 56 {
            count 0, start_addr 8, end_addr 16, stride 24, comm_key_size 32, comm_key 40, flags 48
        }
        CollectiveAttr "fi_collective_attr" 40 {
            op 0, datatype 4, datatype_attr 8, max_members 24, mode 32
        }
        CollectiveAddr "fi_collective_addr" 16 { set 0, coll_addr 8 }
        FidAvSet "fid_av_set" 32 { fid 0, ops 24 }
        FidMc "fid_mc" 32 { fid 0, fi_addr 24 }
        FidFabric "fid_fabric" 40 { fid 0, ops 24, api_version 32 }
        FidDomain "fid_domain" 40 { fid 0, ops 24, mr 32 }
        FidAv "fid_av" 32 { fid 0, ops 24 }
        FidMr "fid_mr" 40 { fid 0, mem_desc 24, key 32 }
        FidCq "fid_cq" 32 { fid 0, ops 24 }
        FidCntr "fid_cntr" 32 { fid 0, ops 24 }
        FidEq "fid_eq" 32 { fid 0, ops 24 }
        FidEp "fid_ep" 80 {
            fid 0, ops 24, cm 32, msg 40, rma 48, tagged 56, atomic 64, collective 72
        }
    }
}

/// Tables of functions, as `layouts`.
fn tables() -> Vec<Layout> {
    layouts! {
        FiOps "fi_ops" 56 {
            size 0, close 8, bind 16, control 24, ops_open 32, tostr 40, ops_set 48
        }
        FiOpsFabric "fi_ops_fabric" 56 {
            size 0, domain 8, passive_ep 16, eq_open 24, wait_open 32, trywait 40, domain2 48
        }
        FiOpsDomain "fi_ops_domain" 96 {
            size 0, av_open 8, cq_open 16, endpoint 24, scalable_ep 32, cntr_open 40,
            poll_open 48, stx_ctx 56, srx_ctx 64, query_atomic 72, query_collective 80,
            endpoint2 88
        }
        FiOpsMr "fi_ops_mr" 32 { size 0, reg 8, regv 16, regattr 24 }
        FiOpsAv "fi_ops_av" 88 {
            size 0, insert 8, insertsvc 16, insertsym 24, remove 32, lookup 40, straddr 48,
            av_set 56, insert_auth_key 64, lookup_auth_key 72, set_user_id 80
        }
        FiOpsAvSet "fi_ops_av_set" 56 {
            size 0, set_union 8, intersect 16, diff 24, insert 32, remove 40, addr 48
        }
        FiOpsCollective "fi_ops_collective" 96 {
            size 0, barrier 8, broadcast 16, alltoall 24, allreduce 32, allgather 40,
            reduce_scatter 48, reduce 56, scatter 64, gather 72, msg 80, barrier2 88
        }
        FiOpsCq "fi_ops_cq" 64 {
            size 0, read 8, readfrom 16, readerr 24, sread 32, sreadfrom 40, signal 48,
            strerror 56
        }
        FiOpsCntr "fi_ops_cntr" 64 {
            size 0, read 8, readerr 16, add 24, set 32, wait 40, adderr 48, seterr 56
        }
        FiOpsEq "fi_ops_eq" 48 { size 0, read 8, readerr 16, write 24, sread 32, strerror 40 }
        FiOpsEp "fi_ops_ep" 64 {
            size 0, cancel 8, getopt 16, setopt 24, tx_ctx 32, rx_ctx 40, rx_size_left 48,
            tx_size_left 56
        }
        FiOpsCm "fi_ops_cm" 80 {
            size 0, setname 8, getname 16, getpeer 24, connect 32, listen 40, accept 48,
            reject 56, shutdown 64, join 72
        }
        FiOpsMsg "fi_ops_msg" 80 {
            size 0, recv 8, recvv 16, recvmsg 24, send 32, sendv 40, sendmsg 48, inject 56,
            senddata 64, injectdata 72
        }
        FiOpsTagged "fi_ops_tagged" 80 {
            size 0, recv 8, recvv 16, recvmsg 24, send 32, sendv 40, sendmsg 48, inject 56,
            senddata 64, injectdata 72
        }
        FiOpsRma "fi_ops_rma" 80 {
            size 0, read 8, readv 16, readmsg 24, write 32, writev 40, writemsg 48, inject 56,
            writedata 64, injectdata 72
        }
        FiOpsAtomic "fi_ops_atomic" 112 {
            size 0, write 8, writev 16, writemsg 24, inject 32, readwrite 40, readwritev 48,
            readwritemsg 56, compwrite 64, compwritev 72, compwritemsg 80, writevalid 88,
            readwritevalid 96, compwritevalid 104
        }
    }
}

/// Structures that may be longer in the headers: the provider uses the beginning.
const GROWING: [&str; 4] = ["fi_domain_attr", "fi_mr_attr", "fi_cq_err_entry", "fi_ops_av"];

/// Names that 1.17 does not have.
const NEWER: [&str; 7] = [
    "insert_auth_key",
    "lookup_auth_key",
    "set_user_id",
    "src_addr of fi_cq_err_entry",
    "FI_PROGRESS_CONTROL_UNIFIED",
    "FI_OPT_CUDA_API_PERMITTED",
    "FI_OPT_SHARED_MEMORY_PERMITTED",
];

/// Names in C, the provider's numbers, and libfabric's.
const NUMBERS: &[(&str, u64, u64)] = &[
    ("FI_MSG", cap::MSG, 2),
    ("FI_RMA", cap::RMA, 4),
    ("FI_TAGGED", cap::TAGGED, 8),
    ("FI_ATOMIC", cap::ATOMIC, 16),
    ("FI_COLLECTIVE", cap::COLLECTIVE, 64),
    ("FI_READ", cap::READ, 256),
    ("FI_WRITE", cap::WRITE, 512),
    ("FI_RECV", cap::RECV, 1024),
    ("FI_SEND", cap::SEND, 2048),
    ("FI_REMOTE_READ", cap::REMOTE_READ, 1 << 12),
    ("FI_REMOTE_WRITE", cap::REMOTE_WRITE, 1 << 13),
    ("FI_MULTI_RECV", cap::MULTI_RECV, 1 << 16),
    ("FI_REMOTE_CQ_DATA", cap::REMOTE_CQ_DATA, 1 << 17),
    ("FI_MORE", cap::MORE, 1 << 18),
    ("FI_PEEK", cap::PEEK, 1 << 19),
    ("FI_FENCE", cap::FENCE, 1 << 21),
    ("FI_COMPLETION", cap::COMPLETION, 1 << 24),
    ("FI_INJECT", cap::INJECT, 1 << 25),
    ("FI_INJECT_COMPLETE", cap::INJECT_COMPLETE, 1 << 26),
    ("FI_TRANSMIT_COMPLETE", cap::TRANSMIT_COMPLETE, 1 << 27),
    ("FI_DELIVERY_COMPLETE", cap::DELIVERY_COMPLETE, 1 << 28),
    ("FI_MATCH_COMPLETE", cap::MATCH_COMPLETE, 1 << 31),
    ("FI_LOCAL_COMM", cap::LOCAL_COMM, 1 << 51),
    ("FI_REMOTE_COMM", cap::REMOTE_COMM, 1 << 52),
    ("FI_PROV_ATTR_ONLY", cap::PROV_ATTR_ONLY, 1 << 54),
    ("FI_RMA_EVENT", cap::RMA_EVENT, 1 << 56),
    ("FI_SOURCE", cap::SOURCE, 1 << 57),
    ("FI_DIRECTED_RECV", cap::DIRECTED_RECV, 1 << 59),
    ("FI_CLAIM", cap::CLAIM, 1 << 59),
    ("FI_DISCARD", cap::DISCARD, 1 << 58),
    ("FI_SELECTIVE_COMPLETION", cap::SELECTIVE_COMPLETION, 1 << 59),
    ("FI_REG_MR", cap::REG_MR, 1 << 59),
    ("FI_SYNC_ERR", cap::SYNC_ERR, 1 << 58),
    ("FI_PEER", cap::PEER, 1 << 43),
    ("FI_CONTEXT", mode::CONTEXT, 1 << 59),
    ("FI_CONTEXT2", mode::CONTEXT2, 1 << 52),
    ("FI_ORDER_RAR", order::RAR, 1),
    ("FI_ORDER_RAW", order::RAW, 2),
    ("FI_ORDER_RAS", order::RAS, 4),
    ("FI_ORDER_WAR", order::WAR, 8),
    ("FI_ORDER_WAW", order::WAW, 16),
    ("FI_ORDER_WAS", order::WAS, 32),
    ("FI_ORDER_SAR", order::SAR, 64),
    ("FI_ORDER_SAW", order::SAW, 128),
    ("FI_ORDER_SAS", order::SAS, 256),
    ("FI_ORDER_RMA_RAR", order::RMA_RAR, 1 << 32),
    ("FI_ORDER_RMA_RAW", order::RMA_RAW, 1 << 33),
    ("FI_ORDER_RMA_WAR", order::RMA_WAR, 1 << 34),
    ("FI_ORDER_RMA_WAW", order::RMA_WAW, 1 << 35),
    ("FI_ORDER_ATOMIC_RAR", order::ATOMIC_RAR, 1 << 36),
    ("FI_ORDER_ATOMIC_RAW", order::ATOMIC_RAW, 1 << 37),
    ("FI_ORDER_ATOMIC_WAR", order::ATOMIC_WAR, 1 << 38),
    ("FI_ORDER_ATOMIC_WAW", order::ATOMIC_WAW, 1 << 39),
    ("FI_MR_LOCAL", mr::LOCAL as u64, 4),
    ("FI_MR_VIRT_ADDR", mr::VIRT_ADDR as u64, 16),
    ("FI_MR_ALLOCATED", mr::ALLOCATED as u64, 32),
    ("FI_MR_PROV_KEY", mr::PROV_KEY as u64, 64),
    ("FI_MR_ENDPOINT", mr::ENDPOINT as u64, 512),
    ("FI_EOTHER", err::EOTHER as u64, 256),
    ("FI_ETOOSMALL", err::ETOOSMALL as u64, 257),
    ("FI_EOPBADSTATE", err::EOPBADSTATE as u64, 258),
    ("FI_EAVAIL", err::EAVAIL as u64, 259),
    ("FI_EBADFLAGS", err::EBADFLAGS as u64, 260),
    ("FI_ENOEQ", err::ENOEQ as u64, 261),
    ("FI_ENOCQ", err::ENOCQ as u64, 263),
    ("FI_ETRUNC", err::ETRUNC as u64, 265),
    ("FI_ENOKEY", err::ENOKEY as u64, 266),
    ("FI_ENOAV", err::ENOAV as u64, 267),
    ("FI_CLASS_FABRIC", class::FABRIC as u64, 1),
    ("FI_CLASS_DOMAIN", class::DOMAIN as u64, 2),
    ("FI_CLASS_EP", class::EP as u64, 3),
    ("FI_CLASS_AV", class::AV as u64, 11),
    ("FI_CLASS_MR", class::MR as u64, 12),
    ("FI_CLASS_MC", class::MC as u64, 19),
    ("FI_CLASS_AV_SET", class::AV_SET as u64, 21),
    ("FI_CLASS_EQ", class::EQ as u64, 13),
    ("FI_CLASS_CQ", class::CQ as u64, 14),
    ("FI_CLASS_CNTR", class::CNTR as u64, 15),
    ("FI_GETOPSFLAG", control::GETOPSFLAG as u64, 2),
    ("FI_SETOPSFLAG", control::SETOPSFLAG as u64, 3),
    ("FI_GETWAIT", control::GETWAIT as u64, 5),
    ("FI_ENABLE", control::ENABLE as u64, 6),
    ("FI_GETWAITOBJ", control::GETWAITOBJ as u64, 16),
    ("FI_EP_RDM", EP_RDM as u64, 3),
    ("FI_AV_MAP", AV_MAP as u64, 1),
    ("FI_AV_TABLE", AV_TABLE as u64, 2),
    ("FI_PROGRESS_UNSPEC", PROGRESS_UNSPEC as u64, 0),
    ("FI_PROGRESS_AUTO", PROGRESS_AUTO as u64, 1),
    ("FI_PROGRESS_MANUAL", PROGRESS_MANUAL as u64, 2),
    ("FI_PROGRESS_CONTROL_UNIFIED", PROGRESS_CONTROL_UNIFIED as u64, 3),
    ("FI_THREAD_UNSPEC", THREAD_UNSPEC as u64, 0),
    ("FI_THREAD_SAFE", THREAD_SAFE as u64, 1),
    ("FI_THREAD_FID", THREAD_FID as u64, 2),
    ("FI_THREAD_DOMAIN", THREAD_DOMAIN as u64, 3),
    ("FI_THREAD_COMPLETION", THREAD_COMPLETION as u64, 4),
    ("FI_THREAD_ENDPOINT", THREAD_ENDPOINT as u64, 5),
    ("FI_RM_ENABLED", RM_ENABLED as u64, 2),
    ("FI_ADDR_NOTAVAIL", ADDR_NONE, 0xffffffffffffffff),
    ("FI_KEY_NOTAVAIL", KEY_NONE, 0xffffffffffffffff),
    ("FI_CQ_FORMAT_CONTEXT", CQ_CONTEXT as u64, 1),
    ("FI_CQ_FORMAT_MSG", CQ_MSG as u64, 2),
    ("FI_CQ_FORMAT_DATA", CQ_DATA as u64, 3),
    ("FI_CQ_FORMAT_TAGGED", CQ_TAGGED as u64, 4),
    ("FI_CNTR_EVENTS_COMP", CNTR_COMPLETIONS as u64, 0),
    ("FI_WAIT_NONE", WAIT_NONE as u64, 0),
    ("FI_WAIT_UNSPEC", WAIT_UNSPEC as u64, 1),
    ("FI_WAIT_FD", WAIT_FD as u64, 3),
    ("FI_WAIT_YIELD", WAIT_YIELD as u64, 5),
    ("FI_OPT_ENDPOINT", OPT_ENDPOINT as u64, 0),
    ("FI_OPT_MIN_MULTI_RECV", OPT_MIN_MULTI_RECV as u64, 0),
    ("FI_OPT_CM_DATA_SIZE", OPT_CM_DATA_SIZE as u64, 1),
    ("FI_OPT_FI_HMEM_P2P", OPT_FI_HMEM_P2P as u64, 8),
    ("FI_OPT_CUDA_API_PERMITTED", OPT_CUDA_API_PERMITTED as u64, 10),
    ("FI_OPT_SHARED_MEMORY_PERMITTED", OPT_SHARED_MEMORY_PERMITTED as u64, 11),
    ("FI_AV_COMPLETE", EVENT_AV_COMPLETE as u64, 5),
    ("FI_JOIN_COMPLETE", EVENT_JOIN_COMPLETE as u64, 6),
    ("FI_MR_COMPLETE", EVENT_MR_COMPLETE as u64, 4),
];

#[test]
fn layouts__are_those_of_libfabric_2_6() {
    for Layout(c, size, wanted, fields) in layouts() {
        assert_eq!(size, wanted, "size of {c}");
        for Field(field, at, wanted) in fields {
            assert_eq!(at, wanted, "{c}.{field}");
        }
    }
}

#[test]
fn numbers__are_those_of_libfabric_2_6() {
    for (name, ours, theirs) in NUMBERS {
        assert_eq!(ours, theirs, "{name}");
    }
}

/// Returns a C program that compiles if the headers agree with the provider.
fn assertions() -> String {
    let mut c = String::from("#include <stddef.h>\n");
    let headers = ["fabric.h", "fi_errno.h", "fi_domain.h", "fi_endpoint.h", "fi_cm.h", "fi_eq.h"];
    let more = ["fi_tagged.h", "fi_rma.h", "fi_atomic.h", "fi_collective.h", "providers/fi_prov.h"];
    for header in headers.iter().chain(&more) {
        writeln!(c, "#include <rdma/{header}>").unwrap();
    }
    let version = "FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION) >= FI_VERSION(1, 20)";
    let mut add = |name: &str, condition: String| {
        let line = format!("_Static_assert({condition}, \"{name}\");");
        match NEWER.contains(&name) {
            true => writeln!(c, "#if {version}\n{line}\n#endif").unwrap(),
            false => writeln!(c, "{line}").unwrap(),
        }
    };
    for Layout(of, size, _, fields) in layouts() {
        let newer = |field: &str| match (of, field) {
            ("fi_cq_err_entry", "src_addr") => "src_addr of fi_cq_err_entry".to_owned(),
            _ => field.to_owned(),
        };
        for Field(field, at, _) in fields {
            add(&newer(field), format!("offsetof(struct {of}, {field}) == {at}"));
        }
        if !GROWING.contains(&of) {
            add(of, format!("sizeof(struct {of}) == {size}"));
        }
    }
    for (name, ours, _) in NUMBERS {
        add(name, format!("(unsigned long long)({name}) == {ours}ull"));
    }
    c
}

#[test]
fn layouts__are_those_of_the_installed_headers() {
    if Command::new("gcc").arg("--version").output().is_err() {
        return skip("no gcc");
    }
    if !std::path::Path::new("/usr/include/rdma/providers/fi_prov.h").exists() {
        return skip("libfabric's headers are not installed");
    }
    let dir = std::env::temp_dir().join(format!("weft-layout-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("layout.c");
    std::fs::write(&file, assertions()).unwrap();
    let out = Command::new("gcc").args(["-std=gnu11", "-w", "-fsyntax-only"]).arg(&file).output();
    std::fs::remove_dir_all(&dir).unwrap();
    let out = out.unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}
