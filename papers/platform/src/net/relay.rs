//! Broadcasts that programs forward themselves, message by message: MPICH's way. Each child costs
//! another transfer of the data from the host.

use super::{Packet, Unsent, World, QUEUE};
use std::cell::RefCell;
use std::collections::BTreeMap;
use weft_core::group::tree;

/// The packets of messages that are not whole, by root and handler.
#[derive(Default)]
pub(super) struct Relay(RefCell<BTreeMap<(usize, u16), Vec<Packet>>>);

impl World {
    fn relay_children(&self, root: usize, node: usize) -> Vec<usize> {
        let shape = self.message_tree.unwrap_or(tree::Tree::Binary);
        tree::children(shape, root, node, self.nodes.len()).collect()
    }

    /// Sends a packet of a broadcast to the children of its root.
    pub fn begin_relay(&self, root: usize, packet: &Packet) -> Result<(), Unsent> {
        let children = self.relay_children(root, root);
        if packet.data.len() > self.most {
            return Err(Unsent::TooLong { most: self.most });
        }
        if self.nodes[root].out.borrow().len() + children.len() > QUEUE {
            return Err(Unsent::Busy);
        }
        children.into_iter().for_each(|child| self.enqueue(root, packet.relayed(root, child)));
        Ok(())
    }

    /// Notes a packet that has come to a node; returns what the node sends on: nothing before its
    /// message is whole.
    pub fn relay(&self, node: usize, packet: &Packet) -> Vec<Packet> {
        let Some(root) = packet.relayed else { return Vec::new() };
        let children = self.relay_children(root, node);
        let mut parts = self.nodes[node].relay.0.borrow_mut();
        let key = (root, packet.handler);
        let message = parts.entry(key).or_default();
        message.push(packet.relayed(root, node));
        if packet.data.len() == self.most {
            return Vec::new();
        }
        let message = parts.remove(&key).unwrap_or_default();
        let to = |child| message.iter().map(move |part| part.relayed(root, child));
        children.into_iter().flat_map(to).collect()
    }
}

impl Packet {
    /// Returns a copy that goes to a child in the tree of `root`.
    fn relayed(&self, root: usize, child: usize) -> Packet {
        Packet {
            from: root,
            to: Some(child),
            handler: self.handler,
            argument: self.argument,
            data: self.data.clone(),
            left: 1,
            first: true,
            relayed: Some(root),
        }
    }
}
