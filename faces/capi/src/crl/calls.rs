//! The functions of all nodes of `crl.h`, compared while their messages are combined: nodes that
//! call different ones are told so, in place of waiting for each other.

/// A function of all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Function {
    Barrier = 1,
    Send,
    Receive,
    Add,
    Least,
    Greatest,
}

const ALL: [Function; 6] = [
    Function::Barrier,
    Function::Send,
    Function::Receive,
    Function::Add,
    Function::Least,
    Function::Greatest,
];

impl Function {
    fn of(code: u8) -> Option<Function> {
        ALL.into_iter().find(|function| *function as u8 == code)
    }

    pub fn name(self) -> &'static str {
        match self {
            Function::Barrier => "rgn_barrier",
            Function::Send => "rgn_bcast_send",
            Function::Receive => "rgn_bcast_recv",
            Function::Add => "rgn_reduce_dadd",
            Function::Least => "rgn_reduce_dmin",
            Function::Greatest => "rgn_reduce_dmax",
        }
    }

    /// True if two nodes may call these at the same time.
    fn goes_with(self, other: Function) -> bool {
        let broadcasts = |function| matches!(function, Function::Send | Function::Receive);
        self == other || broadcasts(self) && broadcasts(other)
    }
}

/// The call of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    function: Function,
    node: u32,
}

/// Bytes of a call: function, node.
const CALL: usize = 1 + 4;
/// Bytes before those of the function: the call of one node, and one that does not go with it, or
/// zeroes.
const HEAD: usize = 2 * CALL;

fn write(call: Option<Call>) -> [u8; CALL] {
    let mut bytes = [0; CALL];
    if let Some(Call { function, node }) = call {
        bytes[0] = function as u8;
        bytes[1..].copy_from_slice(&node.to_le_bytes());
    }
    bytes
}

fn read(bytes: &[u8], at: usize) -> Option<Call> {
    let (code, node) = bytes.get(at..at + CALL)?.split_first()?;
    let node = u32::from_le_bytes(*node.first_chunk()?);
    Some(Call { function: Function::of(*code)?, node })
}

/// Returns the message of a node's call.
pub fn message(function: Function, node: usize, bytes: &[u8]) -> Vec<u8> {
    let call = Call { function, node: node as u32 };
    [&write(Some(call))[..], &write(None), bytes].concat()
}

/// Combines two messages; `both` combines their bytes.
pub fn join(all: &[u8], other: &[u8], both: impl Fn(&[u8], &[u8]) -> Vec<u8>) -> Vec<u8> {
    let first = read(all, 0);
    let goes = |call: &Call| first.is_none_or(|first| first.function.goes_with(call.function));
    let rest = [read(all, CALL), read(other, 0), read(other, CALL)];
    let odd = rest.into_iter().flatten().find(|call| !goes(call));
    let bytes = match odd {
        Some(_) => Vec::new(),
        None => both(bytes_of(all), bytes_of(other)),
    };
    [&write(first)[..], &write(odd), &bytes].concat()
}

fn bytes_of(message: &[u8]) -> &[u8] {
    message.get(HEAD..).unwrap_or_default()
}

/// Returns the bytes of the message of all nodes.
///
/// # Errors
/// Nodes call functions that do not go together.
pub fn result(all: &[u8]) -> Result<&[u8], String> {
    match (read(all, 0), read(all, CALL)) {
        (Some(first), Some(odd)) => Err(format!(
            "node {} calls {}, and node {} {}: all nodes call the same functions of all nodes in \
             the same order",
            first.node,
            first.function.name(),
            odd.node,
            odd.function.name(),
        )),
        _ => Ok(bytes_of(all)),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn all_of(calls: &[Function]) -> Vec<u8> {
        let messages = calls.iter().enumerate().map(|(node, &call)| message(call, node, b"x"));
        let both = |all: &[u8], other: &[u8]| [all, other].concat();
        messages.reduce(|all, other| join(&all, &other, both)).unwrap()
    }

    #[test]
    fn result__names_the_nodes_that_call_different_functions() {
        use Function::{Add, Barrier, Least, Receive, Send};
        assert_eq!(result(&all_of(&[Add, Add, Add])), Ok(&b"xxx"[..]));
        assert_eq!(result(&all_of(&[Receive, Send, Receive])), Ok(&b"xxx"[..]));
        for (calls, text) in [
            (&[Add, Barrier, Add][..], "node 0 calls rgn_reduce_dadd, and node 1 rgn_barrier"),
            (&[Add, Add, Least], "node 0 calls rgn_reduce_dadd, and node 2 rgn_reduce_dmin"),
            (&[Send, Barrier, Barrier], "node 0 calls rgn_bcast_send, and node 1 rgn_barrier"),
        ] {
            let error = result(&all_of(calls)).unwrap_err();
            assert!(error.starts_with(text), "{error}");
        }
        // Two parts of a tree, the second of which has met a wrong call already.
        let (left, right) = (all_of(&[Add, Add]), all_of(&[Add, Barrier]));
        let error = result(&join(&left, &right, |_, _| Vec::new())).unwrap_err();
        assert!(error.contains("node 1 rgn_barrier"), "{error}");
    }
}
