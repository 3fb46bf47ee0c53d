use clap::Subcommand;

#[derive(Subcommand)]
pub enum JournalCommand {
    /// Print the open entries
    Show,
}

pub fn run(_command: &JournalCommand) -> anyhow::Result<()> {
    anyhow::bail!("not written yet")
}
