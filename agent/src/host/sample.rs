use clap::Args;

#[derive(Args)]
pub struct SampleArguments {}

pub fn run(_arguments: &SampleArguments) -> anyhow::Result<()> {
    anyhow::bail!("not written yet")
}
