//! `Priority`: a Pod's class becomes its number, and there is at most one default class.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{Attributes, Operation, Plugin};
use crate::cluster::{Cluster, Resource};
use crate::error::Result;

const CLASSES: Resource<'static> = Resource::new("scheduling.k8s.io", "priorityclasses");

#[derive(Debug, Default)]
pub struct Priority;

#[async_trait]
impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    async fn admit(&self, attributes: &mut Attributes, cluster: &Cluster) -> Result<()> {
        if !attributes.is_resource("", "pods") {
            return Ok(());
        }
        if attributes.operation == Operation::Update {
            // A Pod keeps what it was created with, also when its update leaves it out.
            if let Some(old) = attributes.old.clone() {
                for field in ["priority", "preemptionPolicy"] {
                    if attributes.object["spec"].get(field).is_none()
                        && let Some(value) = old["spec"].get(field)
                    {
                        attributes.object["spec"][field] = value.clone();
                    }
                }
            }
            return Ok(());
        }
        let class = self.class_of(attributes, cluster).await?;
        let (value, policy) = match &class {
            Some(class) => {
                let name = class["metadata"]["name"].clone();
                attributes.object["spec"]["priorityClassName"] = name;
                (class["value"].as_i64().unwrap_or(0), class["preemptionPolicy"].as_str().unwrap_or("PreemptLowerPriority"))
            }
            None => (0, "PreemptLowerPriority"),
        };
        let spec = &mut attributes.object["spec"];
        if spec.get("priority").and_then(Value::as_i64).is_some_and(|given| given != value) {
            let given = &spec["priority"];
            let why = format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
            );
            return Err(attributes.forbidden(why));
        }
        spec["priority"] = json!(value);
        match spec.get("preemptionPolicy").and_then(Value::as_str) {
            None => spec["preemptionPolicy"] = json!(policy),
            Some(given) if given != policy => {
                let why = format!(
                    "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
                );
                return Err(attributes.forbidden(why));
            }
            Some(_) => {}
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes, cluster: &Cluster) -> Result<()> {
        if !attributes.is_resource(CLASSES.group, CLASSES.plural) || attributes.object["globalDefault"] != json!(true) {
            return Ok(());
        }
        let classes = cluster.list(CLASSES, "").await?;
        let other =
            classes.items.iter().find(|c| c["globalDefault"] == json!(true) && c["metadata"]["name"] != json!(attributes.name));
        match other {
            None => Ok(()),
            Some(other) => {
                let name = other["metadata"]["name"].as_str().unwrap_or_default();
                let why = format!("PriorityClass {name} is already marked as default. Only one default can exist");
                Err(attributes.forbidden(why))
            }
        }
    }
}

impl Priority {
    /// The class that the Pod names, else the default one of lowest value.
    async fn class_of(&self, attributes: &Attributes, cluster: &Cluster) -> Result<Option<std::sync::Arc<Value>>> {
        let name = attributes.object["spec"]["priorityClassName"].as_str().unwrap_or_default();
        if !name.is_empty() {
            return match cluster.get(CLASSES, "", name).await? {
                Some(class) => Ok(Some(class)),
                None => Err(attributes.forbidden(format!("no PriorityClass with name {name} was found"))),
            };
        }
        let classes = cluster.list(CLASSES, "").await?;
        let defaults = classes.items.into_iter().filter(|c| c["globalDefault"] == json!(true));
        Ok(defaults.min_by_key(|c| c["value"].as_i64().unwrap_or(0)))
    }
}
