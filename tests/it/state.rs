//! Does the state survive what happens to files and processes?

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use inference_planner_exporter::state::{Loaded, SaveError, StateFile};

type Payload = BTreeMap<String, f64>;
type Outcome = Result<(), Box<dyn Error>>;

fn payload(value: f64) -> Payload {
    BTreeMap::from([("pool".to_owned(), value)])
}

fn state(value: f64) -> Loaded<Payload> {
    Loaded::State(payload(value))
}

fn bad(path: &Path) -> PathBuf {
    path.with_extension("json.bad")
}

#[test]
fn a_saved_state_is_there_after_a_restart() -> Outcome {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("state.json");
    let file = StateFile::open(&path);
    assert!(file.is_writer());
    assert_eq!(file.load::<Payload>(), Loaded::Nothing);
    for value in [0.1 + 0.2, f64::MIN_POSITIVE, 5.0] {
        file.save(&payload(value))?;
        assert_eq!(file.load(), state(value));
    }
    drop(file);
    assert_eq!(StateFile::open(&path).load(), state(5.0));
    let mut names: Vec<_> = fs::read_dir(directory.path())?.map(|entry| entry.map(|entry| entry.file_name())).collect::<Result<_, _>>()?;
    names.sort();
    assert_eq!(names, ["state.json", "state.json.lock"]);
    Ok(())
}

#[test]
fn only_the_owner_may_read_it_also_where_an_older_one_was_open_to_all() -> Outcome {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("state.json");
    fs::write(&path, "damaged")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
    let file = StateFile::open(&path);
    assert!(matches!(file.load::<Payload>(), Loaded::Ignored(_)));
    file.save(&payload(1.0))?;
    for name in ["state.json", "state.json.lock"] {
        assert_eq!(fs::metadata(directory.path().join(name))?.permissions().mode() & 0o777, 0o600, "{name}");
    }
    Ok(())
}

#[test]
fn a_state_cut_off_or_changed_at_any_byte_is_ignored_or_the_same() -> Outcome {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("state.json");
    let file = StateFile::open(&path);
    file.save(&BTreeMap::from([("pool", 0.1 + 0.2), ("other", 3.0)]))?;
    let good = fs::read(&path)?;
    let Loaded::State(whole) = file.load::<Payload>() else { return Err("the state is good".into()) };
    let mut refused = 0;
    let mut try_with = |bytes: &[u8]| -> Outcome {
        fs::write(&path, bytes)?;
        match file.load::<Payload>() {
            Loaded::State(found) => assert_eq!(found, whole, "{}", String::from_utf8_lossy(bytes)),
            Loaded::Ignored(_) => refused += 1,
            Loaded::Nothing => return Err("a file is something".into()),
        }
        Ok(())
    };
    for length in 0..good.len() {
        try_with(&good[..length])?;
    }
    for place in 0..good.len() {
        for bit in [0x01, 0x08, 0x20, 0x80] {
            let mut changed = good.clone();
            changed[place] ^= bit;
            try_with(&changed)?;
        }
    }
    // What may change without harm is when it was written, and spaces.
    assert!(refused > good.len() * 4, "{refused} of {}", good.len() * 5);
    Ok(())
}

#[cfg(target_os = "linux")]
#[test]
fn no_place_that_cannot_be_written_is_fatal() -> Outcome {
    let directory = tempfile::tempdir()?;
    let below_a_file = directory.path().join("file/state.json");
    fs::write(directory.path().join("file"), "")?;
    // Of what is always there: no room for anybody, nor for root. `/proc` takes no new files, and `/sys` neither.
    for path in [below_a_file, "/proc/state.json".into(), "/dev/full/state.json".into()] {
        let file = StateFile::open(&path);
        assert!(!file.is_writer(), "{}", path.display());
        assert!(!matches!(file.load::<Payload>(), Loaded::State(_)));
        let refused = file.save(&payload(1.0)).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("state.json.lock"), "{refused}");
    }
    Ok(())
}

