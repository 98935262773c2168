//! Paper against simulation: a row for every number, and the error over all.

use super::choice::Choice;
use super::hardware::{Hardware, LINE};
use super::measure::{LogP, Setup};
use super::reference::{numbers, Figure, Number, Parameter};
use std::cell::RefCell;
use std::collections::BTreeMap;
use weft_core::group::tree;

/// A number of the paper and the model's value for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The paper's number.
    pub number: Number,
    /// The model's.
    pub simulated: f64,
}

impl Comparison {
    /// Returns the relative error of the simulation.
    pub fn error(&self) -> f64 {
        self.simulated / self.number.paper - 1.0
    }

    /// Returns the error of the simulated value, rounded to as many decimals as the paper prints.
    pub fn rounded_error(&self) -> f64 {
        let places = if self.number.paper.fract().abs() < 1e-9 { 1.0 } else { 10.0 };
        (self.simulated * places).round() / places / self.number.paper - 1.0
    }
}

/// Errors of some rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Number of rows.
    pub count: usize,
    /// Median of the absolute errors.
    pub median: f64,
    /// Share of the rows with at most 25 % error.
    pub within_quarter: f64,
}

/// Summarises `errors`; all zero if there are none.
pub fn summary(errors: impl Iterator<Item = f64>) -> Summary {
    let mut errors: Vec<f64> = errors.map(f64::abs).collect();
    errors.sort_by(f64::total_cmp);
    let count = errors.len();
    if count == 0 {
        return Summary { count, median: 0.0, within_quarter: 0.0 };
    }
    let median = (errors[(count - 1) / 2] + errors[count / 2]) / 2.0;
    let near = errors.iter().filter(|&&e| e <= 0.25).count();
    Summary { count, median, within_quarter: near as f64 / count as f64 }
}

/// Message sizes for throughput: in the cache, and beyond.
pub const MEDIUM: usize = 64 << 10;
/// See [`MEDIUM`].
pub const LARGE: usize = 256 << 10;

/// Runs simulations, and keeps each result so that none runs twice.
pub struct Lab {
    seed: u64,
    platforms: [Hardware; 2],
    known: RefCell<BTreeMap<String, f64>>,
}

impl Lab {
    /// Creates a lab; `seed` places the ranks in the network.
    pub fn new(seed: u64) -> Lab {
        Lab { seed, platforms: Hardware::all(), known: RefCell::default() }
    }

    /// Returns the cluster of that name; PPro for any other name.
    pub fn hardware(&self, platform: &str) -> &Hardware {
        &self.platforms[usize::from(platform == self.platforms[1].name)]
    }

    /// Returns `choice` on that cluster.
    pub fn setup(&self, platform: &str, choice: Choice) -> Setup {
        Setup::new(self.hardware(platform), choice, self.seed)
    }

    fn once(&self, key: String, value: impl FnOnce() -> f64) -> f64 {
        if let Some(known) = self.known.borrow().get(&key) {
            return *known;
        }
        let value = value();
        self.known.borrow_mut().insert(key, value);
        value
    }

    /// Returns a LogP parameter for messages of 16 bytes.
    pub fn logp(&self, platform: &str, choice: Choice, parameter: Parameter) -> f64 {
        let key = |what| format!("{platform} {choice} {what:?}");
        if !self.known.borrow().contains_key(&key(Parameter::Gap)) {
            let LogP { os, or, l, g, end_to_end } = self.setup(platform, choice).logp(16);
            let values = [
                (Parameter::SendOverhead, os),
                (Parameter::ReceiveOverhead, or),
                (Parameter::Latency, l),
                (Parameter::Gap, g),
                (Parameter::EndToEnd, end_to_end),
            ];
            self.known.borrow_mut().extend(values.map(|(what, value)| (key(what), value)));
        }
        self.once(key(parameter), || 0.0)
    }

    /// Returns the latency of a message of `size` bytes, copied at the receiver.
    pub fn latency(&self, platform: &str, choice: Choice, size: u64) -> f64 {
        let key = format!("{platform} {choice} latency {size}");
        self.once(key, || self.setup(platform, choice).latency(size))
    }

