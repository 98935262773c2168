//! MPI programs on a busy host, each MPI beside itself over TCP.

use super::container::Half;
use super::{Line, Run, OTHERS};
use crate::load::Load;
use crate::mpi::job::{Hosts, Job, Subject};
use crate::mpi::{over_tcp, over_weft, parse, Installed};
use crate::pair::Sample;
use crate::table::Other;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::PathBuf;
use weft_run::mpi::detect::Family;

/// Seconds for one size in one turn: long beside the turns of the scheduler.
const TURN: f64 = 0.4;

/// The MPIs that can use weft, with the program of `weft bench mpi`.
pub struct Programs {
    pub provider: PathBuf,
    pub mpis: Vec<Installed>,
}

/// The other work of the cores.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// Two others compute on each core.
    Others,
    /// Nothing; all ranks share half a core.
    HalfCore,
    /// Nothing; there are more ranks than cores.
    Ranks,
}

/// A part of the table: programs under one kind of load.
#[derive(Clone, Copy)]
pub struct Part {
    beside: Beside,
    lines: &'static [Mode],
}

/// A mode of the program: its word, ranks on each of two hosts (0: twice as many as cores), and the
/// sizes. For `test` the size is the work between two looks, in microseconds.
struct Mode {
    word: &'static str,
    each: usize,
    sizes: &'static [usize],
}

const fn mode(word: &'static str, each: usize, sizes: &'static [usize]) -> Mode {
    Mode { word, each, sizes }
}

/// The parts, with their titles.
pub const PARTS: [(&str, Part); 3] = [
    (
        "MPI programs, two others compute on each core",
        Part {
            beside: Beside::Others,
            lines: &[
                mode("pingpong", 1, &[8, 1 << 10, 64 << 10, 1 << 20, 4 << 20]),
                mode("poll", 1, &[8]),
                mode("test", 1, &[50, 500]),
                mode("exchange", 1, &[64 << 10, 2_400_000]),
                mode("allreduce", 2, &[8]),
                mode("allreduce", 4, &[8]),
            ],
        },
    ),
    (
        "MPI programs, more ranks than cores",
        Part {
            beside: Beside::Ranks,
            lines: &[mode("ring", 0, &[1 << 10]), mode("allreduce", 0, &[8])],
        },
    ),
    (
        "MPI programs, all ranks share half a core",
        Part {
            beside: Beside::HalfCore,
            lines: &[
                mode("pingpong", 1, &[8, 1 << 20]),
                mode("test", 1, &[50]),
                mode("exchange", 1, &[2_400_000]),
                mode("allreduce", 2, &[8]),
            ],
        },
    ),
];

/// Seconds of each turn, by size.
type Figures = BTreeMap<usize, Vec<f64>>;

impl Programs {
    /// Measures a part: each MPI and mode in turn over weft and over TCP.
    ///
    /// # Errors
    /// The place or the load cannot be made.
    pub fn measure(&self, run: &mut Run<'_>, part: Part) -> Result<()> {
        let hosts = run.hosts()?;
        let half = (part.beside == Beside::HalfCore).then(Half::start).transpose()?;
        let others = part.beside == Beside::Others;
        let _load = others.then(|| Load::start(OTHERS)).transpose()?;
        run.plan.expect(part.lines.len() * self.mpis.len());
        for mode in part.lines {
            let sizes = match mode.word {
                "test" if run.options.size.is_empty() => mode.sizes.to_vec(),
                "test" => Vec::new(),
                _ => run.sizes(mode.sizes),
            };
            for installed in self.mpis.iter().filter(|_| !sizes.is_empty()) {
                let place = (hosts.as_ref(), half.as_ref());
                self.line(run, place, (mode, &sizes), installed);
            }
        }
        Ok(())
    }

