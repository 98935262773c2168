//! The nine programs of Table VII of paper 004, and the choices of its Figures 12 to 16 as they are
//! made today.

use crate::apps::{App, Way, APPS};
use crate::Options;

/// A program of Table VII.
#[derive(Clone, Copy)]
pub struct Program {
    /// Its name in the paper.
    pub name: &'static str,
    /// The application.
    pub app: &'static App,
    /// Its options beside its input.
    more: &'static [&'static str],
    /// Its input where many runs are compared: less than the paper's where that takes long.
    brief: &'static [&'static str],
}

const fn program(
    name: &'static str,
    app: usize,
    more: &'static [&'static str],
    brief: &'static [&'static str],
) -> Program {
    Program { name, app: &APPS[app], more, brief }
}

/// The programs. Puzzle searches the last iteration whole, so that all runs do the same work.
pub const PROGRAMS: [Program; 9] = [
    program("ASP", 0, &[], &["--nodes", "1024"]),
    program("Awari", 1, &[], &["--stones", "9"]),
    program("Barnes", 2, &[], &["--bodies", "16384", "--steps", "2"]),
    program("LEQ", 4, &[], &["--equations", "300"]),
    program("Puzzle-4", 5, &["--whole", "--jobs", "4"], &["--korf", "90"]),
    program("Puzzle-64", 5, &["--whole", "--jobs", "64"], &["--korf", "90"]),
    program("QR", 6, &[], &["--size", "512"]),
    program("Radix", 7, &[], &["--keys", "3000000"]),
    program("SOR", 8, &[], &["--size", "1536", "--iterations", "100", "--tolerance", "0"]),
];

const fn wide(name: &'static str, brief: &'static [&'static str]) -> Program {
    program(name, 8, &[], brief)
}

/// SOR with more columns, and as many cells.
const WIDE: [Program; 4] = [
    wide("SOR, 1536 columns", PROGRAMS[8].brief),
    wide("SOR, 3072 columns", &["--size", "768x3072", "--iterations", "100", "--tolerance", "0"]),
    wide("SOR, 6144 columns", &["--size", "384x6144", "--iterations", "100", "--tolerance", "0"]),
    wide("SOR, 12288 columns", &["--size", "192x12288", "--iterations", "100", "--tolerance", "0"]),
];

/// Programs that broadcast much.
const CASTING: [Program; 3] = [PROGRAMS[0], PROGRAMS[3], PROGRAMS[6]];

impl Program {
    /// Returns the options of a run on the paper's input, or in a quick run on a small one.
    pub fn words(&self, options: &Options) -> Vec<&'static str> {
        [self.app.words(options), self.more].concat()
    }

    /// Returns the options of a run where many are compared.
    fn brief(&self, options: &Options) -> Vec<&'static str> {
        match options.quick {
            true => self.words(options),
            false => [self.brief, self.more].concat(),
        }
    }
}

/// A choice: its name, the link, settings, and options of the program.
#[derive(Clone, Copy)]
pub struct Choice {
    pub name: &'static str,
    link: &'static str,
    set: &'static [(&'static str, &'static str)],
    words: &'static [&'static str],
}

const fn choice(
    name: &'static str,
    link: &'static str,
    set: &'static [(&'static str, &'static str)],
) -> Choice {
    Choice { name, link, set, words: &[] }
}

impl Choice {
    /// Returns the program's options.
    pub fn words(&self, program: &Program, options: &Options) -> Vec<&'static str> {
        [&program.brief(options), self.words].concat()
    }

    /// Returns the way of a job over the hosts of a lab.
    pub fn way<'a>(&self, lab: &'a str, ranks: u32) -> Way<'a> {
        let set = self.set.iter().map(|&(name, value)| (name, value.to_owned())).collect();
        Way { ranks, lab: Some(lab), link: Some(self.link), agent: self.link == AGENT, set }
    }
}

/// A figure: choices beside a base.
pub struct Figure {
    /// Its number in the paper.
    pub number: &'static str,
    /// The title.
    pub title: &'static str,
    /// The network's maximum transfer unit, in bytes.
    pub mtu: u32,
    pub base: Choice,
    pub others: &'static [Choice],
    pub programs: &'static [Program],
}

