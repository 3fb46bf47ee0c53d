//! `traffic`: what production really sends. Sources make events; recordings keep, digests sum up, replay sends again.

pub mod capture;
pub mod commands;
pub mod coverage;
pub mod digest;
pub mod event;
pub mod events;
pub mod filter;
pub mod general_log;
pub mod guard;
pub mod input;
mod json;
pub mod measures;
mod numbers;
pub mod packets;
mod pieces;
pub mod proxy;
pub mod recording;
pub mod replay;
pub mod slow_log;
pub mod sources;
pub mod stream;
pub mod wire;
