//! The protection of frames, which addresses name too.

use std::fmt;

/// The protection of frames on a network link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Authenticate header and payload.
    #[default]
    Auth,
    /// Authenticate both and encrypt the payload.
    Encrypt,
    /// No protection; frames carry no trailer. Only on explicit request, on trusted networks: the
    /// code that opens such a link warns people once.
    None,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Mode::Auth => "auth",
            Mode::Encrypt => "encrypt",
            Mode::None => "none",
        })
    }
}
