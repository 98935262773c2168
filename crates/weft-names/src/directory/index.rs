//! Where names are found: shown bindings by type and instance, and by alias.

use super::name::Binding;
use crate::id::BindingId;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

/// The shown bindings of one type.
#[derive(Debug, Default)]
pub struct Service {
    /// Last instance by first instance and binding.
    ranges: BTreeMap<(u32, BindingId), u32>,
    /// The most instances that any binding had since the service was empty: a binding that begins
    /// farther before an instance does not contain it.
    longest: u32,
}

impl Service {
    /// Returns the bindings that overlap a range.
    pub fn matches(&self, lower: u32, upper: u32) -> impl Iterator<Item = &BindingId> {
        let from = (lower.saturating_sub(self.longest), BindingId::default());
        let begun = self.ranges.range(from..).take_while(move |((first, _), _)| *first <= upper);
        begun.filter(move |(_, last)| **last >= lower).map(|((_, id), _)| id)
    }
}

/// The shown bindings.
#[derive(Debug, Default)]
pub struct Index {
    /// With each service the turn of its look-ups.
    services: BTreeMap<u32, (Service, usize)>,
    aliases: BTreeMap<String, BTreeSet<BindingId>>,
}

impl Index {
    /// Bytes of a binding here.
    pub const ENTRY: usize = size_of::<((u32, BindingId), u32)>();

    /// Adds a binding.
    pub fn insert(&mut self, binding: &Binding) {
        let name = &binding.name;
        let (service, _) = self.services.entry(name.kind).or_default();
        service.ranges.insert((name.lower, binding.id), name.upper);
        service.longest = service.longest.max(name.upper - name.lower);
        if !name.alias.is_empty() {
            self.aliases.entry(name.alias.clone()).or_default().insert(binding.id);
        }
    }

    /// Removes a binding.
    pub fn remove(&mut self, binding: &Binding) {
        let name = &binding.name;
        if let Some((service, _)) = self.services.get_mut(&name.kind) {
            service.ranges.remove(&(name.lower, binding.id));
            if service.ranges.is_empty() {
                self.services.remove(&name.kind);
            }
        }
        if let Some(ids) = self.aliases.get_mut(&name.alias) {
            ids.remove(&binding.id);
            if ids.is_empty() {
                self.aliases.remove(&name.alias);
            }
        }
    }

    /// Returns the bindings of a type.
    pub fn get(&self, kind: u32) -> Option<&Service> {
        self.services.get(&kind).map(|(service, _)| service)
    }

    /// Returns the bindings of a type, with the turn of its look-ups.
    pub fn service(&mut self, kind: u32) -> Option<(&Service, &mut usize)> {
        self.services.get_mut(&kind).map(|(service, turn)| (&*service, turn))
    }

    /// Returns the bindings of an alias.
    pub fn alias(&self, alias: &str) -> impl Iterator<Item = &BindingId> {
        self.aliases.get(alias).into_iter().flatten()
    }

    /// Returns all types that have a binding.
    pub fn kinds(&self) -> impl Iterator<Item = u32> + '_ {
        self.services.keys().copied()
    }
}
