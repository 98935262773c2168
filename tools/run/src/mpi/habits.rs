//! The options of MPIs' own launchers that people type by habit, as options of `weft mpi` and
//! `weft run`.

use super::detect::Family;
use crate::misuse::Misuse;
use clap::error::{ContextKind, ContextValue};
use std::ffi::OsString;

/// Separates the words of an option that is passed on by [`OWN`].
const MARK: char = '\u{1f}';
/// The hidden option by which an option of the MPI's launcher comes to `weft mpi`.
const OWN: &str = "--own";

/// The meaning of an option of `mpiexec`, `mpirun` or `prterun` here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Here {
    /// These options of weft, followed by the value.
    Value(&'static str),
    /// These words.
    Words(&'static [&'static str]),
    /// A variable: name and value as two words, or as one with `=`.
    Variable,
    /// Names of variables, separated by commas.
    Names,
    /// Nothing: it is so anyway.
    Given,
    /// An option of the MPI's launcher, with so many words, for these families.
    Own(usize, Whose),
    /// The option cannot be used; the reason.
    No(&'static str),
}

/// Launchers that have an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Hydra,
    Open,
    Both,
}

const MPMD: &str = "several programs in one job: start them by mpiexec itself, with the variables \
                    of `weft mpi-env`";
const BARE: &str = "the ranks need weft's variables";

/// Options without their dashes.
const TABLE: &[(&[&str], Here)] = &[
    (&["n", "np", "c"], Here::Value("-n")),
    (&["ppn", "perhost", "npernode", "N", "ranks-per-node"], Here::Value("--ppn")),
    (&["pernode"], Here::Words(&["--ppn", "1"])),
    (&["host", "hosts", "H"], Here::Value("--hosts")),
    (&["hostfile", "f", "machinefile", "machine", "default-hostfile"], Here::Value("--hostfile")),
    (&["genv", "env"], Here::Variable),
    (&["x"], Here::Value("--env")),
    (&["genvlist", "envlist"], Here::Names),
    (&["genvall", "envall", "allow-run-as-root", "export-all"], Here::Given),
    (&["genvnone", "envnone"], Here::No(BARE)),
    (&["timeout"], Here::Value("--timeout")),
    (&["verbose"], Here::Words(&["--verbose"])),
    (&["help"], Here::Words(&["--help"])),
    (&["version"], Here::Words(&["--version"])),
    (&["configfile", "app"], Here::No(MPMD)),
    (&["wdir", "wd", "bind-to", "map-by"], Here::Own(1, Whose::Both)),
    (&["tag-output", "prepend-rank", "l", "oversubscribe"], Here::Own(0, Whose::Both)),
    (&["mca", "gmca", "prtemca", "pmixmca"], Here::Own(2, Whose::Open)),
    (
        &[
            "rank-by",
            "output-filename",
            "output",
            "display",
            "xterm",
            "cpu-set",
            "cpu-list",
            "rankfile",
            "rf",
            "path",
            "prefix",
            "stdin",
            "personality",
            "forward-signals",
            "tune",
            "am",
            "max-restarts",
            "runtime-options",
        ],
        Here::Own(1, Whose::Open),
    ),
    (
        &[
            "report-bindings",
            "display-map",
            "display-allocation",
            "timestamp-output",
            "merge-stderr-to-stdout",
            "nolocal",
            "nooversubscribe",
            "use-hwthread-cpus",
            "quiet",
            "q",
            "do-not-launch",
            "debug-daemons",
            "leave-session-attached",
            "get-stack-traces",
            "bynode",
            "byslot",
            "bycore",
            "bind-to-core",
            "bind-to-none",
            "bind-to-socket",
            "hetero-nodes",
            "novm",
            "enable-recovery",
        ],
        Here::Own(0, Whose::Open),
    ),
    (
        &[
            "launcher",
            "bootstrap",
            "launcher-exec",
            "bootstrap-exec",
            "rmk",
            "iface",
            "membind",
            "topolib",
            "demux",
            "errfile-pattern",
            "outfile-pattern",
            "prepend-pattern",
            "gpus-per-proc",
            "localhost",
            "nameserver",
            "order-nodes",
            "usize",
            "rankmap",
            "ilp64",
        ],
        Here::Own(1, Whose::Hydra),
    ),
    (
        &[
            "disable-auto-cleanup",
            "disable-hostname-propagation",
            "hybrid-hosts",
            "info",
            "print-all-exitcodes",
            "print-rank-map",
            "skip-launch-node",
            "enable-x",
            "disable-x",
            "pmi-port",
            "profile",
        ],
        Here::Own(0, Whose::Hydra),
    ),
];

