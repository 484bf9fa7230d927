//! Which address is mapped to which name.
//!
//! An address is used again as late as possible, because programs keep addresses longer than they should.
//! Even then nothing is reached that should not be: the server checks the name, not the address.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::rc::Rc;

/// Names that have an address at once; the one that was not used for longest loses it.
const MAX_NAMES: usize = 8192;
/// Addresses of the range: a `/15`. The first 256 are left out.
const RANGE: u32 = 1 << 17;
const FIRST: u32 = 256;

struct Entry {
    name: Rc<str>,
    used: u64,
}

/// Names and their addresses.
pub struct Names {
    base: u32,
    next: u32,
    clock: u64,
    by_name: HashMap<Rc<str>, u32>,
    by_index: HashMap<u32, Entry>,
    by_use: BTreeMap<u64, u32>,
}

impl Names {
    /// No names yet, addresses from the `/15` that begins there.
    pub fn new(base: Ipv4Addr) -> Names {
        Names {
            base: u32::from(base),
            next: FIRST,
            clock: 0,
            by_name: HashMap::new(),
            by_index: HashMap::new(),
            by_use: BTreeMap::new(),
        }
    }

    /// The address that is mapped to a name, from now on if it had none.
    pub fn assign(&mut self, name: &str) -> Ipv4Addr {
        if let Some(index) = self.by_name.get(name).copied() {
            self.touch(index);
            return self.address(index);
        }
        while self.by_index.len() >= MAX_NAMES {
            let Some((_, oldest)) = self.by_use.pop_first() else { break };
            if let Some(entry) = self.by_index.remove(&oldest) {
                self.by_name.remove(&entry.name);
            }
        }
        while self.by_index.contains_key(&self.next) || matches!(self.next % 256, 0 | 255) {
            self.advance();
        }
        let index = self.next;
        self.advance();
        let name: Rc<str> = name.into();
        self.clock += 1;
        self.by_name.insert(name.clone(), index);
        self.by_index.insert(index, Entry { name, used: self.clock });
        self.by_use.insert(self.clock, index);
        self.address(index)
    }

    /// The address of a name that has one.
    pub fn find(&self, name: &str) -> Option<Ipv4Addr> {
        self.by_name.get(name).map(|index| self.address(*index))
    }

    /// Whether the address is of the range, whether or not it is mapped to a name now.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        u32::from(address).wrapping_sub(self.base) < RANGE
    }

    /// The name that an address is mapped to.
    pub fn name_of(&mut self, address: Ipv4Addr) -> Option<Rc<str>> {
        let index = u32::from(address).wrapping_sub(self.base);
        let name = self.by_index.get(&index)?.name.clone();
        self.touch(index);
        Some(name)
    }

    fn advance(&mut self) {
        self.next = if self.next + 1 >= RANGE { FIRST } else { self.next + 1 };
    }

    fn touch(&mut self, index: u32) {
        let Some(entry) = self.by_index.get_mut(&index) else { return };
        self.by_use.remove(&entry.used);
        self.clock += 1;
        entry.used = self.clock;
        self.by_use.insert(self.clock, index);
    }

    fn address(&self, index: u32) -> Ipv4Addr {
        Ipv4Addr::from(self.base + index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);

    #[test]
    fn a_name_keeps_its_address() {
        let mut names = Names::new(BASE);
        let one = names.assign("one");
        assert_eq!(one, Ipv4Addr::new(198, 18, 1, 1));
        assert_ne!(names.assign("two"), one);
        assert_eq!(names.assign("one"), one);
        assert_eq!(names.find("one"), Some(one));
        assert_eq!(names.name_of(one).as_deref(), Some("one"));
        assert_eq!(names.name_of(BASE), None);
        assert!(names.contains(Ipv4Addr::new(198, 19, 255, 255)));
        assert!(!names.contains(Ipv4Addr::new(198, 20, 0, 0)));
        assert!(!names.contains(Ipv4Addr::new(198, 17, 255, 255)));
    }

    #[test]
    fn the_name_that_was_not_used_for_longest_goes_first() {
        let mut names = Names::new(BASE);
        let kept = names.assign("kept");
        let lost = names.assign("lost");
        for n in 0..(MAX_NAMES - 1) {
            names.name_of(kept);
            names.assign(&format!("n{n}"));
        }
        assert_eq!(names.name_of(kept).as_deref(), Some("kept"));
        assert_eq!(names.name_of(lost), None);
        assert_eq!(names.by_name.len(), MAX_NAMES);
        assert_eq!(names.by_use.len(), MAX_NAMES);
    }

    #[test]
    fn no_two_names_share_an_address_however_many_come() {
        let mut names = Names::new(BASE);
        let mut given = HashMap::new();
        for n in 0..200_000u32 {
            let name = format!("n{n}");
            let address = names.assign(&name);
            assert!(names.contains(address) && !matches!(address.octets()[3], 0 | 255));
            given.insert(address, name);
        }
        for (address, name) in given {
            if let Some(now) = names.name_of(address) {
                assert_eq!(*now, name);
            }
        }
        assert_eq!(names.by_index.len(), MAX_NAMES);
    }
}
