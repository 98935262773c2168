//! The statements of sections 6.3 and 7 about systems and applications, each beside the model.

use super::cases::{App, Case, Measured};
use super::costs::PLATFORMS;
use super::figures::{columns, variants, CASTERS, COLUMNS};
use super::study::Study;
use super::systems::Row;
use weft_platform::choice::Choice;
use weft_platform::claims::Claim;

/// Slowdowns and gains up to this are none, as one reads them off a figure.
const LITTLE: f64 = 0.03;
/// Changes up to this are slight.
const SLIGHT: f64 = 0.10;
/// A slowdown that the text states is met within this.
const NEAR: f64 = 0.15;

struct Statements<'a> {
    study: &'a Study,
    list: Vec<Claim>,
}

/// Returns the statements of section 7, after all figures' runs.
pub fn statements(study: &Study, systems: &[Row]) -> Vec<Claim> {
    let mut all = Statements { study, list: Vec::new() };
    all.systems(systems);
    all.table_7();
    for platform in [0, 1] {
        all.figure_11(platform);
        all.figure_12(platform);
        all.figure_13(platform);
        all.figure_14(platform);
        all.figure_15(platform);
        all.figure_16(platform);
    }
    all.both();
    all.list
}

/// Packets of all kinds that come to a node, a second.
fn packets(of: &Measured) -> f64 {
    of.packets.iter().sum()
}

/// Bytes that come to a node, a second.
fn bytes(of: &Measured) -> f64 {
    of.bytes.iter().sum()
}

