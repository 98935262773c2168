//! A progress bar for rank 0, where a person can see it.

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fs::File;
use std::io::IsTerminal;

/// Variable by which `weft run` tells its ranks that a person watches: their own standard error is
/// a pipe to it.
pub const WATCHED: &str = "WEFT_TERMINAL";

/// A progress bar, or nothing where nobody would see it.
pub struct Progress(ProgressBar);

fn target(rank: usize) -> ProgressDrawTarget {
    if rank != 0 {
        return ProgressDrawTarget::hidden();
    }
    if std::io::stderr().is_terminal() {
        return ProgressDrawTarget::stderr();
    }
    let open = || File::options().read(true).write(true).open("/dev/tty");
    match (std::env::var_os(WATCHED), open(), open()) {
        (Some(_), Ok(input), Ok(output)) => {
            ProgressDrawTarget::term(Term::read_write_pair(input, output), 10)
        }
        _ => ProgressDrawTarget::hidden(),
    }
}

impl Progress {
    /// A bar of rank `rank` for the work named `what`.
    pub fn new(rank: usize, what: &'static str) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(0), target(rank));
        let template = "{msg} {bar:32} {pos}/{len} {elapsed}, {eta} left at most";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Progress(bar.with_message(what))
    }

    /// `done` of at most `total` steps are done.
    pub fn at(&self, done: u64, total: u64) {
        if self.0.length() != Some(total) {
            self.0.set_length(total);
        }
        self.0.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
