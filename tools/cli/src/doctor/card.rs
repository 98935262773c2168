//! Properties of network cards and copy engines that paper 001 (section 4) tunes.

use super::Check;
use weft_link::ether::{coalescing, Coalescing, Interfaces};

/// An interface is switched on (netdevice(7)).
const IFF_UP: u32 = 1;
/// Coalescing from which on it is most of a short message's time, in microseconds.
const LONG: u32 = 10;
/// The folder of the queues of Intel's Data Streaming Accelerator.
const DSA: &str = "/dev/dsa";

/// Runs all checks.
pub fn checks() -> Vec<Check> {
    let mut checks: Vec<Check> = cards();
    checks.push(copy_engine(&queues()));
    checks
}

/// Reports the coalescing of receive interrupts of each card that tells it.
fn cards() -> Vec<Check> {
    let Ok(Interfaces(list)) = Interfaces::list() else { return Vec::new() };
    let up = list.iter().filter(|one| one.flags & IFF_UP != 0);
    let known = up.filter_map(|one| Some((&one.name, coalescing(one.name.as_bytes())?)));
    known.map(|(name, of)| card(name, of)).collect()
}

fn card(name: &str, of: Coalescing) -> Check {
    let Coalescing { usecs, frames, adaptive } = of;
    let or = if frames > 0 { format!(" or {frames} frames") } else { String::new() };
    let how = if adaptive { ", adapted to the load" } else { "" };
    let finding = format!("{name}: an interrupt after {usecs} us{or}{how}");
    let long = usecs > LONG && !adaptive;
    match long {
        true => Check::warn(
            "coalescing",
            format!("{finding}: a receiver that sleeps gets each message that much later"),
            format!(
                "`ethtool -C {name} rx-usecs 0` for short messages; more interrupts cost bulk \
                 data processor time"
            ),
        ),
        false => Check::ok("coalescing", finding),
    }
}

/// Returns the names of the work queues of copy engines.
fn queues() -> Vec<String> {
    let entries = std::fs::read_dir(DSA).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn copy_engine(queues: &[String]) -> Check {
    let finding = match queues {
        [] => "none (Intel DSA has queues in /dev/dsa); processors copy".to_string(),
        names => format!(
            "Intel DSA, {} in {DSA}; not used: on most of these kernels demand CAP_SYS_RAWIO, or a \
             system call for each copy; processors copy",
            names.join(", ")
        ),
    };
    Check::ok("copy engine", finding)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn card__a_long_time_that_does_not_adapt_has_a_remedy() {
        let of = |usecs, adaptive| {
            let check = card("eth0", Coalescing { usecs, frames: 32, adaptive });
            assert!(check.finding.contains("32 frames"), "{}", check.finding);
            check.verdict
        };
        assert_eq!((of(3, false), of(75, true), of(75, false)), {
            (Verdict::Ok, Verdict::Ok, Verdict::Warn)
        });
    }

    #[test]
    fn copy_engine__is_reported_with_the_reason_why_it_is_not_used() {
        let some = copy_engine(&["wq0.0".to_string()]);
        assert!(some.finding.contains("wq0.0") && some.finding.contains("CAP_SYS_RAWIO"));
        assert!(copy_engine(&[]).finding.starts_with("none"));
    }
}
