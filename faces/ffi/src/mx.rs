//! Variables of the environment of MX and Open-MX.

/// A variable that changes something here.
pub struct Honoured {
    /// Its name.
    pub name: &'static str,
    /// Its effect.
    pub effect: &'static str,
}

/// The variables that change something here. All others of MX and Open-MX mean nothing.
pub const HONOURED: &[Honoured] = &[
    Honoured { name: "MX_ERRORS_ARE_FATAL", effect: "0: functions return errors" },
    Honoured { name: "OMX_FATAL_ERRORS", effect: "the same, before MX_ERRORS_ARE_FATAL" },
    Honoured { name: "MX_DISABLE_SHMEM", effect: "1: no shared memory (WEFT_LINK without shm)" },
    Honoured { name: "OMX_DISABLE_SHARED", effect: "the same, before MX_DISABLE_SHMEM" },
    Honoured { name: "OMX_ANY_ENDPOINT", effect: "the number that MX_ANY_ENDPOINT stands for" },
    Honoured { name: "OMX_CTXIDS", effect: "bits and shift of contexts, as 10,10" },
    Honoured { name: "OMX_WAITSPIN", effect: "1: waits poll and do not sleep (WEFT_SPIN_US)" },
];

/// Prefixes of the variables of MX and Open-MX.
const PREFIXES: [&str; 2] = ["MX_", "OMX_"];

/// Returns the names among these that look like variables of MX and mean nothing here.
pub fn meaningless(names: impl Iterator<Item = String>) -> Vec<String> {
    let of_mx = |name: &String| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let known = |name: &String| HONOURED.iter().any(|variable| variable.name == name);
    names.filter(|name| of_mx(name) && !known(name)).collect()
}

/// Returns a variable as a number.
fn number(name: &str) -> Option<u32> {
    std::env::var(name).ok()?.trim().parse().ok()
}

/// Returns the first of two variables that is a number: those of Open-MX come before MX's.
fn either(names: [&str; 2]) -> Option<u32> {
    names.into_iter().find_map(number)
}

/// True if errors end the program, unless it sets a handler.
pub fn errors_are_fatal() -> bool {
    either(["OMX_FATAL_ERRORS", "MX_ERRORS_ARE_FATAL"]) != Some(0)
}

/// True if processes of one host do not use shared memory.
pub fn is_without_shared_memory() -> bool {
    either(["OMX_DISABLE_SHARED", "MX_DISABLE_SHMEM"]).is_some_and(|value| value != 0)
}

/// True if waits poll.
pub fn waits_spin() -> bool {
    number("OMX_WAITSPIN").is_some_and(|value| value != 0)
}

/// Returns the number of an endpoint that may have any.
pub fn any_endpoint() -> Option<u32> {
    number("OMX_ANY_ENDPOINT")
}

/// Returns bits and shift of contexts.
pub fn contexts() -> Option<(u8, u8)> {
    pair(&std::env::var("OMX_CTXIDS").ok()?)
}

fn pair(text: &str) -> Option<(u8, u8)> {
    let (bits, shift) = text.split_once(',')?;
    Some((bits.trim().parse().ok()?, shift.trim().parse().ok()?))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn meaningless__names_those_of_mx_alone() {
        let names = ["MX_RCACHE", "OMX_CTXIDS", "OMX_PRCACHE", "PATH", "WEFT_LINK"];
        let found = meaningless(names.into_iter().map(str::to_owned));
        assert_eq!(found, ["MX_RCACHE", "OMX_PRCACHE"]);
    }

    #[test]
    fn pair__two_numbers() {
        assert_eq!((pair("10,10"), pair("10"), pair("x,1")), (Some((10, 10)), None, None));
    }
}
