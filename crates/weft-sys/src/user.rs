//! Users by number, and the cases in which a number proves an identity.
//!
//! A user namespace may leave users of the system without a number. The kernel shows all of them
//! under one number, that of the overflow user (user_namespaces(7)). Two processes with that number
//! may belong to different users, and so may a file. So that number never proves that two users are
//! the same, nor that a user is root.

use rustix::fs::{openat, Mode, OFlags, CWD};

/// Reads a file of `/proc`, by system calls alone: a library that stands before the C library asks
/// too.
fn read_to_string(path: &str) -> rustix::io::Result<String> {
    let file = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let (mut text, mut part) = (Vec::new(), [0; 4096]);
    loop {
        match rustix::io::read(&file, &mut part) {
            Ok(0) => break,
            Ok(n) => text.extend_from_slice(&part[..n]),
            Err(rustix::io::Errno::INTR) => {}
            Err(why) => return Err(why),
        }
    }
    String::from_utf8(text).map_err(|_| rustix::io::Errno::ILSEQ)
}

/// The overflow user if `/proc` does not tell the number.
const OVERFLOW: u32 = 65_534;

/// Returns the number of users that have no number in this user namespace. `None` if all users have
/// a number, as outside of user namespaces: there this number belongs to an ordinary user.
pub fn unknown() -> Option<u32> {
    let all = read_to_string("/proc/self/uid_map").is_ok_and(|map| maps_all(&map));
    let overflow = || read_to_string("/proc/sys/kernel/overflowuid").ok()?.trim().parse().ok();
    (!all).then(|| overflow().unwrap_or(OVERFLOW))
}

/// True if this number belongs to a user in this user namespace.
pub fn has_number(user: u32) -> bool {
    let map = read_to_string("/proc/self/uid_map").unwrap_or_default();
    let user = u64::from(user);
    ranges(&map).into_iter().any(|(first, count)| (first..first + count).contains(&user))
}

/// True if every user has a number, by a map as in `/proc/PID/uid_map`: each line holds the first
/// number inside, the first outside, and the count.
fn maps_all(map: &str) -> bool {
    let reach =
        |to, (first, count): (u64, u64)| if first <= to { to.max(first + count) } else { to };
    // The last number belongs to no user: system calls read it as "no user".
    ranges(map).into_iter().fold(0, reach) >= u64::from(u32::MAX)
}

/// Returns the numbers inside as (first, count), in order.
fn ranges(map: &str) -> Vec<(u64, u64)> {
    let range = |line: &str| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let (first, _, count) = (numbers.next()?.ok()?, numbers.next()?, numbers.next()?.ok()?);
        Some((first.into(), count.into()))
    };
    let mut ranges: Vec<(u64, u64)> = map.lines().filter_map(range).collect();
    ranges.sort_unstable();
    ranges
}

/// Checks that the user of another process, `theirs` as reported by the kernel, is the user of this
/// process, `ours`.
///
/// # Errors
/// The users differ, or the check is not possible; the text tells people which.
pub fn same(ours: u32, theirs: u32) -> Result<(), String> {
    if ours != theirs {
        return Err(format!("its process runs as user {theirs}, this one as user {ours}"));
    }
    match unknown() == Some(theirs) {
        false => Ok(()),
        true => Err(format!(
            "both processes run as users without a number in their user namespace (shown as \
             {theirs}), so they may differ: map the user, as `unshare --map-current-user` does"
        )),
    }
}

/// Checks that this process may believe another one, of the user `theirs` as reported by the
/// kernel: root, or the user of this process.
///
/// # Errors
/// As of [`same`].
pub fn trusts(theirs: u32) -> Result<(), String> {
    match is_root(theirs) {
        true => Ok(()),
        false => same(effective(), theirs),
    }
}

/// True if a user may see what belongs to a process of the user `owner`: its own user may, and
/// root.
pub fn sees(asking: u32, owner: u32) -> bool {
    unknown() != Some(asking) && (asking == 0 || asking == owner)
}

/// Returns the effective user of this process.
pub fn effective() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// True if `theirs`, as reported by the kernel, is the root user.
pub fn is_root(theirs: u32) -> bool {
    theirs == 0 && unknown() != Some(0)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn maps_all__only_a_map_without_gaps() {
        let maps = [
            "         0          0 4294967295\n",
            "0 0 1000\n 1000 1000 4294966295",
            "5 5 9\n0 0 5\n14 14 4294967290",
        ];
        assert!(maps.into_iter().all(maps_all));
        let others = [
            "",
            "0 1000 1",
            "0 0 65536",
            "0 0 1000\n1001 1001 4294966294",
            "1 1 4294967294",
            "x 0 4294967295",
            "0 0",
        ];
        for map in others {
            assert!(!maps_all(map), "{map:?}");
        }
    }

    #[test]
    fn has_number__this_ones_own() {
        use std::os::unix::fs::MetadataExt;
        let own = std::fs::metadata("/proc/self").unwrap().uid();
        assert!(has_number(own) || unknown() == Some(own));
        assert!(!has_number(u32::MAX));
    }

    #[test]
    fn trusts__root_and_this_user_but_no_user_without_a_number() {
        assert!(trusts(0).is_ok() == (unknown() != Some(0)));
        assert!(trusts(effective()).is_ok() == (unknown() != Some(effective())));
        assert!(trusts(effective() + 4242).is_err());
        assert!(unknown().is_none_or(|nameless| trusts(nameless).is_err()));
    }

    #[test]
    fn sees__the_own_user_and_root_but_no_user_without_a_number() {
        let known = |user| unknown() != Some(user);
        assert_eq!((sees(1000, 1000), sees(0, 1000)), (known(1000), known(0)));
        assert!(!sees(1000, 1001) && !sees(1000, 0));
        assert!(unknown().is_none_or(|nameless| !sees(nameless, nameless)));
    }

    #[test]
    fn same__refuses_another() {
        assert_eq!(same(1000, 1000), Ok(()));
        let why = same(1000, 0).unwrap_err();
        assert!(why.contains("user 0") && why.contains("user 1000"));
    }

    #[test]
    fn same__the_overflow_user_is_one_only_where_all_have_numbers() {
        assert_eq!(same(OVERFLOW, OVERFLOW).is_ok(), unknown().is_none());
    }
}
