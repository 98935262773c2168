//! The orderings that the paper states in words, each compared with the model.

use super::choice::Choice;
use super::compare::{Lab, LARGE, MEDIUM};
use super::reference::{Parameter, PLATFORMS};
use weft_core::group::tree::Tree;

/// A statement of the paper about which is faster, and the model's figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The paper's section.
    pub section: &'static str,
    /// The statement.
    pub text: String,
    /// `ppro`, `p3` or `both`.
    pub platform: &'static str,
    /// True if the model agrees.
    pub kept: bool,
    /// The model's figures, in the order of the text.
    pub figures: Vec<f64>,
}

/// Rounds to as many decimals as the paper gives for overheads.
fn tenths(us: f64) -> f64 {
    (us * 10.0).round()
}

/// Collects claims about one platform.
struct Claims<'a> {
    lab: &'a Lab,
    at: &'static str,
    section: &'static str,
    list: Vec<Claim>,
}

impl Claims<'_> {
    fn add(&mut self, text: &str, kept: bool, figures: &[f64]) {
        let (section, platform, figures) = (self.section, self.at, figures.to_vec());
        self.list.push(Claim { section, text: text.to_string(), platform, kept, figures });
    }

    /// Claims that the figures rise.
    fn rise(&mut self, text: &str, figures: &[f64]) {
        self.add(text, figures.windows(2).all(|w| w[0] < w[1]), figures);
    }

    /// Claims that all figures are within `share` of the first.
    fn alike(&mut self, text: &str, share: f64, figures: &[f64]) {
        let near = |&x: &f64| (x / figures[0] - 1.0).abs() <= share;
        self.add(text, figures.iter().all(near), figures);
    }

    fn logp(&self, parameter: Parameter, choices: &[Choice]) -> Vec<f64> {
        choices.iter().map(|&choice| self.lab.logp(self.at, choice, parameter)).collect()
    }

    fn peaks(&self, choices: &[Choice]) -> Vec<f64> {
        choices.iter().map(|&choice| self.lab.peak(self.at, choice)).collect()
    }

    fn reliability(&mut self) {
        use Parameter::{EndToEnd, Gap, Latency, ReceiveOverhead, SendOverhead};
        let (sdma, nirx, hrx, gm) = (Choice::SDMA, Choice::NIRX, Choice::HRX, Choice::GM);
        self.section = "5.1.3";
        let of = self.logp(SendOverhead, &[sdma, nirx]);
        self.alike("send overhead: l-sdma about l-nirx", 0.1, &of);
        let of = self.logp(ReceiveOverhead, &[sdma, nirx]);
        self.alike("receive overhead: l-sdma about l-nirx", 0.1, &of);
        for (what, parameter) in [("gap", Gap), ("latency", Latency)] {
            let of = self.logp(parameter, &[sdma, nirx]);
            self.rise(&format!("{what}: l-sdma below l-nirx"), &of);
            let of = self.logp(parameter, &[nirx, gm]);
            self.rise(&format!("{what}: l-nirx below GM"), &of);
        }
        for (what, parameter) in [("send", SendOverhead), ("receive", ReceiveOverhead)] {
            let of = self.logp(parameter, &[nirx, hrx]);
            self.rise(&format!("{what} overhead: l-nirx below l-hrx"), &of);
            if self.at == "ppro" {
                let of = self.logp(parameter, &[gm, sdma]);
                self.rise(&format!("{what} overhead: GM below l-sdma"), &of);
            }
        }
        if self.at == "ppro" {
            let of = self.logp(Gap, &[hrx, sdma]);
            self.rise("gap: l-hrx below l-sdma (fewer acknowledgements)", &of);
        }
        let of = self.logp(EndToEnd, &[sdma, nirx, hrx]);
        if self.at == "ppro" {
            self.rise("end to end: l-sdma below l-nirx below l-hrx", &of);
        } else {
            self.add("end to end: l-sdma below l-nirx and l-hrx", of[0] < of[1].min(of[2]), &of);
            let of = self.logp(EndToEnd, &[nirx, hrx]);
            self.rise("end to end: l-nirx below l-hrx", &of);
        }
        let of: Vec<f64> =
            [sdma, nirx, hrx].map(|choice| self.lab.fetch_add(self.at, choice)).to_vec();
        self.rise("fetch-and-add: l-sdma below l-nirx below l-hrx", &of);
        let of = self.peaks(&[sdma, nirx]);
        self.alike("throughput: l-nirx about l-sdma", 0.05, &of);
        let of = self.peaks(&[hrx, sdma]);
        self.rise("throughput: l-hrx below l-sdma", &of);
        let of = self.peaks(&[gm, nirx]);
        self.rise("throughput: GM below l-nirx", &of);
    }

    fn transfer(&mut self) {
        use Parameter::{Gap, Latency, ReceiveOverhead, SendOverhead};
        let (sdma, pio, rcpy) = (Choice::SDMA, Choice::PIO, Choice::RCPY);
        self.section = "5.2.4";
        for (what, parameter) in [("latency", Latency), ("gap", Gap)] {
            let of = self.logp(parameter, &[pio, sdma, rcpy]);
            let kept = of[0] < of[1].min(of[2]);
            self.add(&format!("{what}: l-pio below l-sdma and l-rcpy"), kept, &of);
        }
        let of = self.logp(SendOverhead, &[pio, sdma, rcpy]);
        let kept = tenths(of[0]) <= tenths(of[1].min(of[2]));
        self.add("send overhead, 16 B: l-pio no more than l-sdma and l-rcpy", kept, &of);
        let of = self.logp(ReceiveOverhead, &[rcpy, pio, sdma]);
        let kept = of[0] < of[1].min(of[2]);
        self.add("receive overhead: l-rcpy below l-pio and l-sdma", kept, &of);
        let of: Vec<f64> =
            [sdma, rcpy, pio].map(|choice| self.lab.setup(self.at, choice).logp(1024).os).to_vec();
        let kept = of[0].max(of[1]) < of[2];
        self.add("send overhead, 1 KiB: l-sdma and l-rcpy below l-pio", kept, &of);
        let of = [sdma, pio].map(|choice| self.lab.latency(self.at, choice, 2048));
        let small = [pio, sdma].map(|choice| self.lab.latency(self.at, choice, 16));
        self.rise("end to end, 16 B: l-pio below l-sdma", &small);
        if self.at == "p3" {
            self.rise("end to end, 2 KiB: l-sdma below l-pio", &of);
            let of = [sdma, rcpy].map(|choice| self.lab.latency(self.at, choice, 1024));
            self.alike("end to end, 1 KiB: l-rcpy about l-sdma", 0.25, &of);
            let of = self.peaks(&[pio, sdma]);
            self.rise("throughput: l-pio below l-sdma", &of);
            self.full_link();
        } else {
            self.rise("end to end, 2 KiB: l-sdma below l-pio", &of);
            let of = [rcpy, sdma].map(|choice| self.lab.latency(self.at, choice, 1024));
            self.rise("end to end, 1 KiB: l-rcpy below l-sdma", &of);
        }
        let of = self.peaks(&[sdma, rcpy]);
        self.rise("throughput with copies: l-sdma below l-rcpy", &of);
        self.receiver_copy();
    }

    /// Claims for the I/O bus at 66 MHz, where the link is the limit.
    fn full_link(&mut self) {
        let mut setup = self.lab.setup(self.at, Choice::SDMA);
        setup.hw = setup.hw.with_fast_bus();
        let rate = setup.throughput(MEDIUM, false);
        let link = 1e12 / setup.hw.link_byte as f64 / f64::from(1 << 20);
        self.add(
            "64 bits at 66 MHz: l-sdma reaches 90 % of the link",
            rate >= 0.9 * link,
            &[rate, link],
        );
    }

    fn receiver_copy(&mut self) {
        for choice in [Choice::PIO, Choice::SDMA] {
            let rate = |copied| self.lab.throughput(self.at, choice, LARGE, copied);
            let of = [rate(true), rate(false)];
            if self.at == "ppro" {
                let text =
                    format!("{choice}, beyond the cache: the copy drops it below 52 Mbyte/s");
                self.add(&text, of[0] < 52.0 && of[0] < of[1], &of);
            } else {
                let text = format!("{choice}, beyond the cache: the copy costs under 10 %");
                self.add(&text, of[0] > 0.9 * of[1], &of);
            }
        }
    }

    fn packet_size(&mut self) {
        self.section = "5.3";
        for choice in [Choice::PIO, Choice::SDMA] {
            let of = self.peaks(&[choice.with_mtu(1024), choice, choice.with_mtu(4096)]);
            self.rise(&format!("throughput, {choice}: 1 below 2 below 4 KiB"), &of);
            let small = of[2] < 1.25 * of[1];
            self.add(&format!("throughput, {choice}: 4 KiB is a small gain"), small, &of[1..]);
        }
    }

    fn multicast(&mut self) {
        let (pio, sdma, hmc) = (Choice::PIO, Choice::SDMA, Choice::HMC);
        self.section = "5.4";
        let of = [pio, sdma, hmc].map(|choice| self.lab.multicast(self.at, choice));
        self.rise("multicast latency: l-pio below l-sdma below l-sdma-hmc", &of);
        for choice in [pio, sdma, hmc] {
            let trees = [Tree::Binomial, Tree::Binary].map(|tree| choice.with_tree(tree));
            let of = trees.map(|choice| self.lab.multicast(self.at, choice));
            self.rise(&format!("multicast latency, {choice}: binomial below binary"), &of);
        }
        let peaks = |choices: [Choice; 2]| choices.map(|c| self.lab.multicast_peak(self.at, c));
        let of = peaks([sdma.with_tree(Tree::Binomial), sdma]);
        let by_transfer = if self.at == "ppro" { peaks([sdma, pio]) } else { peaks([pio, sdma]) };
        let by_place = peaks([hmc, sdma]);
        self.rise("multicast throughput: binomial below binary", &of);
        let text = if self.at == "ppro" { "l-sdma below l-pio" } else { "l-pio below l-sdma" };
        self.rise(&format!("multicast throughput: {text}"), &by_transfer);
        self.rise("multicast throughput: l-sdma-hmc below l-sdma", &by_place);
        if self.at == "ppro" {
            let loss = |choice| {
                let of = |size| self.lab.multicast_throughput(self.at, choice, size);
                1.0 - of(LARGE) / of(MEDIUM)
            };
            let of = [0.0, loss(sdma), loss(hmc)];
            self.rise("multicast beyond the cache: slower, l-sdma-hmc more than l-sdma", &of);
        }
    }
}

/// Returns every ordering that the paper states, on each platform.
pub fn claims(lab: &Lab) -> Vec<Claim> {
    let mut list = Vec::new();
    for at in PLATFORMS {
        let mut claims = Claims { lab, at, section: "", list: Vec::new() };
        claims.reliability();
        claims.transfer();
        claims.packet_size();
        claims.multicast();
        list.append(&mut claims.list);
    }
    let spread = |at| {
        let of = |choice| lab.logp(at, choice, Parameter::EndToEnd);
        of(Choice::HRX) / of(Choice::SDMA)
    };
    let figures = vec![spread("p3"), spread("ppro")];
    list.push(Claim {
        section: "5.1.3",
        text: "end to end: l-hrx over l-sdma is less on P3 than on PPro".to_string(),
        platform: "both",
        kept: figures[0] < figures[1],
        figures,
    });
    list
}
