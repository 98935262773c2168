//! The numbers of the interface: results, status and control bits, states, errors.

/// The result of a function: `VIP_RETURN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Code {
    /// `VIP_SUCCESS`.
    Success = 0,
    /// `VIP_NOT_DONE`: the head of the queue is not complete.
    NotDone = 1,
    /// `VIP_INVALID_PARAMETER`.
    InvalidParameter = 2,
    /// `VIP_ERROR_RESOURCE`: too many, or still in use.
    ErrorResource = 3,
    /// `VIP_TIMEOUT`.
    Timeout = 4,
    /// `VIP_REJECT`: the other side rejected the connection.
    Reject = 5,
    /// `VIP_INVALID_RELIABILITY_LEVEL`.
    InvalidReliabilityLevel = 6,
    /// `VIP_INVALID_MTU`: a maximum transfer size.
    InvalidMtu = 7,
    /// `VIP_INVALID_QOS`.
    InvalidQos = 8,
    /// `VIP_INVALID_PTAG`.
    InvalidPtag = 9,
    /// `VIP_INVALID_RDMAREAD`.
    InvalidRdmaRead = 10,
    /// `VIP_DESCRIPTOR_ERROR`: the descriptor failed, or the queue is empty.
    DescriptorError = 11,
    /// `VIP_INVALID_STATE`.
    InvalidState = 12,
    /// `VIP_ERROR_NAMESERVICE`.
    ErrorNameService = 13,
    /// `VIP_NO_MATCH`: nobody waits at the address.
    NoMatch = 14,
    /// `VIP_NOT_REACHABLE`.
    NotReachable = 15,
    /// `VIP_ERROR_NOT_SUPPORTED`.
    NotSupported = 16,
}

/// A result of the face's functions.
pub type Answer<T = ()> = Result<T, Code>;

/// Levels of reliability: `VIP_RELIABILITY_LEVEL`.
pub mod level {
    /// `VIP_SERVICE_UNRELIABLE`.
    pub const UNRELIABLE: u16 = 1;
    /// `VIP_SERVICE_RELIABLE_DELIVERY`.
    pub const DELIVERY: u16 = 2;
    /// `VIP_SERVICE_RELIABLE_RECEPTION`.
    pub const RECEPTION: u16 = 4;
    /// All of them.
    pub const ALL: u16 = UNRELIABLE | DELIVERY | RECEPTION;
}

/// Bits of a descriptor's field `Control`.
pub mod control {
    /// `VIP_CONTROL_OP_SENDRECV`.
    pub const SENDRECV: u16 = 0;
    /// `VIP_CONTROL_OP_RDMAWRITE`.
    pub const RDMA_WRITE: u16 = 1;
    /// `VIP_CONTROL_OP_RDMAREAD`.
    pub const RDMA_READ: u16 = 2;
    /// `VIP_CONTROL_OP_MASK`.
    pub const OP_MASK: u16 = 3;
    /// `VIP_CONTROL_IMMEDIATE`.
    pub const IMMEDIATE: u16 = 4;
    /// `VIP_CONTROL_QFENCE`.
    pub const QFENCE: u16 = 8;
    /// `VIP_CONTROL_RESERVED`.
    pub const RESERVED: u16 = 0xfff0;
}

/// Bits of a descriptor's field `Status`.
pub mod status {
    /// `VIP_STATUS_DONE`.
    pub const DONE: u32 = 1;
    /// `VIP_STATUS_FORMAT_ERROR`.
    pub const FORMAT: u32 = 2;
    /// `VIP_STATUS_PROTECTION_ERROR`.
    pub const PROTECTION: u32 = 4;
    /// `VIP_STATUS_LENGTH_ERROR`.
    pub const LENGTH: u32 = 8;
    /// `VIP_STATUS_PARTIAL_ERROR`.
    pub const PARTIAL: u32 = 0x10;
    /// `VIP_STATUS_DESC_FLUSHED_ERROR`.
    pub const FLUSHED: u32 = 0x20;
    /// `VIP_STATUS_TRANSPORT_ERROR`.
    pub const TRANSPORT: u32 = 0x40;
    /// `VIP_STATUS_RDMA_PROT_ERROR`.
    pub const RDMA_PROT: u32 = 0x80;
    /// `VIP_STATUS_REMOTE_DESC_ERROR`.
    pub const REMOTE_DESC: u32 = 0x100;
    /// `VIP_STATUS_ERROR_MASK`.
    pub const ERRORS: u32 = 0x1fe;
    /// `VIP_STATUS_OP_SEND`.
    pub const OP_SEND: u32 = 0;
    /// `VIP_STATUS_OP_RECEIVE`.
    pub const OP_RECEIVE: u32 = 0x1_0000;
    /// `VIP_STATUS_OP_RDMA_WRITE`.
    pub const OP_RDMA_WRITE: u32 = 0x2_0000;
    /// `VIP_STATUS_OP_REMOTE_RDMA_WRITE`.
    pub const OP_REMOTE_RDMA_WRITE: u32 = 0x3_0000;
    /// `VIP_STATUS_OP_RDMA_READ`.
    pub const OP_RDMA_READ: u32 = 0x4_0000;
    /// `VIP_STATUS_OP_MASK`.
    pub const OP_MASK: u32 = 0x7_0000;
    /// `VIP_STATUS_IMMEDIATE`.
    pub const IMMEDIATE: u32 = 0x8_0000;
}

/// An asynchronous error: `VIP_ERROR_CODE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Fault {
    /// `VIP_ERROR_POST_DESC`: the memory of a posted descriptor is not registered any more.
    PostDesc = 0,
    /// `VIP_ERROR_CONN_LOST`: the other side disconnected, failed or is silent.
    ConnLost = 1,
    /// `VIP_ERROR_RECVQ_EMPTY`: a message came, and no descriptor was posted.
    RecvqEmpty = 2,
    /// `VIP_ERROR_VI_OVERRUN`: a completion queue has no room.
    ViOverrun = 3,
    /// `VIP_ERROR_RDMAW_PROT`: a write of the other side was refused here.
    RdmawProt = 4,
    /// `VIP_ERROR_RDMAW_DATA`.
    RdmawData = 5,
    /// `VIP_ERROR_RDMAW_ABORT`.
    RdmawAbort = 6,
    /// `VIP_ERROR_RDMAR_PROT`: a read of the other side was refused here.
    RdmarProt = 7,
    /// `VIP_ERROR_COMP_PROT`: the memory of a descriptor is not registered at its completion.
    CompProt = 8,
    /// `VIP_ERROR_RDMA_TRANSPORT`.
    RdmaTransport = 9,
    /// `VIP_ERROR_CATASTROPHIC`.
    Catastrophic = 10,
}

/// The kind of object that an asynchronous error names: `VIP_RESOURCE_CODE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Resource {
    /// `VIP_RESOURCE_NIC`.
    Nic = 0,
    /// `VIP_RESOURCE_VI`.
    Vi = 1,
    /// `VIP_RESOURCE_CQ`.
    Cq = 2,
    /// `VIP_RESOURCE_DESCRIPTOR`.
    Descriptor = 3,
}

/// The state of a virtual interface: `VIP_VI_STATE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Phase {
    /// `VIP_STATE_IDLE`.
    #[default]
    Idle = 0,
    /// `VIP_STATE_CONNECTED`.
    Connected = 1,
    /// `VIP_STATE_CONNECT_PENDING`.
    Pending = 2,
    /// `VIP_STATE_ERROR`.
    Error = 3,
}
