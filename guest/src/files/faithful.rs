//! What a whole tree needs beyond what one user's files need: its ids as they are inside the sandbox, its
//! hard links, attributes and holes. Used on the host, where trees belong to shifted ids, and inside where no
//! host can reach the files.

use std::collections::HashMap;
use std::os::fd::AsRawFd;

use crate::task::Stopped;

use super::layer::Layer;
use super::sys::{self, invalid, shown};
use super::tar_header::{Attribute, Header};
use super::xattrs;

/// An id of the host that is not mapped inside is shown as this user, as kernels do.
const NOBODY: u32 = 65_534;
/// Bytes of names of files with further links that are remembered. Links to files beyond become files of
/// their own.
const MOST_LINK_BYTES: usize = 256 << 20;

/// The ids that users of a sandbox have on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// What 0 is there.
    pub host: u32,
    /// How many there are.
    pub size: u32,
}

impl Ids {
    /// The same inside and outside.
    pub const SAME: Ids = Ids { host: 0, size: u32::MAX };

    /// `HOSTID:SIZE`.
    pub fn parse(text: &str) -> Option<Ids> {
        let (host, size) = text.split_once(':')?;
        let ids = Ids { host: host.parse().ok()?, size: size.parse().ok()? };
        // The last id of all means none to the kernel.
        (ids.size > 0 && ids.host.checked_add(ids.size).is_some()).then_some(ids)
    }

    fn inside(&self, id: u32) -> Option<u32> {
        id.checked_sub(self.host).filter(|id| *id < self.size)
    }

    fn outside(&self, id: u32) -> Option<u32> {
        (id < self.size).then(|| self.host + id)
    }
}

/// What could not be put into an archive, or out of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Sockets and devices.
    pub files: u64,
    /// Attributes, because they are too large or the file system has none.
    pub attributes: u64,
    /// Owners whose ids are not mapped inside.
    pub owners: u64,
    /// Links that became files of their own.
    pub links: u64,
}

/// While a tree is packed.
pub struct Packing {
    ids: Ids,
    /// Files with holes are packed as what they are, and not as files without.
    pub sparse: bool,
    /// By device and inode: the first name, and how many further ones are still to come.
    links: HashMap<(u64, u64), (Vec<u8>, u64)>,
    link_bytes: usize,
    /// So far.
    pub left_out: LeftOut,
}

impl Packing {
    /// Of a tree with these ids.
    pub fn new(ids: Ids) -> Packing {
        Packing { ids, sparse: true, links: HashMap::new(), link_bytes: 0, left_out: LeftOut::default() }
    }

    /// The name of an earlier entry that is the same file. Remembers this one otherwise.
    // The types of these fields differ between architectures.
    #[allow(clippy::unnecessary_cast)]
    pub fn earlier(&mut self, name: &[u8], stat: &libc::stat) -> Option<Vec<u8>> {
        let further = (stat.st_nlink as u64).saturating_sub(1);
        if further == 0 || sys::kind(stat) == libc::S_IFDIR {
            return None;
        }
        let file = (stat.st_dev as u64, stat.st_ino as u64);
        if let Some((first, left)) = self.links.get_mut(&file) {
            *left -= 1;
            if *left > 0 {
                return Some(first.clone());
            }
            let (first, _) = self.links.remove(&file)?;
            self.link_bytes -= first.len();
            return Some(first);
        }
        if self.link_bytes + name.len() > MOST_LINK_BYTES {
            self.left_out.links += 1;
        } else {
            self.link_bytes += name.len();
            self.links.insert(file, (name.to_vec(), further));
        }
        None
    }

    /// The owner as the sandbox sees them.
    pub fn owner(&mut self, stat: &libc::stat) -> (u32, u32) {
        let (uid, gid) = (self.ids.inside(stat.st_uid), self.ids.inside(stat.st_gid));
        if uid.is_none() || gid.is_none() {
            self.left_out.owners += 1;
        }
        let nobody = NOBODY.min(self.ids.size - 1);
        (uid.unwrap_or(nobody), gid.unwrap_or(nobody))
    }

    /// Its attributes, as far as there is room for them.
    pub fn attributes(&mut self, file: &impl AsRawFd, buffer: &mut [u8]) -> Vec<Attribute> {
        let (attributes, too_many) = xattrs::read(file.as_raw_fd(), buffer);
        self.left_out.attributes += too_many;
        attributes
    }
}

/// While a tree is unpacked.
pub struct Unpacking {
    ids: Ids,
    /// Where the archive is a layer of an image.
    pub layer: Option<Layer>,
    /// So far.
    pub left_out: LeftOut,
}

impl Unpacking {
    /// For a sandbox with these ids.
    pub fn new(ids: Ids) -> Unpacking {
        Unpacking { ids, layer: None, left_out: LeftOut::default() }
    }

    /// Gives an entry the ids of the host. An id that is not mapped becomes `NOBODY` in a layer, and is
    /// refused elsewhere.
    pub fn shift(&mut self, header: &mut Header) -> Result<(), Stopped> {
        let owners = (self.ids.outside(header.uid), self.ids.outside(header.gid));
        if self.layer.is_some() && (owners.0.is_none() || owners.1.is_none()) {
            let nobody = self.ids.host + NOBODY.min(self.ids.size - 1);
            self.left_out.owners += 1;
            (header.uid, header.gid) = (owners.0.unwrap_or(nobody), owners.1.unwrap_or(nobody));
            return Ok(());
        }
        let (Some(uid), Some(gid)) = owners else {
            return Err(invalid(format!(
                "Cannot unpack \"{}\": it belongs to {}:{}, which no sandbox has",
                shown(&header.name),
                header.uid,
                header.gid
            )));
        };
        (header.uid, header.gid) = (uid, gid);
        Ok(())
    }

    /// Root, as the host sees them.
    pub fn root(&self) -> u32 {
        self.ids.host
    }

    /// Sets the attributes of a file that has none yet.
    pub fn set_attributes(&mut self, file: &impl AsRawFd, header: &Header) -> std::io::Result<()> {
        for (name, value) in &header.attributes {
            match xattrs::write(file.as_raw_fd(), name, value) {
                Ok(()) => {}
                Err(error)
                    if [libc::ENOTSUP, libc::ERANGE, libc::E2BIG, libc::ENAMETOOLONG]
                        .iter()
                        .any(|number| sys::is(&error, *number)) =>
                {
                    self.left_out.attributes += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "faithful_tests.rs"]
mod tests;
