//! The map of slots to nodes.

use redis::Value;

use crate::store::redis::endpoint::Address;
use crate::store::redis::wire::{pairs, text};

const SLOTS: u16 = 16_384;
/// Name of a nameless node under `cluster-preferred-endpoint-type hostname`. It does not mean the node that sent the
/// reply.
pub(super) const NAMELESS: &str = "?";
/// Index of a slot without a node.
const UNASSIGNED: u16 = u16::MAX;

/// The slot of a key: that of the text between its first braces, unless that is empty
/// (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags>).
pub(crate) fn slot(key: &str) -> u16 {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    let hashed = match tag {
        Some((tag, _)) if !tag.is_empty() => tag,
        _ => key,
    };
    crc16::State::<crc16::XMODEM>::calculate(hashed.as_bytes()) % SLOTS
}

/// The primaries of a cluster, and the slots of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotMap {
    nodes: Vec<Address>,
    owner: Box<[u16]>,
}

impl SlotMap {
    /// Parses the reply of `CLUSTER SLOTS` from the node at this address. `None` if it is no such reply,
    /// or names no node.
    pub(super) fn read(reply: &Value, said_by: &Address) -> Option<Self> {
        let Value::Array(ranges) = reply else {
            return None;
        };
        let mut slots = Self {
            nodes: Vec::new(),
            owner: vec![UNASSIGNED; SLOTS.into()].into(),
        };
        for range in ranges {
            let Value::Array(range) = range else {
                return None;
            };
            let [Value::Int(first), Value::Int(last), Value::Array(node), ..] = &range[..] else {
                return None;
            };
            let [host, Value::Int(port), more @ ..] = &node[..] else {
                return None;
            };
            let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
            let mut host = text(host).unwrap_or_default();
            if host == NAMELESS {
                host = more.last().and_then(ip).unwrap_or_default();
            }
            let address = said_by.named(&host, u16::try_from(*port).ok()?);
            let node = slots.node(&address)?;
            slots.owner.get_mut(first..=last)?.fill(node);
        }
        (!slots.nodes.is_empty()).then_some(slots)
    }

