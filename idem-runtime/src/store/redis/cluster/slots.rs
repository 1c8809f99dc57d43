//! Which node has which slot.

use redis::Value;

use crate::store::redis::address::{Address, text};

const SLOTS: u16 = 16_384;
/// A slot that no node has.
const NOBODY: u16 = u16::MAX;

/// The slot of a key: of what stands between its first braces, if anything does
/// (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags>).
pub(super) fn slot(key: &str) -> u16 {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    let hashed = match tag {
        Some((tag, _)) if !tag.is_empty() => tag,
        _ => key,
    };
    crc16::State::<crc16::XMODEM>::calculate(hashed.as_bytes()) % SLOTS
}

/// The primaries of a cluster, and what each has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slots {
    nodes: Vec<Address>,
    owner: Box<[u16]>,
}

impl Slots {
    /// The answer of `CLUSTER SLOTS`, from the node at this address. `None` if it is no such answer,
    /// or names no node.
    pub(super) fn read(reply: &Value, said_by: &Address) -> Option<Self> {
        let Value::Array(ranges) = reply else {
            return None;
        };
        let mut slots = Self {
            nodes: Vec::new(),
            owner: vec![NOBODY; SLOTS.into()].into(),
        };
        for range in ranges {
            let Value::Array(range) = range else {
                return None;
            };
            let [Value::Int(first), Value::Int(last), Value::Array(node), ..] = &range[..] else {
                return None;
            };
            let [host, Value::Int(port), ..] = &node[..] else {
                return None;
            };
            let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
            let host = text(host).unwrap_or_default();
            let address = said_by.named(&host, u16::try_from(*port).ok()?);
            let node = slots.node(&address)?;
            slots.owner.get_mut(first..=last)?.fill(node);
        }
        (!slots.nodes.is_empty()).then_some(slots)
    }

    fn node(&mut self, address: &Address) -> Option<u16> {
        let place = self.nodes.iter().position(|node| node == address);
        let place = place.unwrap_or_else(|| {
            self.nodes.push(address.clone());
            self.nodes.len() - 1
        });
        u16::try_from(place).ok().filter(|node| *node != NOBODY)
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Address> {
        self.nodes
            .get(usize::from(*self.owner.get(usize::from(slot))?))
    }

    /// A node says that another has this slot.
    pub(super) fn moved(&mut self, slot: u16, to: &Address) {
        if let Some(node) = self.node(to)
            && let Some(owner) = self.owner.get_mut(usize::from(slot))
        {
            *owner = node;
        }
    }

    pub(super) fn nodes(&self) -> &[Address] {
        &self.nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> Address {
        Address {
            host: "10.0.0.1".into(),
            port,
        }
    }

    fn range(first: i64, last: i64, host: &str, port: i64) -> Value {
        let host = Value::BulkString(host.as_bytes().to_vec());
        let node = Value::Array(vec![host, Value::Int(port)]);
        Value::Array(vec![Value::Int(first), Value::Int(last), node])
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        // `CLUSTER KEYSLOT` says so.
        assert_eq!(slot("123456789"), 12_739);
        assert_eq!(slot("somekey"), 11_058);
        assert_eq!(slot("foo{hash_tag}"), 2_515);
        assert_eq!(slot("{hash_tag}bar{other}"), 2_515);
        assert_eq!(slot("foo{}{bar}"), 8_363);
        assert_eq!(slot("foo{{bar}}zap"), 4_015);
    }

    #[test]
    fn a_node_that_leaves_its_name_out_is_the_one_that_was_asked() {
        let reply = Value::Array(vec![
            range(0, 5_000, "", 7_000),
            range(5_001, 16_383, "10.0.0.2", 7_001),
        ]);
        let slots = Slots::read(&reply, &address(7_000)).unwrap();
        assert_eq!(slots.owner(5_000), Some(&address(7_000)));
        assert_eq!(slots.owner(5_001).unwrap().to_string(), "10.0.0.2:7001");
    }

    #[test]
    fn a_slot_that_has_moved_belongs_to_another_node() {
        let reply = Value::Array(vec![range(0, 10, "", 7_000)]);
        let mut slots = Slots::read(&reply, &address(7_000)).unwrap();
        assert_eq!(slots.owner(11), None);
        slots.moved(3, &address(7_009));
        assert_eq!(slots.owner(3), Some(&address(7_009)));
        assert_eq!(slots.owner(4), Some(&address(7_000)));
        assert_eq!(slots.nodes().len(), 2);
    }

    #[test]
    fn what_is_no_map_of_slots_is_none() {
        for reply in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![range(0, 16_384, "", 1)]),
            Value::Array(vec![range(-1, 5, "", 1)]),
            Value::Array(vec![range(0, 5, "", 70_000)]),
            Value::Array(vec![Value::Array(vec![Value::Int(1)])]),
        ] {
            assert_eq!(Slots::read(&reply, &address(1)), None, "{reply:?}");
        }
    }
}
