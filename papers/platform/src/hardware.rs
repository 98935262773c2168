//! The two clusters of the paper's Table I as numbers: clocks, widths, start-up times.
//!
//! Sources: "Table I" and section numbers are the paper's; "base rows" are the measurements of the
//! base implementation (l-sdma), which calibrate values that no data sheet has; "bus protocol"
//! counts the clocks of a PCI transaction; "estimate" is a figure usual for such parts.

/// Virtual time, in picoseconds.
pub type Ps = u64;

/// One microsecond.
pub const MICROSECOND: Ps = 1_000_000;

/// The arrangement of the switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fabric {
    /// A cube of switches of this side, one node at each; a route goes along the axes.
    Grid {
        /// Switches along one side.
        side: usize,
    },
    /// Every route crosses this many switches.
    Uniform {
        /// Switches on a route.
        hops: u64,
    },
}

impl Fabric {
    /// Returns the number of switches that a packet from `a` to `b` crosses.
    pub fn hops(self, a: usize, b: usize) -> u64 {
        match self {
            Fabric::Uniform { hops } => hops,
            Fabric::Grid { side } => {
                let axes = |n: usize| [n % side, n / side % side, n / side / side];
                let far = axes(a).into_iter().zip(axes(b)).map(|(x, y)| x.abs_diff(y) as u64);
                1 + far.sum::<u64>()
            }
        }
    }
}

/// The hardware of a node and of the network between nodes. More than 15 fields: each is one
/// parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// `ppro` or `p3`.
    pub name: &'static str,
    /// Nodes in the cluster (Table I).
    pub nodes: usize,
    /// One cycle of the host processor (Table I).
    pub host_cycle: Ps,
    /// Time of library code, in percent of the time of its cycles: misses in small first-level
    /// caches (base rows).
    pub host_work: u64,
    /// A cache line read from memory by the host (section 7: measured latency).
    pub line_fill: Ps,
    /// A modified line written back to memory, beyond what overlaps with reads.
    pub write_back: Ps,
    /// Reads of a copy loop in flight at a time.
    pub overlapped_fills: u64,
    /// Time to copy a line whose source and destination are in the caches.
    pub cached_line: Ps,
    /// Bytes a microsecond that memory moves at best, shared by processor and DMA.
    pub memory_rate: u64,
    /// Size of the second-level cache in bytes (Table I).
    pub cache: usize,
    /// One clock of the I/O bus (Table I).
    pub bus_clock: Ps,
    /// Bytes a clock on the I/O bus (Table I).
    pub bus_width: u64,
    /// Clocks of a bus transaction that carry no data, when the processor writes: address, decode,
    /// first-word wait, turnaround (bus protocol).
    pub pio_clocks: u64,
    /// Clocks without data of a DMA burst that reads host memory: the bridge first fetches a line.
    pub read_clocks: u64,
    /// Clocks without data of a DMA burst that writes host memory.
    pub write_clocks: u64,
    /// Bytes after which a DMA burst gives the bus to others that wait: a latency timer of 64
    /// clocks (estimate).
    pub burst: u64,
    /// From programming the DMA engine until the first burst of a read.
    pub read_start: Ps,
    /// From programming the DMA engine until the first burst of a write.
    pub write_start: Ps,
    /// One cycle of the network interface's processor (Table I).
    pub ni_cycle: Ps,
    /// Bytes a microsecond of the network interface's memory, shared by processor and engines.
    pub sram_rate: u64,
    /// Bytes a microsecond that the network interface's processor reads from its memory while busy.
    pub ni_fetch_rate: u64,
    /// Time after which the network interface interrupts a host that does not poll (section 4.1).
    pub watchdog: Ps,
    /// Bytes of NI memory for receive buffers (section 4.1: 256 and 512 buffers of 2 KiB).
    pub receive_memory: usize,
    /// Bytes of NI memory for send buffers.
    pub send_memory: usize,
    /// One byte on a link (Table I).
    pub link_byte: Ps,
    /// One switch (section 3).
    pub hop: Ps,
    /// Latency of a route beyond its switches: cables, interfaces, conversion to fiber and back.
    pub route: Ps,
    /// Arrangement of the switches (section 3).
    pub fabric: Fabric,
}

/// A line of the host's cache and of its write-combining buffers, in bytes.
pub const LINE: u64 = 32;

