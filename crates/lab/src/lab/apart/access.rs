//! What a user id can open.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::lab::plane::{DATA, Plane};

/// As one's user id its data file and process open, and the other's do not; as root the other's do.
pub fn by_user_id(own: &Plane, other: &Plane) -> Result<(), String> {
    let id = own.process.user;
    let of = |plane: &Plane, what: &str| PathBuf::from(format!("/proc/{}/{what}", plane.process.pid));
    // The file is looked for from its volume's directory, which the child is given: no directory above it is in the way.
    let file = || Path::new("/proc/self/fd/0").join(DATA);
    for (user, path, plane, wanted) in [
        (id, file(), own, true),
        (id, file(), other, false),
        (0, file(), other, true),
        (id, of(own, "environ"), own, true),
        (id, of(other, "environ"), other, false),
        (id, of(other, "mem"), other, false),
        (0, of(other, "mem"), other, true),
    ] {
        if opens(user, &path, &plane.volume)? != wanted {
            let verb = if wanted { "does not open" } else { "opens" };
            return Err(format!("user {user} {verb} {} of user {}", path.display(), plane.process.user));
        }
    }
    Ok(())
}

/// Whether a child with this user id opens a file. Its standard input is `directory`, as root opened it.
fn opens(user: u32, path: &Path, directory: &Path) -> Result<bool, String> {
    let input = File::open(directory).map_err(|e| format!("open {}: {e}", directory.display()))?;
    let output = Command::new("head")
        .args(["-c", "1", "--"])
        .arg(path)
        .env_clear()
        .envs([("LC_ALL", "C"), ("PATH", "/usr/bin:/bin")])
        .current_dir("/")
        .stdin(Stdio::from(input))
        .uid(user)
        .gid(user)
        .output()
        .map_err(|e| format!("run head as user {user}: {e}"))?;
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    // Nothing is mapped at the beginning of a process's memory: opened, and nothing to be read there.
    if output.status.success() || why.contains("Input/output error") {
        return Ok(true);
    }
    if why.contains("Permission denied") { Ok(false) } else { Err(format!("head {} as user {user}: {why}", path.display())) }
}
