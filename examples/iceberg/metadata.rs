//! The metadata of a table, format version 2: its first form, and the effect of a commit.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::refusal::Refusal;

/// A request for a table.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct NewTable {
    pub(crate) name: String,
    location: Option<String>,
    schema: Value,
    partition_spec: Option<Value>,
    write_order: Option<Value>,
    /// Whether the table is created by a later commit, with `assert-create`.
    #[serde(default)]
    pub(crate) stage_create: bool,
    #[serde(default)]
    properties: Map<String, Value>,
}

impl NewTable {
    /// The metadata of the table: at this location unless the request names another one.
    pub(crate) fn metadata(self, uuid: Uuid, location: String) -> Result<Value, Refusal> {
        let location = self.location.unwrap_or(location);
        let unpartitioned = || json!({ "spec-id": 0, "fields": [] });
        let unsorted = || json!({ "order-id": 0, "fields": [] });
        let updates = [
            json!({ "action": "assign-uuid", "uuid": uuid.to_string() }),
            json!({ "action": "set-location", "location": location }),
            json!({ "action": "add-schema", "schema": self.schema }),
            json!({ "action": "set-current-schema", "schema-id": LAST }),
            json!({ "action": "add-spec", "spec": self.partition_spec.unwrap_or_else(unpartitioned) }),
            json!({ "action": "set-default-spec", "spec-id": LAST }),
            json!({ "action": "add-sort-order", "sort-order": self.write_order.unwrap_or_else(unsorted) }),
            json!({ "action": "set-default-sort-order", "sort-order-id": LAST }),
            json!({ "action": "set-properties", "updates": self.properties }),
        ];
        updated(Value::Null, &updates)
    }
}

/// Updates of a table, under requirements.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Commit {
    requirements: Vec<Value>,
    updates: Vec<Value>,
}

impl Commit {
    /// Whether it creates the table.
    pub(crate) fn creates(&self) -> bool {
        let mut kinds = self.requirements.iter().map(|it| &it["type"]);
        kinds.any(|kind| kind == "assert-create")
    }

    /// The metadata after the updates, if the requirements hold.
    pub(crate) fn apply(&self, metadata: Value) -> Result<Value, Refusal> {
        for requirement in &self.requirements {
            if !holds(requirement, &metadata).ok_or_else(|| malformed(requirement))? {
                let of_type = &requirement["type"];
                return Err(Refusal::CommitFailed(format!("not met: {of_type}")));
            }
        }
        updated(metadata, &self.updates)
    }
}

/// Whether a requirement holds. `None`: it is malformed, or of a kind that this catalog does not know.
fn holds(requirement: &Value, metadata: &Value) -> Option<bool> {
    let kind = requirement["type"].as_str()?.strip_prefix("assert-")?;
    let (field, member) = match kind {
        "create" => return Some(metadata.is_null()),
        "table-uuid" => (&metadata[kind], "uuid"),
        "ref-snapshot-id" => {
            let name = requirement["ref"].as_str()?;
            (&metadata["refs"][name]["snapshot-id"], "snapshot-id")
        }
        "last-assigned-field-id" => (&metadata["last-column-id"], kind),
        "last-assigned-partition-id" => (&metadata["last-partition-id"], kind),
        "current-schema-id" | "default-spec-id" | "default-sort-order-id" => {
            (&metadata[kind], kind)
        }
        _ => return None,
    };
    Some(*field == requirement[member])
}

