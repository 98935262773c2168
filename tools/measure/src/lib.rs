//! Two ranks, and the floors and peers that weft's figures stand beside: the part of `weft bench`
//! that `weft demo` and `weft tune` need too.
//!
//! | module | content |
//! | --- | --- |
//! | `bench`, `table` | the measurements over one link, their tables |
//! | `layout` | columns and paragraphs of text, for the width of a terminal |
//! | `pair`, `rank` | the two ranks, seen from their parent; one of them |
//! | `probe`, `work` | measurements between the two; the register of those that do them |
//! | `far`, `netns` | ranks on other machines, on hosts of a lab |
//! | `pingpong`, `bandwidth`, `rate` | messages of weft |
//! | `floor`, `wire`, `iperf`, `peers` | what the machine can do, what others do on it |
//! | `options`, `sample` | options of measurements, several repetitions |
//! | `progress`, `kept` | progress on the standard error, measurements so far |
//! | `load`, `volley`, `date` | other work, the loop of a ping-pong, days |
#![deny(unsafe_code)]
#![warn(missing_docs)]

#[macro_use]
extern crate weft_run;

pub mod bandwidth;
mod bench;
mod date;
pub mod far;
pub mod floor;
pub mod iperf;
pub mod kept;
pub mod layout;
pub mod load;
pub mod netns;
mod options;
pub mod pair;
pub mod peers;
pub mod pingpong;
pub mod probe;
pub mod progress;
pub mod rank;
pub mod rate;
pub mod sample;
pub mod sys;
pub mod table;
pub mod volley;
pub mod wire;
pub mod work;

pub use bench::{machine, machine_with, others, Bench, LinkName, CONFIG, MTU};
pub use date::date;
pub use options::{parse_size, Options};
pub use pair::Subject;
