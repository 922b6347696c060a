//! Volumes of a Pod: made before its containers start, kept fresh while they run, removed after them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, HostPathVolumeSource, PersistentVolume, PersistentVolumeClaim, Pod, Volume,
};
use kube::{Api, Client};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::error::{Error, Result};
use crate::paths::{NodePaths, make_dir, remove_tree};
use crate::pods::downward::{Addresses, Allocatable};
use crate::pods::resources::millis;

mod atomic;
mod content;
mod projected;
mod tokens;

pub use atomic::is_inside;
pub use tokens::Tokens;

/// Where the content of a mounted volume is: `path` inside `base`, never outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub base: PathBuf,
    pub path: String,
    /// The volume itself is read-only, whatever the mount says.
    pub read_only: bool,
    /// A missing directory is made when it is mounted.
    pub create: bool,
}

/// What volumes are made from.
#[derive(Clone)]
pub struct Volumes {
    pub client: Client,
    pub paths: NodePaths,
    /// Where paths of the node start.
    pub host_root: PathBuf,
    pub tokens: Tokens,
}

/// On a volume of Atoll's own provisioner: the user id that its directory belongs to.
const OWNER_UID: &str = "atoll.dev/owner-uid";

/// What a Pod's volumes may refer to beside the API.
pub struct Context<'a> {
    pub pod: &'a Pod,
    pub addresses: &'a Addresses,
    pub allocatable: &'a Allocatable,
}

impl Context<'_> {
    fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    fn fs_group(&self) -> Option<u32> {
        let group = self.pod.spec.as_ref()?.security_context.as_ref()?.fs_group?;
        u32::try_from(group).ok()
    }
}

