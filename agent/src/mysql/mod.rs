//! A small MySQL client: it runs a statement and reads its rows.