impl Hardware {
    /// Returns the cluster of 64 Pentium Pros with Myrinet.
    pub fn ppro() -> Hardware {
        Hardware {
            name: "ppro",
            nodes: 64,
            host_cycle: 5_000,
            host_work: 125,
            line_fill: 236_000,
            // With two reads one after the other: 52 Mbyte/s of memcpy (section 5.2.4).
            write_back: 115_000,
            overlapped_fills: 1,
            // Estimate: 12 cycles to load and store a line in the first-level cache.
            cached_line: 60_000,
            // EDO at 66 MHz, 5-2-2-2: 11 clocks a line (estimate).
            memory_rate: 193,
            cache: 256 << 10,
            bus_clock: 30_000,
            bus_width: 4,
            pio_clocks: 5,
            read_clocks: 5 + 8,
            write_clocks: 5,
            burst: 64 * 4,
            read_start: 300_000,
            write_start: 750_000,
            ni_cycle: 30_000,
            // 32 bits, two accesses a cycle.
            sram_rate: 267,
            ni_fetch_rate: 173,
            watchdog: 70 * MICROSECOND,
            receive_memory: 512 << 10,
            send_memory: 128 << 10,
            link_byte: 6_250,
            hop: 100_000,
            route: 100_000,
            fabric: Fabric::Grid { side: 4 },
        }
    }

    /// Returns the cluster of 64 Pentium IIIs with Myrinet-2000.
    pub fn p3() -> Hardware {
        Hardware {
            name: "p3",
            nodes: 64,
            host_cycle: 1_000,
            host_work: 100,
            line_fill: 113_000,
            // SDRAM at 133 MHz, 5-1-1-1: 8 clocks a line (estimate).
            write_back: 60_000,
            overlapped_fills: 2,
            cached_line: 12_000,
            memory_rate: 533,
            cache: 256 << 10,
            bus_clock: 30_000,
            bus_width: 8,
            pio_clocks: 5,
            read_clocks: 5 + 4,
            write_clocks: 5,
            burst: 64 * 8,
            read_start: 2_380_000,
            write_start: 960_000,
            ni_cycle: 7_519,
            // 64 bits, two accesses a cycle.
            sram_rate: 2_128,
            ni_fetch_rate: 692,
            watchdog: 30 * MICROSECOND,
            receive_memory: 1 << 20,
            send_memory: 256 << 10,
            link_byte: 4_167,
            hop: 100_000,
            route: 1_350_000,
            fabric: Fabric::Uniform { hops: 3 },
        }
    }

    /// Returns both clusters.
    pub fn all() -> [Hardware; 2] {
        [Hardware::ppro(), Hardware::p3()]
    }

    /// Sets the I/O bus to 66 MHz (section 5.2.4 tried that on P3).
    pub fn with_fast_bus(mut self) -> Hardware {
        self.bus_clock /= 2;
        self.read_start /= 2;
        self.write_start /= 2;
        self
    }

    /// Returns the time on the bus of one transaction with `bytes` of data and `idle` clocks
    /// without.
    pub fn bus_time(&self, bytes: u64, idle: u64) -> Ps {
        (idle + bytes.div_ceil(self.bus_width)) * self.bus_clock
    }

    /// Returns the latency of the route from place `a` to place `b`.
    pub fn latency(&self, a: usize, b: usize) -> Ps {
        self.route + self.hop * self.fabric.hops(a, b)
    }

    /// Returns the time to copy a line, with source and target in the cache or not.
    pub fn line_copy(&self, source_cached: bool, target_cached: bool) -> Ps {
        let fills = u64::from(!source_cached) + u64::from(!target_cached);
        let fill = if fills > 1 {
            fills * self.line_fill / self.overlapped_fills
        } else {
            fills * self.line_fill
        };
        let back = if target_cached { 0 } else { self.write_back };
        match fills {
            0 => self.cached_line,
            // Stores hit the cache during the wait for the next line, but cost their issue.
            1 if target_cached => fill + self.cached_line / 2,
            _ => fill + back,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn fabric__the_longest_route_is_the_papers() {
        let far = |h: &Hardware| (0..64).map(|b| h.fabric.hops(0, b)).max();
        assert_eq!(far(&Hardware::ppro()), Some(10));
        assert_eq!(far(&Hardware::p3()), Some(3));
    }

    #[test]
    fn peak_dma__is_that_of_table_one() {
        for (hw, mib) in [(Hardware::ppro(), 127.2), (Hardware::p3(), 254.3)] {
            let bytes_per_us = hw.bus_width as f64 * 1e6 / hw.bus_clock as f64;
            assert!((bytes_per_us * 1e6 / f64::from(1 << 20) - mib).abs() < 0.1, "{}", hw.name);
        }
    }
}
