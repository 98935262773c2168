//! The numbers that the paper states, each with the simulated figure that it is compared with, and
//! marked if it calibrated the model.

use super::choice::Choice;
use weft_core::group::tree::Tree;

/// A parameter of LogP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// Send overhead.
    SendOverhead,
    /// Receive overhead.
    ReceiveOverhead,
    /// Latency.
    Latency,
    /// Gap.
    Gap,
    /// Time from one program to the other, one way.
    EndToEnd,
}

/// The simulated figure for a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    /// A LogP parameter for messages of 16 bytes.
    LogP(Choice, Parameter),
    /// A fetch-and-add.
    FetchAdd(Choice),
    /// Time of a fetch-and-add on PPro divided by that on P3.
    FetchAddSpeedup(Choice),
    /// Two messages of 16 bytes, there and back.
    RoundTrip(Choice),
    /// Highest throughput of a stream, copied at the receiver.
    Throughput(Choice),
    /// Size from which the second is faster than the first, copied at the receiver.
    CrossOver(Choice, Choice),
    /// Rate at which the processor writes over the I/O bus.
    PioRate,
    /// Rate of a copy from memory to memory.
    CopyRate,
    /// Multicast of 16 bytes to 64 nodes.
    Multicast(Choice),
    /// Multicast of 16 bytes to 64 nodes after a fetch-and-add.
    OrderedMulticast(Choice),
    /// Highest multicast throughput on 64 nodes, copied at the receivers.
    MulticastThroughput(Choice),
    /// The link's rate over the fan-out of the tree's root.
    RootLimit(Tree),
}

/// A number of the paper.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// Table or section: `III`, `fig9`.
    pub table: &'static str,
    /// Its name.
    pub row: String,
    /// `ppro` or `p3`.
    pub platform: &'static str,
    /// Its unit; a Mbyte has 2^20 bytes.
    pub unit: &'static str,
    /// The paper's value.
    pub paper: f64,
    /// The simulated figure.
    pub figure: Figure,
    /// True if it was used to calibrate the model.
    pub calibrated: bool,
}

/// Both platforms, in the paper's order.
pub const PLATFORMS: [&str; 2] = ["ppro", "p3"];

const US: &str = "us";
const MBYTE: &str = "Mbyte/s";

const PARAMETERS: [(Parameter, &str); 5] = [
    (Parameter::SendOverhead, "send overhead"),
    (Parameter::ReceiveOverhead, "receive overhead"),
    (Parameter::Latency, "latency"),
    (Parameter::Gap, "gap"),
    (Parameter::EndToEnd, "end to end"),
];

/// Table III: l-sdma, l-nirx, l-hrx and GM on PPro, then on P3.
const TABLE_3: [[f64; 8]; 5] = [
    [1.8, 1.8, 3.3, 1.1, 0.5, 0.5, 0.9, 0.7],
    [2.6, 2.5, 5.9, 1.6, 0.5, 0.5, 1.2, 0.5],
    [10.7, 13.7, 9.3, 22.2, 7.8, 8.3, 7.8, 9.5],
    [11.1, 12.6, 10.2, 31.1, 4.5, 5.2, 4.6, 12.6],
    [15.1, 18.0, 18.5, 24.9, 8.8, 9.4, 9.9, 10.7],
];

/// Table III: fetch-and-add with l-sdma, l-nirx and l-hrx.
const FETCH_ADD: [[f64; 3]; 2] = [[18.0, 24.4, 32.5], [7.4, 9.0, 13.4]];

/// Table IV: l-sdma, l-pio and l-rcpy on PPro, then on P3.
const TABLE_4: [[f64; 6]; 5] = [
    [1.8, 1.5, 1.8, 0.5, 0.5, 0.6],
    [2.6, 2.3, 1.2, 0.5, 0.4, 0.1],
    [10.7, 6.7, 16.1, 7.8, 5.2, 9.1],
    [11.1, 6.7, 13.9, 4.5, 2.8, 5.1],
    [15.1, 10.4, 19.1, 8.8, 6.2, 9.8],
];

/// The numbers one by one.
#[derive(Default)]
struct List(Vec<Number>);

