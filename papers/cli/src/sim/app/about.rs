//! The names of the applications and of what they compute, and the values of their options.

use clap::Command;

/// An application.
#[derive(Debug)]
pub struct About {
    /// Its name.
    pub title: &'static str,
    /// The name of the things that it computes, each in the same time.
    pub things: &'static str,
    /// The option for that time: its name, its usual value, and the thing.
    pub time: (&'static str, &'static str, &'static str),
    /// Options with values that are usual in a simulation.
    pub usual: &'static [(&'static str, &'static str)],
}

impl About {
    /// Returns its name after `weft sim`.
    pub fn name(&self) -> String {
        format!("app {}", self.title.to_lowercase())
    }

    /// Gives the options their values.
    pub fn usual(&self, command: Command) -> Command {
        let give = |command: Command, (name, value): &(_, _)| {
            command.mut_arg(name, |arg| arg.default_value(value))
        };
        self.usual.iter().fold(command, give)
    }
}

pub const ASP: About = About {
    title: "ASP",
    things: "cells",
    time: ("ns-per-cell", "0.5", "a cell of the distances, in each step"),
    usual: &[("nodes", "256")],
};

pub const AWARI: About = About {
    title: "Awari",
    things: "positions and updates",
    time: ("ns-per-update", "100", "a position's captures, and of an update of a predecessor"),
    usual: &[("stones", "8")],
};

pub const BARNES: About = About {
    title: "Barnes",
    things: "interactions",
    time: ("ns-per-pull", "20", "an interaction, the pull of a body or a cell on a body"),
    usual: &[("bodies", "4096"), ("steps", "4")],
};

pub const DD: About = About {
    title: "DD",
    things: "exponentials and points",
    time: ("ns-per-unit", "5", "an exponential, and of a point of a linear equation"),
    usual: &[("tolerance", "1e-5")],
};

pub const LEQ: About = About {
    title: "LEQ",
    things: "products",
    time: ("ns-per-product", "2", "a product, of a coefficient and an unknown"),
    usual: &[("equations", "200")],
};

pub const PUZZLE: About = About {
    title: "Puzzle",
    things: "positions",
    time: ("ns-per-position", "10", "a position that is made"),
    usual: &[("korf", "79")],
};

pub const QR: About = About {
    title: "QR",
    things: "values",
    time: ("ns-per-value", "2", "a value, each time it is reflected"),
    usual: &[("size", "256")],
};

pub const RADIX: About = About {
    title: "Radix",
    things: "keys",
    time: ("ns-per-key", "10", "a key, in each pass"),
    usual: &[("keys", "1000000")],
};

pub const SOR: About = About {
    title: "SOR",
    things: "cells",
    time: ("ns-per-cell", "2", "a cell, each time it is relaxed"),
    usual: &[("size", "256")],
};
