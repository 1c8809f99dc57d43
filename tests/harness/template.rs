//! Data directories of new databases, made once and copied for each server.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::{env, io, process};

use crate::StartError;
use crate::account::Account;
use crate::dir::TestDir;

/// The directory that `make` has made once for this `key`, to be copied, not changed. Its name
/// says of which program.
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
    // One process makes it, others that come meanwhile wait for that.
    let lock = File::create(place.with_extension("lock"))?;
    lock.lock()?;
    if !place.is_dir() {
        // In a directory of its own: that of Cargo need not be open to the user it runs as.
        let dir = TestDir::new("template")?;
        let data = make(&dir)?;
        // Whole or not at all.
        let beside = place.with_extension(process::id().to_string());
        if beside.exists() {
            fs::remove_dir_all(&beside)?;
        }
        copy(&data, &beside, None)?;
        fs::rename(&beside, &place)?;
    }
    Ok(place)
}

/// What identifies a program on this machine, without running it.
pub(crate) fn identity(program: &Path) -> io::Result<impl Hash> {
    let path = program.canonicalize()?;
    let meta = path.metadata()?;
    Ok((path, meta.len(), meta.modified()?))
}

/// Copies a directory with everything in it, as the property of `owner`.
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

/// Below the target directory of Cargo that this program is in, or else below the temporary one.
fn cache() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    let mut dirs = program.ancestors();
    let target = dirs.find(|dir| dir.join("CACHEDIR.TAG").is_file());
    Ok(match target {
        Some(target) => target.join("servers").join("templates"),
        None => env::temp_dir().join(format!("idem-templates-{}", nix::unistd::getuid())),
    })
}