fn meaning(name: &str) -> Option<Here> {
    TABLE.iter().find(|(names, _)| names.contains(&name)).map(|(_, here)| *here)
}

/// Rewrites the words of a command line up to the program.
struct Reader<'a> {
    /// The parser of the subcommand.
    parser: &'a clap::Command,
    /// True for `weft mpi`, whose ranks an MPI's launcher starts.
    mpi: bool,
    out: Vec<OsString>,
}

impl Reader<'_> {
    /// Returns the number of words that follow an option of weft; `None` if it is none.
    fn ours(&self, word: &str) -> Option<usize> {
        let (name, value) = match word.split_once('=') {
            Some((name, _)) => (name, true),
            None => (word, false),
        };
        let is_named = |arg: &&clap::Arg| match name.strip_prefix("--") {
            Some(long) => arg.get_long() == Some(long),
            None => arg.get_short().is_some_and(|short| name == format!("-{short}")),
        };
        // clap itself adds these.
        if ["-h", "--help", "-V", "--version"].contains(&name) {
            return Some(0);
        }
        let takes = self.parser.get_arguments().find(is_named)?.get_action().takes_values();
        Some(usize::from(takes && !value))
    }

    fn push(&mut self, words: &[&str]) {
        self.out.extend(words.iter().map(|&word| word.into()));
    }

    /// Rewrites an option and the words that belong to it; returns the number of those.
    fn option(&mut self, word: &str, rest: &[&str]) -> Result<usize, Misuse> {
        if let Some(values) = self.ours(word) {
            self.push(&[word]);
            self.push(&rest[..values.min(rest.len())]);
            return Ok(values);
        }
        let bare = word.trim_start_matches('-');
        let (name, joined) = match bare.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (bare, None),
        };
        let Some(here) = meaning(name) else {
            // Values may stand close behind short options.
            let close = bare.strip_prefix('n').is_some_and(|n| n.parse::<usize>().is_ok());
            if !word.starts_with("--") && (close || bare.len() == 1) {
                self.push(&[word]);
                return Ok(0);
            }
            return Err(self.unknown(word));
        };
        let words: Vec<&str> = joined.into_iter().chain(rest.iter().copied()).collect();
        let given = usize::from(joined.is_some());
        let value = |at: usize| {
            let found = words.get(at).copied();
            found.ok_or_else(|| Misuse(format!("{word}: a value has to follow")))
        };
        let used = match here {
            Here::Value(ours) => {
                self.push(&[ours, value(0)?]);
                1
            }
            Here::Words(ours) => {
                self.push(ours);
                0
            }
            Here::Variable if value(0)?.contains('=') => {
                self.push(&["--env", value(0)?]);
                1
            }
            Here::Variable => {
                self.push(&["--env", &format!("{}={}", value(0)?, value(1)?)]);
                2
            }
            Here::Names => {
                value(0)?.split(',').for_each(|name| self.push(&["--env", name]));
                1
            }
            Here::Given => 0,
            Here::No(why) => return Err(Misuse(format!("{word}: {why}"))),
            Here::Own(count, _) => {
                let values = (0..count).map(value).collect::<Result<Vec<_>, _>>()?;
                self.own(word, name, &values)?;
                count
            }
        };
        Ok(used.saturating_sub(given))
    }

    /// Passes an option of the MPI's launcher on, or says the way of `weft run`.
    fn own(&mut self, word: &str, name: &str, values: &[&str]) -> Result<(), Misuse> {
        if self.mpi {
            let all: Vec<&str> = [name].into_iter().chain(values.iter().copied()).collect();
            self.push(&[OWN, &all.join(&MARK.to_string())]);
            return Ok(());
        }
        match (name, values) {
            ("bind-to", [to @ ("core" | "none")]) => self.push(&["--bind", to]),
            ("tag-output" | "prepend-rank" | "l", _) => self.push(&["--tag-output"]),
            ("oversubscribe", _) => {}
            _ => return Err(self.unknown(word)),
        }
        Ok(())
    }

    /// Returns the option of weft whose spelling is the nearest to a long one.
    fn nearest(&self, word: &str) -> Option<String> {
        let parser = self.parser.clone().no_binary_name(true);
        match parser.try_get_matches_from([word]).err()?.get(ContextKind::SuggestedArg)? {
            ContextValue::String(option) => Some(option.clone()),
            _ => None,
        }
    }

    fn unknown(&self, word: &str) -> Misuse {
        let nearest = self.nearest(word);
        let nearest = nearest.map_or(String::new(), |option| format!(" (is {option} meant?)"));
        Misuse(match self.mpi {
            true => format!(
                "{word} is not understood{nearest}; `weft mpi --help` lists the options. \
                 --launcher-args '{word} ...' passes it to the MPI's own mpiexec; options of the \
                 program stand behind its name"
            ),
            false => format!(
                "{word} is not understood{nearest}; `weft run --help` lists the options. MPI \
                 programs are started by `weft mpi`; options of the program stand behind its name"
            ),
        })
    }
}

