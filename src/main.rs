//! The process: runs the command line and ends with its exit code.

fn main() -> std::process::ExitCode {
    inference_planner_exporter::cli::main()
}
