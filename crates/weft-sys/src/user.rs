//! Users by number, and the cases in which a number proves an identity.
//!
//! A user namespace may leave users of the system without a number. The kernel shows all of them
//! under one number, that of the overflow user (user_namespaces(7)). Two processes with that number
//! may belong to different users, and so may a file. So that number never proves that two users are
//! the same, nor that a user is root.

use rustix::fs::{openat, Mode, OFlags, CWD};
use std::sync::OnceLock;

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
/// Returns the reason why not, as [`same`] does.
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

/// True if a user is root, or that of this process. The files of `/proc` are read once.
pub fn is_own(user: u32) -> bool {
    static NAMELESS: OnceLock<Option<u32>> = OnceLock::new();
    let is_known = *NAMELESS.get_or_init(unknown) != Some(user);
    is_known && (user == 0 || user == effective())
}

/// Returns the user who answers for what a user takes. A range of subordinate numbers in
/// `/etc/subuid` (subuid(5)), all of which its owner may use, counts as the owner. Other numbers
/// from `SUB_UID_MIN` of `/etc/login.defs` on (100000) count as one user: another name service may
/// have given them to somebody. The files are read once.
pub fn payer(user: u32) -> u32 {
    static PAYERS: OnceLock<Payers> = OnceLock::new();
    let read = |path| read_to_string(path).unwrap_or_default();
    let files = || ["/etc/subuid", "/etc/passwd", "/etc/login.defs"].map(read);
    PAYERS.get_or_init(|| Payers::read(&files())).of(user)
}

/// Ranges of subordinate users.
struct Payers {
    /// First number, last number, and the user who answers for them.
    ranges: Vec<(u32, u32, u32)>,
    /// The first number that counts as subordinate without a range.
    from: u32,
}

impl Payers {
    /// Reads the texts of subuid(5), passwd(5) and login.defs(5).
    fn read([subuid, passwd, login]: &[String; 3]) -> Payers {
        /// `SUB_UID_MIN` without such a line.
        const FROM: u32 = 100_000;
        let number_of = |name: &str| {
            let line = |line: &str| {
                let (of, rest) = line.split_once(':')?;
                (of == name).then(|| rest.split(':').nth(1)?.parse().ok())?
            };
            name.parse().ok().or_else(|| passwd.lines().find_map(line))
        };
        let range = |line: &str| {
            let mut parts = line.trim().split(':');
            let (name, first) = (parts.next()?, parts.next()?.parse::<u32>().ok()?);
            let count = parts.next()?.parse::<u32>().ok()?.checked_sub(1)?;
            // Nobody is to take the places of root.
            let owner = number_of(name).filter(|owner| *owner != 0).unwrap_or(first);
            Some((first, first.saturating_add(count), owner))
        };
        let least = |line: &str| line.trim().strip_prefix("SUB_UID_MIN")?.trim().parse().ok();
        let from = login.lines().find_map(least).unwrap_or(FROM);
        Payers { ranges: subuid.lines().filter_map(range).collect(), from }
    }

    fn of(&self, user: u32) -> u32 {
        let within = |&&(first, last, _): &&(u32, u32, u32)| (first..=last).contains(&user);
        match self.ranges.iter().find(within) {
            // The last number stands for no user.
            _ if user == 0 || user == u32::MAX => user,
            Some((_, _, owner)) => *owner,
            None => user.min(self.from),
        }
    }
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
    fn payer__the_owner_of_a_range_and_one_user_for_the_others() {
        let subuid = "ann:100000:65536\n1001:165536:65536\nroot:300000:10\nnone:400000:2\nx\n";
        let passwd = "root:x:0:0::/:/bin/sh\nann:x:1000:1000::/ann:/bin/sh\n";
        let all = Payers::read(
            &[subuid, passwd, "# SUB_UID_MIN 7\nSUB_UID_MIN\t200000\n"].map(String::from),
        );
        let same = [0, 1000, 1001, 65_534, 99_999, u32::MAX];
        assert_eq!(same.map(|user| all.of(user)), same);
        let of = [(100_000, 1000), (165_535, 1000), (165_536, 1001), (231_071, 1001)];
        let others =
            [(231_072, 200_000), (300_009, 300_000), (300_010, 200_000), (400_001, 400_000)];
        for (user, payer) in of.into_iter().chain(others) {
            assert_eq!(all.of(user), payer, "{user}");
        }
        let none = Payers::read(&[const { String::new() }; 3]);
        assert_eq!(
            [99_999, 100_000, 4_000_000].map(|user| none.of(user)),
            [99_999, 100_000, 100_000]
        );
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
