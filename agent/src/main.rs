fn main() -> std::process::ExitCode {
    headrace_agent::main()
}