impl List {
    fn add(
        &mut self,
        place: (&'static str, &'static str, &'static str),
        row: &str,
        number: (f64, Figure),
    ) {
        let (table, platform, unit) = place;
        let (paper, figure) = number;
        let row = row.to_string();
        self.0.push(Number { table, row, platform, unit, paper, figure, calibrated: false });
    }

    /// Sets whether the last number calibrated the model.
    fn calibrated(&mut self, yes: bool) {
        if let Some(last) = self.0.last_mut() {
            last.calibrated = yes;
        }
    }

    /// Adds the LogP parameters of `choices`, first all on PPro, then all on P3.
    fn logp(
        &mut self,
        table: &'static str,
        choices: &[Choice],
        values: &[&[f64]],
        calibrated: impl Fn(Choice, &str) -> bool,
    ) {
        for (p, platform) in PLATFORMS.into_iter().enumerate() {
            for (i, &choice) in choices.iter().enumerate() {
                for ((parameter, what), row) in PARAMETERS.iter().zip(values) {
                    let paper = row[p * choices.len() + i];
                    let figure = Figure::LogP(choice, *parameter);
                    let place = (table, platform, US);
                    self.add(place, &format!("{choice}: {what}"), (paper, figure));
                    self.calibrated(calibrated(choice, platform));
                }
            }
        }
    }

    fn table_3(&mut self) {
        let choices = [Choice::SDMA, Choice::NIRX, Choice::HRX, Choice::GM];
        let rows: Vec<&[f64]> = TABLE_3.iter().map(|row| &row[..]).collect();
        // GM is other firmware on the same hardware: its work is fitted on PPro; P3 follows from
        // that.
        self.logp("III", &choices, &rows, |choice, platform| {
            choice == Choice::SDMA || (choice == Choice::GM && platform == "ppro")
        });
        for (platform, values) in PLATFORMS.into_iter().zip(FETCH_ADD) {
            for (&choice, paper) in choices.iter().zip(values) {
                let figure = Figure::FetchAdd(choice);
                let row = format!("{choice}: fetch-and-add");
                self.add(("III", platform, US), &row, (paper, figure));
                self.calibrated(choice == Choice::SDMA);
            }
        }
        for &choice in &choices[..3] {
            let row = format!("{choice}: fetch-and-add, PPro over P3");
            self.add(("III", "both", "times"), &row, (2.5, Figure::FetchAddSpeedup(choice)));
            // A number that follows from calibrated numbers alone is no prediction; the same below.
            self.calibrated(choice == Choice::SDMA);
        }
    }

    fn table_4(&mut self) {
        let rows: Vec<&[f64]> = TABLE_4.iter().map(|row| &row[..]).collect();
        let choices = [Choice::SDMA, Choice::PIO, Choice::RCPY];
        self.logp("IV", &choices, &rows, |choice, _| choice == Choice::SDMA);
    }

    /// Adds the lowest level of the programming systems' table: LCI itself.
    fn table_5(&mut self) {
        let rows = [
            ("ppro", Choice::PIO, 20.4, [64.0, 68.0, 63.0]),
            ("p3", Choice::SDMA, 18.1, [158.0, 159.0, 157.0]),
        ];
        for (platform, choice, latency, rates) in rows {
            let row = format!("{choice}: round trip");
            self.add(("V", platform, US), &row, (latency, Figure::RoundTrip(choice)));
            self.calibrated(choice == Choice::SDMA);
            for (rate, under) in rates.into_iter().zip(["CRL", "Panda-ST", "Panda-MT"]) {
                let row = format!("{choice}: throughput under {under}");
                self.add(("V", platform, MBYTE), &row, (rate, Figure::Throughput(choice)));
                self.calibrated(choice == Choice::SDMA);
            }
        }
    }

    fn table_6(&mut self) {
        let rows = [("ppro", Choice::PIO, 76.5, 33.0), ("p3", Choice::SDMA, 37.9, 99.0)];
        for (platform, choice, latency, rate) in rows {
            let row = format!("{choice}: fetch-and-add and multicast");
            self.add(("VI", platform, US), &row, (latency, Figure::OrderedMulticast(choice)));
            self.calibrated(choice == Choice::SDMA);
            let row = format!("{choice}: multicast throughput");
            self.add(("VI", platform, MBYTE), &row, (rate, Figure::MulticastThroughput(choice)));
            self.calibrated(choice == Choice::SDMA);
        }
    }

    fn figures_6_and_7(&mut self) {
        let row = "memory copy beyond the cache";
        self.add(("fig6", "ppro", MBYTE), row, (52.0, Figure::CopyRate));
        self.calibrated(true);
        self.add(("fig6", "p3", MBYTE), "writes over the I/O bus", (120.0, Figure::PioRate));
        let cross = |a, b| Figure::CrossOver(a, b);
        let rows = [
            ("ppro", "l-sdma faster than l-pio from", 1200.0, cross(Choice::PIO, Choice::SDMA)),
            ("p3", "l-sdma faster than l-pio from", 800.0, cross(Choice::PIO, Choice::SDMA)),
            ("ppro", "l-rcpy faster than l-sdma from", 350.0, cross(Choice::SDMA, Choice::RCPY)),
        ];
        for (platform, row, size, figure) in rows {
            self.add(("fig7", platform, "B"), row, (size, figure));
        }
    }

    fn figure_9(&mut self) {
        let choices = [Choice::PIO, Choice::SDMA, Choice::HMC];
        for (platform, values) in
            PLATFORMS.into_iter().zip([[58.5, 70.4, 135.0], [25.7, 28.9, 45.3]])
        {
            for (choice, paper) in choices.into_iter().zip(values) {
                let row = format!("{choice}: multicast, binary tree");
                self.add(("fig9", platform, US), &row, (paper, Figure::Multicast(choice)));
                self.calibrated(choice == Choice::SDMA);
            }
        }
        for (choice, paper) in [(Choice::SDMA, 100.0), (Choice::PIO, 75.0)] {
            let row = format!("{choice}: multicast throughput, binary tree");
            let figure = Figure::MulticastThroughput(choice);
            self.add(("fig9", "p3", MBYTE), &row, (paper, figure));
            self.calibrated(choice == Choice::SDMA);
        }
        for choice in choices {
            let row = format!("{choice}: multicast throughput, binomial tree");
            let figure = Figure::MulticastThroughput(choice.with_tree(Tree::Binomial));
            self.add(("fig9", "p3", MBYTE), &row, (37.0, figure));
            self.calibrated(choice == Choice::SDMA);
        }
        let row = "limit of the root's link, binomial tree";
        self.add(("fig9", "p3", MBYTE), row, (41.0, Figure::RootLimit(Tree::Binomial)));
    }
}

/// Returns all numbers of the paper that the model has a figure for.
pub fn numbers() -> Vec<Number> {
    let mut list = List::default();
    list.table_3();
    list.table_4();
    list.table_5();
    list.table_6();
    list.figures_6_and_7();
    list.figure_9();
    list.0
}
