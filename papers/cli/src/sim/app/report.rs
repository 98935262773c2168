//! The report of a simulated application.

use super::super::scenario::counters;
use serde_json::{json, Value};
use std::time::Duration;
use weft_sim::{Counters, SimConfig};

/// The figures of a result.
pub struct Figures {
    pub checksum: u64,
    /// Virtual time of the computation.
    pub elapsed: Duration,
    /// The figures that the application is about, as `weft app` names them.
    pub result: Value,
}

/// The report of an application that ran to its end.
pub struct Report {
    /// Its name after `weft sim`.
    pub name: String,
    /// Hosts that died before they had a result.
    pub died: Vec<u32>,
    /// Hosts whose result differs from that of the sequential program.
    pub wrong: Vec<u32>,
    /// Figures of the first host that has a result.
    pub figures: Figures,
    /// The things that the sequential program computes, their number, and the computing time of one
    /// in nanoseconds of virtual time.
    pub things: &'static str,
    pub count: f64,
    pub ns_each: f64,
    pub counters: Counters,
    pub retransmitted: u64,
}

impl Report {
    /// Virtual time in which one host alone would compute.
    fn alone_ms(&self) -> f64 {
        self.count * self.ns_each / 1e6
    }

    fn ms(&self) -> f64 {
        self.figures.elapsed.as_secs_f64() * 1e3
    }

    /// Returns the outcome of the comparison with the sequential program.
    pub fn verdict(&self) -> String {
        let Report { died, wrong, .. } = self;
        match (wrong.is_empty(), died.is_empty()) {
            (true, true) => "PASS: every host has the result of the sequential program".to_string(),
            (true, false) => format!(
                "PASS: hosts {died:?} died when nothing was needed of them, and every other host \
                 has the result of the sequential program"
            ),
            (false, _) => {
                format!("the result differs from the sequential program's on hosts {wrong:?}")
            }
        }
    }

    /// Prints the report.
    pub fn print(&self, config: &SimConfig, wall: Duration, as_json: bool) {
        let (ms, alone, network) = (self.ms(), self.alone_ms(), counters(&self.counters));
        let speedup = alone / ms.max(1e-6);
        let Report { things, count, ns_each, .. } = self;
        let Figures { checksum, result, .. } = &self.figures;
        if as_json {
            let line = json!({
                "scenario": self.name,
                "seed": config.seed,
                "pass": true,
                "config": config.to_string(),
                "hosts": config.hosts,
                "died": self.died,
                "checksum": format!("{:016x}", checksum),
                "virtual_ms": ms,
                "alone_ms": alone,
                "speedup": speedup,
                "work": { "things": things, "count": count, "ns_each": ns_each },
                "result": result,
                "retransmitted": self.retransmitted,
                "network": network,
                "wall_seconds": wall.as_secs_f64(),
            });
            println!("{line}");
            return;
        }
        let text: Vec<_> = network.iter().map(|(name, n)| format!("{name} {n}")).collect();
        let app = self.name.trim_start_matches("app ");
        println!("{app}: {config}");
        println!("  virtual time {ms:.3} ms, one host alone {alone:.3} ms: {:.2} x", speedup);
        println!("  computing of {count} {things}, {ns_each} ns each");
        println!("  {}, retransmitted {}", text.join(", "), self.retransmitted);
        println!("  checksum {:016x}", checksum);
        println!("  {}, {:.2} s of wall time", self.verdict(), wall.as_secs_f64());
    }
}

/// Prints how the other hosts ended after hosts died.
pub fn print_died(name: &str, died: &[u32], config: &SimConfig, how: &[String], as_json: bool) {
    if as_json {
        let line = json!({
            "scenario": name, "seed": config.seed, "pass": true, "config": config.to_string(),
            "hosts": config.hosts, "died": died, "errors": how,
        });
        println!("{line}");
        return;
    }
    println!("{name}: {config}");
    how.iter().for_each(|line| println!("  {line}"));
    println!("  PASS: hosts {died:?} died, and the job ended with the first that noticed");
}