    /// Measures a mode of one MPI.
    fn line(
        &self,
        run: &mut Run<'_>,
        (hosts, half): (Option<&Hosts>, Option<&Half>),
        (mode, sizes): (&Mode, &[usize]),
        installed: &Installed,
    ) {
        let mpi = &installed.mpi;
        let mut subjects = vec![over_weft(mpi, &self.provider, None, true)];
        subjects.extend(over_tcp(mpi, false));
        let each = ranks_on_each(mode.each, hosts.is_some());
        let mut all = vec![Figures::new(); subjects.len()];
        'turns: for _ in 0..run.options.repeat() {
            for (at, subject) in subjects.iter().enumerate() {
                run.plan.show(format!("{} by {mpi}: {}", mode.word, subject.name));
                match self.once(run, (hosts, half, each), (mode, sizes), (installed, subject)) {
                    Ok(said) => said.into_iter().for_each(|(size, seconds)| {
                        all[at].entry(size).or_default().push(seconds);
                    }),
                    Err(why) => {
                        run.note(format!("{}, {mpi}: {why:#}", mode.word));
                        break 'turns;
                    }
                }
            }
        }
        run.plan.at(run.plan.done() + 1);
        for &size in sizes {
            let of = |at: usize| {
                let values = all[at].get(&size).cloned().unwrap_or_default();
                Sample::of(values).map(|sample| sample.map(|seconds| seconds * 1e6))
            };
            let other = |at: usize| Other { name: subjects[at].name, sample: of(at) };
            let peers = (1..subjects.len()).map(other).collect();
            let line = line_of(mpi.family, mode, size, hosts.is_some());
            run.push(line, of(0), peers);
        }
    }

    fn once(
        &self,
        run: &Run<'_>,
        (hosts, half, each): (Option<&Hosts>, Option<&Half>, usize),
        (mode, sizes): (&Mode, &[usize]),
        (installed, subject): (&Installed, &Subject),
    ) -> Result<Vec<(usize, f64)>> {
        let seconds = if run.options.quick { 0.01 } else { TURN };
        let program = installed.program.display().to_string();
        let mut command = vec![program, mode.word.to_owned(), seconds.to_string()];
        command.extend(sizes.iter().map(usize::to_string));
        let within: Vec<String> = half.iter().flat_map(|half| half.words()).collect();
        let job = Job { hosts, each, command: &command, folder: &run.folder.0, within: &within };
        Ok(parse(&job.run(subject)?))
    }
}

/// Returns the number of ranks of each host, of two or, if not `between` hosts, of one.
fn ranks_on_each(wanted: usize, between: bool) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let wanted = if wanted == 0 { cores.clamp(2, 16) } else { wanted };
    if between {
        wanted
    } else {
        2 * wanted
    }
}

/// Names the row of a mode.
fn line_of(family: Family, mode: &Mode, size: usize, between: bool) -> Line {
    macro_rules! named {
        ($what:literal) => {
            match family {
                Family::Mpich => concat!("mpich, ", $what),
                Family::OpenMpi4 => concat!("open mpi 4, ", $what),
                Family::OpenMpi5 => concat!("open mpi 5, ", $what),
                Family::Intel => concat!("intel, ", $what),
            }
        };
    }
    let what = match (mode.word, mode.each, size) {
        ("pingpong", ..) => named!("half round trip"),
        ("poll", ..) => named!("half round trip by MPI_Iprobe"),
        ("test", _, 50) => named!("MPI_Test each 50 us of work"),
        ("test", ..) => named!("MPI_Test each 500 us of work"),
        ("exchange", ..) => named!("exchange"),
        ("allreduce", 2, _) => named!("sum of 4 ranks"),
        ("allreduce", 4, _) => named!("sum of 8 ranks"),
        ("allreduce", ..) => named!("sum of more ranks than cores"),
        _ => named!("step of more ranks than cores"),
    };
    let bytes = if mode.word == "test" { 1 } else { size };
    (what, bytes, if between { "auto" } else { "shm" })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn line_of__no_two_rows_of_a_part_have_one_name() {
        for (title, part) in PARTS {
            let lines = part.lines.iter().flat_map(|mode| {
                mode.sizes.iter().map(|&size| line_of(Family::Mpich, mode, size, true))
            });
            let mut names: Vec<_> = lines.map(|(what, size, _)| (what, size)).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{title}");
        }
    }

    #[test]
    fn ranks_on_each__one_host_has_those_of_both() {
        assert_eq!((ranks_on_each(4, true), ranks_on_each(4, false)), (4, 8));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        assert!(ranks_on_each(0, false) > cores || cores > 31);
    }
}
