//! The names in one directory.

use std::ffi::CStr;
use std::io;
use std::os::fd::AsRawFd;

use super::sys;

/// All names in a directory, in the order of their bytes, in one piece of memory: a directory of a
/// million files costs their names and eight bytes each.
#[derive(Default)]
pub struct Names {
    bytes: Vec<u8>,
    places: Vec<(u32, u32)>,
}

impl Names {
    /// Reads a directory from its start. `buffer` is only scratch space.
    pub fn read(directory: &impl AsRawFd, buffer: &mut [u8]) -> io::Result<Names> {
        let mut names = Names::default();
        loop {
            // SAFETY: the pointer and the length describe `buffer`.
            let filled = sys::check(|| unsafe {
                libc::syscall(libc::SYS_getdents64, directory.as_raw_fd(), buffer.as_mut_ptr(), buffer.len())
                    as i32
            })?;
            if filled == 0 {
                break;
            }
            names.take(&buffer[..filled as usize])?;
        }
        let bytes = &names.bytes;
        names.places.sort_unstable_by(|a, b| slice(bytes, *a).cmp(slice(bytes, *b)));
        Ok(names)
    }

    /// Records are: inode (8), offset (8), record length (2), type (1), name, NUL.
    fn take(&mut self, mut records: &[u8]) -> io::Result<()> {
        while let Some(&[low, high]) = records.get(16..18) {
            let length = usize::from(u16::from_ne_bytes([low, high]));
            let name = records.get(19..length).and_then(|rest| CStr::from_bytes_until_nul(rest).ok());
            let name = name.ok_or_else(|| sys::errno(libc::EIO))?.to_bytes_with_nul();
            if name != b".\0" && name != b"..\0" {
                let start = u32::try_from(self.bytes.len()).map_err(|_| sys::errno(libc::ENOMEM))?;
                self.bytes.extend_from_slice(name);
                self.places.push((start, name.len() as u32));
            }
            records = &records[length..];
        }
        Ok(())
    }

    /// The name at `index`, if there are so many.
    pub fn get(&self, index: usize) -> Option<&CStr> {
        let place = *self.places.get(index)?;
        CStr::from_bytes_with_nul(slice(&self.bytes, place)).ok()
    }
}

fn slice(bytes: &[u8], (start, length): (u32, u32)) -> &[u8] {
    &bytes[start as usize..][..length as usize]
}
