//! MySQL's group replication (8.0 and newer): the members, and how far behind this one applies.
//!
//! A member fetches no binary log, so SHOW REPLICA STATUS and SHOW REPLICAS say nothing of it.

use serde::Serialize;

use super::query::{Named, query_first, rows};
use mysql::{Connection, Error};

/// The channel through which a member applies what the others commit.
pub const APPLIER: &str = "group_replication_applier";
/// A server without the plugin has no such variable, and one that was never meant to be a member has no name in it.
const NAME: &str = "SHOW GLOBAL VARIABLES LIKE 'group_replication_group_name'";
/// The lag is the age of the oldest transaction that is being applied, by the clock of the member that committed it,
/// or by the time that it is being applied here: clocks of a group may differ. A member that was not started yet has
/// no id in MySQL 8.0.
const MEMBERS: &str = "\
    SELECT MEMBER_ID, MEMBER_HOST, MEMBER_PORT, MEMBER_STATE, MEMBER_ROLE, \
    MEMBER_ID IN (@@GLOBAL.server_uuid, '') AS IS_OWN, \
    (SELECT SERVICE_STATE FROM performance_schema.replication_applier_status \
     WHERE CHANNEL_NAME = 'group_replication_applier') AS APPLIER_STATE, \
    (SELECT MAX(GREATEST(\
       COALESCE(TIMESTAMPDIFF(SECOND, APPLYING_TRANSACTION_ORIGINAL_COMMIT_TIMESTAMP, NOW(6)), 0), \
       COALESCE(TIMESTAMPDIFF(SECOND, APPLYING_TRANSACTION_START_APPLY_TIMESTAMP, NOW(6)), 0), 0)) \
     FROM performance_schema.replication_applier_status_by_worker \
     WHERE CHANNEL_NAME = 'group_replication_applier' AND APPLYING_TRANSACTION <> '') AS LAG_S \
    FROM performance_schema.replication_group_members ORDER BY MEMBER_ID";

/// What this server reports about its group.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Group {
    pub name: String,
    pub members: Vec<Member>,
    /// `ON` or `OFF`: whether this server applies what the others commit.
    pub applier: Option<String>,
    /// None while nothing is being applied.
    pub lag_s: Option<u64>,
}

/// `host` and `port` are what the member gave (`report_host`, `report_port`). `role` is empty while it is in no group.
#[derive(Debug, PartialEq, Serialize)]
pub struct Member {
    pub id: String,
    pub host: String,
    pub port: Option<u64>,
    /// `ONLINE`, `RECOVERING`, `UNREACHABLE`, `OFFLINE`, `ERROR`.
    pub state: String,
    /// `PRIMARY` or `SECONDARY`.
    pub role: String,
    /// Whether it is this server.
    pub is_own: bool,
}

/// The name of the group that this server is configured for; empty without one.
pub fn name(connection: &mut Connection) -> Result<String, Error> {
    let found = rows(connection, NAME)?;
    Ok(found.into_iter().next().and_then(|row| row.into_iter().nth(1)?).unwrap_or_default())
}

/// The members as this server sees them.
pub fn read(connection: &mut Connection, name: &str) -> Result<Group, Error> {
    let mut group = Group { name: name.to_owned(), ..Group::default() };
    query_first(connection, &[MEMBERS], &mut 0, |columns, row| {
        group.add(Named::new(columns, row));
    })?;
    Ok(group)
}

impl Group {
    fn add(&mut self, row: Named<'_>) {
        let text = |name: &str| row.text(&[name]).unwrap_or_default();
        self.applier = row.text(&["APPLIER_STATE"]);
        self.lag_s = row.number(&["LAG_S"]);
        self.members.push(Member {
            id: text("MEMBER_ID"),
            host: text("MEMBER_HOST"),
            port: row.number(&["MEMBER_PORT"]),
            state: text("MEMBER_STATE"),
            role: text("MEMBER_ROLE"),
            is_own: text("IS_OWN") == "1",
        });
    }
}
