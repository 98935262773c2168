//! Atomic operations as messages.
//!
//! A request: form (1 byte), datatype and operator (libfabric's numbers), number of pieces of
//! memory; key and offset (8 bytes each) and number of elements (4) of each piece; the operands of
//! all elements, except for reads; the values to compare with, for comparing operators. The answer:
//! a status, then the values before the operation, unless the request was refused or asked for
//! none. Numbers are little-endian.

use super::{execute, is_valid, Datatype, Form, Operator, LONGEST};
use weft::Rights;

/// Elements in a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Key of the region.
    pub key: u64,
    /// Offset of the first element from the start of the region, in bytes.
    pub offset: u64,
    /// Number of elements.
    pub count: u32,
}

/// The reason why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no memory under the key.
    Key,
    /// The region is shorter, or does not allow this access.
    Access,
    /// The bytes are no request: versions differ, or the peer is hostile.
    Malformed,
}

/// An operation on a peer's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The values that the answer contains.
    pub form: Form,
    /// The type of the elements.
    pub datatype: Datatype,
    /// The operator applied to each element.
    pub operator: Operator,
    /// The elements in the peer's memory.
    pub pieces: Vec<Piece>,
    /// One operand for each element; none for reads.
    pub operands: &'a [u8],
    /// One value for each element, if the operator compares.
    pub compares: &'a [u8],
}

const HEAD: usize = 4;
const PIECE: usize = 20;

/// Registered memory, as the server of requests sees it.
pub trait Memory {
    /// Checks that a peer may read or write `len` bytes at `offset` of a region.
    ///
    /// # Errors
    /// The reason why it may not.
    fn check(&self, at: (u64, u64), len: usize, need: Rights) -> Result<(), Refusal>;

    /// Returns these bytes of a region.
    ///
    /// # Errors
    /// The bytes cannot be reached.
    fn bytes(&mut self, at: (u64, u64), len: usize, need: Rights) -> Result<&mut [u8], Refusal>;
}

impl<'a> Request<'a> {
    /// Encodes the request.
    pub fn encode(&self) -> Vec<u8> {
        let form = match self.form {
            Form::Write => 0,
            Form::Fetch => 1,
            Form::Compare => 2,
        };
        let len = HEAD + PIECE * self.pieces.len() + self.operands.len() + self.compares.len();
        let mut out = Vec::with_capacity(len);
        let pieces = self.pieces.len() as u8;
        out.extend([form, self.datatype.number(), self.operator.number(), pieces]);
        for piece in &self.pieces {
            out.extend(piece.key.to_le_bytes());
            out.extend(piece.offset.to_le_bytes());
            out.extend(piece.count.to_le_bytes());
        }
        out.extend_from_slice(self.operands);
        out.extend_from_slice(self.compares);
        out
    }

    /// Decodes the request in a message.
    pub fn decode(bytes: &'a [u8]) -> Option<Request<'a>> {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        let form = match head[0] {
            0 => Form::Write,
            1 => Form::Fetch,
            2 => Form::Compare,
            _ => return None,
        };
        let datatype = Datatype::from_number(i64::from(head[1]))?;
        let operator = Operator::from_number(i64::from(head[2]))?;
        if !is_valid(form, datatype, operator) {
            return None;
        }
        let (pieces, values) = rest.split_at_checked(PIECE * usize::from(head[3]))?;
        let pieces: Vec<Piece> = pieces.chunks_exact(PIECE).map(piece).collect();
        let elements: u64 = pieces.iter().map(|p| u64::from(p.count)).sum();
        let len = usize::try_from(elements).ok()?.checked_mul(datatype.size())?;
        if len == 0 || len > LONGEST {
            return None;
        }
        let operands = if operator == Operator::Read { 0 } else { len };
        let (operands, compares) = values.split_at_checked(operands)?;
        let wanted = if form == Form::Compare { len } else { 0 };
        let whole = compares.len() == wanted;
        whole.then_some(Request { form, datatype, operator, pieces, operands, compares })
    }

    /// Returns the size of all elements, in bytes.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(|p| p.count as usize).sum::<usize>() * self.datatype.size()
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, &b| sum << 8 | u64::from(b))
}

fn piece(bytes: &[u8]) -> Piece {
    Piece {
        key: number(&bytes[..8]),
        offset: number(&bytes[8..16]),
        count: number(&bytes[16..]) as u32,
    }
}

/// Executes all of a request or, if any part is not allowed, nothing; returns the answer.
pub fn serve(request: &[u8], memory: &mut impl Memory) -> Vec<u8> {
    let done = match Request::decode(request) {
        Some(request) => perform(&request, memory),
        None => Err(Refusal::Malformed),
    };
    done.unwrap_or_else(|why| {
        vec![match why {
            Refusal::Key => 1,
            Refusal::Access => 2,
            Refusal::Malformed => 3,
        }]
    })
}

fn perform(request: &Request<'_>, memory: &mut impl Memory) -> Result<Vec<u8>, Refusal> {
    let size = request.datatype.size();
    let read = request.form != Form::Write;
    let need = Rights { read, write: request.operator != Operator::Read };
    for p in &request.pieces {
        memory.check((p.key, p.offset), p.count as usize * size, need)?;
    }
    let mut answer = vec![0];
    let mut from = 0;
    for p in &request.pieces {
        let len = p.count as usize * size;
        let target = memory.bytes((p.key, p.offset), len, need)?;
        if read {
            answer.extend_from_slice(target);
        }
        if let Some(operands) = request.operands.get(from..from + len) {
            let compares = request.compares.get(from..from + len).unwrap_or_default();
            execute(request.datatype, request.operator, target, operands, compares);
        }
        from += len;
    }
    Ok(answer)
}

