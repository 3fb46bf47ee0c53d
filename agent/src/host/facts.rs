use clap::Args;

#[derive(Args)]
pub struct FactsArguments {
    /// Read this folder as the root of the host
    #[arg(long, default_value = "/")]
    root: std::path::PathBuf,
}

pub fn run(_arguments: &FactsArguments) -> anyhow::Result<()> {
    anyhow::bail!("not written yet")
}
