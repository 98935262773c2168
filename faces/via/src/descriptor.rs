//! Descriptors, as programs lay them out in memory: a control segment of 32 bytes, and segments of
//! 16 bytes each.

use crate::code::{control, status};

/// Alignment of a descriptor: `VIP_DESCRIPTOR_ALIGNMENT`.
pub const ALIGNMENT: u64 = 64;
/// Length of the control segment.
pub const CONTROL_LEN: usize = 32;
/// Length of every other segment.
pub const SEGMENT_LEN: usize = 16;
/// Most segments of a descriptor.
pub const SEGMENTS_MAX: u16 = 252;
/// Offset of the field `SegCount`; `Control` follows.
pub const COUNT_AT: usize = 12;
/// Offset of the field `ImmediateData`; `Length` and `Status` follow.
pub const IMMEDIATE_AT: usize = 20;
/// Offset of the field `Length`.
pub const LENGTH_AT: usize = 24;
/// Offset of the field `Status`.
pub const STATUS_AT: usize = 28;

/// The fields of a control segment that a program sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Number of segments that follow.
    pub segments: u16,
    /// Operation and flags.
    pub control: u16,
    /// Immediate data.
    pub immediate: u32,
    /// Length of the message.
    pub length: u32,
}

/// A segment: an address segment, whose last field is reserved, or a data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Address of the first byte.
    pub at: u64,
    /// Handle of its memory.
    pub handle: u32,
    /// Bytes, of a data segment.
    pub len: u32,
}

/// The operation of a descriptor in a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A message.
    Send,
    /// A write to the other side's memory.
    Write,
    /// A read of the other side's memory.
    Read,
}

impl Operation {
    /// Returns the operation in the status of its descriptor.
    pub fn status(self) -> u32 {
        match self {
            Operation::Send => status::OP_SEND,
            Operation::Write => status::OP_RDMA_WRITE,
            Operation::Read => status::OP_RDMA_READ,
        }
    }
}

impl Control {
    /// Returns the operation of a descriptor in a send queue.
    ///
    /// # Errors
    /// The bits of the status: the format is wrong.
    pub fn operation(&self) -> Result<Operation, u32> {
        let operation = match self.control & control::OP_MASK {
            control::SENDRECV => Operation::Send,
            control::RDMA_WRITE => Operation::Write,
            control::RDMA_READ => Operation::Read,
            _ => return Err(status::FORMAT),
        };
        let remote = operation != Operation::Send;
        let bad = self.control & control::RESERVED != 0
            || self.segments > SEGMENTS_MAX
            || remote && self.segments == 0
            || operation == Operation::Read && self.has_immediate();
        if bad {
            return Err(status::FORMAT | operation.status());
        }
        Ok(operation)
    }

    /// True if immediate data go with the message.
    pub fn has_immediate(&self) -> bool {
        self.control & control::IMMEDIATE != 0
    }

    /// True if the descriptor waits for the reads before it.
    pub fn is_fenced(&self) -> bool {
        self.control & control::QFENCE != 0
    }

    /// True if the format is that of a descriptor in a receive queue.
    pub fn is_receive(&self) -> bool {
        let flags = control::OP_MASK | control::RESERVED;
        self.control & flags == control::SENDRECV && self.segments <= SEGMENTS_MAX
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn operation__reads_each_format_and_refuses_wrong_ones() {
        let of = |control, segments| Control { segments, control, immediate: 0, length: 0 };
        assert_eq!(of(control::SENDRECV, 0).operation(), Ok(Operation::Send));
        assert_eq!(of(control::SENDRECV | control::QFENCE, 252).operation(), Ok(Operation::Send));
        assert_eq!(of(control::RDMA_WRITE | 4, 2).operation(), Ok(Operation::Write));
        assert_eq!(of(control::RDMA_READ, 2).operation(), Ok(Operation::Read));
        assert_eq!(of(3, 1).operation(), Err(status::FORMAT));
        for (control, segments) in [(0x10, 1), (0, 253), (0x8000, 1)] {
            assert_eq!(of(control, segments).operation(), Err(status::FORMAT));
        }
        assert_eq!(of(1, 0).operation(), Err(status::FORMAT | status::OP_RDMA_WRITE));
        assert_eq!(of(2 | 4, 1).operation(), Err(status::FORMAT | status::OP_RDMA_READ));
        assert!(of(0, 1).is_receive() && of(4, 1).is_receive());
        assert!(!of(1, 1).is_receive() && !of(0, 253).is_receive() && !of(0x20, 1).is_receive());
    }
}
