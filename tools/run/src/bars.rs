//! The form of progress bars.

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::time::Duration;

/// Returns the words about the time left, after so many steps of which the rest takes `rest`.
fn left(done: u64, rest: Duration) -> String {
    match done {
        0 => "time left unknown".to_string(),
        _ => format!("about {:#} left", HumanDuration(rest)),
    }
}

/// Gives a bar a form, in which `{left}` stands for the words about the time left.
pub fn form(bar: &ProgressBar, template: &str) {
    // A template that is not understood leaves the usual form.
    let Ok(style) = ProgressStyle::with_template(template) else { return };
    bar.set_style(style.with_key("left", |state: &ProgressState, to: &mut dyn Write| {
        // Writing to a terminal's line does not fail.
        let _ = to.write_str(&left(state.pos(), state.eta()));
    }));
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn left__is_not_said_before_the_first_step() {
        assert_eq!(left(0, Duration::ZERO), "time left unknown");
        assert_eq!(left(1, Duration::from_secs(12)), "about 12s left");
        assert_eq!(left(9, Duration::from_secs(3 * 3600)), "about 3h left");
    }
}
