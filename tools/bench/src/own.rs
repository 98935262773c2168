//! The form of probes that a benchmark of this crate adds to those of `weft-measure`, and of the
//! state that its ranks keep. A benchmark has an enum of its probes; `register.rs` lists all.

use super::rank::{Added, Outcome, Probe, Rank, Task};
use anyhow::{bail, Result};
use serde::de::DeserializeOwned;
use serde::Serialize;
use std::any::Any;

/// The probes of a benchmark: measurements between two ranks. All return seconds per iteration.
pub trait Own: Copy + Serialize + DeserializeOwned {
    /// The number by which tasks name the benchmark. No two have the same.
    const NUMBER: u8;

    /// Returns the name of the probe, in progress and notes.
    fn name(self) -> &'static str;

    /// True if its ranks have to share a clock.
    fn is_local(self) -> bool {
        false
    }

    /// Runs the probe on one of the ranks.
    ///
    /// # Errors
    /// The probe failed.
    fn run(self, rank: &mut Rank, task: &Task) -> Result<Outcome>;
}

/// Makes an enum of probes usable where probes and subjects of `weft-measure` are.
macro_rules! probes {
    ($own:ty) => {
        impl From<$own> for $crate::rank::Probe {
            fn from(own: $own) -> $crate::rank::Probe {
                $crate::own::pack(own)
            }
        }

        impl From<$own> for $crate::Subject {
            fn from(own: $own) -> $crate::Subject {
                $crate::rank::Probe::from(own).into()
            }
        }
    };
}

/// Makes the enum of a benchmark's probes: its number, and each probe with its name and the
/// function that runs it.
macro_rules! named_probes {
    (
        $(#[$about:meta])*
        $own:ident = $number:literal;
        $($(#[$doc:meta])* $probe:ident = $name:literal, $run:path;)+
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum $own { $($(#[$doc])* $probe,)+ }

        probes!($own);

        impl $crate::own::Own for $own {
            const NUMBER: u8 = $number;

            fn name(self) -> &'static str {
                match self { $($own::$probe => $name,)+ }
            }

            fn run(self, rank: &mut Rank, task: &Task) -> Result<Outcome> {
                match self { $($own::$probe => $run(rank, task),)+ }
            }
        }
    };
}

/// Packs a probe into a task.
pub fn pack<T: Own>(own: T) -> Probe {
    let mut bytes = [0; 8];
    bytes[0] = T::NUMBER;
    // A test of the register packs probes of each kind: none is longer.
    let _ = postcard::to_slice(&own, &mut bytes[1..]);
    Probe::Added(Added(bytes))
}

fn unpack<T: Own>(added: Added) -> Result<T> {
    Ok(postcard::from_bytes(&added.0[1..])?)
}

/// The functions of a benchmark's probes, for the register.
pub struct Entry {
    /// The number of the benchmark.
    pub number: u8,
    /// Returns the name of a probe; `None` of one of another build.
    pub name: fn(Added) -> Option<&'static str>,
    /// True if the ranks of a probe have to share a clock.
    pub is_local: fn(Added) -> bool,
    /// Runs a probe.
    pub run: fn(&mut Rank, &Task, Added) -> Result<Outcome>,
}

impl Entry {
    /// The entry of a benchmark.
    pub const fn of<T: Own>() -> Entry {
        Entry {
            number: T::NUMBER,
            name: |added| Some(unpack::<T>(added).ok()?.name()),
            is_local: |added| unpack::<T>(added).is_ok_and(T::is_local),
            run: |rank, task, added| unpack::<T>(added)?.run(rank, task),
        }
    }
}

/// Returns what the probes of a benchmark have opened on a rank, each at its first use.
///
/// # Errors
/// Another crate keeps something on the rank.
pub fn opened<T: Any + Default>(rank: &mut Rank) -> Result<&mut T> {
    let any = rank.opened.get_or_insert_with(|| Box::new(Vec::<Box<dyn Any>>::new()));
    let Some(all) = any.downcast_mut::<Vec<Box<dyn Any>>>() else {
        bail!("another crate keeps something on this rank")
    };
    let at = match all.iter().position(|one| one.is::<T>()) {
        Some(at) => at,
        None => {
            all.push(Box::<T>::default());
            all.len() - 1
        }
    };
    all[at].downcast_mut().ok_or_else(|| anyhow::anyhow!("the type was compared"))
}
