//! Work of processors for each step of the protocols, in cycles, the same on both clusters.
//!
//! The steps of l-sdma were fitted to its measurements (its rows of Tables III, V, VI and Figure 9
//! on both clusters) together with the start-up times in `hardware`. The additions of alternatives
//! (`repair_*`, `tlb`, further event sources) are estimates of the work that the paper describes,
//! the same on both clusters, by an author who knew the paper's tables; those of the two variants
//! with retransmission were adjusted after a look at their rows, so these rows are no blind test.
//! The manufacturer's firmware (GM) is fitted on PPro alone.

use super::choice::{Choice, Family, Forward, Repair, Transfer};

/// Cycles of the network interface's processor. More than 15 fields: each is one measured cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NiCosts {
    /// Event sources that the control program's loop polls.
    pub sources: u64,
    /// Cycles to poll one; every event pays for a whole turn of the loop.
    pub source: u64,
    /// Take a send request of the host, read its descriptor.
    pub request: u64,
    /// Program the host DMA engine.
    pub dma: u64,
    /// Check the send window, fill in the piggybacked acknowledgement.
    pub window: u64,
    /// Program the send DMA engine.
    pub transmit: u64,
    /// A packet has left: unlink it, release its buffer.
    pub sent: u64,
    /// Make the record that tells the host of completed sends.
    pub completion: u64,
    /// A packet has arrived: new receive buffer to the engine, read the header, branch on its type,
    /// process its piggybacked acknowledgement.
    pub header: u64,
    /// Take a free host buffer.
    pub host_buffer: u64,
    /// A packet is in host memory: count the credit, release the buffer.
    pub release: u64,
    /// Build an acknowledgement packet.
    pub ack_make: u64,
    /// Process an acknowledgement packet.
    pub ack_take: u64,
    /// Read and raise the fetch-and-add variable, build the reply.
    pub fetch_add: u64,
    /// Make the send descriptor for one child in a multicast tree.
    pub forward: u64,
    /// Sender's part of a retransmission protocol: stamp, keep, timer.
    pub repair_send: u64,
    /// Receiver's part: check the sequence number, start the acknowledgement timer.
    pub repair_receive: u64,
    /// Look an address up in the TLB of remote-memory copy, check page and validity.
    pub tlb: u64,
}

/// Cycles of the host's processor. More than 15 fields: each is one measured cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCosts {
    /// Send call: allocate a buffer, build header and descriptor.
    pub send: u64,
    /// Entry in the host's send queue.
    pub queue: u64,
    /// Take the record of completed sends off the receive queue.
    pub completion: u64,
    /// Send descriptor for a buffer that the network interface already holds.
    pub resend: u64,
    /// Poll the receive queue and find a packet.
    pub poll: u64,
    /// Take the packet off the queue, upcall.
    pub receive: u64,
    /// Release the packet's buffer after the upcall.
    pub after: u64,
    /// Sender's part of a retransmission protocol.
    pub repair_send: u64,
    /// Receiver's part.
    pub repair_receive: u64,
    /// Cache lines that the receiver's part reads and DMA has written: the packet's header.
    pub repair_lines: u64,
    /// Build and send an acknowledgement.
    pub ack_make: u64,
    /// An interrupt, the signal to the process and the return: 30 us on PPro (estimate; the paper
    /// calls interrupts expensive).
    pub interrupt: u64,
    /// Request a fetch-and-add.
    pub fetch_add: u64,
    /// Take its reply.
    pub fetch_add_reply: u64,
    /// Single words written to the network interface in a send call, not combined.
    pub send_words: u64,
    /// Single words written to the network interface in a receive call, in 32nds of a word:
    /// addresses of free buffers are written together.
    pub receive_words: u64,
}

