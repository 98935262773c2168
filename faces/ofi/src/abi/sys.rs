//! Structures and tables of functions as libfabric's headers declare them (`rdma/fabric.h`,
//! `fi_domain.h`, `fi_endpoint.h`, `fi_eq.h`, `fi_tagged.h`, `fi_rma.h`, `fi_atomic.h`, `fi_cm.h`,
//! `providers/fi_prov.h`, versions 1.17 to 2.6).
//!
//! Structures that grew since 1.17 end here where 1.17 ended: later fields are neither read nor
//! written, except `CqErrEntry::src_addr`, which is written for callers of an API that has it.

use libc::{c_char, c_int, c_void, iovec};

#[repr(C)]
pub struct Fid {
    pub fclass: usize,
    pub context: *mut c_void,
    pub ops: *const FiOps,
}

#[repr(C)]
pub struct TxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub inject_size: usize,
    pub size: usize,
    pub iov_limit: usize,
    pub rma_iov_limit: usize,
    pub tclass: u32,
}

#[repr(C)]
pub struct RxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub total_buffered_recv: usize,
    pub size: usize,
    pub iov_limit: usize,
}

#[repr(C)]
pub struct EpAttr {
    pub kind: c_int,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: usize,
    pub msg_prefix_size: usize,
    pub max_order_raw_size: usize,
    pub max_order_war_size: usize,
    pub max_order_waw_size: usize,
    pub mem_tag_format: u64,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
}

/// Fields of 1.17 (192 bytes); 2.x adds fields after them. More than 15 fields: the binary
/// interface fixes them.
#[repr(C)]
pub struct DomainAttr {
    pub domain: *mut FidDomain,
    pub name: *mut c_char,
    pub threading: c_int,
    pub control_progress: c_int,
    pub data_progress: c_int,
    pub resource_mgmt: c_int,
    pub av_type: c_int,
    pub mr_mode: c_int,
    pub mr_key_size: usize,
    pub cq_data_size: usize,
    pub cq_cnt: usize,
    pub ep_cnt: usize,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub max_ep_tx_ctx: usize,
    pub max_ep_rx_ctx: usize,
    pub max_ep_stx_ctx: usize,
    pub max_ep_srx_ctx: usize,
    pub cntr_cnt: usize,
    pub mr_iov_limit: usize,
    pub caps: u64,
    pub mode: u64,
    pub auth_key: *mut u8,
    pub auth_key_size: usize,
    pub max_err_data: usize,
    pub mr_cnt: usize,
    pub tclass: u32,
}

/// Size of `struct fi_domain_attr` in the newest known version; as much is allocated and zeroed.
pub const DOMAIN_ATTR_SIZE: usize = 224;

#[repr(C)]
pub struct FabricAttr {
    pub fabric: *mut FidFabric,
    pub name: *mut c_char,
    pub prov_name: *mut c_char,
    pub prov_version: u32,
    pub api_version: u32,
}

#[repr(C)]
pub struct Info {
    pub next: *mut Info,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: *mut Fid,
    pub tx_attr: *mut TxAttr,
    pub rx_attr: *mut RxAttr,
    pub ep_attr: *mut EpAttr,
    pub domain_attr: *mut DomainAttr,
    pub fabric_attr: *mut FabricAttr,
    pub nic: *mut c_void,
}