impl Volumes {
    /// Makes all volumes of a Pod, or brings their content up to date.
    pub async fn mount(&self, context: &Context<'_>) -> Result<BTreeMap<String, Source>> {
        let mut mounted = BTreeMap::new();
        for volume in context.pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()) {
            let source = self.mount_one(context, volume).await.map_err(|e| match e {
                Error::Volume(why) => Error::Volume(format!("MountVolume.SetUp failed for volume {:?} : {why}", volume.name)),
                e => Error::Volume(format!("MountVolume.SetUp failed for volume {:?} : {e}", volume.name)),
            })?;
            mounted.insert(volume.name.clone(), source);
        }
        Ok(mounted)
    }

    /// Whether a Pod has volumes whose content follows the API.
    pub fn are_live(pod: &Pod) -> bool {
        let live = |v: &Volume| v.secret.is_some() || v.config_map.is_some() || v.downward_api.is_some() || v.projected.is_some();
        pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()).any(live)
    }

    async fn mount_one(&self, context: &Context<'_>, volume: &Volume) -> Result<Source> {
        if let Some(empty) = &volume.empty_dir {
            return self.empty_dir(context, &volume.name, empty);
        }
        if let Some(host) = &volume.host_path {
            return self.host_path(host);
        }
        if let Some(claim) = &volume.persistent_volume_claim {
            let mut source = self.claim(context, &claim.claim_name).await?;
            source.read_only |= claim.read_only == Some(true);
            return Ok(source);
        }
        let Some((plugin, files)) = self.files(context, volume).await? else {
            return Err(Error::Volume("this kind of volume is not supported by this node".to_owned()));
        };
        let directory = self.paths.volume(context.uid(), plugin, &volume.name);
        make_dir(&directory, 0o755)?;
        // Content from the API may be secret: it stays in memory where the agent may mount.
        tmpfs(&directory, None)?;
        atomic::write(&directory, &files, context.fs_group(), jiff::Timestamp::now()).map_err(Error::file(&directory))?;
        Ok(Source { base: directory, path: String::new(), read_only: true, create: false })
    }

    fn empty_dir(&self, context: &Context<'_>, name: &str, empty: &EmptyDirVolumeSource) -> Result<Source> {
        let directory = self.paths.volume(context.uid(), "kubernetes.io~empty-dir", name);
        let is_new = !directory.exists();
        make_dir(&directory, 0o777)?;
        if empty.medium.as_deref() == Some("Memory") {
            let bytes = empty.size_limit.as_ref().and_then(|q| millis(&q.0)).map(|m| m / 1000);
            tmpfs(&directory, bytes)?;
        }
        if is_new {
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).map_err(Error::file(&directory))?;
            own(&directory, context.fs_group())?;
        }
        Ok(Source { base: directory, path: String::new(), read_only: false, create: false })
    }

    fn host_path(&self, host: &HostPathVolumeSource) -> Result<Source> {
        let kind = host.type_.as_deref().unwrap_or("");
        let path = self.inside_root(&host.path)?;
        let wrong = |what: &str| Err(Error::Volume(format!("hostPath type check failed: {} is not a {what}", host.path)));
        let create = match kind {
            "" | "DirectoryOrCreate" => true,
            "Directory" if !path.is_dir() => return wrong("directory"),
            "File" if !path.is_file() => return wrong("file"),
            "FileOrCreate" if !path.exists() => {
                make_dir(path.parent().unwrap_or(Path::new("/")), 0o755)?;
                fs::File::create(&path).map_err(Error::file(&path))?;
                false
            }
            "Socket" | "CharDevice" | "BlockDevice" if !path.exists() => return wrong(kind),
            _ => false,
        };
        Ok(Source { base: self.host_root.clone(), path: host.path.clone(), read_only: false, create })
    }

    /// A path of the node's own root.
    fn inside_root(&self, path: &str) -> Result<PathBuf> {
        let relative = path.trim_start_matches('/');
        if !relative.is_empty() && !is_inside(relative) {
            return Err(Error::Volume(format!("{path} leads out of the node's root")));
        }
        Ok(self.host_root.join(relative))
    }

    async fn claim(&self, context: &Context<'_>, name: &str) -> Result<Source> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), context.namespace());
        let claim = claims.get(name).await?;
        let volume = claim.spec.as_ref().and_then(|s| s.volume_name.clone()).filter(|v| !v.is_empty());
        let volume = volume.ok_or_else(|| Error::Volume(format!("PersistentVolumeClaim {name:?} is not bound")))?;
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let object = volumes.get(&volume).await?;
        let owner = object.metadata.annotations.as_ref().and_then(|a| a.get(OWNER_UID)?.parse::<u32>().ok());
        let spec = object.spec.unwrap_or_default();
        let path = spec.host_path.map(|h| h.path).or_else(|| spec.local.map(|l| l.path));
        let path = path.ok_or_else(|| {
            Error::Volume(format!("PersistentVolume {volume:?} is neither hostPath nor local, which is what this node mounts"))
        })?;
        let directory = self.inside_root(&path)?;
        if !directory.exists() {
            make_dir(&directory, 0o700)?;
            // A fresh directory is its owner's or its Pod's alone, also where no group shares it.
            let owner = owner.or_else(|| projected::single_user(context.pod));
            if let Some(user) = owner.filter(|_| nix::unistd::geteuid().is_root()) {
                chown(&directory, Some(user), None).map_err(Error::file(&directory))?;
            }
        }
        own(&directory, context.fs_group())?;
        Ok(Source { base: directory, path: String::new(), read_only: false, create: false })
    }

    /// Removes what was made for a Pod. Directories of hostPath and claims are not its own and stay.
    pub fn unmount(&self, uid: &str) -> Result<()> {
        let root = self.paths.pod(uid).join("volumes");
        for plugin in fs::read_dir(&root).into_iter().flatten().flatten() {
            for volume in fs::read_dir(plugin.path()).into_iter().flatten().flatten() {
                while umount2(&volume.path(), MntFlags::MNT_DETACH).is_ok() {}
            }
        }
        remove_tree(&root)
    }
}

/// Mounts a tmpfs unless there is one already; without the right to mount the directory stays as it is.
fn tmpfs(directory: &Path, bytes: Option<i128>) -> Result<()> {
    let is_tmpfs = nix::sys::statfs::statfs(directory).is_ok_and(|s| s.filesystem_type() == nix::sys::statfs::TMPFS_MAGIC);
    if !nix::unistd::geteuid().is_root() || is_tmpfs && is_mount_point(directory) {
        return Ok(());
    }
    let size = bytes.map_or("mode=755,size=64m".to_owned(), |b| format!("mode=777,size={b}"));
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), directory, Some("tmpfs"), flags, Some(size.as_str()))
        .map_err(Error::system(format!("mount tmpfs on {}", directory.display())))
}

fn is_mount_point(directory: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| fs::metadata(path).map(|m| m.dev()).ok();
    directory.parent().is_some_and(|parent| device(directory) != device(parent))
}

/// Gives a volume to the Pod's group.
fn own(directory: &Path, group: Option<u32>) -> Result<()> {
    let Some(group) = group else { return Ok(()) };
    match chown(directory, None, Some(group)) {
        // Without root the agent's own user is all there is.
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied && !nix::unistd::geteuid().is_root() => return Ok(()),
        other => other.map_err(Error::file(directory))?,
    }
    let mode = fs::metadata(directory).map_err(Error::file(directory))?.permissions().mode();
    fs::set_permissions(directory, fs::Permissions::from_mode(mode | 0o2070)).map_err(Error::file(directory))
}