impl Statements<'_> {
    fn add(&mut self, section: &'static str, at: &'static str, text: &str, kept: bool, of: &[f64]) {
        let (text, figures) = (text.to_string(), of.to_vec());
        self.list.push(Claim { section, text, platform: at, kept, figures });
    }

    fn usual(&self, app: App, platform: usize) -> Measured {
        self.study.of(&Case::usual(app, platform))
    }

    /// The time of an application with a choice over that with l-sdma.
    fn times(&self, app: App, platform: usize, choice: Choice) -> f64 {
        let usual = Case::usual(app, platform);
        self.study.slowdown(&usual.with(choice), &usual)
    }

    fn all_times(&self, platform: usize, choice: Choice) -> Vec<f64> {
        App::ALL.map(|app| self.times(app, platform, choice)).to_vec()
    }

    fn systems(&mut self, rows: &[Row]) {
        let find = |at: &str, table: &str, name: &str, unit: &str| {
            let is = |row: &&Row| {
                row.platform == at
                    && row.table == table
                    && row.unit == unit
                    && row.row.starts_with(name)
            };
            rows.iter().find(is).map_or(f64::NAN, |row| row.simulated)
        };
        let more = |at: &str, name: &str| find(at, "V", name, "us") / find(at, "V", "LCI", "us");
        for at in PLATFORMS {
            let of = ["CRL", "MPI", "Orca"].map(|name| more(at, name) - 1.0);
            let kept = of[0] < of[1] && of[1] < of[2] + 0.01;
            self.add(
                "6.3",
                at,
                "round trip over LCI's: CRL adds least, Orca as much as MPI or more",
                kept,
                &of,
            );
            let rate =
                |name: &str| find(at, "V", name, "Mbyte/s") / find(at, "V", "LCI", "Mbyte/s");
            for name in ["MPI", "Orca"] {
                let (time, rate) = (more(at, name) - 1.0, 1.0 - rate(name));
                let text = format!("{name} loses less throughput than latency");
                self.add("6.3", at, &text, rate < time, &[rate, time]);
            }
            let ordered = find(at, "VI", "Orca", "Mbyte/s") / find(at, "VI", "MPI", "Mbyte/s");
            let text = "fetch-and-add has no noticeable effect on broadcast throughput";
            self.add("6.3", at, text, (ordered - 1.0).abs() <= SLIGHT, &[ordered]);
        }
        for name in ["CRL", "MPI", "Orca"] {
            let of = [more("p3", name) - 1.0, more("ppro", name) - 1.0];
            let text = format!("{name} adds a smaller part on P3 than on PPro");
            self.add("6.3", "both", &text, of[0] < of[1], &of);
        }
    }

    fn table_7(&mut self) {
        let of = |platform| App::ALL.map(|app| self.usual(app, platform).efficiency).to_vec();
        let all: Vec<Vec<f64>> = vec![of(0), of(1)];
        let place = |app: App| App::ALL.iter().position(|other| *other == app).unwrap_or(0);
        for (platform, at) in PLATFORMS.into_iter().enumerate() {
            let e = &all[platform];
            let asp = e[place(App::Asp)];
            self.add("7", at, "ASP has a superlinear speedup", asp > 1.0, &[asp]);
            let best = e.iter().all(|other| *other <= asp);
            self.add("7", at, "ASP has the highest efficiency", best, &[asp]);
            let low = [App::Radix, App::Barnes].map(|app| e[place(app)]);
            let others =
                App::ALL.into_iter().filter(|app| !matches!(app, App::Radix | App::Barnes));
            let rest = others.map(|app| e[place(app)]).fold(f64::INFINITY, f64::min);
            let kept = low[0].max(low[1]) < rest;
            let text = "Radix and Barnes have the lowest efficiencies";
            self.add("7", at, text, kept, &[low[0], low[1], rest]);
            let half = e.iter().filter(|e| **e >= 0.5).count() as f64;
            self.add("7", at, "most applications reach 50 %", half >= 5.0, &[half]);
        }
        for (app, rises) in [
            (App::Awari, Some(false)),
            (App::Barnes, Some(false)),
            (App::Radix, Some(false)),
            (App::Asp, Some(true)),
            (App::Leq, Some(true)),
            (App::SOR, Some(true)),
            (App::Qr, None),
        ] {
            let of = [all[0][place(app)], all[1][place(app)]];
            let (word, kept) = match rises {
                Some(true) => ("higher", of[1] > of[0]),
                Some(false) => ("lower", of[1] < of[0]),
                None => ("almost sustained", (of[1] / of[0] - 1.0).abs() <= 0.15),
            };
            let text = format!("{}: efficiency {word} on P3", app.name());
            self.add("7", "both", &text, kept, &of);
        }
    }

    fn figure_11(&mut self, platform: usize) {
        let at = PLATFORMS[platform];
        let all = App::ALL.map(|app| (app, self.usual(app, platform)));
        for (app, of) in all {
            let [unicast, multicast, _] = of.packets;
            let casts = matches!(app, App::Asp | App::Leq | App::Qr);
            let share = multicast / (unicast + multicast);
            let kept = if casts { share >= 0.75 } else { share <= 0.25 };
            let word = if casts { "multicast" } else { "unicast" };
            let text = format!("{} is dominated by {word} traffic", app.name());
            self.add("7", at, &text, kept, &[share]);
        }
        let leq = packets(&self.usual(App::Leq, platform));
        let kept = all.iter().all(|(_, of)| packets(of) <= leq);
        self.add("7.1", at, "LEQ has the highest packet rate", kept, &[leq]);
        self.barnes_rates(platform, &all.map(|(_, of)| of));
        let sor = self.usual(App::SOR, platform);
        let more = [App::Leq, App::Barnes, App::Radix, App::Puzzle4, App::Awari];
        // The text calls two data rates high, and gives no measure.
        let low = [App::Barnes, App::Awari, App::Qr].map(|app| bytes(&self.usual(app, platform)));
        let low = low.into_iter().fold(0.0, f64::max);
        let kept = more.iter().all(|app| packets(&self.usual(*app, platform)) > packets(&sor))
            && bytes(&sor) > low;
        let text = "SOR: a relatively high data rate, though its packet rate is modest";
        self.add("7.2", at, text, kept, &[packets(&sor), bytes(&sor)]);
        let radix = bytes(&self.usual(App::Radix, platform));
        let text = "Radix: a high data rate, above those of Barnes, Awari and QR";
        self.add("7", at, text, radix > low, &[radix, low]);
        if platform == 0 {
            for app in
                [App::Asp, App::Leq, App::Qr, App::Awari, App::Barnes, App::Puzzle4, App::Radix]
            {
                let acks = |platform| {
                    let [a, b, acks] = self.usual(app, platform).packets;
                    acks / (a + b)
                };
                let of = [acks(0), acks(1)];
                let kept = of[0] >= 0.2 && of[0] > of[1];
                let text =
                    format!("{}: acknowledgements are many on PPro, fewer on P3", app.name());
                self.add("7", "both", &text, kept, &of);
            }
        }
    }

    /// "Barnes has a low data rate ... The packet rate, however, is high (about 10,000
    /// packets/s/processor)"
    fn barnes_rates(&mut self, platform: usize, all: &[Measured]) {
        let (at, barnes) = (PLATFORMS[platform], self.usual(App::Barnes, platform));
        let above = |rate: fn(&Measured) -> f64| {
            all.iter().filter(|other| rate(other) > rate(&barnes)).count()
        };
        let half = all.len() / 2;
        let kept = above(bytes) > half && above(packets) < half;
        let text = "Barnes: a low data rate, but a high packet rate, of all applications";
        self.add("7", at, text, kept, &[bytes(&barnes), packets(&barnes)]);
        if platform == 0 {
            let rate = barnes.packets[0];
            let text = "Barnes: about 10,000 packets a second";
            self.add("7", at, text, (5_000.0..20_000.0).contains(&rate), &[rate]);
        }
    }

    fn figure_12(&mut self, platform: usize) {
        let (at, nirx, hrx) = (PLATFORMS[platform], Choice::NIRX, Choice::HRX);
        for app in [App::Barnes, App::Radix] {
            let of = self.times(app, platform, nirx) - 1.0;
            let text = format!("{} is slower with l-nirx, by at most 15 %", app.name());
            self.add("7.1", at, &text, of > 0.0 && of <= 0.155, &[of]);
        }
        let leq = self.times(App::Leq, platform, nirx) - 1.0;
        self.add(
            "7.1",
            at,
            "LEQ suffers from l-nirx (up to 23 %)",
            leq > LITTLE && leq < 0.3,
            &[leq],
        );
        let all = self.all_times(platform, nirx);
        let kept = all.iter().all(|other| *other <= leq + 1.0);
        self.add("7.1", at, "LEQ suffers most from l-nirx", kept, &[leq]);
        let of = [App::Puzzle64, App::Puzzle4].map(|app| self.times(app, platform, hrx) - 1.0);
        self.add("7.1", at, "Puzzle-4 suffers more from l-hrx than Puzzle-64", of[0] < of[1], &of);
        for app in [App::Puzzle4, App::Puzzle64, App::Leq, App::Qr, App::Asp] {
            let of = self.times(app, platform, hrx) - 1.0;
            let text = format!("{} is sensitive to l-hrx", app.name());
            self.add("7.1", at, &text, of > LITTLE, &[of]);
        }
        for app in [App::Awari, App::Barnes, App::Radix, App::SOR] {
            let of = self.times(app, platform, hrx) - 1.0;
            let text = format!("{} is a little slower with l-hrx", app.name());
            self.add("7.1", at, &text, of > 0.0 && of <= 0.25, &[of]);
        }
        let count =
            |choice| self.all_times(platform, choice).iter().filter(|t| **t <= 1.15).count();
        let of = [count(nirx) as f64, count(hrx) as f64];
        let text = "retransmission costs most applications less than 15 %";
        self.add("7.5", at, text, of[0] >= 5.0 && of[1] >= 5.0, &of);
    }

    fn figure_13(&mut self, platform: usize) {
        let (at, pio) = (PLATFORMS[platform], Choice::PIO);
        let all = self.all_times(platform, pio);
        if platform == 0 {
            for (app, of) in App::ALL.into_iter().zip(&all) {
                let text = format!("{}: l-sdma is not faster than l-pio", app.name());
                self.add("7.2", at, &text, *of <= 1.0 + LITTLE, &[*of]);
            }
        } else {
            let wins = all.iter().filter(|times| **times > 1.0).count() as f64;
            self.add("7.2", at, "l-sdma is faster than l-pio for most", wins >= 5.0, &[wins]);
            for app in [App::Barnes, App::Leq] {
                let of = self.times(app, platform, pio);
                self.add("7.2", at, &format!("{}: l-pio is faster", app.name()), of < 1.0, &[of]);
            }
            for app in [App::Qr, App::Awari] {
                let of = self.times(app, platform, pio);
                let text = format!("{}: little or no difference", app.name());
                self.add("7.2", at, &text, (of - 1.0).abs() <= 0.05, &[of]);
            }
        }
        let spread = all.iter().map(|times| (times - 1.0).abs()).fold(0.0, f64::max);
        self.add("1", at, "data transfer: differences up to 30 %", spread <= 0.35, &[spread]);
    }

    fn figure_14(&mut self, platform: usize) {
        let at = PLATFORMS[platform];
        let of = |cols, variant: usize| {
            let cases = columns(cols, platform);
            self.study.slowdown(&cases[variant].1, &cases[0].1)
        };
        let rcpy = COLUMNS.map(|cols| of(cols, 2));
        let early = COLUMNS.map(|cols| of(cols, 1));
        let both = COLUMNS.map(|cols| of(cols, 3));
        self.add(
            "7.2",
            at,
            "SOR, 1536: l-rcpy is slightly better",
            (0.85..1.0).contains(&rcpy[0]),
            &rcpy[..1],
        );
        let falls = rcpy.windows(2).all(|pair| pair[1] < pair[0]);
        self.add("7.2", at, "SOR: the gain of l-rcpy grows with the columns", falls, &rcpy);
        let kept = early[0] < 1.0 - LITTLE / 2.0;
        self.add("7.2", at, "SOR, 1536: asynchronous l-sdma is faster", kept, &early);
        if platform == 1 {
            let kept = early.iter().all(|times| *times < 1.0);
            self.add("7.2", at, "SOR: asynchronous l-sdma is faster at all sizes", kept, &early);
        } else {
            let kept = early[1..].iter().all(|times| (times - 1.0).abs() <= 2.0 * LITTLE);
            let text = "SOR: asynchronous l-sdma helps noticeably at 1536 only";
            self.add("7.2", at, text, kept && early[0] < early[1], &early);
        }
        let kept = both.iter().zip(&rcpy).all(|(both, rcpy)| *both < rcpy - LITTLE);
        self.add("7.2", at, "SOR: asynchronous l-rcpy is significantly faster", kept, &both);
    }

    fn figure_15(&mut self, platform: usize) {
        let at = PLATFORMS[platform];
        let all = self.all_times(platform, Choice::SDMA.with_mtu(4096));
        for (app, of) in App::ALL.into_iter().zip(&all) {
            let text = format!("{} gains nothing significant from 4 KiB packets", app.name());
            self.add("7.3", at, &text, *of > 0.95, &[*of]);
        }
        // "Barnes, LEQ, and QR in fact perform up to 26 % worse ... on the PPro platform ... On the
        // P3 platform the maximum slowdown is less (up to 13 %)"
        let large = [App::Barnes, App::Leq, App::Qr];
        let worse = |platform| {
            large.map(|app| self.times(app, platform, Choice::SDMA.with_mtu(4096)) - 1.0)
        };
        let (here, ppro) = (worse(platform), worse(0));
        let most = |of: [f64; 3]| of.into_iter().fold(0.0, f64::max);
        if platform == 0 {
            for (app, of) in large.into_iter().zip(here) {
                let text = format!("{} is slower with 4 KiB, by at most 26 %", app.name());
                self.add("7.3", at, &text, of > 0.0 && of <= 0.28, &[of]);
            }
        } else {
            let kept = most(here) <= 0.15 && most(here) < most(ppro);
            let text = "Barnes, LEQ, QR with 4 KiB: at most 13 % slower, less than on PPro";
            self.add("7.3", at, text, kept, &here);
        }
        let of = self.times(App::Radix, platform, Choice::SDMA.with_mtu(1024)) - 1.0;
        self.add("7.3", at, "Radix suffers slightly with 1 KiB", of > 0.0 && of <= 0.15, &[of]);
    }

    fn figure_16(&mut self, platform: usize) {
        let at = PLATFORMS[platform];
        let of = |app| {
            let usual = Case::usual(app, platform);
            let times = |(_, case)| self.study.slowdown(&case, &usual);
            variants("16", app, platform).into_iter().map(times).collect::<Vec<f64>>()
        };
        for app in CASTERS {
            let times = of(app);
            let text = format!("{} is faster if network interfaces forward", app.name());
            self.add("7.4", at, &text, times[0] > 1.0, &times);
        }
        let (qr, stated) = (of(App::Qr), [1.34, 1.51][platform]);
        let near = |times: f64| (times - stated).abs() <= NEAR;
        let text = format!("QR: l-sdma-hmc takes {stated} times");
        self.add("7.4", at, &text, near(qr[0]), &qr[..1]);
        let text = format!("QR: MPICH's forwarding is like l-sdma-hmc's, {stated}");
        self.add("7.4", at, &text, near(qr[1]), &qr[1..]);
        let asp = of(App::Asp);
        let worse = asp[2] / asp[1] - 1.0;
        let text = "ASP: MPICH's binomial tree is 58 % slower than the binary one";
        self.add("7.4", at, text, (worse - 0.58).abs() <= NEAR, &[worse]);
        let leq = of(App::Leq)[0] - 1.0;
        self.add("7.4", at, "LEQ: a small difference", leq <= 0.15, &[leq]);
        let radix = self.usual(App::Radix, platform).packets;
        let share = radix[1] / (radix[0] + radix[1]);
        let text = "Radix: multicasts are about 10 % of the packets";
        self.add("7.4", at, text, (0.05..0.2).contains(&share), &[share]);
        if platform == 1 {
            let gain = of(App::Radix)[0] - 1.0;
            self.add("7.4", at, "Radix: the gain is noticeable", gain > LITTLE / 2.0, &[gain]);
        }
    }

    fn both(&mut self) {
        for (choice, name) in [(Choice::NIRX, "l-nirx"), (Choice::HRX, "l-hrx")] {
            let [a, b] = [0, 1].map(|platform| self.all_times(platform, choice));
            let same = a.iter().zip(&b).filter(|(a, b)| (*a - *b).abs() <= SLIGHT).count() as f64;
            let text = format!("{name}: similar on both clusters (of 9)");
            self.add("7.1", "both", &text, same >= 5.0, &[same]);
        }
        // The largest change by host-level forwarding against that by l-pio, on either cluster.
        let most = |of: &dyn Fn(usize) -> f64| of(0).max(of(1));
        let more = CASTERS.into_iter().filter(|app| {
            let usual = |platform| Case::usual(*app, platform);
            let hmc =
                most(&|at| self.study.slowdown(&variants("16", *app, at)[0].1, &usual(at)) - 1.0);
            hmc > most(&|at| (self.times(*app, at, Choice::PIO) - 1.0).abs())
        });
        let more: Vec<App> = more.collect();
        let text = "multicast matters more than data transfer for one application, QR";
        self.add("7.5", "both", text, more == [App::Qr], &[more.len() as f64]);
    }
}
