#!/usr/bin/env python3
"""Checks canonical-1.txt against a second implementation: cbor2 and hashlib.

usage: pip install cbor2 && python3 check.py [FILE]

Every line of the file is written again from the values below, which are stated here on their own
and not read from the file. Exit status 1 if a line differs, is missing, or is unknown here.
"""

import base64
import hashlib
import math
import pathlib
import struct
import sys

import cbor2


def head(major, number):
    """The first bytes of an item, taken from how cbor2 writes a number."""
    first, *rest = cbor2.dumps(number)
    return bytes([major << 5 | first, *rest])


def encode(value):
    """Canonical CBOR; scalars by cbor2, containers here.

    cbor2 sorts map entries by the length of the key first (RFC 7049), format 1 by its bytes alone
    (RFC 8949), which differs between keys of different types.
    """
    if isinstance(value, dict):
        entries = sorted((encode(k), encode(v)) for k, v in value.items())
        return head(5, len(entries)) + b"".join(k + v for k, v in entries)
    if isinstance(value, (list, tuple)):
        return head(4, len(value)) + b"".join(map(encode, value))
    if value == 0 and isinstance(value, float):
        value = 0.0
    return cbor2.dumps(value, canonical=True)


SINGLE_TENTH = struct.unpack(">f", struct.pack(">f", 0.1))[0]
PLACE = {"id": 7, "items": [["a", 1]], "meta": {"x": 1, "y": -2}}

VALUES = {
    "0": 0,
    "23": 23,
    "24": 24,
    "255": 255,
    "256": 256,
    "65535": 65535,
    "65536": 65536,
    "u32-max": 2**32 - 1,
    "2^32": 2**32,
    "u64-max": 2**64 - 1,
    "-1": -1,
    "-24": -24,
    "-25": -25,
    "-256": -256,
    "-257": -257,
    "i64-min": -(2**63),
    "2^64": 2**64,
    "u128-max": 2**128 - 1,
    "-2^64": -(2**64),
    "-2^64-1": -(2**64) - 1,
    "i128-min": -(2**127),
    "0.0": 0.0,
    "-0.0": -0.0,
    "1.0": 1.0,
    "1.5": 1.5,
    "-4.1": -4.1,
    "0.1": 0.1,
    "65504.0": 65504.0,
    "65505.0": 65505.0,
    "smallest-half": 2.0**-24,
    "below-smallest-half": 2.0**-25,
    "smallest-single": 2.0**-149,
    "smallest-double": 2.0**-1074,
    "f64-max": sys.float_info.max,
    "nan": math.nan,
    "nan-with-payload": struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0],
    "infinity": math.inf,
    "-infinity": -math.inf,
    "0.1-single": SINGLE_TENTH,
    "1.5-single": 1.5,
    "false": False,
    "true": True,
    "empty-text": "",
    "text": "ü€𝄞",
    "text-24": "abcdefghijklmnopqrstuvwx",
    "display": "shown",
    "display-24": "abcdefghijklmnopqrstuvwx",
    "char": "ü",
    "bytes": b"\x00\xff",
    "byte-vec": [0, 255],
    "unit": [],
    "unit-struct": [],
    "none": None,
    "some": 7,
    "some-none": [None],
    "some-unit": [],
    "some-some": 7,
    "some-some-none": [[None]],
    "some-seq-of-none": [[None]],
    "newtype": "x",
    "newtype-none": None,
    "seq": [1, 2, 3],
    "seq-of-options": [1, None],
    "seq-of-unknown-length": [0, 1, 2],
    "long-seq-of-unknown-length": list(range(24)),
    "tuple": [1, "a", True],
    "tuple-struct": [1, "a"],
    "struct": {"zeta": 1, "b": 2, "some_none": [None], "unit": []},
    "map-by-first-byte": {-1: 1, 10: 2, 100: 3},
    "map-of-tuples": {(2, "b"): False, (1, "c"): True},
    "map-of-30": {i * 1000: i for i in range(30)},
    "map-with-null": {"a": None},
    "variant-unit": "Unit",
    "variant-newtype": {"New": 1},
    "variant-tuple": {"Tuple": [1, True]},
    "variant-struct": {"St": {"a": -1}},
    "ipv4": "127.0.0.1",
    "place": PLACE,
}

FINGERPRINTS = {
    "value": PLACE,
    "no-arguments": {},
    "arguments": {"b": 7, "aa": None},
}

# Each a scope, in a list of one or none, and a key.
KEYS = {
    "text": ([], "order-1"),
    "number": ([], 7),
    "tuple": ([], ["a", "bc"]),
    "tuple-split-elsewhere": ([], ["ab", "c"]),
    "scope-a-key-b": (["a"], "b"),
    "scope-b-key-a": (["b"], "a"),
    "no-scope": ([], ["b", "a"]),
    # Of a format string: a map of one entry, from the text between the placeholders to theirs.
    "format": ([], {"{}/{}": ["a/b", "c"]}),
    "format-split-elsewhere": ([], {"{}/{}": ["a", "b/c"]}),
    "format-text-before": ([], {"order-{}": ["7"]}),
    "format-braces": ([], {"{{}}{}": ["7"]}),
    # A placeholder alone is its text.
    "format-alone": ([], "7"),
    "format-scope": ([{"tenant-{}": ["a"]}], "7"),
}

KEYS_BY_FINGERPRINT = {"no-scope": ([], {"b": 7}), "scope-b": (["b"], {"b": 7})}

OP = "shop::place"


def sha256(*elements):
    return hashlib.sha256(encode(elements)).digest()


def fingerprint(value):
    return sha256("idempotency fingerprint", 1, OP, 1, value)


def shown(digest):
    return f"{digest.hex()} {base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def lines():
    for name, value in VALUES.items():
        yield f"value {name} {encode(value).hex()}"
    for name, value in FINGERPRINTS.items():
        yield f"fingerprint {name} {OP} {encode(value).hex()} {fingerprint(value).hex()}"
    for name, (scope, key) in KEYS.items():
        written = encode(scope[0]).hex() if scope else "-"
        digest = sha256("idempotency key", 1, OP, scope, key)
        yield f"key {name} {OP} {written} {encode(key).hex()} {shown(digest)}"
    for name, (scope, value) in KEYS_BY_FINGERPRINT.items():
        written = encode(scope[0]).hex() if scope else "-"
        asked = fingerprint(value)
        digest = sha256("idempotency key by fingerprint", 1, OP, scope, asked)
        yield f"key-by-fingerprint {name} {OP} {written} {asked.hex()} {shown(digest)}"


def main():
    file = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).with_name("canonical-1.txt")
    text = pathlib.Path(file).read_text(encoding="utf-8")
    frozen = [line for line in text.splitlines() if line and not line.startswith("#")]
    expected = list(lines())
    wrong = [f"- {line}" for line in frozen if line not in expected]
    wrong += [f"+ {line}" for line in expected if line not in frozen]
    if not wrong and frozen != expected:
        wrong.append("the lines are not in this order, or one is there twice")
    print("\n".join(wrong) or f"{len(frozen)} vectors agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
