//! The sockets of an agent on its host: their names, and the removal of those that are files.

use crate::{cluster, status, sys};
use weft_link::shm::broker::Broker;

/// Returns the names of all sockets of the agent at `name`, which are paths if that is one.
pub fn sockets_of(name: &str) -> [String; 6] {
    [
        name.to_string(),
        status::socket_name(name),
        Broker::socket_name(name),
        weft_streams::socket_name(name),
        weft_cluster::socket_name(name),
        cluster::tipc_socket_name(name),
    ]
}

/// Removes the socket files of the agent at `name`, which has ended: those at which nobody listens.
/// An agent that has become another user may not remove them itself.
pub fn remove_sockets(name: &str) {
    if !name.starts_with('@') {
        sockets_of(name).iter().for_each(|path| sys::remove_deserted_socket(path));
    }
}