/// Rewrites the command line of `weft mpi` and `weft run`: options of MPIs' launchers become those
/// of weft. Other command lines stay. `parser` is that of the whole program.
///
/// # Errors
/// An option that is not understood, with the right spelling.
pub fn understood(words: Vec<OsString>, parser: &clap::Command) -> Result<Vec<OsString>, Misuse> {
    let name = words.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let sub = parser.find_subcommand(name).filter(|_| ["mpi", "run"].contains(&name));
    let Some(sub) = sub else { return Ok(words) };
    let mut reader = Reader { parser: sub, mpi: name == "mpi", out: words[..2].to_vec() };
    let mut at = 2;
    while let Some(word) = words.get(at).and_then(|word| word.to_str()) {
        if !word.starts_with('-') || word == "-" || word == "--" {
            break;
        }
        let rest: Vec<&str> = words[at + 1..].iter().map_while(|word| word.to_str()).collect();
        at += 1 + reader.option(word, &rest)?;
    }
    let rest = words.get(at..).unwrap_or_default().to_vec();
    reader.out.extend(rest);
    Ok(reader.out)
}

/// Returns the words by which the launcher of an MPI gets an option that was passed on.
///
/// # Errors
/// The launcher has no such option.
pub fn of_launcher(own: &str, family: Family) -> Result<Vec<String>, String> {
    let mut parts = own.split(MARK);
    let name = parts.next().unwrap_or_default();
    let hydra = !family.is_open_mpi();
    let whose = match meaning(name) {
        Some(Here::Own(_, whose)) => whose,
        _ => return Err(format!("there is no option {name}")),
    };
    let fits = whose == Whose::Both || hydra == (whose == Whose::Hydra);
    if !fits {
        let of = if hydra { "Open MPI" } else { "MPICH and Intel MPI" };
        return Err(format!("-{name} is an option of {of}, and this MPI is {family}"));
    }
    let name = match (name, hydra) {
        ("oversubscribe", true) => return Ok(Vec::new()),
        ("tag-output" | "prepend-rank" | "l", true) => "-prepend-rank".to_owned(),
        ("tag-output" | "prepend-rank" | "l", false) => "--tag-output".to_owned(),
        ("wd", _) => if hydra { "-wdir" } else { "--wdir" }.to_owned(),
        (name, true) => format!("-{name}"),
        (name, false) => format!("--{name}"),
    };
    Ok([name].into_iter().chain(parts.map(str::to_owned)).collect())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use clap::{Args, Command, Subcommand};

    /// The parser alone is used.
    #[allow(dead_code)]
    #[derive(Subcommand)]
    enum Sub {
        Mpi(crate::mpi::Args),
        Run(crate::run::Args),
    }

    fn parser() -> Command {
        #[derive(Args)]
        struct Nothing {}
        Sub::augment_subcommands(Nothing::augment_args(Command::new("weft")))
    }

    fn read(line: &str) -> Result<String, String> {
        let words = line.split(' ').map(OsString::from).collect();
        let read = understood(words, &parser()).map_err(|fault| fault.0)?;
        let words: Vec<String> = read.into_iter().map(|w| w.into_string().unwrap()).collect();
        let parsed = parser().try_get_matches_from(&words);
        assert!(parsed.is_ok(), "{words:?}: {:?}", parsed.err());
        Ok(words[2..].join(" ").replace(MARK, " "))
    }

    #[test]
    fn understood__each_habit_is_an_option_of_weft() {
        for (typed, means) in [
            ("-np 2 ./a", "-n 2 ./a"),
            ("--np 2 ./a", "-n 2 ./a"),
            ("--n=2 ./a -np 3", "-n 2 ./a -np 3"),
            ("-n4 ./a", "-n4 ./a"),
            ("-ppn 2 -hosts a,b ./a", "--ppn 2 --hosts a,b ./a"),
            ("--host a:2,b -N 1 ./a", "--hosts a:2,b --ppn 1 ./a"),
            ("-H a,b -pernode ./a", "--hosts a,b --ppn 1 ./a"),
            ("-f h -np 2 ./a", "--hostfile h -n 2 ./a"),
            ("--machinefile h ./a", "--hostfile h ./a"),
            ("-genv A 1 -env B=2 ./a", "--env A=1 --env B=2 ./a"),
            ("-x A -x B=2 --env C=3 ./a", "--env A --env B=2 --env C=3 ./a"),
            ("-genvlist A,B -genvall ./a", "--env A --env B ./a"),
            ("-wdir /tmp -bind-to core ./a", "--own wdir /tmp --own bind-to core ./a"),
            ("--bind-to=none ./a", "--own bind-to none ./a"),
            ("--oversubscribe --allow-run-as-root ./a", "--own oversubscribe ./a"),
            ("--mca btl self -v ./a", "--own mca btl self -v ./a"),
            ("--mpi openmpi -timeout 3 -- -np", "--mpi openmpi --timeout 3 -- -np"),
        ] {
            assert_eq!(read(&format!("weft mpi {typed}")).as_deref(), Ok(means));
        }
        for (typed, means) in [
            ("-np 2 --oversubscribe ./a", "-n 2 ./a"),
            ("-ppn 2 -host a,b -x A ./a", "--ppn 2 --hosts a,b --env A ./a"),
            ("--bind-to core -l ./a", "--bind core --tag-output ./a"),
        ] {
            assert_eq!(read(&format!("weft run {typed}")).as_deref(), Ok(means));
        }
    }

    #[test]
    fn understood__the_rest_is_refused_with_the_right_spelling() {
        for (typed, parts) in [
            ("mpi -foo 2 ./a", &["-foo is not understood", "--launcher-args '-foo ...'"][..]),
            ("mpi -np", &["-np: a value has to follow"]),
            ("mpi -genv A", &["-genv: a value has to follow"]),
            ("mpi -configfile x", &["several programs", "weft mpi-env"]),
            ("mpi -genvnone ./a", &["the ranks need weft's variables"]),
            ("mpi --nonsense ./a", &["--nonsense is not understood; `weft mpi --help`"]),
            ("mpi --hostfil h ./a", &["--hostfil is not understood (is --hostfile meant?)"]),
            ("run --time 3 ./a", &["--time is not understood (is --timeout meant?)"]),
            ("run --mca btl self ./a", &["--mca is not understood", "weft mpi"]),
        ] {
            let said = read(&format!("weft {typed}")).unwrap_err();
            assert!(parts.iter().all(|part| said.contains(part)), "{typed}: {said}");
        }
        let line = ["weft", "bench", "-np"].map(OsString::from).to_vec();
        assert_eq!(understood(line.clone(), &parser()).ok(), Some(line));
    }

    #[test]
    fn of_launcher__each_gets_its_own_spelling() {
        let of = |own: &str, family| of_launcher(&own.replace(' ', "\u{1f}"), family);
        let words = |words: &[&str]| Ok(words.iter().map(|&word| word.to_owned()).collect());
        assert_eq!(of("bind-to core", Family::Mpich), words(&["-bind-to", "core"]));
        assert_eq!(of("bind-to core", Family::OpenMpi5), words(&["--bind-to", "core"]));
        assert_eq!(of("wd /tmp", Family::Intel), words(&["-wdir", "/tmp"]));
        assert_eq!(of("l", Family::OpenMpi4), words(&["--tag-output"]));
        assert_eq!(of("oversubscribe", Family::Mpich), words(&[]));
        assert_eq!(of("mca btl self", Family::OpenMpi5), words(&["--mca", "btl", "self"]));
        let said = of("mca btl self", Family::Mpich).unwrap_err();
        assert!(said.contains("is an option of Open MPI, and this MPI is MPICH"), "{said}");
        let said = of("iface eth0", Family::OpenMpi4).unwrap_err();
        assert!(said.contains("is an option of MPICH and Intel MPI"), "{said}");
    }
}
