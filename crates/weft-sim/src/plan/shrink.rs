//! Shrinking of plans.

use super::Plan;

/// Makes plans smaller while they still fail.
struct Shrink<'a> {
    best: Plan,
    /// Number of runs left.
    left: usize,
    fails: &'a mut dyn FnMut(&Plan) -> bool,
}

impl Shrink<'_> {
    /// Keeps this plan if it fails.
    fn attempt(&mut self, candidate: Plan) -> bool {
        let better = self.left > 0 && (self.fails)(&candidate);
        self.left = self.left.saturating_sub(1);
        if better {
            self.best = candidate;
        }
        better
    }

    /// Removes the entries of a list that the failure does not need: pieces of `piece`, then
    /// smaller ones.
    fn thin<T>(&mut self, list: fn(&mut Plan) -> &mut Vec<T>, mut piece: usize) {
        while piece > 0 {
            let mut at = 0;
            while at < list(&mut self.best).len() {
                let mut candidate = self.best.clone();
                let items = list(&mut candidate);
                items.drain(at..(at + piece).min(items.len()));
                if !self.attempt(candidate.without_unborn()) {
                    at += piece;
                }
            }
            piece /= 2;
        }
    }

    /// Removes entries of a list as `thin` does, starting with half of the list.
    fn halve<T>(&mut self, list: fn(&mut Plan) -> &mut Vec<T>) {
        let half = list(&mut self.best).len().div_ceil(2);
        self.thin(list, half);
    }
}

/// Makes a failing plan smaller while it still fails, with at most `tries` runs: halves, quarters
/// and so on of each list, then faults and collectives one by one.
pub fn shrink(plan: &Plan, tries: usize, fails: &mut dyn FnMut(&Plan) -> bool) -> Plan {
    let mut shrink = Shrink { best: plan.clone(), left: tries, fails };
    shrink.halve(|p| &mut p.messages);
    shrink.halve(|p| &mut p.casts);
    shrink.halve(|p| &mut p.counts);
    shrink.halve(|p| &mut p.parcels);
    shrink.halve(|p| &mut p.copies);
    shrink.halve(|p| &mut p.remotes);
    shrink.halve(|p| &mut p.stretches);
    shrink.thin(|p| &mut p.floods, 1);
    shrink.thin(|p| &mut p.actives, 1);
    shrink.thin(|p| &mut p.choices, 1);
    shrink.thin(|p| &mut p.config.faults, 1);
    shrink.thin(|p| &mut p.collectives, 1);
    shrink.best
}