#[test]
fn a_second_writer_only_reads_until_the_first_has_gone() -> Outcome {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("state.json");
    let first = StateFile::open(&path);
    first.save(&payload(1.0))?;
    let second = StateFile::open(&path);
    assert!(first.is_writer() && !second.is_writer());
    assert_eq!(second.load(), state(1.0));
    assert!(matches!(second.save(&payload(2.0)), Err(SaveError::Locked { .. })));
    assert_eq!(first.load(), state(1.0));
    drop(first);
    assert!(second.is_writer());
    second.save(&payload(2.0))?;
    assert_eq!(second.load(), state(2.0));
    Ok(())
}

#[test]
fn a_file_that_cannot_be_used_is_ignored_with_words_and_kept_aside() -> Outcome {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("state.json");
    StateFile::open(&path).save(&payload(1.0))?;
    let good = fs::read_to_string(&path)?;
    let cases = [
        (String::new(), "damaged"),
        ("{\"format\": \"x\"".to_owned(), "damaged"),
        ("[1, 2]".to_owned(), "not ours"),
        (good[..good.len() - 3].to_owned(), "damaged"),
        (good.replace("exporter state", "other state"), "format"),
        (good.replace("\"version\":1", "\"version\":2"), "version is 2; expected 1"),
        (good.replace("\"pool\":1.0", "\"pool\":9.0"), "checksum"),
    ];
    for (text, words) in cases {
        assert_ne!(text, good);
        fs::write(&path, &text)?;
        let file = StateFile::open(&path);
        let Loaded::Ignored(reason) = file.load::<Payload>() else { return Err(format!("{text} was not ignored").into()) };
        assert!(reason.contains(words) && reason.contains("state.json"), "{reason}");
        assert_eq!(fs::read_to_string(&path)?, text);
        file.save(&payload(3.0))?;
        assert_eq!(file.load(), state(3.0));
        assert_eq!(fs::read_to_string(bad(&path))?, text);
    }
    Ok(())
}

#[test]
fn a_payload_of_another_kind_and_a_path_that_is_no_file_are_ignored() -> Outcome {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("state.json");
    let file = StateFile::open(&path);
    file.save(&"words")?;
    assert!(matches!(file.load::<Payload>(), Loaded::Ignored(reason) if reason.contains("payload")));
    let taken = directory.path().join("directory");
    fs::create_dir(&taken)?;
    let inside = StateFile::open(&taken);
    assert!(matches!(inside.load::<Payload>(), Loaded::Ignored(reason) if reason.contains("expected a file")));
    assert!(matches!(inside.save(&payload(1.0)), Err(SaveError::Disk { .. })));
    assert!(taken.is_dir());
    Ok(())
}

#[test]
fn a_file_that_is_far_too_large_is_not_read() -> Outcome {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("state.json");
    fs::File::create(&path)?.set_len(1 << 40)?;
    assert!(matches!(StateFile::open(&path).load::<Payload>(), Loaded::Ignored(reason) if reason.contains("expected at most")));
    Ok(())
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error_value() -> Outcome {
    let directory = tempfile::tempdir()?;
    let missing = StateFile::open(directory.path().join("missing/state.json"));
    assert!(!missing.is_writer());
    assert_eq!(missing.load::<Payload>(), Loaded::Nothing);
    assert!(matches!(missing.save(&payload(1.0)), Err(SaveError::Disk { .. })));
    // The name of the new file is taken by a directory.
    let path = directory.path().join("state.json");
    let file = StateFile::open(&path);
    file.save(&payload(1.0))?;
    fs::create_dir(directory.path().join("state.json.tmp"))?;
    let failed = file.save(&payload(2.0)).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(failed.contains("state.json.tmp"), "{failed}");
    assert_eq!(file.load(), state(1.0));
    // Once it can be written again, it is.
    fs::create_dir(directory.path().join("missing"))?;
    missing.save(&payload(3.0))?;
    assert_eq!(missing.load(), state(3.0));
    Ok(())
}
