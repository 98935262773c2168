//! Giving rights up: what they were needed for is open by now.

use crate::sys;
use std::fmt;
use std::io;

/// What is left after giving up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Effective user.
    pub user: u32,
    /// Capabilities that are effective, as a bit each; 0 when all is well.
    pub capabilities: u64,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}, capabilities {:x}", self.user, self.capabilities)
    }
}

/// Becomes `user`, if this process runs as root and one is named; drops every capability for good,
/// and the right to gain any by executing a file. Files, sockets and rings that are open stay.
///
/// # Errors
/// The user does not exist, or the system refuses: then the agent must not go on.
pub fn give_up(user: &str) -> io::Result<Left> {
    if sys::is_root() && !user.is_empty() {
        let (uid, gid) = lookup(user)?;
        sys::become_user(uid, gid)?;
    }
    sys::drop_capabilities()?;
    let left = Left { user: sys::effective_user(), capabilities: sys::capabilities()? };
    if left.capabilities != 0 {
        return Err(io::Error::other("capabilities are left"));
    }
    Ok(left)
}

/// User and group of a name in `/etc/passwd`, or of a number.
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
