//! Memory of one region, to test requests on.

use super::{answer, serve, Memory, Refusal, Request};
use weft::Rights;

/// One region under a key: its bytes, and true if they may be written.
pub(super) struct Small {
    pub key: u64,
    pub bytes: Vec<u8>,
    pub writable: bool,
}

impl Memory for Small {
    fn check(&self, at: (u64, u64), len: usize, need: Rights) -> Result<(), Refusal> {
        let (key, offset) = at;
        if key != self.key {
            return Err(Refusal::Key);
        }
        let fits = offset.checked_add(len as u64).is_some_and(|end| end <= self.bytes.len() as u64);
        match fits && (self.writable || !need.write) {
            true => Ok(()),
            false => Err(Refusal::Access),
        }
    }

    fn bytes(&mut self, at: (u64, u64), len: usize, need: Rights) -> Result<&mut [u8], Refusal> {
        self.check(at, len, need)?;
        Ok(&mut self.bytes[at.1 as usize..at.1 as usize + len])
    }
}

/// Body of the fuzz target `atomic_request`: every message gets an answer, a refused request
/// changes nothing, and a decoded request encodes to the same bytes.
pub fn hostile(data: &[u8]) {
    let before: Vec<u8> = (0..=255).collect();
    let mut memory = Small { key: 0, bytes: before.clone(), writable: true };
    let said = serve(data, &mut memory);
    let request = Request::decode(data);
    if let Some(request) = &request {
        assert_eq!(request.encode(), data, "a request with two encodings");
    }
    let len = said.len() - 1;
    match answer(&said, len) {
        Ok(_) => assert!(request.is_some(), "what is no request was done"),
        Err(_) => assert_eq!(memory.bytes, before, "what was refused was done"),
    }
    memory.writable = false;
    memory.bytes = before.clone();
    serve(data, &mut memory);
    assert_eq!(memory.bytes, before, "memory to be read was written");
}
