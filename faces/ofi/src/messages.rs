//! The provider's messages to people.

use crate::who;
use std::io::Write;

/// Sends warnings to standard error; `WEFT_LOG` (error to trace) sets the level.
pub fn begin() {
    let rank = who::RANKS.iter().find_map(|name| std::env::var(name).ok());
    let who = rank.map_or("weft".to_owned(), |rank| format!("weft rank {rank}"));
    let started = env_logger::Builder::new()
        .filter_level(log::LevelFilter::Warn)
        .parse_env("WEFT_LOG")
        .format(move |out, record| {
            let level = record.level().as_str().to_lowercase();
            writeln!(out, "{who}: {level}: {}", record.args())
        })
        .try_init();
    // If the provider is loaded twice, the first logger stays.
    let _ = started;
}