    /// The index of a node, which is added if it is new.
    fn node(&mut self, address: &Address) -> Option<u16> {
        let place = self.nodes.iter().position(|node| node == address);
        let place = place.unwrap_or_else(|| {
            self.nodes.push(address.clone());
            self.nodes.len() - 1
        });
        u16::try_from(place).ok().filter(|node| *node != UNASSIGNED)
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Address> {
        self.nodes
            .get(usize::from(*self.owner.get(usize::from(slot))?))
    }

    /// Records a redirect: another node has this slot.
    pub(super) fn moved(&mut self, slot: u16, to: &Address) {
        if let Some(node) = self.node(to)
            && let Some(owner) = self.owner.get_mut(usize::from(slot))
        {
            *owner = node;
        }
    }

    /// A digest of the map, equal in every process. The order of its nodes does not matter.
    pub(super) fn number(&self) -> u64 {
        // FNV-1a: no attacker chooses maps that collide.
        let mut number = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |byte: u8| number = (number ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let mut last = None;
        for slot in 0..SLOTS {
            let owner = self.owner(slot);
            if owner != last {
                slot.to_be_bytes().into_iter().for_each(&mut add);
                let owner = owner.map(ToString::to_string).unwrap_or_default();
                owner.bytes().for_each(&mut add);
                add(0);
            }
            last = owner;
        }
        number
    }

    pub(super) fn nodes(&self) -> &[Address] {
        &self.nodes
    }
}

/// The IP address in a node's metadata. Used for a node without a name where names are preferred.
fn ip(more: &Value) -> Option<String> {
    let known = pairs(more.clone())?;
    let ip = known
        .iter()
        .find(|(name, _)| text(name).as_deref() == Some("ip"));
    text(&ip?.1)
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
        // From `CLUSTER KEYSLOT`.
        assert_eq!(slot("123456789"), 12_739);
        assert_eq!(slot("somekey"), 11_058);
        assert_eq!(slot("foo{hash_tag}"), 2_515);
        assert_eq!(slot("{hash_tag}bar{other}"), 2_515);
        assert_eq!(slot("foo{}{bar}"), 8_363);
        assert_eq!(slot("foo{{bar}}zap"), 4_015);
    }

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    /// All slots, at a node with this host and metadata.
    fn all(host: Value, more: &[Value]) -> Value {
        let replica = Value::Array(vec![bulk("10.0.0.9"), Value::Int(7_009), bulk("id")]);
        let node = [&[host, Value::Int(7_001), bulk("id")], more].concat();
        let range = vec![
            Value::Int(0),
            Value::Int(16_383),
            Value::Array(node),
            replica,
        ];
        Value::Array(vec![Value::Array(range)])
    }

    #[test]
    fn a_node_is_found_by_each_form_of_its_name() {
        let known = [Value::Array(vec![bulk("ip"), bulk("10.0.0.2")])];
        let known_map = [Value::Map(vec![(bulk("ip"), bulk("10.0.0.2"))])];
        let none = [Value::Array(vec![])];
        for (reply, at) in [
            (all(bulk("10.0.0.2"), &[]), "10.0.0.2:7001"),
            (all(bulk("10.0.0.2"), &none), "10.0.0.2:7001"),
            (all(bulk("redis.example"), &known), "redis.example:7001"),
            // Where the nodes differ in the port alone.
            (all(Value::Nil, &known), "10.0.0.1:7001"),
            (all(bulk(""), &none), "10.0.0.1:7001"),
            // Where names are preferred and the node has none.
            (all(bulk("?"), &known), "10.0.0.2:7001"),
            (all(bulk("?"), &known_map), "10.0.0.2:7001"),
            (all(bulk("?"), &none), "10.0.0.1:7001"),
            (all(bulk("fd00::7"), &[]), "[fd00::7]:7001"),
        ] {
            let slots = SlotMap::read(&reply, &address(7_000)).unwrap();
            assert_eq!(slots.owner(16_383).unwrap().to_string(), at, "{reply:?}");
            assert_eq!(slots.nodes().len(), 1, "a replica owns nothing");
        }
    }

    #[test]
    fn a_node_with_many_ranges_is_one_node() {
        let ranges = (0..100).map(|number| range(number * 2, number * 2, "", 7_000 + number % 3));
        let slots = SlotMap::read(&Value::Array(ranges.collect()), &address(7_000)).unwrap();
        assert_eq!(slots.nodes().len(), 3);
        for slot in 0..200 {
            let owner = slots.owner(slot).map(|owner| owner.port);
            let expected = (slot % 2 == 0).then_some(7_000 + slot / 2 % 3);
            assert_eq!(owner, expected, "{slot}");
        }
        assert_eq!(slots.owner(16_384), None, "there is no such slot");
    }

    #[test]
    fn a_slot_that_has_moved_belongs_to_another_node() {
        let reply = Value::Array(vec![range(0, 10, "", 7_000)]);
        let mut slots = SlotMap::read(&reply, &address(7_000)).unwrap();
        assert_eq!(slots.owner(11), None);
        slots.moved(3, &address(7_009));
        assert_eq!(slots.owner(3), Some(&address(7_009)));
        assert_eq!(slots.owner(4), Some(&address(7_000)));
        assert_eq!(slots.nodes().len(), 2);
    }

    #[test]
    fn the_number_of_a_map_does_not_depend_on_its_order() {
        let (one, two) = (
            range(0, 5_000, "", 7_000),
            range(5_001, 16_383, "10.0.0.2", 7_001),
        );
        let number = |ranges: &[Value]| {
            let slots = SlotMap::read(&Value::Array(ranges.to_vec()), &address(7_000));
            slots.unwrap().number()
        };
        let known = number(&[one.clone(), two.clone()]);
        assert_eq!(known, number(&[two, one.clone()]));
        for other in [
            range(5_001, 16_382, "10.0.0.2", 7_001),
            range(5_002, 16_383, "10.0.0.2", 7_001),
            range(5_001, 16_383, "10.0.0.3", 7_001),
            range(5_001, 16_383, "", 7_000),
        ] {
            assert_ne!(known, number(&[one.clone(), other.clone()]), "{other:?}");
        }
    }

    #[test]
    fn a_reply_that_is_no_map_is_none() {
        for reply in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![range(0, 16_384, "", 1)]),
            Value::Array(vec![range(-1, 5, "", 1)]),
            Value::Array(vec![range(6, 4, "", 1)]),
            Value::Array(vec![range(0, 5, "", -1)]),
            Value::Array(vec![range(0, 5, "", 70_000)]),
            Value::Array(vec![Value::Array(vec![Value::Int(1)])]),
        ] {
            assert_eq!(SlotMap::read(&reply, &address(1)), None, "{reply:?}");
        }
    }
}
