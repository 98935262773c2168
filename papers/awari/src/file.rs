//! Databases in files.

use crate::index::{positions, MOST_STONES};
use crate::Database;
use std::io::{self, Read, Write};

/// The first bytes of a file: its name and its version. The number of stones follows.
const MAGIC: &[u8; 16] = b"weft awari db 1\n";

impl Database {
    /// Writes the database: 16 bytes of name and version, one of the most stones, one for each
    /// score by stones and number of the position, and eight of the digest, the lowest first.
    ///
    /// # Errors
    /// The writer failed. It is not buffered here.
    ///
    /// # Panics
    /// The database has no position.
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let stones = self.stones().expect("a database with positions");
        to.write_all(MAGIC)?;
        to.write_all(&[stones])?;
        for stones in 0..=stones {
            for piece in self.scores(stones).unwrap_or_default().chunks(1 << 16) {
                let bytes: Vec<u8> = piece.iter().map(|score| *score as u8).collect();
                to.write_all(&bytes)?;
            }
        }
        to.write_all(&self.digest().to_le_bytes())
    }

    /// Reads a database that [`Database::write`] wrote.
    ///
    /// # Errors
    /// The input failed, ends too early, is no database or of another version, or has a score or a
    /// digest that cannot be; the error says which.
    pub fn read(input: &mut dyn Read) -> io::Result<Database> {
        let fault = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
        let mut head = [0; 17];
        input.read_exact(&mut head)?;
        let stones = head[16];
        if head[..16] != MAGIC[..] {
            return Err(fault("not a database of this version".to_string()));
        }
        if stones > MOST_STONES {
            return Err(fault(format!("{stones} stones are more than {MOST_STONES}")));
        }
        let mut database = Database::new();
        for stones in 0..=stones {
            let count = positions(stones);
            let mut bytes = Vec::new();
            Read::take(&mut *input, count).read_to_end(&mut bytes)?;
            if bytes.len() as u64 != count {
                let found = bytes.len();
                let reason = format!("{found} of the {count} scores of {stones} stones");
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason));
            }
            let scores: Vec<i8> = bytes.into_iter().map(|byte| byte as i8).collect();
            let outside = |score: &&i8| score.unsigned_abs() > stones;
            if let Some(score) = scores.iter().find(outside) {
                return Err(fault(format!("a score of {score} with {stones} stones")));
            }
            database.push(scores);
        }
        let mut digest = [0; 8];
        input.read_exact(&mut digest)?;
        match u64::from_le_bytes(digest) == database.digest() {
            true => Ok(database),
            false => Err(fault("the digest is another one: the file was changed".to_string())),
        }
    }
}
