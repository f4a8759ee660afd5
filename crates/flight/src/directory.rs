//! A private directory of this user in a place that all users can write to, and its files.
//!
//! [Note: Shared places] Any user may prepare names in `/tmp`: a symbolic link in place of a file
//! lets a process overwrite any file that its user may write. So names are random and created
//! exclusively (`mkdir`, `O_EXCL`), an existing directory must belong to this user and be closed to
//! others, and links are not followed. Everything inside is accessed through the descriptor of the
//! checked directory, so that it cannot be exchanged afterwards.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use weft_transport::fork::Descriptor;

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const OTHERS: u32 = 0o077;
/// The resolution of file times: a tick of the kernel's clock at 100 Hz.
const TIME_STEP: Duration = Duration::from_millis(10);

/// A directory that only this user can read and write.
#[derive(Debug)]
pub(super) struct PrivateDirectory {
    path: PathBuf,
    opened: Descriptor<File>,
}

impl PrivateDirectory {
    /// This user's directory in `base`: the oldest whose name begins with `prefix`, or a new one.
    ///
    /// Processes that create one at the same time all take the oldest, once it is old enough that
    /// no other can have the same time.
    pub(super) fn of_user(base: &Path, prefix: &str) -> io::Result<Self> {
        fs::create_dir_all(base)?;
        let mut own = None;
        loop {
            match (Self::oldest(base, prefix)?, &own) {
                (Some((made, _)), _) if is_recent(made) => std::thread::sleep(TIME_STEP),
                (Some((_, found)), own) => {
                    if let Some(own) = own.as_ref().filter(|own| **own != found.path) {
                        let _ = fs::remove_dir(own);
                    }
                    return Ok(found);
                }
                (None, None) => {
                    let path = base.join(format!("{prefix}{}", unpredictable()?));
                    DirBuilder::new().mode(DIRECTORY_MODE).create(&path)?;
                    own = Some(path);
                }
                (None, Some(own)) => return Self::open(own.clone(), own),
            }
        }
    }

    /// The subdirectory of this name, created if it is missing.
    pub(super) fn subdirectory(&self, name: &str) -> io::Result<Self> {
        let pinned = self.pinned(name);
        match DirBuilder::new().mode(DIRECTORY_MODE).create(&pinned) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => Self::open(self.path.join(name), &pinned),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file atomically: a reader finds the former one or this one.
    pub(super) fn write(&self, name: &str, content: &str) -> io::Result<()> {
        let draft = self.pinned(&format!(".{name}.{}", unpredictable()?));
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(FILE_MODE);
        let written = options
            .custom_flags(libc::O_NOFOLLOW)
            .open(&draft)
            .and_then(|mut file| file.write_all(content.as_bytes()))
            .and_then(|()| fs::rename(&draft, self.pinned(name)));
        written.inspect_err(|_| _ = fs::remove_file(&draft))
    }

    /// Listens at a socket of this name, in place of one without a listener.
    pub(super) fn listen(&self, name: &str) -> io::Result<Descriptor<UnixListener>> {
        let pinned = self.pinned(name);
        self.remove(name);
        let listener = Descriptor::make(|| UnixListener::bind(&pinned))?;
        fs::set_permissions(&pinned, Permissions::from_mode(FILE_MODE))?;
        Ok(listener)
    }

    /// Removes a file, if it is there.
    pub(super) fn remove(&self, name: &str) {
        let _ = fs::remove_file(self.pinned(name));
    }

    /// Removes this directory if nothing is in it.
    pub(super) fn remove_if_empty(&self) {
        let _ = fs::remove_dir(&self.path);
    }

    /// Removes the subdirectories with the oldest writes until neither limit is exceeded. Removals
    /// by other processes are no errors.
    pub(super) fn sweep(&self, count_max: usize, age_max: Duration) -> io::Result<()> {
        let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in fs::read_dir(self.pinned("."))? {
            let entry = entry?;
            if let Ok(metadata) = entry.metadata()
                && metadata.is_dir()
            {
                found.push((metadata.modified()?, entry.path()));
            }
        }
        found.sort_by(|one, other| other.cmp(one));
        let now = SystemTime::now();
        let too_old =
            |written: &SystemTime| now.duration_since(*written).is_ok_and(|age| age > age_max);
        for (place, (written, path)) in found.iter().enumerate() {
            if (place >= count_max || too_old(written)) && !has_listener(path) {
                let _ = fs::remove_dir_all(path);
            }
        }
        Ok(())
    }

    /// The oldest directory of this user, and its creation time where the file system records it.
    fn oldest(base: &Path, prefix: &str) -> io::Result<Option<(SystemTime, Self)>> {
        let mut oldest: Option<(SystemTime, Self)> = None;
        for entry in fs::read_dir(base)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if !name.is_some_and(|name| name.starts_with(prefix)) {
                continue;
            }
            // Skips other users' directories, and files.
            let Ok(directory) = Self::open(path.clone(), &path) else {
                continue;
            };
            let made = directory.opened.metadata()?.created();
            let made = made.unwrap_or(SystemTime::UNIX_EPOCH);
            let is_older = |known: &(SystemTime, Self)| (made, &path) < (known.0, &known.1.path);
            if oldest.as_ref().is_none_or(is_older) {
                oldest = Some((made, directory));
            }
        }
        Ok(oldest)
    }

