//! Clusters with random faults from seeds, and checkers. `WEFT_SEEDS=0..1000` names other seeds.
#![allow(non_snake_case)]

mod world;

use std::time::Duration;
use weft_names::node::{ClaimId, Standing};
use weft_names::*;
use world::*;

const KIND: u32 = 1000;

fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var("WEFT_SEEDS").ok();
    let parse = |text: &str| {
        let (first, last) = text.split_once("..")?;
        Some(first.parse().ok()?..last.parse().ok()?)
    };
    given.as_deref().and_then(parse).unwrap_or(0..40)
}

/// A unique name that a host holds or wants.
type Wanted = (usize, u64, ClaimId, u32);

struct Swarm {
    world: World,
    n: usize,
    wanted: Vec<Wanted>,
    shared: Vec<(usize, u64, ClaimId)>,
    /// Since this time no part changed.
    quiet: u64,
    serial: u32,
}

impl Swarm {
    fn new(seed: u64) -> Swarm {
        let mut rng = Rng::new(seed);
        let n = 2 + rng.below(9) as usize + if rng.below(8) == 0 { 40 } else { 0 };
        let config = Config { log_max: 4, queue_max: 32, ..Config::default() };
        let mut world = World::new(seed, n, config);
        (0..n).for_each(|h| world.start(h, 5));
        for h in 0..n {
            world.watch(h, filter());
        }
        world.loss = rng.below(4) * 50;
        world.doubled = rng.below(3) * 50;
        world.jitter = 1 + rng.below(10) * MS;
        let quiet = world.now;
        Swarm { world, n, wanted: Vec::new(), shared: Vec::new(), quiet, serial: 0 }
    }

    fn runs(&self, host: usize) -> bool {
        let host = &self.world.hosts[host];
        !host.is_paused && host.node.as_ref().is_some_and(|n| !n.is_over())
    }

    fn act(&mut self) {
        let host = self.world.rng.below(self.n as u64) as usize;
        let dice = self.world.rng.below(100);
        if dice < 60 {
            return self.use_names(host);
        }
        self.quiet = self.world.now;
        match dice {
            60..=66 => {
                let part = self.world.rng.below(2) as u32;
                (0..self.n).for_each(|h| {
                    self.world.parts[h] = part * (self.world.rng.below(2) as u32);
                });
            }
            67..=76 => self.world.parts.fill(0),
            77..=80 => {
                let to = self.world.rng.below(self.n as u64) as usize;
                self.world.cut.insert((host, to));
            }
            81..=83 => _ = self.world.deaf.insert(host),
            84 => _ = self.world.mute.insert(host),
            85..=89 => self.mend(),
            90..=91 if self.runs(host) => self.world.kill(host),
            92 if self.runs(host) && self.n > 2 => self.world.with(host, |n, now| n.leave(now)),
            93..=94 if self.runs(host) => self.world.pause(host),
            95..=96 if self.world.hosts[host].is_paused => self.world.resume(host),
            _ => self.revive(host),
        }
    }

    fn mend(&mut self) {
        self.world.cut.clear();
        self.world.deaf.clear();
        self.world.mute.clear();
    }

    fn revive(&mut self, host: usize) {
        if !self.runs(host) && !self.world.hosts[host].is_paused {
            let incarnation = self.world.rng.below(10);
            self.world.start(host, incarnation);
            self.world.watch(host, filter());
        }
    }

    fn use_names(&mut self, host: usize) {
        if !self.runs(host) {
            return;
        }
        let starts = self.world.hosts[host].starts;
        self.serial += 1;
        let owner = Owner { user: 0, process: self.serial, serial: 1 };
        let instance = self.world.rng.below(4) as u32;
        match self.world.rng.below(5) {
            0 => {
                let claim = Claim::new(owner, KIND, instance..=instance).endpoint(1).unique();
                if let Ok((id, _)) = self.world.with(host, |n, now| n.claim(now, claim)) {
                    self.wanted.push((host, starts, id, instance));
                }
            }
            1 | 2 => {
                let claim = Claim::new(owner, KIND, 100..=100 + instance).endpoint(1);
                if let Ok((id, _)) = self.world.with(host, |n, now| n.claim(now, claim)) {
                    self.shared.push((host, starts, id));
                }
            }
            3 => {
                let mine = |w: &Wanted| w.0 == host && w.1 == starts;
                if let Some(at) = self.wanted.iter().position(mine) {
                    let (_, _, id, _) = self.wanted.remove(at);
                    self.world.with(host, |n, now| n.withdraw(now, id));
                }
            }
            _ => {
                let mine = |w: &(usize, u64, ClaimId)| w.0 == host && w.1 == starts;
                if let Some(at) = self.shared.iter().position(mine) {
                    let (_, _, id) = self.shared.remove(at);
                    self.world.with(host, |n, now| n.withdraw(now, id));
                }
            }
        }
    }

    /// Checks that no unique name has two owners in a part that has been quiet for long enough.
    fn check_unique(&self) {
        let settled = 4 * self.world.config.tolerance.as_nanos() as u64;
        if self.world.now < self.quiet + settled {
            return;
        }
        let holds = |&&(host, starts, id, _): &&Wanted| {
            let h = &self.world.hosts[host];
            let node = h.node.as_ref().filter(|n| h.starts == starts && !n.is_over());
            !h.is_paused && node.is_some_and(|n| n.standing(id) == Some(Standing::Held))
        };
        let held: Vec<&Wanted> = self.wanted.iter().filter(holds).collect();
        let whole = |h: usize| {
            let w = &self.world;
            let cut = w.cut.iter().any(|(a, b)| *a == h || *b == h);
            !cut && !w.deaf.contains(&h) && !w.mute.contains(&h)
        };
        for (i, a) in held.iter().enumerate() {
            for b in &held[..i] {
                let one_part = self.world.parts[a.0] == self.world.parts[b.0];
                let both = a.3 == b.3 && one_part && whole(a.0) && whole(b.0);
                assert!(!both, "hosts {} and {} own instance {}", a.0, b.0, a.3);
            }
        }
    }

    fn run(mut self) {
        for _ in 0..60 {
            self.act();
            let time = match self.world.rng.below(10) {
                0 => 4000,
                1..=3 => 700,
                _ => 60,
            };
            self.world.run(Duration::from_millis(time));
            self.check_unique();
        }
        // All is mended; hosts that stopped go on.
        self.mend();
        self.world.parts.fill(0);
        self.quiet = self.world.now;
        for host in 0..self.n {
            if self.world.hosts[host].is_paused {
                self.world.resume(host);
            }
        }
        // The hosts that others look for are there.
        (0..2).for_each(|host| self.revive(host));
        self.world.loss = self.world.loss.min(100);
        let limit = self.world.now + 90_000 * MS;
        assert!(self.world.run_until(limit, World::is_settled), "it does not converge");
        self.world.run(self.world.config.tolerance * 8);
        self.check_unique();
        self.world.check_names(KIND);
    }
}

fn filter() -> Filter {
    Filter { kind: KIND, lower: 0, upper: u32::MAX, mode: Mode::Each, timeout: None }
}

#[test]
fn swarm__converges_and_reports_each_event_once() {
    for seed in seeds() {
        let result = std::panic::catch_unwind(|| Swarm::new(seed).run());
        if let Err(cause) = result {
            eprintln!("replay: WEFT_SEEDS={seed}..{} cargo test -p weft-names swarm", seed + 1);
            std::panic::resume_unwind(cause);
        }
    }
}
