//! Recordings: captured traffic in our own format (docs/reference/recording-format.md). Blocks of columns, each whole in itself.

mod again;
mod anonymise;
mod columns;
pub mod commands;
mod decode;
mod describe;
mod edit;
mod encode;
mod frame;
pub mod fuzzing;
mod info;
mod owned;
mod place;
mod position;
mod reader;
pub mod record;
mod source;
mod standing;
mod state;
mod template;
mod text;
mod window;
mod writer;

#[cfg(test)]
mod tests;

pub use frame::{Header, Kind, MAGIC};
pub use info::{Info, Totals};
pub use position::Position;
pub use reader::Reader;
pub use writer::{Writer, WriterOptions};