    /// Opens a directory at `place`, which messages call `path`.
    fn open(path: PathBuf, place: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let file = options.read(true).custom_flags(flags).open(place)?;
        // It is opened before, since nothing that may take long can be done while forks wait.
        let opened = Descriptor::make(|| Ok(file))?;
        let metadata = opened.metadata()?;
        let own = weft_transport::effective_user();
        if metadata.uid() != own || metadata.mode() & OTHERS != 0 {
            let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
            return Err(io::Error::other(format!(
                "{} belongs to user {owner} with mode {mode:o}: expected user {own}, mode 700",
                path.display()
            )));
        }
        Ok(PrivateDirectory { path, opened })
    }

    /// A path through the descriptor, which stays valid if the directory is moved.
    fn pinned(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.opened.as_raw_fd()))
    }
}

/// Whether a process listens at a socket in a directory: its job runs.
fn has_listener(directory: &Path) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths = entries.map(|entry| entry.path());
    paths.any(|path| {
        let is_socket = path
            .extension()
            .is_some_and(|extension| extension == "sock");
        is_socket && Descriptor::make(|| UnixStream::connect(&path)).is_ok()
    })
}

/// Whether another file with the same time may still be created.
fn is_recent(made: SystemTime) -> bool {
    SystemTime::now()
        .duration_since(made)
        .is_ok_and(|age| age < TIME_STEP)
}

fn unpredictable() -> io::Result<String> {
    Ok(format!(
        "{:016x}",
        u64::from_ne_bytes(weft_transport::random()?)
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;

    use super::super::tests::Directory;
    use super::*;

    const PREFIX: &str = "own-";

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn prepared_directories_of_others_are_not_used() {
        let (base, target) = (Directory::new(), Directory::new());
        fs::create_dir_all(&base.0).unwrap();
        fs::create_dir_all(&target.0).unwrap();
        fs::set_permissions(&target.0, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&target.0, base.0.join("own-0link")).unwrap();
        fs::write(base.0.join("own-1file"), "theirs").unwrap();
        let open = base.0.join("own-2open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let pipe = Command::new("mkfifo")
            .arg(base.0.join("own-3pipe"))
            .status();
        assert!(pipe.unwrap().success());

        let own = PrivateDirectory::of_user(&base.0, PREFIX).unwrap();
        assert_eq!(own.path().parent(), Some(&*base.0));
        assert_eq!(mode(own.path()), DIRECTORY_MODE);
        assert_eq!(own.path().file_name().unwrap().len(), PREFIX.len() + 16);
        own.subdirectory("job").unwrap().write("a", "mine").unwrap();
        let file = own.path().join("job/a");
        assert_eq!(
            (fs::read_to_string(&file).unwrap(), mode(&file)),
            ("mine".into(), FILE_MODE)
        );
        assert_eq!(fs::read_dir(&target.0).unwrap().count(), 0);
        assert_eq!(fs::read_dir(&open).unwrap().count(), 0);
        let again = PrivateDirectory::of_user(&base.0, PREFIX).unwrap();
        assert_eq!(again.path(), own.path());
    }

    #[test]
    fn links_in_place_of_files_are_not_followed() {
        let (base, target) = (Directory::new(), Directory::new());
        let own = PrivateDirectory::of_user(&base.0, PREFIX).unwrap();
        fs::create_dir_all(&target.0).unwrap();
        let file = target.0.join("file");
        fs::write(&file, "theirs").unwrap();
        symlink(&file, own.path().join("a")).unwrap();
        own.write("a", "mine").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "theirs");
        assert_eq!(fs::read_to_string(own.path().join("a")).unwrap(), "mine");
        symlink(&target.0, own.path().join("job")).unwrap();
        own.subdirectory("job").unwrap_err();
        // Writes go to the checked directory, not to one that has replaced it.
        let moved = base.0.join("moved");
        fs::rename(own.path(), &moved).unwrap();
        symlink(&target.0, own.path()).unwrap();
        own.write("b", "mine").unwrap();
        assert!(moved.join("b").exists());
        assert!(!target.0.join("b").exists());
    }

    #[test]
    fn failed_rename_leaves_no_draft() {
        let base = Directory::new();
        let own = PrivateDirectory::of_user(&base.0, PREFIX).unwrap();
        fs::create_dir(own.path().join("a")).unwrap();
        own.write("a", "mine").unwrap_err();
        assert_eq!(fs::read_dir(own.path()).unwrap().count(), 1);
    }

    #[test]
    fn processes_that_start_together_share_a_directory() {
        let base = Directory::new();
        let of_user = || PrivateDirectory::of_user(&base.0, PREFIX).map(|own| own.path);
        let paths = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(of_user)).collect();
            let join =
                |thread: std::thread::ScopedJoinHandle<'_, io::Result<PathBuf>>| thread.join();
            threads
                .into_iter()
                .map(|thread| join(thread).unwrap().unwrap())
                .collect::<Vec<_>>()
        });
        assert_eq!(paths, vec![of_user().unwrap(); 8]);
        assert_eq!(fs::read_dir(&base.0).unwrap().count(), 1);
    }

    #[test]
    fn old_subdirectories_are_removed() {
        let base = Directory::new();
        let own = PrivateDirectory::of_user(&base.0, PREFIX).unwrap();
        let now = SystemTime::now();
        for hours in 0..6 {
            let job = own.subdirectory(&format!("job-{hours}")).unwrap();
            job.write("rank0.json", "{}").unwrap();
            job.opened
                .set_modified(now - Duration::from_secs(hours * 3600))
                .unwrap();
        }
        let left = || {
            let mut names: Vec<_> = fs::read_dir(own.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        own.sweep(4, Duration::from_secs(24 * 3600)).unwrap();
        assert_eq!(left(), ["job-0", "job-1", "job-2", "job-3"]);
        own.sweep(4, Duration::from_secs(90 * 60)).unwrap();
        assert_eq!(left(), ["job-0", "job-1"]);
    }
}
