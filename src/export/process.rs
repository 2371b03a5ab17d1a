//! What does the kernel say about this process? A few lines of /proc/self; unknown where there is no such thing.

use std::fs;

/// Resource use of this process. `None` where the system does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessUse {
    /// User and system time, seconds.
    pub cpu_seconds: Option<f64>,
    /// Resident memory, bytes.
    pub resident_bytes: Option<f64>,
    /// Virtual memory, bytes.
    pub virtual_bytes: Option<f64>,
    /// Open file descriptors.
    pub open_fds: Option<f64>,
    /// Soft limit of open file descriptors; `None` also where there is no limit.
    pub max_fds: Option<f64>,
}

/// Clock ticks a second in /proc/self/stat: the kernel's USER_HZ, 100 on every architecture that Rust servers run on.
const TICKS_PER_SECOND: f64 = 100.0;

/// Reads the numbers now.
pub fn read() -> ProcessUse {
    let text = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    let status = text("status");
    ProcessUse {
        cpu_seconds: cpu_seconds(&text("stat")),
        resident_bytes: kilobytes(&status, "VmRSS:"),
        virtual_bytes: kilobytes(&status, "VmSize:"),
        // The directory that is being listed is itself one descriptor.
        open_fds: fs::read_dir("/proc/self/fd").ok().map(|fds| fds.count().saturating_sub(1) as f64),
        max_fds: max_fds(&text("limits")),
    }
}

/// Fields 14 and 15, counted after the command, which may hold blanks and parentheses itself.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS_PER_SECOND)
}

fn kilobytes(status: &str, key: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse::<f64>().ok().map(|kilobytes| kilobytes * 1024.0)
}

fn max_fds(limits: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_blanks_and_parentheses_moves_no_field() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194304 90 0 0 0 250 50 0 0 20 0 1 0 12 1000 200";
        assert_eq!(cpu_seconds(stat), Some(3.0));
    }

    #[test]
    fn memory_is_bytes_and_unlimited_descriptors_are_unknown() {
        assert_eq!(kilobytes("Name:\tx\nVmRSS:\t    2048 kB\n", "VmRSS:"), Some(2_097_152.0));
        assert_eq!(max_fds("Limit  Soft Limit\nMax open files            1024                 4096                 files\n"), Some(1024.0));
        assert_eq!(max_fds("Max open files            unlimited            unlimited            files\n"), None);
    }

    #[test]
    fn text_that_is_cut_short_is_unknown() {
        assert_eq!(cpu_seconds(""), None);
        assert_eq!(cpu_seconds("7 (a) S 1"), None);
        assert_eq!(kilobytes("", "VmRSS:"), None);
    }
}
