//! The sequential program.

use crate::pass::{histogram, passes, permute, starts, Digit};
use crate::{Outcome, Params, Step};
use std::time::Instant;
use weft_apps::{digest, Stopped};

/// Keys moved between two calls of the progress callback: some milliseconds.
pub const PIECE: usize = 1 << 18;

/// Sorts on one processor, without messages.
///
/// `progress` is called after each [`PIECE`] of keys of a pass.
///
/// # Errors
/// `progress` stopped the run.
///
/// # Panics
/// [`Params::check`] refuses the parameters.
pub fn sequential(
    params: &Params,
    progress: &dyn Fn(Step) -> Result<(), Stopped>,
) -> Result<Outcome, Stopped> {
    params.check().expect("parameters were checked");
    let mut keys = params.keys.clone();
    let mut to = vec![0; keys.len()];
    let start = Instant::now();
    let of = passes(keys.iter().copied().max().unwrap_or(0), params.radix);
    for pass in 0..of {
        let digit = Digit::new(pass, params.radix);
        let counts = histogram(&keys, digit);
        let mut places = starts([&counts[..]], 0);
        let mut moved = 0;
        for piece in keys.chunks(PIECE) {
            permute(piece, digit, &mut places, |place, key| to[place as usize] = key);
            moved += piece.len();
            let passes = pass + u32::from(moved == keys.len());
            progress(Step { passes, of, keys: moved })?;
        }
        std::mem::swap(&mut keys, &mut to);
    }
    let elapsed = start.elapsed();
    let checksum = digest(0, keys.iter().map(|key| u64::from(*key)));
    let count = keys.len();
    Ok(Outcome { keys, count, radix: params.radix, ranks: 1, passes: of, checksum, elapsed })
}
