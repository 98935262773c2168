//! The sequential program.

use crate::bodies::digest_of;
use crate::{advance, correct, energy, Outcome, Params, Pull, Step, Tree};
use std::time::Instant;
use weft_apps::Stopped;

/// Bodies pulled between two calls of the progress callback: some milliseconds.
pub const PIECE: usize = 512;

/// Computes all steps on one processor, without messages.
///
/// `progress` is called before the first step and after each with the bodies, and within steps
/// after each [`PIECE`] of them.
///
/// # Errors
/// `progress` stopped the run.
///
/// # Panics
/// [`Params::check`] refuses the parameters.
pub fn sequential(
    params: &Params,
    progress: &dyn Fn(Step<'_>) -> Result<(), Stopped>,
) -> Result<Outcome, Stopped> {
    params.check().expect("parameters were checked");
    let Params { gravity, time_step, steps: of, .. } = *params;
    let mut bodies = params.bodies.clone();
    let mut pulls = vec![Pull::default(); bodies.len()];
    let (mut energies, mut interactions) = (Vec::new(), 0);
    let start = Instant::now();
    progress(Step { steps: 0, of, pulled: 0, bodies: Some(&bodies) })?;
    for steps in 0..of {
        let tree = Tree::new(&bodies, gravity.leaf);
        for (place, number) in tree.order().iter().enumerate() {
            let number = *number as usize;
            let pull = tree.pull(place, &gravity);
            interactions += u64::from(pull.interactions);
            if steps > 0 {
                correct(&mut bodies[number], &pulls[number], &pull, time_step);
            }
            pulls[number] = pull;
            if (place + 1) % PIECE == 0 {
                progress(Step { steps, of, pulled: place + 1, bodies: None })?;
            }
        }
        energies.push(energy(&bodies, &pulls, steps as f64 * time_step));
        bodies.iter_mut().zip(&pulls).for_each(|(body, pull)| advance(body, pull, time_step));
        progress(Step { steps: steps + 1, of, pulled: 0, bodies: Some(&bodies) })?;
    }
    let elapsed = start.elapsed();
    let checksum = digest_of(0, &bodies);
    Ok(Outcome { bodies, energies, time_step, ranks: 1, interactions, checksum, elapsed })
}