/// Links of the choices.
const PACKET: &str = "packet";
const AGENT: &str = "agent";
/// Long Ethernet frames, in bytes.
const JUMBO: u32 = 9000;

const RELIABILITY: &str = "WEFT_RELIABILITY";
const TRANSFER: &str = "WEFT_TRANSFER";
const MTU: &str = "WEFT_MTU";
const TREE: &str = "WEFT_TREE";
const MULTICAST: &str = "WEFT_MULTICAST";

const fn late(name: &'static str, transfer: &'static [(&'static str, &'static str)]) -> Choice {
    Choice { words: &["--late"], ..choice(name, PACKET, transfer) }
}

/// Figures 12 to 16.
pub const FIGURES: [Figure; 5] = [
    Figure {
        number: "12",
        title: "reliability",
        mtu: crate::MTU,
        base: choice("selective", PACKET, &[(RELIABILITY, "selective")]),
        others: &[
            choice("go-back-N", PACKET, &[(RELIABILITY, "gbn")]),
            choice(
                "none",
                PACKET,
                &[(RELIABILITY, "none"), ("WEFT_EAGER_CREDIT", "64K"), ("WEFT_PULL_DEPTH", "1")],
            ),
            choice("agent", AGENT, &[(RELIABILITY, "agent")]),
        ],
        programs: &PROGRAMS,
    },
    Figure {
        number: "13",
        title: "transfer",
        mtu: crate::MTU,
        base: choice("auto", PACKET, &[(TRANSFER, "auto")]),
        others: &[
            choice("copy", PACKET, &[(TRANSFER, "copy")]),
            choice("gather", PACKET, &[(TRANSFER, "gather")]),
            choice("rcpy", PACKET, &[(TRANSFER, "rcpy")]),
        ],
        programs: &PROGRAMS,
    },
    Figure {
        number: "14",
        title: "remote-memory copy, and rows that leave early",
        mtu: crate::MTU,
        base: late("copy", &[(TRANSFER, "copy")]),
        others: &[
            choice("copy, early", PACKET, &[(TRANSFER, "copy")]),
            late("rcpy", &[(TRANSFER, "rcpy")]),
            choice("rcpy, early", PACKET, &[(TRANSFER, "rcpy")]),
        ],
        programs: &WIDE,
    },
    Figure {
        number: "15",
        title: "packets",
        mtu: JUMBO,
        base: choice("2 KiB", PACKET, &[(MTU, "2K")]),
        others: &[
            choice("1 KiB", PACKET, &[(MTU, "1K")]),
            choice("4 KiB", PACKET, &[(MTU, "4K")]),
            choice("9000 B", PACKET, &[(MTU, "0")]),
        ],
        programs: &PROGRAMS,
    },
    Figure {
        number: "16",
        title: "multicast",
        mtu: crate::MTU,
        base: choice("binomial", PACKET, &[(TREE, "binomial")]),
        others: &[
            choice("flat", PACKET, &[(TREE, "flat")]),
            choice("binary", PACKET, &[(TREE, "binary")]),
            choice("chain", PACKET, &[(TREE, "chain")]),
            choice("by ranks, over agents", AGENT, &[(MULTICAST, "host")]),
            choice("by agents", AGENT, &[(MULTICAST, "agent")]),
        ],
        programs: &CASTING,
    },
];

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn programs__are_those_of_the_paper_and_name_their_applications() {
        for program in PROGRAMS {
            let name = program.name.to_lowercase();
            assert!(name.starts_with(program.app.name), "{name}: {}", program.app.name);
        }
        assert!(WIDE.iter().all(|wide| wide.app.name == "sor"));
    }

    #[test]
    fn figures__choices_differ_from_their_base() {
        for figure in &FIGURES {
            for other in figure.others {
                let base = (figure.base.link, figure.base.set, figure.base.words);
                assert!(base != (other.link, other.set, other.words), "{}", other.name);
            }
        }
    }
}
