//! Data directories of new databases, made once and copied for each server.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::{env, io, process};

use crate::StartError;
use crate::account::Account;
use crate::dir::TestDir;

/// The directory that `make` created for this `key`: to be copied, not changed. Its name contains the program.
pub(crate) fn template(
    program: &str,
    key: impl Hash,
    make: impl FnOnce(&TestDir) -> Result<PathBuf, StartError>,
) -> Result<PathBuf, StartError> {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    let cache = cache()?;
    let place = cache.join(format!("{program}-{:016x}", hasher.finish()));
    if place.is_dir() {
        return Ok(place);
    }
    fs::create_dir_all(&cache)?;
    // One process creates it; others wait.
    let lock = File::create(place.with_extension("lock"))?;
    lock.lock()?;
    if !place.is_dir() {
        // In a directory of its own: Cargo's need not be accessible to the server's user.
        let dir = TestDir::new("template")?;
        let data = make(&dir)?;
        // Moved into place atomically.
        let beside = place.with_extension(process::id().to_string());
        if beside.exists() {
            fs::remove_dir_all(&beside)?;
        }
        copy(&data, &beside, None)?;
        fs::rename(&beside, &place)?;
    }
    Ok(place)
}

/// Identity of a program on this machine, without running it.
pub(crate) fn identity(program: &Path) -> io::Result<impl Hash> {
    let path = program.canonicalize()?;
    let meta = path.metadata()?;
    Ok((path, meta.len(), meta.modified()?))
}

/// Copies a directory with its content, and changes its owner to `owner`.
pub(crate) fn copy(from: &Path, to: &Path, owner: Option<Account>) -> io::Result<()> {
    copy_dir(from, to)?;
    owner.map_or(Ok(()), |owner| owner.own(to))
}

fn copy_dir(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    fs::set_permissions(to, from.metadata()?.permissions())?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Below this program's target directory of Cargo, or else the temporary one.
fn cache() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    let mut dirs = program.ancestors();
    let target = dirs.find(|dir| dir.join("CACHEDIR.TAG").is_file());
    Ok(match target {
        Some(target) => target.join("servers").join("templates"),
        None => env::temp_dir().join(format!("idem-templates-{}", nix::unistd::getuid())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    #[test]
    fn a_template_is_made_once_and_never_in_part() {
        let count = AtomicUsize::new(0);
        let make = |dir: &TestDir| {
            count.fetch_add(1, Ordering::Relaxed);
            let data = dir.path().join("data");
            fs::create_dir_all(data.join("below"))?;
            fs::write(data.join("below/file"), "text")?;
            Ok(data)
        };
        let key = format!("{} {:?}", process::id(), std::time::SystemTime::now());

        let failed = template("test", &key, |_| Err(StartError::new("no room")));
        assert_eq!(failed.unwrap_err().to_string(), "no room");

        let places = thread::scope(|scope| {
            let asked = [(); 4].map(|()| scope.spawn(|| template("test", &key, make).unwrap()));
            asked.map(|place| place.join().unwrap())
        });
        assert_eq!(count.into_inner(), 1);
        let [place, others @ ..] = places;
        assert!(others.iter().all(|other| *other == place));
        let dir = TestDir::new("copy").unwrap();
        let copied = dir.path().join("copied");
        copy(&place, &copied, None).unwrap();
        assert_eq!(
            fs::read_to_string(copied.join("below/file")).unwrap(),
            "text"
        );

        fs::remove_file(place.with_extension("lock")).unwrap();
        fs::remove_dir_all(place).unwrap();
    }
}