#[repr(C)]
pub struct Provider {
    pub version: u32,
    pub fi_version: u32,
    /// Written by libfabric's core.
    pub context: [*mut c_void; 4],
    pub name: *const c_char,
    pub getinfo: unsafe extern "C" fn(
        u32,
        *const c_char,
        *const c_char,
        u64,
        *const Info,
        *mut *mut Info,
    ) -> c_int,
    pub fabric: unsafe extern "C" fn(*mut FabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int,
    pub cleanup: unsafe extern "C" fn(),
}

#[repr(C)]
pub struct AvAttr {
    pub kind: c_int,
    pub rx_ctx_bits: c_int,
    pub count: usize,
    pub ep_per_node: usize,
    pub name: *const c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
}

#[repr(C)]
pub struct CqAttr {
    pub size: usize,
    pub flags: u64,
    pub format: c_int,
    pub wait_obj: c_int,
    pub signaling_vector: c_int,
    pub wait_cond: c_int,
    pub wait_set: *mut c_void,
}

#[repr(C)]
pub struct CntrAttr {
    pub events: c_int,
    pub wait_obj: c_int,
    pub wait_set: *mut c_void,
    pub flags: u64,
}

#[repr(C)]
pub struct EqAttr {
    pub size: usize,
    pub flags: u64,
    pub wait_obj: c_int,
    pub signaling_vector: c_int,
    pub wait_set: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct EqEntry {
    pub fid: *mut Fid,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct EqErrEntry {
    pub fid: *mut Fid,
    pub context: *mut c_void,
    pub data: u64,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
}

/// The longest form of an entry; each shorter form is a prefix of it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CqTaggedEntry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
}

#[repr(C)]
pub struct CqErrEntry {
    pub entry: CqTaggedEntry,
    pub olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    /// Since API version 1.5.
    pub err_data: *mut c_void,
    pub err_data_size: usize,
    /// Since API version 1.20.
    pub src_addr: u64,
}

/// Fields of 1.17 (80 bytes); 2.x adds fields after them.
#[repr(C)]
pub struct MrAttr {
    pub mr_iov: *const iovec,
    pub iov_count: usize,
    pub access: u64,
    pub offset: u64,
    pub requested_key: u64,
    pub context: *mut c_void,
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
    pub iface: c_int,
    pub device: u64,
}

#[repr(C)]
pub struct Msg {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: u64,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
pub struct MsgTagged {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: u64,
    pub tag: u64,
    pub ignore: u64,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct RmaIov {
    pub addr: u64,
    pub len: usize,
    pub key: u64,
}

#[repr(C)]
pub struct MsgRma {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: u64,
    pub rma_iov: *const RmaIov,
    pub rma_iov_count: usize,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Ioc {
    pub addr: *mut c_void,
    pub count: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct RmaIoc {
    pub addr: u64,
    pub count: usize,
    pub key: u64,
}

#[repr(C)]
pub struct MsgAtomic {
    pub msg_iov: *const Ioc,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: u64,
    pub rma_iov: *const RmaIoc,
    pub rma_iov_count: usize,
    pub datatype: c_int,
    pub op: c_int,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
pub struct AtomicAttr {
    pub count: usize,
    pub size: usize,
}

#[repr(C)]
pub struct AvSetAttr {
    pub count: usize,
    pub start_addr: u64,
    pub end_addr: u64,
    pub stride: u64,
    pub comm_key_size: usize,
    pub comm_key: *mut u8,
    pub flags: u64,
}

#[repr(C)]
pub struct CollectiveAttr {
    pub op: c_int,
    pub datatype: c_int,
    pub datatype_attr: AtomicAttr,
    pub max_members: usize,
    pub mode: u64,
}

#[repr(C)]
pub struct CollectiveAddr {
    pub set: *mut FidAvSet,
    pub coll_addr: u64,
}

#[repr(C)]
pub struct FidAvSet {
    pub fid: Fid,
    pub ops: *const FiOpsAvSet,
}

#[repr(C)]
pub struct FidMc {
    pub fid: Fid,
    pub fi_addr: u64,
}

#[repr(C)]
pub struct FidFabric {
    pub fid: Fid,
    pub ops: *const FiOpsFabric,
    pub api_version: u32,
}

#[repr(C)]
pub struct FidDomain {
    pub fid: Fid,
    pub ops: *const FiOpsDomain,
    pub mr: *const FiOpsMr,
}

#[repr(C)]
pub struct FidAv {
    pub fid: Fid,
    pub ops: *const FiOpsAv,
}

#[repr(C)]
pub struct FidMr {
    pub fid: Fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

#[repr(C)]
pub struct FidCq {
    pub fid: Fid,
    pub ops: *const FiOpsCq,
}

#[repr(C)]
pub struct FidCntr {
    pub fid: Fid,
    pub ops: *const FiOpsCntr,
}

#[repr(C)]
pub struct FidEq {
    pub fid: Fid,
    pub ops: *const FiOpsEq,
}

#[repr(C)]
pub struct FidEp {
    pub fid: Fid,
    pub ops: *const FiOpsEp,
    pub cm: *const FiOpsCm,
    pub msg: *const FiOpsMsg,
    pub rma: *const FiOpsRma,
    pub tagged: *const FiOpsTagged,
    pub atomic: *const FiOpsAtomic,
    pub collective: *const FiOpsCollective,
}

/// A value that functions of the interface return.
pub trait Returned {
    /// Returns the value that reports an error.
    fn of_error(number: c_int) -> Self;
}

impl Returned for c_int {
    #[inline]
    fn of_error(number: c_int) -> c_int {
        -number
    }
}

impl Returned for isize {
    #[inline]
    fn of_error(number: c_int) -> isize {
        -(number as isize)
    }
}

impl Returned for u64 {
    fn of_error(_: c_int) -> u64 {
        0
    }
}

impl<T> Returned for *const T {
    fn of_error(_: c_int) -> *const T {
        std::ptr::null()
    }
}

/// Declares tables of functions: each begins with its size, and has a constant `NONE` in which no
/// function is offered, to be completed.
macro_rules! tables {
    ($( $table:ident { $( $name:ident($($arg:ty),*) -> $ret:ty; )* } )*) => { $(
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $table {
            pub size: usize,
            $( pub $name: unsafe extern "C" fn($($arg),*) -> $ret, )*
        }

        impl $table {
            pub const NONE: $table = $table {
                size: size_of::<$table>(),
                $( $name: {
                    unsafe extern "C" fn none($(_: $arg),*) -> $ret {
                        <$ret>::of_error(libc::ENOSYS)
                    }
                    none
                }, )*
            };
        }
    )* };
}

pub type Out<T> = *mut *mut T;
pub type Ptr = *mut c_void;
pub type Const = *const c_void;
pub type Descs = *mut *mut c_void;
pub type Iov = *const iovec;

tables! {
    FiOps {
        close(*mut Fid) -> c_int;
        bind(*mut Fid, *mut Fid, u64) -> c_int;
        control(*mut Fid, c_int, Ptr) -> c_int;
        ops_open(*mut Fid, *const c_char, u64, Out<c_void>, Ptr) -> c_int;
        tostr(*const Fid, *mut c_char, usize) -> c_int;
        ops_set(*mut Fid, *const c_char, u64, Ptr, Ptr) -> c_int;
    }
    FiOpsFabric {
        domain(*mut FidFabric, *mut Info, Out<FidDomain>, Ptr) -> c_int;
        passive_ep(*mut FidFabric, *mut Info, Out<c_void>, Ptr) -> c_int;
        eq_open(*mut FidFabric, *mut EqAttr, Out<FidEq>, Ptr) -> c_int;
        wait_open(*mut FidFabric, Ptr, Out<c_void>) -> c_int;
        trywait(*mut FidFabric, *mut *mut Fid, c_int) -> c_int;
        domain2(*mut FidFabric, *mut Info, Out<FidDomain>, u64, Ptr) -> c_int;
    }
    FiOpsDomain {
        av_open(*mut FidDomain, *mut AvAttr, Out<FidAv>, Ptr) -> c_int;
        cq_open(*mut FidDomain, *mut CqAttr, Out<FidCq>, Ptr) -> c_int;
        endpoint(*mut FidDomain, *mut Info, Out<FidEp>, Ptr) -> c_int;
        scalable_ep(*mut FidDomain, *mut Info, Out<FidEp>, Ptr) -> c_int;
        cntr_open(*mut FidDomain, *mut CntrAttr, Out<FidCntr>, Ptr) -> c_int;
        poll_open(*mut FidDomain, Ptr, Out<c_void>) -> c_int;
        stx_ctx(*mut FidDomain, *mut TxAttr, Out<c_void>, Ptr) -> c_int;
        srx_ctx(*mut FidDomain, *mut RxAttr, Out<FidEp>, Ptr) -> c_int;
        query_atomic(*mut FidDomain, c_int, c_int, *mut AtomicAttr, u64) -> c_int;
        query_collective(*mut FidDomain, c_int, *mut CollectiveAttr, u64) -> c_int;
        endpoint2(*mut FidDomain, *mut Info, Out<FidEp>, u64, Ptr) -> c_int;
    }
    FiOpsMr {
        reg(*mut Fid, Const, usize, u64, u64, u64, u64, Out<FidMr>, Ptr) -> c_int;
        regv(*mut Fid, Iov, usize, u64, u64, u64, u64, Out<FidMr>, Ptr) -> c_int;
        regattr(*mut Fid, *const MrAttr, u64, Out<FidMr>) -> c_int;
    }
    FiOpsAv {
        insert(*mut FidAv, Const, usize, *mut u64, u64, Ptr) -> c_int;
        insertsvc(*mut FidAv, *const c_char, *const c_char, *mut u64, u64, Ptr) -> c_int;
        insertsym(*mut FidAv, *const c_char, usize, *const c_char, usize, *mut u64, u64, Ptr)
            -> c_int;
        remove(*mut FidAv, *mut u64, usize, u64) -> c_int;
        lookup(*mut FidAv, u64, Ptr, *mut usize) -> c_int;
        straddr(*mut FidAv, Const, *mut c_char, *mut usize) -> *const c_char;
        av_set(*mut FidAv, *mut AvSetAttr, Out<FidAvSet>, Ptr) -> c_int;
        insert_auth_key(*mut FidAv, Const, usize, *mut u64, u64) -> c_int;
        lookup_auth_key(*mut FidAv, u64, Ptr, *mut usize) -> c_int;
        set_user_id(*mut FidAv, u64, u64, u64) -> c_int;
    }
    FiOpsAvSet {
        set_union(*mut FidAvSet, *const FidAvSet) -> c_int;
        intersect(*mut FidAvSet, *const FidAvSet) -> c_int;
        diff(*mut FidAvSet, *const FidAvSet) -> c_int;
        insert(*mut FidAvSet, u64) -> c_int;
        remove(*mut FidAvSet, u64) -> c_int;
        addr(*mut FidAvSet, *mut u64) -> c_int;
    }
    FiOpsCq {
        read(*mut FidCq, Ptr, usize) -> isize;
        readfrom(*mut FidCq, Ptr, usize, *mut u64) -> isize;
        readerr(*mut FidCq, *mut CqErrEntry, u64) -> isize;
        sread(*mut FidCq, Ptr, usize, Const, c_int) -> isize;
        sreadfrom(*mut FidCq, Ptr, usize, *mut u64, Const, c_int) -> isize;
        signal(*mut FidCq) -> c_int;
        strerror(*mut FidCq, c_int, Const, *mut c_char, usize) -> *const c_char;
    }
    FiOpsCntr {
        read(*mut FidCntr) -> u64;
        readerr(*mut FidCntr) -> u64;
        add(*mut FidCntr, u64) -> c_int;
        set(*mut FidCntr, u64) -> c_int;
        wait(*mut FidCntr, u64, c_int) -> c_int;
        adderr(*mut FidCntr, u64) -> c_int;
        seterr(*mut FidCntr, u64) -> c_int;
    }
    FiOpsEq {
        read(*mut FidEq, *mut u32, Ptr, usize, u64) -> isize;
        readerr(*mut FidEq, *mut EqErrEntry, u64) -> isize;
        write(*mut FidEq, u32, Const, usize, u64) -> isize;
        sread(*mut FidEq, *mut u32, Ptr, usize, c_int, u64) -> isize;
        strerror(*mut FidEq, c_int, Const, *mut c_char, usize) -> *const c_char;
    }
    FiOpsEp {
        cancel(*mut Fid, Ptr) -> isize;
        getopt(*mut Fid, c_int, c_int, Ptr, *mut usize) -> c_int;
        setopt(*mut Fid, c_int, c_int, Const, usize) -> c_int;
        tx_ctx(*mut FidEp, c_int, *mut TxAttr, Out<FidEp>, Ptr) -> c_int;
        rx_ctx(*mut FidEp, c_int, *mut RxAttr, Out<FidEp>, Ptr) -> c_int;
        rx_size_left(*mut FidEp) -> isize;
        tx_size_left(*mut FidEp) -> isize;
    }
    FiOpsCm {
        setname(*mut Fid, Ptr, usize) -> c_int;
        getname(*mut Fid, Ptr, *mut usize) -> c_int;
        getpeer(*mut FidEp, Ptr, *mut usize) -> c_int;
        connect(*mut FidEp, Const, Const, usize) -> c_int;
        listen(Ptr) -> c_int;
        accept(*mut FidEp, Const, usize) -> c_int;
        reject(Ptr, *mut Fid, Const, usize) -> c_int;
        shutdown(*mut FidEp, u64) -> c_int;
        join(*mut FidEp, Const, u64, Out<FidMc>, Ptr) -> c_int;
    }
    FiOpsMsg {
        recv(*mut FidEp, Ptr, usize, Ptr, u64, Ptr) -> isize;
        recvv(*mut FidEp, Iov, Descs, usize, u64, Ptr) -> isize;
        recvmsg(*mut FidEp, *const Msg, u64) -> isize;
        send(*mut FidEp, Const, usize, Ptr, u64, Ptr) -> isize;
        sendv(*mut FidEp, Iov, Descs, usize, u64, Ptr) -> isize;
        sendmsg(*mut FidEp, *const Msg, u64) -> isize;
        inject(*mut FidEp, Const, usize, u64) -> isize;
        senddata(*mut FidEp, Const, usize, Ptr, u64, u64, Ptr) -> isize;
        injectdata(*mut FidEp, Const, usize, u64, u64) -> isize;
    }
    FiOpsTagged {
        recv(*mut FidEp, Ptr, usize, Ptr, u64, u64, u64, Ptr) -> isize;
        recvv(*mut FidEp, Iov, Descs, usize, u64, u64, u64, Ptr) -> isize;
        recvmsg(*mut FidEp, *const MsgTagged, u64) -> isize;
        send(*mut FidEp, Const, usize, Ptr, u64, u64, Ptr) -> isize;
        sendv(*mut FidEp, Iov, Descs, usize, u64, u64, Ptr) -> isize;
        sendmsg(*mut FidEp, *const MsgTagged, u64) -> isize;
        inject(*mut FidEp, Const, usize, u64, u64) -> isize;
        senddata(*mut FidEp, Const, usize, Ptr, u64, u64, u64, Ptr) -> isize;
        injectdata(*mut FidEp, Const, usize, u64, u64, u64) -> isize;
    }
    FiOpsRma {
        read(*mut FidEp, Ptr, usize, Ptr, u64, u64, u64, Ptr) -> isize;
        readv(*mut FidEp, Iov, Descs, usize, u64, u64, u64, Ptr) -> isize;
        readmsg(*mut FidEp, *const MsgRma, u64) -> isize;
        write(*mut FidEp, Const, usize, Ptr, u64, u64, u64, Ptr) -> isize;
        writev(*mut FidEp, Iov, Descs, usize, u64, u64, u64, Ptr) -> isize;
        writemsg(*mut FidEp, *const MsgRma, u64) -> isize;
        inject(*mut FidEp, Const, usize, u64, u64, u64) -> isize;
        writedata(*mut FidEp, Const, usize, Ptr, u64, u64, u64, u64, Ptr) -> isize;
        injectdata(*mut FidEp, Const, usize, u64, u64, u64, u64) -> isize;
    }
    FiOpsCollective {
        barrier(*mut FidEp, u64, Ptr) -> isize;
        broadcast(*mut FidEp, Ptr, usize, Ptr, u64, u64, c_int, u64, Ptr) -> isize;
        alltoall(*mut FidEp, Const, usize, Ptr, Ptr, Ptr, u64, c_int, u64, Ptr) -> isize;
        allreduce(*mut FidEp, Const, usize, Ptr, Ptr, Ptr, u64, c_int, c_int, u64, Ptr) -> isize;
        allgather(*mut FidEp, Const, usize, Ptr, Ptr, Ptr, u64, c_int, u64, Ptr) -> isize;
        reduce_scatter(*mut FidEp, Const, usize, Ptr, Ptr, Ptr, u64, c_int, c_int, u64, Ptr)
            -> isize;
        reduce(*mut FidEp, Const, usize, Ptr, Ptr, Ptr, u64, u64, c_int, c_int, u64, Ptr) -> isize;
        scatter(*mut FidEp, Const, usize, Ptr, Ptr, Ptr, u64, u64, c_int, u64, Ptr) -> isize;
        gather(*mut FidEp, Const, usize, Ptr, Ptr, Ptr, u64, u64, c_int, u64, Ptr) -> isize;
        msg(*mut FidEp, Const, *mut Ioc, Descs, usize, u64) -> isize;
        barrier2(*mut FidEp, u64, u64, Ptr) -> isize;
    }
    FiOpsAtomic {
        write(*mut FidEp, Const, usize, Ptr, u64, u64, u64, c_int, c_int, Ptr) -> isize;
        writev(*mut FidEp, *const Ioc, Descs, usize, u64, u64, u64, c_int, c_int, Ptr) -> isize;
        writemsg(*mut FidEp, *const MsgAtomic, u64) -> isize;
        inject(*mut FidEp, Const, usize, u64, u64, u64, c_int, c_int) -> isize;
        readwrite(*mut FidEp, Const, usize, Ptr, Ptr, Ptr, u64, u64, u64, c_int, c_int, Ptr)
            -> isize;
        readwritev(
            *mut FidEp, *const Ioc, Descs, usize, *mut Ioc, Descs, usize, u64, u64, u64, c_int,
            c_int, Ptr
        ) -> isize;
        readwritemsg(*mut FidEp, *const MsgAtomic, *mut Ioc, Descs, usize, u64) -> isize;
        compwrite(
            *mut FidEp, Const, usize, Ptr, Const, Ptr, Ptr, Ptr, u64, u64, u64, c_int, c_int, Ptr
        ) -> isize;
        compwritev(
            *mut FidEp, *const Ioc, Descs, usize, *const Ioc, Descs, usize, *mut Ioc, Descs, usize,
            u64, u64, u64, c_int, c_int, Ptr
        ) -> isize;
        compwritemsg(
            *mut FidEp, *const MsgAtomic, *const Ioc, Descs, usize, *mut Ioc, Descs, usize, u64
        ) -> isize;
        writevalid(*mut FidEp, c_int, c_int, *mut usize) -> c_int;
        readwritevalid(*mut FidEp, c_int, c_int, *mut usize) -> c_int;
        compwritevalid(*mut FidEp, c_int, c_int, *mut usize) -> c_int;
    }
}
