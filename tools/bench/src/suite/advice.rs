//! Recommendations from the figures: the best channel for each size.

use super::measure::{Measure, Point, Results};
use super::plan::{Carrier, Family, Situation};
use crate::table::human;

/// The best channel for a size.
#[derive(Clone, Debug)]
pub struct Best {
    /// The channel.
    pub carrier: &'static Carrier,
    /// Its median.
    pub value: f64,
    /// Channels whose repetitions overlap with those of the best: this run shows no difference.
    pub equals: Vec<&'static Carrier>,
    /// The best channel of the other family (weft, kernel), and the ratio by which the best is
    /// better.
    pub other: Option<(&'static Carrier, f64)>,
}

/// Returns the best channel among those that deliver all bytes sent.
pub fn best(results: &Results, s: Situation, m: Measure, size: usize) -> Option<Best> {
    let mut fit: Vec<&Point> = results
        .points
        .iter()
        .filter(|p| p.situation == s && p.measure == m && p.size == size && p.carrier.reliable)
        .filter(|p| p.carrier.family != Family::Floor)
        .collect();
    fit.sort_by(|a, b| {
        let (a, b) = (a.sample.median, b.sample.median);
        if m == Measure::Latency {
            a.total_cmp(&b)
        } else {
            b.total_cmp(&a)
        }
    });
    let first = *fit.first()?;
    let overlap = |p: &&&Point| match m {
        Measure::Latency => p.sample.min <= first.sample.max,
        _ => p.sample.max >= first.sample.min,
    };
    let equals = fit.iter().skip(1).filter(overlap).map(|p| p.carrier).collect();
    let other = fit.iter().find(|p| p.carrier.family != first.carrier.family).map(|p| {
        let ratio = p.sample.median / first.sample.median;
        (p.carrier, if m == Measure::Latency { ratio } else { 1.0 / ratio })
    });
    Some(Best { carrier: first.carrier, value: first.sample.median, equals, other })
}

/// Returns the best channel of each range of sizes: channel and range in words.
pub fn ranges(
    results: &Results,
    situation: Situation,
    measure: Measure,
    sizes: &[usize],
) -> Vec<(&'static Carrier, String)> {
    // For each size the channels that are best, as far as this run shows.
    let fit: Vec<(usize, Vec<&'static Carrier>)> = sizes
        .iter()
        .filter_map(|&size| {
            let best = best(results, situation, measure, size)?;
            Some((size, [vec![best.carrier], best.equals].concat()))
        })
        .collect();
    let mut runs: Vec<(&'static Carrier, usize, usize)> = Vec::new();
    let mut at = 0;
    while at < fit.len() {
        // The channel that stays among them for longest, so that noise does not split the table.
        let reach = |carrier: &&Carrier| {
            let there = |(_, carriers): &&(usize, Vec<&Carrier>)| {
                carriers.iter().any(|w| w.name == carrier.name)
            };
            fit[at..].iter().take_while(there).count()
        };
        let longest = fit[at].1.iter().map(reach).max().unwrap_or(1).max(1);
        let Some(carrier) = fit[at].1.iter().find(|carrier| reach(carrier) == longest) else {
            break;
        };
        runs.push((*carrier, fit[at].0, fit[at + longest - 1].0));
        at += longest;
    }
    let count = runs.len();
    let words = |(at, (carrier, from, to)): (usize, (&'static Carrier, usize, usize))| {
        let range = match (at == 0, at + 1 == count) {
            (true, true) => "all sizes".to_string(),
            (true, false) => format!("up to {}", human(to)),
            (false, true) => format!("from {}", human(from)),
            (false, false) if from == to => format!("at {}", human(from)),
            (false, false) => format!("{} to {}", human(from), human(to)),
        };
        (carrier, range)
    };
    runs.into_iter().enumerate().map(words).collect()
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::super::super::pair::Sample;
    use super::super::plan::carriers;
    use super::*;

    fn results(figures: &[(&str, usize, f64)]) -> Results {
        let situation = Situation::ALL[0];
        let point = |&(name, size, us): &(&str, usize, f64)| Point {
            situation,
            carrier: carriers(situation).iter().find(|carrier| carrier.name == name).unwrap(),
            size,
            measure: Measure::Latency,
            sample: Sample { median: us, min: us * 0.9, max: us * 1.1 },
            repeat: 3,
        };
        Results { points: figures.iter().map(point).collect(), absent: Vec::new() }
    }

    #[test]
    fn best__leaves_out_floors_and_what_loses() {
        let all = results(&[("floor", 8, 0.1), ("UDP", 8, 0.2), ("pipe", 8, 4.0), ("TCP", 8, 8.0)]);
        let best = best(&all, Situation::ALL[0], Measure::Latency, 8).unwrap();
        assert_eq!((best.carrier.name, best.value), ("pipe", 4.0));
        assert!(best.equals.is_empty() && best.other.is_none());
    }

    #[test]
    fn best__names_equals_and_the_other_family() {
        let all = results(&[("weft shm", 8, 1.0), ("pipe", 8, 4.0), ("weft udp", 8, 1.1)]);
        let best = best(&all, Situation::ALL[0], Measure::Latency, 8).unwrap();
        assert_eq!(best.equals[0].name, "weft udp");
        let (other, ratio) = best.other.unwrap();
        assert_eq!((other.name, ratio), ("pipe", 4.0));
    }

    #[test]
    fn ranges__joins_neighbours_and_what_is_as_good() {
        let all = results(&[
            ("weft shm", 8, 1.0),
            ("pipe", 8, 4.0),
            ("weft shm", 64, 1.05),
            ("pipe", 64, 1.0),
            ("weft shm", 1024, 9.0),
            ("pipe", 1024, 2.0),
        ]);
        let ranges = ranges(&all, Situation::ALL[0], Measure::Latency, &[8, 64, 1024]);
        let text: Vec<String> = ranges.iter().map(|(w, r)| format!("{}: {r}", w.name)).collect();
        assert_eq!(text, ["weft shm: up to 64", "pipe: from 1K"]);
    }
}
