//! The statements of sections 3.7 and 5 about the figures, each beside the model.

use super::cluster::HOSTS;
use super::programs::Version;
use super::study::Curve;

/// A statement of the paper, and what the model shows.
pub struct Claim {
    pub figure: &'static str,
    pub text: &'static str,
    /// True if the model agrees; `None` if it has no such version.
    pub holds: Option<bool>,
    /// The figures behind it, in words.
    pub because: String,
}

struct Claims<'a> {
    curves: &'a [Curve],
    list: Vec<Claim>,
}

/// Speed-ups that differ by less are alike.
const ALIKE: f64 = 0.15;
/// Differences below this are hard to see in a figure.
const HARDLY: f64 = 0.05;

/// Returns all statements.
pub fn claims(curves: &[Curve]) -> Vec<Claim> {
    let mut all = Claims { curves, list: Vec::new() };
    all.figure_5();
    all.figure_5_balanced();
    all.figure_6();
    all.figure_15();
    all.list
}

fn greatest(of: &[f64]) -> f64 {
    of.iter().copied().fold(0.0, f64::max)
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len().max(1) as f64
}

impl Claims<'_> {
    fn add(&mut self, figure: &'static str, text: &'static str, holds: bool, because: String) {
        self.list.push(Claim { figure, text, holds: Some(holds), because });
    }

    fn none(&mut self, figure: &'static str, text: &'static str, because: &str) {
        self.list.push(Claim { figure, text, holds: None, because: because.to_string() });
    }

    fn of(&self, figure: &str, version: Version) -> &Curve {
        let is_it = |c: &&Curve| {
            c.figure == figure && c.name.trim_end_matches(", rows by cost") == version.name()
        };
        self.curves.iter().find(is_it).expect("all curves are there")
    }

    fn figure_5(&mut self) {
        let [messages, objects, cycles, _] = Version::ALL.map(|version| self.of("5", version));
        let (half, whole) = (objects.at(18), objects.at(HOSTS));
        let growth = whole / half / (37.0 / 18.0);
        let apart = messages.points.range(..=HOSTS).map(|(n, s)| (s / objects.at(*n) - 1.0).abs());
        let apart = greatest(&apart.collect::<Vec<_>>());
        let last = [objects, messages].map(|c| (c.at(HOSTS), greatest(&c.beyond())));
        let slower: Vec<f64> = cycles.points.range(8..).map(|(n, s)| s / objects.at(*n)).collect();
        self.add(
            "5",
            "Charm++ speeds up almost linearly up to the number of hosts",
            growth > 0.8,
            format!(
                "from 18 to 37 hosts {half:.1} to {whole:.1}: {:.0} % of linear",
                growth * 100.0
            ),
        );
        self.add(
            "5",
            "MPI behaves very similarly to Charm++ until the hosts are exhausted",
            apart <= ALIKE,
            format!("at most {:.0} % apart", apart * 100.0),
        );
        self.add(
            "5",
            "Charm++ goes on rising beyond the number of hosts",
            last[0].1 > last[0].0,
            format!("{:.1} at 37, at most {:.1} beyond", last[0].0, last[0].1),
        );
        self.add(
            "5",
            "MPI goes on rising beyond the number of hosts",
            last[1].1 > last[1].0,
            format!("{:.1} at 37, at most {:.1} beyond", last[1].0, last[1].1),
        );
        self.add(
            "5",
            "synchronising in sub-cycles reduces performance",
            greatest(&slower) < 1.0,
            format!("{:.2} of the objects' speed-up on average", mean(&slower)),
        );
    }

    /// The system's balancing, and versions that the model does not have.
    fn figure_5_balanced(&mut self) {
        let (objects, balanced) = (self.of("5", Version::Objects), self.of("5", Version::Balanced));
        let all = |points: std::collections::btree_map::Range<'_, usize, f64>| -> Vec<f64> {
            points.map(|(n, s)| s / objects.at(*n)).collect()
        };
        let gains = all(balanced.points.range(HOSTS + 1..));
        let few = all(balanced.points.range(4..=HOSTS));
        let rough = [balanced.roughness(), objects.roughness()];
        self.add(
            "5",
            "system load-balancing brings gains to Charm++ where there are virtual nodes",
            greatest(&gains) > 1.02,
            format!(
                "{:.2} times on average beyond 37, at most {:.2}",
                mean(&gains),
                greatest(&gains)
            ),
        );
        self.add(
            "5",
            "it brings little without virtual nodes",
            mean(&few) < 1.0 + ALIKE,
            format!("{:.2} times on average up to 37", mean(&few)),
        );
        self.add(
            "5",
            "balanced Charm++ is erratic for many nodes",
            rough[0] > rough[1],
            format!("bends of {:.2}, and {:.2} without balancing", rough[0], rough[1]),
        );
        self.none("5", "MOSIX falls beyond the number of hosts", "no policy moves ranks here");
        self.none("5", "MOSIX is slower than Charm++ before that", "no policy moves ranks here");
        self.none(
            "5",
            "AMPI falls after 55 nodes",
            "a weakness of that implementation, says the paper",
        );
        self.none("5", "LAM and MPICH differ little", "one program stands for both");
    }

    fn figure_6(&mut self) {
        let lifted = |version| {
            let (before, after) = (self.of("5", version), self.of("6", version));
            let all: Vec<f64> = after.points.range(4..).map(|(n, s)| s / before.at(*n)).collect();
            (all.iter().copied().fold(f64::INFINITY, f64::min), mean(&all))
        };
        let [messages, objects, _, balanced] = Version::ALL.map(lifted);
        let best = |figure: &str, version| {
            greatest(&self.of(figure, version).points.values().copied().collect::<Vec<_>>())
        };
        let all = [("5", Version::Messages), ("5", Version::Objects), ("5", Version::Balanced)];
        let others = all.into_iter().chain([("6", Version::Messages), ("6", Version::Objects)]);
        let others = greatest(&others.map(|(f, v)| best(f, v)).collect::<Vec<_>>());
        let both = best("6", Version::Balanced);
        let rough = ["5", "6"].map(|figure| self.of(figure, Version::Balanced).roughness());
        let rising = self.of("6", Version::Objects);
        let (end, at_37) = (mean(&[rising.at(98), rising.at(111)]), rising.at(HOSTS));
        let step = [rising.at(74), rising.at(86)];
        let plain = best("6", Version::Messages);
        self.add(
            "6",
            "application-level balance improves MPI, on average",
            messages.1 > 1.1,
            format!("{:.2} times on average, at least {:.2}", messages.1, messages.0),
        );
        self.add(
            "6",
            "application-level balance improves Charm++, on average",
            objects.1 > 1.1,
            format!("{:.2} times on average, at least {:.2}", objects.1, objects.0),
        );
        self.add(
            "6",
            "application-level balance improves balanced Charm++, on average",
            balanced.1 > 1.1,
            format!("{:.2} times on average, at least {:.2}", balanced.1, balanced.0),
        );
        self.add(
            "6",
            "both ways of balancing together have the best speed-up",
            both >= others,
            format!("{both:.1}, and {others:.1} the best of the others"),
        );
        self.add(
            "6",
            "the curve of both is smoother than that of system balancing alone",
            rough[1] < rough[0],
            format!("bends of {:.2} after {:.2}", rough[1], rough[0]),
        );
        self.add(
            "6",
            "speed-ups rise gradually as virtual nodes are added",
            end > at_37,
            format!("{at_37:.1} at 37, {end:.1} at 98 and 111"),
        );
        self.add(
            "6",
            "there is a threshold where a processor has more than two nodes",
            step[1] < step[0],
            format!("{:.1} at 74 and {:.1} at 86", step[0], step[1]),
        );
        self.add(
            "6",
            "MPICH without system balancing is very competitive",
            plain > 0.85 * both,
            format!("{plain:.1} beside {both:.1}"),
        );
        self.none("6", "MOSIX is a scaled version of itself", "no policy moves ranks here");
    }

    fn figure_15(&mut self) {
        let find = |name: &str| {
            let is_it = |c: &&Curve| c.figure == "15" && c.name == name;
            self.curves.iter().find(is_it).expect("all curves are there")
        };
        let [tcp, tipc] = ["tcp", "tipc"].map(find);
        let [tcp_cost, tipc_cost] = ["tcp, rows by cost", "tipc, rows by cost"].map(find);
        let gain = tcp_cost.at(23) / tcp.at(23);
        let apart = [(tcp, tipc), (tcp_cost, tipc_cost)].map(|(tcp, tipc)| {
            greatest(
                &tcp.points.iter().map(|(n, s)| (tipc.at(*n) / s - 1.0).abs()).collect::<Vec<_>>(),
            )
        });
        self.add(
            "15",
            "application-level balance increases performance significantly",
            gain > 1.2,
            format!("{gain:.2} times on 23 hosts"),
        );
        self.add(
            "15",
            "TCP and TIPC are hard to tell apart",
            greatest(&apart) < HARDLY,
            format!("at most {:.1} % apart", greatest(&apart) * 100.0),
        );
    }
}