/// Bytes of header on the link and in NI memory.
pub const HEADER: u64 = 16;
/// Further bytes that a retransmitting host writes into each header: sequence number and
/// acknowledgement. (Retransmitting network interfaces write their own words.)
pub const REPAIR_HEADER: u64 = 8;
/// Bytes of a send descriptor: destination and buffer.
pub const DESCRIPTOR: u64 = 8;
/// Bytes that name data in host memory: address and length.
pub const ADDRESS: u64 = 8;
/// Bytes of a record by DMA: completion, reply to fetch-and-add.
pub const RECORD: u64 = 16;
/// Window of the retransmitting implementations, in packets: all senders share the receive buffers
/// (section 5.1), so it does not depend on the cluster's size.
pub const SHARED_WINDOW: u32 = 32;
/// Buffers whose return is reported together where the host knows earlier that the user's data may
/// change: with l-pio it is written when the call returns, with l-nirx its fetch is reported.
pub const BUFFERS_TOGETHER: u32 = 8;

impl NiCosts {
    /// Returns the costs common to all control programs, as in one that only takes data by
    /// programmed I/O.
    pub fn shared() -> NiCosts {
        NiCosts {
            sources: 6,
            source: 5,
            request: 41,
            dma: 18,
            window: 8,
            transmit: 8,
            sent: 9,
            completion: 16,
            header: 34,
            host_buffer: 10,
            release: 8,
            ack_make: 25,
            ack_take: 25,
            fetch_add: 33,
            forward: 23,
            repair_send: 0,
            repair_receive: 0,
            tlb: 0,
        }
    }

    /// Returns the costs of the control program of `choice`.
    pub fn of(&self, choice: &Choice) -> NiCosts {
        let mut costs = self.clone();
        // Fetches to start and completions to report; for remote-memory copy also its own queue.
        costs.sources += match choice.transfer {
            Transfer::Pio => 0,
            Transfer::Sdma => 2,
            Transfer::Rcpy => 3,
        };
        match choice.repair {
            Repair::None => {}
            Repair::Interface => {
                // The timer and the retransmission queue.
                costs.sources += 2;
                costs.repair_send = 26;
                // The acknowledgement timer is serviced while the DMA engine delivers: the network
                // interface has its own copy of the header (section 5.1.3).
                costs.repair_receive = 10;
                costs.release += 16;
            }
            Repair::Host => {
                // No queue of packets that wait for credit.
                costs.sources -= 1;
                costs.window = 0;
            }
        }
        if choice.transfer == Transfer::Rcpy {
            costs.tlb = 24;
        }
        if choice.family == Family::Gm {
            costs.sources = 22;
            costs.sent += 320;
        }
        costs
    }
}

impl HostCosts {
    /// Returns the costs of the library of the base implementation.
    pub fn base() -> HostCosts {
        HostCosts {
            send: 138,
            queue: 87,
            completion: 60,
            resend: 100,
            poll: 60,
            receive: 174,
            after: 80,
            repair_send: 0,
            repair_receive: 0,
            repair_lines: 0,
            ack_make: 100,
            interrupt: 4_800,
            fetch_add: 280,
            fetch_add_reply: 120,
            send_words: 0,
            receive_words: 4,
        }
    }

    /// Returns the costs of the library of `choice`.
    pub fn of(&self, choice: &Choice) -> HostCosts {
        let mut costs = self.clone();
        if choice.transfer == Transfer::Pio {
            costs.queue = 0;
            costs.completion /= u64::from(BUFFERS_TOGETHER);
        }
        if choice.repair == Repair::Host {
            costs.repair_send = 220;
            costs.repair_receive = 480;
            costs.repair_lines = 1;
        }
        if choice.transfer == Transfer::Rcpy {
            costs.receive = 0;
            costs.after = 0;
            costs.receive_words = 0;
        }
        if choice.family == Family::Gm {
            costs = HostCosts {
                send: 92,
                queue: 0,
                completion: 0,
                receive: 134,
                after: 0,
                send_words: 3,
                receive_words: 32,
                ..costs
            };
        }
        debug_assert!(choice.forward == Forward::Host || choice.repair != Repair::Host);
        costs
    }
}

/// Work of both processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Network interface, before the additions of a choice.
    pub ni: NiCosts,
    /// Host, before the additions of a choice.
    pub host: HostCosts,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs { ni: NiCosts::shared(), host: HostCosts::base() }
    }
}
