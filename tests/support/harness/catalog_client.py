"""Changes an Iceberg catalog with PyIceberg, through requests that are repeated under a key.

Arguments: the address of the catalog, the token of the client, seconds to wait for a reply, and `keys`, or `none` for
requests without a key. Each line of the input is an operation, as JSON. Each line of the output is its outcome, in that
order: `null`, or the `error` by its name and its `message`.
"""

import json
import logging
import os
import sys
import time
import uuid

# Whatever the environment says, everything stays on loopback.
for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
    del os.environ[name]

from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType
from requests.adapters import HTTPAdapter
from urllib3 import Retry

CATALOG, TOKEN, TIMEOUT, KEYS = sys.argv[1:]

# Of commits that are made again.
logging.disable()


class RepeatingAdapter(HTTPAdapter):
    """Repeats a request that has no answer, or is to come again. A mutation has a key, if the catalog takes keys."""

    lifetime = None

    def __init__(self):
        retry = Retry(100, status_forcelist=[503], allowed_methods=None, backoff_factor=0.01, backoff_max=0.2)
        super().__init__(max_retries=retry)

    def send(self, request, **settings):
        if self.lifetime and request.method in ("POST", "DELETE"):
            request.headers["Idempotency-Key"] = uuid7()
        response = super().send(request, **settings | {"timeout": float(TIMEOUT)})
        if request.path_url == "/v1/config" and KEYS == "keys":
            self.lifetime = response.json().get("idempotency-key-lifetime")
        return response


class RepeatingCatalog(RestCatalog):
    """The catalog of PyIceberg, with an adapter of its own, as it mounts one itself for SigV4."""

    adapter = RepeatingAdapter()

    def _create_session(self):
        session = super()._create_session()
        session.mount(self.uri, self.adapter)
        return session


def uuid7():
    millis = time.time_ns() // 1_000_000
    value = bytearray(millis.to_bytes(6, "big") + os.urandom(10))
    value[6] = value[6] & 0x0F | 0x70
    value[8] = value[8] & 0x3F | 0x80
    return str(uuid.UUID(bytes=bytes(value)))


def create_namespace(catalog, namespace):
    catalog.create_namespace(namespace)


SCHEMA = Schema(NestedField(1, "number", LongType(), required=True))


def create_table(catalog, table, properties):
    catalog.create_table(table, SCHEMA, properties=properties)


def stage_table(catalog, table, properties):
    """Creates a table by its first commit."""
    with catalog.create_table_transaction(table, SCHEMA, properties=properties):
        pass


def set_property(catalog, table, name, value):
    with catalog.load_table(table).transaction() as transaction:
        transaction.set_properties({name: value})


def add_column(catalog, table, name):
    with catalog.load_table(table).update_schema() as update:
        update.add_column(name, StringType())


def append(catalog, table, file):
    """Appends a data file, of which the catalog knows the name alone."""
    unknown = {"column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds"}
    data = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1,
        spec_id=0,
        **dict.fromkeys(unknown, {}),
        **dict.fromkeys(["split_offsets", "key_metadata", "equality_ids", "sort_order_id"]),
    )
    with catalog.load_table(table).transaction() as transaction:
        with transaction.update_snapshot().fast_append() as snapshot:
            snapshot.append_data_file(data)


def rename_table(catalog, table, to):
    catalog.rename_table(table, to)


def drop_table(catalog, table):
    catalog.drop_table(table)


def main():
    settings = {
        "py-catalog-impl": "__main__.RepeatingCatalog",
        "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
        "token": TOKEN,
        "uri": CATALOG,
    }
    catalog = load_catalog("catalog", **settings)
    for line in sys.stdin:
        operation = json.loads(line)
        try:
            globals()[operation.pop("operation")](catalog, **operation)
            outcome = None
        except Exception as error:
            outcome = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(outcome), flush=True)


main()