/// The metadata after these updates. Before, it is null where there is no table.
fn updated(mut metadata: Value, updates: &[Value]) -> Result<Value, Refusal> {
    if metadata.is_null() {
        metadata = json!({
            "format-version": 2,
            "last-sequence-number": 0,
            "schemas": [],
            "partition-specs": [],
            "sort-orders": [],
            "snapshots": [],
            "current-snapshot-id": null,
            "refs": {},
            "properties": {},
        });
    }
    for update in updates {
        apply(update, &mut metadata).ok_or_else(|| malformed(update))?;
    }
    let columns = highest_id(&metadata["schemas"], COLUMN_IDS);
    metadata["last-column-id"] = columns.unwrap_or(0).into();
    // The ids of partition fields begin with 1000.
    let fields = highest_id(&metadata["partition-specs"], &["field-id"]);
    metadata["last-partition-id"] = fields.unwrap_or(999).into();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    metadata["last-updated-ms"] = json!(now.map_or(0, |now| now.as_millis()));
    Ok(metadata)
}

/// The members that are ids of columns, also of nested types.
const COLUMN_IDS: &[&str] = &["id", "element-id", "key-id", "value-id"];

/// The highest id at any depth, of members with these names.
fn highest_id(of: &Value, names: &[&str]) -> Option<i64> {
    match of {
        Value::Array(items) => items.iter().filter_map(|it| highest_id(it, names)).max(),
        Value::Object(members) => {
            let ids = members.iter().map(|(name, member)| {
                let id = names.contains(&&**name).then(|| member.as_i64());
                id.unwrap_or_else(|| highest_id(member, names))
            });
            ids.flatten().max()
        }
        _ => None,
    }
}

/// The id of the same commit's last addition.
const LAST: i64 = -1;

/// Applies an update. `None`: it is malformed, or of a kind that this catalog does not know.
fn apply(update: &Value, metadata: &mut Value) -> Option<()> {
    let of = |member: &str| update.get(member);
    match update["action"].as_str()? {
        "assign-uuid" => metadata["table-uuid"] = of("uuid")?.clone(),
        "set-location" => metadata["location"] = of("location")?.clone(),
        "upgrade-format-version" => {
            metadata["format-version"] = of("format-version")?.clone();
        }
        "add-schema" => add(&mut metadata["schemas"], of("schema")?)?,
        "add-spec" => add(&mut metadata["partition-specs"], of("spec")?)?,
        "add-sort-order" => add(&mut metadata["sort-orders"], of("sort-order")?)?,
        "set-current-schema" => {
            let id = chosen(&metadata["schemas"], "schema-id", of("schema-id")?)?;
            metadata["current-schema-id"] = id;
        }
        "set-default-spec" => {
            let id = chosen(&metadata["partition-specs"], "spec-id", of("spec-id")?)?;
            metadata["default-spec-id"] = id;
        }
        "set-default-sort-order" => {
            let id = chosen(&metadata["sort-orders"], "order-id", of("sort-order-id")?)?;
            metadata["default-sort-order-id"] = id;
        }
        "add-snapshot" => {
            let snapshot = of("snapshot")?;
            metadata["last-sequence-number"] = snapshot.get("sequence-number")?.clone();
            add(&mut metadata["snapshots"], snapshot)?;
        }
        "set-snapshot-ref" => {
            let (name, id) = (of("ref-name")?.as_str()?, of("snapshot-id")?);
            metadata["refs"][name] = json!({ "type": of("type")?, "snapshot-id": id });
            if name == "main" {
                metadata["current-snapshot-id"] = id.clone();
            }
        }
        "set-properties" => {
            let set = of("updates")?.as_object()?.clone();
            metadata["properties"].as_object_mut()?.extend(set);
        }
        _ => return None,
    }
    Some(())
}

fn add(list: &mut Value, item: &Value) -> Option<()> {
    list.as_array_mut()?.push(item.clone());
    Some(())
}

/// The id of the listed item that an update names: by default the last one.
fn chosen(list: &Value, id: &str, named: &Value) -> Option<Value> {
    let mut ids = list.as_array()?.iter().map(|item| &item[id]);
    let found = if *named == LAST {
        ids.next_back()
    } else {
        ids.find(|id| *id == named)
    };
    found.cloned()
}

fn malformed(what: &Value) -> Refusal {
    Refusal::BadRequest(format!("malformed, or not supported: {what}"))
}
