//! Drops the rights of the process after the resources that need them were opened.

use crate::sys;
use std::fmt;
use std::io;

/// The rights left after dropping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Effective user.
    pub user: u32,
    /// Effective capabilities, one bit each; 0 is the only good value.
    pub capabilities: u64,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}, capabilities {:x}", self.user, self.capabilities)
    }
}

/// Name of the agent's own user, which the package makes.
pub const OWN: &str = "weft";
/// User IDs that no system assigns (`systemd.io/UIDS-GIDS`).
const FREE: std::ops::RangeInclusive<u32> = 65_520..=65_533;

/// Becomes `user` if this process runs as root; `None` means a user of the agent's own, an empty
/// name means to stay. Drops every capability for good, and the right to gain any by executing a
/// file. Open files, sockets and rings stay open.
///
/// # Errors
/// The user does not exist, or the system refuses: then the agent must not continue.
pub fn give_up(user: Option<&str>) -> io::Result<Left> {
    if sys::is_root() && user != Some("") {
        let (uid, gid) = user.map_or_else(own, lookup)?;
        if uid == NOBODY {
            log::warn!(
                "it becomes nobody, whose other processes may end it: make a user of its own \
                 (useradd --system --no-create-home --shell /usr/sbin/nologin {OWN})"
            );
        }
        sys::become_user(uid, gid)?;
    }
    sys::drop_capabilities()?;
    let left = Left { user: sys::effective_user(), capabilities: sys::capabilities()? };
    if left.capabilities != 0 {
        return Err(io::Error::other("capabilities are left"));
    }
    Ok(left)
}

/// User ID that many systems give to services without a user of their own.
const NOBODY: u32 = 65_534;

/// Returns a user and group that no other process has: the agent's own, else an unnamed number that
/// no process has; if there is none (a user namespace of few numbers), nobody.
fn own() -> io::Result<(u32, u32)> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    if let Some(own) = find(&passwd, OWN) {
        return Ok(own);
    }
    let named = |user: &u32| passwd.lines().any(|l| l.split(':').nth(2) == Some(&user.to_string()));
    let running = users_of_processes();
    let known = weft_link::user::has_number;
    let free = FREE.into_iter().find(|n| known(*n) && !named(n) && !running.contains(n));
    match free {
        Some(number) => Ok((number, number)),
        None => lookup("nobody"),
    }
}

/// Returns the users of all processes.
fn users_of_processes() -> std::collections::BTreeSet<u32> {
    use std::os::unix::fs::MetadataExt;
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| Some(entry.metadata().ok()?.uid())).collect()
}

/// Returns user and group of a name in `/etc/passwd`, or of a number.
fn lookup(user: &str) -> io::Result<(u32, u32)> {
    if let Ok(number) = user.parse() {
        return Ok((number, number));
    }
    let file = std::fs::read_to_string("/etc/passwd")?;
    find(&file, user).ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("no user {user:?} in /etc/passwd"))
    })
}

fn find(passwd: &str, user: &str) -> Option<(u32, u32)> {
    let line = passwd.lines().find(|l| l.split(':').next() == Some(user))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn find__reads_the_numbers_of_a_name() {
        let file = "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65533:n:/:/bin/false\n";
        assert_eq!(find(file, "nobody"), Some((65534, 65533)));
        assert_eq!(find(file, "nob"), None);
        assert_eq!(find("broken:x", "broken"), None);
        assert_eq!(lookup("77").unwrap(), (77, 77));
        assert!(lookup("no-such-user-here").is_err());
    }
}
