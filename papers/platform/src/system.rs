//! Programming systems above the packet interface: the time of their layers on the host, and the
//! way in which they notice packets (section 6 of the paper).
//!
//! Cycles are those that Table V shows on PPro, where a layer's round trip takes longer than that
//! of the layer below by two messages, a half of each at either end. They are the same on both
//! clusters and for all operations, so P3's rows of Table V, Table VI and the applications are
//! predicted.
//!
//! Panda's broadcasts take longer than that: on PPro 9.8 us more than the packet interface's (Table
//! VI), where a message of a call takes 3.3 us more. The rest is 6.5 us there and 4.4 us on P3. The
//! ratio, 1.5, is that of the links (Table I); work of the hosts would have a ratio of 6.25, work
//! of the network interfaces one of 4. So it is taken for bytes of each packet, which every hop of
//! the tree moves again; [`System::cast_bytes`] makes the 9.8 us on PPro.

/// Bytes of a job.
const JOB: usize = 32;

/// A programming system's work for each message, in cycles of the host, and its manner of polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct System {
    /// Its name.
    pub name: &'static str,
    /// For each packet that is sent: headers, fragmentation, locks. Requests for a fetch-and-add
    /// are packets.
    pub send_packet: u64,
    /// For each packet that is received.
    pub receive_packet: u64,
    /// For each message that is sent, beyond its packets.
    pub send_message: u64,
    /// For each message that is received.
    pub receive_message: u64,
    /// For each job of 32 bytes that is put into a message or taken out of one.
    pub job: u64,
    /// Switch to a thread that waits for what has come. 0: there are no threads.
    pub switch: u64,
    /// True if a host that computes notices packets by interrupts; else it polls.
    pub interrupts: bool,
    /// True if receivers copy the data of packets, once.
    pub copies: bool,
    /// True if the sender of a broadcast handles it as the others do.
    pub own_broadcasts: bool,
    /// Bytes of each packet of a broadcast beyond those of the program and our own headers.
    pub cast_bytes: usize,
}

impl System {
    /// The packet interface alone. Programs read in the receive queue.
    pub const LCI: System = System {
        name: "LCI",
        send_packet: 0,
        receive_packet: 0,
        send_message: 0,
        receive_message: 0,
        job: 0,
        switch: 0,
        interrupts: true,
        copies: false,
        own_broadcasts: false,
        cast_bytes: 0,
    };

    /// Regions (20.4 to 23.3 us). Requests may interrupt their home.
    pub const CRL: System =
        System { name: "CRL", send_packet: 116, receive_packet: 116, copies: true, ..System::LCI };

    /// The communication library without threads (20.4 to 27.0 us): it polls. Its broadcasts take
    /// 68.3 us on PPro, those of the packet interface 58.5.
    pub const PANDA_ST: System = System {
        name: "Panda-ST",
        send_packet: 264,
        receive_packet: 264,
        interrupts: false,
        copies: true,
        cast_bytes: 92,
        ..System::LCI
    };

    /// Message passing on the library without threads (27.0 to 42.3 us).
    pub const MPI: System =
        System { name: "MPI", send_message: 612, receive_message: 612, ..System::PANDA_ST };

    /// The search system, which sends messages of the library without threads. It has no row in
    /// Table V: a job costs what one costs in weft's own aggregator, which moves some 20 million of
    /// them a second on a processor of 3 GHz.
    pub const MULTIGAME: System = System { name: "Multigame", job: 75, ..System::PANDA_ST };

    /// The library with threads (20.4 to 28.9 us). Of the 1.9 us beyond the one without threads,
    /// a half are locks, a half the switch to the thread that waits for the reply.
    pub const PANDA_MT: System = System {
        name: "Panda-MT",
        send_packet: 302,
        receive_packet: 302,
        switch: 152,
        interrupts: true,
        own_broadcasts: true,
        ..System::PANDA_ST
    };

    /// Shared objects on the library with threads (28.9 to 46.0 us).
    pub const ORCA: System =
        System { name: "Orca", send_message: 684, receive_message: 684, ..System::PANDA_MT };

    /// Returns the same system, whose messages cost nothing: with remote-memory copy the paper's
    /// program uses the packet interface itself.
    pub const fn bare(self) -> System {
        let System { name, interrupts, copies, own_broadcasts, .. } = self;
        System { name, interrupts, copies, own_broadcasts, ..System::LCI }
    }

    /// Returns the cycles to send a packet of some bytes, the first of its message or a further
    /// one.
    pub(super) fn to_send(self, first: bool, bytes: usize) -> u64 {
        self.send_packet + u64::from(first) * self.send_message + self.jobs(bytes)
    }

    /// Returns the cycles to receive such a packet.
    pub(super) fn to_receive(self, first: bool, bytes: usize) -> u64 {
        self.receive_packet + u64::from(first) * self.receive_message + self.jobs(bytes)
    }

    fn jobs(self, bytes: usize) -> u64 {
        self.job * (bytes / JOB) as u64
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::super::hardware::Hardware;
    use super::*;

    #[test]
    fn systems__add_the_microseconds_of_table_5_on_ppro() {
        let hw = Hardware::ppro();
        for (system, added) in [
            (System::CRL, 2.9),
            (System::PANDA_ST, 6.6),
            (System::MPI, 21.9),
            (System::PANDA_MT, 8.5),
            (System::ORCA, 25.6),
        ] {
            let message = system.to_send(true, 16) + system.to_receive(true, 16);
            let cycles = 2 * message + system.switch;
            let us = (cycles * hw.host_cycle * hw.host_work / 100) as f64 / 1e6;
            assert!((us - added).abs() < 0.05, "{}: {us} us", system.name);
        }
    }
}
