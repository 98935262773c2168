//! The rule of `refine-comm` against its plainest form, which knows no shortcut, on recorded loads.
#![allow(non_snake_case)]

use weft_models::actors::balance::{Costs, Edge, Load, Loads, Strategy};

/// A line for each placement: ranks, then `rank:milliseconds` of each object, then
/// `from>to:messages:bytes`.
const RECORDED: &str = include_str!("refine.txt");

fn read(line: &str) -> Loads {
    let mut words = line.split_whitespace();
    let mut loads = Loads { ranks: words.next().unwrap().parse().unwrap(), ..Loads::default() };
    for word in words {
        let numbers: Vec<f64> =
            word.split([':', '>']).map(|number| number.parse().unwrap()).collect();
        match numbers[..] {
            [rank, ms] => {
                loads.objects.push(Load { rank: rank as usize, seconds: ms * 1e-3 });
            }
            [from, to, messages, bytes] => loads.edges.push(Edge {
                from: from as usize,
                to: to as usize,
                messages: messages as u64,
                bytes: bytes as u64,
            }),
            _ => panic!("{word}"),
        }
    }
    loads
}

fn cost(edge: &Edge, costs: Costs) -> f64 {
    edge.messages as f64 * costs.message + edge.bytes as f64 * costs.byte
}

/// Returns the load of each rank: its objects, and their messages to other ranks.
fn sums(loads: &Loads, costs: Costs, ranks: &[usize]) -> Vec<f64> {
    let mut sums = vec![0.0; loads.ranks];
    for (load, rank) in loads.objects.iter().zip(ranks) {
        sums[*rank] += load.seconds;
    }
    for edge in &loads.edges {
        if ranks[edge.from] != ranks[edge.to] {
            sums[ranks[edge.from]] += cost(edge, costs);
        }
    }
    sums
}

/// Refines with one bound: all sums are made anew for each step.
fn refine(loads: &Loads, costs: Costs, t: f64) -> Option<Vec<usize>> {
    let mut ranks: Vec<usize> = loads.objects.iter().map(|load| load.rank).collect();
    let mean = sums(loads, costs, &ranks).iter().sum::<f64>() / loads.ranks as f64;
    for _ in 0..=2 * ranks.len() {
        let sums = sums(loads, costs, &ranks);
        let greatest = sums.iter().copied().fold(0.0, f64::max);
        if greatest <= t * mean {
            return Some(ranks);
        }
        let donor = sums.iter().position(|sum| *sum == greatest).unwrap();
        let mut pairs = Vec::new();
        for object in (0..ranks.len()).filter(|at| ranks[*at] == donor) {
            let sent = loads.edges.iter().filter(|edge| edge.from == object);
            let out: f64 =
                sent.clone().filter(|e| ranks[e.to] != donor).map(|e| cost(e, costs)).sum();
            for light in (0..loads.ranks).filter(|rank| sums[*rank] < mean) {
                let to = sent.clone().filter(|edge| ranks[edge.to] == light);
                let affinity: f64 = to.map(|edge| cost(edge, costs)).sum();
                let brings = loads.objects[object].seconds + out - affinity;
                if sums[light] + brings < t * mean {
                    pairs.push((brings, object, light));
                }
            }
        }
        let best = pairs.iter().map(|pair| pair.0).fold(f64::MIN, f64::max);
        let (_, object, light) = *pairs.iter().find(|pair| pair.0 == best)?;
        ranks[object] = light;
    }
    None
}

/// Halves the steps between the least bound and the greatest load, as the rule does.
fn by_hand(loads: &Loads, costs: Costs) -> Vec<usize> {
    let mut best: Vec<usize> = loads.objects.iter().map(|load| load.rank).collect();
    let sums = sums(loads, costs, &best);
    let mean = sums.iter().sum::<f64>() / loads.ranks as f64;
    let most = sums.iter().copied().fold(0.0, f64::max) / mean;
    let (mut low, mut high) = (0, ((most - 1.003) / 0.01).ceil().max(0.0) as u64);
    while low < high {
        let step = (low + high) / 2;
        match refine(loads, costs, 1.003 + 0.01 * step as f64) {
            Some(ranks) => (best, high) = (ranks, step),
            None => low = step + 1,
        }
    }
    best
}

#[test]
fn plan__refine_comm_places_20_recorded_loads_as_by_hand() {
    let costs = Costs::default();
    let all: Vec<Loads> = RECORDED.lines().map(read).collect();
    assert_eq!(all.len(), 20);
    let mut moved = 0;
    for (at, loads) in all.iter().enumerate() {
        let plan = Strategy::RefineComm(costs).plan(loads);
        assert_eq!(plan, by_hand(loads, costs), "load {at}");
        moved += loads.objects.iter().zip(&plan).filter(|(load, rank)| load.rank != **rank).count();
        let sums = sums(loads, costs, &plan);
        let before = loads.objects.iter().map(|load| load.rank).collect::<Vec<_>>();
        let worst = |sums: &[f64]| sums.iter().copied().fold(0.0, f64::max);
        assert!(worst(&sums) <= worst(&self::sums(loads, costs, &before)), "load {at}");
    }
    assert!(moved > 15, "{moved} objects move");
}
