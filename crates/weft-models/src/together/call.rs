//! Calls of all ranks, which ranks compare.

use std::fmt;

/// Bits of a call's number on the wire: enough for one each microsecond during 200 days.
const NUMBER_BITS: u32 = 44;
/// Bits of its function.
const FUNCTION_BITS: u32 = 2;

/// A function that all ranks call together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Barrier,
    Reduce,
    Gather,
    /// From this rank.
    Broadcast(usize),
}

/// A call: how many came before it, and its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub number: u64,
    pub function: Function,
}

impl Call {
    /// A call as all ranks see it: of a root above 2^18 the low bits.
    pub fn new(number: u64, function: Function) -> Call {
        Call::from_bytes(Call { number, function }.to_bytes())
    }

    pub fn to_bytes(self) -> [u8; 8] {
        let (function, root) = match self.function {
            Function::Barrier => (0, 0),
            Function::Reduce => (1, 0),
            Function::Gather => (2, 0),
            Function::Broadcast(root) => (3, root as u64),
        };
        let above = function | root << FUNCTION_BITS;
        (self.number | above << NUMBER_BITS).to_le_bytes()
    }

    pub fn from_bytes(bytes: [u8; 8]) -> Call {
        let word = u64::from_le_bytes(bytes);
        let above = word >> NUMBER_BITS;
        let function = match above & ((1 << FUNCTION_BITS) - 1) {
            0 => Function::Barrier,
            1 => Function::Reduce,
            2 => Function::Gather,
            _ => Function::Broadcast((above >> FUNCTION_BITS) as usize),
        };
        Call { number: word & ((1 << NUMBER_BITS) - 1), function }
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Function::Barrier => write!(f, "a barrier"),
            Function::Reduce => write!(f, "a reduction"),
            Function::Gather => write!(f, "a gather"),
            Function::Broadcast(root) => write!(f, "a broadcast from rank {root}"),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn new__a_root_beyond_its_bits_is_what_others_read() {
        let call = Call::new(7, Function::Broadcast((1 << 18) + 5));
        assert_eq!(Call::from_bytes(call.to_bytes()), call);
    }

    #[test]
    fn to_bytes__of_each_function_come_back() {
        let functions = [Function::Barrier, Function::Reduce, Function::Gather];
        let broadcasts = [0, 1, 63, (1 << 18) - 1].map(Function::Broadcast);
        for function in functions.into_iter().chain(broadcasts) {
            for number in [0, 1, (1 << NUMBER_BITS) - 1] {
                let call = Call { number, function };
                assert_eq!(Call::from_bytes(call.to_bytes()), call);
            }
        }
    }
}
