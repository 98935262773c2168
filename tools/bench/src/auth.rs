//! The cost of authenticating frames: by itself, and as a share of the UDP figures.

use super::pair::Sample;
use super::rank::Probe;
use super::table::{Better, Table};
use super::{others, Bench, Subject};
use anyhow::Result;
use weft_link::secure::measure_cost;

fn cipher(bench: &Bench<'_>) -> Table {
    let mut table = bench.table("auth", "time per packet", "ns", Better::Lower);
    for len in bench.sizes(&[40, 1472]) {
        let costs: Vec<_> =
            (0..bench.meter.options.repeat()).map(|_| measure_cost(len.clamp(40, 9000))).collect();
        let size = costs.first().map_or(len, |c| c.packet_len);
        let seal = Sample::of(costs.iter().map(|c| c.seal_ns).collect());
        let open = Sample::of(costs.iter().map(|c| c.open_ns).collect());
        table.push("seal", size, seal, Vec::new(), Vec::new());
        table.push("open", size, open, Vec::new(), Vec::new());
    }
    // No link is involved, so the path that other tables print has no meaning here.
    table.notes =
        vec!["POLYVAL and AES tag over header and payload; size: header and payload".into()];
    table
}

/// Returns the tables: cost per packet, and UDP with authentication beside UDP without.
pub fn tables(bench: &mut Bench<'_>) -> Result<Vec<Table>> {
    let mut tables = vec![cipher(bench)];
    tables.extend(bench.beside(&[("WEFT_SECURITY", "none")], links)?);
    Ok(tables)
}

fn links(bench: &mut Bench<'_>, without: usize) -> Result<Vec<Table>> {
    let both = |probe: Probe| [probe.into(), Subject { pair: without, ..probe.into() }];
    let row = |none| others([("without", none)].into_iter());
    bench.plan(2 * 3);
    let mut latency = bench.table("auth", "one-way time", "us", Better::Lower);
    let got = bench.measure(16, &both(Probe::WeftPingPong), |s| s * 1e6)?;
    latency.push("pingpong", 16, got[0], row(got[1]), Vec::new());
    let mut rate = bench.table("auth", "rate", "GB/s", Better::Higher);
    for size in [64 << 10, 1 << 20] {
        let got = bench.measure(size, &both(Probe::WeftBandwidth), |s| size as f64 / s / 1e9)?;
        rate.push("bandwidth", size, got[0], row(got[1]), Vec::new());
    }
    for table in [&mut latency, &mut rate] {
        table.notes.push("without: the same with WEFT_SECURITY=none".into());
    }
    Ok(vec![latency, rate])
}
