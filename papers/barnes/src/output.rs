//! Results for people.

use crate::{Body, Outcome};
use std::io::{self, Write};

/// Returns a summary for people, one screen, lines ended by `\n`.
pub fn report(outcome: &Outcome) -> String {
    let o = outcome;
    let seconds = o.elapsed.as_secs_f64();
    let (count, steps) = (o.bodies.len(), o.energies.len());
    let each = o.interactions as f64 / (count * steps).max(1) as f64;
    format!(
        "Barnes-Hut, {count} bodies, {steps} steps of {}, {} rank{}\n\
         interactions     {} ({each:.1} for a body and step)\n\
         energy           {:.9}, drift {:.2e}\n\
         time             {seconds:.3} s, {:.1} million interactions/s\n\
         checksum         {:016x}\n",
        o.time_step,
        o.ranks,
        if o.ranks == 1 { "" } else { "s" },
        o.interactions,
        o.energies.first().map_or(0.0, |energy| energy.whole()),
        o.drift(),
        o.interactions as f64 / seconds.max(1e-9) / 1e6,
        o.checksum,
    )
}

/// Writes bodies as lines `mass,x,y,z,vx,vy,vz`, which [`read_bodies`](crate::read_bodies) reads to
/// the same bits.
///
/// # Errors
/// The writer failed. It is not buffered here.
pub fn write_bodies(to: &mut dyn Write, bodies: &[Body]) -> io::Result<()> {
    writeln!(to, "mass,x,y,z,vx,vy,vz")?;
    for body in bodies {
        let ([x, y, z], [u, v, w]) = (body.position, body.velocity);
        writeln!(to, "{:e},{x:e},{y:e},{z:e},{u:e},{v:e},{w:e}", body.mass)?;
    }
    Ok(())
}

/// Writes the energy at the beginning of each step, as lines `time,kinetic,potential,whole`.
///
/// # Errors
/// The writer failed.
pub fn write_energy(to: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    writeln!(to, "time,kinetic,potential,whole")?;
    outcome.energies.iter().try_for_each(|energy| {
        let (kinetic, potential) = (energy.kinetic, energy.potential);
        writeln!(to, "{},{kinetic:e},{potential:e},{:e}", energy.time, energy.whole())
    })
}