/// Returns the values before the operation, `len` bytes of an answer.
///
/// # Errors
/// The reason why the request was refused.
pub fn answer(bytes: &[u8], len: usize) -> Result<&[u8], Refusal> {
    match bytes.split_first() {
        Some((0, before)) if before.len() == len => Ok(before),
        Some((1, [])) => Err(Refusal::Key),
        Some((2, [])) => Err(Refusal::Access),
        _ => Err(Refusal::Malformed),
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::super::small::{hostile, Small};
    use super::*;

    /// Creates memory under key 5.
    fn small(bytes: &[u8]) -> Small {
        Small { key: 5, bytes: bytes.to_vec(), writable: true }
    }

    fn sum<'a>(pieces: &[(u64, u64, u32)], operands: &'a [u8]) -> Request<'a> {
        let piece = |&(key, offset, count)| Piece { key, offset, count };
        Request {
            form: Form::Fetch,
            datatype: Datatype::Uint8,
            operator: Operator::Sum,
            pieces: pieces.iter().map(piece).collect(),
            operands,
            compares: &[],
        }
    }

    #[test]
    fn decode__gives_back_what_was_encoded() {
        let request = sum(&[(5, 1, 2), (5, 0, 1)], &[10, 20, 30]);
        assert_eq!(Request::decode(&request.encode()), Some(request));
        let swap = Request {
            form: Form::Compare,
            datatype: Datatype::Uint16,
            operator: Operator::SwapEqual,
            pieces: vec![Piece { key: 1, offset: 2, count: 1 }],
            operands: &[1, 2],
            compares: &[3, 4],
        };
        assert_eq!(Request::decode(&swap.encode()), Some(swap));
    }

    #[test]
    fn decode__refuses_what_is_cut_or_too_long_or_impossible() {
        let good = sum(&[(5, 0, 3)], &[1, 2, 3]).encode();
        for cut in 0..good.len() {
            assert_eq!(Request::decode(&good[..cut]), None, "{cut}");
        }
        let mut longer = good.clone();
        longer.push(0);
        let with = |at: usize, value| {
            let mut bad = good.clone();
            bad[at] = value;
            bad
        };
        for bad in [longer, with(0, 3), with(1, 12), with(2, 20), with(2, 12), with(22, 1)] {
            assert_eq!(Request::decode(&bad), None);
        }
        let long = vec![0; LONGEST + 1];
        assert_eq!(Request::decode(&sum(&[(5, 0, long.len() as u32)], &long).encode()), None);
        assert_eq!(Request::decode(&sum(&[], &[]).encode()), None);
    }

    #[test]
    fn serve__does_all_pieces_and_returns_the_old_values() {
        let mut memory = small(&[1, 2, 3, 4]);
        let request = sum(&[(5, 2, 2), (5, 0, 1)], &[10, 20, 30]).encode();
        let said = serve(&request, &mut memory);
        assert_eq!(answer(&said, 3), Ok(&[3, 4, 1][..]));
        assert_eq!(memory.bytes, [31, 2, 13, 24]);
    }

    #[test]
    fn serve__does_nothing_if_one_piece_is_refused() {
        let mut memory = small(&[1, 2, 3, 4]);
        let beyond = sum(&[(5, 0, 1), (5, 3, 2)], &[1, 1, 1]).encode();
        assert_eq!(answer(&serve(&beyond, &mut memory), 3), Err(Refusal::Access));
        let unknown = sum(&[(5, 0, 1), (6, 0, 2)], &[1, 1, 1]).encode();
        assert_eq!(answer(&serve(&unknown, &mut memory), 3), Err(Refusal::Key));
        let far = sum(&[(5, u64::MAX, 1)], &[1]).encode();
        assert_eq!(answer(&serve(&far, &mut memory), 1), Err(Refusal::Access));
        assert_eq!(answer(&serve(&[9; 30], &mut memory), 1), Err(Refusal::Malformed));
        assert_eq!(memory.bytes, [1, 2, 3, 4]);
        memory.writable = false;
        let write = sum(&[(5, 0, 1)], &[1]).encode();
        assert_eq!(answer(&serve(&write, &mut memory), 1), Err(Refusal::Access));
        let mut read = sum(&[(5, 0, 2)], &[]);
        read.operator = Operator::Read;
        assert_eq!(answer(&serve(&read.encode(), &mut memory), 2), Ok(&[1, 2][..]));
    }

    #[test]
    fn hostile__seeded_bytes() {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for round in 0..20_000 {
            let good = sum(&[(0, random() % 256, 1 + random() as u32 % 9)], &[7; 9]).encode();
            let mut data = good;
            for _ in 0..random() % 4 {
                let at = random() as usize % data.len();
                data[at] = random() as u8;
            }
            data.truncate(if round % 2 == 0 { 24 + random() as usize % 12 } else { data.len() });
            hostile(&data);
        }
    }
}
