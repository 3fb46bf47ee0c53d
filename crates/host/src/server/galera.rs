//! A node of a Galera cluster (MariaDB, Percona XtraDB Cluster): its state, and the cluster as it sees it.
//!
//! A node that is in no primary component refuses most statements, but not SHOW.

use std::collections::BTreeMap;

use serde::Serialize;

use super::query::rows;
use mysql::{Connection, Error};

/// A server without Galera has neither.
const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'wsrep_cluster_name')";
const STATUS: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_cluster_size', 'wsrep_cluster_status', \
    'wsrep_local_state', 'wsrep_local_state_comment', 'wsrep_ready')";
/// `wsrep_local_state` of a node that has all transactions of the cluster.
const SYNCED: u64 = 4;
const PRIMARY: &str = "Primary";

/// What a node reports about itself.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Node {
    pub cluster: String,
    /// The nodes of the component that this one is in.
    pub size: Option<u64>,
    /// `Primary`, `non-Primary` or `Disconnected`.
    pub component: Option<String>,
    /// 1 joiner, 2 donor or desynchronised, 3 joined, 4 synced; 0 outside a primary component.
    pub state: Option<u64>,
    pub state_name: Option<String>,
    /// Whether it executes statements.
    pub is_ready: Option<bool>,
    /// Whether it has all transactions of a primary component, and executes statements.
    pub is_synced: bool,
}

/// None on a server that is no node.
pub fn read(connection: &mut Connection) -> Result<Option<Node>, Error> {
    let variables = pairs(rows(connection, VARIABLES)?);
    if !is_on(variables.get("wsrep_on")) {
        return Ok(None);
    }
    let status = pairs(rows(connection, STATUS)?);
    Ok(Some(Node::of(variables.get("wsrep_cluster_name"), &status)))
}

fn pairs(rows: Vec<Vec<Option<String>>>) -> BTreeMap<String, String> {
    let pair = |row: Vec<Option<String>>| {
        let mut cells = row.into_iter();
        Some((cells.next()??.to_ascii_lowercase(), cells.next()?.unwrap_or_default()))
    };
    rows.into_iter().filter_map(pair).collect()
}

fn is_on(value: Option<&String>) -> bool {
    value.is_some_and(|value| value.eq_ignore_ascii_case("ON") || value == "1")
}

impl Node {
    fn of(cluster: Option<&String>, status: &BTreeMap<String, String>) -> Self {
        let number = |name: &str| status.get(name).and_then(|value| value.parse().ok());
        let component = status.get("wsrep_cluster_status").cloned();
        let state = number("wsrep_local_state");
        let is_ready = status.contains_key("wsrep_ready").then(|| is_on(status.get("wsrep_ready")));
        Self {
            cluster: cluster.cloned().unwrap_or_default(),
            size: number("wsrep_cluster_size"),
            is_synced: component.as_deref() == Some(PRIMARY)
                && state == Some(SYNCED)
                && is_ready == Some(true),
            component,
            state,
            state_name: status.get("wsrep_local_state_comment").cloned(),
            is_ready,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Node, pairs};
    use std::collections::BTreeMap;

    /// As MariaDB 10.11 reports it.
    fn status(component: &str, state: &str, name: &str, ready: &str) -> BTreeMap<String, String> {
        let cells = [
            ("wsrep_cluster_size", "3"),
            ("wsrep_cluster_status", component),
            ("wsrep_local_state", state),
            ("wsrep_local_state_comment", name),
            ("wsrep_ready", ready),
        ];
        pairs(
            cells
                .iter()
                .map(|(key, value)| vec![Some((*key).to_owned()), Some((*value).to_owned())])
                .collect(),
        )
    }

    #[test]
    fn only_a_synced_node_of_a_primary_component_is_in_step() {
        for (component, state, name, ready, is_synced) in [
            ("Primary", "4", "Synced", "ON", true),
            ("Primary", "4", "Synced", "OFF", false),
            ("Primary", "3", "Joined", "ON", false),
            ("Primary", "2", "Donor/Desynced", "ON", false),
            ("Primary", "1", "Joining: receiving State Transfer", "OFF", false),
            ("non-Primary", "0", "Initialized", "OFF", false),
            ("Disconnected", "0", "Initialized", "OFF", false),
        ] {
            let node = Node::of(Some(&"shop".to_owned()), &status(component, state, name, ready));
            assert_eq!(node.is_synced, is_synced, "{component} {name} {ready}");
            assert_eq!((node.size, node.state_name.as_deref()), (Some(3), Some(name)));
        }
    }

    #[test]
    fn what_is_not_reported_is_not_in_step() {
        let node = Node::of(None, &BTreeMap::new());
        assert_eq!(node, Node::default());
    }
}
