//! `traffic`: what production really sends. Sources make events; recordings keep, digests sum up, replay sends again.

pub mod binlog;
pub mod capture;
pub mod commands;
pub mod coverage;
pub mod digest;
pub mod event;
pub mod events;
mod exports;
pub mod filter;
pub mod general_log;
pub mod guard;
pub mod input;
mod json;
pub mod measures;
mod numbers;
pub mod packets;
mod pieces;
mod prefixed;
pub mod proxy;
pub mod recording;
pub mod replay;
mod rewritten;
pub mod slow_log;
pub mod sources;
pub mod stream;
mod unreadable;
pub mod wire;
