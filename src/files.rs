//! What is in a small file, whatever stands at its path? The path may name a pipe, a device or a folder, and become one at any moment.

use std::fs::{File, OpenOptions};
use std::io::{Error, Read, Result};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// The content of an ordinary file of at most so many bytes.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    let file = open(path)?;
    let mut bytes = Vec::new();
    // What is said of its length spares the reading; what is read counts, since it may grow meanwhile.
    if file.metadata()?.len() <= most {
        file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 <= most {
            return Ok(bytes);
        }
    }
    Err(Error::other(format!("expected at most {most} bytes, got more")))
}

/// Opens an ordinary file. What is open is judged, and not what stood at the path before, so that nothing can come between. A pipe is opened
/// without waiting for someone who writes to it, which might be for ever.
fn open(path: &Path) -> Result<File> {
    let no_file = || Error::other("expected a file, got something else");
    match OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path) {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        Ok(_) => Err(no_file()),
        // A socket cannot be opened at all.
        Err(error) => Err(if path.metadata().is_ok_and(|found| found.file_type().is_socket()) { no_file() } else { error }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    use super::*;

    #[test]
    fn an_ordinary_file_of_up_to_the_limit_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        fs::write(&file, "four").unwrap();
        assert_eq!(read(&file, 4).unwrap(), b"four");
        assert_eq!(read(&file, 3).unwrap_err().to_string(), "expected at most 3 bytes, got more");
        assert_eq!(read(&file, u64::MAX).unwrap(), b"four");
        assert_eq!(read(&folder.path().join("b"), 4).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let [pipe, socket] = ["pipe", "socket"].map(|name| folder.path().join(name));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let _listening = UnixListener::bind(&socket).unwrap();
        for path in [folder.path(), &pipe, &socket, Path::new("/dev/zero"), Path::new("/dev/null")] {
            assert_eq!(read(path, 4).unwrap_err().to_string(), "expected a file, got something else", "{}", path.display());
        }
    }
}
