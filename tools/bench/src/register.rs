//! The register of all probes of this crate.

use super::own::Entry;
use super::rank::{Added, Addition, Outcome, Rank, Task};
use super::{choice, faces, logp, models, mxoe, wait};
use anyhow::{Context, Result};

/// The benchmarks that have probes of their own.
const ALL: [Entry; 6] = [
    Entry::of::<choice::Packet>(),
    Entry::of::<faces::Face>(),
    Entry::of::<logp::Parameter>(),
    Entry::of::<models::Figure>(),
    Entry::of::<mxoe::Frames>(),
    Entry::of::<wait::Wait>(),
];

fn of(added: Added) -> Option<&'static Entry> {
    ALL.iter().find(|entry| entry.number == added.0[0])
}

fn name(added: Added) -> &'static str {
    of(added).and_then(|entry| (entry.name)(added)).unwrap_or("a probe of another build")
}

fn is_local(added: Added) -> bool {
    of(added).is_some_and(|entry| (entry.is_local)(added))
}

/// Runs a probe on one of the ranks.
///
/// # Errors
/// The probe failed.
pub fn work(rank: &mut Rank, task: &Task, added: Added) -> Result<Outcome> {
    let entry = of(added).context("a probe of another build")?;
    (entry.run)(rank, task, added)
}

/// The probes, for [`weft_measure::work::add`].
pub const ADDITION: Addition = Addition { name, is_local, far: &["bench", "bench-rank", "--far"] };

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::faces::many::Collective;
    use super::super::faces::together::{Operation, Over};
    use super::super::own::Own;
    use super::super::rank::Probe;
    use super::*;
    use choice::Packet;
    use faces::Face;
    use models::Figure;

    /// Returns the bytes of a probe in a task.
    fn packed(own: impl Own) -> Added {
        match super::super::own::pack(own) {
            Probe::Added(added) => added,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn work__every_probe_comes_back_as_it_was() {
        for (added, said) in [
            (packed(Face::Put), Face::Put.name()),
            (packed(Face::Together(Over::Tcp, Operation::Reduce)), Operation::Reduce.name()),
            (packed(Face::Many(Over::Mx, Collective::Reduce)), Collective::Reduce.name()),
            (packed(Packet::Multicast), Packet::Multicast.name()),
            (packed(Figure::OrderedRate), Figure::OrderedRate.name()),
            (packed(wait::Wait::Idle), wait::Wait::Idle.name()),
        ] {
            assert_eq!(name(added), said);
        }
        assert!(is_local(packed(Figure::Multicast)) && !is_local(packed(Face::Put)));
        assert_eq!(name(Added([255; 8])), "a probe of another build");
    }

    #[test]
    fn all__no_two_benchmarks_have_one_number() {
        let mut numbers: Vec<u8> = ALL.iter().map(|entry| entry.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), ALL.len());
    }
}
