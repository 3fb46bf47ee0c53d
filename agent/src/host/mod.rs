//! Reading a host: one parser a file of /proc or /sys. Parsers take text; the root path is a parameter.

pub mod facts;
pub mod interrupts;
pub mod meminfo;
pub mod sample;