    /// Returns the time of a fetch-and-add.
    pub fn fetch_add(&self, platform: &str, choice: Choice) -> f64 {
        let key = format!("{platform} {choice} fetch-and-add");
        self.once(key, || self.setup(platform, choice).fetch_add())
    }

    /// Returns the throughput of messages of `size` bytes.
    pub fn throughput(&self, platform: &str, choice: Choice, size: usize, copied: bool) -> f64 {
        let key = format!("{platform} {choice} throughput {size} {copied}");
        self.once(key, || self.setup(platform, choice).throughput(size, copied))
    }

    /// Returns the highest throughput, copied at the receiver.
    pub fn peak(&self, platform: &str, choice: Choice) -> f64 {
        let of = |size| self.throughput(platform, choice, size, true);
        of(MEDIUM).max(of(LARGE))
    }

    /// Returns the latency of a multicast of 16 bytes.
    pub fn multicast(&self, platform: &str, choice: Choice) -> f64 {
        let key = format!("{platform} {choice} {} multicast", choice.tree);
        self.once(key, || self.setup(platform, choice).multicast_latency(16))
    }

    /// Returns the multicast throughput of messages of `size` bytes.
    pub fn multicast_throughput(&self, platform: &str, choice: Choice, size: usize) -> f64 {
        let key = format!("{platform} {choice} {} multicast {size}", choice.tree);
        self.once(key, || self.setup(platform, choice).multicast_throughput(size))
    }

    /// Returns the highest multicast throughput.
    pub fn multicast_peak(&self, platform: &str, choice: Choice) -> f64 {
        let of = |size| self.multicast_throughput(platform, choice, size);
        of(MEDIUM).max(of(LARGE))
    }

    /// Returns the smallest size, in steps of 16 up to 8 KiB, at which `b` is faster than `a`.
    fn cross_over(&self, platform: &str, a: Choice, b: Choice) -> f64 {
        let faster =
            |size: &u64| self.latency(platform, b, *size) < self.latency(platform, a, *size);
        (1..=512).map(|step| step * 16).find(faster).unwrap_or(8192) as f64
    }

    /// Returns the model's value for `number`.
    pub fn simulate(&self, number: &Number) -> f64 {
        let at = number.platform;
        let mbyte = |bytes: u64, time: u64| bytes as f64 / time as f64 * 1e12 / f64::from(1 << 20);
        let hw = self.hardware(at);
        match number.figure {
            Figure::LogP(choice, parameter) => self.logp(at, choice, parameter),
            Figure::FetchAdd(choice) => self.fetch_add(at, choice),
            Figure::FetchAddSpeedup(choice) => {
                self.fetch_add("ppro", choice) / self.fetch_add("p3", choice)
            }
            Figure::RoundTrip(choice) => 2.0 * self.logp(at, choice, Parameter::EndToEnd),
            Figure::Throughput(choice) => self.peak(at, choice),
            Figure::CrossOver(a, b) => self.cross_over(at, a, b),
            Figure::PioRate => mbyte(LINE, hw.bus_time(LINE, hw.pio_clocks)),
            Figure::CopyRate => mbyte(LINE, hw.line_copy(false, false)),
            Figure::Multicast(choice) => self.multicast(at, choice),
            Figure::OrderedMulticast(choice) => {
                self.fetch_add(at, choice) + self.multicast(at, choice)
            }
            Figure::MulticastThroughput(choice) => self.multicast_peak(at, choice),
            Figure::RootLimit(shape) => {
                let fan_out = tree::children(shape, 0, 0, hw.nodes).count() as u64;
                mbyte(1, hw.link_byte * fan_out)
            }
        }
    }

    /// Returns a row for every number in `table`, or for all.
    pub fn rows(&self, table: &str) -> Vec<Comparison> {
        let wanted = |number: &Number| table == "all" || number.table == table;
        let simulate = |number| Comparison { simulated: self.simulate(&number), number };
        numbers().into_iter().filter(wanted).map(simulate).collect()
    }
}

/// The names of all tables.
pub const TABLES: [&str; 8] = ["III", "IV", "V", "VI", "fig6", "fig7", "fig9", ORDERINGS];
/// The orderings that the paper states in words: it gives nothing else around Figures 5 and 8.
pub const ORDERINGS: &str = "orderings";
